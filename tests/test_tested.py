"""A group beyond noise of the in-domain set: which p holds, and when parts of training are looked at."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from benchmarks.families import DataSet, Family, long_table, simulate

from oodles.stats.cautions import Cautions
from oodles.stats.estimates import Estimate, Estimator, estimate
from oodles.stats.inside import Inside
from oodles.stats.resample import SIGNIFICANT
from oodles.stats.tested import Found, GroupTask, _beyond_noise, _without_bias

HIDDEN = Family(steps=(12,), n_id=250, links="vee", level=0.0, records=True, sets=2, every=True)


def found_in(data: DataSet, recipe: Estimator) -> Found:
    beware = Cautions.read(long_table(data), metric="accuracy", chance=None)
    return GroupTask(recipe=recipe, items=data, beware=beware, said=()).run(data.series)


def related(within: str = "run") -> Estimate:
    """Two sets that rise together beyond doubt."""
    data = simulate(Family(sets=2, every=True), 0.8, np.random.default_rng(1))
    found = estimate(data.series, Estimator(within=within))
    assert found.r[0, 1] > 0.5
    assert found.interval.p_val[0, 1] < SIGNIFICANT
    return found


def products(r: float) -> np.ndarray:
    return np.array([[1.0, r], [r, 1.0]])


def without(found: Estimate, r: float, source: str = "records") -> Inside:
    """As if r were left without noise of the in-domain set, whatever unit is left out."""
    n_units = len(found.used.unit_names)
    return Inside(source=source, variance=1e-4, full=products(r), left_out=np.array([products(r)] * n_units))


def test_parts_are_looked_at_where_noise_alone_hid_a_correlation() -> None:
    """Links of opposite slopes: noise lowers the correlation, which is significant only without it."""
    found = found_in(simulate(HIDDEN, 0.6, np.random.default_rng(2)), Estimator(within="run"))
    assert found.estimate.interval.p_val[0, 1] > SIGNIFICANT > found.p_corrected[0, 1]
    assert len(found.parts.names) == 10 + 9


def test_parts_are_not_looked_at_where_nothing_is_significant() -> None:
    found = found_in(simulate(HIDDEN, 0.0, np.random.default_rng(3)), Estimator(within="run"))
    assert min(found.estimate.interval.p_val[0, 1], found.p_corrected[0, 1]) > SIGNIFICANT
    assert found.parts.names == ()


def test_a_correlation_that_noise_turns_into_its_perfect_opposite_has_no_p_of_its_own() -> None:
    """At the limit there is nothing to test; the plain p holds only where the sign is the same."""
    found, recipe = related(), Estimator(within="run")
    same, other = (_beyond_noise(found, without(found, r), recipe, flat=False)[0, 1] for r in (1.0, -1.0))
    assert same == found.interval.p_val[0, 1]
    assert not other < SIGNIFICANT
    assert _beyond_noise(found, without(found, -1.0, "binomial"), recipe, flat=False)[0, 1] == 1.0


@pytest.mark.parametrize("sign", [1, -1])
def test_with_a_fit_for_each_run_a_p_is_replaced_where_the_usual_links_are_biased_away_from_none(sign: int) -> None:
    usual, recipe = related(), Estimator(within="separate")
    found = replace(related("separate"), r=products(0.5 * sign))
    small, beyond = np.full((2, 2), 0.001), np.full((2, 2), 0.4)

    def told(bias: float) -> float:
        """The p where noise adds so much to the correlation of the usual links."""
        inside = without(usual, float(usual.r[0, 1]) - bias)
        return float(_without_bias(found, usual, inside, recipe, small, beyond)[0, 1])

    assert told(0.2 * sign) == 0.4
    assert told(-0.2 * sign) == 0.001  # noise lowers it
    assert told(0.02 * sign) == 0.001  # by next to nothing
