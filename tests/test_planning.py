"""How many runs: predicted widths against those of runs that were not in the pilot."""

from __future__ import annotations

import json
import math
import re

import numpy as np
import pandas as pd
import pytest

from conftest import oodles
from oodles.api.findings import findings
from oodles.api.plan import plan
from oodles.errors import DataError
from oodles.stats.clusters import Scores
from oodles.stats.correlate import partial_correlations
from oodles.stats.longtable import check_table
from oodles.stats.planning import Assumed, Precision, assumed_runs, pilot_precisions
from test_correlate import simulated


def held_out(name: str, within: str, pilot: int, later: int, draws: int) -> float:
    """Predicted over realised half widths, mean over pairs and draws; runs are the units."""
    finding = findings()[name]
    table = finding.table()
    if finding.test_sets:
        table = table[table["test_set"].isin([*finding.test_sets, "mnli"])]
    runs = table["run"].unique()
    draw = np.random.default_rng(0)
    ratios = []
    for _ in range(draws):
        chosen = draw.permutation(runs)
        own = check_table(table[table["run"].isin(chosen[:pilot])])[0]
        scores = Scores(table=own, by=(), ways=(within,))
        predicted = {pair: one.half_width(later) for _, _, pair, one in pilot_precisions(scores)}
        others = table[table["run"].isin(chosen[pilot : pilot + later])]
        found = partial_correlations(others, by=(), within=within).table.set_index(["a", "b"])
        realised = (found["high"] - found["low"]) / 2
        known = [pair for pair in predicted if np.isfinite(realised.get(pair, np.nan))]
        assert len(known) > 10
        ratios.append(np.mean([predicted[pair] for pair in known]) / np.mean([realised[pair] for pair in known]))
    return float(np.mean(ratios))


@pytest.mark.parametrize(
    ("name", "within", "pilot", "later"),
    [("bert-hans", "pooled", 20, 60), ("bert-hans", "pooled", 40, 60), ("pythia", "run", 12, 20)],
)
def test_predicted_widths_are_those_of_runs_that_were_not_in_the_pilot(
    name: str, within: str, pilot: int, later: int
) -> None:
    assert held_out(name, within, pilot, later, draws=6) == pytest.approx(1.0, abs=0.15)


def test_the_width_shrinks_with_runs_and_the_number_of_runs_gives_the_width() -> None:
    one = Precision(r=0.3, variance=0.4, units=9)
    runs = int(one.runs(0.2))
    assert one.half_width(runs) <= 0.2 < one.half_width(runs - 1)
    low, high = one.runs_range(0.2)
    assert low < runs < high
    assert Precision(r=0.3, variance=1e9, units=9).runs(0.2) == np.inf


def test_assumptions_agree_with_the_simulated_table() -> None:
    """Runs for a half width of .2 at residual sd .025, memory .1 and .3: the design's simulation."""
    for memory, spread, steps, wanted in (
        (0.1, 0.0, 20, 15),
        (0.1, 0.0, 60, 12),
        (0.1, 0.3, 60, 21),
        (0.3, 0.3, 60, 32),
    ):
        found = assumed_runs(Assumed(memory=memory, spread=spread, steps=steps, examples=3200), 0.2)
        assert found == pytest.approx(wanted, rel=0.35)


def test_more_examples_help_the_correlation_without_noise() -> None:
    one = Precision(r=0.2, variance=0.3, units=9, steps=20, memory=0.1, reliability=(0.5, 0.5))
    more = one.changed(examples=4.0)
    assert more.runs(more.without_noise(0.2)) < one.runs(one.without_noise(0.2))
    assert one.changed(steps=3.0).variance < one.variance


