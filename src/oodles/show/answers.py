"""Answers to what was asked beyond correlations: as lines on the terminal, tables and figures in the report."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table
from rich.text import Text

from oodles.errors import plain
from oodles.show import canvas
from oodles.show.groups import by_size
from oodles.show.numbers import MINUS, MISSING, p_value, signed
from oodles.show.tables import Cell, Column, Sheet
from oodles.show.tree import plot_trees
from oodles.stats.answers import Answer, counted
from oodles.stats.resample import SIGNIFICANT
from oodles.stats.skill import OPEN

PANELS = 6  # pairs that a figure shows
LINES = 12  # rows that the terminal shows
TITLES = {
    "claim": "Does it depend on the model?",
    "sensitivity": "Does the answer survive other choices?",
    "windows": "Does it change in the course of training?",
    "redundancy": "Which test sets are needed?",
    "stability": "How steady are the models?",
    "skill": "Skill, or answers?",
    "averages": "By model size and shots",
}

CAPTIONS = {  # of figures that only the page draws
    "averages": "Mean r over all pairs, a line per size.",
    "redundancy": "From top to bottom sets are added, in the group shown. Filled: the error of the sets not yet chosen;"
    " ring: their error from in-domain alone.",
    "stability": "Smaller is steadier; lines are intervals.",
    "skill": "A point is a pair, in the group shown; pale: cannot be told. On the diagonal, accuracy and AUC agree.",
}


def summary_of(answer: Answer) -> str:
    """Of many groups: in how many of them a conclusion holds whatever is chosen."""
    if answer.name != "sensitivity" or not len(answer.tables["sensitivity_pairs"]):
        return ""
    pairs = answer.tables["sensitivity_pairs"]
    clear = pairs[pairs["conclusion"].str.startswith("significant")]
    held, turned = int((clear["same_clear"] == clear["specifications"]).sum()), int((clear["other_sign"] > 0).sum())
    return (
        f"Of {counted(len(clear), 'correlation')} significant by default, each a pair in a group, {held} keep their"
        f" sign and stay significant under every choice; {turned} have the other sign under some choice."
    )


def title_of(answer: Answer) -> str:
    """The question; of a claim, with the columns that were compared."""
    across = answer.settings.get("across") if answer.name == "claim" else None
    if not isinstance(across, list | tuple) or not across:
        return TITLES[answer.name]
    return f"Does it depend on the {' or on the '.join(str(one).replace('_', ' ') for one in across)}?"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A column of an answer's table as readers see it."""

    title: str
    column: str
    low: str = ""  # with its interval, where there is one
    high: str = ""
    kind: str = "signed"  # or p, share, count, plain, text
    brief: bool = True  # also on a terminal, which has little room


SHORT = {"cannot be told from no relation": "open"}  # as in the table of groups
PAIR = Shown(title="pair", column="pair", kind="text")
TABLES: Mapping[str, tuple[str, tuple[Shown, ...]]] = {  # by answer: its main table, and what is shown of it
    "claim": (
        "claim",
        (
            PAIR,
            Shown(title="mean r", column="r", low="low", high="high"),
            Shown(title="sd of z", column="tau", low="tau_low", high="tau_high", kind="plain", brief=False),
            Shown(title="a new one", column="", low="predicted_low", high="predicted_high"),
            Shown(title="other sign", column="other_sign", kind="share", brief=False),
            Shown(title="p (Holm)", column="p_holm", kind="p"),
            Shown(title="levels", column="levels", kind="count"),
            Shown(title="p of a sign reversal", column="p_reversal_holm", kind="p", brief=False),
        ),
    ),
    "sensitivity": (
        "sensitivity_pairs",
        (
            PAIR,
            Shown(title="by default", column="conclusion", kind="text", brief=False),
            Shown(title="r by default", column="r"),
            Shown(title="same sign, significant", column="same_clear", kind="count"),
            Shown(title="other sign", column="other_sign", kind="count"),
            Shown(title="choices", column="specifications", kind="count"),
            Shown(title="lowest r", column="lowest", brief=False),
            Shown(title="by", column="lowest_by", kind="text", brief=False),
            Shown(title="highest r", column="highest", brief=False),
            Shown(title="by", column="highest_by", kind="text", brief=False),
        ),
    ),
    "windows": (
        "windows_change",
        (
            PAIR,
            Shown(title="within", column="within", kind="text"),
            Shown(title="early r", column="early"),
            Shown(title="middle r", column="middle"),
            Shown(title="late r", column="late"),
            Shown(title="p of a change (Holm)", column="change_p_holm", kind="p"),
            Shown(title="in words", column="told", kind="text"),
        ),
    ),
    "redundancy": (
        "redundancy",
        (
            Shown(title="test set added", column="test_set", kind="text"),
            Shown(title="sets", column="chosen", kind="count"),
            Shown(title="error of the others", column="error", kind="error"),
            Shown(title="from in-domain alone", column="error_in_domain", kind="error", brief=False),
            Shown(title="noise", column="noise", kind="error"),
            Shown(title="explained", column="reduction", kind="share"),
        ),
    ),
    "stability": (
        "stability",
        (
            Shown(title="measure", column="what", kind="text"),
            Shown(title="sd", column="sd", low="low", high="high", kind="error"),
            Shown(title="units", column="units", kind="count"),
        ),
    ),
    "averages": (
        "averages",
        (
            Shown(title="size", column="size", kind="text"),
            Shown(title="shots", column="shots", kind="text"),
            Shown(title="within", column="within", kind="text"),
            Shown(title="mean r", column="r"),
            Shown(title="positive", column="positive", kind="share"),
            Shown(title="pairs", column="pairs", kind="count"),
            Shown(title="groups", column="groups", kind="count", brief=False),
            Shown(title="runs", column="runs", kind="count"),
        ),
    ),
    "skill": (
        "skill",
        (
            PAIR,
            Shown(title="within", column="within", kind="text"),
            Shown(title="r of accuracy", column="r_accuracy"),
            Shown(title="r of AUC", column="r_auc", low="low_auc", high="high_auc"),
            Shown(title="r of shares", column="r_share"),
            Shown(title="agrees in", column="told", kind="text"),
        ),
    ),
}


