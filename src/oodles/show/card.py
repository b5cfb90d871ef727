"""The data behind a result: what was scored, what an audit read, and what it found.

>>> from oodles.show.card import sets_sheet
>>> sheet = sets_sheet(table, "accuracy")  # doctest: +SKIP
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from oodles.show.tables import Cell, Column, Sheet, name_cell, number_cell
from oodles.stats.longtable import chance_level

ROLES = {"in_domain": "in-domain", "ood": "OOD", "other": "not correlated"}


def sets_sheet(table: pd.DataFrame, metric: str) -> Sheet:
    """The data: a row per set, with its role, examples, score of guessing, and how many runs and steps scored it."""
    rows = table[table["metric"] == metric]
    columns = [Column(title=title, number=False) for title in ("test set", "role")]
    columns += [Column(title=title) for title in ("examples", "chance", "runs", "steps")]
    lines = []
    for (name, role), own in rows.groupby(["test_set", "role"], sort=False, observed=True):
        size = own["n"].median() if "n" in own else math.nan
        chance = _score(chance_level(table, str(name), metric))
        counts = [number_cell(own[column].nunique()) for column in ("run", "step")]
        examples = number_cell(size if pd.notna(size) else None)
        lines.append((name_cell(name), name_cell(ROLES.get(str(role), str(role))), examples, chance, *counts))
    return Sheet(columns=tuple(columns), rows=tuple(lines), notes=())


def _score(value: float | None) -> Cell:
    known = value is not None and math.isfinite(value)
    return Cell(text=f"{value:.3f}" if known else "–", order=float(value) if known and value is not None else math.nan)


@dataclass(frozen=True, slots=True, kw_only=True)
class Audited:
    """What an audit read, and what it found: errors and warnings, then notes."""

    sheet: Sheet
    findings: tuple[str, ...]
    notes: tuple[str, ...]


def audited(audit: Mapping[str, Any]) -> Audited | None:
    """An audit as the report shows it; None where there is none."""
    if not audit:
        return None
    found = [(f["severity"], f"{f['where']}: {f['text']} [{f['code']}]") for f in audit["findings"]]
    return Audited(
        sheet=_audit_sheet(audit["sets"]),
        findings=tuple(f"{severity}: {text}" for severity, text in found if severity != "note"),
        notes=tuple(text for severity, text in found if severity == "note"),
    )


def _audit_sheet(sets: list[Mapping[str, Any]]) -> Sheet:
    texts = ("set", "used as", "right answers", "left out", "source", "revision", "hash")
    order = ("set", "used as", "examples", "right answers", "left out", "chance", "source", "revision", "hash")
    rows = []
    for one in sets:
        named = {
            "set": one["set"],
            "used as": one["kind"],
            "right answers": _counts(one.get("labels")),
            "left out": _counts(one.get("dropped")),
            "source": one.get("origin"),
            "revision": one.get("revision"),
            "hash": one.get("hash"),
        }
        cells = {title: name_cell(text or "–") for title, text in named.items()}
        cells |= {"examples": number_cell(one.get("n")), "chance": _score(one.get("chance"))}
        rows.append(tuple(cells[title] for title in order))
    columns = tuple(Column(title=title, number=title not in texts) for title in order)
    return Sheet(columns=columns, rows=tuple(rows), notes=())


def _counts(counts: Mapping[str, int] | None) -> str:
    return ", ".join(f"{name} {number}" for name, number in (counts or {}).items() if number)
