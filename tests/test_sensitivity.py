"""Does a conclusion survive the choices behind it?"""

from __future__ import annotations

import io
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from benchmarks.statistics import long_table
from rich.console import Console

import oodles as oo
from oodles.show.terminal import render_terminal
from oodles.stats.answers import Answer
from oodles.stats.clusters import Scores
from oodles.stats.correlate import partial_correlations
from oodles.stats.longtable import check_table
from oodles.stats.sensitivity import holding, sensitivity, step_choices
from oodles.stats.skill import skill
from test_correlate import simulated


def scores_of(table, **changes) -> Scores:
    return Scores(table=check_table(table)[0], by=("model", "train_set"), **changes)


def turning(seed: int = 0):
    """Two sets that move apart early and together late."""
    table = simulated(runs=8, steps=24, rho=0.9, seed=seed, sets=("mnli", "a", "b"), level=0.0)
    early = (table["test_set"] == "b") & (table["step"] < 12)
    fitted = 0.4 + 0.3 * table.groupby(["run", "step"])["value"].transform("first")
    table.loc[early, "value"] = (2 * fitted - table["value"])[early]
    table["step"] = (2 ** (table["step"] / 3)).round(3) * 1000 // 1
    return table.assign(step=table["step"].astype(int))


def test_the_default_is_the_analysis_itself() -> None:
    table = simulated(runs=6)
    found = sensitivity(scores_of(table)).tables["sensitivity"]
    default = found[found["default"]].set_index(["a", "b"])
    wanted = partial_correlations(table).table.query("within == 'pooled'").set_index(["a", "b"])
    for column in ("r", "low", "high", "p_val", "p_holm"):
        assert default[column].to_numpy(float) == pytest.approx(wanted.loc[default.index, column].to_numpy(float))
    linear = found.query("method == 'linear' and within == 'run' and steps == 'as evaluated'").set_index(["a", "b"])
    wanted = partial_correlations(table, method="linear", within="run").table.set_index(["a", "b"])
    assert linear["r"].to_numpy(float) == pytest.approx(wanted.loc[linear.index, "r"].to_numpy(float))


def test_choices_of_steps() -> None:
    table = simulated(runs=2, steps=9)
    table["step"] = table["step"].map(lambda s: 0 if s == 0 else 2 ** (s - 1))  # 0, 1, 2, 4, ..., 128
    (series,) = scores_of(table, drop=False).groups()
    found = {name: part.steps[part.runs == 0].tolist() for name, part in step_choices(series)}
    assert found["as evaluated"] == [0, 1, 2, 4, 8, 16, 32, 64, 128]
    assert found["spaced evenly"] == [0, 16, 32, 64, 128]
    assert found["weighted evenly"] == [0, 16, 32, 32, 64, 64, 64, 128, 128]
    assert found["late half"] == [64, 128]
    assert "spaced by logarithm" in found  # the steps but 0: what `without step 0` would take, so that is not repeated
    assert "without step 0" not in found


def test_a_conclusion_that_the_steps_decide_is_told() -> None:
    answer = sensitivity(scores_of(turning()))
    (row,) = answer.tables["sensitivity_pairs"].to_dict("records")
    assert row["lowest"] < 0 < row["highest"]
    assert "late half" in row["highest_by"]
    assert row["other_sign"] > 0
    assert "turns the sign" in answer.sentences[0]


def test_a_conclusion_that_holds_is_said_to_hold() -> None:
    answer = sensitivity(scores_of(simulated(runs=8, rho=0.9, sets=("mnli", "a", "b"), level=0.0)))
    (row,) = answer.tables["sensitivity_pairs"].to_dict("records")
    assert (row["conclusion"], row["other_sign"]) == ("significant, positive", 0)
    assert row["same_clear"] == row["specifications"]
    group = {"model": "m", "train_set": "mnli"}
    assert f"What would change it: none of the {row['specifications']} choices" in holding(
        answer, group, {(row["a"], row["b"])}
    )
    assert holding(answer, group, ()) == ""


@pytest.mark.parametrize(
    ("held", "told"),
    [
        ([19], "a0 ~ b stays significant, with its sign, in 19."),
        ([19, 19, 22], "clear pairs stay significant, with their sign, in 19 (median and least)."),
        ([22, 20, 7], "clear pairs stay significant, with their sign, in 20 (median); a2 ~ b only in 7."),
    ],
)
def test_the_weakest_pair_is_told_once(held: list[int], told: str) -> None:
    pairs = pd.DataFrame(
        [{"a": f"a{i}", "b": "b", "specifications": 24, "same_clear": many} for i, many in enumerate(held)]
    )
    tried = pd.DataFrame({"steps": ["x", "y"], "method": "gam", "within": "pooled", "metric": "accuracy"})
    answer = Answer(name="sensitivity", sentences=(), tables={"sensitivity_pairs": pairs, "sensitivity": tried})
    said = holding(answer, {}, {(f"a{i}", "b") for i in range(len(held))})
    assert said == f" What would change it: of 24 choices tried (steps: x, y), {told}"


