"""Suites, studies and folders in plain data, for the command line and the report."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oodles.contracts import DataSet, ModelSpec, Precision, Suite
from oodles.errors import OodlesError, StoreError
from oodles.model.embedded import EMBEDDED, is_fetched
from oodles.model.load import find_targets, load_config, outline_model, precision_of, resolve_model
from oodles.model.presets import LLAMA, PRESETS, preset_of, training_bytes, weight_bytes
from oodles.model.tokens import context_limit
from oodles.runs.schedule import schedule_of
from oodles.store.folder import RunFolder, read_json, read_scores, read_spec, run_folders, run_names, sidecar
from oodles.store.locks import is_held, read_lock
from oodles.study.grid import Grid
from oodles.suite.load import list_suites, load_suite, pattern_for, pattern_of
from oodles.suite.slices import resolve_slice, slice_columns, slice_names
from oodles.suite.sources import load_examples, load_origin, locate

TIES = 0.01  # share of tied decisions that is worth saying


def describe_suite(suite: Suite, *, baseline: bool = False) -> list[dict[str, Any]]:
    """One mapping per train and test set."""
    sets = [("train", s) for s in suite.train_sets.values()] + [("test", s) for s in suite.test_sets.values()]
    return [_describe_set(suite, kind, data, baseline) for kind, data in sets]


def _describe_set(suite: Suite, kind: str, data: DataSet, baseline: bool) -> dict[str, Any]:
    here = data.source.hub is None or locate(suite, data) is not None
    examples = load_examples(suite, data) if here else ()  # to show a suite is no reason to fetch it
    counts = Counter(e.label for e in examples) or Counter({k: n for k, n in data.expect.items() if k in data.labels})
    gold: Counter[int] = Counter()
    for label, count in counts.items():
        gold[data.labels[label]] += count
    facts = {
        "set": data.name,
        "kind": kind,
        "here": here,
        "examples": counts.total(),
        "labels": ", ".join(f"{label} {count}" for label, count in sorted(counts.items())),
        "dropped": ", ".join(data.drop) or "none",
        "chance": max(gold.values()) / gold.total() if gold else None,
        "description": data.description,
        "tags": list(data.tags),
        "caveats": list(data.caveats),
        "licence": data.licence,
        "citation": data.citation,
        "origin": load_origin(suite, data).origin if here else f"hub {data.source.hub}",
    }
    if baseline and here:
        from oodles.audit.checks import check_hypothesis_only  # loads scipy
        from oodles.suite.patterns import shared_field

        used = pattern_for(suite, data, pattern_of(suite, ""))
        facts["baseline"] = check_hypothesis_only(data, examples, shared_field(used, examples))[0]
    return facts


def describe_slices(suite: Suite) -> list[dict[str, Any]]:
    """Every slice of every test set by one column, with its size."""
    rows = []
    for data in suite.test_sets.values():
        columns = slice_columns(load_examples(suite, data))
        for name, n in slice_names(data.name, columns).items():
            rows.append({"slice": name, "column": next(iter(resolve_slice(name, columns).values)), "n": n})
    return rows


def describe_fetchable() -> list[dict[str, Any]]:
    """Models and suites that `oodles fetch` brings, and whether they are here."""
    rows = [
        {"name": m.label, "kind": "model", "fetched": is_fetched(m.label), "about": m.about} for m in EMBEDDED.values()
    ]
    for suite in map(load_suite, list_suites()):
        sets = [d for d in (*suite.train_sets.values(), *suite.test_sets.values()) if d.source.hub is not None]
        here = sum(locate(suite, data) is not None for data in sets)
        about = f"{suite.description} {here} of {len(sets)} splits are here"
        if sets:
            rows.append({"name": suite.name, "kind": "suite", "fetched": here == len(sets), "about": about})
    return rows


def describe_models() -> list[dict[str, Any]]:
    """The models that go by a label: presets and embedded ones."""
    rows = [
        {"model": p.label, "kind": "preset", "source": p.hub, "revision": p.revision}
        | _size(p.parameters, p.precision, p.targets)
        for p in PRESETS.values()
    ]
    for one in EMBEDDED.values():  # both are Llamas
        held = {"model": one.label, "kind": "embedded", "source": one.label, "revision": one.revision}
        rows.append(held | _size(one.parameters, "fp32", LLAMA))
    return rows


def describe_model(name: str) -> dict[str, Any]:
    """What a name would load, from its config alone: no weights are downloaded."""
    spec = resolve_model(name)
    facts: dict[str, Any] = {"model": spec.label, "kind": "folder" if Path(spec.source).is_dir() else "hub"}
    facts |= {"source": spec.source, "revision": spec.revision}
    listed = preset_of(spec.source)
    label = listed.label if listed else spec.source
    for known in describe_models():
        if known["model"] == label:
            return {**known, **facts, "kind": known["kind"], **_context(spec), "page": listed.source if listed else ""}
    model = outline_model(spec)
    parameters = sum(p.numel() for p in model.parameters())
    size = _size(parameters, precision_of(spec), find_targets(model))
    return {**facts, **size, "context": context_limit(model.config), "page": ""}


def _size(parameters: int, precision: Precision, targets: Sequence[str]) -> dict[str, Any]:
    weights = weight_bytes(parameters, precision)
    sizes = {"weight_bytes": weights, "training_bytes": training_bytes(weights)}
    return {"dtype": precision, "parameters": parameters, **sizes, "targets": list(targets)}


def _context(spec: ModelSpec) -> dict[str, Any]:
    """What is told of a listed model even where its config is out of reach."""
    try:
        return {"context": context_limit(load_config(spec))}
    except OodlesError as error:
        return {"context": None, "note": str(error)}


def describe_grid(grid: Grid) -> dict[str, Any]:
    """What a study would run."""
    runs = [{"run": j.spec.name, "run_id": j.spec.run_id, "steps": schedule_of(j.spec)} for j in grid.jobs]
    return {"study": grid.study.name, "suite": grid.suite.name, "runs": runs, "caveats": list(grid.caveats)}


def describe_status(root: Path, grid: Grid | None = None) -> list[dict[str, Any]]:
    """Status of each run of a folder, or of each run a study asks for."""
    at_work = {path.stem: str(read_lock(path)) for path in (root / "locks").glob("*.json") if is_held(path)}
    if grid is None:
        found = dict.fromkeys(run_names(root))
        names = [*found, *(n for n in read_json(root / "study.json").get("runs", []) if n not in found)]
    else:
        names = [j.spec.name for j in grid.jobs]
    return [_describe_folder(RunFolder(root / "runs" / name), at_work.get(name, "")) for name in names]


def _describe_folder(folder: RunFolder, holder: str) -> dict[str, Any]:
    status: str = folder.status
    count = 0
    step: int | str = ""
    try:
        steps = STEP.findall(folder.scores.read_bytes())  # a glance: reading tells what is damaged
        count, step = len(steps), max(map(int, steps), default="")
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
