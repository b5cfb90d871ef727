"""What reaches a terminal is text."""

from __future__ import annotations

import io
import sys

import pytest
from rich.text import Text

from oodles.terminal import PlainConsole, accept_any_text, is_unicode


def test_escape_codes_in_what_is_printed_are_spelt_out() -> None:
    out = io.StringIO()
    PlainConsole(file=out, width=60).print(Text("a\x1b[31mred 日本"))
    assert out.getvalue() == "a\\x1b[31mred 日本\n"


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
