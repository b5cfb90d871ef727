"""wandb: run files that the real library wrote offline; its service is simulated by recorded answers."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import types
import zipfile
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import oodles as oo
from oodles.errors import ConfigError, DataError, MissingExtraError
from scores import same, same_correlations, study

FIXTURES = Path(__file__).parent / "fixtures"
sys.path.append(str(FIXTURES))
from make_wandb import rows_of, runs_of  # noqa: E402

ARCHIVE = FIXTURES / "wandb.zip"


@pytest.fixture(scope="module", params=["kept", "written now"])
def offline(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run files in the fixtures; where wandb is installed, also those that it writes now."""
    folder = tmp_path_factory.mktemp("wandb")
    if request.param == "kept":
        with zipfile.ZipFile(ARCHIVE) as archive:
            archive.extractall(folder)
    else:
        pytest.importorskip("wandb", reason="wandb writes the files")
        path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
        env = {**os.environ, "WANDB_MODE": "offline", "PYTHONPATH": path}
        command = [sys.executable, str(FIXTURES / "make_wandb.py"), str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
        assert done.returncode == 0, done.stderr[-3000:]
    return folder / "wandb"


def test_round_trip_of_run_files(offline: Path) -> None:
    imported = oo.import_scores(offline)
    assert imported.format == "wandb"
    same(imported.table, study())
    assert sorted(imported.table["seed"].unique()) == list(range(6))
    same_correlations(offline, study())


def test_the_names_of_the_paper(offline: Path) -> None:
    analysis = oo.analyse(offline, preset="paper")
    assert set(analysis.result.table["model"]) == {"m"}
    assert set(analysis.result.table["train_set"]) == {"snli"}
    same(analysis.long_table, study())


def test_a_run_file_that_is_cut_off_or_changed(offline: Path, tmp_path: Path) -> None:
    source = sorted(offline.rglob("*.wandb"))[0]
    whole, path = source.read_bytes(), tmp_path / "run-x.wandb"
    path.write_bytes(whole[: len(whole) * 2 // 3])
    imported = oo.import_scores(path)
    assert any("cut off after" in note for note in imported.notes)
    truth = study().set_index(["run", "step", "test_set"])["value"]
    found = imported.table.set_index(["run", "step", "test_set"])["value"]
    assert 0 < len(found) < len(truth)
    assert (found == truth[found.index]).all()
    for at in (len(whole) // 2, 9, 13):
        changed = bytearray(whole)
        changed[at] ^= 4
        path.write_bytes(changed)
        with pytest.raises(DataError, match=r"its checksum is wrong|nothing is logged"):
            oo.import_scores(path)
    for content in (b"", b"text", b":W&B\xe1\xbe\x00"):
        path.write_bytes(content)
        with pytest.raises(DataError) as caught:
            oo.import_scores(path)
        assert "\n" not in str(caught.value)


def test_a_chart_that_was_exported(tmp_path: Path) -> None:
    """The columns of wandb's export of a chart, written by hand."""
    columns: dict[str, Any] = {"train/global_step": sorted(study()["step"].unique())}
    for (run, test_set), rows in study().groupby(["run", "test_set"]):
        name = f"{run} - eval/{test_set}_accuracy"
        values = rows.sort_values("step")["value"].tolist()
        columns |= {name: values, f"{name}__MIN": values, f"{name}__MAX": values}
    pd.DataFrame(columns).to_csv(tmp_path / "export.csv", index=False)
    same(oo.import_scores(tmp_path / "export.csv").table, study())


def test_the_history_that_was_downloaded_as_parquet(tmp_path: Path) -> None:
    """One file per run, rows sparse; `_step` is wandb's own counter."""
    for run, own in study().groupby("run"):
        frame = pd.DataFrame(rows_of(own))
        frame.assign(_step=range(len(frame)), _timestamp=1.7e9).to_parquet(tmp_path / f"{run}.parquet")
    same(oo.import_scores(tmp_path).table, study())


# the service, simulated


class Run:
    def __init__(self, recorded: dict[str, Any]) -> None:
        self.id, self.name, self.state = recorded["id"], recorded["name"], recorded["state"]
        self.config, self._rows = recorded["config"], recorded["rows"]

    def scan_history(self, keys: Any = None) -> Any:
        """With keys, the real client gives only rows that have all of them."""
        assert keys is None
        return ({"_step": number, "_runtime": 1.0, **row} for number, row in enumerate(self._rows))


def simulate(monkeypatch: pytest.MonkeyPatch, runs: list[dict[str, Any]] | Exception) -> list[str]:
    asked: list[str] = []

    class Api:
        def runs(self, path: str) -> Any:
            asked.append(path)
            if isinstance(runs, Exception):
                raise runs
            return [Run(run) for run in runs]

    monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(Api=Api))
    return asked


def test_the_service_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OODLES_CACHE", str(tmp_path / "cache"))
    asked = simulate(monkeypatch, runs_of(study()))
    first = oo.import_scores("wandb:me/nli")
    same(first.table, study())
    assert first.format == "wandb-api"
    again = oo.import_scores("wandb:me/nli")
    same(again.table, study())
    assert asked == ["me/nli"]
    assert any("from the cache" in note for note in again.notes)
    oo.import_scores("wandb:me/nli", refresh=True)
    assert len(asked) == 2
    same(oo.analyse("wandb:me/nli", in_domain="snli").long_table, study())


def test_what_the_service_refuses_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OODLES_CACHE", str(tmp_path / "cache"))
    simulate(monkeypatch, RuntimeError("no such project\nand much more"))
    with pytest.raises(DataError, match="wandb:me/nli: wandb says: no such project; log in with") as caught:
        oo.import_scores("wandb:me/nli")
    assert "\n" not in str(caught.value)
    for address in ("wandb:me", "wandb:../x", "wandb:a/b/c"):
        with pytest.raises(ConfigError, match="expected wandb:entity/project"):
            oo.import_scores(address)
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'oodles\[wandb\]'"):
        oo.import_scores("wandb:me/nli")


def test_a_key_inside_the_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OODLES_CACHE", str(tmp_path / "cache"))
    runs = [{**run, "config": {"args": {"seed": 40 + n, "data": "snli"}}} for n, run in enumerate(runs_of(study()))]
    simulate(monkeypatch, runs)
    table = oo.import_scores("wandb:me/deep", maps="seed=args.seed,train_set=args.data").table
    assert (set(table["seed"]), set(table["train_set"])) == (set(range(40, 46)), {"snli"})
    with pytest.raises(ConfigError, match=r"--map seed=args\.sed: run 'm_snli_0_64' has no 'args\.sed' in its config"):
        oo.import_scores("wandb:me/deep", maps="seed=args.sed")


def test_names_steps_and_values_that_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OODLES_CACHE", str(tmp_path / "cache"))
    rows = [{"eval/a_accuracy": 0.5, "eval/b_accuracy": "NaN"}, {"eval/a_accuracy": 0.6, "eval/b_accuracy": True}]
    runs = [{"name": "same", "id": f"i{n}", "state": "running", "config": {"seed": n}, "rows": rows} for n in (0, 1)]
    simulate(monkeypatch, runs)
    imported = oo.import_scores("wandb:me/own")
    assert set(imported.table["run"]) == {"same-i0", "same-i1"}
    assert set(imported.table["step"]) == {0, 1}  # its own counter, which is told
    assert any("wandb's own counter is the step" in note for note in imported.notes)
    assert any("still running" in note for note in imported.notes)
    assert [value for value in imported.table["value"] if not math.isnan(value)] == [0.5, 0.6] * 2
