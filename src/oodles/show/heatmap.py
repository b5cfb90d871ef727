"""Partial correlations as a heatmap: a cell per pair of OOD test sets.

>>> from oodles.show.heatmap import plot_correlations
>>> plot_correlations(result).savefig("correlations.pdf")  # doctest: +SKIP
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Polygon, Rectangle

from oodles.errors import DataError
from oodles.show.canvas import (
    HATCH,
    INK,
    NOTHING,
    axes_at,
    colour_of,
    colours,
    excludes_zero,
    ink_on,
    line,
    short,
    style,
    tight,
    width_of,
)
from oodles.show.groups import Group, columns_before, label_of, of_group
from oodles.show.numbers import signed
from oodles.stats.resample import SIGNIFICANT
from oodles.stats.series import grouped

if TYPE_CHECKING:
    from oodles.stats.correlate import PartialCorrelations

WITH_INTERVAL, SMALL, SMALLEST = 0.6, 0.34, 0.24  # inches of a cell: what its text needs
CORNER = "#3a3f46"
CLEAR, UNTESTED, ALL = "* clear: p < .05, adjusted", "° descriptive: no p-value", "† all pairs: see caveats"
PALE = "pale: cannot be told from 0"
WITHIN = {
    "pooled": "pooled (one fit over all runs)",
    "run": "run (a level of its own for each run)",
    "separate": "separate (one fit per run)",
}


def plot_correlations(
    result: PartialCorrelations, *, group: Group | None = None, within: str | None = None, width: float | None = None
) -> Figure:
    """Heatmap of the partial correlations between OOD test sets.

    Parameters
    ----------
    result
        What `partial_correlations` returned.
    group
        Show this group only, e.g. ``{"model": "opt-125m", "train_set": "mnli"}``; all of them by default,
        a row of panels each.
    within
        Show this kind of fit only (`pooled`, `run` or `separate`); all of them by default, side by side.

    width
        Inches of a panel, such as a paper's column: cells have room for r only, and the title is left to the caption.
        By default cells are as large as their intervals need.

    Notes
    -----
    The colour scale is fixed to -1..1, so that figures can be compared. Pale: not clear or, without a test, an interval
    that covers 0. ``*``: clear, as the verdict counts it; ``°``: descriptive, no p-value; hatched: no estimate; a dark
    corner: the pair has a caveat of its own; ``†`` beside a title: all its pairs share a caveat. Small numbers are the
    interval.
    """
    table = of_group(result.table, group)
    if within is not None:
        table = table[table["within"] == within]
    if table.empty:
        raise DataError(f"nothing to plot: the result holds no pair for group={group}, within={within}")
    panels = _panels(table, columns_before(result.table, "a"))
    with style():
        return _draw_heatmaps(panels, width)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Panel:
    """One heatmap: a group and a kind of fit."""

    title: str
    row: int
    column: int
    names: list[str]
    pairs: pd.DataFrame

    @property
    def records(self) -> list[dict[str, Any]]:
        return [{str(k): v for k, v in pair.items()} for pair in self.pairs.to_dict("records")]

    @property
    def shared(self) -> set[str]:
        """Kinds of caveat that every pair has; marking each cell with them would mark nothing."""
        return set.intersection(*(_kinds(pair) for pair in self.records))


def _kinds(pair: Mapping[str, Any]) -> set[str]:
    """Caveats without their numbers and names: the same trouble in another pair is the same kind."""
    plain = set()
    for caveat in pair["caveats"]:
        text = str(caveat)
        for name in (pair["a"], pair["b"]):
            text = text.removeprefix(f"{name}: ")
        plain.add(re.sub(r"\d+(\.\d+)?", "#", text).partition(": ")[0])
    return plain


def _panels(table: pd.DataFrame, by: Sequence[str]) -> list[_Panel]:
    """Groups down, kinds of fit across."""
    withins = list(dict.fromkeys(table["within"]))
    groups = list(grouped(table, by))
    panels = []
    for row, (group, pairs) in enumerate(groups):
        names = list(dict.fromkeys([*pairs["a"], *pairs["b"]]))
        for column, kind in enumerate(withins):
            chosen = pairs[pairs["within"] == kind]
            if chosen.empty:
                continue
            words = WITHIN.get(kind, kind)
            title = words if len(groups) == 1 else f"{label_of(group)} · {words}"
            panels.append(_Panel(title=title, row=row, column=column, names=names, pairs=chosen))
    return panels


def _draw_heatmaps(panels: Sequence[_Panel], given: float | None) -> Figure:
    """Lay the panels out in inches: a cell has the same size wherever it stands."""
    most = max(len(p.names) for p in panels) - 1
    size = 8.0 if given is None else 6.5
    label = max(width_of(short(n), size) for p in panels for n in p.names)
    left, bottom, top = label + 0.15, 0.66 * label + 0.16, 0.4 if given is None else 0.08
    cell = _cell(most) if given is None else max((given - left - 0.08) / most, SMALLEST)
    title = max(width_of(_title(p), 9.5) for p in panels) + 0.08
    width = left + max(cell * most + 0.2, title) if given is None else max(given, left + cell * most + 0.08)
    across, down = max(p.column for p in panels) + 1, max(p.row for p in panels) + 1
    key, height = 0.62, top + cell * most + bottom
    figure = Figure(figsize=(max(across * width, 3.6 if given is None else given), down * height + key))
    for panel in panels:
        side = cell * (len(panel.names) - 1)
        x = panel.column * width + left
        y = key + (down - 1 - panel.row) * height + bottom + cell * most - side
        ax = axes_at(figure, x, y, side, side)
        _draw_heatmap(ax, panel, cell=cell, size=size)
        if given is None:
            ax.set_title(_title(panel), fontsize=9.5, loc="left", pad=8, parse_math=False)
    _draw_key(figure, panels)
    return figure


def _title(panel: _Panel) -> str:
    return line(panel.title) + (" †" if panel.shared else "")


def _cell(most: int) -> float:
    return 0.66 if most <= 7 else 0.5 if most <= 14 else 0.37


def _draw_heatmap(ax: Axes, panel: _Panel, *, cell: float, size: float) -> None:
    """The lower triangle: the diagonal and its mirror image say nothing new."""
    names, n = panel.names, len(panel.names) - 1
    place, shared = {name: i for i, name in enumerate(names)}, panel.shared
    ax.set(xlim=(-0.5, n - 0.5), ylim=(n + 0.5, 0.5))
    for pair in panel.records:
        column, row = sorted((place[pair["a"]], place[pair["b"]]))
        _draw_cell(ax, column, row, pair, cell)
        if _kinds(pair) - shared:
            _draw_corner(ax, column, row)
    ax.set_xticks(range(n), [short(x) for x in names[:-1]], rotation=40, ha="right", va="top", parse_math=False)
    ax.set_yticks(range(1, n + 1), [short(x) for x in names[1:]], parse_math=False)
    ax.tick_params(length=0, labelsize=size, labelcolor=INK, pad=3)
    ax.spines[:].set_visible(False)


def _draw_cell(ax: Axes, column: int, row: int, pair: Mapping[str, Any], cell: float) -> None:
    r, low, high = (float(pair[name]) for name in ("r", "low", "high"))
    corner = (column - 0.5, row - 0.5)
    if not math.isfinite(r):
        ax.add_patch(Rectangle(corner, 1, 1, facecolor=NOTHING, edgecolor=HATCH, linewidth=0, hatch="////"))
        return
    colour = colour_of(r, pale=pale(pair))
    ax.add_patch(Rectangle(corner, 1, 1, facecolor=colour, edgecolor="white", linewidth=1.2))
    ink = ink_on(colour)
    mark = mark_of(pair)
    shown = cell > WITH_INTERVAL and math.isfinite(low)
    text = (signed(r) if cell > SMALL else tight(r)) + mark
    big = 8.5 if cell > WITH_INTERVAL else 6.2 if cell > SMALL else 5.8
    weight = "bold" if mark == "*" else "normal"
    ax.text(column, row - 0.1 * shown, text, ha="center", va="center", color=ink, fontsize=big, fontweight=weight)
    if shown:
        interval = f"[{tight(low)}, {tight(high)}]"
        ax.text(column, row + 0.22, interval, ha="center", va="center", color=ink, fontsize=5.6)


def _draw_corner(ax: Axes, column: int, row: int) -> None:
    """The upper right corner of a cell, away from its digits."""
    x, y = column + 0.47, row - 0.47
    ax.add_patch(Polygon([(x - 0.16, y), (x, y), (x, y + 0.16)], facecolor=CORNER, linewidth=0, gid="caveat"))


def _draw_key(figure: Figure, panels: Sequence[_Panel]) -> None:
    """The colour scale and the marks that occur."""
    width = figure.get_figwidth()
    bar = axes_at(figure, 0.15, 0.3, 1.25, 0.11)
    for i, r in enumerate(np.linspace(-1, 1, 41)):
        bar.add_patch(Rectangle((i, 0), 1.2, 1, facecolor=colours()((r + 1) / 2), linewidth=0))
    bar.set(xlim=(0, 41), ylim=(0, 1))
    bar.set_xticks([0.5, 20.5, 40.5], ["−1", "0", "+1"])
    bar.set_yticks([])
    bar.tick_params(length=0, labelsize=6.5, pad=1.5, labelcolor=INK)
    bar.spines[:].set_visible(False)
    text = "\n".join(_marks_that_occur(panels))
    figure.text(1.6 / width, 0.34 / figure.get_figheight(), text, fontsize=6, va="center", linespacing=1.25)


def _marks_that_occur(panels: Sequence[_Panel]) -> list[str]:
    marks = dict.fromkeys((CLEAR, UNTESTED, PALE, "hatched: no estimate", "corner: see its caveat", ALL), False)
    for panel in panels:
        common = panel.shared
        for pair in panel.records:
            known = math.isfinite(float(pair["r"]))
            marks[CLEAR] |= mark_of(pair) == "*"
            marks[UNTESTED] |= descriptive(pair)
            marks[PALE] |= known and pale(pair)
            marks["hatched: no estimate"] |= not known
            marks["corner: see its caveat"] |= bool(_kinds(pair) - common)
        marks[ALL] |= bool(common)
    return [text for text, occurs in marks.items() if occurs]


def mark_of(pair: Mapping[str, Any]) -> str:
    if descriptive(pair):
        return "°"
    clear = pair.get("clear", float(pair["p_holm"]) < SIGNIFICANT)  # as the verdict counts it
    return "*" if clear else ""


def pale(pair: Mapping[str, Any]) -> bool:
    """Whether a correlation cannot be told from none: not clear or, without a test, with an interval that covers 0."""
    if descriptive(pair):
        return not excludes_zero(float(pair["low"]), float(pair["high"]))
    return mark_of(pair) != "*"


def descriptive(pair: Mapping[str, Any]) -> bool:
    """An estimate without a test: too few runs for one."""
    return math.isfinite(float(pair["r"])) and math.isnan(float(pair["p_val"]))