@pytest.mark.parametrize("r", [0.1, 0.3, 0.6, 0.95])
@pytest.mark.parametrize("reliability", [(0.05, 0.05), (0.3, 0.3), (0.3, 0.9), (0.9, 0.9)])
def test_somewhat_more_examples_take_somewhat_fewer_runs(r: float, reliability: tuple[float, float]) -> None:
    """Also where so much noise would not allow r: 532 runs with 1.5 times the examples became 9 with 1.8 times."""
    one = Precision(r=r, variance=0.3, units=9, steps=15, memory=0.1, reliability=reliability)
    needed = [more.runs(more.without_noise(0.2)) for more in (one.changed(examples=1.1**k) for k in range(15))]
    finite = np.minimum(needed, 2000)
    assert (np.diff(finite) <= 0).all()
    assert (finite[1:] > 0.8 * finite[:-1]).all()


def scored(n: int, *, seed: int = 0) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Runs scored on n examples of every OOD set, and who got which right."""
    truth, draw = simulated(runs=9, steps=12, rho=0.5, seed=seed), np.random.default_rng(seed)
    inside = truth["role"] == "in_domain"
    rights = [draw.random(n) < value for value in truth.loc[~inside, "value"]]
    table = truth.assign(n=np.where(inside, 100_000, n))
    table.loc[~inside, "value"] = [right.mean() for right in rights]
    keys = table.loc[~inside, ["run", "step", "test_set"]]
    records = keys.loc[keys.index.repeat(n)].assign(
        example=np.tile(np.arange(n), len(keys)), correct=np.concatenate(rights).astype(int)
    )
    return table, records


def test_of_residuals_that_are_noise_the_pilot_cannot_tell() -> None:
    table, records = scored(20)
    told = plan(table, 0.2, records=records, within="run")
    (sentence,), rows = told.sentences, told.tables["plan"]
    assert "the pilot cannot tell how many runs it takes: in all 3 pairs too little residual is left" in sentence
    assert sentence.endswith("(reliability below 0.3); larger test sets in the pilot would tell.")
    assert rows[["runs", "runs_low", "runs_high"]].isna().all(axis=None)
    assert rows["caveat"].str.startswith("cannot be told: too little residual left of ").all()
    assert np.isfinite(rows["half_width"]).all()  # what the pilot has it has


def test_pairs_of_noise_are_left_out_of_the_median_and_counted() -> None:
    table, records = scored(2000)
    few, few_records = scored(20)
    noisy = table["test_set"] == "paws"
    table.loc[noisy, ["value", "n"]] = few.loc[noisy, ["value", "n"]]
    both = pd.concat([records[records["test_set"] != "paws"], few_records[few_records["test_set"] == "paws"]])
    told = plan(table, 0.2, records=both, within="run")
    rows = told.tables["plan"]
    with_noise = (rows["a"] == "paws") | (rows["b"] == "paws")
    assert rows["runs"].isna().tolist() == with_noise.tolist()
    assert (rows["caveat"] != "").tolist() == with_noise.tolist()
    (runs,) = rows["runs"].dropna()
    assert f"takes {runs:.0f} runs in the median pair" in told.sentences[0]
    assert f"{runs:.0f} in all 1 pair. Left out: 2 of 3 pairs, in which" in told.sentences[0]


def test_noise_that_records_measure_is_not_taken_from_n() -> None:
    """All examples fall alike at every point, so n alone says that all is noise; the records say that none is."""
    table, _ = scored(100)
    ood = table["role"] == "ood"
    table.loc[ood, "value"] = (simulated(runs=9, steps=12, rho=0.5)["value"][ood] * 100).round() / 100
    keys = table.loc[ood, ["run", "step", "test_set", "value"]]
    records = keys.loc[keys.index.repeat(100)].assign(example=np.tile(np.arange(100), len(keys)))
    records["correct"] = (records["example"] < 100 * records["value"] - 1e-9).astype(int)
    alone = plan(table, 0.2, within="run")
    assert alone.tables["plan"]["caveat"].str.startswith("without noise it cannot be told of ").all()
    assert alone.tables["plan"]["runs"].notna().all()  # of r as it is observed, which n has no part in
    assert "Without the noise of the test sets the pilot cannot tell in 3 of 3 pairs" in alone.sentences[0]
    assert "For the correlation" not in alone.sentences[0]
    measured = plan(table, 0.2, records=records.drop(columns="value"), within="run")
    assert (measured.tables["plan"]["caveat"] == "").all()
    assert "For the correlation without the noise of the test sets: " in measured.sentences[0]
    assert measured.tables["plan"]["runs"].tolist() == alone.tables["plan"]["runs"].tolist()


def test_a_table_without_n_does_not_tell_what_it_takes_without_noise() -> None:
    told = plan(simulated(runs=6).drop(columns="n"), 0.2, within="run")
    assert told.tables["plan"]["caveat"].str.contains(r"noise of \w+ is not known; per-example records, or n").all()
    assert "Noise of the test sets is not known in 3 of 3 pairs" in told.sentences[0]


def test_plan_on_the_command_line(tmp_path) -> None:
    simulated(runs=6).to_csv(tmp_path / "pilot.csv", index=False)
    told = oodles("plan", "--pilot", tmp_path / "pilot.csv", "--half-width", ".2").stdout
    lines = told.splitlines()
    table = next(i for i, line in enumerate(lines) if line.startswith("pair "))
    assert all(" a half width of 0.2 takes " in line for line in lines[: table - 2])  # the answer, before its pairs
    assert lines[table - 2].startswith("What runs cost: ")
    assert len(lines[table + 1 :]) == 6
    found = json.loads(oodles("plan", "--pilot", tmp_path / "pilot.csv", "--json").stdout)
    assert {"a", "b", "runs", "runs_low", "runs_high"} <= set(found["plan"][0])
    assert "cost" not in found
    assert oodles("plan").stdout.count("\n") == 1
    refused = oodles("plan", "--half-width", "2")
    assert refused.returncode == 2
    assert "--half-width 2: expected a number between 0 and 1" in refused.stderr


def test_what_the_planned_runs_would_cost(tmp_path, toy_study) -> None:
    """As the dry run of the study counts it, times the runs of the median pair, in the group that takes most."""
    table = simulated(runs=6)
    twice = pd.concat([table, table.assign(model="n", run=table["run"] + "n")])
    twice.to_csv(tmp_path / "pilot.csv", index=False)
    asked = ("plan", "--pilot", tmp_path / "pilot.csv", "--half-width", ".3", "--study", toy_study)
    found = json.loads(oodles(*asked, "--json", cwd=tmp_path).stdout)
    rows = pd.DataFrame(found["plan"])
    wanted = math.ceil(rows.groupby(["model", "within"])["runs"].median().max())
    dry = json.loads(oodles("run", toy_study, "--dry-run", "--json", cwd=tmp_path).stdout)
    (told,), (each,) = found["cost"], dry["per_run"]
    assert told["runs"] == wanted
    assert told["tokens"] == wanted * (each["computed_tokens"] + each["training_tokens"]) > 0
    assert told["arithmetic"] == pytest.approx(wanted * each["arithmetic"])
    text = oodles(*asked, cwd=tmp_path).stdout
    assert f"{wanted} runs compute {told['tokens']:,} tokens" in " ".join(text.split())
    assert any(line.split()[:2] == ["model", "pair"] for line in text.splitlines())  # two groups: each row says which


def test_a_pilot_tells_what_the_runs_of_the_median_pair_take() -> None:
    done = oodles("plan", "--pilot", "smollm2-nli", "--half-width", ".2")
    told = [line for line in done.stdout.splitlines() if "a run of the pilot took" in line]
    assert told[0].startswith("gemma3-270m-q4, mnli: a run of the pilot took 14m08s on its machine; 19 to 21 runs take")
    assert told[1].startswith("gemma3-270m-q4, snli: a run of the pilot took 33m03s on its machine; 20 to 29 runs take")
    assert "gemma3-270m-q4, snli, pooled: a half width of 0.2 takes 29 runs" in done.stdout
    assert "gemma3-270m-q4, snli, within runs: a half width of 0.2 takes 20 runs" in done.stdout
    assert done.stdout.index(told[1]) < done.stdout.index("half width now")
    found = json.loads(oodles("plan", "--pilot", "smollm2-nli", "--json").stdout)
    assert 30 * 60 < found["seconds_per_run"] < 70 * 60


def test_one_run_is_no_pilot() -> None:
    with pytest.raises(DataError, match="two or more independent runs"):
        plan(simulated(runs=1), 0.2)


def test_models_with_one_checkpoint_each_are_not_advised_to_take_more_steps() -> None:
    """Also where a unit holds several of them, and ways of pooling have the verdict's words."""
    timm, pythia = (" ".join(plan(name, 0.2).sentences) for name in ("timm", "pythia"))
    assert "twice the steps" not in timm
    assert timm.startswith("pooled: a half width")
    assert "twice the steps" in pythia
    assert pythia.startswith("within runs: a half width")


