"""lm-evaluation-harness: files that it wrote (tests/fixtures), its own writer where installed, and the old format."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import oodles as oo
from oodles.errors import DataError
from scores import same, same_correlations, study

FIXTURES = Path(__file__).parent / "fixtures" / "lm_eval"


def test_files_of_the_harness() -> None:
    """Two checkpoints, a task, and a group of two; 0.4.13 wrote them."""
    imported = oo.import_scores(FIXTURES)
    assert imported.format == "lm-eval"
    table = imported.table
    assert (table["run"].unique().tolist(), sorted(table["step"].unique())) == (["outputs/run0"], [10, 20])
    accuracy = table[table["metric"] == "accuracy"].set_index(["step", "test_set"])
    for file in FIXTURES.rglob("results_*.json"):
        raw = json.loads(file.read_text())
        step = int(raw["model_name"].rpartition("-")[2])
        for task, found in raw["results"].items():
            assert accuracy.loc[(step, task), "value"] == found["acc,none"]
            assert accuracy.loc[(step, task), "n"] == found["sample_len"]
    assert set(table.loc[table["slice_of"].notna(), "test_set"]) == {"toy_a", "toy_b"}
    assert set(table["metric"]) == {"accuracy", "acc_norm"}
    assert "seed" not in table.columns  # the harness's seeds are not the training's


def test_samples_are_records_that_give_the_accuracy() -> None:
    imported = oo.import_scores(FIXTURES)
    assert imported.records is not None
    means = imported.records.groupby(["run", "step", "test_set"])["correct"].agg(["mean", "size"])
    accuracy = imported.table[imported.table["metric"] == "accuracy"].set_index(["run", "step", "test_set"])["value"]
    assert (means["size"] == 20).all()
    assert len(means) == 6  # of the group there are none
    assert (means["mean"] - accuracy[means.index]).abs().max() < 1e-12


def test_damaged_samples_are_left_out_and_told(tmp_path: Path) -> None:
    shutil.copytree(FIXTURES, tmp_path / "lm")
    (first, *_) = sorted((tmp_path / "lm").rglob("samples_home*"))
    first.write_text(first.read_text()[:-40])
    imported = oo.import_scores(tmp_path / "lm")
    assert any("its samples are left out" in note for note in imported.notes)
    assert imported.records is not None
    assert len(imported.records.groupby(["step", "test_set"])) == 5
    lines = [line for line in first.read_text().splitlines() if line.endswith("}")]
    first.write_text("\n".join(lines) + "\n")  # cut off between two lines
    imported = oo.import_scores(tmp_path / "lm")
    assert any("its samples are left out (" in note and "is it cut off?" in note for note in imported.notes)
    first.write_text("\n".join(lines).replace('"doc_id": 0', '"doc_id": "\\ud800"') + "\n")
    assert any("its samples are left out" in note for note in oo.import_scores(tmp_path / "lm").notes)


def result(path: str = "out/r/checkpoint-2", revision: str | None = None, **tasks: Any) -> dict[str, Any]:
    """As the new format has it, shortened."""
    arguments = f"pretrained={path}" + (f",revision={revision}" if revision else "")
    return {
        "results": {task: {"alias": task, "acc,none": value, "acc_stderr,none": 0.01} for task, value in tasks.items()},
        "versions": {},
        "config": {"model": "hf", "model_args": arguments, "random_seed": 0},
    }


def old(model: str, step: int, **tasks: float) -> dict[str, Any]:
    """As Pythia's public results have it."""
    return {
        "results": {task: {"acc": value, "acc_stderr": 0.01} for task, value in tasks.items()},
        "versions": dict.fromkeys(tasks, 0),
        "config": {"model": "hf-causal", "model_args": f"pretrained={model},revision=step{step}", "num_fewshot": 0},
    }


