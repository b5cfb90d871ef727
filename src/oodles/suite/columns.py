"""Cells of a set's columns as texts or lists of texts. `choices.text.0` reaches into cells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from oodles.errors import DataError, nearest, some
from oodles.files import ABSENT, Rows


def texts_of(
    rows: Rows, column: str, place: str, keep: Sequence[int] | None = None, *, gaps: bool = False
) -> list[str]:
    """The cells of a column as texts; gaps, if there may be any, as no text."""
    texts = []
    for number, value in _values(rows, column, place, keep):
        if isinstance(value, str):
            texts.append(value)
        elif gaps and (value is ABSENT or value is None or value != value):
            texts.append("")
        elif value is ABSENT:
            raise DataError(f"{place} row {number + 1}: no '{column}' there; fill it or remove the row")
        elif value is None or value != value:
            raise DataError(f"{place} row {number + 1}: column '{column}' holds nothing; fill it or remove the row")
        elif isinstance(value, (dict, list, bytes)):
            kind = {dict: "a table", list: "a list", bytes: "bytes"}[type(value)]
            raise DataError(f"{place} row {number + 1}: column '{column}' holds {kind}, expected text; e.g. {column}.0")
        else:
            texts.append(str(value))
    return texts


def lists_of(rows: Rows, column: str, place: str, keep: Sequence[int] | None = None) -> list[list[str]]:
    """The cells of a column as lists of texts."""
    lists = []
    for number, value in _values(rows, column, place, keep):
        if not isinstance(value, list) or not all(isinstance(entry, (str, int, float)) for entry in value):
            found = "nothing" if value is ABSENT or value is None else f"'{value}'"[:60]
            raise DataError(f"{place} row {number + 1}: column '{column}' holds {found}, expected a list of texts")
        lists.append([str(entry) for entry in value])
    return lists


def _values(rows: Rows, column: str, place: str, keep: Sequence[int] | None) -> list[tuple[int, Any]]:
    """The cells of the kept rows, with their numbers."""
    name, *inside = [column] if column in rows.columns else column.split(".")
    if name not in rows.columns:
        own = (*rows.columns, *rows.unread)
        hint = nearest(column, own)
        listed = f" columns: {some(own)}" if hint.startswith("did you mean") else ""
        raise DataError(f"{place}: no column '{column}'; {hint}{listed}")
    cells = rows.columns[name]
    numbers = range(rows.size) if keep is None else keep
    return [(number, _inside(cells[number], inside) if inside else cells[number]) for number in numbers]


def _inside(value: Any, steps: Sequence[str]) -> Any:
    """Return the value at the end of a path such as text.0."""
    for step in steps:
        try:
            value = value[int(step)] if isinstance(value, list) else value[step]
        except (LookupError, TypeError, ValueError):
            return ABSENT
    return value
