"""Which test sets tell the same story, as a tree: sets and clusters are joined at the mean residual correlation.

>>> from oodles.show.tree import plot_trees
>>> plot_trees(answer.tables["redundancy_tree"])[0][0].savefig("tree.pdf")  # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from oodles.show import canvas
from oodles.show.groups import columns_before, label_of
from oodles.stats.redundancy import ALIKE
from oodles.stats.series import grouped

Merge = Mapping[Any, Any]
MOST = 6  # trees that a report shows without scripts


def plot_trees(merges: pd.DataFrame) -> list[tuple[Figure, str]]:
    """A tree per group, each with its description, from the table `redundancy_tree`."""
    drawn = []
    for group, own in list(grouped(merges, columns_before(merges, "merge")))[:MOST]:
        rows = own.sort_values("merge").to_dict("records")
        if len(rows) < 2:
            continue
        with canvas.style():
            figure = _draw(rows, label_of(group))
        told = f", {label_of(group)}" if group else ""
        drawn.append((figure, f"Tree of {len(rows) + 1} test sets by residual correlation{told}."))
    return drawn


def leaves_of(merges: Sequence[Merge]) -> list[str]:
    """Test sets in an order in which no branches cross."""

    def below(merge: Merge) -> list[str]:
        return [name for side in ("left", "right") for name in _below(merge, side)]

    def _below(merge: Merge, side: str) -> list[str]:
        earlier = int(merge[f"{side}_merge"])
        return below(merges[earlier - 1]) if earlier else [str(merge[side])]

    return below(merges[-1])


def _draw(merges: Sequence[Merge], title: str) -> Figure:
    names = leaves_of(merges)
    label = max(canvas.width_of(canvas.short(name), 7.5) for name in names) + 0.15
    wide, line, bottom, top = 2.4, 0.2, 0.42, 0.28
    title = canvas.line(title)
    figure = Figure(
        figsize=(0.15 + max(wide + label, canvas.width_of(title, 8) + 0.05), bottom + line * len(names) + top)
    )
    ax = canvas.axes_at(figure, 0.15, bottom, wide, line * len(names))
    at: dict[int, tuple[float, float]] = {}
    for merge in merges:
        r = float(merge["r"])
        ends = []
        for side in ("left", "right"):
            earlier = int(merge[f"{side}_merge"])
            ends.append(at[earlier] if earlier else (1.0, float(names.index(str(merge[side])))))
        (x1, y1), (x2, y2) = ends
        ax.plot([x1, r, r, x2], [y1, y1, y2, y2], color=canvas.OOD, linewidth=1.4, gid="merge")
        at[int(merge["merge"])] = (r, (y1 + y2) / 2)
    ax.axvline(ALIKE, color=canvas.MUTED, linewidth=0.8, linestyle=":")
    ax.set(xlim=(min(-0.2, float(merges[-1]["r"]) - 0.05), 1.0), ylim=(len(names) - 0.5, -0.5))
    ax.yaxis.tick_right()
    ax.set_yticks(range(len(names)), [canvas.short(name) for name in names], parse_math=False)
    ax.tick_params(axis="y", length=0, labelsize=7.5, labelcolor=canvas.INK)
    ax.tick_params(axis="x", labelsize=7, labelcolor=canvas.INK)
    ax.spines["left"].set_visible(False)
    ax.set_xlabel("mean r where they meet", fontsize=7.5, labelpad=1)
    ax.set_title(title, fontsize=8, loc="left", parse_math=False)
    return figure
