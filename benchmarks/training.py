"""What a training step costs: against a bare PyTorch loop of the same arithmetic, and the memory of the loss.

    python -m benchmarks --only training        some minutes on two quiet cores; results.json and the docs

SmolLM2-135M, LoRA on the attention projections, real shots of SNLI where OODLES_DATA has them and of `mini` elsewhere.
Ours is `fine_tune` as a run calls it, with checkpoints and without evaluation. The bare loop has the same adapter, the
same batches in the same order, padding and loss, and calls nothing but torch. They take turns, each in a process of
its own; time counts from the second step to the last. The memory of the loss is the peak of a step at 32 x 64 tokens,
above the loaded model, with the loss at the answer's position and with logits everywhere.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

MODEL = "smollm2-135m-q4"
STEPS, ROUNDS = 8, 3
ROWS, WIDTH = 32, 64


def measure(say: Callable[[str], None] = print) -> dict[str, Any]:
    """Seconds per step of both, as a ratio, and the memory of both losses."""
    seconds: dict[str, list[float]] = {"ours": [], "bare": []}
    losses = {}
    for number in range(ROUNDS):
        for who in seconds:
            found = _alone(who)
            seconds[who].append(found["seconds"])
            losses[who] = found["losses"]
            say(f"training: round {number + 1}, {who} {found['seconds']:.2f} s a step")
    memory = {kind: _alone(kind)["gigabytes"] for kind in ("answer_loss", "all_logits_loss")}
    ratios = [a / b for a, b in zip(seconds["ours"], seconds["bare"], strict=True)]
    return {
        "ratio_bare_loop": round(statistics.median(ratios), 3),
        "range_bare_loop": [round(min(ratios), 3), round(max(ratios), 3)],
        "seconds_per_step": round(statistics.median(seconds["ours"]), 2),
        "loss_difference": max(abs(a - b) for a, b in zip(losses["ours"], losses["bare"], strict=True)),
        "memory_gb_answer_loss": round(memory["answer_loss"], 2),
        "memory_gb_all_logits_loss": round(memory["all_logits_loss"], 2),
        "tokens": [ROWS, WIDTH],
    }


def _alone(who: str) -> dict[str, Any]:
    """One measurement in its own process."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.training", who], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"benchmark {who} failed: {done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def markdown(found: dict[str, Any]) -> str:
    low, high = found["range_bare_loop"]
    rows, width = found["tokens"]
    return (
        f"A training step takes {found['ratio_bare_loop']:.2f} times a bare PyTorch loop of the same arithmetic"
        f" ({low:.2f} to {high:.2f} over rounds; {found['seconds_per_step']} s a step here; the losses of both agree to"
        f" {found['loss_difference']:.0e}). At {rows} x {width} tokens a step needs"
        f" {found['memory_gb_answer_loss']:.2f} GB above the model with the loss at the answer's position,"
        f" {found['memory_gb_all_logits_loss']:.2f} GB with logits everywhere.\n"
    )


# what runs alone


def _prepare() -> tuple[Any, Any, Any, Any, Any]:
    """Model with adapter, tokenizer, shots, recipe and seeds: the same for everyone."""
    import torch

    from oodles.contracts import Lora, Recipe, Seeds
    from oodles.model.load import attach_lora, load_model, load_tokenizer, resolve_model
    from oodles.suite.draw import draw
    from oodles.suite.load import load_suite
    from oodles.suite.patterns import render
    from oodles.suite.sources import load_examples

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    name, train = ("nli", "snli") if os.environ.get("OODLES_DATA") else ("mini", "daily")
    suite, spec = load_suite(name), resolve_model(MODEL)
    shots = draw(load_examples(suite, suite.train_sets[train]), train, 16 * STEPS, 0).examples
    model = attach_lora(load_model(spec), Lora(), 0)
    recipe = Recipe(epochs=1, batch_size=16, schedule="constant", precision="fp32")
    return model, load_tokenizer(spec), render(suite.patterns["question"], shots, train), recipe, Seeds.all(0)