@pytest.mark.long  # which has the harness
def test_round_trip_through_the_harness_own_writer(tmp_path: Path) -> None:
    from lm_eval.loggers import EvaluationTracker

    for (run, step), rows in study().groupby(["run", "step"]):
        path = f"outputs/{run}/checkpoint-{step}"
        made = result(path, **dict(zip(rows["test_set"], rows["value"], strict=True)))
        tracker = EvaluationTracker(output_path=str(tmp_path / "results"))
        tracker.general_config_tracker.log_experiment_args("hf", f"pretrained={path}", "", "", True)
        made["config"]["model_args"] = {"pretrained": path}
        tracker.save_results_aggregated(results=made, samples={})
    expected = study().assign(run="outputs/" + study()["run"])
    imported = oo.import_scores(tmp_path / "results")
    same(imported.table, expected)
    same_correlations(tmp_path / "results", expected)


@pytest.mark.parametrize("folder", [True, False])
def test_the_old_format(tmp_path: Path, folder: bool) -> None:
    for (run, step), rows in study().groupby(["run", "step"]):
        scores = dict(zip(rows["test_set"], rows["value"], strict=True))
        (tmp_path / f"{run}-{step}.json").write_text(json.dumps(old(f"org/{run}", int(step), **scores)))
    imported = oo.import_scores(tmp_path if folder else sorted(tmp_path.glob("*.json")))
    same(imported.table, study().assign(run="org/" + study()["run"]))
    assert "n" not in imported.table.columns  # not told in this format
    assert (imported.table["stderr"] == 0.01).all()


@pytest.mark.parametrize(
    ("path", "revision", "run", "step"),
    [
        ("EleutherAI/pythia-160m", "step143000", "EleutherAI/pythia-160m", 143000),
        ("out/run1/checkpoint-250", None, "out/run1", 250),
        ("out/run1/checkpoint-250/", None, "out/run1", 250),
        ("out/step_20_lr/global_step40", None, "out/step_20_lr", 40),
        ("allenai/OLMo-1B", "step20000-tokens84B", "allenai/OLMo-1B", 20000),
        ("gpt2", None, "gpt2", 0),
        ("org/stepford-2", "main", "org/stepford-2", 0),
    ],
)
def test_run_and_step_of_a_model(tmp_path: Path, path: str, revision: str | None, run: str, step: int) -> None:
    (tmp_path / "r.json").write_text(json.dumps(result(path, revision, a=0.5, b=0.4)))
    imported = oo.import_scores(tmp_path / "r.json")
    assert imported.table[["run", "step"]].drop_duplicates().to_numpy().tolist() == [[run, step]]
    assert any("no step in the model's name" in note for note in imported.notes) == (step == 0)


def test_adapters_are_runs_of_their_model_and_checkpoints_of_one_run(tmp_path: Path) -> None:
    for seed in (0, 1):
        for step in (10, 20):
            told = result(f"org/base,peft=out/seed{seed}/checkpoint-{step}", a=0.5 + step / 100, b=0.4)
            (tmp_path / f"peft-{seed}-{step}.json").write_text(json.dumps(told))
    table = oo.import_scores(tmp_path).table
    assert sorted(table["run"].unique()) == ["out/seed0", "out/seed1"]
    assert table["model"].unique().tolist() == ["org/base"]
    (tmp_path / "full").mkdir()
    for step in (10, 20):
        whole = result(f"out/whole/checkpoint-{step}", a=0.5, b=0.4 + step / 100)
        (tmp_path / "full" / f"{step}.json").write_text(json.dumps(whole))
    table = oo.import_scores(tmp_path / "full").table
    assert (table["run"].unique().tolist(), table["model"].unique().tolist()) == (["out/whole"], ["out/whole"])


@pytest.mark.parametrize(
    ("named", "run", "model"),
    [("org/base,peft=checkpoint-{}", "org/base/checkpoints", "org/base"), ("./checkpoint-{}", "checkpoints", None)],
)
def test_checkpoints_without_a_folder_are_one_run_and_told(
    tmp_path: Path, named: str, run: str, model: str | None
) -> None:
    for step in (10, 20):
        told = result(named.format(step), a=0.5 + step / 100, b=0.4)
        (tmp_path / f"{step}.json").write_text(json.dumps(told))
    (tmp_path / "base.json").write_text(json.dumps(result("org/base", a=0.4, b=0.3)))
    found = oo.import_scores(tmp_path)
    own = found.table[found.table["run"] == run]
    assert sorted(own["step"].unique()) == [10, 20]
    assert own["model"].dropna().unique().tolist() == ([model] if model else [])
    assert [n for n in found.notes if "named by their checkpoints alone" in n and "taken as one run" in n]
    assert set(found.table["run"]) == {run, "org/base"}