def models_of_runs() -> pd.DataFrame:
    """Twelve models of three runs, one checkpoint each: a model is a unit."""
    draw, rows = np.random.default_rng(4), []
    for model in range(12):
        level = draw.normal(size=4)
        for run in range(3):
            for name, own in zip(("mnli", "hans", "paws", "rte"), level, strict=True):
                value = round(0.6 + 0.05 * own + 0.02 * draw.normal(), 3)
                rows.append((f"m{model}-{run}", f"m{model}", "mnli", 0, name, value, 1000))
    return pd.DataFrame(rows, columns=["run", "model", "train_set", "step", "test_set", "value", "n"])


def test_a_unit_that_is_more_than_a_run_is_not_called_a_run() -> None:
    answer = plan(models_of_runs(), 0.2, in_domain="mnli")
    assert "the pilot having 12 units" in answer.sentences[0]
    assert answer.settings["unit"] == "model"


def test_noise_that_is_not_known_is_not_said_to_be_large() -> None:
    """Larger test sets would not tell; a column n would."""
    table = simulated(runs=6, steps=10)
    assert "larger test sets" not in plan(table.drop(columns="n"), 0.2).sentences[0]
    assert "not known" not in plan(table, 0.2).sentences[0]


def test_a_study_is_costed_for_runs_that_a_sentence_names() -> None:
    found = json.loads(oodles("plan", "--pilot", "smollm2-nli", "--study", "quick", "--json").stdout)
    named = {match for text in found["sentences"] for match in re.findall(r"takes (\d+) runs", text)}
    assert {str(cost["runs"]) for cost in found["cost"]} <= named


@pytest.mark.parametrize("memory", [0.0, 0.1])
def test_a_step_more_never_halves_the_runs(memory: float) -> None:
    """From three steps to four it took 139 runs, then 54; and memory 0 differed from next to none."""
    runs = [assumed_runs(Assumed(steps=steps, memory=memory, spread=0.0), 0.2) for steps in range(2, 9)]
    informative = [each * (steps - 1) for steps, each in zip(range(2, 9), runs, strict=True)]
    assert runs == sorted(runs, reverse=True)
    assert max(informative) < 1.3 * min(informative)  # a run counts by its steps, less one for its level
    assert assumed_runs(Assumed(memory=0.0), 0.2) == assumed_runs(Assumed(memory=1e-9), 0.2)


@pytest.mark.parametrize("option", ["--residual-sd", "--spread"])
def test_assumptions_without_bounds_are_refused(option: str) -> None:
    done = oodles("plan", option, "inf")
    assert done.returncode == 2
    assert f"{option} inf: out of range" in done.stderr
    assert "takes more than 2000 runs" in oodles("plan", "--half-width", ".001").stdout
