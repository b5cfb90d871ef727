"""What reaches a terminal is text."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
from rich.progress import Progress as Bar
from rich.table import Table
from rich.text import Text

from conftest import oodles
from oodles.runs.progress import columns
from oodles.terminal import PlainConsole, accept_any_text, is_unicode
from test_correlate import simulated


def test_escape_codes_in_what_is_printed_are_spelt_out() -> None:
    out = io.StringIO()
    PlainConsole(file=out, width=60).print(Text("a\x1b[31mred 日本"))
    assert out.getvalue() == "a\\x1b[31mred 日本\n"


@pytest.mark.parametrize("name", ["[bold]", "[x]", "a[/y]", "[link=z]z", ":fire:"])
def test_names_are_no_markup(name: str) -> None:
    """In titles, headers, cells and lines of a progress bar."""
    out = io.StringIO()
    console = PlainConsole(file=out, width=60)
    table = Table(name, title=f"title {name}")
    table.add_row(f"cell {name}")
    console.print(table)
    console.print(f"line {name}")
    with Bar(*columns(), console=console) as bar:
        bar.add_task(f"run {name}")
    shown = out.getvalue()
    assert [where for where in ("title", "cell", "line", "run") if f"{where} {name}" not in shown] == []
    assert shown.count(name) == 5


def test_tables_of_an_analysis_show_names_in_brackets(tmp_path: Path) -> None:
    table = simulated(runs=12, sets=("mnli", "[hans]", "[/b]")).drop(columns=["role"])
    table["[kind]"] = table["run"].isin([f"m_mnli_{i}" for i in range(6)]).map({True: "[red]", False: "plain"})
    for file in ("[one]", "two"):
        table.to_csv(tmp_path / f"{file}.csv", index=False)
    given = ["--in-domain", "mnli", "--by"]
    groups = oodles("analyse", tmp_path / "two.csv", *given, "[kind]")
    assert groups.returncode == 0, groups.stderr
    assert [name for name in ("[red]", "[/b] ~ [hans]") if name not in groups.stdout] == []
    compared = oodles("compare", tmp_path / "[one].csv", tmp_path / "two.csv", *given, "none")
    assert "r in [one]" in compared.stdout, compared.stderr
    assert "[/b] ~ [hans]" in compared.stdout


def test_colours_of_our_own_reach_a_terminal() -> None:
    out = io.StringIO()
    PlainConsole(file=out, width=60, force_terminal=True, color_system="standard").print(Text("ok", style="green"))
    assert "\x1b[32mok" in out.getvalue()


def test_a_terminal_of_few_characters_shows_escapes(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    narrow = io.TextIOWrapper(raw, encoding="ascii")
    monkeypatch.setattr(sys, "stdout", narrow)
    accept_any_text()
    narrow.write("a → b")
    narrow.flush()
    assert raw.getvalue() == b"a \\u2192 b"


@pytest.mark.parametrize(("encoding", "able"), [("utf-8", True), ("UTF8", True), ("ascii", False), ("latin-1", False)])
def test_which_streams_show_any_text(encoding: str, able: bool) -> None:
    assert is_unicode(io.TextIOWrapper(io.BytesIO(), encoding=encoding)) is able
    assert is_unicode(io.StringIO())
