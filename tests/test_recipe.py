"""The default recipe learns: the shots of a real model, and the figures behind the defaults."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from conftest import missing, oodles
from oodles.contracts import Recipe
from oodles.model.embedded import is_fetched
from oodles.store.folder import run_folders
from oodles.store.scores import scan_scores

ROOT = Path(__file__).parent.parent
STUDY = """
schema = 1
name = "shots"
suite = "nli"
[grid]
models = ["smollm2-135m-q4"]
train_sets = ["snli"]
shots = [32]
seeds = [0]
[eval]
steps = []
shots = true
limit = 10
limit_in_domain = 10
test_sets = ["snli", "rte", "wnli"]
"""


def test_the_defaults_are_in_the_sweep_behind_them() -> None:
    """A row of the sweep; tests/test_docs.py compares the list of all defaults."""
    recipe = Recipe()
    assert f"| {recipe.epochs} | {recipe.learning_rate:g} |" in (ROOT / "docs" / "fine-tuning.md").read_text()


@pytest.mark.long
def test_real_shots_are_learnt_by_the_default_recipe(real_data: Path, tmp_path: Path) -> None:
    if not is_fetched("smollm2-135m-q4"):
        missing("the model is not in the cache: oodles fetch smollm2-135m-q4")
    (tmp_path / "study.toml").write_text(STUDY)
    done = oodles("run", tmp_path / "study.toml", "--data", real_data, "--out", tmp_path / "out", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["done"] == ["smollm2-135m-q4_snli_0_32"]
    lines = scan_scores(run_folders(tmp_path / "out")[0]).scores
    last = max(line.step for line in lines)
    found = {line.test_set: line.metrics["accuracy"] for line in lines if line.step == last}
    assert found["shots"] >= 0.95
