"""slurm/jobs.jsonl: which runs were submitted to SLURM, and as which job.

A line is written before an array is submitted, with the key that the array carries as its comment, and another one when
SLURM has answered. An array whose second line is missing (the command was killed in between) is found in the queue by
its key.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from oodles.disk import sync
from oodles.scheduler import QueuedJob
from oodles.store.folder import StudyFolder
from oodles.trouble import disk_errors

LAST_BYTES = 4096  # of a log, in which its end is looked for


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    """An array of jobs; each makes a share of the runs."""

    key: str
    array: str  # its id; empty: not known
    shares: tuple[tuple[str, ...], ...]
    ids: Mapping[str, str] = field(default_factory=dict)  # of the runs, which say what their recipe was


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOfRun:
    """The job that has a run, or had it; `queued` is what the queue says, None if it has ended."""

    id: str
    alone: bool  # whether the job makes this run only
    queued: QueuedJob | None
    run_id: str = ""  # that it was submitted with; empty: not known


def note_plan(
    study: StudyFolder, key: str, shares: Sequence[Sequence[str]], ids: Mapping[str, str] | None = None
) -> None:
    """What is about to be submitted."""
    _append(study, {"key": key, "shares": [list(share) for share in shares], "ids": dict(ids or {})})


def note_array(study: StudyFolder, key: str, array: str) -> None:
    """It was submitted, as this array."""
    _append(study, {"key": key, "array": array})


def _append(study: StudyFolder, told: Mapping[str, Any]) -> None:
    """Begun on a line of its own, whatever a kill has left there."""
    with disk_errors(study.ledger):
        study.slurm.mkdir(parents=True, exist_ok=True)
        with study.ledger.open("a+b") as handle:
            if handle.seek(0, os.SEEK_END):
                handle.seek(-1, os.SEEK_END)
                torn = handle.read(1) != b"\n"
                handle.write(b"\n" * torn)
            handle.write(json.dumps(told, ensure_ascii=False).encode() + b"\n")
        sync(study.ledger)


def read_ledger(study: StudyFolder) -> list[Submitted]:
    """The arrays, oldest first; a line that cannot be read is left out, for the queue and the runs tell the rest."""
    found: dict[str, Submitted] = {}
    for line in _lines(study):
        try:
            told = json.loads(line)
            key = str(told["key"])
            if "shares" in told:
                shares = tuple(tuple(map(str, share)) for share in told["shares"])
                ids = {str(run): str(run_id) for run, run_id in dict(told.get("ids", {})).items()}
                found[key] = Submitted(key=key, array="", shares=shares, ids=ids)
            elif key in found:
                found[key] = replace(found[key], array=str(told["array"]))
        except (ValueError, TypeError, KeyError):
            continue
    return list(found.values())


def _lines(study: StudyFolder) -> list[bytes]:
    try:
        return study.ledger.read_bytes().splitlines()
    except FileNotFoundError:
        return []


def jobs_of(arrays: Iterable[Submitted], queue: Mapping[str, QueuedJob]) -> dict[str, JobOfRun]:
    """The newest job of every run that was ever submitted; a job in the queue counts more than a newer one's end."""
    found: dict[str, JobOfRun] = {}
    for run, job in all_jobs(arrays, queue):
        if job.queued is not None or run not in found or found[run].queued is None:
            found[run] = job
    return found


def all_jobs(arrays: Iterable[Submitted], queue: Mapping[str, QueuedJob]) -> Iterator[tuple[str, JobOfRun]]:
    """Every job of every run that was ever submitted, oldest first."""
    by_key = {job.comment: job.id.partition("_")[0] for job in queue.values() if job.comment}
    for one in arrays:
        array = one.array or by_key.get(one.key, "")
        for index, share in enumerate(one.shares if array else ()):
            number = f"{array}_{index}"
            queued = queue.get(number)
            if queued is not None and queued.comment != one.key:
                queued = None  # the number was given again
            for run in share:
                run_id = one.ids.get(run, "")
                yield run, JobOfRun(id=number, alone=len(share) == 1, queued=queued, run_id=run_id)


def end_of_log(study: StudyFolder, job: str) -> str:
    """The last line that a job wrote, if it wrote any."""
    try:
        with (study.slurm / f"{job}_0_log.out").open("rb") as handle:
            handle.seek(max(0, handle.seek(0, os.SEEK_END) - LAST_BYTES))
            lines = handle.read().decode(errors="replace").split("\n")
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
