"""sets/*.parquet: the members of each rendered test set, stored once per study. Slices are derived from them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from oodles.contracts import SHOTS
from oodles.disk import write_json
from oodles.errors import StoreError, first_line, some
from oodles.files import read_frame
from oodles.store.folder import StudyFolder
from oodles.store.parquet import ABOUT, write_parquet
from oodles.store.sidecars import read_json, sidecar
from oodles.suite.slices import Members, is_slice
from oodles.trouble import disk_errors

if TYPE_CHECKING:
    import pandas as pd

ANEW = "run the study again to rewrite it"


def keep_members(study: StudyFolder, members: Sequence[Members], test_sets: Sequence[str] = ()) -> None:
    """Store the members of each rendered set, once per study, and which sets the study evaluates.

    Scores of different data or prompts must not share a name: a set that renders differently at the same limit is
    refused. Slices are derived from the stored members.
    """
    check_members(study, members)
    record = read_json(study.file)
    identities = dict(record.get("sets", {}))
    for rendered in members:
        if rendered.test_set == SHOTS:
            continue
        identities[key_of(rendered)] = rendered.identity
        _write_members(study.members(rendered.test_set, rendered.prompts), rendered)
    slices = list(dict.fromkeys([*record.get("slices", []), *filter(is_slice, test_sets)]))
    if identities != record.get("sets", {}) or slices != record.get("slices", []):
        write_json(study.file, {**record, "sets": identities, "slices": slices})


def check_members(study: StudyFolder, members: Sequence[Members]) -> None:
    """Refuse sets that differ from those of the folder's earlier runs, without changing anything."""
    identities = (sidecar(study.file) or {}).get("sets", {})
    for rendered in members:
        was = identities.get(key_of(rendered), rendered.identity)
        if was != rendered.identity and rendered.test_set != SHOTS:
            raise StoreError(
                f"{study}: test set '{rendered.test_set}' differs from earlier runs ({was}, now {rendered.identity}):"
                " its data, labels or slices changed; choose another --out, or restore the earlier data"
            )


def mend_members(study: StudyFolder, members: Sequence[Members]) -> None:
    """Rewrite damaged or missing members of the sets that the folder's runs were evaluated on."""
    identities = read_json(study.file).get("sets", {})
    for rendered in members:
        path = study.members(rendered.test_set, rendered.prompts)
        if identities.get(key_of(rendered)) != rendered.identity:
            continue
        stored = _read_kept(path)
        if stored is None or (stored.ids, stored.gold, stored.choices, stored.identity) != (
            rendered.ids,
            rendered.gold,
            rendered.choices,
            rendered.identity,
        ):
            with disk_errors(path):
                path.unlink(missing_ok=True)
            _write_members(path, rendered)


def key_of(members: Members) -> str:
    """Return the key of a rendered set in study.json."""
    return f"{members.test_set} {members.key}"


def all_members(study: StudyFolder) -> list[Members]:
    """Read all stored sets that are readable."""
    return [members for path in sorted(study.sets.glob("*.parquet")) if (members := _read_kept(path)) is not None]


def read_members(study: StudyFolder, test_set: str, prompts: str) -> Members:
    """Read the members of a rendered set."""
    path = study.members(test_set, prompts)
    try:
        frame = read_frame(path, page_checksum_verification=True, columns=None)
    except (OSError, ValueError) as error:
        raise StoreError(f"{path}: cannot be read ({first_line(error)}); its slices cannot be read; {ANEW}") from None
    if problem := _misfit(frame):
        raise StoreError(f"{path}: {problem}; {ANEW}")
    columns = [c for c in frame.columns if c.startswith("slice:")]
    return Members(
        test_set=test_set,
        prompts=prompts,
        ids=tuple(frame["example"]),
        gold=tuple(map(int, frame["gold"])),
        items=tuple(map(int, frame["item"])) if "item" in frame.columns else (),
        columns={c.removeprefix("slice:"): tuple(map(str, frame[c])) for c in columns},
        choices=tuple(map(int, frame["choices"])) if "choices" in frame.columns else (),
    )


def _misfit(frame: pd.DataFrame) -> str:
    if not {"example", "gold"} <= set(frame.columns):
        return f"columns {some(frame.columns)}, expected example and gold"
    return "" if frame["gold"].dtype.kind in "iu" else f"column gold holds {frame['gold'].dtype}, expected numbers"


def _write_members(path: Path, members: Members) -> None:
    if path.is_file():
        return
    import pyarrow as pa

    columns: dict[str, Any] = {"example": list(members.ids), "gold": np.array(members.gold, dtype=np.int16)}
    if members.items:
        columns["item"] = np.array(members.items, dtype=np.int32)
    if members.choices:
        columns["choices"] = np.array(members.choices, dtype=np.int16)
    columns |= {f"slice:{name}": pa.array(cells).dictionary_encode() for name, cells in members.columns.items()}
    write_parquet(path, columns, {"test_set": members.test_set, "prompts": members.prompts, "key": members.key})


def _read_kept(path: Path) -> Members | None:
    """Read the members from a file; None if it is missing or damaged."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path, page_checksum_verification=True)
        about = json.loads((table.schema.metadata or {}).get(ABOUT, b"{}"))
        cells = {name: tuple(table.column(name).to_pylist()) for name in table.column_names}
        return Members(
            test_set=about.get("test_set", ""),
            prompts=about.get("prompts", ""),
            key=about.get("key", ""),
            ids=cells["example"],
            gold=cells["gold"],
            columns={n.removeprefix("slice:"): c for n, c in cells.items() if n.startswith("slice:")},
            choices=cells.get("choices", ()),
        )
    except (OSError, ValueError, KeyError, AttributeError, pa.ArrowException):
        return None
