"""Which learning rate and how many epochs: a small sweep behind the defaults of [train].

    python -m benchmarks.recipe --out build/recipe.jsonl      resumable; about 40 minutes on two cores
    python -m benchmarks.recipe --out build/recipe.jsonl --table build/recipe.md

SmolLM2-135M, LoRA r = 8, real shots of SNLI. For each setting: the mean loss of the last epoch, accuracy on the
shots at the last step, and accuracy on test sets that the setting was not chosen on (`mini`, and
a sample of SNLI's test set).
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections import defaultdict
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

MODEL = "smollm2-135m-q4"
RATES, EPOCHS, SHOTS, SEEDS = (3e-4, 1e-3, 3e-3), (10, 20), (32,), (0, 1)
HELD_OUT = ("daily", "news", "overlap")  # of mini
LIMIT = 100


def settings() -> list[dict[str, Any]]:
    keys = ("seed", "shots", "epochs", "learning_rate")
    return [dict(zip(keys, values, strict=True)) for values in product(SEEDS, SHOTS, EPOCHS, RATES)]


def sweep(out: Path) -> None:
    """Measure what is missing; one line each."""
    held = [json.loads(line) for line in out.read_text().splitlines()] if out.is_file() else []
    done = [{k: line[k] for k in ("seed", "shots", "epochs", "learning_rate")} for line in held]
    out.parent.mkdir(parents=True, exist_ok=True)
    for setting in settings():
        if setting in done:
            continue
        found = {**setting, **measure(**setting)}
        with out.open("a") as handle:
            handle.write(json.dumps(found) + "\n")
        print(json.dumps(found), flush=True)


def measure(seed: int, shots: int, epochs: int, learning_rate: float) -> dict[str, Any]:
    from transformers import TrainerCallback

    from oodles import score
    from oodles.contracts import Lora, Recipe, Seeds
    from oodles.model.load import attach_lora, load_model, load_tokenizer, resolve_model
    from oodles.runs.train import fine_tune
    from oodles.suite.draw import draw
    from oodles.suite.load import load_suite
    from oodles.suite.patterns import render
    from oodles.suite.sources import load_examples

    class Losses(TrainerCallback):  # type: ignore[misc]
        def __init__(self) -> None:
            self.losses: list[float] = []

        def on_log(self, *_: Any, logs: Any = None, **__: Any) -> None:
            self.losses += [logs["loss"]] if "loss" in logs else []

    nli, mini, spec = load_suite("nli"), load_suite("mini"), resolve_model(MODEL)
    drawn = draw(load_examples(nli, nli.train_sets["snli"]), "snli", shots, seed).examples
    prompts = render(nli.patterns["question"], drawn, "shots")
    model, tokenizer = attach_lora(load_model(spec), Lora(), seed), load_tokenizer(spec)
    recipe = replace(Recipe(), epochs=epochs, learning_rate=learning_rate, precision="fp32")
    watch, start = Losses(), time.perf_counter()
    fine_tune(model, tokenizer, prompts, recipe, Seeds.all(seed), [watch])
    seconds = time.perf_counter() - start
    sets = {name: (mini, name) for name in HELD_OUT} | {"snli": (nli, "snli")}
    tests = {
        name: render(suite.patterns["question"], load_examples(suite, suite.test_sets[at]), at, LIMIT)
        for name, (suite, at) in sets.items()
    }
    accuracy = {}
    for name, one in {"shots": prompts, **tests}.items():
        chosen = score(model, tokenizer, one).argmax(axis=1)
        accuracy[name] = float((chosen == [p.gold for p in one.prompts]).mean())
    per_epoch = len(watch.losses) // epochs
    return {"loss": statistics.mean(watch.losses[-per_epoch:]), "accuracy": accuracy, "seconds": round(seconds, 1)}


def table(lines: list[dict[str, Any]]) -> str:
    """Means over seeds, one row per setting."""
    groups: dict[tuple[int, int, float], list[dict[str, Any]]] = defaultdict(list)
    for line in lines:
        groups[line["shots"], line["epochs"], line["learning_rate"]].append(line)
    names = list(lines[0]["accuracy"])
    held = [name for name in names if name in HELD_OUT]
    head = ["shots", "epochs", "learning rate", "seeds", "loss, last epoch", "accuracy on the shots", "mini, held out"]
    rows = [head, ["---"] * len(head)]
    for (shots, epochs, rate), found in sorted(groups.items()):
        mini = statistics.mean(line["accuracy"][name] for line in found for name in held)
        cells = [
            shots, epochs, f"{rate:g}", len(found), f"{statistics.mean(line['loss'] for line in found):.3f}",
            " ".join(f"{line['accuracy']['shots']:.2f}" for line in found), f"{mini:.2f}",
        ]  # fmt: skip
        rows.append([str(c) for c in cells])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build/recipe.jsonl"))
    parser.add_argument("--table", type=Path, help="put the table into this page, measure nothing")
    chosen = parser.parse_args()
    if chosen.table is None:
        sweep(chosen.out)
        return 0
    lines = [json.loads(line) for line in chosen.out.read_text().splitlines()]
    begin, end = "<!-- table made by `python -m benchmarks.recipe` -->", "<!-- end of the table -->"
    before, rest = chosen.table.read_text().split(begin, 1)
    chosen.table.write_text(f"{before}{begin}\n\n{table(lines)}\n{end}{rest.split(end, 1)[1]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
