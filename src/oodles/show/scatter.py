"""The method itself as figures: what in-domain predicts of a test set, and what is left of two of them.

>>> from oodles.show.scatter import plot_residuals
>>> plot_residuals(result, "rte", "scitail").savefig("residuals.pdf")  # doctest: +SKIP
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from oodles.errors import DataError, nearest
from oodles.show.canvas import GRID, IN_DOMAIN, INK, MUTED, OOD, axes_at, short, size_for, style
from oodles.show.groups import Group, columns_before, of_group, one_group
from oodles.show.numbers import signed

if TYPE_CHECKING:
    from oodles.stats.correlate import PartialCorrelations

PANEL = 1.75  # inches, both ways
ACROSS = 4  # panels
SAME = 1e-9  # fitted values that differ by rounding only


def plot_fits(
    result: PartialCorrelations,
    table: pd.DataFrame,
    *,
    group: Group | None = None,
    within: str | None = None,
    test_sets: Sequence[str] | None = None,
) -> Figure:
    """Every OOD test set against the in-domain one, with the fitted curve: the residual is the distance from it.

    Parameters
    ----------
    result
        What `partial_correlations` returned.
    table
        The long table it was computed from.
    group
        Which runs, e.g. ``{"model": "opt-125m"}``. Needed if the result holds several groups.
    within
        Which kind of fit; the first of the result by default. Fits by run have a level for each run, so a curve each.
    test_sets
        Panels to draw; all OOD test sets by default.
    """
    rows = _rows(result, group, within)
    points = rows.merge(_in_domain(table, group, _metric(result)), on=["run", "step"], how="inner")
    known = list(dict.fromkeys(points["test_set"]))
    for name in test_sets or ():
        if name not in known:
            raise DataError(f"test set '{name}' has no residuals; {nearest(name, known)}")
    if not known:
        raise DataError("nothing to plot: no point has both an in-domain score and a residual")
    with style():
        figure, axes = _panels(list(test_sets or known))
        for name, ax in axes.items():
            _draw_fit(ax, points[points["test_set"] == name])
            size = size_for(short(name), 8.5, PANEL + 0.1)
            ax.set_title(short(name), fontsize=size, loc="left", pad=5, parse_math=False)
            ax.set_xlabel("in-domain", fontsize=7.5, labelpad=1)
    return figure


def _draw_fit(ax: Axes, points: pd.DataFrame) -> None:
    ax.plot(points["inside"], points["value"], ".", color=OOD, markersize=3, alpha=0.5, gid="points", linestyle="")
    fitted = points.groupby("inside")["fitted"]
    one_curve = bool((fitted.max() - fitted.min()).max() < SAME)
    for _, part in [("", points)] if one_curve else points.groupby("run", observed=True):
        line = part.sort_values("inside")
        width, alpha = (1.6, 1.0) if one_curve else (0.8, 0.6)
        ax.plot(line["inside"], line["fitted"], color=IN_DOMAIN, gid="fit", linewidth=width, alpha=alpha)


def plot_residuals(
    result: PartialCorrelations, a: str, b: str, *, group: Group | None = None, within: str | None = None
) -> Figure:
    """The residuals of two test sets against each other: their correlation is the partial correlation.

    A point is a run at a step; the title gives r, its interval and the number of runs. Parameters are those of
    `plot_fits`.
    """
    rows = _rows(result, group, within)
    wide = rows.pivot_table(index=["run", "step"], columns="test_set", values="residual", observed=True)
    for name in (a, b):
        if name not in wide:
            raise DataError(f"test set '{name}' has no residuals; {nearest(name, map(str, wide.columns))}")
    both = wide[[a, b]].dropna()
    pair = _pair(result, group, str(rows["within"].iloc[0]), a, b)
    with style():
        figure = Figure(figsize=(3.1, 3.1))
        ax = axes_at(figure, 0.62, 0.5, 2.2, 2.2)
        _set_up(ax)
        for line in (ax.axhline, ax.axvline):
            line(0, color=MUTED, linewidth=0.7, linestyle=":")
        ax.plot(both[a], both[b], ".", color=OOD, markersize=4, alpha=0.5, gid="points", linestyle="")
        for told, name in ((ax.set_xlabel, a), (ax.set_ylabel, b)):
            label = f"residual, {short(name)}"
            told(label, fontsize=size_for(label, 7.5, 2.6), labelpad=2, parse_math=False)
        ax.set_title(pair, fontsize=8, loc="left", pad=5, color=INK)
    return figure


def _pair(result: PartialCorrelations, group: Group | None, within: str, a: str, b: str) -> str:
    """The pair's correlation in words."""
    table = of_group(result.table, group)
    rows = table[(table["within"] == within) & table["a"].isin([a, b]) & table["b"].isin([a, b])]
    if len(rows) != 1:
        return ""
    row: dict[str, Any] = {str(k): v for k, v in rows.iloc[0].items()}
    units = int(row["n_units"])
    span = f" [{signed(row['low'])}, {signed(row['high'])}]" if math.isfinite(row["low"]) else ""
    return f"r = {signed(row['r'])}{span}, {units} unit{'s' * (units != 1)}"


