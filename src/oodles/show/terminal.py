"""An analysis on the terminal: the answer first, then a heatmap, then the clearest pairs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.table import Table
from rich.text import Text

from oodles.errors import plain
from oodles.show import answers
from oodles.show.groups import by_size
from oodles.show.numbers import MISSING, p_value, signed
from oodles.show.tables import caveat_lines, groups_sheet
from oodles.stats.analysis import Analysis
from oodles.stats.cautions import raw_matters
from oodles.stats.resample import DESCRIPTIVE
from oodles.stats.verdict import DUE, WAYS, Verdict, first_way, in_doubt

CLEAREST = 8  # pairs that the terminal lists
FEW_GROUPS = 3  # groups up to which each has a heatmap of its own
CELL = 6  # columns of a heatmap's cell: "-.38* "
NAME = 14  # the least room for a name beside a heatmap
SMALLEST = 0.001  # p below which the number is not shown
STRONGEST = "strongest pairs, not tested"
UNTESTED = "° not tested"
PAIR = 38  # columns of a pair's names, where there is room


def render_terminal(analysis: Analysis, console: Console, *, caveats: bool = False) -> None:
    """The answer with its pairs named, a heatmap, the clearest pairs; then what else was asked, and caveats.

    Caveats of single pairs are counted, and printed where `caveats` is set.
    """
    if analysis.title:
        console.print(Text(plain(analysis.title), style="bold"))
    groups, several = list(_groups(analysis)), len(analysis.every_verdict) > 1
    if several:
        _print_overall(analysis, console)
    if len(groups) > FEW_GROUPS:
        for way in dict.fromkeys(_once(analysis.result.table)["within"]):
            _print_matrix(groups, str(way), console)
        console.print()
    for verdict, rows in groups:
        if len(groups) <= FEW_GROUPS:
            _print_group(verdict, rows, console, several=several)
        _print_caveats(rows, console, every=caveats, title=_label(verdict) if len(groups) > FEW_GROUPS else "")
    answers.print_answers(analysis.answers, console)
    for said in analysis.caveats:
        console.print(Text(f"! {said}", style="yellow"))


def _groups(analysis: Analysis) -> Iterator[tuple[Verdict, pd.DataFrame]]:
    by = [str(column) for column in analysis.result.settings["by"]]  # type: ignore[attr-defined]
    for verdict in _ordered(analysis.verdicts):
        rows = analysis.result.table
        for column in by:
            rows = rows[rows[column].astype(str) == verdict.group[column]]
        yield verdict, rows


def _ordered(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """As the report has them: the smallest models first."""
    return sorted(verdicts, key=lambda verdict: by_size(verdict.group))


def _once(rows: pd.DataFrame) -> pd.DataFrame:
    """Without what is the same twice: of one run, pooled and within runs are the same number."""
    alone = bool((rows["n_runs"] <= 1).all()) and "pooled" in set(rows["within"])
    return rows[rows["within"] != "run"] if alone else rows


def _label(verdict: Verdict) -> str:
    return plain(", ".join(verdict.group.values())) or "all runs"


def _sentence(sentence: str) -> Text:
    """The short answer in bold, its evidence after the colon."""
    head, colon, rest = plain(sentence).partition(". " if sentence.startswith("Depends on ") else ": ")
    return Text.assemble((head, "bold"), colon, rest) if rest and len(head) < 60 else Text(plain(sentence))


# several groups


def _print_overall(analysis: Analysis, console: Console) -> None:
    """The claim, where it was asked, and a line per group, those without a pair included."""
    console.print(_sentence(analysis.verdict))
    console.print()
    sheet = groups_sheet(analysis.result, _ordered(analysis.every_verdict))
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 1))
    for column in sheet.columns:
        if column.number:  # narrow, so that names stay whole
            table.add_column(column.title, justify="right", max_width=max(map(cell_len, column.title.split())))
        else:
            table.add_column(column.title, overflow="fold")
    for row in sheet.rows:
        table.add_row(*(Text(plain(cell.text)) for cell in row))
    console.print(table)
    way = WAYS[first_way(analysis.result.table)]
    console.print(Text(f"numbers of pairs, {way}; if untested, by sign alone", style="dim"))
    console.print()


def _print_matrix(groups: Sequence[tuple[Verdict, pd.DataFrame]], way: str, console: Console) -> None:
    """Pairs down, groups across, in as many blocks as the width needs."""
    found = [(verdict, _marked(rows[rows["within"] == way])) for verdict, rows in groups]
    names = list(dict.fromkeys((a, b) for _, rows in found for a, b in zip(rows["a"], rows["b"], strict=True)))
    across = max(1, (console.width - PAIR) // CELL)
    shown = sorted(names, key=lambda pair: -_agreement(found, pair))[: 2 * CLEAREST]
    for start in range(0, len(found), across):
        block = found[start : start + across]
        cells = [[_cell(_of_pair(rows, pair)) for _, rows in block] for pair in shown]
        labels = [f"{a} ~ {b}" for a, b in shown]
        numbers = [str(start + i + 1) for i in range(len(block))]
        console.print(_grid(f"r, {WAYS[way]}", labels, numbers, cells, PAIR))
        told = "; ".join(f"{number} {_label(verdict)}" for number, (verdict, _) in zip(numbers, block, strict=True))
        console.print(Text(told, style="dim"))
    left = len(names) - len(shown)
    notes = [f"the {len(shown)} strongest pairs; {left} more in --out and the report"] if left else []
    doubted = dict.fromkeys(DUE[why] for _, rows in found for why in rows.loc[rows["in_doubt"], "doubt"])
    notes += ["* clear"] if any(rows["clear"].any() for _, rows in found) else []
    notes += [f"? may be due to {' or '.join(doubted)}"] if doubted else []
    notes += [UNTESTED] if any(_any_untested(rows) for _, rows in found) else []
    if notes:
        console.print(Text("; ".join(notes), style="dim"))


def _marked(rows: pd.DataFrame) -> pd.DataFrame:
    """With a column that says which pairs are in doubt."""
    return rows.assign(in_doubt=in_doubt(rows))


def _any_untested(rows: pd.DataFrame) -> bool:
    return bool((rows["r"].notna() & rows["p_val"].isna()).any())


def _of_pair(rows: pd.DataFrame, pair: tuple[str, str]) -> Mapping[Any, Any] | None:
    own = rows[(rows["a"] == pair[0]) & (rows["b"] == pair[1])]
    return own.to_dict("records")[0] if len(own) else None


def _agreement(found: Sequence[tuple[Verdict, pd.DataFrame]], pair: tuple[str, str]) -> float:
    """Mean size of the correlation over groups: what is largest everywhere comes first."""
    every = [_of_pair(rows, pair) for _, rows in found]
    sizes = [abs(float(one["r"])) for one in every if one is not None and math.isfinite(one["r"])]
    return sum(sizes) / len(found)


# one group


def print_answer(verdict: Verdict, console: Console) -> None:
    """The short answer, and below it a line for each of its points."""
    console.print(_sentence(verdict.short))
    points = Table.grid(padding=(0, 1, 0, 0))  # a line that goes on does not begin below its dash
    for point in verdict.points:
        points.add_row(" -", Text(plain(point)))
    if verdict.points:
        console.print(points)


def _print_group(verdict: Verdict, rows: pd.DataFrame, console: Console, *, several: bool) -> None:
    if several:
        console.print(Text(_label(verdict), style="bold underline"))
    print_answer(verdict, console)
    console.print()
    rows = _once(rows)
    for way, pairs in rows.groupby("within", sort=False):
        _print_triangle(pairs, str(way), console)
    _print_clearest(rows, console)


def _print_triangle(pairs: pd.DataFrame, way: str, console: Console) -> None:
    """The lower triangle, if it fits; the diagonal and its mirror image say nothing new."""
    names = [str(name) for name in dict.fromkeys([*pairs["a"], *pairs["b"]])]
    room = console.width - CELL * (len(names) - 1)
    if room < NAME:
        told = f"r, {WAYS[way]}: {len(names)} test sets are too many for a heatmap of {console.width} columns"
        console.print(Text(told, style="dim"))
        return
    found = {frozenset((row["a"], row["b"])): row for row in _marked(pairs).to_dict("records")}
    cells = [[_cell(found.get(frozenset((names[j], name)))) for j in range(i)] for i, name in enumerate(names)]
    labels = [f"{name} {i + 1}" for i, name in enumerate(names)]
    numbers = [str(i) for i in range(1, len(names))]
    console.print(_grid(f"r, {WAYS[way]}", labels, numbers, cells, room))


def _grid(
    title: str, labels: Sequence[str], numbers: Sequence[str], cells: Sequence[Sequence[Text]], room: int
) -> Text:
    """Lines of names and coloured cells; a name too long loses its middle, never its number."""
    width = min(room, max(cell_len(plain(label)) for label in labels) + 1)
    lines = [Text(title, style="dim"), Text(" " * width + "".join(f"{n:^{CELL}}" for n in numbers), style="dim")]
    for label, row in zip(labels, cells, strict=True):
        lines.append(Text.assemble(_fitted(plain(label), width - 1), " ", *row))
    return Text("\n").join(lines)


def _fitted(label: str, width: int) -> str:
    """Exactly this wide, right-aligned; the end stays, because it tells slices of one set apart."""
    if cell_len(label) <= width:
        return " " * (width - cell_len(label)) + label
    keep = (width - 1) // 2
    end = label[-(width - 1 - keep) :]
    return set_cell_size(label, width - 1 - cell_len(end)) + "…" + end


def _cell(pair: Mapping[Any, Any] | None) -> Text:
    """r without its 0, and its mark: * clear, ? in doubt, ° no test."""
    r = float("nan") if pair is None else float(pair["r"])
    if pair is None or not math.isfinite(r):
        return Text(f"{MISSING:^{CELL}}", style="dim")
    mark = "°" if not math.isfinite(pair["p_val"]) else "*" if pair["clear"] else "?" if pair["in_doubt"] else " "
    number = _signed(r).replace("0.", ".")
    strength = min(abs(r), 1.0)
    fade = int(255 - 150 * strength)
    colour = f"rgb({fade},{int(255 - 90 * strength)},255)" if r >= 0 else f"rgb(255,{int(255 - 110 * strength)},{fade})"
    return Text.assemble((f"{number:>4}{mark}", f"black on {colour}"), " ")


def _print_clearest(rows: pd.DataFrame, console: Console) -> None:
    """Those first that the verdict counts as clear, then by p as it is shown, then by size."""
    known = rows[rows["r"].notna()]
    if known.empty:
        return
    tested = bool((known["n_units"] >= DESCRIPTIVE).any())
    order = sorted(_marked(known).to_dict("records"), key=_clearness)
    chosen = order[:CLEAREST]
    raw = raw_matters(rows)
    ways = rows["within"].nunique() > 1
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 1))
    title = "clearest pairs" if rows["clear"].any() else "pairs by p, none clear" if tested else STRONGEST
    table.add_column(title, overflow="fold", max_width=max(PAIR, console.width - 46))
    for name in (*(["within"] if ways else []), "r", *(["r raw"] if raw else []), "interval"):
        table.add_column(name, justify="left" if name == "within" else "right", no_wrap=True)
    for name in (*(["p"] if tested else []), "runs"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in chosen:
        table.add_row(*_pair_cells(row, ways=ways, raw=raw, tested=tested))
    console.print(table)
    left = f"{len(rows) - len(chosen)} more in --out and the report; " if len(rows) > len(chosen) else ""
    doubted = dict.fromkeys(DUE[row["doubt"]] for row in order if row["in_doubt"])  # in the heatmap, too
    told = "p as the verdict has it, adjusted" if tested else "no test: too few independent runs"
    told += "; * clear" if rows["clear"].any() else ""
    told += f"; ? may be due to {' or '.join(doubted)}" if doubted else ""
    told += f"; {UNTESTED}" if _any_untested(rows) else ""
    console.print(Text(left + told, style="dim"))


def _clearness(row: Mapping[Any, Any]) -> tuple[bool, str, float]:
    """Orders pairs as they are shown; one without a test comes last."""
    p = float(row["p_said"])
    return not row["clear"], f"{max(p, SMALLEST):.3f}" if math.isfinite(p) else "no test", -abs(row["r"])


def _pair_cells(row: Mapping[Any, Any], *, ways: bool, raw: bool, tested: bool) -> list[Text]:
    low, high = (_signed(row[end]) for end in ("low", "high"))
    cells = [f"{row['a']} ~ {row['b']}"]
    cells += [str(row["within"])] if ways else []
    cells += [_signed(row["r"]) + ("*" if row["clear"] else "?" if row["in_doubt"] else " ")]
    cells += [_signed(row["r_raw"])] if raw else []
    cells += [f"{low} to {high}" if math.isfinite(row["low"]) else MISSING]
    if tested:
        cells.append(p_value(row["p_said"]) if math.isfinite(row["p_said"]) else "no test")
    return [Text(plain(cell)) for cell in [*cells, str(row["n_runs"])]]


def _print_caveats(rows: pd.DataFrame, console: Console, *, every: bool, title: str) -> None:
    """Caveats that all pairs share; the others are counted, or printed with the number of pairs they concern."""
    common, own = caveat_lines(rows)
    total = len(rows[["a", "b"]].drop_duplicates())
    of_all = f" (all {total} pairs)" if every and total > 1 else ""
    if title and (common or (every and own)):
        console.print(Text(title, style="bold"))
    for said in [*(f"{line}{of_all}" for line in common), *(own if every else ())]:
        console.print(Text(f"  ! {said}", style="yellow"))
    if own and not every:
        count = "1 caveat concerns" if len(own) == 1 else f"{len(own)} caveats concern"
        where = f"{title}: " if title and not common else ""
        console.print(Text(f"  ! {where}{count} some pairs (--caveats prints them)", style="yellow"))
    console.print()


def _signed(value: float) -> str:
    return signed(value, minus="-")
