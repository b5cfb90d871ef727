"""README and docs: code runs, links resolve, the file map is complete."""

from __future__ import annotations

import doctest
import importlib
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import oodles

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
SOURCE = ROOT / "src" / "oodles"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def test_the_python_example_runs(tmp_path: Path, tiny_model: Path) -> None:
    (code,) = blocks("python")
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False, env=env
    )
    assert done.returncode == 0, done.stderr
    assert "suite mini" in done.stdout
    assert r"\begin{tabular}" in done.stdout
    assert (tmp_path / "report.html").stat().st_size > 10_000
    assert (tmp_path / "correlations.pdf").stat().st_size > 1_000


def test_the_shell_example_runs(tmp_path: Path, tiny_model: Path) -> None:
    (code,) = blocks("bash")
    shim = tmp_path / "bin" / "oodles"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nexec {sys.executable} -c "from oodles.cli import main; main()" "$@"\n')
    shim.chmod(0o755)
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PATH": f"{shim.parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-e", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False, env=env
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "runs" / "cli" / "report.html").is_file()
    assert (tmp_path / "results" / "results.json").is_file()


def test_the_study_example_is_a_valid_study(tmp_path: Path) -> None:
    from oodles.study.grid import expand
    from oodles.study.load import load_study

    study, _ = blocks("toml")
    (tmp_path / "study.toml").write_text(study)
    grid = expand(load_study(tmp_path / "study.toml"))
    assert len(grid.jobs) == 10


def test_the_suite_example_is_a_valid_suite(tmp_path: Path) -> None:
    from oodles.suite.load import load_suite
    from oodles.suite.sources import load_examples

    _, text = blocks("toml")
    (tmp_path / "mine.toml").write_text(text)
    rows = "sentence1,sentence2,gold\nA.,B.,entailment\nA.,C.,contradiction\nA.,D.,neutral\n"
    for name in ("home_train", "home_test"):
        (tmp_path / f"{name}.csv").write_text(rows)
    (tmp_path / "away.jsonl").write_text('{"premise": "A.", "hypothesis": "B.", "label": 0}\n')
    (tmp_path / "far.tsv").write_text("premise\thypothesis\tlabel\nA.\tB.\tno\n")
    suite = load_suite(tmp_path / "mine.toml")
    counts = [len(load_examples(suite, s)) for s in (*suite.train_sets.values(), *suite.test_sets.values())]
    assert counts == [2, 2, 1, 1]


def test_the_map_names_every_package() -> None:
    listed = set(re.findall(r"^  ([a-z]+)/\s", README, flags=re.MULTILINE))
    assert listed == {p.parent.name for p in SOURCE.glob("*/__init__.py")}


PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_resolve(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()):
        if not target.startswith(("http://", "https://", "mailto:")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_versions_agree() -> None:
    assert f"version: {oodles.__version__}" in (ROOT / "CITATION.cff").read_text()
    assert f"## {oodles.__version__}" in (ROOT / "CHANGELOG.md").read_text()
    assert (
        tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["version"]["path"]
        == "src/oodles/__init__.py"
    )


MODULES = sorted(".".join(p.relative_to(SOURCE).with_suffix("").parts) for p in SOURCE.rglob("*.py"))


@pytest.mark.parametrize("module", [name for name in MODULES if not name.endswith(("__init__", "__main__"))])
def test_examples_in_docstrings(module: str) -> None:
    assert doctest.testmod(importlib.import_module(f"oodles.{module}")).failed == 0


def test_the_example_of_the_package() -> None:
    assert doctest.testmod(oodles).failed == 0