def answer_sheet(answer: Answer, *, brief: bool = False) -> Sheet:
    """The main table of an answer; `brief`: as much of it as a terminal has room for."""
    name, every = TABLES[answer.name]
    shown = [one for one in every if one.brief or not brief]
    frame = answer.tables[name]
    if {"a", "b"} <= set(frame.columns):
        frame = frame.assign(pair=[f"{a} ~ {b}" for a, b in zip(frame["a"], frame["b"], strict=True)])
    where = _where(frame)
    columns = [Column(title=name.replace("_", " "), number=False) for name in where]
    columns += [Column(title=one.title, number=one.kind != "text") for one in shown]
    rows = [
        (
            *(Cell(text=str(row[name]), order=str(row[name])) for name in where),
            *(_cell(row, one) for one in shown),
        )
        for row in frame.to_dict("records")
    ]
    return Sheet(columns=tuple(columns), rows=tuple(rows), notes=())


def _where(frame: pd.DataFrame) -> list[str]:
    """Columns that tell groups, or factors, apart."""
    before = []
    for column in frame.columns:
        if column in ("a", "test_set", "pair", "what", "chosen", "size"):
            break
        before.append(str(column))
    return [column for column in before if frame[column].nunique() > 1]


def _cell(row: Mapping[Any, Any], shown: Shown) -> Cell:
    if shown.kind == "text":
        told = SHORT.get(str(row[shown.column]), str(row[shown.column]))
        return Cell(text=told, order=told)
    value = float(row[shown.column]) if shown.column else float("nan")
    text = _number(value, shown.kind) if shown.column else ""
    if shown.low:
        low, high = (_number(float(row[name]), shown.kind) for name in (shown.low, shown.high))
        known = all(math.isfinite(float(row[name])) for name in (shown.low, shown.high))
        text = f"{text} [{low}, {high}]".strip() if known else text or MISSING
    order = value if math.isfinite(value) else float(row[shown.low]) if shown.low else -math.inf
    return Cell(text=text, order=order if math.isfinite(order) else -math.inf)


def _number(value: float, kind: str) -> str:
    if not math.isfinite(value):
        return MISSING
    if kind == "p":
        return p_value(value)
    if kind == "error":
        return f"{value:.3f}"
    if kind == "share":
        return f"{100 * value:.0f} %".replace("-", MINUS)
    return f"{value:.0f}" if kind == "count" else f"{value:.2f}" if kind == "plain" else signed(value)


