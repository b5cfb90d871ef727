"""Characters that pdflatex, or the font of the figures, cannot set, and what stands for them.

>>> stand_in("naïve שלום", settable)
'naïve <U+05E9.05DC.05D5.05DD>'
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING

from oodles.errors import plain

if TYPE_CHECKING:
    from matplotlib.ft2font import FT2Font

# What pdflatex sets without a package, in the old and in the new encoding of fonts (OT1 and T1). Probed, not read.
LETTERS = (
    "ÀÁÂÃÄÅÆÇÈÉÊËÌÍÎÏÑÒÓÔÕÖØÙÚÛÜÝßàáâãäåæçèéêëìíîïñòóôõöøùúûüýÿĀāĂăĆćĈĉĊċČčĎďĒēĔĕĖėĚěĜĝĞğĠġĢģĤĥĨĩĪīĬĭİı"
    "ĴĵĶķĹĺĻļĽľŁłŃńŅņŇňŌōŎŏŐőŒœŔŕŖŗŘřŚśŜŝŞşŠšŢţŤťŨũŪūŬŭŮůŰűŴŵŶŷŸŹźŻżŽžȘșȚț"
)
SIGNS = "¡¿§¶©®°±×÷µ·–—‘’“”†‡•…€£™←↑→↓"
GREEK = {  # as formulas; those that look like a Latin letter have no command
    character: rf"$\{'var' * final}{name.lower() if small else name.capitalize()}$"
    for character in "αβγδεζηθικλμνξπρσςτυφχψωΓΔΘΛΞΠΣΥΦΨΩ"
    for told in [unicodedata.name(character).split()]
    for name, small, final in [(told[-1].replace("LAMDA", "LAMBDA"), told[1] == "SMALL", "FINAL" in told)]
}
FORMULAS = {"−": "$-$", "²": "$^2$", "³": "$^3$", "≤": r"$\le$", "≥": r"$\ge$", "≠": r"$\ne$", "≈": r"$\approx$",
            "∞": r"$\infty$", "∈": r"$\in$", "√": r"$\surd$", **GREEK}  # fmt: skip
_PAIRS = (
    "а=a б=b в=v г=g д=d е=e ё=yo ж=zh з=z и=i й=y к=k л=l м=m н=n о=o п=p р=r с=s т=t у=u ф=f х=kh ц=ts ч=ch ш=sh "
    "щ=shch ъ=' ы=y ь=' э=e ю=yu я=ya і=i ї=yi є=ye ґ=g"
)
_CYRILLIC = {pair[0]: pair[2:] for pair in _PAIRS.split()}
SPELT = {
    **dict(zip("đĐðÐŋ«»„ΑΒΕΖΗΙΚΜΝΟΡΤΧο", "dDdDn<>“ABEZHIKMNOPTXo", strict=True)),
    **{"þ": "th", "Þ": "Th"},
    **_CYRILLIC,
    **{letter.upper(): latin.capitalize() for letter, latin in _CYRILLIC.items()},
}
_SETTABLE = frozenset([*map(chr, range(0x20, 0x7F)), *LETTERS, *SIGNS, *FORMULAS])
_browser: ContextVar[bool] = ContextVar("browser", default=False)

SANS, ROMAN = "DejaVu Sans", "cmr10"  # both come with matplotlib
EM = 100  # points, at which letters are measured
Known = Callable[[str], bool]


def settable(character: str) -> bool:
    """Whether pdflatex has this character."""
    return character in _SETTABLE


@cache
def _font(name: str) -> FT2Font:
    from matplotlib.font_manager import findfont
    from matplotlib.ft2font import FT2Font

    font = FT2Font(findfont(name))
    font.set_size(EM, 72)
    return font


@cache
def _held(name: str) -> frozenset[str]:
    return frozenset(map(chr, _font(name).get_charmap()))


@cache
def _advance(name: str, character: str) -> float:
    from matplotlib.ft2font import LoadFlags

    return float(_font(name).load_char(ord(character), flags=LoadFlags.NO_HINTING).linearHoriAdvance / 65536 / EM)


def advance(character: str) -> float:
    """How far a character moves the pen in a figure, in ems."""
    if character in _held(SANS):
        return _advance(SANS, character)
    return 1.0 if unicodedata.east_asian_width(character) in "WF" else 0.6


def roman(character: str) -> float:
    """The same in the font that LaTeX has by default."""
    return _advance(ROMAN, character) if character.isalnum() and character.isascii() else 0.6


def drawable(character: str) -> bool:
    """Whether a figure can show this character: its font has it, or the reader's browser is asked to."""
    return _browser.get() or character in _held(SANS)


@contextmanager
def in_a_browser() -> Iterator[None]:
    """Figures whose text a browser sets, which finds a font for every character."""
    token = _browser.set(True)
    try:
        yield
    finally:
        _browser.reset(token)


def stand_in(text: str, known: Known) -> str:
    """Text on one line in which every character is known: letters lose their accents, others become their codes."""
    return "".join(shown_parts(text, known))


def shown_parts(text: str, known: Known) -> list[str]:
    """The same in parts: runs of known characters, and what stands for the others."""
    return [shown for _, shown in _parts(text, known)]


def replaced(texts: Iterable[str], known: Known) -> dict[str, str]:
    """What is replaced by what, in the order in which it is met."""
    return {part: shown for text in texts for part, shown in _parts(text, known) if part != shown}


def _parts(text: str, known: Known) -> list[tuple[str, str]]:
    """Runs of characters, and what is shown of them."""
    one_line = unicodedata.normalize("NFC", plain(" ".join(text.split()), keep=""))
    if all(map(known, one_line)):
        return [(one_line, one_line)]
    found = []
    for kind, run in groupby(one_line, lambda c: "known" if known(c) else "spelt" if _spelt(c, known) else "code"):
        part = "".join(run)
        codes = ".".join(f"{ord(c):04X}" for c in part)
        spelt = "".join(_spelt(c, known) for c in part)
        found.append((part, {"known": part, "spelt": spelt, "code": f"<U+{codes}>"}[kind]))
    return found


def _spelt(character: str, known: Known) -> str:
    """A letter without its accents, if that is known; else nothing."""
    if character in SPELT:
        return SPELT[character]
    bare = [c for c in unicodedata.normalize("NFKD", character) if not unicodedata.combining(c)]
    return "".join(bare) if all(map(known, bare)) else ""
