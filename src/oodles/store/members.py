"""sets/*.parquet: the members of each rendered test set, stored once per study. Slices are derived from them.

study.json holds the `sets` (identities, which every later run must share) and the hashes of what the files hold
(`members`), which every reader checks. Studies of older versions have no such hashes until they are run again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import index
from pathlib import Path
from typing import Any

import numpy as np

from oodles.contracts import SHOTS
from oodles.disk import write_json
from oodles.errors import StoreError
from oodles.store.folder import StudyFolder
from oodles.store.parquet import ABOUT, write_parquet
from oodles.store.sidecars import read_json, sidecar
from oodles.suite.slices import Members, is_slice
from oodles.trouble import disk_errors

ANEW = "run the study again to rewrite it"


def keep_members(study: StudyFolder, members: Sequence[Members], test_sets: Sequence[str] = ()) -> None:
    """Store the members of each rendered set, once per study, and which sets the study evaluates.

    Scores of different data or prompts must not share a name: a set that renders differently at the same limit is
    refused. Slices are derived from the stored members.
    """
    check_members(study, members)
    record = read_json(study.file)
    identities, contents = dict(record.get("sets", {})), dict(record.get("members", {}))
    for rendered in members:
        if rendered.test_set == SHOTS:
            continue
        identities[key_of(rendered)] = rendered.identity
        contents[key_of(rendered)] = rendered.content
        _write_members(study.members(rendered.test_set, rendered.prompts), rendered)
    slices = list(dict.fromkeys([*record.get("slices", []), *filter(is_slice, test_sets)]))
    changed = {**record, "sets": identities, "members": contents, "slices": slices}
    if changed != {"sets": {}, "members": {}, "slices": [], **record}:
        write_json(study.file, changed)


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
    record = read_json(study.file)
    kept = [rendered for rendered in members if record.get("sets", {}).get(key_of(rendered)) == rendered.identity]
    for rendered in kept:
        path = study.members(rendered.test_set, rendered.prompts)
        stored = _read_kept(path)
        if stored is None or (stored.identity, stored.content) != (rendered.identity, rendered.content):
            with disk_errors(path):
                path.unlink(missing_ok=True)
            _write_members(path, rendered)
    contents = {**record.get("members", {}), **{key_of(rendered): rendered.content for rendered in kept}}
    if contents != record.get("members", {}):
        write_json(study.file, {**record, "members": contents})


def key_of(members: Members) -> str:
    """Return the key of a rendered set in study.json."""
    return f"{members.test_set} {members.key}"


def all_members(study: StudyFolder) -> list[Members]:
    """Read all stored sets that are readable."""
    return [members for path in sorted(study.sets.glob("*.parquet")) if (members := _read_kept(path)) is not None]


def keys_of(record: Mapping[str, Any], test_set: str, prompts: str) -> list[str]:
    """Return the keys of a rendered set in a study.json; none if the study never kept it, e.g. a run's own shots."""
    identities = record.get("sets", {})
    return [key for key in identities if key.startswith(f"{test_set} ") and identities[key].startswith(f"{prompts} ")]


def read_members(study: StudyFolder, test_set: str, prompts: str) -> Members:
    """Read the members of a rendered set; they must be those that study.json records."""
    path = study.members(test_set, prompts)
    record = sidecar(study.file) or {}
    keys = keys_of(record, test_set, prompts)
    if not path.is_file():
        raise StoreError(f"{path}: no such file; {ANEW}")
    members = _read_kept(path)
    if members is None:
        raise StoreError(f"{path}: cannot be read as the members of a test set; {ANEW}")
    if keys and (members.prompts != prompts or key_of(members) not in keys):
        raise StoreError(f"{path}: not the file of test set '{test_set}' that the study wrote; {ANEW}")
    if keys and not _is_recorded(record, members):
        raise StoreError(f"{path}: differs from what {study.file.name} records of test set '{test_set}'; {ANEW}")
    return replace(members, test_set=test_set, prompts=prompts)


def _is_recorded(record: Mapping[str, Any], members: Members) -> bool:
    key = key_of(members)
    return (record["sets"][key], record.get("members", {}).get(key, members.content)) == (
        members.identity,
        members.content,
    )


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
    """Read the members from a file; None if it is missing, damaged or not such a file."""
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
            ids=tuple(map(str, cells["example"])),
            gold=tuple(map(index, cells["gold"])),
            items=tuple(map(index, cells.get("item", ()))),
            columns={n.removeprefix("slice:"): tuple(map(str, c)) for n, c in cells.items() if n.startswith("slice:")},
            choices=tuple(map(index, cells.get("choices", ()))),
        )
    except (OSError, ValueError, KeyError, AttributeError, TypeError, pa.ArrowException):
        return None
