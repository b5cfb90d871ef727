"""The records of a study at its real size: time and memory of `oodles analyse` and `oodles report`.

    python -m benchmarks --only stored        some minutes; results.json and the docs

The folder holds the study's grid (8 models x 2 train sets x 9 seeds), the eight test sets at their real sizes and nine
points: 74 million records, written by the code that writes real ones. The scores are made up: skill rises with the
step, an example's luck is partly its own, and answers drift.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from oodles.contracts import (
    Draw,
    Evaluation,
    Lora,
    ModelSpec,
    Pattern,
    Predictions,
    Prompt,
    PromptSet,
    Recipe,
    RunSpec,
    role_of,
)
from oodles.disk import write_json
from oodles.store.claim import claim_folder, plan_runs
from oodles.store.commit import commit
from oodles.store.environment import environment
from oodles.store.folder import StudyFolder
from oodles.store.members import keep_members
from oodles.store.spec import begin_run
from oodles.suite.slices import Members

SETS = {
    "snli": 6605,
    "mnli": 6692,
    "scitail": 2126,
    "rte": 2490,
    "wnli": 635,
    "hans": 30_000,
    "anli": 798,
    "paws": 8000,
}
MODELS, SEEDS, STEPS = 8, 9, 9
PATTERN = Pattern(name="q", text="{premise} {hypothesis}", answers=(" Yes", " No"), truncate="premise")


def write_study(root: Path, models: int = MODELS, seeds: int = SEEDS, steps: int = STEPS, scale: float = 1.0) -> int:
    """A finished study; the number of its records."""
    draw = np.random.default_rng(0)
    sets = {name: _prompts(name, max(4, int(n * scale) // 2 * 2)) for name, n in SETS.items()}
    luck = {name: draw.normal(size=len(prompts)) for name, (prompts, _) in sets.items()}
    claim_folder(StudyFolder(root), "stored", "nli")
    records = 0
    for model in range(models):
        for train_set in ("snli", "mnli"):
            for seed in range(seeds):
                folder = StudyFolder(root).run(f"m{model}_{train_set}_{seed}_64")
                begin_run(folder, _spec(folder.name, model, train_set, seed), _draw(train_set, seed), environment())
                keep_members(folder.study, [members for _, members in sets.values()])
                for step in range(steps):
                    skill, drift = 0.1 * step + 0.1 * draw.normal(), 0.3 * draw.normal()
                    for name, (prompts, _) in sets.items():
                        made = _predictions(prompts, skill, drift, luck[name], draw)
                        commit(folder, step, prompts, made, role_of(name, train_set))
                        records += len(prompts)
                write_json(folder.done, {"seconds": 1})
    plan_runs(StudyFolder(root), StudyFolder(root).run_names)
    return records


def _prompts(name: str, size: int) -> tuple[PromptSet, Members]:
    gold = [i % 2 for i in range(size)]
    ids = [f"{name}-{i:06d}" for i in range(size)]
    prompts = tuple(Prompt(id=identity, text="", gold=right) for identity, right in zip(ids, gold, strict=True))
    rendered = PromptSet(name=name, answers=PATTERN.answers, prompts=prompts)
    per_item = 500 if name == "hans" else 2
    members = Members(
        test_set=name,
        prompts=rendered.hash,
        ids=tuple(ids),
        gold=tuple(gold),
        items=tuple(i // per_item for i in range(size)),
        columns={"label": tuple("ec"[g] for g in gold)},
        key="q, all",
    )
    return rendered, members


def _predictions(prompts: PromptSet, skill: float, drift: float, luck: Any, draw: np.random.Generator) -> Predictions:
    gold = np.array([p.gold for p in prompts.prompts])
    right = skill + np.where(gold == 0, drift, -drift) + 0.7 * luck + 0.7 * draw.normal(size=len(gold))
    scores = np.zeros((len(gold), 2))
    scores[np.arange(len(gold)), gold] = right
    ids = tuple(p.id for p in prompts.prompts)
    return Predictions(test_set=prompts.name, answers=prompts.answers, ids=ids, scores=scores, gold=gold)


def _spec(name: str, model: int, train_set: str, seed: int) -> RunSpec:
    return RunSpec(
        name=name,
        model=ModelSpec(label=f"m{model}", source="made-up"),
        suite="nli",
        train_set=train_set,
        train_hash="made-up",
        draw_hash=_draw(train_set, seed).hash,
        pattern=PATTERN,
        shots=64,
        seed=seed,
        data_seed=seed,
        lora=Lora(),
        recipe=Recipe(precision="fp32"),
        evaluation=Evaluation(),
    )


def _draw(train_set: str, seed: int) -> Draw:
    return Draw(train_set=train_set, shots=64, data_seed=seed, examples=())


def measure(say: Callable[[str], None] = print) -> dict[str, Any]:
    """Seconds and peak memory of the commands, each in a process of its own."""
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch) / "study"
        found: dict[str, Any] = {"records": write_study(root)}
        found["bytes"] = sum(path.stat().st_size for path in root.rglob("*.parquet"))
        for verb in (["analyse", str(root)], ["report", str(root), "--out", str(Path(scratch) / "report.html")]):
            found[verb[0]] = _alone(verb)
            say(f"stored: {found['records']:,} records: {verb[0]} {found[verb[0]]}")
    return found


def _alone(arguments: list[str]) -> dict[str, float]:
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.stored", *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"benchmark {arguments[0]} failed: {done.stderr[-2000:]}")
    seconds = time.perf_counter() - start
    return {"seconds": round(seconds, 1), "gigabytes": json.loads(done.stderr.splitlines()[-1])["gigabytes"]}


def markdown(found: dict[str, Any]) -> str:
    rows = [f"| `oodles {v}` | {found[v]['seconds']} | {found[v]['gigabytes']} |" for v in ("analyse", "report")]
    return "\n".join(
        [
            f"The study's grid at log-spaced steps: 144 runs x 9 points x 8 test sets, {found['records']:,} records,"
            f" {found['bytes'] / 1e6:,.0f} MB on disk (made-up scores).",
            "",
            "| command | seconds | peak memory, GB |",
            "|---|---|---|",
            *rows,
            "",
        ]
    )


def _run(arguments: list[str]) -> int:
    """The command in this process, then its peak memory."""
    import resource

    from oodles.cli import main

    sys.argv = ["oodles", *arguments]
    try:
        main()
        code = 0
    except SystemExit as stop:
        code = int(stop.code or 0)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(json.dumps({"gigabytes": round(peak, 2)}), file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(_run(sys.argv[1:]))
