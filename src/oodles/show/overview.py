"""Many groups at a glance: pairs by groups, and the signed network of test sets.

>>> from oodles.show.overview import plot_overview
>>> plot_overview(result).savefig("overview.pdf")  # doctest: +SKIP
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from oodles.errors import DataError
from oodles.show import canvas, groups, heatmap
from oodles.show.numbers import signed
from oodles.stats.series import grouped

if TYPE_CHECKING:
    from oodles.stats.correlate import PartialCorrelations

STRONG, NEGATIVE = 0.5, -0.3  # the study's words
SLIGHT = 0.1  # correlations below this are no link


def plot_overview(result: PartialCorrelations, *, within: str | None = None, width: float | None = None) -> Figure:
    """Pairs of test sets down, groups across: colour by r, sorted by the mean over groups, so that agreement shows.

    Parameters
    ----------
    result
        What `partial_correlations` returned.
    within
        The kind of fit; the first of the result by default.
    width
        Inches; by default as wide as its cells need.

    Notes
    -----
    Marks are those of `plot_correlations`. Colours fade where a pair cannot be told from no relation; a cell without an
    estimate is hatched.
    """
    rows = of_way(result, within)
    by = groups.columns_before(result.table, "a")
    found = [(groups.label_of(group) or "all runs", own) for group, own in grouped(rows, by)]
    order = by_agreement(rows)
    with canvas.style():
        return _draw(found, order, width)


def of_way(result: PartialCorrelations, within: str | None) -> pd.DataFrame:
    """The rows of one kind of fit."""
    kinds = list(dict.fromkeys(result.table["within"]))
    rows = result.table[result.table["within"] == (within or (kinds[0] if kinds else ""))]
    if rows.empty:
        raise DataError(f"nothing to plot: the result holds no pair within={within}; known: {', '.join(kinds)}")
    return rows


def by_agreement(rows: pd.DataFrame) -> list[tuple[str, str]]:
    """Pairs by their mean correlation over groups, the largest first; those without any last."""
    mean = rows.groupby(["a", "b"], sort=False)["r"].mean().fillna(-2.0)
    return list(mean.sort_values(ascending=False, kind="stable").index)


def _draw(groups: Sequence[tuple[str, pd.DataFrame]], order: Sequence[tuple[str, str]], width: float | None) -> Figure:
    labels = [f"{canvas.short(a)} ~ {canvas.short(b)}" for a, b in order]
    left = max(canvas.width_of(label, 6.5) for label in labels) * 0.92 + 0.1
    top = 0.62 * max(canvas.width_of(canvas.short(label), 7) for label, _ in groups) + 0.18
    room = 0.42 * len(groups) if width is None else max(width - left - 0.1, 1.0)
    cell, line, key = room / len(groups), 0.19, 0.42
    figure = Figure(figsize=(max(left + room + 0.1, 3.0), top + line * len(order) + key))
    ax = canvas.axes_at(figure, left, key, room, line * len(order))
    ax.set(xlim=(-0.5, len(groups) - 0.5), ylim=(len(order) - 0.5, -0.5))
    place = {pair: y for y, pair in enumerate(order)}
    for x, (_, own) in enumerate(groups):
        for pair in own.to_dict("records"):
            _draw_cell(ax, x, place[pair["a"], pair["b"]], pair, text=cell > 0.33)
    ax.xaxis.tick_top()
    heads = [canvas.short(label) for label, _ in groups]
    ax.set_xticks(range(len(groups)), heads, rotation=40, ha="left", parse_math=False)
    ax.set_yticks(range(len(order)), labels, parse_math=False)
    ax.tick_params(length=0, labelsize=6.5, labelcolor=canvas.INK, pad=2)
    ax.spines[:].set_visible(False)
    told = f"* clear   ° no test   {heatmap.PALE}   hatched: no estimate"
    figure.text(0.06 / figure.get_figwidth(), 0.12 / figure.get_figheight(), told, fontsize=6.5, color=canvas.MUTED)
    return figure


def _draw_cell(ax: Axes, x: int, y: int, pair: Mapping[Any, Any], *, text: bool) -> None:
    corner = (x - 0.5, y - 0.5)
    if not math.isfinite(float(pair["r"])):
        ax.add_patch(
            Rectangle(corner, 1, 1, facecolor=canvas.NOTHING, edgecolor=canvas.HATCH, linewidth=0, hatch="////")
        )
        return
    colour = canvas.colour_of(float(pair["r"]), pale=heatmap.pale(pair))
    ax.add_patch(Rectangle(corner, 1, 1, facecolor=colour, edgecolor="white", linewidth=0.8))
    if text:
        ink = canvas.ink_on(colour)
        mark = heatmap.mark_of(pair)
        weight = "bold" if mark == "*" else "normal"
        said = signed(float(pair["r"])).replace("0.", ".") + mark
        ax.text(x, y, said, ha="center", va="center", fontsize=5.8, color=ink, fontweight=weight)


def plot_network(
    result: PartialCorrelations,
    *,
    group: groups.Group | None = None,
    within: str | None = None,
    words: bool = False,
    width: float = 3.3,
) -> Figure:
    """The signed network of test sets: wide links are large correlations, dashed ones have an interval that covers 0.

    Parameters
    ----------
    result
        What `partial_correlations` returned.
    group
        Which group; needed if the result holds several.
    within
        The kind of fit; the first of the result by default.
    words
        Show only what the study calls strong (r above .5) and negative (below -.3).
    width
        Inches.
    """
    rows = groups.one_group(of_way(result, within), group, groups.columns_before(result.table, "a"))
    names = list(dict.fromkeys([*rows["a"], *rows["b"]]))
    angle = 2 * np.pi * np.arange(len(names)) / len(names) - np.pi / 2
    at = {name: (float(np.cos(t)), float(-np.sin(t))) for name, t in zip(names, angle, strict=True)}
    with canvas.style():
        figure = Figure(figsize=(width, 0.82 * width))
        ax = figure.add_axes((0.0, 0.0, 1.0, 1.0))
        ax.set(xlim=(-1.75, 1.75), ylim=(-1.35, 1.35))
        ax.axis("off")
        for pair in rows.to_dict("records"):
            _draw_link(ax, at, pair, words=words)
        for name, (x, y) in at.items():
            ax.plot([x], [y], "o", color=canvas.INK, markersize=4, gid="set")
            side = "left" if x > 0.2 else "right" if x < -0.2 else "center"
            ax.text(1.1 * x, 1.14 * y, canvas.short(name), ha=side, va="center", fontsize=7, parse_math=False)
    return figure


def _draw_link(ax: Axes, at: Mapping[str, tuple[float, float]], pair: Mapping[Any, Any], *, words: bool) -> None:
    r, low, high = (float(pair[name]) for name in ("r", "low", "high"))
    if not math.isfinite(r) or abs(r) < SLIGHT or (words and NEGATIVE <= r <= STRONG):
        return
    settled = canvas.excludes_zero(low, high)
    (x1, y1), (x2, y2) = at[pair["a"]], at[pair["b"]]
    colour = "#2166ac" if r > 0 else "#b2182b"
    line, alpha = ("-", 0.9) if settled else ((0, (4, 3)), 0.45)
    ax.plot([x1, x2], [y1, y2], color=colour, linewidth=0.3 + 4 * abs(r), linestyle=line, alpha=alpha, gid="link")
