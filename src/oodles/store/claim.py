"""study.json: the study that a folder belongs to, and the runs it plans."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from oodles.disk import write_json
from oodles.errors import StoreError
from oodles.store.folder import STORE_SCHEMA, STUDY_FILE, RunFolder, StudyFolder
from oodles.store.members import all_members, key_of
from oodles.store.scores import read_scores
from oodles.store.sidecars import read_json, sidecar
from oodles.store.spec import StoredSpec, glance_at_spec
from oodles.suite.slices import is_slice


def claim_folder(study: StudyFolder, name: str, suite: str, ids: Sequence[str] = (), *, suite_file: str = "") -> None:
    """Claim a folder for this study, or refuse it if it holds another; a damaged study.json is rewritten.

    The path of a custom suite's TOML is stored relative to the folder, so that both can be moved together.
    """
    check_folder(study, name, suite, ids)
    if sidecar(study.file) is None:
        remembered = _remembered(study)
        if suite_file:
            remembered["suite_file"] = os.path.relpath(Path(suite_file).resolve(), study.path.resolve())
        write_json(study.file, {"schema": STORE_SCHEMA, "study": name, "suite": suite, **remembered})


def check_folder(study: StudyFolder, name: str, suite: str, ids: Sequence[str] = ()) -> None:
    """Refuse a folder that holds another study or anything else, without changing it.

    If `study.json` is lost or damaged, the runs identify the folder: the runs of the study have one of its `ids`.
    """
    strange = study.is_strange
    record = sidecar(study.file) if study.path.is_dir() else None  # read last, because another run may be starting
    if record is None:
        if strange and not _known_by_runs(study, suite, ids):
            raise StoreError(f"{study}: {_stranger(study)}; choose another --out")
        return
    if (record.get("study"), record.get("suite")) != (name, suite):
        other = f"study '{record.get('study')}' on suite '{record.get('suite')}'"
        raise StoreError(f"{study}: holds {other}, not '{name}' on '{suite}'; choose another --out")


def _stranger(study: StudyFolder) -> str:
    """Describe what stands in the place of a study's folder."""
    if not study.path.is_dir():
        return "exists and is not a folder"
    if study.is_study:
        return f"holds a damaged {STUDY_FILE} and no run of this study"
    return "holds files that are not an oodles study"


def unclaim_folder(folder: RunFolder) -> None:
    """Release the claim on a folder if only the holder of this run has started anything in it."""
    study = folder.study
    if any(study.runs.glob("*")) or any(path != folder.lock for path in study.run_locks):
        return
    for path in (study.runs, study.sets):
        shutil.rmtree(path, ignore_errors=True)
    study.file.unlink(missing_ok=True)


def suite_of(study: StudyFolder) -> str:
    """Return the suite that a folder's runs are evaluated on."""
    return str(read_json(study.file).get("suite"))


def suite_file_of(study: StudyFolder) -> str:
    """Return the TOML of a custom suite, relative to the folder; empty for a built-in suite and in older folders."""
    return str(read_json(study.file).get("suite_file", ""))


def slices_of(study: StudyFolder) -> tuple[str, ...]:
    """Return the slices that the study evaluates."""
    return tuple(read_json(study.file).get("slices", ())) if study.is_study else ()


def planned_runs(study: StudyFolder) -> list[str]:
    """Return the runs that the study plans."""
    return list(read_json(study.file).get("runs", []))


def plan_runs(study: StudyFolder, names: Sequence[str]) -> None:
    """Record the planned runs of the study, so that `status` can list missing ones."""
    record = read_json(study.file)
    runs = list(dict.fromkeys([*record.get("runs", []), *names]))
    if runs != record.get("runs"):
        write_json(study.file, {**record, "runs": runs})


def _known_by_runs(study: StudyFolder, suite: str, ids: Sequence[str]) -> bool:
    """Whether a folder without a readable `study.json` holds this study: its runs match, or it has none yet."""
    specs = _specs(study).values()
    if not specs:
        return study.is_study and not any(read_scores(study.run(name)) for name in study.run_names)
    if ids:
        return any(spec.run_id in ids for spec in specs)
    return all(spec.run_id is None and spec.suite == suite for spec in specs)


def _remembered(study: StudyFolder) -> dict[str, Any]:
    """Rebuild the content of `study.json` from the runs and sets of a folder."""
    specs = _specs(study)
    test_sets = [name for spec in specs.values() for name in spec.test_sets]
    kept = {key_of(members): members for members in all_members(study) if members.key}
    remembered = {
        "runs": list(specs),
        "sets": {key: members.identity for key, members in kept.items()},
        "members": {key: members.content for key, members in kept.items()},
        "slices": list(dict.fromkeys(filter(is_slice, test_sets))),
    }
    return {key: value for key, value in remembered.items() if value}


def _specs(study: StudyFolder) -> dict[str, StoredSpec]:
    """Return the readable specs by run."""
    specs = {name: glance_at_spec(study.run(name)) for name in study.run_names}
    return {name: spec for name, spec in specs.items() if spec is not None}