def print_answers(answers: Mapping[str, Answer], console: Console) -> None:
    """Title, sentences and the most telling rows of every answer."""
    for answer in answers.values():
        console.print(Text(plain(title_of(answer)), style="bold"))
        for sentence in answer.sentences:
            console.print(_typed(sentence))
        sheet = answer_sheet(answer, brief=True)
        table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 1))
        for column in sheet.columns:
            table.add_column(column.title, justify="right" if column.number else "left", overflow="fold")
        chosen = _telling(answer)[:LINES] if len(sheet.rows) > LINES else range(len(sheet.rows))
        for k in chosen:
            table.add_row(*(_typed(cell.text) for cell in sheet.rows[k]))
        if sheet.rows:
            console.print(table)
        if len(sheet.rows) > LINES:
            console.print(Text(f"and {len(sheet.rows) - LINES} more rows (--out, or the report)", style="dim"))
        for said in answer.caveats:
            console.print(Text(f"! {plain(said)}", style="yellow"))
        console.print()


def _typed(text: str) -> Text:
    """With the minus that a terminal's other numbers have, which can be searched and copied."""
    return Text(plain(text).replace(MINUS, "-"))


def _telling(answer: Answer) -> list[int]:
    """Rows of an answer's main table, those first that say something."""
    frame = answer.tables[TABLES[answer.name][0]].reset_index(drop=True)
    if answer.name == "skill":
        last: Any = frame["told"] == OPEN
    elif answer.name == "sensitivity":
        last = 2 * ~frame["conclusion"].str.startswith("significant") + (frame["other_sign"] == 0)
    elif answer.name in ("claim", "windows"):
        last = frame["p_holm" if answer.name == "claim" else "change_p_holm"].fillna(2.0)
    else:
        return list(range(len(frame)))
    return [int(k) for k in np.argsort(np.asarray(last, dtype=float), kind="stable")]


def print_comparison(answer: Answer, console: Console) -> None:
    """The answer, and every pair in both studies: the largest differences first."""
    for sentence in answer.sentences:
        console.print(Text(plain(sentence)))
    levels, claims = answer.tables["claim_levels"], answer.tables["claim"]
    names = list(dict.fromkeys(levels["level"].astype(str)))
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 1))
    where = _where(claims)
    for title in (*where, "pair"):
        table.add_column(title.replace("_", " "), overflow="fold")
    for title in (*(f"r in {name}" for name in names), "difference", "p"):
        table.add_column(plain(title), justify="right", overflow="fold")
    rows = []
    for pair in claims.to_dict("records"):
        own = levels[
            (levels[[*where, "a", "b", "within"]] == [pair[c] for c in (*where, "a", "b", "within")]).all(axis=1)
        ]
        r = [float(own.loc[own["level"].astype(str) == name, "r"].max()) for name in names]
        p_holm = float(pair["p_holm"])
        told = [*(str(pair[column]) for column in where), f"{pair['a']} ~ {pair['b']}"]
        told += [*(_number(one, "r") for one in r), _number(r[1] - r[0], "r")]
        told += [_number(p_holm, "p") if math.isfinite(p_holm) else "no test"]
        rows.append((-abs(r[1] - r[0]), told))
    for _, told in sorted(rows, key=lambda row: row[0] if math.isfinite(row[0]) else 1.0):
        table.add_row(*(Text(plain(cell)) for cell in told))
    if rows:
        console.print(table)
        console.print(_footer(names))
    for said in answer.caveats:
        console.print(Text(f"! {plain(said)}", style="yellow"))


def _footer(names: Sequence[str]) -> Text:
    return Text(
        f"difference: {plain(names[-1])} minus {plain(names[0])}; r within runs where there are steps,"
        " the mean over the jackknife, so it may differ a little from that of oodles analyse;"
        " p of a difference, adjusted over these pairs",
        style="dim",
    )


# figures


def plot_answer(answer: Answer) -> list[tuple[Figure, str]]:
    """The figures of an answer, each with its description."""
    if answer.name == "claim":
        return plot_forests(answer)
    if answer.name == "sensitivity":
        return plot_specifications(answer)
    if answer.name == "redundancy" and "redundancy_tree" in answer.tables:
        return plot_trees(answer.tables["redundancy_tree"])
    return plot_averages(answer.tables["averages"]) if answer.name == "averages" else []


