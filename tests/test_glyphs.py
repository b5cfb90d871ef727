"""What stands for characters that LaTeX, or the font of the figures, does not have."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from oodles.show import glyphs
from oodles.show.canvas import short
from oodles.show.tables import escape_latex

LATEX = shutil.which("pdflatex")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain a_b", "plain a_b"),
        ("naïve e\u0301", "naïve é"),
        ("שלום", "<U+05E9.05DC.05D5.05DD>"),
        ("x中文y", "x<U+4E2D.6587>y"),
        ("👩‍🔬", "<U+1F469.200D.1F52C>"),
        ("Щи и борщ", "Shchi i borshch"),
        ("ệ Ａ", "e A"),
        ("a\n b\x1b", "a b\\x1b"),
    ],
)
def test_what_stands_for_a_name(text: str, shown: str) -> None:
    assert glyphs.stand_in(text, glyphs.settable) == shown


def test_what_was_replaced_is_told() -> None:
    assert glyphs.replaced(["中文 a", "中文 ệ"], glyphs.settable) == {"中文": "<U+4E2D.6587>", "ệ": "e"}


def test_figures_show_what_their_font_has_and_a_browser_shows_all() -> None:
    assert short("שלום Ω") == "שלום Ω"
    assert short("中文") == "<U+4E2D.6587>"
    with glyphs.in_a_browser():
        assert short("中文") == "中文"
    assert short("中文") == "<U+4E2D.6587>"


@pytest.mark.slow
@pytest.mark.skipif(LATEX is None and not os.environ.get("OODLES_NO_SKIP"), reason="no pdflatex here")
@pytest.mark.parametrize("encoding", ["OT1", "T1"])
def test_pdflatex_has_every_character_that_is_left(tmp_path: Path, encoding: str) -> None:
    characters = [*glyphs.LETTERS, *glyphs.SIGNS, *glyphs.FORMULAS, *map(chr, range(0x21, 0x7F)), *"ệ中א🔬\x00Щ"]
    body = "\n\n".join(escape_latex(c) for c in characters)
    head = rf"\documentclass{{article}}\usepackage[{encoding}]{{fontenc}}\tracinglostchars=2"
    (tmp_path / "all.tex").write_text(rf"{head}\begin{{document}}{body}\end{{document}}", encoding="utf-8")
    command = [str(LATEX), "-interaction=nonstopmode", "-halt-on-error", "all.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace", check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    assert "Missing character" not in (tmp_path / "all.log").read_text(errors="replace")
