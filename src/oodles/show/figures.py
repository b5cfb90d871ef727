"""Results -> matplotlib figures. Nothing is written to disk and no statistic is computed here.

>>> from oodles.show.figures import plot_correlations
>>> plot_correlations(result).savefig("correlations.pdf")  # doctest: +SKIP

Every figure is read in grey as well as in colour: signs are printed, lines differ in dash and
width, and marks stand beside the numbers they qualify.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import matplotlib
import matplotlib.style
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedLocator, NullFormatter, NullLocator

from oodles.errors import DataError
from oodles.show.numbers import signed
from oodles.stats.longtable import chance_level
from oodles.stats.series import grouped

if TYPE_CHECKING:
    from oodles.stats.correlate import PartialCorrelations

Group = Mapping[str, Any]

# Okabe and Ito's colours: told apart by all common kinds of colour vision. The report swaps these
# exact values for its own in dark mode, so no other part of a figure may use them.
INK, MUTED, GRID = "#1d2126", "#68707a", "#dde1e6"
OOD, IN_DOMAIN, SHARE = "#0072b2", "#d55e00", "#00825f"
PALETTE = "RdBu"  # blue: the two sets rise together; red: one rises where the other falls
HATCH = "#7d858f"  # on cells, which keep their colours in dark mode
SIGNIFICANT = 0.05  # of the p-value after Holm
LONGEST_NAME = 26
WITHIN = {
    "pooled": "pooled (one fit over all runs)",
    "run": "run (a level of its own for each run)",
    "separate": "separate (one fit per run)",
}


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


# correlations


def plot_correlations(result: PartialCorrelations, *, group: Group | None = None, within: str | None = None) -> Figure:
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

    Notes
    -----
    The colour scale is fixed to -1..1, so that figures can be compared. ``*``: clear, as the verdict counts it;
    ``°``: descriptive, no p-value; hatched: the pair has a caveat of its own; ``†`` beside a title: all
    its pairs share a caveat. Small numbers are the interval.
    """
    table = of_group(result.table, group)
    if within is not None:
        table = table[table["within"] == within]
    if table.empty:
        raise DataError(f"nothing to plot: the result holds no pair for group={group}, within={within}")
    panels = _panels(table, columns_before(result.table, "a"))
    with style():
        return _draw_heatmaps(panels)


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


def _draw_heatmaps(panels: Sequence[_Panel]) -> Figure:
    """Lay the panels out in inches: a cell has the same size wherever it stands."""
    most = max(len(p.names) for p in panels) - 1
    cell = 0.66 if most <= 7 else 0.5 if most <= 14 else 0.37
    label = max(_width(short(n), 8) for p in panels for n in p.names)
    across, down = max(p.column for p in panels) + 1, max(p.row for p in panels) + 1
    left, bottom, top = label + 0.15, 0.66 * label + 0.16, 0.4
    title = max(_width(p.title, 9.5) for p in panels)
    width, height = left + max(cell * most + 0.2, title), top + cell * most + bottom
    key = 0.62
    figure = Figure(figsize=(max(across * width, 3.6), down * height + key))
    for panel in panels:
        size = cell * (len(panel.names) - 1)
        x = panel.column * width + left
        y = key + (down - 1 - panel.row) * height + bottom + cell * most - size
        _draw_heatmap(axes_at(figure, x, y, size, size), panel, intervals=cell > 0.6)
    _draw_key(figure, panels)
    return figure


def _draw_heatmap(ax: Axes, panel: _Panel, *, intervals: bool) -> None:
    """The lower triangle: the diagonal and its mirror image say nothing new."""
    names, n = panel.names, len(panel.names) - 1
    place, shared = {name: i for i, name in enumerate(names)}, panel.shared
    ax.set(xlim=(-0.5, n - 0.5), ylim=(n + 0.5, 0.5))
    for pair in panel.records:
        column, row = sorted((place[pair["a"]], place[pair["b"]]))
        _draw_cell(ax, column, row, pair, hatched=bool(_kinds(pair) - shared), intervals=intervals)
    ax.set_xticks(range(n), [short(x) for x in names[:-1]], rotation=40, ha="right", va="top", parse_math=False)
    ax.set_yticks(range(1, n + 1), [short(x) for x in names[1:]], parse_math=False)
    ax.tick_params(length=0, labelsize=8, labelcolor=INK, pad=3)
    ax.spines[:].set_visible(False)
    ax.set_title(panel.title + (" †" if shared else ""), fontsize=9.5, loc="left", pad=8, parse_math=False)


