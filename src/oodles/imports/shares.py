"""Accuracies as shares of 1: what is in per cent is divided by 100, and what could be either is refused.

People write tables, so that one cell may be a share and the next one per cent. A program writes a run in one way; but
another version of it, in another run, may write it in another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from oodles.errors import DataError, shown, some
from oodles.imports.columns import chosen

SHARES = ("accuracy", "balanced_accuracy", "f1", "auc", "exact_match", "acc_norm", "precision", "recall")
MOST_NAMED = 8  # test sets in an example
CURE = "write all as shares or all as per cent; a metric that is neither needs a column metric"
TOLD = "scores above 1 are taken as per cent and divided by 100"


def wide_shares(
    table: pd.DataFrame, splits: Mapping[str, tuple[str, str]], where: str, notes: list[str]
) -> pd.DataFrame:
    """Accuracies as shares: per cent where every column is, refused where columns differ or a value is neither."""
    columns = [column for column, (_, metric) in splits.items() if metric in SHARES]
    if not columns:
        return table
    low, high = table[columns].min(), table[columns].max()
    wrong = [c for c in columns if low[c] < 0 or high[c] > 100]
    for column in wrong:
        _refuse_odd_cell(table[column], column, where)
    if wrong:
        found = low[wrong[0]] if low[wrong[0]] < 0 else high[wrong[0]]
        cure = _example(columns, high, wrong) or "remove the column"
        raise DataError(f"{where}: column '{shown(wrong[0])}' holds {found:g}, no accuracy; {cure}")
    large = [c for c in columns if high[c] > 1]
    small = [c for c in columns if 0 < high[c] <= 1]
    if large and small:
        example = _example(columns, high, wrong)
        raise DataError(
            f"{where}: column '{shown(large[0])}' goes up to {high[large[0]]:g}, '{shown(small[0])}' to"
            f" {high[small[0]]:g}; {f'{example}, or ' if example else ''}write all as shares or all as per cent"
        )
    if not large:
        return table
    for column in large:
        share = table[column].between(0, 1, inclusive="right")
        if share.any():
            row, value = _first(table[column], share)
            raise DataError(
                f"{where} row {row}: {shown(column)} is {value:g}, other rows go up to"
                f" {high[column]:g}; write all as shares or all as per cent{_without(column, columns)}"
            )
    notes.append(TOLD)
    return table.assign(**{c: table[c] / 100 for c in columns})


def _refuse_odd_cell(column: pd.Series, name: str, where: str) -> None:
    """A cell that no accuracy can be, where most of the column are accuracies, or an infinity anywhere."""
    odd = column.notna() & ~column.between(0, 100)
    infinite = np.isinf(column)
    if infinite.any() or odd.sum() * 2 <= column.notna().sum():
        row, value = _first(column, infinite if infinite.any() else odd)
        raise DataError(
            f"{where} row {row}: {shown(name)} is {value:g}, no accuracy; correct the cell, or leave it empty"
        )


def _first(column: pd.Series, where: pd.Series) -> tuple[int, float]:
    """The file's row of the first such cell, and what it holds; rows without scores were left out before."""
    place = int(np.flatnonzero(where)[0])
    return int(column.index[place]) + 1, float(column.iloc[place])


def _without(column: str, columns: Sequence[str]) -> str:
    """An option that leaves a column out, where enough others stay."""
    others = [c for c in columns if c != column]
    return f", or leave the column out, e.g. {chosen(others[:MOST_NAMED])}" if len(others) > 1 else ""


def _example(columns: Sequence[str], high: pd.Series, wrong: Sequence[str]) -> str:
    """An option that leaves out what is in the way: of shares and per cent the smaller part."""
    fine = [c for c in columns if c not in wrong]
    large = [c for c in fine if high[c] > 1]
    kept = max(large, [c for c in fine if c not in large], key=len)
    return f"name the test sets, e.g. {chosen(kept[:MOST_NAMED])}" if len(kept) > 1 else ""


def long_shares(table: pd.DataFrame, where: str, notes: list[str], *, by_hand: bool) -> pd.DataFrame:
    """The same for a row per test set: a set is in per cent if its scores are above 1, and none above 100.

    Sets with scores below 0 or above 100 are no accuracies, whatever they are called, and stay as they are.
    """
    if not table["value"].gt(1).any():
        return table
    metrics = table["metric"].fillna("accuracy") if "metric" in table.columns else pd.Series("accuracy", table.index)
    sets = table["test_set"].astype(str)
    value = table["value"].where(np.isfinite(table["value"]))
    usual = metrics.isin(SHARES) & value.groupby([sets, metrics]).transform("min").ge(0)
    usual &= value.groupby([sets, metrics]).transform("max").le(100)
    if not (usual & value.gt(1)).any():
        return table
    divided = []
    for metric in pd.unique(metrics[usual]):
        own = usual & metrics.eq(metric)
        high = value[own].groupby(sets[own]).max()
        large, small = high[high > 1].index, high[(high > 0) & (high <= 1)].index
        if not len(large):
            continue
        _refuse_mixed(table[own & sets.isin(large)], where, by_hand=by_hand)
        if not len(small):
            divided.append(own)
        elif by_hand:
            found = f"{shown(large[0])} goes up to {high[large[0]]:g}, {shown(small[0])} to {high[small[0]]:g}"
            raise DataError(f"{where}: {metric} of {found}; {CURE}")
        else:
            notes.append(f"{metric} of {some(large, 3)} goes beyond 1, of {some(small, 3)} not: left as logged")
    if not divided:
        return table
    notes.append(TOLD)
    chosen = np.logical_or.reduce(divided)
    scaled = [name for name in ("value", "stderr") if name in table.columns]
    return table.assign(**{name: table[name].where(~chosen, table[name] / 100) for name in scaled})


def _refuse_mixed(table: pd.DataFrame, where: str, *, by_hand: bool) -> None:
    """Shares among per cent in a set: single cells where people write them, whole runs where programs do."""
    value, sets, runs = table["value"], table["test_set"].astype(str), table["run"].astype(str)
    if by_hand:
        odd = value[(value > 0) & (value <= 1)]
        if len(odd):
            name = sets[odd.index[0]]
            found = f"{shown(name)} is {odd.iloc[0]:g}, other rows go up to {value[sets == name].max():g}"
            raise DataError(f"{where} row {int(odd.index[0]) + 1}: {found}; {CURE}")
        return
    high = value.groupby([sets, runs]).max()
    for name, own in high.groupby(level=0):
        small, large = own[(own > 0) & (own <= 1)], own[own > 1]
        if len(small):
            (_, first), (_, second) = large.index[0], small.index[0]
            raise DataError(
                f"{where}: {shown(name)} goes up to {large.iloc[0]:g} in run '{shown(first)}' and to"
                f" {small.iloc[0]:g} in run '{shown(second)}': per cent and shares; import these runs apart"
            )
