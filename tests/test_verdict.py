"""The sentence claims no more than the runs allow."""

from __future__ import annotations

import numpy as np
import pytest

from oodles.correlate import partial_correlations
from oodles.verdict import verdicts
from test_correlate import simulated


def test_three_runs_describe_and_test_nothing():
    (verdict,) = verdicts(partial_correlations(simulated(runs=3)))
    assert verdict.descriptive
    assert verdict.n_runs == 3
    assert verdict.group == {"model": "m", "train_set": "mnli"}
    for words in ("with 3 runs", "differ by chance", "nothing was tested", "5 or more independent runs"):
        assert words in verdict.sentence
    assert "Yes" not in verdict.sentence


def test_many_runs_count_pairs_after_adjustment():
    (verdict,) = verdicts(partial_correlations(simulated(runs=9, rho=0.9, level=0.0)))
    assert not verdict.descriptive
    assert verdict.sentence.startswith("Yes: with 9 runs")
    assert "of 3 pairs of test sets 3 rise together, 0 move apart and 0 cannot be told" in verdict.sentence


def test_no_relation_is_no_evidence():
    (verdict,) = verdicts(partial_correlations(simulated(runs=6, rho=0.0, seed=3)))
    assert verdict.sentence.startswith("No evidence either way")


def test_units_are_named_where_runs_are_not():
    (verdict,) = verdicts(partial_correlations(simulated(runs=6), unit="seed"))
    assert "6 runs (3 independent)" in verdict.sentence


def test_nothing_left_is_no_answer():
    table = simulated(runs=3)
    table["value"] = np.where(table["test_set"] == "mnli", table["value"], 0.5)
    (verdict,) = verdicts(partial_correlations(table))
    assert verdict.sentence.startswith("No answer")


def test_tables_without_groups_and_several_groups():
    table = simulated(runs=3)
    (verdict,) = verdicts(partial_correlations(table.drop(columns=["model", "train_set"])))
    assert verdict.group == {}
    both = table.assign(model=np.where(table["run"] == "m_mnli_0", "small", "large"))
    found = verdicts(partial_correlations(both, within="pooled"))
    assert [v.group["model"] for v in found] == ["large", "small"]
    assert [v.n_runs for v in found] == [2, 1]


@pytest.mark.parametrize("within", ["run", "separate"])
def test_without_pooled_the_first_way_is_summarised(within):
    (verdict,) = verdicts(partial_correlations(simulated(runs=9, rho=0.9), within=within))
    assert verdict.sentence.startswith("Yes")
