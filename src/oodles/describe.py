"""Suites, studies and folders in plain data, for the command line and the report."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from oodles.grid import Grid, schedule_of
from oodles.patterns import render
from oodles.records import DataSet, Suite, role_of
from oodles.sources import load_examples
from oodles.store import RunFolder, read_json, read_scores, run_folders
from oodles.suite import select_test_sets


def describe_suite(suite: Suite, *, baseline: bool = False) -> list[dict[str, Any]]:
    """One mapping per train and test set."""
    sets = [("train", s) for s in suite.train_sets.values()] + [("test", s) for s in suite.test_sets.values()]
    return [_describe_set(suite, kind, data, baseline) for kind, data in sets]


def _describe_set(suite: Suite, kind: str, data: DataSet, baseline: bool) -> dict[str, Any]:
    examples = load_examples(suite, data)
    counts = Counter(e.label for e in examples)
    facts = {
        "set": data.name,
        "kind": kind,
        "examples": len(examples),
        "labels": ", ".join(f"{label} {count}" for label, count in sorted(counts.items())),
        "dropped": ", ".join(data.drop) or "none",
        "description": data.description,
        "tags": list(data.tags),
        "licence": data.licence,
    }
    if baseline:
        from oodles.baseline import hypothesis_baseline  # loads scipy

        rows = [{**e.fields, "label": e.label} for e in examples]
        facts["baseline"] = hypothesis_baseline(rows)
    return facts


def describe_grid(grid: Grid) -> dict[str, Any]:
    """What a study would run, with two rendered prompts per test set."""
    first = grid.jobs[0].spec
    sets = []
    for data in select_test_sets(grid.suite, first.evaluation.test_sets):
        examples = load_examples(grid.suite, data)
        role = role_of(data.name, first.train_set)
        limit = first.evaluation.limit_in_domain if role == "in_domain" else first.evaluation.limit
        prompts = render(first.pattern, examples, data.name, limit)
        gold = Counter(prompts.answers[p.gold] for p in prompts.prompts)
        sets.append(
            {
                "test_set": data.name,
                "role": role,
                "n": len(prompts),
                "of": len(examples),
                "gold": {a: gold[a] / len(prompts) for a in prompts.answers},
                "hash": prompts.hash,
                "prompts": [{"text": p.text, "answer": prompts.answers[p.gold]} for p in prompts.prompts[:2]],
            }
        )
    runs = [{"run": j.spec.name, "run_id": j.spec.run_id, "steps": schedule_of(j.spec)} for j in grid.jobs]
    return {
        "study": grid.study.name,
        "suite": grid.suite.name,
        "runs": runs,
        "caveats": list(grid.caveats),
        "sets": sets,
    }


def describe_status(root: Path, grid: Grid | None = None) -> list[dict[str, Any]]:
    """Status of each run of a folder, or of each run a study asks for."""
    if grid is None:
        names = [f.name for f in run_folders(root)]
        planned = [n for n in read_json(root / "study.json").get("runs", []) if n not in names]
        return [_describe_folder(RunFolder(root / "runs" / name)) for name in [*names, *planned]]
    folders = [RunFolder(root / "runs" / j.spec.name) for j in grid.jobs]
    return [_describe_folder(folder) for folder in folders]


def _describe_folder(folder: RunFolder) -> dict[str, Any]:
    scores = read_scores(folder)
    failed = folder.status == "failed"
    return {
        "run": folder.name,
        "status": folder.status,
        "step": max((line["step"] for line in scores), default=""),
        "scores": len(scores),
        "reason": read_json(folder.failed)["reason"] if failed else "",
    }


def describe_runs(root: Path) -> list[dict[str, Any]]:
    """What was run, for the report."""
    return [_describe_run(folder) for folder in run_folders(root)]


def _describe_run(folder: RunFolder) -> dict[str, Any]:
    spec, env = read_json(folder.spec), read_json(folder.env)
    evaluation = spec.get("evaluation", {})
    sampled = evaluation.get("limit_in_domain")
    unfinished = [] if folder.status == "done" else [f"run {folder.name} is not finished ({folder.status})"]
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
        "pattern": spec["pattern"]["text"],
        "answers": list(spec["pattern"]["answers"]),
        "recipe": {**spec.get("recipe", {}), **{f"lora {k}": v for k, v in spec.get("lora", {}).items()}},
        "evaluation": evaluation,
        "steps": sorted({line["step"] for line in read_scores(folder)}),
        "status": folder.status,
        "draw_hash": spec.get("draw_hash"),
        "versions": {"oodles": env["oodles"], "python": env["python"], **env.get("packages", {})},
        "device": env.get("device"),
        "threads": env.get("threads"),
        "caveats": [*unfinished, *caveats],
    }
