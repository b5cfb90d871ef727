"""Results that ship with oodles: `oodles findings` lists them, `oodles analyse bert-hans` analyses one.

Most are tables that others have published; a study of this project ships packed, with its per-example outcomes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import pandas as pd

from oodles.store.archive import SUFFIX, opened
from oodles.store.table import read_runs
from oodles.toml import build, check_schema, read_toml

SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    """How a finding is analysed unless a user says otherwise."""

    by: tuple[str, ...] | None = None
    within: tuple[str, ...] | None = None
    unit: str | None = None
    shared_start: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A published table, what it can be asked, and where it comes from."""

    title: str
    question: str
    rows: str
    source: str
    commit: str
    file: str
    licence: str
    citation: str
    name: str = ""
    test_sets: tuple[str, ...] = ()
    first_step: int = 0
    remarks: tuple[str, ...] = ()
    option_remarks: Mapping[str, str] = field(default_factory=dict)  # by the option of its own that each is about
    options: _Options = field(default_factory=_Options)

    @property
    def packed(self) -> Path | None:
        """The packed study, if it is one."""
        path = _folder() / f"{self.name}{SUFFIX}"
        return path if path.is_file() else None

    def table(self) -> pd.DataFrame:
        """The long table."""
        if self.packed:
            with opened(self.packed) as study:
                return read_runs(study)
        table = pd.read_parquet(_folder() / f"{self.name}.parquet")
        return table[table["step"] >= self.first_step].reset_index(drop=True)

    def further_sets(self) -> list[str]:
        """The OOD test sets that its own analysis leaves out."""
        if not self.test_sets:
            return []
        table = self.table()
        return sorted({*table.loc[table["role"] == "ood", "test_set"]} - {*self.test_sets})

    def given(self, chosen: Mapping[str, Any]) -> dict[str, Any]:
        """The options of its analysis: what a user chose, else its own."""
        return {name: value for name, value in {**asdict(self.options), **chosen}.items() if value is not None}

    def remarks_on(self, options: Mapping[str, Any]) -> tuple[str, ...]:
        """What to know of an analysis with these options: of its own options only what holds with them."""
        own = asdict(self.options)
        kept = [remark for name, remark in self.option_remarks.items() if options.get(name) == own[name]]
        return (*kept, *self.remarks)

    @property
    def provenance(self) -> str:
        """Where the figures come from, in one line."""
        if self.packed:
            return f"this project's own study: {self.file}, licence {self.licence}"
        return f"published scores: {self.citation} {self.source} at {self.commit}, {self.file}; licence {self.licence}"


@cache
def findings() -> Mapping[str, Finding]:
    """Every finding by its name."""
    path = _folder() / "findings.toml"
    raw = read_toml(path)
    check_schema(raw, SCHEMA, path.name)
    return {
        name: build(Finding, {**table, "name": name}, f"{path.name} [{name}]")
        for name, table in raw.items()
        if name != "schema"
    }


def _folder() -> Path:
    return Path(str(resources.files("oodles.api") / "published"))
