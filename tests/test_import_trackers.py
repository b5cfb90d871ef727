"""MLflow, trackio, Inspect: files that they wrote (fixtures/make_trackers.py). lighteval, HELM: simulated."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import zipfile
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import oodles as oo
from conftest import missing
from fixtures.make_trackers import MLFLOW, TRACKIO
from oodles.errors import DataError
from scores import same, same_correlations, study

ARCHIVE = Path(__file__).parent / "fixtures" / "trackers.zip"


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trackers")
    with zipfile.ZipFile(ARCHIVE) as archive:
        archive.extractall(folder)
    return folder


@pytest.mark.parametrize(("name", "kind"), [("mlflow.db", "mlflow"), ("mlruns", "mlflow"), ("trackio", "trackio")])
def test_round_trip(logs: Path, name: str, kind: str) -> None:
    before = sorted((path, path.read_bytes()) for path in logs.rglob("*") if path.is_file())
    imported = oo.import_scores(logs / name)
    assert imported.format == kind
    same(imported.table, study())  # not the run that was deleted
    assert sorted(imported.table["seed"].unique()) == list(range(6))
    assert set(imported.table["model"]) == {"org/m"}
    same_correlations(logs / name, study())
    assert sorted((path, path.read_bytes()) for path in logs.rglob("*") if path.is_file()) == before


@pytest.mark.slow
@pytest.mark.parametrize(("name", "code"), [("trackio", TRACKIO), ("mlflow", MLFLOW)])
def test_round_trip_through_the_library_that_is_installed(tmp_path: Path, name: str, code: str) -> None:
    if find_spec(name) is None:
        missing(f"no {name}: `make test-all` installs it")
    runs = {str(run): own[["step", "test_set", "value"]].values.tolist() for run, own in study().groupby("run")}
    (tmp_path / "scores.json").write_text(json.dumps(runs))
    given = [str(tmp_path / "scores.json"), f"sqlite:///{tmp_path}/mlflow.db"]
    env = {**os.environ, "TRACKIO_DIR": str(tmp_path / "trackio")}
    subprocess.run([sys.executable, "-c", code, *given], check=True, env=env, cwd=tmp_path, capture_output=True)
    written = tmp_path / ("trackio" if name == "trackio" else "mlflow.db")
    imported = oo.import_scores(written)
    assert imported.format == name
    same(imported.table, study())
    same_correlations(written, study())


def test_logs_of_inspect(logs: Path) -> None:
    imported = oo.import_scores(logs / "logs")
    assert imported.format == "inspect"
    table = imported.table[imported.table["metric"] == "accuracy"]
    for run in ("run0", "run1"):
        for step in (10, 20):
            for name in ("snli", "hans"):
                row = table[(table["run"] == run) & (table["step"] == step) & (table["test_set"] == name)]
                right = 5 + step // 10 + len(name + run) % 7 + int(run[-1])
                assert row[["value", "n"]].to_numpy().tolist() == [[right / 20, 20]]
    assert len(table) == 8
    assert imported.records is not None
    means = imported.records.groupby(["run", "step", "test_set"])["correct"].mean()
    assert (means == table.set_index(["run", "step", "test_set"])["value"][means.index]).all()


def test_a_log_that_did_not_finish(logs: Path, tmp_path: Path) -> None:
    source = sorted((logs / "logs").glob("*.eval"))[0]
    path = tmp_path / "x.eval"
    whole = source.read_bytes()
    place = whole.rindex(b"PK\x01\x02") + 6  # of the version that is needed
    later = whole[:place] + b"\xff" + whole[place + 1 :]
    for content in (b"", b"PK", whole[: len(whole) // 2], whole.replace(b"header.json", b"headex.json"), later):
        path.write_bytes(content)
        with pytest.raises(DataError, match="expected a finished log of Inspect") as caught:
            oo.import_scores(path)
        assert "\n" not in str(caught.value)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("../header.json", "{}")
        archive.writestr("header.json", json.dumps({"status": "error", "eval": {"task": "t", "model": "m"}}))
    with pytest.raises(DataError, match=r"no score in it; x\.eval: left out, its status is error"):
        oo.import_scores(path)
    assert list(tmp_path.parent.glob("header.json")) == []


def test_logs_of_inspect_as_json(tmp_path: Path) -> None:
    made = {
        "version": 2,
        "status": "success",
        "eval": {"task": "inspect_evals/hans", "task_id": "x", "model": "hf/out/run7/checkpoint-30", "metadata": None},
        "results": {
            "completed_samples": 4,
            "scores": [{"name": "match", "metrics": {"accuracy": {"value": 0.5}, "stderr": {"value": 0.25}}}],
        },
        "samples": [{"id": i, "epoch": 1, "scores": {"match": {"value": "CI"[i % 2]}}} for i in range(4)],
    }
    (tmp_path / "log.json").write_text(json.dumps(made))
    imported = oo.import_scores(tmp_path / "log.json")
    assert imported.table[["run", "step", "test_set", "value", "stderr"]].to_numpy().tolist() == [
        ["hf/out/run7", 30, "hans", 0.5, 0.25]
    ]
    assert imported.records is not None
    assert imported.records["correct"].tolist() == [1, 0, 1, 0]


def test_damaged_databases_are_one_line(logs: Path, tmp_path: Path) -> None:
    for name, source in (("m.db", logs / "mlflow.db"), ("t.db", next((logs / "trackio").glob("*.db")))):
        whole, path = source.read_bytes(), tmp_path / name
        kind = oo.import_scores(source).format
        for content in (whole[:5000], whole[:30_000] + bytes(5000), b"SQLite format 3\0" + b"x" * 5000, b""):
            path.write_bytes(content)
            with pytest.raises(DataError) as caught:
                oo.import_scores(path, format=kind)
            assert "\n" not in str(caught.value)


def test_databases_with_strange_cells_are_one_line(logs: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    for change, said in (
        ("UPDATE metrics SET value = 'high' WHERE rowid = 1", "expected a number"),
        ("UPDATE metrics SET step = -3 WHERE rowid = 1", "step is -3; expected a whole number"),
    ):
        shutil.copyfile(logs / "mlflow.db", path)
        with closing(sqlite3.connect(path)) as database:
            database.execute("PRAGMA ignore_check_constraints = 1")
            database.execute(change)
            database.commit()
        with pytest.raises(DataError, match=said):
            oo.import_scores(path)


def test_a_database_whose_tables_are_damaged_is_one_line(logs: Path, tmp_path: Path) -> None:
    """What SQLite says of them holds their bytes, which are no text."""
    for source, word in (
        (logs / "mlflow.db", b"lifecycle_stage"),
        (next((logs / "trackio").glob("*.db")), b"run_name"),
    ):
        kind, path = oo.import_scores(source).format, tmp_path / source.name
        path.write_bytes(
            source.read_bytes()
            .replace(b"CREATE TABLE", b"CREATE \xff\xff\xff\xff\xff")
            .replace(word, b"\xff" * len(word))
        )
        with pytest.raises(DataError, match="cannot be read as a database") as caught:
            oo.import_scores(path, format=kind)
        assert "\n" not in str(caught.value)


def test_strange_lines_of_a_folder_of_mlflow_are_named(logs: Path, tmp_path: Path) -> None:
    shutil.copytree(logs / "mlruns", tmp_path / "mlruns")
    (first, *_) = sorted((tmp_path / "mlruns").rglob("eval_hans_accuracy"))
    first.write_text("1700000000000 0.5 2\n1700000000001 0.6 2\nlater high\n")
    with pytest.raises(DataError, match="line 3: 'later high'; expected time, value and step"):
        oo.import_scores(tmp_path / "mlruns")
    first.write_text("1700000000001 0.6 2\n1700000000000 0.5 2\n1700000000000 0.7\n")
    imported = oo.import_scores(tmp_path / "mlruns")
    (run,) = imported.table.loc[imported.table["step"] == 0, "run"].unique()
    own = imported.table[(imported.table["run"] == run) & (imported.table["test_set"] == "hans")]
    assert dict(zip(own["step"], own["value"], strict=True)) == {2: 0.6, 0: 0.7}  # the later one, and one of old


def test_lines_of_mlflow_that_are_cut_off_are_refused(logs: Path, tmp_path: Path) -> None:
    """`1700000000000 0.71` would be another score, of step 0."""
    shutil.copytree(logs / "mlruns", tmp_path / "mlruns")
    (first, *_) = sorted((tmp_path / "mlruns").rglob("eval_hans_accuracy"))
    whole = first.read_text()
    for less in range(1, 12):
        first.write_text(whole[:-less])
        with pytest.raises(DataError, match="its last line is cut off; copy the file again"):
            oo.import_scores(tmp_path / "mlruns")


def test_files_that_are_cut_off_are_not_left_out_silently(tmp_path: Path) -> None:
    shutil.copytree(ARCHIVE.parent / "lighteval", tmp_path / "lighteval")
    (first, *_) = sorted((tmp_path / "lighteval").rglob("results_*.json"))
    whole = first.read_text()
    for length in (0, 10, len(whole) // 2, len(whole) - 2):
        first.write_text(whole[:length])
        with pytest.raises(DataError, match="not JSON"):
            oo.import_scores(tmp_path / "lighteval")
    (tmp_path / "logs").mkdir()
    for name in ("snli", "hans"):
        about = {"task": name, "task_id": "x", "model": "m", "metadata": {"run": "a", "step": 1}}
        scores = [{"name": "match", "metrics": {"accuracy": {"value": 0.5}}}]
        made = {"version": 2, "status": "success", "eval": about, "results": {"scores": scores}}
        (tmp_path / "logs" / f"{name}.json").write_text(json.dumps(made))
    (tmp_path / "logs" / "hans.json").write_text('{"version": 2')
    notes = oo.import_scores(tmp_path / "logs").notes
    assert "hans.json: left out, it does not begin as a log of Inspect" in notes


def test_scores_of_harnesses_that_are_no_numbers_are_told(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    folder.mkdir()
    results = {"snli|0": {"acc": 0.5, "acc_stderr": "N/A"}, "hans|0": {"acc": "0.4", "f1": 0.3}}
    made = {"config_general": {"model_name": "m/step5"}, "results": results}
    (folder / "results_1.json").write_text(json.dumps(made))
    imported = oo.import_scores(folder)
    assert len(imported.table) == 2
    assert "results_1.json: hans|0 acc is 0.4: left out, no number" in imported.notes


def test_files_of_lighteval() -> None:
    """Its tracker wrote them (fixtures/make_lighteval.py); the scores are made up."""
    imported = oo.import_scores(ARCHIVE.parent / "lighteval")
    assert imported.format == "lighteval"
    found = imported.table[["run", "step", "test_set", "metric", "value", "stderr"]]
    assert sorted(found.to_numpy().tolist()) == [
        ["outputs/run0", step, name, "accuracy", first + step / 100, 0.02]
        for step in (10, 20)
        for name, first in (("hans", 0.4), ("snli", 0.5))
    ]


# simulated: the shapes are those of the tools' sources, the files are not theirs


def test_results_of_lighteval(tmp_path: Path) -> None:
    for (run, step), rows in study().groupby(["run", "step"]):
        results: dict[str, Any] = {"all": {"acc": 0.1}}
        for name, value in zip(rows["test_set"], rows["value"], strict=True):
            results[f"custom|{name}|0"] = {"acc": value, "acc_stderr": 0.01}
        made = {"config_general": {"model_name": f"out/{run}/checkpoint-{step}"}, "results": results, "versions": {}}
        folder = tmp_path / "results" / str(run) / str(step)
        folder.mkdir(parents=True)
        (folder / "results_2026-01-01T00-00-00.json").write_text(json.dumps(made))
    imported = oo.import_scores(tmp_path)
    assert imported.format == "lighteval"
    expected = study().assign(run="out/" + study()["run"], test_set="custom|" + study()["test_set"])
    same(imported.table, expected)
    (tmp_path / "x.json").write_text('{"results": 3, "config_general": {}}')
    with pytest.raises(DataError, match="results is 3, expected an object; expected results of lighteval"):
        oo.import_scores(tmp_path / "x.json", format="lighteval")


def test_stats_of_helm(tmp_path: Path) -> None:
    for name, value in (("anatomy", 0.5), ("law", 0.25)):
        folder = tmp_path / "runs" / "v1" / f"mmlu:subject={name},model=org_m"
        folder.mkdir(parents=True)
        spec = {"name": folder.name, "adapter_spec": {"model": "org/m"}}
        (folder / "run_spec.json").write_text(json.dumps(spec))
        stats = [
            {"name": {"name": "exact_match", "split": "test"}, "count": 1, "mean": value},
            {"name": {"name": "exact_match", "split": "valid"}, "count": 1, "mean": 0.9},
            {"name": {"name": "exact_match", "split": "test", "perturbation": {"name": "typos"}}, "mean": 0.1},
            {"name": {"name": "num_references", "split": "test"}, "count": 1, "mean": 4},
        ]
        (folder / "stats.json").write_text(json.dumps(stats))
    imported = oo.import_scores(tmp_path)
    assert imported.format == "helm"
    assert imported.table[["run", "test_set", "metric", "value"]].sort_values("test_set").to_numpy().tolist() == [
        ["org/m", "mmlu:subject=anatomy", "accuracy", 0.5],
        ["org/m", "mmlu:subject=law", "accuracy", 0.25],
    ]
    (folder / "stats.json").write_text('[{"name": "x"}]')
    with pytest.raises(DataError, match="expected what HELM writes"):
        oo.import_scores(tmp_path)