def ours() -> dict[str, Any]:
    from transformers import TrainerCallback

    from oodles.runs.train import fine_tune
    from oodles.store.folder import RunFolder

    class Watch(TrainerCallback):  # type: ignore[misc]
        def __init__(self) -> None:
            self.times: list[float] = []
            self.losses: list[float] = []

        def on_step_end(self, *_: Any, **__: Any) -> None:
            self.times.append(time.perf_counter())

        def on_log(self, *_: Any, logs: Any = None, **__: Any) -> None:
            self.losses += [logs["loss"]] if "loss" in logs else []

    watch = Watch()
    with tempfile.TemporaryDirectory() as scratch:
        fine_tune(*_prepare(), [watch], folder=RunFolder(Path(scratch) / "run"))
    return {"seconds": (watch.times[-1] - watch.times[0]) / (STEPS - 1), "losses": watch.losses}


def bare() -> dict[str, Any]:
    """The same arithmetic with nothing but torch: batches in the Trainer's order, its optimiser and clipping."""
    import torch
    from accelerate.data_loader import SeedableRandomSampler

    model, tokenizer, shots, recipe, seeds = _prepare()
    answers = [tokenizer(a, add_special_tokens=False)["input_ids"][0] for a in shots.answers]
    rows = [(tokenizer(p.text)["input_ids"], answers[p.gold]) for p in shots.prompts]
    order = list(SeedableRandomSampler(rows, data_seed=seeds.order, generator=torch.Generator()))
    inner, head = model.get_base_model().model, model.get_base_model().lm_head
    weights = [p for p in model.parameters() if p.requires_grad]
    optimiser = torch.optim.AdamW(weights, lr=recipe.learning_rate, weight_decay=0.0)
    times, losses = [], []
    model.train()
    for start in range(0, len(order), recipe.batch_size):
        batch = [rows[i] for i in order[start : start + recipe.batch_size]]
        width = max(len(ids) for ids, _ in batch)
        tokens = torch.tensor([ids + [0] * (width - len(ids)) for ids, _ in batch])
        last = torch.tensor([len(ids) - 1 for ids, _ in batch])
        hidden = inner(input_ids=tokens, use_cache=False).last_hidden_state[torch.arange(len(batch)), last]
        loss = torch.nn.functional.cross_entropy(head(hidden), torch.tensor([target for _, target in batch]))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, recipe.max_grad_norm)
        optimiser.step()
        optimiser.zero_grad()
        losses.append(loss.item())
        times.append(time.perf_counter())
    return {"seconds": (times[-1] - times[0]) / (STEPS - 1), "losses": losses}


def loss_memory(everywhere: bool) -> dict[str, Any]:
    """Peak memory of forward and backward above the loaded model."""
    import torch

    from oodles.runs.train import AnswerTrainer, Candidates

    model, *_ = _prepare()
    model.train()
    tokens = torch.randint(100, 10_000, (ROWS, WIDTH))
    loaded = _peak()
    if everywhere:
        logits = model(input_ids=tokens, use_cache=False).logits.float()
        labels = torch.full((ROWS, WIDTH), -100)
        labels[:, -1] = 9230
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)
    else:
        examples = [{"sequences": [(row.tolist(), [9230])], "gold": 0} for row in tokens]
        answers = Candidates(examples=examples)
        inputs = answers.collate(examples)
        trainer = AnswerTrainer.__new__(AnswerTrainer)
        trainer._plain_head = True
        loss = answers.loss(trainer._answer_logits(model, inputs).float(), inputs)
    loss.backward()
    return {"gigabytes": _peak() - loaded}


def _peak() -> float:
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


if __name__ == "__main__":
    jobs = {
        "ours": ours,
        "bare": bare,
        "answer_loss": lambda: loss_memory(False),
        "all_logits_loss": lambda: loss_memory(True),
    }
    print(json.dumps(jobs[sys.argv[1]]()))