def _rows(result: PartialCorrelations, group: Group | None, within: str | None) -> pd.DataFrame:
    """The residuals of one group and one kind of fit."""
    residuals = result.residuals
    rows = one_group(residuals, group, columns_before(residuals, "run"))
    kinds = list(dict.fromkeys(rows["within"]))
    if within is not None and within not in kinds:
        raise DataError(f"the result has no fits within '{within}'; {nearest(within, map(str, kinds))}")
    if not kinds:
        raise DataError(f"nothing to plot: the result holds no residuals for group={group}")
    return rows[rows["within"] == (within or kinds[0])]


def _metric(result: PartialCorrelations) -> str:
    return str(result.settings.get("metric") or "accuracy")


def _in_domain(table: pd.DataFrame, group: Group | None, metric: str) -> pd.DataFrame:
    """The in-domain score of every run and step; their mean where a run has several in-domain sets."""
    rows = of_group(table, group)
    rows = rows[(rows["role"].astype(str) == "in_domain") & (rows["metric"] == metric)]
    return rows.groupby(["run", "step"], observed=True)["value"].mean().rename("inside").reset_index()


def _panels(names: Sequence[str]) -> tuple[Figure, dict[str, Axes]]:
    across = min(ACROSS, len(names))
    down = math.ceil(len(names) / across)
    left, right, bottom, top = 0.48, 0.12, 0.42, 0.3
    row = top + PANEL + bottom
    figure = Figure(figsize=(across * (left + PANEL + right), down * row))
    axes = {}
    for i, name in enumerate(names):
        x = (i % across) * (left + PANEL + right) + left
        y = (down - 1 - i // across) * row + bottom
        axes[name] = axes_at(figure, x, y, PANEL, PANEL)
        _set_up(axes[name])
    return figure, axes


def _set_up(ax: Axes) -> None:
    ax.grid(color=GRID, linewidth=0.6)
    ax.set_axisbelow(True)
    ax.locator_params(nbins=4)
    ax.tick_params(labelsize=7, labelcolor=INK, color=MUTED, length=2.5, width=0.6, pad=2)


def clearest(result: PartialCorrelations, group: Group | None, within: str, most: int = 3) -> list[tuple[str, str]]:
    """The pairs whose interval is furthest from 0; without intervals, those of the largest correlation."""
    table = of_group(result.table, group)
    rows = table[(table["within"] == within) & table["r"].notna()]
    away = np.where(rows["r"] > 0, rows["low"], -rows["high"])
    order = rows.assign(away=away, size=rows["r"].abs()).sort_values(["away", "size"], ascending=False)
    return list(zip(order["a"][:most], order["b"][:most], strict=True))