def plot_averages(table: pd.DataFrame) -> list[tuple[Figure, str]]:
    """Mean correlation over pairs by shots, a line per size; a panel per way of pooling."""
    rows = table[(table["size"] != "all") & (table["shots"] != "all")].assign(at=lambda t: t["shots"].astype(float))
    ways = list(dict.fromkeys(rows["within"]))
    if rows.empty:
        return []
    wide, high, left, right, bottom, top = 2.0, 1.7, 0.5, 0.55, 0.42, 0.28
    with canvas.style():
        figure = Figure(figsize=(len(ways) * (left + wide + right), bottom + high + top))
        for place, way in enumerate(ways):
            ax = canvas.axes_at(figure, place * (left + wide + right) + left, bottom, wide, high)
            _draw_averages(ax, rows[rows["within"] == way])
            ax.set_title(way, fontsize=8.5, loc="left", parse_math=False)
    return [
        (figure, "Mean correlation of all pairs by the number of shots, a line per size; the table has the numbers.")
    ]


def _draw_averages(ax: Axes, rows: pd.DataFrame) -> None:
    sizes = list(dict.fromkeys(rows["size"]))
    for place, size in enumerate(sizes):
        own = rows[rows["size"] == size].sort_values("at")
        colour = matplotlib.colormaps["viridis"](0.85 * place / max(1, len(sizes) - 1))
        ax.plot(own["at"], own["r"], color=colour, marker="o", markersize=3, linewidth=1.2, gid="average")
        end = (float(own["at"].iloc[-1]), float(own["r"].iloc[-1]))
        ax.annotate(canvas.short(size), end, xytext=(4, 0), textcoords="offset points", fontsize=6.5, va="center",
                    parse_math=False)  # fmt: skip
    ax.axhline(0, color=canvas.MUTED, linewidth=0.8, zorder=1)
    ax.set_xscale("log")
    shots = sorted(set(rows["at"]))
    ax.set_xticks(shots, [f"{one:g}" for one in shots])
    ax.set_xticks([], minor=True)
    ax.tick_params(labelsize=7, labelcolor=canvas.INK)
    ax.grid(axis="y", color=canvas.GRID, linewidth=0.6)
    ax.set_xlabel("shots", fontsize=7.5, labelpad=1)
    ax.set_ylabel("mean r of the pairs", fontsize=7.5)


def plot_forests(answer: Answer) -> list[tuple[Figure, str]]:
    """Correlations of every level with intervals, a panel per pair: the pairs that differ most."""
    pairs, levels = answer.tables["claim"], answer.tables["claim_levels"]
    if pairs.empty:
        return []
    where = [str(c) for c in pairs.columns[: list(pairs.columns).index("a")]]
    drawn = []
    for names, own in pairs.groupby(where, sort=False):
        chosen = own.sort_values("p_val", kind="stable").head(PANELS)
        inside = levels[(levels[where].astype(str) == [str(n) for n in names]).all(axis=1)]
        if inside.empty:  # noise leaves no level anything to show
            continue
        with canvas.style():
            figure = _draw_forest(chosen.to_dict("records"), inside)
        told = ", ".join(map(str, names))
        drawn.append((figure, f"Correlations by level with intervals, {told}; the table has the numbers of all pairs."))
    return drawn


def _draw_forest(pairs: Sequence[Mapping[Any, Any]], levels: pd.DataFrame) -> Figure:
    names = sorted(levels["level"].unique(), key=lambda name: (by_size({"level": name}), name))
    new = ["a new one"] if any(math.isfinite(float(pair["predicted_low"])) for pair in pairs) else []
    left = max(canvas.width_of(canvas.short(name), 8) for name in [*names, *new]) + 0.15
    heads = [f"{canvas.short(pair['a'])}\n{canvas.short(pair['b'])}" for pair in pairs]
    wide = max(1.5, *(canvas.width_of(line, 7.5) for head in heads for line in head.split("\n")))
    line, gap, bottom, top = 0.2, 0.12, 0.45, 0.55
    height = line * (len(names) + len(new))
    figure = Figure(figsize=(left + len(pairs) * (wide + gap) + 0.05, top + height + bottom))
    for place, pair in enumerate(pairs):
        ax = canvas.axes_at(figure, left + place * (wide + gap), bottom, wide, height)
        own = levels[(levels["a"] == pair["a"]) & (levels["b"] == pair["b"])].set_index("level")
        for y, name in enumerate(names):
            if name in own.index:
                row = own.loc[name]
                ax.plot([row["low"], row["high"]], [y, y], color=canvas.OOD, linewidth=1.2)
                ax.plot([row["r"]], [y], color=canvas.OOD, marker="o", markersize=3.5, linestyle="")
        below = [len(names), len(names)]
        ax.plot([pair["predicted_low"], pair["predicted_high"]], below, color=canvas.IN_DOMAIN, linewidth=2.2)
        ax.axvline(0, color=canvas.MUTED, linewidth=0.8, zorder=1)
        ax.set(xlim=(-1.02, 1.02), ylim=(len(names) + len(new) - 0.5, -0.5))
        ax.set_xticks([-1, 0, 1], ["−1", "0", "1"])
        shown = [canvas.short(n) for n in [*names, *new]] if not place else []
        ax.set_yticks(range(len(names) + len(new)), shown, parse_math=False)
        ax.tick_params(length=0, labelsize=8, labelcolor=canvas.INK)
        ax.grid(axis="x", color=canvas.GRID, linewidth=0.6)
        ax.set_title(heads[place], fontsize=7.5, parse_math=False)
    return figure


