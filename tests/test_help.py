"""What the command line teaches: filled paragraphs, verbs in groups, examples that work, shell completion."""

from __future__ import annotations

import inspect
import itertools
import json
import os
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

from conftest import oodles
from oodles.cli import app
from oodles.cli.app import VERBS
from test_correlate import simulated
from test_imports import without_torch

NAMES = [verb.__name__ for verbs in VERBS.values() for verb in verbs]
WIDTH = 80


def help_of(verb: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    return oodles(verb, "--help").stdout.splitlines()


def examples_of(verb: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lines = help_of(verb, monkeypatch)
    return [
        line.strip().removeprefix("$ ")
        for line in lines[lines.index(f" {'Examples:':<{WIDTH - 1}}") + 1 :]
        if line.strip()
    ]


def test_the_verbs_are_grouped_in_the_order_in_which_they_are_met(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "\n".join(help_of("--help", monkeypatch))
    assert re.findall(r"^╭─ (.+?) ─", text, flags=re.MULTILINE) == ["Options", *VERBS]
    assert re.findall(r"^│ (\w+)  ", text, flags=re.MULTILINE) == NAMES


@pytest.mark.parametrize("verb", NAMES)
def test_paragraphs_are_filled(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line ends where the next word does not fit, not where it ends in the source."""
    lines = [line.strip() for line in help_of(verb, monkeypatch)]
    text = lines[: next(i for i, line in enumerate(lines) if line.startswith("╭"))]
    assert sum(map(bool, text)) >= 2, text  # the usage, and what the verb does
    for line, following in itertools.pairwise(text):
        if line and following:
            assert len(f"{line} {following.split()[0]}") > WIDTH - 2, line


def test_brackets_are_text() -> None:
    """[slurm] is a table of a study, and no markup of the terminal's."""
    found = set()
    for verb in (verb for verbs in VERBS.values() for verb in verbs):
        given = [str(verb.__doc__), *(str(option.help) for option in options_of(verb))]
        shown = "".join(oodles(verb.__name__.strip("_"), "--help", COLUMNS="400").stdout.split())
        for bracket in (bracket for text in given for bracket in re.findall(r"\[[^\]]*\]", text)):
            assert "".join(bracket.split()) in shown, f"{verb.__name__}: {bracket}"
            found.add(bracket)
    assert "[slurm]" in found


def options_of(verb: Callable[..., None]) -> list[Any]:
    parameters = inspect.signature(verb, eval_str=True).parameters.values()
    return [one for p in parameters for one in getattr(p.annotation, "__metadata__", ()) if hasattr(one, "help")]


@pytest.mark.parametrize("verb", NAMES)
def test_every_verb_ends_with_examples_that_parse(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    examples = examples_of(verb, monkeypatch)
    assert 2 <= len(examples) <= 3
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert any(shlex.split(example)[1] == verb for example in examples)
    for example in examples:
        name, used, *arguments = shlex.split(example)
        assert name == "oodles"
        assert commands[used].make_context(used, arguments).params


# what needs a model or a network, waits for Ctrl-C, or starts processes: these only parse
NOT_RUN = (
    *("oodles demo", "oodles score", "oodles compare"),
    *("smollm2", "EleutherAI", "fetch nli", "--watch", "--workers"),
)


def test_examples_run(toy_study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder that holds what they name: a study, a finished study as runs/quick, and a table."""
    table = simulated(runs=6, sets=("mnli", "hans", "paws")).drop(columns=["role"])
    table.to_csv(tmp_path / "scores.csv", index=False)
    (tmp_path / "outputs" / "m_mnli_0_64").mkdir(parents=True)
    rows = [{"step": step, "eval_mnli_accuracy": 0.5, "eval_hans_accuracy": 0.4} for step in (1, 2)]
    (tmp_path / "outputs" / "m_mnli_0_64" / "trainer_state.json").write_text(json.dumps({"log_history": rows}))
    examples = [e for name in NAMES for e in examples_of(name, monkeypatch) if not any(w in e for w in NOT_RUN)]
    assert len(examples) > 18
    before = ["oodles run quick --dry-run", f"oodles run {toy_study} --out runs/quick"]  # the other way round: refused
    last = ["oodles report quick.oodles.zip"]  # once it is packed
    for example in [*before, *(e for e in examples if e not in (*before, *last)), *last]:
        done = oodles(*shlex.split(example)[1:], cwd=tmp_path)
        assert done.returncode == 0, f"{example}: {done.stderr}"
    assert {"results", "report.html", "quick.oodles.zip"} <= {path.name for path in tmp_path.iterdir()}


def test_shell_completion_without_torch() -> None:
    """Verbs, options, and names of suites and studies; a file's name is left to the shell."""
    for line, expected in {
        "oodles re": ["report"],
        "oodles run --ve": ["--verify"],
        "oodles run ": ["demo", "paper", "quick"],
        "oodles check --suite n": ["nli"],
        "oodles suites m": ["mini"],
        "oodles run my": [],
    }.items():
        words = {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" ")), "_OODLES_COMPLETE": "complete_bash"}
        done = without_torch(env={**os.environ, **words})
        assert (done.returncode, done.stdout.split()) == (0, expected), done.stderr


def test_the_completion_script_is_what_a_shell_takes() -> None:
    done = without_torch(env={**os.environ, "_OODLES_COMPLETE": "source_bash"})
    code = f"{done.stdout}\ncomplete -p oodles"
    shown = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True)
    assert "_oodles_completion" in shown.stdout
    assert "--install-completion" in oodles("--help").stdout
