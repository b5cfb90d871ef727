"""An analysis on the terminal: heatmap, pairs and verdict of every group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from oodles.errors import plain
from oodles.show.answers import print_answers
from oodles.show.numbers import p_value, signed
from oodles.stats.analysis import Analysis
from oodles.stats.cautions import raw_matters
from oodles.stats.resample import DESCRIPTIVE


def render_terminal(analysis: Analysis, console: Console) -> None:
    """A compact table and a coloured heatmap per group, and the verdict."""
    result = analysis.result
    by = [str(column) for column in result.settings["by"]]  # type: ignore[attr-defined]
    for verdict in analysis.verdicts:
        rows = result.table
        for column in by:
            rows = rows[rows[column].astype(str) == verdict.group[column]]
        title = ", ".join(verdict.group.values()) or "all runs"
        console.print(Text(title, style="bold"))
        for within, pairs in rows.groupby("within", sort=False):
            console.print(_heatmap(pairs, str(within)))
        console.print(_pair_table(rows))
        console.print(Text(verdict.sentence))
        for said in _common(rows):
            console.print(Text(f"  ! {said}", style="yellow"))
        console.print()
    print_answers(analysis.answers, console)
    for said in result.caveats:
        console.print(Text(f"! {said}", style="yellow"))


def _common(rows: pd.DataFrame) -> list[str]:
    """Caveats that all pairs of a group share; the others are counted in the table."""
    every = [set(said) for said in rows["caveats"]]
    return [said for said in rows["caveats"].iloc[0] if all(said in one for one in every)]


def _heatmap(pairs: pd.DataFrame, within: str) -> Table:
    names = list(dict.fromkeys([*pairs["a"], *pairs["b"]]))
    found = {(a, b): r for a, b, r in zip(pairs["a"], pairs["b"], pairs["r"], strict=True)}
    grid = Table(
        box=None, padding=(0, 0), pad_edge=False, title=f"r, {within}", title_justify="left", title_style="dim"
    )
    grid.add_column(justify="right")
    grid.add_column(width=1)  # between a row's number and its first value
    for number in range(1, len(names)):
        grid.add_column(str(number), justify="center", width=7)
    for i, name in enumerate(names):
        cells = [_cell(found.get((names[j], name), found.get((name, names[j])))) for j in range(min(i, len(names) - 1))]
        grid.add_row(Text(plain(f"{name} {i + 1}"), no_wrap=True, overflow="ellipsis"), "", *cells)
    return grid


def _cell(r: float | None) -> Text:
    if r is None or not np.isfinite(r):
        return Text("  –   ", style="dim")
    strength = min(abs(r), 1.0)
    fade = int(255 - 150 * strength)
    colour = f"rgb({fade},{int(255 - 90 * strength)},255)" if r >= 0 else f"rgb(255,{fade},{fade})"
    return Text(f"{r:+.2f} ", style=f"black on {colour}")


def _pair_table(rows: pd.DataFrame) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("pair", "within"):
        table.add_column(name)
    raw = ("r raw",) if raw_matters(rows) else ()
    for name in ("r", *raw, "interval", "p (Holm)", "corrected", "runs", "points", "caveats"):
        table.add_column(name, justify="right")
    common = set(_common(rows))
    for row in rows.to_dict("records"):
        table.add_row(*_pair_cells(row, common, raw=bool(raw)))
    return table


def _pair_cells(row: Mapping[Any, Any], common: set[str], *, raw: bool) -> list[str]:
    own = len(set(row["caveats"]) - common)
    p_val = p_value(row["p_holm"]) if np.isfinite(row["p_holm"]) else ""
    corrected = _signed(row["r_corrected"])
    if row["corrected_by"] == "range":
        corrected = f"{_signed(row['r_corrected_low'])}..{_signed(row['r_corrected_high'])}"
    return [
        escape(plain(f"{row['a']} ~ {row['b']}")),
        str(row["within"]),
        _signed(row["r"]),
        *([_signed(row["r_raw"])] if raw else []),
        f"{_signed(row['low'])} to {_signed(row['high'])}",
        p_val if row["n_units"] >= DESCRIPTIVE else "no test",
        corrected,
        str(row["n_runs"]),
        str(row["n_steps"]),
        str(own) if own else "",
    ]


def _signed(value: float) -> str:
    return signed(value, minus="-")
