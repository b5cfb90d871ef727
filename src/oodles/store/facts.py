"""What is known of the runs in a study's folder: their status, their pace, and what was run."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oodles.errors import SchedulerError, StoreError
from oodles.scheduler import queue
from oodles.store.claim import planned_runs
from oodles.store.folder import AUDIT_FILE, RunFolder, StudyFolder, run_folders, study_folder
from oodles.store.ledger import JobOfRun, end_of_log, jobs_of, read_ledger
from oodles.store.locks import is_held, read_lock
from oodles.store.scores import Score, read_scores
from oodles.store.sidecars import sidecar
from oodles.store.spec import read_spec

TIES = 0.01  # share of tied decisions that is worth saying


def describe_status(root: Path, names: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Status of each run of a folder, or of the runs a study asks for; SLURM is asked where it was given runs."""
    rows = _describe_folders(root, names)
    study = StudyFolder(root)
    arrays = read_ledger(study)
    if not arrays or all(row["status"] == "done" for row in rows):
        return rows
    try:
        queued, silent = queue(), ""
    except SchedulerError as error:
        queued, silent = {}, str(error)
    jobs = jobs_of(arrays, queued)
    return [_with_job(row, jobs.get(row["run"]), study, silent) for row in rows]


def _with_job(row: dict[str, Any], job: JobOfRun | None, study: StudyFolder, silent: str) -> dict[str, Any]:
    """A run's row, with what SLURM says of its job; `silent` is why it says nothing."""
    row = {**row, "job": "" if job is None else job.id, "node": ""}
    status = row["status"]
    if job is None or status in ("done", "damaged"):
        return row
    queued = job.queued
    if queued is not None and not queued.waits:
        row["node"] = queued.node
        if status != "running":
            row |= {"status": "running" if job.alone else "queued", "reason": f"job {job.id} has not begun it yet"}
        return row
    if queued is not None and status != "running":
        waits = f"waits ({queued.reason})" if queued.reason not in ("", "None") else "waits"
        return row | {"status": "requeued" if queued.restarts else "queued", "reason": waits}
    if status in ("running", "failed"):
        return row
    if silent:
        return row | {"reason": f"SLURM does not say what became of job {job.id}: {silent}"}
    end = end_of_log(study, job.id) or "it left no log"
    return row | {"status": "failed", "reason": f"job {job.id} has ended; its last line: {end}"}


def _describe_folders(root: Path, names: Sequence[str] | None) -> list[dict[str, Any]]:
    study = StudyFolder(root)
    at_work = {path.stem: str(read_lock(path)) for path in study.run_locks if is_held(path)}
    if names is None:
        held = dict.fromkeys(study_folder(root).run_names)
        names = [*held, *(name for name in planned_runs(study) if name not in held)]
    return [_describe_folder(study.run(name), at_work.get(name, "")) for name in names]


def _describe_folder(folder: RunFolder, holder: str) -> dict[str, Any]:
    status: str = folder.status
    count = 0
    step: int | None = None
    try:
        steps = STEP.findall(folder.scores.read_bytes())  # a glance: reading tells what is damaged
        count, step = len(steps), max(map(int, steps), default=None)
    except OSError:
        pass  # none yet
    reason = holder
    if status == "failed":
        known = sidecar(folder.failed) or {"reason": "failed.json is damaged; oodles run tries it again"}
        reason = known.get("reason", "")
    if not folder.spec.is_file() and folder.has_results and not holder:
        status, reason = "damaged", "has scores, but no spec.json; restore it, or remove the run's folder"
    return {
        "run": folder.name,
        "status": "running" if holder else status,
        "step": step,
        "scores": count,
        "reason": reason,
    }


STEP = re.compile(rb'^{"step": (\d+)', flags=re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How far a study is, and how long the rest takes at the pace of the runs that are done."""

    counts: Mapping[str, int]
    seconds_per_run: float | None = None
    seconds_left: float | None = None


def pace_of(root: Path, rows: Sequence[Mapping[str, Any]]) -> Pace:
    """An estimate: the mean time of the newest done runs, for what is left, over those at work."""
    counts = Counter(str(row["status"]) for row in rows)
    took = [
        (sidecar(StudyFolder(root).run(row["run"]).done) or {}).get("seconds")
        for row in rows
        if row["status"] == "done"
    ][-50:]
    known = [t for t in took if t]
    left = sum(counts[s] for s in ("running", "started", "missing", "queued", "requeued"))
    each = sum(known) / len(known) if known else None
    return Pace(
        counts=dict(counts),
        seconds_per_run=each,
        seconds_left=None if each is None else each * left / max(1, counts["running"]),
    )


def describe_runs(root: Path) -> list[dict[str, Any]]:
    """What was run, for the report."""
    told = []
    for folder in run_folders(root):
        with suppress(StoreError):  # what cannot be read is not in the table either, and is told there
            told.append(_describe_run(folder))
    return told


def _describe_run(folder: RunFolder) -> dict[str, Any]:
    spec, env = read_spec(folder), sidecar(folder.env) or {}
    evaluation = spec.evaluation or {}
    sampled = evaluation.get("limit_in_domain")
    unknown = [] if env else [f"run {folder.name}: env.json is missing or damaged, so its versions are not known"]
    unfinished = [] if folder.status == "done" else [f"run {folder.name} is not finished ({folder.status})"]
    scores = read_scores(folder)
    shortened = {score.test_set: score for score in scores if score.shortened}
    cut = [f"{name}: {x.shortened} of {x.n} prompts were shortened to fit" for name, x in shortened.items()]
    caveats = (
        [f"the in-domain set is a sample of {sampled}: noise in it biases partial correlations upward"]
        if sampled
        else []
    )
    return {
        "name": folder.name,
        "run_id": spec.run_id,
        "model": spec.model.label,
        "train_set": spec.train_set,
        "shots": spec.shots,
        "seed": spec.seed,
        "pattern": spec.pattern.text,
        "answers": list(spec.pattern.answers),
        "recipe": {**(spec.recipe or {}), **{f"lora {k}": v for k, v in (spec.lora or {}).items()}},
        "evaluation": evaluation,
        "steps": sorted({score.step for score in scores}),
        "status": folder.status,
        "draw_hash": spec.draw_hash,
        "versions": {"oodles": env.get("oodles"), "python": env.get("python"), **env.get("packages", {})},
        "device": env.get("device"),
        "threads": env.get("threads"),
        "caveats": [*unfinished, *unknown, *caveats, *cut, *_tied(scores), *_allowed(folder.study)],
    }


def _tied(scores: Sequence[Score]) -> list[str]:
    """Test sets with decisions that only the order of the answers made, if they are notable at some step."""
    most: dict[str, tuple[int, Score]] = {}
    for score in scores:
        ties, held = score.ties, most.get(score.test_set)
        if ties and (held is None or ties / score.n > held[0] / held[1].n):
            most[score.test_set] = ties, score
    return [
        f"{name}: {ties} of {score.n} decisions at step {score.step} are ties, which go to the first answer"
        for name, (ties, score) in most.items()
        if ties >= TIES * score.n
    ]


def _allowed(study: StudyFolder) -> list[str]:
    """Audit errors that were found and waved through."""
    if not study.audit.is_file():
        return []
    held = sidecar(study.audit)
    if held is None:
        return [f"{AUDIT_FILE} is damaged: which audit errors were allowed is not known; run the study again"]
    found = [f for f in held.get("findings", []) if f["severity"] == "error" and f["code"] in held.get("allowed", [])]
    return [f"audit error allowed: {f['where']}: {f['text']} [{f['code']}]" for f in found]
