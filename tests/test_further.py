"""Windows of training, redundancy, stability, skill: what each finds where the truth is known, and its refusals."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import oodles as oo
from oodles.stats.analysis import read_results, write_results
from oodles.stats.clusters import ClusterValues, Scores
from oodles.stats.correlate import partial_correlations
from oodles.stats.effects import Sample
from oodles.stats.longtable import check_table
from oodles.stats.redundancy import redundancy
from oodles.stats.skill import _told, skill
from oodles.stats.stability import _kinds, read_size, stability
from oodles.stats.windows import places, windows
from test_claim import study
from test_correlate import simulated
from test_sensitivity import turning


def scores_of(table, **changes) -> Scores:
    return Scores(table=check_table(table)[0], by=("model", "train_set"), **changes)


# windows


def test_a_correlation_that_changes_sign_is_told() -> None:
    answer = windows(scores_of(turning(), ways=("pooled",)))
    (row,) = answer.tables["windows_change"].to_dict("records")
    assert row["early"] < -0.5 < 0.5 < row["late"]
    assert row["told"] == "changes sign"
    assert "1 of them from one clear sign to the other: a ~ b" in answer.sentences[0]


def test_a_window_is_the_analysis_of_its_points() -> None:
    table = simulated(runs=6, steps=12)
    found = windows(scores_of(table, ways=("run",))).tables["windows"].set_index(["a", "b", "window"])
    late = partial_correlations(table[table["step"] >= 8], within="run").table.set_index(["a", "b"])
    whole = partial_correlations(table, within="run").table.set_index(["a", "b"])
    for pair in late.index:
        for column in ("r", "low", "high"):
            assert found.loc[(*pair, "late"), column] == pytest.approx(late.loc[pair, column])
            assert found.loc[(*pair, "all"), column] == pytest.approx(whole.loc[pair, column])


def test_a_steady_correlation_is_not_said_to_change() -> None:
    answer = windows(scores_of(simulated(runs=8, steps=24, level=0.0), ways=("pooled",)))
    assert set(answer.tables["windows_change"]["told"]) == {"no change shown"}
    few = windows(scores_of(simulated(runs=3, steps=24), ways=("pooled",)))
    assert "was not tested" in few.sentences[0]


def test_places_are_those_among_a_runs_own_steps() -> None:
    (series,) = scores_of(simulated(runs=1, steps=4), drop=False).groups()
    assert places(series).tolist() == [0.125, 0.375, 0.625, 0.875]


# redundancy


def alike(own: float = 0.003, seed: int = 0) -> pd.DataFrame:
    """Two families of three sets; within a family the residuals are nearly the same."""
    draw = np.random.default_rng(seed)
    rows = []
    for run in range(8):
        for step in range(12):
            z, common = 0.5 + 0.02 * step + 0.005 * draw.normal(), 0.03 * draw.normal(size=2)
            rows.append((f"r{run}", step, "in", "in_domain", z))
            for k in range(6):
                rows.append((f"r{run}", step, f"s{k}", "ood", z - 0.1 + common[k // 3] + own * draw.normal()))
    table = pd.DataFrame(rows, columns=["run", "step", "test_set", "role", "value"])
    return table.assign(value=table["value"].round(6), n=10**6, model="m", train_set="in")


def test_sets_that_tell_the_same_story_are_found() -> None:
    answer = redundancy(scores_of(alike()))
    clusters = answer.tables["redundancy_sets"].groupby("cluster")["test_set"].apply(sorted).tolist()
    assert sorted(clusters) == [["s0", "s1", "s2"], ["s3", "s4", "s5"]]
    rows = answer.tables["redundancy"]
    (enough,) = rows[rows["enough"]].to_dict("records")
    chosen = rows.loc[rows["chosen"].between(1, enough["chosen"]), "test_set"]
    assert enough["chosen"] == 2
    assert {name in ("s0", "s1", "s2") for name in chosen} == {True, False}  # one of each family
    assert enough["error"] < 0.01 < 0.025 < enough["error_in_domain"]
    assert "2 of 6 test sets" in answer.sentences[0]
    commas = alike().replace({"test_set": {f"s{k}": f"s, {k}" for k in range(6)}})
    (said,) = redundancy(scores_of(commas)).sentences
    assert "'s, 0' + 's, 1' + 's, 2'" in said


def test_redundancy_needs_no_number_of_examples() -> None:
    told, untold = (redundancy(scores_of(table)) for table in (alike(), alike().assign(n=np.nan)))
    assert untold.tables["redundancy"]["noise"].isna().all()
    assert untold.tables["redundancy"]["test_set"].tolist() == told.tables["redundancy"]["test_set"].tolist()


def test_sets_that_have_nothing_in_common_are_all_needed() -> None:
    answer = redundancy(scores_of(simulated(runs=8, rho=0.0, level=0.0)))
    assert "run them all" in answer.sentences[0]
    assert "No two sets correlate at 0.5 or more" in answer.sentences[0]


# stability


def test_the_model_that_fluctuates_is_found() -> None:
    table = study([0.3, 0.3, 0.3], runs=9, steps=12, sizes=(0.01, 0.05))
    answer = stability(scores_of(table))
    found = answer.tables["stability"].query("what == 'residuals'").set_index("model")["sd"]
    assert found["m0"] == pytest.approx(0.01, rel=0.25)
    assert found["m2"] == pytest.approx(0.05, rel=0.25)
    trends = answer.tables["stability_trends"].set_index("what")
    assert trends.loc["residuals", "p_differ"] < 0.001
    assert trends.loc["steps", "p_differ"] < 0.001
    assert "groups differ" in answer.sentences[0]


def test_a_trend_with_size() -> None:
    table = study([0.3] * 5, runs=5, steps=12, sizes=(0.01, 0.05))
    sizes = {f"m{k}": f"{10**k}m" for k in range(5)}
    answer = stability(scores_of(table.assign(size=table["model"].map(sizes))))
    trend = answer.tables["stability_trends"].set_index("what").loc["residuals"]
    assert trend["per_tenfold_low"] > 1
    assert trend["p_size"] < 0.05
    assert [read_size(name) for name in ("pythia-1.4b", "smollm2-135m-q4", "opt_13B")] == [1.4e9, 1.35e8, 1.3e10]
    assert np.isnan(read_size("resnet50"))


def test_kinds_of_shift_that_agree_more() -> None:
    kinds = {f"s{k}": "domain" if k < 3 else "adversarial" for k in range(6)}
    table = alike(own=0.015)
    answer = stability(scores_of(table.assign(tags=table["test_set"].map(kinds))))
    (row,) = answer.tables["stability_kinds"].to_dict("records")
    assert row["difference"] > 1
    assert (row["same_pairs"], row["other_pairs"]) == (6, 9)
    assert row["p_val"] == pytest.approx(0.1, abs=0.03)  # 20 ways to halve six sets, of which two are this one
    none = stability(scores_of(table))
    assert "no column tags" in none.caveats[0]


def test_kinds_are_read_by_commas_and_a_set_and_its_slice_are_no_evidence() -> None:
    """A user group and an age group are two kinds; a slice agrees with its set because it is part of it."""
    kinds = {"s0": "user group", "s1": "age group", "s2": "user group, time", "s3": "time", "s4": "x", "s5": "y"}
    table = alike(own=0.015)
    answer = stability(scores_of(table.assign(tags=table["test_set"].map(kinds))))
    (row,) = answer.tables["stability_kinds"].to_dict("records")
    assert (row["same_pairs"], row["other_pairs"]) == (2, 13)  # s0 ~ s2, s2 ~ s3
    assert row["kinds"] == "age group, time, user group, x, y"
    part = table[table["test_set"] == "s0"].assign(test_set="s0/part")
    whole = pd.concat([table, part])
    scores = scores_of(whole.assign(tags=whole["test_set"].str[:2].map(kinds)), overlapping={"s0/part": {"s0"}})
    (row,) = stability(scores).tables["stability_kinds"].to_dict("records")
    assert (row["same_pairs"], row["other_pairs"]) == (3, 17)  # s0/part ~ s2 is one, s0/part ~ s0 is not


def test_train_sets_of_a_model_are_no_further_models_of_its_size() -> None:
    table = study([0.3] * 5, runs=5, steps=12, sizes=(0.03, 0.03))
    table = table.assign(size=table["model"].map({f"m{k}": f"{10**k}m" for k in range(5)}))
    again = [table.assign(train_set=f"in{k}", run=table["run"] + f"_{k}") for k in range(3)]
    once, thrice = (stability(scores_of(one)).tables["stability_trends"].iloc[0] for one in (table, pd.concat(again)))
    assert (once["groups"], thrice["groups"]) == (5, 15)
    for column in ("per_tenfold", "per_tenfold_low", "per_tenfold_high", "p_size"):
        assert thrice[column] == pytest.approx(once[column])


def test_kinds_are_permuted_over_what_was_observed() -> None:
    """With records both the difference and its permutations are without noise."""
    names = [f"s{k}" for k in range(6)]
    tags = {name: "domain" if k < 3 else "adversarial" for k, name in enumerate(names)}
    draw = np.random.default_rng(0)
    values = {pair: Sample.of(0.3 * draw.normal(size=9)) for pair in combinations(names, 2)}
    larger = {pair: replace(sample, mean=3 * sample.mean) for pair, sample in values.items()}
    table = alike()
    scores = scores_of(table.assign(tags=table["test_set"].map(tags)))
    with_records = ClusterValues(name="m", observed=values, corrected=larger, measured=True, known=True)
    without = replace(with_records, measured=False)
    (found,), (wanted,) = (_kinds([one], scores) for one in (with_records, without))
    assert found["difference"] == pytest.approx(3 * wanted["difference"])
    assert found["p_val"] == wanted["p_val"] > 0.1


# skill


def answered(drift: float, rho: float, seed: int = 0) -> pd.DataFrame:
    """Two sets whose AUCs correlate at rho, while their accuracies and shares of Yes follow a common drift."""
    draw = np.random.default_rng(seed)
    rows = []
    for run in range(9):
        for step in range(14):
            z, yes = 0.5 + 0.02 * step + 0.005 * draw.normal(), drift * draw.normal()
            first = draw.normal()
            both = first, rho * first + np.sqrt(1 - rho**2) * draw.normal()
            rows += [(run, step, "in", m, z if m != "share:Yes" else 0.5 + 0.01 * draw.normal()) for m in METRICS]
            for k, name in enumerate("ab"):
                auc = z + 0.02 * both[k]
                share = 0.5 + yes + 0.005 * draw.normal()
                rows += [(run, step, name, m, v) for m, v in zip(METRICS, (auc + yes, auc, share), strict=True)]
    table = pd.DataFrame(rows, columns=["run", "step", "test_set", "metric", "value"])
    role = np.where(table["test_set"] == "in", "in_domain", "ood")
    return table.assign(run=table["run"].map("r{}".format), role=role, n=10**6, model="m", train_set="in")


METRICS = ("accuracy", "auc", "share:Yes")


@pytest.mark.parametrize(
    ("drift", "rho", "told"), [(0.05, 0.0, "answers"), (0.0, 0.9, "skill"), (0.0, 0.0, "cannot be told")]
)
def test_skill_and_answers_are_told_apart(drift: float, rho: float, told: str) -> None:
    answer = skill(scores_of(answered(drift, rho), ways=("pooled",), exact=True))
    (row,) = answer.tables["skill"].to_dict("records")
    assert row["told"] == told
    if told == "answers":
        assert row["r_accuracy"] > 0.5 > abs(row["r_auc"])
        assert "1 in answers only (a ~ b)" in answer.sentences[0]


def test_a_pair_that_is_clear_by_auc_is_never_one_of_answers_only() -> None:
    """Accuracies move apart with the answers, while the sets agree in skill."""
    accuracy, share = {"r": -0.96, "p_said": 0.001}, {"p_said": 0.001}
    assert _told(accuracy, {"r": 0.96, "p_said": 0.001, "clear": True}, share) == "answers hide skill"
    assert _told(accuracy, {"r": 0.96, "p_said": 0.5, "clear": False}, share) == "answers"


def test_without_auc_skill_cannot_be_told() -> None:
    answer = skill(scores_of(simulated(runs=6)))
    assert "cannot be told, the table has no AUC" in answer.sentences[0]
    assert answer.tables["skill"].empty


# all of them through the doors


def test_all_answers_are_written_read_and_shown(tmp_path: Path) -> None:
    table = answered(0.05, 0.0)
    third = table[table["test_set"] == "a"].assign(test_set="c", value=lambda t: 1 - t["value"])
    asked = dict.fromkeys(("windows", "redundancy", "stability", "skill", "sensitivity"), True)
    analysis = oo.analyse(pd.concat([table, third]), **asked)
    write_results(analysis, tmp_path / "results")
    again = read_results(tmp_path / "results")
    assert {name: one.sentences for name, one in again.answers.items()} == {
        name: one.sentences for name, one in analysis.answers.items()
    }
    page = oo.write_report(again, tmp_path / "report.html").read_text()
    for title in ("Which test sets are needed?", "How steady are the models?", "Skill, or answers?"):
        assert title in page
