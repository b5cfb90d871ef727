"""Facts about the runs in a study's folder: status, pace, and settings."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oodles.errors import SchedulerError, StoreError, some
from oodles.scheduler import queue
from oodles.store.claim import planned_runs
from oodles.store.folder import AUDIT_FILE, RunFolder, StudyFolder, run_folders, study_folder
from oodles.store.ledger import JobOfRun, end_of_log, jobs_of, read_ledger
from oodles.store.locks import is_held, read_lock
from oodles.store.scores import Score, read_scores
from oodles.store.sidecars import sidecar
from oodles.store.spec import glance_at_spec, read_spec

TIES = 0.01  # share of tied decisions from which ties are reported


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
    if queued is not None and (there := _other_run(study.run(row["run"]), job)):
        return row | {
            "status": status if status == "running" else "queued",
            "reason": f"job {job.id} was submitted with another model, data or recipe (run {job.run_id}) than the run"
            f" that is there ({there}); cancel it: oodles cancel {study} --only {row['run']}",
        }
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


def _other_run(folder: RunFolder, job: JobOfRun) -> str:
    """The id of the run that is in a folder, if it is not the one that the job was submitted for."""
    spec = glance_at_spec(folder) if job.run_id and folder.spec.is_file() else None
    there = (spec.run_id if spec is not None else None) or job.run_id
    return there if there != job.run_id else ""


def _describe_folders(root: Path, names: Sequence[str] | None) -> list[dict[str, Any]]:
    study = StudyFolder(root)
    at_work = {path.stem: str(read_lock(path)) for path in study.run_locks if is_held(path)}
    if names is None:
        existing = dict.fromkeys(study_folder(root).run_names)
        names = [*existing, *(name for name in planned_runs(study) if name not in existing)]
    return [_describe_folder(study.run(name), at_work.get(name, "")) for name in names]


def _describe_folder(folder: RunFolder, holder: str) -> dict[str, Any]:
    status: str = folder.status
    count = 0
    step: int | None = None
    try:
        steps = STEP.findall(folder.scores.read_bytes())  # a quick look; damage is reported when the scores are read
        count, step = len(steps), max(map(int, steps), default=None)
    except OSError:
        pass  # no scores yet
    reason = holder
    if status == "failed":
        failure = sidecar(folder.failed) or {"reason": "failed.json is damaged; oodles run tries it again"}
        reason = failure.get("reason", "")
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
    """The progress of a study, and the time left at the pace of its finished runs."""

    counts: Mapping[str, int]
    seconds_per_run: float | None = None
    seconds_left: float | None = None


def pace_of(root: Path, rows: Sequence[Mapping[str, Any]]) -> Pace:
    """Estimate the time left: the mean time of the newest finished runs, for the rest, shared by the active runs."""
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


def unmade_runs(root: Path) -> list[str]:
    """Return one line about the planned runs that have no folder: not made yet, or lost; none if all are there."""
    study = StudyFolder(root)
    planned = planned_runs(study)
    gone = [name for name in planned if not (study.run(name).spec.is_file() or study.run(name).has_results)]
    if not gone:
        return []
    have = "has" if len(gone) == 1 else "have"
    return [f"{len(gone)} of {len(planned)} planned runs {have} no scores (not made yet, or gone): {some(gone, 4)}"]


def describe_runs(root: Path) -> list[dict[str, Any]]:
    """Describe the runs for the report."""
    descriptions = []
    for folder in run_folders(root):
        with suppress(StoreError):  # unreadable runs are not in the table either, and are reported there
            descriptions.append(_describe_run(folder))
    return descriptions


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
        "seconds": (sidecar(folder.done) or {}).get("seconds") if folder.status == "done" else None,
        "draw_hash": spec.draw_hash,
        "versions": {"oodles": env.get("oodles"), "python": env.get("python"), **env.get("packages", {})},
        "device": env.get("device"),
        "threads": env.get("threads"),
        "caveats": [*unfinished, *unknown, *caveats, *cut, *_tied(scores), *_allowed(folder.study)],
    }


def _tied(scores: Sequence[Score]) -> list[str]:
    """Return the test sets with a notable share of ties, which are decided by the order of the answers."""
    most: dict[str, tuple[int, Score]] = {}
    for score in scores:
        ties, worst = score.ties, most.get(score.test_set)
        if ties and (worst is None or ties / score.n > worst[0] / worst[1].n):
            most[score.test_set] = ties, score
    return [
        f"{name}: {ties} of {score.n} decisions at step {score.step} are ties, which go to the first answer"
        for name, (ties, score) in most.items()
        if ties >= TIES * score.n
    ]


def tags_of(root: Path) -> dict[str, str]:
    """Return the kinds of shift of every test set, by commas, as the audit noted them; empty if it did not."""
    study = StudyFolder(root)
    record = (sidecar(study.audit) if study.audit.is_file() else None) or {}
    told = {row["set"]: ", ".join(row.get("tags", ())) for row in record.get("sets", []) if row.get("kind") != "train"}
    return {name: tags for name, tags in told.items() if tags}


def joined_audit(before: Mapping[str, Any] | None, now: Mapping[str, Any]) -> dict[str, Any]:
    """The audit of a study that grows: what earlier ones said of the runs in the folder is kept.

    Examples
    --------
    >>> def audit(name, said):
    ...     findings = [{"where": f"{name} (train), rte", "severity": said, "code": "overlap", "text": "1 example"}]
    ...     return {"sets": [{"set": name, "kind": "train"}, {"set": "rte"}], "findings": findings}
    >>> both = joined_audit(audit("snli", "error"), audit("mnli", "note"))
    >>> [row["set"] for row in both["sets"]], both["counts"]
    (['snli', 'mnli', 'rte'], {'error': 1, 'note': 1, 'warning': 0})
    """
    if not before:
        return dict(now)
    said = [one for one in before.get("findings", ()) if not any(_repeats(one, other) for other in now["findings"])]
    findings = [*said, *now["findings"]]
    rows = {_place(row): row for row in before.get("sets", ())}
    own = {_place(row) for row in now["sets"]}
    return {
        **now,
        "sets": [
            *(row for place, row in rows.items() if place not in own),
            *(_with_rendered(row, rows.get(_place(row))) for row in now["sets"]),
        ],
        "findings": findings,
        "counts": {kind: sum(one["severity"] == kind for one in findings) for kind in ("error", "note", "warning")},
        "allowed": sorted({*before.get("allowed", ()), *now.get("allowed", ())}),
    }


def _repeats(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether a finding says the same of all the places of an earlier one."""
    places, others = (set(one["where"].split("; ")) for one in (before, now))
    return before["code"] == now["code"] and before["text"] == now["text"] and places <= others


