"""README and docs: code runs, links resolve, the file map is complete."""

from __future__ import annotations

import dataclasses
import doctest
import importlib
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import oodles
from oodles.contracts import DataSet, Evaluation, Fallback, Lora, Pattern, Recipe, Slurm, Source
from oodles.study.load import _File, _Grid
from test_correlate import simulated

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
SOURCE = ROOT / "src" / "oodles"


def blocks(language: str, page: str = README) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page, flags=re.DOTALL)


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text()


def test_the_analysis_of_a_table_runs(tmp_path: Path) -> None:
    code, _ = blocks("python")
    simulated().drop(columns="role").to_csv(tmp_path / "scores.csv", index=False)
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert r"\begin{tabular}" in done.stdout
    assert (tmp_path / "report.html").stat().st_size > 10_000


def test_the_output_that_is_shown_is_that_of_the_command() -> None:
    _, matrix, *_ = blocks("text")
    env = {**os.environ, "COLUMNS": "80"}
    command = [sys.executable, "-m", "oodles", "analyse", "bert-hans"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    printed = "\n".join(line.rstrip() for line in done.stdout.splitlines())
    assert matrix in printed, printed


def test_the_readme_takes_a_minute() -> None:
    assert 600 <= len(README.split()) <= 900


def shape(line: str) -> str:
    """A line of the log with 9 for every number."""
    return re.sub(r"\d+(\.\d+)?", "9", line.strip())


def test_the_callback_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from oodles.model.embedded import tiny_tokenizer
    from test_callback import their_trainer

    _, code = blocks("python")
    monkeypatch.chdir(tmp_path)
    exec(code, {"trainer": their_trainer(tmp_path / "theirs", [], tiny_tokenizer())})
    table = oodles.read_runs(tmp_path / "runs" / "mine")
    assert set(table["run"]) == {"my-run"}
    assert table["test_set"].nunique() == 8
    (log,) = (tmp_path / "runs" / "mine").rglob("log.txt")
    _, _, line, *_ = blocks("text")  # of a real run, shortened
    printed = shape(log.read_text().splitlines()[0])
    assert re.fullmatch(".*".join(map(re.escape, shape(line).split("..."))), printed), printed


def test_the_study_from_python_runs(tmp_path: Path, tiny_model: Path) -> None:
    (code,) = blocks("python", page("study-file.md"))
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False, env=env
    )
    assert done.returncode == 0, done.stderr
    assert "suite mini" in done.stdout
    assert (tmp_path / "report.html").stat().st_size > 10_000


def test_the_readme_names_both_entry_points() -> None:
    assert "make demo" in README
    assert "make test" in README


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
    _, _, _, status, _ = blocks("text")
    assert status in "\n".join(line.rstrip() for line in done.stdout.splitlines())


def test_the_study_example_is_a_valid_study(tmp_path: Path) -> None:
    from oodles.study.grid import expand
    from oodles.study.load import load_study

    (study,) = blocks("toml", page("study-file.md"))
    (tmp_path / "study.toml").write_text(study)
    grid = expand(load_study(tmp_path / "study.toml"))
    assert len(grid.jobs) == 10


def test_the_cluster_examples_are_valid(tmp_path: Path) -> None:
    from oodles.study.load import load_slurm

    found = blocks("toml", page("clusters.md"))
    assert len(found) == 2
    for text in found:
        (tmp_path / "cluster.toml").write_text(text)
        assert load_slurm(tmp_path / "cluster.toml", Slurm()).gpus == 1


def test_the_suite_example_is_a_valid_suite(tmp_path: Path) -> None:
    from oodles.suite.load import load_suite
    from oodles.suite.sources import load_examples

    (text,) = blocks("toml", page("suite-file.md"))
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


KEYS = {"grid": _Grid, "lora": Lora, "train": Recipe, "eval": Evaluation, "slurm": Slurm}


@pytest.mark.parametrize("table", ["", *KEYS])
def test_every_key_of_a_study_is_listed_with_its_default(table: str) -> None:
    """In the order of the dataclass, which is the only other place that names them."""
    title = f"`\\[{table}\\]`" if table else "Top level"
    (section,) = re.findall(rf"^## {title}\n(.*?)(?=^## |\Z)", page("study-file.md"), flags=re.MULTILINE | re.DOTALL)
    listed = re.findall(r"^\| `(\w+)` \| (?:`(.*?)`|(\w+)) \|", section, flags=re.MULTILINE)
    known = [
        f for f in dataclasses.fields(KEYS.get(table, _File)) if table == "grid" or f.name not in {*KEYS, "models"}
    ]
    assert {name: default or word for name, default, word in listed} == {f.name: shown_default(f) for f in known}


def shown_default(field: dataclasses.Field[Any]) -> str:
    """As a study file would spell it."""
    if field.default is dataclasses.MISSING:
        return "required"
    return "none" if field.default is None else json.dumps(field.default)


def test_every_key_of_a_suite_is_listed() -> None:
    named = set(re.findall(r"`(\w+)`", page("suite-file.md")))
    for record in (Pattern, DataSet, Source, Fallback):
        assert {f.name for f in dataclasses.fields(record)} - {"seed"} <= named | {"name"}


def anchors(path: Path) -> set[str]:
    """The headings of a page, as its links spell them."""
    titles = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "examples" / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_resolve(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", page.read_text()):
        if target.startswith(("http://", "https://", "mailto:")):
            continue
        place = page.parent / target if target else page
        assert place.exists(), f"{page.name} links to {target}"
        assert not anchor or anchor in anchors(place), f"{page.name} links to {target}#{anchor}"


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
