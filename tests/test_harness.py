"""Scores in the harness's form: its table and its results, read back by the importer."""

from __future__ import annotations

import importlib.util
import json
from datetime import datetime
from pathlib import Path

import pandas as pd
import pytest

import oodles as oo
from conftest import missing
from conftest import oodles as command
from oodles.api.harness import Described, results_of, results_table, write_results

ROWS = [("arc", "accuracy", 0.5125, 40), ("arc", "acc", 0.5125, 40), ("arc", "acc_norm", 0.2875, 40)]
SCORES = pd.DataFrame(
    [*ROWS, ("mine", "accuracy", 0.8571, 7)],
    columns=["test_set", "metric", "value", "n"],
)
SETS = {"arc": Described(size=50, version="1.5", shots=5), "mine": Described(size=7)}


def test_the_table_has_the_harness_layout() -> None:
    told = results_table(results_of(SCORES, {**SETS, "mine": Described(size=7, version="1.0")}, model="m", step=None))
    assert told == (
        "|Tasks|Version|Filter|n-shot| Metric |   |Value |   |Stderr|\n"
        "|-----|------:|------|-----:|--------|---|-----:|---|-----:|\n"
        "|arc  |    1.5|none  |     5|acc     |↑  |0.5125|±  |0.0800|\n"
        "|     |       |none  |     5|acc_norm|↑  |0.2875|±  |0.0725|\n"
        "|mine |    1.0|none  |     0|acc     |↑  |0.8571|±  |0.1429|\n"
    )


@pytest.mark.slow  # `make test-all` has the harness
def test_the_table_equals_the_harness_own() -> None:
    if importlib.util.find_spec("lm_eval") is None or importlib.util.find_spec("pytablewriter") is None:
        missing("no lm_eval: `make test-all` installs it into build/oracles")
    from lm_eval import utils

    for sets in (SETS, {}):
        results = results_of(SCORES, sets, model="m", step=None)
        assert results_table(results) == utils.make_table(results)


def test_results_are_read_back(tmp_path: Path) -> None:
    for step in (0, 250):
        results = results_of(SCORES, SETS, model="org/m", step=step)
        path = write_results(results, tmp_path, datetime(2026, 1, 2, 3, 4, step % 60))
    assert path.parent.name == "org__m"
    assert json.loads(path.read_text())["n-samples"]["arc"] == {"original": 50, "effective": 40}
    imported = oo.import_scores(tmp_path, in_domain=["arc"]).table
    assert set(imported["step"]) == {0, 250}
    told = imported[imported["step"] == 250].set_index(["test_set", "metric"])["value"].to_dict()
    assert told["arc", "acc_norm"] == 0.2875
    assert (imported.loc[imported["test_set"] == "arc", "n"] == 40).all()


def test_score_prints_the_table_and_writes_results(toy_suite: Path, tiny_model: Path, tmp_path: Path) -> None:
    arguments = ("score", "--model", "tiny-llama-untrained", "--suite", toy_suite, "--out", tmp_path / "scored")
    done = command(*arguments, "--output", "lm-eval")
    assert done.returncode == 0, done.stderr
    assert "|Tasks|Version|Filter|n-shot|Metric|" in done.stdout
    (file,) = (tmp_path / "scored" / "lm-eval").rglob("results_*.json")
    told = json.loads(file.read_text())["results"]
    table = oo.read_runs(tmp_path / "scored")
    own = table[table["metric"] == "accuracy"].set_index("test_set")["value"]
    assert {name: one["acc,none"] for name, one in told.items()} == own.to_dict()
    refused = command(*arguments, "--output", "csv")
    assert refused.returncode == 2
    assert "expected lm-eval" in refused.stderr


def test_score_without_a_folder_prints_the_same_and_writes_nothing(
    toy_suite: Path, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, scratch = tmp_path / "here", tmp_path / "scratch"
    here.mkdir()
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    arguments = ("score", "--model", "tiny-llama-untrained", "--suite", toy_suite)
    kept = command(*arguments, "--out", tmp_path / "scored")
    only = command(*arguments, cwd=here)
    assert only.returncode == 0, only.stderr
    assert "|home " in only.stdout
    assert kept.stdout.startswith(only.stdout)
    assert not [*here.iterdir(), *scratch.iterdir()]
    told = json.loads(command(*arguments, "--json", cwd=here).stdout)
    assert results_table(told) + "\n" == only.stdout
    assert not [*here.iterdir(), *scratch.iterdir()]
    # the results need a place: here, if there is no --out
    written = command(*arguments, "--output", "lm-eval", cwd=here)
    assert written.returncode == 0, written.stderr
    (file,) = (here / "lm-eval" / "tiny-llama-untrained").glob("results_*.json")
    assert f"wrote {file.relative_to(here)}" in written.stderr
    assert json.loads(file.read_text())["results"] == told["results"]


def test_score_says_how_many_prompts_were_shortened(toy_suite: Path, tiny_model: Path, tmp_path: Path) -> None:
    """In the table's last line and in the JSON, of sets with and without answers of their own."""
    text = toy_suite.read_text().replace('truncate = "premise"', 'truncate = "premise"\nmax_tokens = 24')
    text += '[patterns.own]\ntext = "{goal}"\nmax_tokens = 24\n'
    text += '[[test_sets]]\nname = "own"\nsource = { file = "own.jsonl" }\npattern = "own"\nchoices = ["a", "b"]\n'
    toy_suite.write_text(text)
    goals = ["short", "word " * 40, "other " * 40]
    rows = [{"goal": goal, "a": "yes", "b": "no", "label": 0} for goal in goals]
    (toy_suite.parent / "own.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    arguments = ("score", "--model", "tiny-llama-untrained", "--suite", toy_suite)
    told = json.loads(command(*arguments, "--json").stdout)
    assert told["shortened"]["own"] == 2
    assert told["shortened"]["home"] > 0
    done = command(*arguments, "--out", tmp_path / "scored", "--output", "lm-eval")
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("prompts shortened to fit: ")]
    assert "own 2 of 3" in line
    assert f"home {told['shortened']['home']} of {told['n-samples']['home']['effective']}" in line
    (file,) = (tmp_path / "scored" / "lm-eval").rglob("results_*.json")
    assert json.loads(file.read_text())["shortened"] == told["shortened"]


def test_a_slice_has_the_version_of_its_set() -> None:
    scores = SCORES.assign(test_set=["arc/easy"] * 3 + ["mine"])
    told = results_of(scores, SETS, model="m", step=None)
    assert told["versions"] == {"arc/easy": 1.5, "mine": None}
    assert told["n-shot"]["arc/easy"] == 5
    assert told["n-samples"]["arc/easy"] == {"original": 40, "effective": 40}