def test_it_is_told_what_significant_means_beside_the_verdict() -> None:
    analysis = oo.analyse(simulated(runs=8, rho=0.9, level=0.0), sensitivity=True)
    (said,) = analysis.answers["sensitivity"].caveats
    assert said.startswith("significant here: after Holm's adjustment over the pairs of a group, in each choice")
    out = io.StringIO()
    render_terminal(analysis, Console(file=out, width=400))
    assert f"! {said}" in out.getvalue()


def test_a_run_that_decides_the_sign_is_named() -> None:
    table = simulated(runs=6, rho=0.0, sets=("mnli", "a", "b"), level=0.0, seed=4)
    far = table["run"] == "m_mnli_3"
    wave = 0.1 * np.sin(table["step"])
    table.loc[far & (table["test_set"] != "mnli"), "value"] += wave[far & (table["test_set"] != "mnli")]
    found = sensitivity(scores_of(table)).tables["sensitivity"]
    row = found[found["default"]].iloc[0]
    assert row["r"] > 0.5
    assert row["r_least"] < 0.4


def test_the_verdict_and_the_report_say_in_how_many(tmp_path: Path) -> None:
    analysis = oo.analyse(simulated(runs=8, rho=0.9, level=0.0), sensitivity=True)
    assert "choices tried (steps: as evaluated, " in analysis.verdicts[0].sentence
    page = oo.write_report(analysis, tmp_path / "r.html").read_text()
    assert "Specification curve of" in page
    assert "Does the answer survive other choices?" in page


def test_other_metrics_are_choices() -> None:
    table = simulated(runs=6)
    both = table.assign(metric="accuracy"), table.assign(metric="auc", value=table["value"] * 0.9)
    found = sensitivity(scores_of(pd.concat(both))).tables["sensitivity"]
    assert set(found["metric"]) == {"accuracy", "auc"}


def test_the_figures_cases_are_told_as_they_are() -> None:
    """timm: the method decides; the sign of ImageNet-A with ReaL is + by gam and - by probit."""
    found = oo.analyse("timm", sensitivity=True).answers["sensitivity"].tables["sensitivity"]
    pair = found[(found["a"] == "imagenet-a") & (found["b"] == "imagenet-real")].set_index("method")["r"]
    assert pair["gam"] == pytest.approx(0.06, abs=0.01)
    assert pair["probit-linear"] == pytest.approx(-0.67, abs=0.01)


@pytest.mark.slow
def test_a_whole_study_with_claim_and_sensitivity_takes_less_than_a_minute() -> None:
    table = long_table(144, 40, 0)
    start = time.process_time()
    analysis = oo.analyse(table, across="model", sensitivity=True)
    assert time.process_time() - start < 60
    assert set(analysis.answers) == {"claim", "sensitivity"}


def test_the_default_is_the_analysis_that_is_reported():
    """Models with one checkpoint each have a lighter curve, here too."""
    analysis = oo.analyse("bert-hans", sensitivity=True)
    rows = analysis.answers["sensitivity"].tables["sensitivity"]
    default = rows[rows["default"]].set_index(["a", "b"])["r"]
    reported = analysis.result.table.set_index(["a", "b"])["r"]
    assert np.allclose(default.loc[reported.index], reported, atol=1e-9)


@pytest.mark.parametrize("owner", ["mnli", "a"])
def test_a_metric_that_only_some_sets_have_is_left_out(owner: str, tmp_path: Path) -> None:
    """A set whose examples bring their own choices has no AUC, one with the same choices everywhere has."""
    table = simulated(runs=6, sets=("mnli", "a", "b"))
    own = table[table["test_set"] == owner]
    more = [own.assign(metric=metric) for metric in ("balanced_accuracy", "auc", "share:no")]
    mixed = pd.concat([table, *more], ignore_index=True)
    answer = sensitivity(scores_of(mixed))
    assert answer.settings["metrics"] == ["accuracy"]
    pd.testing.assert_frame_equal(answer.tables["sensitivity"], sensitivity(scores_of(table)).tables["sensitivity"])
    (said,) = skill(scores_of(mixed)).sentences
    assert "no AUC in common" in said
    assert oo.write_report(oo.analyse(mixed), tmp_path / "report.html").is_file()