def plot_specifications(answer: Answer, pair: tuple[str, str] | None = None) -> list[tuple[Figure, str]]:
    """A specification curve per pair: those that a choice turns, then those that are clear; or that of one pair."""
    pairs, table = answer.tables["sensitivity_pairs"], answer.tables["sensitivity"]
    if pairs.empty:
        return []
    by = [str(c) for c in pairs.columns[: list(pairs.columns).index("a")]]
    if pair is not None:  # its p-values stay adjusted over all pairs that were analysed
        pairs = pairs[(pairs["a"] == pair[0]) & (pairs["b"] == pair[1])]
    order = pairs.assign(turned=pairs["other_sign"] > 0, clear=pairs["conclusion"].str.startswith("significant"))
    chosen = order.sort_values(["clear", "turned"], ascending=False, kind="stable").head(PANELS)
    drawn = []
    for row in chosen.to_dict("records"):
        keys = [*by, "a", "b"]
        own = table[(table[keys].astype(str) == [str(row[k]) for k in keys]).all(axis=1) & table["r"].notna()]
        if len(own) < 2:
            continue
        with canvas.style():
            figure = _draw_specifications(own.sort_values("r", kind="stable").reset_index(drop=True))
        told = ", ".join([*(str(row[name]) for name in by), f"{row['a']} and {row['b']}"])
        drawn.append((figure, f"Specification curve of {told}: r under every choice, sorted; dots say which choice."))
    return drawn


def _draw_specifications(rows: pd.DataFrame) -> Figure:
    choices = [
        (canvas.line(value).replace("_", " "), rows[name] == value)
        for name in ("steps", "method", "within", "metric")
        if rows[name].nunique() > 1
        for value in rows[name].unique()
    ]
    left = max(canvas.width_of(label, 7.5) for label, _ in [*choices, ("r", None)]) + 0.2
    wide, curve, line = max(2.5, 0.07 * len(rows)), 1.3, 0.15
    below = line * len(choices)
    title = f"{canvas.short(rows['a'].iloc[0])} ~ {canvas.short(rows['b'].iloc[0])}"
    figure = Figure(figsize=(left + max(wide, canvas.width_of(title, 8)) + 0.1, curve + below + 0.55))
    ax = canvas.axes_at(figure, left, below + 0.15, wide, curve)
    clear = (rows["p_holm"] < SIGNIFICANT).to_numpy()
    for x, row in enumerate(rows.to_dict("records")):
        colour = canvas.IN_DOMAIN if row["default"] else canvas.OOD if clear[x] else canvas.MUTED
        ax.plot([x, x], [row["low"], row["high"]], color=colour, linewidth=1.0)
        ax.plot([x], [row["r"]], color=colour, marker="s" if row["default"] else "o", markersize=3.2, linestyle="")
    ax.axhline(0, color=canvas.MUTED, linewidth=0.8, zorder=1)
    ax.set(xlim=(-1, len(rows)), xticks=[], ylim=canvas.limits([*rows["low"].dropna(), *rows["high"].dropna(), 0.0]))
    ax.set_title(title, fontsize=8, loc="left", parse_math=False)
    ax.tick_params(axis="y", labelsize=7.5, labelcolor=canvas.INK)
    if not choices:
        return figure
    grid = canvas.axes_at(figure, left, 0.05, wide, below)
    for y, (_, chosen) in enumerate(choices):
        places = np.flatnonzero(chosen.to_numpy())
        grid.plot(places, np.full(len(places), y), color=canvas.INK, marker="|", markersize=4, linestyle="")
    grid.set(xlim=(-1, len(rows)), ylim=(len(choices) - 0.5, -0.5), xticks=[])
    grid.set_yticks(range(len(choices)), [label for label, _ in choices], parse_math=False)
    grid.tick_params(length=0, labelsize=7.5, labelcolor=canvas.INK)
    for spine in grid.spines.values():
        spine.set_visible(False)
    return figure
