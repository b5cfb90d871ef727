"""What is known of the runs in a study's folder: their status, their pace, and what was run."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oodles.errors import StoreError
from oodles.store.folder import RunFolder, read_json, read_scores, read_spec, run_folders, run_names, sidecar
from oodles.store.locks import is_held, read_lock

TIES = 0.01  # share of tied decisions that is worth saying


def describe_status(root: Path, names: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Status of each run of a folder, or of the runs a study asks for."""
    at_work = {path.stem: str(read_lock(path)) for path in (root / "locks").glob("*.json") if is_held(path)}
    if names is None:
        held = dict.fromkeys(run_names(root))
        names = [*held, *(n for n in read_json(root / "study.json").get("runs", []) if n not in held)]
    return [_describe_folder(RunFolder(root / "runs" / name), at_work.get(name, "")) for name in names]


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
        (sidecar(RunFolder(root / "runs" / row["run"]).done) or {}).get("seconds")
        for row in rows
        if row["status"] == "done"
    ][-50:]
    known = [t for t in took if t]
    left = sum(counts[s] for s in ("running", "started", "missing"))
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
    evaluation = spec.get("evaluation", {})
    sampled = evaluation.get("limit_in_domain")
    unknown = [] if env else [f"run {folder.name}: env.json is missing or damaged, so its versions are not known"]
    unfinished = [] if folder.status == "done" else [f"run {folder.name} is not finished ({folder.status})"]
    scores = read_scores(folder)
    shortened = {line["test_set"]: line for line in scores if line.get("shortened")}
    cut = [f"{name}: {x['shortened']} of {x['n']} prompts were shortened to fit" for name, x in shortened.items()]
    caveats = (
        [f"the in-domain set is a sample of {sampled}: noise in it biases partial correlations upward"]
        if sampled
        else []
    )
    return {
        "name": folder.name,
        "run_id": spec.get("run_id"),
        "model": spec["model"]["label"],
        "train_set": spec["train_set"],
        "shots": spec["shots"],
        "seed": spec["seed"],
        "pattern": spec["pattern"].get("text", ""),
        "answers": list(spec["pattern"].get("answers", [])),
        "recipe": {**spec.get("recipe", {}), **{f"lora {k}": v for k, v in spec.get("lora", {}).items()}},
        "evaluation": evaluation,
        "steps": sorted({line["step"] for line in scores}),
        "status": folder.status,
        "draw_hash": spec.get("draw_hash"),
        "versions": {"oodles": env.get("oodles"), "python": env.get("python"), **env.get("packages", {})},
        "device": env.get("device"),
        "threads": env.get("threads"),
        "caveats": [*unfinished, *unknown, *caveats, *cut, *_tied(scores), *_allowed(folder.root)],
    }


def _tied(scores: Sequence[Mapping[str, Any]]) -> list[str]:
    """Test sets with decisions that only the order of the answers made, if they are notable at some step."""
    most: dict[str, Mapping[str, Any]] = {}
    for line in scores:
        held = most.get(line["test_set"])
        if line.get("ties") and (held is None or line["ties"] / line["n"] > held["ties"] / held["n"]):
            most[line["test_set"]] = line
    return [
        f"{name}: {line['ties']} of {line['n']} decisions at step {line['step']} are ties, which go to the first answer"
        for name, line in most.items()
        if line["ties"] >= TIES * line["n"]
    ]


def _allowed(root: Path) -> list[str]:
    """Audit errors that were found and waved through."""
    if not (root / "audit.json").is_file():
        return []
    held = sidecar(root / "audit.json")
    if held is None:
        return ["audit.json is damaged: which audit errors were allowed is not known; run the study again"]
    found = [f for f in held.get("findings", []) if f["severity"] == "error" and f["code"] in held.get("allowed", [])]
    return [f"audit error allowed: {f['where']}: {f['text']} [{f['code']}]" for f in found]
