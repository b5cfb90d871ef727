"""Scores over the steps and their changes as matplotlib figures. Nothing is written to disk, no statistic is computed.

>>> from oodles.show.figures import plot_trajectories
>>> plot_trajectories(table).savefig("trajectories.pdf")  # doctest: +SKIP
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullFormatter, NullLocator

from oodles.errors import DataError
from oodles.show.canvas import (
    GRID,
    IN_DOMAIN,
    INK,
    MUTED,
    OOD,
    SHARE,
    axes_at,
    limits,
    short,
    size_for,
    style,
    width_of,
)
from oodles.show.groups import Group, columns_before, one_group
from oodles.show.numbers import signed
from oodles.stats.longtable import chance_level

# trajectories

DOTTED = 60  # steps up to which a curve shows each by a dot


def plot_trajectories(
    table: pd.DataFrame,
    *,
    group: Group | None = None,
    metric: str = "accuracy",
    test_sets: Sequence[str] | None = None,
    bare: bool = False,
) -> Figure:
    """A metric over the steps of training, a panel per OOD test set.

    Thin lines are runs, the thick one is their mean at the steps that all of them reached. The dashed line, the same
    in every panel, is the mean in-domain curve; the dotted one is chance, where the table tells it (by a column
    `chance`, or by the number of its answers that have `share:` rows).

    Parameters
    ----------
    table
        A long table.
    group
        Which runs, e.g. ``{"model": "opt-125m"}``; ``{}`` for all as one. Needed if the table holds several groups.
    metric
        Which metric.
    test_sets
        Panels to draw; all OOD test sets by default.
    bare
        Leave the names of the panels and the explanation of the lines to the page around the figure.
    """
    rows = _of_metric(one_group(table, group), metric)
    curves = _Curves(rows=rows)
    names = curves.pick(test_sets)
    chance = {name: chance_level(table, name, metric) for name in names}
    span = limits([*rows["value"], *chance.values()])
    with style():
        figure, axes = _small_multiples(names, steps=rows["step"], ylabel=short(metric.replace("_", " ")), bare=bare)
        for name, ax in axes.items():
            _draw_reference(ax, chance[name])
            _draw_curves(ax, curves, name, OOD)
            ax.set_ylim(span)
        if not bare:
            known = any(math.isfinite(c) for c in chance.values())
            _draw_legend(figure, colour=OOD, curves=curves, reference="chance" if known else None)
    return figure


def plot_shares(
    table: pd.DataFrame,
    *,
    group: Group | None = None,
    answer: str | None = None,
    test_sets: Sequence[str] | None = None,
    bare: bool = False,
) -> Figure:
    """The share of examples that got the first answer, over the steps, a panel per OOD test set.

    Parameters are those of `plot_trajectories`; `answer` is the answer whose share is shown (`Yes` by default, or the
    first one that the table names).
    """
    answer = answer or first_answer(table)
    if answer is None:
        raise DataError("the table has no share: rows, so there is no share of answers to plot")
    rows = _of_metric(one_group(table, group), f"share:{answer}")
    curves = _Curves(rows=rows)
    equal = 1 / len(_answers(table))
    with style():
        figure, axes = _small_multiples(
            curves.pick(test_sets), steps=rows["step"], ylabel=f"share of {short(answer)}", bare=bare, height=0.72
        )
        for name, ax in axes.items():
            _draw_reference(ax, equal)
            _draw_curves(ax, curves, name, SHARE)
            ax.set_ylim(-0.03, 1.03)
            ax.set_yticks([0, 0.5, 1], ["0", ".5", "1"])
        if not bare:
            _draw_legend(figure, colour=SHARE, curves=curves, reference="equal shares")
    return figure


def first_answer(table: pd.DataFrame) -> str | None:
    """The answer whose share is shown: `Yes`, or the first one that the table names."""
    answers = _answers(table)
    yes = [a for a in answers if a.strip().lower() == "yes"]
    return next(iter(yes or answers), None)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Curves:
    """Values of one metric in one group, by test set."""

    rows: pd.DataFrame

    @property
    def _inside(self) -> pd.Series[bool]:
        roles = self.rows["role"] if "role" in self.rows else pd.Series("ood", index=self.rows.index)
        return roles.astype(str) == "in_domain"

    def pick(self, test_sets: Sequence[str] | None) -> list[str]:
        """The panels: those asked for, or every OOD test set; failing that, whatever there is."""
        known = list(dict.fromkeys(self.rows["test_set"]))
        for name in test_sets or ():
            if name not in known:
                raise DataError(f"test set '{name}' is not in the table; known: {', '.join(known) or 'none'}")
        outside = list(dict.fromkeys(self.rows.loc[~self._inside, "test_set"]))
        return list(test_sets or outside or known)

    def of(self, name: str) -> pd.DataFrame:
        """Steps down, runs across."""
        rows = self.rows[self.rows["test_set"] == name]
        outside = rows[~self._inside.loc[rows.index]]
        return _by_run(rows if outside.empty else outside)

    def references(self) -> list[pd.DataFrame]:
        """The in-domain curve of each run, whatever its test set is called; if runs have several, each of them."""
        rows = self.rows[self._inside]
        if rows.groupby("run", observed=True)["test_set"].nunique().max() > 1:
            return [_by_run(part) for _, part in rows.groupby("test_set", observed=True, sort=False)]
        return [_by_run(rows)] if len(rows) else []


def _by_run(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.pivot_table(index="step", columns="run", values="value", aggfunc="first", observed=True, sort=True)


def _mean(curves: pd.DataFrame) -> pd.Series[float]:
    """Over runs, where all of them have a value: a mean over changing runs would bend by itself."""
    return curves.dropna().mean(axis=1)


def _draw_curves(ax: Axes, curves: _Curves, name: str, colour: str) -> None:
    runs = curves.of(name)
    dot = "." if len(runs) <= DOTTED else ""
    if runs.shape[1] > 1:
        for run in runs:
            line = runs[run].dropna()
            ax.plot(line.index, line, color=colour, linewidth=0.7, alpha=0.45, gid="run", marker=dot, markersize=2)
    for reference in map(_mean, curves.references()):
        ax.plot(reference.index, reference, color=IN_DOMAIN, linewidth=1.2, linestyle=(0, (4, 2)), gid="in_domain")
    mean = _mean(runs)
    ax.plot(mean.index, mean, color=colour, linewidth=1.9, marker=dot and "o", markersize=2.8, gid="mean")


def _draw_reference(ax: Axes, level: float) -> None:
    if math.isfinite(level):
        ax.axhline(level, color=MUTED, linewidth=0.8, linestyle=":", gid="chance")


def _small_multiples(
    names: Sequence[str], *, steps: pd.Series[Any], ylabel: str, bare: bool, height: float = 1.3
) -> tuple[Figure, dict[str, Axes]]:
    """Panels of one size in inches: the report sets accuracy and shares below one another, and they align."""
    across = min(4, len(names))
    down = math.ceil(len(names) / across)
    width, left, right, bottom = 1.95, 0.48, 0.12, 0.4
    top, foot, least = (0.08, 0.0, 0.0) if bare else (0.3, 0.3, 4.6)
    row = top + height + bottom
    figure = Figure(figsize=(max(across * (left + width + right), least), down * row + foot))
    axes = {}
    for i, name in enumerate(names):
        x = (i % across) * (left + width + right) + left
        y = foot + (down - 1 - i // across) * row + bottom
        axes[name] = ax = axes_at(figure, x, y, width, height)
        ax.set_ylabel(ylabel if i % across == 0 else "", fontsize=7.5, labelpad=3, parse_math=False)
        size = size_for(short(name), 8.5, width + 0.1)
        ax.set_title("" if bare else short(name), fontsize=size, loc="left", pad=5, parse_math=False)
        ax.grid(axis="y", color=GRID, linewidth=0.6)
        ax.set_axisbelow(True)
        _scale_steps(ax, sorted({float(s) for s in steps}))
    return figure, axes


def _scale_steps(ax: Axes, steps: Sequence[float]) -> None:
    """Log-spaced steps get a log axis that still has room for step 0."""
    positive = [s for s in steps if s > 0]
    if len(positive) > 2 and positive[len(positive) // 2] < positive[-1] / 3:
        ax.set_xscale("symlog", base=2, linthresh=positive[0], linscale=0.9)
    shown = _thin(steps, most=7)
    ax.xaxis.set_major_locator(FixedLocator(shown))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.set_xticks(shown, [f"{s:g}" for s in shown])
    ax.tick_params(labelsize=7, labelcolor=INK, color=MUTED, length=2.5, width=0.6, pad=2)
    ax.set_xlabel("step", fontsize=7.5, labelpad=1)
    if len(steps) == 1:
        ax.set_xlim(steps[0] - 1, steps[0] + 1)


def _thin(steps: Sequence[float], most: int) -> list[float]:
    """Some of the steps, always with the first and the last."""
    if len(steps) <= most:
        return list(steps)
    chosen = np.unique(np.linspace(0, len(steps) - 1, most - 1).round().astype(int))
    return [steps[i] for i in chosen]


def _draw_legend(figure: Figure, *, colour: str, curves: _Curves, reference: str | None) -> None:
    lines = [(Line2D([], [], color=colour, linewidth=1.9, marker="o", markersize=2.8), "mean of the runs")]
    if curves.rows["run"].nunique() > 1:
        lines.append((Line2D([], [], color=colour, linewidth=0.7, alpha=0.45), "each run"))
    if curves.references():
        lines.append((Line2D([], [], color=IN_DOMAIN, linewidth=1.2, linestyle=(0, (4, 2))), "in-domain, mean"))
    if reference is not None:
        lines.append((Line2D([], [], color=MUTED, linewidth=0.8, linestyle=":"), reference))
    handles, labels = zip(*lines, strict=True)
    legend = figure.legend(handles, labels, loc="lower left", bbox_to_anchor=(0.01, 0.0), ncols=4, fontsize=7.5)
    legend.set_frame_on(False)


# changes


def plot_changes(changes: pd.DataFrame, *, group: Group | None = None) -> Figure:
    """Change from the first to the last step, with its interval, a line per test set, largest first.

    The in-domain set stands on top, as a square. An interval that cannot be estimated is not drawn.
    """
    rows = one_group(changes, group, columns_before(changes, "test_set"))
    if rows.empty:
        raise DataError(f"nothing to plot: there is no change for group={group}")
    with style():
        return _draw_changes(by_change(rows.reset_index(drop=True)).to_dict("records"))


def by_change(rows: pd.DataFrame) -> pd.DataFrame:
    """In-domain first, then the largest change first."""
    order = pd.DataFrame({"outside": rows["role"] != "in_domain", "change": rows["change"]})
    return rows.loc[order.sort_values(["outside", "change"], ascending=[True, False], kind="stable").index]


def _draw_changes(rows: Sequence[Mapping[Any, Any]]) -> Figure:
    label = max(width_of(short(r["test_set"]), 8.5) for r in rows)
    left, plot, numbers, line, bottom, top = label + 0.15, 2.2, 1.5, 0.27, 0.5, 0.12
    height = line * len(rows)
    figure = Figure(figsize=(left + plot + numbers, top + height + bottom))
    ax = axes_at(figure, left, bottom, plot, height)
    for y, row in enumerate(rows):
        _draw_change(ax, y, row)
    ax.axvline(0, color=MUTED, linewidth=0.8, zorder=1)
    ends = [float(row[k]) for row in rows for k in ("change", "low", "high") if math.isfinite(float(row[k]))]
    low, high = max(min([*ends, -0.02]), -1.0), min(max([*ends, 0.02]), 1.0)
    ax.set(xlim=(low - 0.04 * (high - low), high + 0.04 * (high - low)), ylim=(len(rows) - 0.5, -0.5))
    ax.set_yticks(range(len(rows)), [short(r["test_set"]) for r in rows], parse_math=False)
    ax.tick_params(axis="y", length=0, labelsize=8.5, labelcolor=INK, pad=5)
    ax.tick_params(axis="x", labelsize=7.5, labelcolor=INK, color=MUTED, length=2.5, width=0.6)
    ax.grid(axis="x", color=GRID, linewidth=0.6)
    ax.set_axisbelow(True)
    ax.spines["left"].set_visible(False)
    ax.set_xlabel("change from the first to the last step", fontsize=8, labelpad=3)
    return figure


def _draw_change(ax: Axes, y: int, row: Mapping[Any, Any]) -> None:
    inside = row["role"] == "in_domain"
    colour, marker = (IN_DOMAIN, "s") if inside else (OOD, "o")
    change, low, high = (float(row[k]) for k in ("change", "low", "high"))
    known = math.isfinite(low) and math.isfinite(high)
    if known:
        ax.plot([low, high], [y, y], color=colour, linewidth=1.6, solid_capstyle="butt", gid="interval")
    ax.plot([change], [y], color=colour, marker=marker, markersize=5.5, linestyle="", gid="change")
    text = signed(change) + (f"  [{signed(low)}, {signed(high)}]" if known else "")
    ax.annotate(text, (1, y), xycoords=("axes fraction", "data"), xytext=(8, 0), textcoords="offset points",
                va="center", fontsize=7.5, color=INK, annotation_clip=False)  # fmt: skip


# helpers


def _of_metric(table: pd.DataFrame, metric: str) -> pd.DataFrame:
    rows = table[table["metric"] == metric] if "metric" in table else table if metric == "accuracy" else table[:0]
    if rows.empty:
        known = sorted(map(str, table["metric"].unique())) if "metric" in table else ["accuracy"]
        raise DataError(f"the table has no rows for metric '{metric}'; known: {', '.join(known)}")
    return rows


def _answers(table: pd.DataFrame) -> list[str]:
    metrics = dict.fromkeys(str(m) for m in table["metric"]) if "metric" in table else {}
    return [m.removeprefix("share:") for m in metrics if m.startswith("share:")]