def _place(row: Mapping[str, Any]) -> str:
    return f"{row['set']} (train)" if row.get("kind") == "train" else str(row["set"])


def _with_rendered(row: Mapping[str, Any], before: Mapping[str, Any] | None) -> dict[str, Any]:
    """A set with the prompts of earlier patterns and models."""
    kept: dict[str, dict[str, Any]] = {}
    for one in (before or {}, row):
        for pattern, by_model in one.get("rendered", {}).items():
            kept.setdefault(pattern, {}).update(by_model)
    return {**row, "rendered": kept} if kept else dict(row)


def describe_audit(root: Path) -> dict[str, Any]:
    """Describe the audit for the report: its sets and findings without texts of examples; empty if there is none."""
    study = StudyFolder(root)
    record = (sidecar(study.audit) if study.audit.is_file() else None) or {}
    findings = [{key: f[key] for key in ("severity", "code", "where", "text")} for f in record.get("findings", [])]
    sets = []
    for row in record.get("sets", []):
        origin = str(row.get("origin") or "")
        told = {key: row.get(key) for key in ("set", "kind", "n", "labels", "dropped", "chance", "revision", "hash")}
        sets.append({**told, "origin": Path(origin).name if Path(origin).is_absolute() else origin})
    return {"sets": sets, "findings": findings} if record else {}


def _allowed(study: StudyFolder) -> list[str]:
    """Return the audit errors that occurred and were allowed."""
    if not study.audit.is_file():
        return []
    record = sidecar(study.audit)
    if record is None:
        return [f"{AUDIT_FILE} is damaged: which audit errors were allowed is not known; run the study again"]
    errors = [
        f for f in record.get("findings", []) if f["severity"] == "error" and f["code"] in record.get("allowed", [])
    ]
    return [f"audit error allowed: {f['where']}: {f['text']} [{f['code']}]" for f in errors]
