"""The sentence claims no more than the runs allow."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from oodles.stats.correlate import partial_correlations
from oodles.stats.verdict import NOTHING, _with_intervals, verdicts
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
    assert (
        "of 3 pairs of test sets 3 rise together (hans ~ paws; hans ~ rte; paws ~ rte), 0 move apart, and 0 cannot be"
        in verdict.sentence
    )


def test_no_relation_is_no_evidence():
    (verdict,) = verdicts(partial_correlations(simulated(runs=6, rho=0.0, seed=3)))
    assert verdict.sentence.startswith("No evidence either way")


def test_units_are_named_where_runs_are_not():
    (verdict,) = verdicts(partial_correlations(simulated(runs=6), unit="seed"))
    assert "6 runs (3 independent)" in verdict.sentence


def test_pairs_that_rest_on_different_numbers_of_runs_are_a_range():
    table = simulated(runs=9)
    table = table[(table["test_set"] != "rte") | (table["run"] < "m_mnli_6")]
    (verdict,) = verdicts(partial_correlations(table))
    assert "with 6 to 9 runs" in verdict.sentence
    assert verdict.n_runs == 9


def test_one_run_pools_nothing():
    (verdict,) = verdicts(partial_correlations(simulated(runs=1)))
    assert "with 1 run," in verdict.sentence
    assert "pools" not in verdict.sentence


@pytest.mark.parametrize("runs", [3, 9])
def test_in_domain_scores_that_hardly_differ_within_runs_alone_are_said_of_these(runs):
    table = simulated(runs=runs, rho=0.9)
    inside = table["test_set"] == "mnli"
    level = 0.5 + 0.04 * table["run"].str[-1].astype(int)
    (verdict,) = verdicts(partial_correlations(table.assign(value=table["value"].mask(inside, level))))
    pooled, within = verdict.sentence.split(" That pools all runs; ")
    assert "held fixed" in pooled
    assert "hardly differs" not in pooled
    assert within.startswith("within runs, each run's own level taken out and with hardly anything to hold fixed,")
    assert "In-domain performance hardly differs within runs and explains next to nothing" in within


def test_nothing_left_is_no_answer():
    table = simulated(runs=3)
    table["value"] = np.where(table["test_set"] == "mnli", table["value"], 0.5)
    (verdict,) = verdicts(partial_correlations(table))
    assert verdict.head == NOTHING
    assert verdict.sentence.startswith(f"{NOTHING}: no pair of test sets has enough points")
    assert not verdict.descriptive  # there is nothing that it describes


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


def test_a_relation_within_runs_is_not_passed_over() -> None:
    """Levels of runs hide it when pooled: the verdict gives both counts, so it cannot contradict the table."""
    draw = np.random.default_rng(0)
    rows = []
    for run in range(8):
        levels = draw.normal(0, 0.05, 2)
        for step in range(12):
            z, shared = 0.5 + 0.03 * step, draw.normal(0, 0.02)
            for name, value in (("in", z), ("a", z + levels[0] + shared), ("b", z + levels[1] + shared)):
                rows.append((f"r{run}", step, name, value + draw.normal(0, 0.002)))
    table = pd.DataFrame(rows, columns=["run", "step", "test_set", "value"])
    result = partial_correlations(table, in_domain="in", method="linear", exact=True)
    inside = result.table[result.table["within"] == "run"].iloc[0]
    assert inside["p_holm"] < 0.05
    assert "within runs, each run's own level taken out, 1 rises together" in verdicts(result)[0].sentence


def test_pairs_that_were_never_tested_are_not_counted_as_no_relation():
    table = simulated(runs=9, rho=0.9, level=0.0)
    copy = table[table["test_set"] == "hans"].assign(test_set="twin")
    result = partial_correlations(pd.concat([table, copy]), within="pooled")
    perfect = result.table[(result.table["a"] == "hans") & (result.table["b"] == "twin")].iloc[0]
    assert perfect["r"] == pytest.approx(1)
    assert np.isnan(perfect["p_val"])
    (verdict,) = verdicts(result)
    assert (
        "of 6 pairs of test sets 5 rise together (hans ~ paws; hans ~ rte; paws ~ rte and 2 more), " in verdict.sentence
    )
    assert "0 move apart, and 0 cannot be told" in verdict.sentence
    assert "1 pair could not be tested, as the caveats say" in verdict.sentence
    assert verdict.sentence.startswith("Yes, where it can be told")


def test_where_nothing_was_tested_there_is_no_answer():
    table = simulated(runs=9, sets=("mnli", "hans"))
    result = partial_correlations(pd.concat([table, table[table["test_set"] == "hans"].assign(test_set="twin")]))
    (verdict,) = verdicts(result)
    assert verdict.sentence.startswith("No answer: with 9 runs")
    assert "of 1 pair of test sets none could be tested" in verdict.sentence
    assert "no relation" not in verdict.sentence


def test_a_pair_that_is_perfect_without_noise_is_clear_and_not_open():
    """14 models, one checkpoint each, that correlate at .97: without in-domain noise the estimate reaches 1."""
    draw = np.random.default_rng(4)
    shared, own = draw.normal(size=(2, 14))
    inside = 0.7 + 0.05 * draw.normal(size=14)
    values = {"mnli": inside, "hans": inside - 0.1 + 0.03 * shared, "rte": inside - 0.2 + 0.03 * shared + 0.003 * own}
    table = pd.concat(
        pd.DataFrame({"run": [f"m{i}" for i in range(14)], "step": 0, "test_set": name, "value": value, "n": 1000})
        for name, value in values.items()
    )
    table = table.assign(model=table["run"], role=np.where(table["test_set"] == "mnli", "in_domain", "ood"))
    result = partial_correlations(table, by=())
    row = result.table.iloc[0]
    assert row["r"] > 0.95
    assert np.isfinite(row["p_corrected"])
    (verdict,) = verdicts(result)
    assert "all 0 tests" not in verdict.sentence
    assert row["clear"]
    assert "1 rises together" in verdict.sentence


def test_names_may_hold_braces():
    table = simulated(runs=9, rho=0.9, level=0.0)
    table["test_set"] = table["test_set"].replace("hans", "{premise} {} {7}")
    (verdict,) = verdicts(partial_correlations(table))
    assert "paws ~ {premise} {} {7}" in verdict.sentence


def test_the_short_answer_counts_and_its_points_name_the_pairs_with_their_intervals():
    (verdict,) = verdicts(partial_correlations(simulated(runs=9, rho=0.9, level=0.0)))
    assert verdict.short.startswith("Yes: of 3 pairs of test sets 3 rise together, 0 move apart, and 0 cannot be told")
    assert "~" not in verdict.short
    (together,) = [point for point in verdict.points if point.startswith("Rise together: ")]
    assert re.search(r"hans ~ paws \(\+0\.\d\d, \+0\.\d\d to \+0\.\d\d\)", together)
    assert any(point.startswith("Rests on 9 runs; 5 % level") for point in verdict.points)


def test_without_a_test_the_short_answer_is_open():
    (verdict,) = verdicts(partial_correlations(simulated(runs=3)))
    assert verdict.short == "Open: with 3 runs nothing was tested; 5 or more independent runs would allow a test."
    assert "such signs also differ by chance" in verdict.points[0]


def test_where_nothing_could_be_tested_the_short_answer_points_to_the_caveats():
    table = partial_correlations(simulated(runs=6)).table.assign(p_corrected=float("nan"), clear=False)
    result = replace(partial_correlations(simulated(runs=6)), table=table)
    assert verdicts(result)[0].short == "No answer: none of 3 pairs of test sets could be tested, as the caveats say."


@pytest.mark.parametrize("runs", [1, 3])
def test_untested_pairs_without_a_correlation_are_told(runs: int) -> None:
    table = simulated(runs=runs)
    still = table[table["test_set"] == "hans"].assign(test_set="still", value=0.5)
    (verdict,) = verdicts(partial_correlations(pd.concat([table, still])))
    assert verdict.descriptive
    for told in (verdict.sentence, verdict.points[0]):
        assert "f 6 pairs of test sets" in told
        assert "; 3 pairs have no correlation, as the caveats say." in told


def test_one_test_is_told_as_one() -> None:
    result = partial_correlations(simulated(runs=9, sets=("mnli", "hans", "paws")), within="pooled")
    assert "Holm's adjustment over the one test reported)" in verdicts(result)[0].sentence


def test_points_name_the_strongest_pairs_first_and_never_leave_out_one_alone() -> None:
    strength = {"a ~ b": -0.2, "a ~ c": 0.4, "a ~ d": -0.9, "b ~ c": 0.7, "b ~ d": 0.1}
    rows = {name: {"r": r, "low": r - 0.05, "high": r + 0.05} for name, r in strength.items()}
    names = tuple(strength)
    told = _with_intervals(names, rows)
    assert told == (
        "a ~ d (-0.90, -0.95 to -0.85); b ~ c (+0.70, +0.65 to +0.75); a ~ c (+0.40, +0.35 to +0.45); 2 more"
    )
    assert _with_intervals(names[:4], rows).endswith("; a ~ b (-0.20, -0.25 to -0.15)")
    assert "more" not in _with_intervals(names[:4], rows)