def _draw_cell(ax: Axes, column: int, row: int, pair: Mapping[str, Any], *, hatched: bool, intervals: bool) -> None:
    r = float(pair["r"])
    known = math.isfinite(r)
    colour = matplotlib.colormaps[PALETTE]((r + 1) / 2) if known else (0.93, 0.93, 0.93, 1.0)
    corner = (column - 0.5, row - 0.5)
    ax.add_patch(Rectangle(corner, 1, 1, facecolor=colour, edgecolor="white", linewidth=1.2))
    if hatched:
        ax.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor=HATCH, linewidth=0, hatch="////"))
    ink = "#ffffff" if _luminance(colour) < 0.19 else "#16191d"
    text = signed(r) + _mark(pair)
    shown = intervals and math.isfinite(float(pair["low"]))
    big = {True: 8.5, False: 6.2}[intervals]
    weight = "bold" if "*" in text else "normal"
    ax.text(column, row - 0.1 * shown, text, ha="center", va="center", color=ink, fontsize=big, fontweight=weight)
    if shown:
        interval = f"[{_tight(pair['low'])}, {_tight(pair['high'])}]"
        ax.text(column, row + 0.22, interval, ha="center", va="center", color=ink, fontsize=5.6)


def _draw_key(figure: Figure, panels: Sequence[_Panel]) -> None:
    """The colour scale and the marks that occur."""
    width = figure.get_figwidth()
    bar = axes_at(figure, 0.15, 0.3, 1.25, 0.11)
    for i, r in enumerate(np.linspace(-1, 1, 41)):
        bar.add_patch(Rectangle((i, 0), 1.2, 1, facecolor=matplotlib.colormaps[PALETTE]((r + 1) / 2), linewidth=0))
    bar.set(xlim=(0, 41), ylim=(0, 1))
    bar.set_xticks([0.5, 20.5, 40.5], ["−1", "0", "+1"])
    bar.set_yticks([])
    bar.tick_params(length=0, labelsize=6.5, pad=1.5, labelcolor=INK)
    bar.spines[:].set_visible(False)
    text = "\n".join(_marks_that_occur(panels))
    figure.text(1.6 / width, 0.36 / figure.get_figheight(), text, fontsize=6.5, va="center", linespacing=1.35)


def _marks_that_occur(panels: Sequence[_Panel]) -> list[str]:
    marks = {"* clear: p < .05, adjusted": False, "° descriptive: no p-value": False}
    hatched, shared = False, False
    for panel in panels:
        common, pairs = panel.shared, panel.records
        marks["* clear: p < .05, adjusted"] |= any(_mark(pair) == "*" for pair in pairs)
        marks["° descriptive: no p-value"] |= any(_descriptive(pair) for pair in pairs)
        hatched |= any(_kinds(pair) - common for pair in pairs)
        shared |= bool(common)
    marks |= {"hatched: see its caveat": hatched, "† all pairs: see caveats": shared}
    return [text for text, occurs in marks.items() if occurs]


def _mark(pair: Mapping[str, Any]) -> str:
    if _descriptive(pair):
        return "°"
    clear = pair.get("clear", float(pair["p_holm"]) < SIGNIFICANT)  # as the verdict counts it
    return "*" if clear else ""


def _descriptive(pair: Mapping[str, Any]) -> bool:
    """An estimate without a test: too few runs for one."""
    return math.isfinite(float(pair["r"])) and math.isnan(float(pair["p_val"]))


# trajectories


