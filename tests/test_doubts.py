"""What else than a relation could explain a pair, from what was estimated."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from benchmarks.families import Family, simulate

from oodles.stats.doubts import of_answers, of_one_part
from oodles.stats.estimates import Estimator
from oodles.stats.preference import Preference
from oodles.stats.resample import SIGNIFICANT
from test_tested import HIDDEN, found_in

WITHIN = Estimator(within="run")


def test_a_pair_that_is_significant_only_without_noise_may_rest_on_one_part_too() -> None:
    found = found_in(simulate(HIDDEN, 0.6, np.random.default_rng(2)), WITHIN)
    assert found.estimate.interval.p_val[0, 1] > SIGNIFICANT > found.p_corrected[0, 1]
    assert of_one_part(found, 0, 1).startswith("without steps 0 to 1 r is +0.13 (")
    assert of_one_part(replace(found, p_corrected=np.ones((2, 2))), 0, 1) == ""


@pytest.mark.parametrize(
    ("left", "p_val", "told"),
    [
        (0.5, 0.001, ""),
        (0.5, 0.2, "without what the share of an answer can explain, r is +0.50"),
        (-0.5, 0.001, "without what the share of an answer can explain, r is -0.50"),  # clearly, but the other way
        (np.nan, 1.0, "without what the share of an answer can explain, nothing is left"),
        (np.nan, np.nan, ""),  # not known
    ],
    ids=["left", "gone", "turned", "nothing", "unknown"],
)
def test_a_pair_is_one_of_answers_unless_the_same_relation_is_left_without_their_share(
    left: float, p_val: float, told: str
) -> None:
    found = found_in(simulate(Family(sets=2, every=True), 0.8, np.random.default_rng(1)), WITHIN)
    assert found.estimate.r[0, 1] > 0.5
    assert found.estimate.interval.p_val[0, 1] < SIGNIFICANT
    answers = Preference(drift=np.zeros(2), r=np.full((2, 2), left), p_val=np.full((2, 2), p_val))
    assert of_answers(replace(found, answers=answers), 0, 1) == told