def test_files_that_contradict_each_other_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(result(a=0.5, b=0.4)))
    (tmp_path / "b.json").write_text(json.dumps(result(a=0.5, b=0.4)))
    assert len(oo.import_scores(tmp_path).table) == 2
    (tmp_path / "b.json").write_text(json.dumps(result(a=0.6, b=0.4)))
    with pytest.raises(DataError, match=r"a\.json, .*b\.json differ on run 'out/r', step 2, a accuracy"):
        oo.import_scores(tmp_path)


DAMAGE = {
    "truncated": (json.dumps(result(a=0.5))[:-9], "not JSON"),
    "a list": ("[]", "expected an object"),
    "results of text": ('{"results": {"a": "b"}, "config": {}}', "results.a is"),
    "no numbers": ('{"results": {"a": {"acc": "x", "f1": true}}, "config": {}}', "no score in it"),
    "empty": ("", "not JSON"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_one_line(tmp_path: Path, damage: str) -> None:
    content, said = DAMAGE[damage]
    (tmp_path / "r.json").write_text(content)
    with pytest.raises(DataError) as caught:
        oo.import_scores(tmp_path / "r.json", format="lm-eval")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_gaps_and_long_lines(tmp_path: Path) -> None:
    made = result(a=float("nan"), b=0.4) | {"config": {"model_args": {"pretrained": "m"}, "note": "x" * 10_000_000}}
    (tmp_path / "r.json").write_text(json.dumps(made))
    table = oo.import_scores(tmp_path / "r.json").table
    assert isinstance(table, pd.DataFrame)
    assert table.set_index("test_set")["value"].isna().to_dict() == {"a": True, "b": False}


def test_the_final_model_is_not_step_0_of_its_run(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(old("org/m", 1000, a=0.5, b=0.4)))
    final = old("org/m", 0, a=0.7, b=0.6)
    final["config"]["model_args"] = "pretrained=org/m"
    (tmp_path / "b.json").write_text(json.dumps(final))
    with pytest.raises(DataError, match="of run 'org/m' some files name a step and some do not"):
        oo.import_scores(tmp_path)


def test_branches_of_a_model_are_runs_of_their_own(tmp_path: Path) -> None:
    for i, revision in enumerate(
        ("stage1-step1000-tokens3B", "stage1-step2000-tokens5B", "stage2-ingredient1-step500")
    ):
        made = old("org/m", 0, a=0.5, b=0.4)
        made["config"]["model_args"] = f"pretrained=org/m,revision={revision}"
        (tmp_path / f"{i}.json").write_text(json.dumps(made))
    table = oo.import_scores(tmp_path).table
    places = set(zip(table.run, table.step, strict=True))
    assert places == {("org/m@stage1", 1000), ("org/m@stage1", 2000), ("org/m@stage2-ingredient1", 500)}


def test_a_score_that_is_no_number_is_told(tmp_path: Path) -> None:
    results = {"hans": {"acc,none": "0.5"}, "snli": {"acc,none": 0.6, "acc_stderr,none": "N/A"}}
    for number in range(9):
        made = {"results": results, "versions": {}, "config": {"model_args": f"pretrained=m,revision=step{number}"}}
        (tmp_path / f"results_2026-01-0{number + 1}T00-00-00.json").write_text(json.dumps(made))
    imported = oo.import_scores(tmp_path)
    assert set(imported.table["test_set"]) == {"snli"}
    assert "results_2026-01-01T00-00-00.json: hans acc,none is 0.5: left out, no number" in imported.notes
    assert "and further scores: left out, no number" in imported.notes
    assert sum("no number" in note for note in imported.notes) == 5