def plot_trajectories(
    table: pd.DataFrame,
    *,
    group: Group | None = None,
    metric: str = "accuracy",
    test_sets: Sequence[str] | None = None,
    bare: bool = False,
) -> Figure:
    """A metric over the steps of fine-tuning, a panel per OOD test set.

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
    limits = _limits([*rows["value"], *chance.values()])
    with style():
        figure, axes = _small_multiples(names, steps=rows["step"], ylabel=metric.replace("_", " "), bare=bare)
        for name, ax in axes.items():
            _draw_reference(ax, chance[name])
            _draw_curves(ax, curves, name, OOD)
            ax.set_ylim(limits)
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
    if runs.shape[1] > 1:
        for run in runs:
            line = runs[run].dropna()
            ax.plot(line.index, line, color=colour, linewidth=0.7, alpha=0.45, gid="run", marker=".", markersize=2)
    for reference in map(_mean, curves.references()):
        ax.plot(reference.index, reference, color=IN_DOMAIN, linewidth=1.2, linestyle=(0, (4, 2)), gid="in_domain")
    mean = _mean(runs)
    ax.plot(mean.index, mean, color=colour, linewidth=1.9, marker="o", markersize=2.8, gid="mean")


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
        ax.set_title("" if bare else short(name), fontsize=8.5, loc="left", pad=5, parse_math=False)
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
    label = max(_width(short(r["test_set"]), 8.5) for r in rows)
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


def columns_before(frame: pd.DataFrame, column: str) -> list[str]:
    """The columns that name a group: whatever stands before a result's own first column."""
    names = [str(c) for c in frame.columns]
    return names[: names.index(column)]


def label_of(group: Group) -> str:
    """A group in words: `opt-125m, trained on mnli`."""
    before = {"model": "", "train_set": "trained on "}
    return ", ".join(f"{before.get(k, k.replace('_', ' ') + ' ')}{v}" for k, v in group.items())


def of_group(frame: pd.DataFrame, group: Group | None) -> pd.DataFrame:
    """The rows of a group; all of them if there is none. Names are compared as the analysis writes them."""
    if not group:
        return frame
    for column in group:
        if column not in frame:
            raise DataError(f"group names the column '{column}', which the table lacks")
    wanted = {column: str(value) for column, value in group.items()}
    return next((rows for names, rows in grouped(frame, list(group)) if names == wanted), frame[:0])


def one_group(frame: pd.DataFrame, group: Group | None, by: Iterable[str] = ("model", "train_set")) -> pd.DataFrame:
    """The rows of the group; a mean over several models says nothing, so it is never drawn unasked."""
    if group is None:
        several = [c for c in by if c in frame and frame[c].nunique(dropna=False) > 1]
        if several:
            choose = f"group={{{several[0]!r}: ...}}"
            raise DataError(f"the table holds several groups ({', '.join(several)}); pass {choose}")
    return of_group(frame, group)


def _of_metric(table: pd.DataFrame, metric: str) -> pd.DataFrame:
    rows = table[table["metric"] == metric] if "metric" in table else table if metric == "accuracy" else table[:0]
    if rows.empty:
        known = sorted(map(str, table["metric"].unique())) if "metric" in table else ["accuracy"]
        raise DataError(f"the table has no rows for metric '{metric}'; known: {', '.join(known)}")
    return rows


def _answers(table: pd.DataFrame) -> list[str]:
    metrics = dict.fromkeys(str(m) for m in table["metric"]) if "metric" in table else {}
    return [m.removeprefix("share:") for m in metrics if m.startswith("share:")]


def _limits(values: Iterable[float]) -> tuple[float, float]:
    """A common vertical range in whole tenths."""
    finite = [float(v) for v in values if math.isfinite(v)] or [0.0, 1.0]
    return math.floor(min(finite) * 10 - 0.2) / 10, math.ceil(max(finite) * 10 + 0.2) / 10


def axes_at(figure: Figure, x: float, y: float, width: float, height: float) -> Axes:
    """Axes placed in inches from the lower left."""
    w, h = figure.get_size_inches()
    return figure.add_axes((x / w, y / h, width / w, height / h))


def _tight(value: float) -> str:
    return signed(value).replace("0.", ".")


def short(name: object) -> str:
    text = " ".join(str(name).split())
    return text if len(text) <= LONGEST_NAME else text[: LONGEST_NAME - 1] + "…"


def _width(text: str, size: float) -> float:
    """Inches, roughly; measuring needs a font that holds every character, which nobody has."""
    ems = sum(1.0 if unicodedata.east_asian_width(c) in "WF" else 0.6 for c in text)
    return ems * size / 72


def _luminance(colour: Sequence[float]) -> float:
    """Relative luminance as the web's contrast rules define it."""
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour[:3])
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
