"""What every matplotlib figure shares: colours, style, axes placed in inches, and names that fit.

Every figure is read in grey as well as in colour: signs are printed, lines differ in dash and width, and marks stand
beside the numbers they qualify.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache

import matplotlib
import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.colors import Colormap
from matplotlib.figure import Figure

from oodles.show import glyphs
from oodles.show.numbers import signed

# Okabe and Ito's colours: told apart by all common kinds of colour vision. The report swaps these
# exact values for its own in dark mode, so no other part of a figure may use them.
INK, MUTED, GRID = "#1d2126", "#68707a", "#dde1e6"
OOD, IN_DOMAIN, SHARE = "#0072b2", "#d55e00", "#00825f"
PALETTE = "RdBu"  # blue: the two sets rise together; red: one rises where the other falls
HATCH = "#7d858f"  # on cells, which keep their colours in dark mode
NOTHING = "#f1f1f1"  # below the hatching of a cell without an estimate
LONGEST_NAME = 26
FOLDED = 14  # characters of a name from which it may have two lines


@contextmanager
def style() -> Iterator[None]:
    """The same look whatever the user's matplotlibrc says."""
    ours = {
        "font.size": 8,
        "font.family": "sans-serif",
        "text.color": INK,
        "axes.labelcolor": INK,
        "axes.edgecolor": MUTED,
        "axes.linewidth": 0.6,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "hatch.linewidth": 0.5,
    }
    with matplotlib.style.context(["default", ours]):
        yield


def limits(values: Iterable[float]) -> tuple[float, float]:
    """A common vertical range in whole tenths."""
    finite = [float(v) for v in values if math.isfinite(v)] or [0.0, 1.0]
    return math.floor(min(finite) * 10 - 0.2) / 10, math.ceil(max(finite) * 10 + 0.2) / 10


def axes_at(figure: Figure, x: float, y: float, width: float, height: float) -> Axes:
    """Axes placed in inches from the lower left."""
    w, h = figure.get_size_inches()
    return figure.add_axes((x / w, y / h, width / w, height / h))


def tight(value: float) -> str:
    return signed(value).replace("0.", ".")


def line(text: object) -> str:
    """A name as a figure shows it: on one line, with the codes of what cannot be drawn.

    Control characters are written out, too: no XML may hold them.

    >>> line("red\\n\\x1b[31m"), line("中文")
    ('red \\\\x1b[31m', '<U+4E2D.6587>')
    """
    return glyphs.stand_in(str(text), glyphs.drawable)


def short(name: object) -> str:
    """A name that fits; of a long one both ends, because names that begin alike often end differently."""
    text = line(name)
    if len(text) <= LONGEST_NAME:
        return text
    end = LONGEST_NAME // 2 - 1
    return f"{text[: LONGEST_NAME - 1 - end].rstrip()}…{text[-end:].lstrip()}"


def width_of(text: str, size: float) -> float:
    """Inches of a line; of characters that only a browser can show, roughly."""
    return sum(map(glyphs.advance, text)) * size / 72


def size_for(text: str, size: float, room: float) -> float:
    """The size of type, at most this one, at which a line fits into inches."""
    return size * min(1.0, room / max(width_of(text, size), 1e-9))


def folded(name: object) -> str:
    """A name on two lines, where it is long and can be broken.

    >>> folded("rte"), folded("lexical overlap, entailed")
    ('rte', 'lexical overlap,\\nentailed')
    """
    text = short(name)
    places = [i + 1 for i, c in enumerate(text[:-1]) if c in " -_/,.~" and len(text) > FOLDED]
    if not places:
        return text
    at = min(places, key=lambda i: max(len(text[:i].rstrip()), len(text[i:].lstrip())))
    return f"{text[:at].rstrip()}\n{text[at:].lstrip()}"


def luminance(colour: Sequence[float]) -> float:
    """Relative luminance as the web's contrast rules define it."""
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour[:3])
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def ink_on(colour: Sequence[float]) -> str:
    """White or black, whichever is read better."""
    return "#ffffff" if luminance(colour) < 0.19 else "#16191d"


def excludes_zero(low: float, high: float) -> bool:
    """Whether there is an interval, and 0 lies outside."""
    return math.isfinite(low) and math.isfinite(high) and (low > 0 or high < 0)


@cache
def colours() -> Colormap:
    """The scale of correlations; blue: the two sets rise together."""
    return matplotlib.colormaps[PALETTE]


def colour_of(r: float, *, pale: bool) -> tuple[float, float, float]:
    """The colour of a correlation, halfway to white where it is pale."""
    red, green, blue, _ = colours()((r + 1) / 2)
    share = 0.55 if pale else 0.0
    return (red + share * (0.97 - red), green + share * (0.97 - green), blue + share * (0.97 - blue))
