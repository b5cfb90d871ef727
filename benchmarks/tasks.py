"""How fast choices with shared contexts are scored, against lm-evaluation-harness on the same requests.

    python -m benchmarks --only tasks        ten minutes on two busy cores; results.json and the docs

Made-up questions in the layout of HellaSwag: a context of 60 words and four endings of 18, from one seed. Both share
the loaded SmolLM2-135M in fp32, and take turns in rounds. Time counts from texts to scores: tokenising, packing and the
check of the shortcuts are part of ours, tokenising is part of the harness's; imports are part of neither. Both have one
thread, and the ratio is that of processor time: other work on the machine disturbs it less than the clock, and threads
that wait for each other would count as work. Clock time is recorded beside it.

*Bound*: multiply-adds of the harness (each choice with its context, padded to its batch, all logits) over those of
the distinct tokens, with logits only where choices are read.
"""

from __future__ import annotations

import logging
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.scoring import Shape, count_padded, new_tokens
from oodles.contracts import Choice, Prompt, PromptSet
from oodles.suite.stand_ins import WORDS

MODEL = "smollm2-135m-q4"
EXAMPLES, ROUNDS, BATCH = 24, 5, 16
CONTEXT, ENDING, ENDINGS = 60, 18, 4  # words, words, choices


def questions(count: int = EXAMPLES, seed: int = 0) -> PromptSet:
    """Made-up questions with four endings each."""
    rng, words = random.Random(seed), WORDS.split()

    def text(size: int) -> str:
        return " ".join(rng.choices(words, k=max(2, round(rng.gauss(size, size / 4)))))

    prompts = []
    for number in range(count):
        context, endings = text(CONTEXT).capitalize(), [f" {text(ENDING)}." for _ in range(ENDINGS)]
        choices = tuple(Choice(context=context, continuation=ending, text=ending.strip()) for ending in endings)
        prompts.append(Prompt(id=str(number), text=context, gold=0, choices=choices))
    return PromptSet(name="questions", answers=(), prompts=tuple(prompts))


def measure(say: Callable[[str], None] = print) -> dict[str, Any]:
    """Seconds of both from texts to scores, as a ratio, and what arithmetic allows."""
    import torch
    from lm_eval.models.huggingface import HFLM  # noqa: F401 - imported before anything is timed

    from oodles.model.choice_tokens import encode_choices
    from oodles.model.load import load_model, load_tokenizer, resolve_model

    before = torch.get_num_threads()
    torch.set_num_threads(1)  # nobody waits for another thread
    spec = resolve_model(MODEL)
    model, tokenizer = load_model(spec).eval(), load_tokenizer(spec)
    prompts = questions()
    clock: dict[str, list[float]] = {"oodles": [], "lm_eval": []}
    processor: dict[str, list[float]] = {"oodles": [], "lm_eval": []}
    scores: dict[str, np.ndarray] = {}
    ways = {"oodles": _ours, "lm_eval": _theirs}
    for number in range(ROUNDS):
        for name in list(ways)[:: 1 if number % 2 == 0 else -1]:
            start = time.perf_counter(), time.process_time()
            scores[name] = ways[name](model, tokenizer, prompts)
            clock[name].append(time.perf_counter() - start[0])
            processor[name].append(time.process_time() - start[1])
            say(f"tasks: round {number + 1}, {name} {clock[name][-1]:.1f} s, processor {processor[name][-1]:.1f} s")
    torch.set_num_threads(before)
    ratios = {kind: _ratios(found) for kind, found in (("clock", clock), ("processor", processor))}
    sequences = [tuple(ids.tolist()[:-1]) for ids in encode_choices(tokenizer, prompts).texts]
    reads = sum(encode_choices(tokenizer, prompts).reads) - (ENDINGS - 1) * len(prompts)
    return {
        "ratio_lm_eval": round(statistics.median(ratios["processor"]), 2),
        "range_lm_eval": [round(edge(ratios["processor"]), 2) for edge in (min, max)],
        "clock_lm_eval": round(statistics.median(ratios["clock"]), 2),
        "clock_range_lm_eval": [round(edge(ratios["clock"]), 2) for edge in (min, max)],
        "bound_lm_eval": round(bound(Shape.of(model), sequences, int(reads), BATCH), 2),
        "seconds": {name: [round(s, 1) for s in each] for name, each in clock.items()},
        "processor_seconds": {name: [round(s, 1) for s in each] for name, each in processor.items()},
        "largest_difference": float(np.abs(scores["oodles"] - scores["lm_eval"]).max()),
        "examples": len(prompts),
        "choices": ENDINGS,
        "tokens": {"all": sum(map(len, sequences)), "distinct": sum(n - c for c, n in new_tokens(sequences))},
        "threads": 1,
        "rounds": ROUNDS,
        "model": MODEL,
    }


def _ratios(seconds: dict[str, list[float]]) -> list[float]:
    return [theirs / ours for ours, theirs in zip(seconds["oodles"], seconds["lm_eval"], strict=True)]


def _ours(model: Any, tokenizer: Any, prompts: PromptSet) -> np.ndarray:
    """With an empty cache of tokens."""
    from oodles.model import scoring

    before = os.environ.get("OODLES_CACHE")
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["OODLES_CACHE"] = str(Path(scratch))
        try:
            return np.asarray(scoring.score(model, tokenizer, prompts))
        finally:
            if before is None:
                del os.environ["OODLES_CACHE"]
            else:
                os.environ["OODLES_CACHE"] = before


def _theirs(model: Any, tokenizer: Any, prompts: PromptSet) -> np.ndarray:
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    requests = [
        Instance(request_type="loglikelihood", doc={}, arguments=(c.context, c.continuation), idx=k)
        for p in prompts.prompts
        for k, c in enumerate(p.choices)
    ]
    wrapped = HFLM(pretrained=model, tokenizer=tokenizer, batch_size=BATCH)
    found = wrapped.loglikelihood(requests, disable_tqdm=True)
    return np.array([score for score, _ in found]).reshape(-1, ENDINGS)


def bound(shape: Shape, sequences: Sequence[tuple[int, ...]], reads: int, batch: int) -> float:
    """How much faster than padded batches one can be at equal efficiency, computing each distinct prefix once."""
    lengths = sorted(map(len, sequences), reverse=True)
    parts = [lengths[first : first + batch] for first in range(0, len(lengths), batch)]
    theirs = count_padded(shape, [(len(part), part[0]) for part in parts], causal=True)
    ours = reads * shape.head
    for common, length in new_tokens(sequences):
        pairs = (length * (length + 1) - common * (common + 1)) // 2
        ours += (length - common) * shape.linear + pairs * shape.attention
    return theirs / ours


def markdown(found: dict[str, Any]) -> str:
    low, high = found["range_lm_eval"]
    slow, fast = found["clock_range_lm_eval"]
    tokens = found["tokens"]
    return (
        f"{found['examples']} made-up questions with {found['choices']} endings each, SmolLM2-135M in fp32, one thread:"
        f" in processor time, oodles is {found['ratio_lm_eval']:.2f} times as fast as lm-evaluation-harness"
        f" ({low:.2f} to {high:.2f} over {found['rounds']} rounds), both from texts to scores, preparation included."
        f" By the clock, on a machine with other work, it is {found['clock_lm_eval']:.2f} times as fast ({slow:.2f} to"
        f" {fast:.2f}). Arithmetic allows {found['bound_lm_eval']:.2f}: {tokens['distinct']:,} distinct tokens of"
        f" {tokens['all']:,}, logits only where choices are read. Log-probabilities differ by at most"
        f" {found['largest_difference']:.0e}.\n"
    )
