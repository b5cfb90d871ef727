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
NAMES = 7.0  # points, around the network
SIZE, TURNED = 6.5, math.radians(40)  # of labels, and by how much heads of columns are turned


def plot_overview(result: PartialCorrelations, *, within: str | None = None, width: float | None = None) -> Figure:
    """Pairs of test sets down, groups across: colour by r, sorted by the mean over groups, so that agreement shows.

    Parameters
    ----------
    result
        What `partial_correlations` returned.
    within
        The kind of fit; the first of the result by default.
    width
        Inches, at least; by default as wide as its cells need.

    Notes
    -----
    Marks are those of `plot_correlations`. Colours fade where a pair cannot be told from no relation; a cell without an
    estimate is hatched.
    """
    rows = of_way(result, within)
    by = groups.columns_before(result.table, "a")
    every = sorted(grouped(rows, by), key=lambda one: groups.by_size(one[0]))
    heads = groups.heads_of([group for group, _ in every])
    found = [(head, own) for head, (_, own) in zip(heads, every, strict=True)]
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
    heads = [canvas.short(label) for label, _ in groups]
    told = f"* clear   ° no test   {heatmap.PALE}   hatched: no estimate"
    left = max(canvas.width_of(label, SIZE) for label in labels) + 0.1
    widest = max(canvas.width_of(head, SIZE) for head in heads)
    top = math.sin(TURNED) * widest + 0.2
    cell = 0.42 if width is None else _cell(heads, width - left)
    room, line, key = cell * len(groups), 0.19, 0.42
    right = max(_end(heads, cell) - room, 0.1)
    least = canvas.width_of(told, SIZE) + 0.12
    figure = Figure(figsize=(max(left + room + right, least, width or 0.0), top + line * len(order) + key))
    ax = canvas.axes_at(figure, left, key, room, line * len(order))
    ax.set(xlim=(-0.5, len(groups) - 0.5), ylim=(len(order) - 0.5, -0.5))
    place = {pair: y for y, pair in enumerate(order)}
    for x, (_, own) in enumerate(groups):
        for pair in own.to_dict("records"):
            _draw_cell(ax, x, place[pair["a"], pair["b"]], pair, text=cell > 0.33)
    ax.xaxis.tick_top()
    ax.set_xticks(range(len(groups)), heads, rotation=math.degrees(TURNED), ha="left", parse_math=False)
    ax.set_yticks(range(len(order)), labels, parse_math=False)
    ax.tick_params(length=0, labelsize=SIZE, labelcolor=canvas.INK, pad=2)
    ax.spines[:].set_visible(False)
    figure.text(0.06 / figure.get_figwidth(), 0.12 / figure.get_figheight(), told, fontsize=SIZE, color=canvas.MUTED)
    return figure


def _end(heads: Sequence[str], cell: float) -> float:
    """Where the turned heads of columns end, from the left edge of the first cell."""
    return max((i + 0.5) * cell + math.cos(TURNED) * canvas.width_of(head, SIZE) + 0.1 for i, head in enumerate(heads))


def _cell(heads: Sequence[str], room: float) -> float:
    """The widest cell with which cells and heads have room."""
    ends = [(room - math.cos(TURNED) * canvas.width_of(head, SIZE) - 0.1) / (i + 0.5) for i, head in enumerate(heads)]
    return max(min(*ends, room / len(heads)), 0.12)


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
        figure, ax = _ring(at, width)
        for pair in rows.to_dict("records"):
            _draw_link(ax, at, pair, words=words)
        for name, (x, y) in at.items():
            ax.plot([x], [y], "o", color=canvas.INK, markersize=4, gid="set")
            across, up = _side(x), "center" if _side(x) != "center" else "bottom" if y > 0 else "top"
            away = (6 * (across == "left") - 6 * (across == "right"), 6 * (up == "bottom") - 6 * (up == "top"))
            ax.annotate(canvas.folded(name), (x, y), xytext=away, textcoords="offset points", ha=across, va=up,
                        fontsize=NAMES, linespacing=1.0, annotation_clip=False, parse_math=False)  # fmt: skip
    return figure


def _side(x: float) -> str:
    """How a name beside its set is aligned."""
    return "left" if x > 0.2 else "right" if x < -0.2 else "center"


def _ring(at: Mapping[str, tuple[float, float]], width: float) -> tuple[Figure, Axes]:
    """Axes of a circle with room for names around it."""
    wide = {name: max(canvas.width_of(line, NAMES) for line in canvas.folded(name).split("\n")) + 0.16 for name in at}
    sides = {side: [wide[name] for name, (x, _) in at.items() if _side(x) == side] for side in ("left", "right")}
    left, right = max([*sides["right"], 0.2]), max([*sides["left"], 0.2])
    round_, above = max(width - left - right, 1.5), 0.4
    beside = max([wide[name] - round_ for name, (x, _) in at.items() if _side(x) == "center"], default=0.0) / 2
    left, right = max(left, beside), max(right, beside)
    figure = Figure(figsize=(left + round_ + right, round_ + 2 * above))
    ax = canvas.axes_at(figure, left, above, round_, round_)
    ax.set(xlim=(-1.03, 1.03), ylim=(-1.03, 1.03))
    ax.axis("off")
    return figure, ax


def _draw_link(ax: Axes, at: Mapping[str, tuple[float, float]], pair: Mapping[Any, Any], *, words: bool) -> None:
    r, low, high = (float(pair[name]) for name in ("r", "low", "high"))
    if not math.isfinite(r) or abs(r) < SLIGHT or (words and NEGATIVE <= r <= STRONG):
        return
    settled = canvas.excludes_zero(low, high)
    (x1, y1), (x2, y2) = at[pair["a"]], at[pair["b"]]
    colour = "#2166ac" if r > 0 else "#b2182b"
    line, alpha = ("-", 0.9) if settled else ((0, (4, 3)), 0.45)
    ax.plot([x1, x2], [y1, y2], color=colour, linewidth=0.3 + 4 * abs(r), linestyle=line, alpha=alpha, gid="link")
