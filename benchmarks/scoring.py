"""How fast scoring is: against the study's way, plain transformers and lm-evaluation-harness, and against the machine.

    python -m benchmarks --only scoring              about 11 minutes on two quiet cores; results.json and the docs
    python -m benchmarks --only scoring --quick      two or three minutes; a small sample, nothing is written
    python -m benchmarks.scoring --whole             every contender scores the whole sample in every round (slow)

Needs the real NLI sets (OODLES_DATA or the hub) and the fetched SmolLM2-135M. All contenders share the loaded fp32
model, the threads and the prompts. They take turns in rounds; ours scores the whole sample in each round, the slower
ones a third of their batches in each of three rounds, scaled by padded tokens. Tokenising is done before.

Words. *Distinct tokens*: the nodes of the prefix trees of the test sets, one tree per set: each distinct run of tokens
from the start of a prompt is counted once. That is the least a causal model can compute without caching between sets.
*Shared share*: 1 - distinct tokens / all tokens. *Computed tokens*: what our plans send through the model; they pack
a prefix only where that pays, so they are more. *Bound*: the multiply-adds a contender spends over the multiply-adds of
the distinct tokens, i.e. how much faster than it one can be at equal efficiency.
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import random
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.baselines import dynamic, harness, study
from benchmarks.statistics import save
from oodles.contracts import PromptSet, Suite
from oodles.model import scoring
from oodles.model.forward import Plan
from oodles.model.load import load_model, load_tokenizer, resolve_model
from oodles.model.prefix_trees import Sequences, pack_rows
from oodles.model.tokens import encode
from oodles.suite.load import load_suite
from oodles.suite.patterns import render
from oodles.suite.sources import load_examples

Tokens = tuple[int, ...]

MODEL = "smollm2-135m-q4"
SIZE, QUICK_SIZE = 600, 240  # prompts
ROUNDS, QUICK_ROUNDS = 3, 2
MULTIPLICATIONS = 5  # the machine's rate is the best of at least so many passes
NEIGHBOURS = 16  # premises drawn together, see `draw`
CLOSE_SHARE, CLOSE_LENGTH = 0.005, 0.01  # how near a sample must be to all prompts: points of share, tokens per prompt
CLEAR = 2e-4  # a margin above this must have the same winner everywhere


# the sample


@dataclass(frozen=True, slots=True, eq=False)
class TestSet:
    """One test set in prompts and tokens, and which prompts have the same premise."""

    prompts: PromptSet
    tokens: tuple[Tokens, ...]
    groups: tuple[tuple[int, ...], ...]  # indices by premise, in the order of their tokens

    def take(self, indices: Iterable[int]) -> TestSet:
        """A part of the set; groups are not kept."""
        kept = list(indices)
        prompts = replace(self.prompts, prompts=tuple(self.prompts.prompts[i] for i in kept))
        return TestSet(prompts, tuple(self.tokens[i] for i in kept), ())


def read_sets(suite: Suite, tokenizer: Any) -> list[TestSet]:
    """All prompts of a suite's test sets."""
    found = []
    for name, data in suite.test_sets.items():
        examples = load_examples(suite, data)
        prompts = render(suite.patterns[data.pattern or "question"], examples, name)
        tokens = tuple(map(tuple, encode(tokenizer, prompts).prompts))
        by_premise = defaultdict(list)
        for index, example in enumerate(examples):
            by_premise[example.fields["premise"]].append(index)
        groups = sorted(map(tuple, by_premise.values()), key=lambda group: min(tokens[i] for i in group))
        found.append(TestSet(prompts, tokens, tuple(groups)))
    return found


def draw(sets: Sequence[TestSet], size: int, seed: int) -> list[list[int]]:
    """Indices of a sample in the sets' proportions that keeps all prompts of every premise it draws.

    Premises that begin alike are neighbours in the order of their tokens, and share more than nothing (a fifth of the
    tokens of HANS). Drawn one by one they would lose that, so runs of neighbouring premises are drawn.
    """
    total = sum(len(s.tokens) for s in sets)
    chosen = []
    for one in sets:
        seats = max(1, round(size * len(one.tokens) / total))
        runs = [one.groups[i : i + NEIGHBOURS] for i in range(0, len(one.groups), NEIGHBOURS)]
        random.Random(f"{seed} {one.prompts.name}").shuffle(runs)
        kept: list[int] = []
        for group in (group for run in runs for group in run):
            if len(kept) + len(group) <= seats:
                kept += group
            if len(kept) == seats:
                break
        chosen.append(sorted(kept))  # the data's order
    return chosen


def find_sample(sets: Sequence[TestSet], size: int) -> tuple[int, list[TestSet]]:
    """The first seed whose sample is like all prompts in shared share and length, and that sample."""
    share, length = shared_share(sets), tokens_per_prompt(sets)
    for seed in range(1000):
        sample = [one.take(kept) for one, kept in zip(sets, draw(sets, size, seed), strict=True)]
        near = abs(tokens_per_prompt(sample) / length - 1) <= CLOSE_LENGTH
        if near and abs(shared_share(sample) - share) <= CLOSE_SHARE:
            return seed, sample
    raise ValueError(f"no sample of {size} prompts is like the {sum(len(s.tokens) for s in sets)} in 1,000 draws")


def tokens_per_prompt(sets: Sequence[TestSet]) -> float:
    return all_tokens(sets) / sum(len(s.tokens) for s in sets)


def all_tokens(sets: Sequence[TestSet]) -> int:
    return sum(len(ids) for one in sets for ids in one.tokens)


def shared_share(sets: Sequence[TestSet]) -> float:
    """Share of all tokens that need not be computed if each distinct prefix of a set is computed once."""
    return 1 - sum(distinct_tokens(one.tokens) for one in sets) / all_tokens(sets)


def computed_tokens(sets: Sequence[TestSet]) -> int:
    """Tokens that our own packing computes."""
    return sum(pack_rows(sequences(one.tokens), scoring.BATCH_TOKENS["cpu"]).tokens for one in sets)


def sequences(tokens: Sequence[Tokens]) -> Sequences:
    """Token sequences as scoring packs them."""
    starts = np.cumsum([0, *map(len, tokens)], dtype=np.int64)
    return Sequences(tokens=np.array([t for one in tokens for t in one], dtype=np.int32), starts=starts, reads=1)


# counted arithmetic


def new_tokens(prompts: Iterable[Tokens]) -> Iterator[tuple[int, int]]:
    """Walk the prefix tree: for each prompt in sorted order, where it leaves the one before, and its length.

    >>> list(new_tokens([(1, 2, 3), (1, 2, 4, 5), (1, 2, 3)]))
    [(0, 3), (3, 3), (2, 4)]
    """
    before: Tokens = ()
    for ids in sorted(prompts):
        common = 0
        for a, b in zip(before, ids, strict=False):
            if a != b:
                break
            common += 1
        yield common, len(ids)
        before = ids


def distinct_tokens(prompts: Iterable[Tokens]) -> int:
    """Nodes of the prefix tree.

    >>> distinct_tokens([(1, 2, 3), (1, 2, 4, 5), (1, 2, 3)])
    5
    """
    return sum(length - common for common, length in new_tokens(prompts))


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What a forward pass of the model multiplies."""

    linear: int  # weights of all linear layers but the head
    head: int  # weights of the head
    hidden: int
    attention: int  # multiply-adds per pair of a token and one it sees: queries x keys, weights x values, all layers

    @classmethod
    def of(cls, model: Any) -> Shape:
        config, head = model.config, model.get_output_embeddings()
        width = config.num_attention_heads * getattr(
            config, "head_dim", config.hidden_size // config.num_attention_heads
        )
        return cls(
            linear=sum(layer.weight.numel() for layer in linear_layers(model)),
            head=head.weight.numel(),
            hidden=config.hidden_size,
            attention=2 * width * config.num_hidden_layers,
        )


def linear_layers(model: Any) -> list[Any]:
    """All linear layers but the head."""
    import torch

    head = model.get_output_embeddings()
    return [layer for layer in model.modules() if isinstance(layer, torch.nn.Linear) and layer is not head]


def count_padded(shape: Shape, batches: Iterable[tuple[int, int]], causal: bool = False) -> int:
    """Multiply-adds of batches of rows x width tokens, with logits everywhere.

    A padding mask makes attention multiply every pair; without one (`causal`) only pairs that look back are needed.
    """
    total = 0
    for rows, width in batches:
        pairs = width * (width + 1) // 2 if causal else width * width
        total += rows * (width * (shape.linear + shape.head) + pairs * shape.attention)
    return total


def count_distinct(shape: Shape, sets: Iterable[Sequence[Tokens]], answers: int = 2) -> int:
    """Multiply-adds of the distinct tokens of each set, with the answers' logits only."""
    total = 0
    for prompts in sets:
        for common, length in new_tokens(prompts):
            pairs = (length * (length + 1) - common * (common + 1)) // 2  # a token sees itself and those before it
            total += (length - common) * shape.linear + pairs * shape.attention
        total += len(prompts) * answers * shape.hidden
    return total


def padded_shapes(lengths: Sequence[int], least: int) -> list[tuple[int, int]]:
    """Rows x width of batches of 32 in order, at least so wide."""
    parts = [lengths[i : i + study.BATCH_SIZE] for i in range(0, len(lengths), study.BATCH_SIZE)]
    return [(len(part), max(least, *part)) for part in parts]


def study_bound(shape: Shape, sets: Sequence[TestSet]) -> float:
    """How much faster than the study's way one can be at equal efficiency."""
    padded = [b for one in sets for b in padded_shapes([len(ids) for ids in one.tokens], study.MAX_LENGTH)]
    return count_padded(shape, padded) / count_distinct(shape, [one.tokens for one in sets])


# who competes


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """What a contender can do at a time."""

    indices: list[int]  # prompts of the sample
    padded: int  # tokens that go through the model, padding included
    work: Any


@dataclass(frozen=True, slots=True, eq=False)
class Contender:
    """One way of scoring the sample."""

    name: str
    parts: list[Part]
    score: Callable[[list[Any]], tuple[np.ndarray, float]]  # works -> scores in their order, seconds

    @property
    def padded(self) -> int:
        return sum(part.padded for part in self.parts)

    def take_turn(self, turn: int, turns: int, scores: np.ndarray) -> float:
        """Score every `turns`-th part, put the scores in their places; seconds, scaled to all parts."""
        parts = self.parts[turn % turns :: turns]
        found, seconds = self.score([part.work for part in parts])
        scores[[i for part in parts for i in part.indices]] = found
        return seconds * self.padded / sum(part.padded for part in parts)


def our_way(model: Any, plans: Sequence[Plan]) -> Contender:
    """oodles as a study evaluates: one plan per test set, one after the other."""
    parts, at = [], 0
    for plan in plans:
        count = len(plan.sequences)
        parts.append(Part(list(range(at, at + count)), sum(batch_sizes([plan])), plan))
        at += count
    return Contender("oodles", parts, timed(lambda works: np.concatenate([scoring.execute(model, p) for p in works])))


def batch_sizes(plans: Iterable[Plan]) -> list[int]:
    """Tokens of each of our batches as the matrices see them, padding included."""
    return [len(batch) * max(row.length for row in batch) for plan in plans for batch in plan.packing.batches]


def plain_way(name: str, module: Any, model: Any, tokenizer: Any, sample: Sequence[TestSet], answers: Any) -> Contender:
    """A baseline that goes through each test set in batches."""
    parts, at = [], 0
    for one in sample:
        for indices, ids, mask in module.make_batches(tokenizer, [p.text for p in one.prompts.prompts]):
            parts.append(Part([at + i for i in indices], ids.numel(), (indices, ids, mask)))
        at += len(one.tokens)
    return Contender(name, parts, timed(lambda works: module.score_batches(model, works, answers)))


def timed(score: Callable[[list[Any]], np.ndarray]) -> Callable[[list[Any]], tuple[np.ndarray, float]]:
    def run(works: list[Any]) -> tuple[np.ndarray, float]:
        start = time.perf_counter()
        found = score(works)
        return found, time.perf_counter() - start

    return run


def multiply(model: Any, sizes: Sequence[int], threads: int) -> float:
    """Multiply-adds per second of all the model's linear layers alone, on batches of our sizes, one batch per core."""
    import torch

    weights = [layer.weight for layer in linear_layers(model)]
    inputs = {k: torch.randn(max(sizes), k) for k in {weight.shape[1] for weight in weights}}

    def one_batch(size: int) -> None:
        with torch.inference_mode():
            for weight in weights:
                torch.nn.functional.linear(inputs[weight.shape[1]][:size], weight)

    order = sorted(sizes, reverse=True)  # no core is left alone at the end
    with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        list(pool.map(one_batch, order[:threads]))
        start = time.perf_counter()
        list(pool.map(one_batch, order))
        seconds = time.perf_counter() - start
    torch.set_num_threads(threads)
    return sum(sizes) * sum(weight.numel() for weight in weights) / seconds


# the measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How much is measured."""

    size: int = SIZE
    rounds: int = ROUNDS
    whole: bool = False  # every contender scores everything in every round
    threads: int = 0  # 0: all cores


def measure(options: Options, say: Callable[[str], None] = print) -> dict[str, Any]:
    """All figures of the benchmark."""
    import torch

    threads = options.threads or len(os.sched_getaffinity(0))
    torch.set_num_threads(threads)
    spec = resolve_model(MODEL)
    model, tokenizer = load_model(spec).eval(), load_tokenizer(spec)
    say("scoring: reading the test sets")
    sets = read_sets(load_suite("nli"), tokenizer)
    seed, sample = find_sample(sets, options.size)
    start = time.perf_counter()
    plans = scoring.prepare_all(model, tokenizer, [one.prompts for one in sample])
    prepared = time.perf_counter() - start
    answers = tuple(t[0] for t in plans[0].targets)
    lm_eval = harness.load(
        model, tokenizer, [p.text for one in sample for p in one.prompts.prompts], sample[0].prompts.answers
    )
    contenders = [
        our_way(model, plans),
        plain_way("study", study, model, tokenizer, sample, answers),
        plain_way("dynamic", dynamic, model, tokenizer, sample, answers),
        Contender(
            "lm_eval",
            [Part(i, rows * width, work) for i, (rows, width), work in lm_eval.batches],
            lm_eval.score_batches,
        ),
    ]
    others = elsewhere()
    seconds, rates, scores = take_turns(contenders, options, lambda: multiply(model, batch_sizes(plans), threads), say)
    shape = Shape.of(model)
    ours = count_distinct(shape, [one.tokens for one in sample])
    causal = count_padded(shape, [padded for _, padded, _ in lm_eval.batches], causal=True)
    own_order = [b for one in sample for b in padded_shapes([len(ids) for ids in one.tokens], 1)]
    distinct = sum(distinct_tokens(one.tokens) for one in sample)
    best = max(rates)
    return {
        **ratios(seconds),
        "gemm_share": figure(shape.linear * distinct / min(seconds["oodles"]) / best),  # the best of both
        "gemm_share_computed": figure(shape.linear * sum(p.tokens for p in plans) / min(seconds["oodles"]) / best),
        "bound_study": figure(study_bound(shape, sample)),
        "bound_study_all_prompts": figure(study_bound(shape, sets)),
        "bound_dynamic": figure(count_padded(shape, own_order) / ours),
        "bound_lm_eval": figure(causal / ours),
        "agreement": {c.name: agreement(scores["oodles"], scores[c.name]) for c in contenders[1:]},
        "seconds": {name: [figure(s) for s in each] for name, each in seconds.items()},
        "seconds_preparation": figure(prepared),
        "preparation_share": figure(prepared / statistics.median(seconds["oodles"])),
        "seconds_lm_eval_tokenising": figure(sum(lm_eval.tokenising[1:])),
        "gigaflops": [figure(2e-9 * rate) for rate in rates],
        "tokens": {
            "all": all_tokens(sample),
            "distinct": distinct,
            "computed": sum(p.tokens for p in plans),
            **{f"padded_{c.name}": c.padded for c in contenders},
        },
        "sample": {**describe(sample), "seed": seed, "sets": {s.prompts.name: len(s.tokens) for s in sample}},
        "all_prompts": {**describe(sets), "sets": {s.prompts.name: len(s.tokens) for s in sets}},
        "rounds": options.rounds,
        "whole_sample_in_every_round": options.whole,
        "threads": threads,
        "cores_busy_elsewhere": figure(elsewhere(others)[0]),
        "model": MODEL,
        "versions": versions(),
    }


def take_turns(
    contenders: Sequence[Contender], options: Options, rate: Callable[[], float], say: Callable[[str], None]
) -> tuple[dict[str, list[float]], list[float], dict[str, np.ndarray]]:
    """Rounds in which everyone has a turn, each round beginning with the next."""
    count = 1 + max(i for part in contenders[0].parts for i in part.indices)
    scores = {c.name: np.full((count, 2), np.nan) for c in contenders}
    seconds: dict[str, list[float]] = {c.name: [] for c in contenders}
    rates: list[float] = []
    for contender in contenders:  # warm up: the smallest part
        contender.score([min(contender.parts, key=lambda part: part.padded).work])
    for round_ in range(options.rounds):
        for place in range(len(contenders)):
            contender = contenders[(round_ + place) % len(contenders)]
            turns = 1 if options.whole or contender is contenders[0] else options.rounds
            seconds[contender.name].append(contender.take_turn(round_, turns, scores[contender.name]))
            say(f"scoring: round {round_ + 1}, {contender.name}: {seconds[contender.name][-1]:.1f} s")
        rates += [rate() for _ in range(math.ceil(MULTIPLICATIONS / options.rounds))]
        say(f"scoring: round {round_ + 1}, matrix products alone: {2e-9 * max(rates):.0f} GFLOP/s at best")
    return seconds, rates, scores


def ratios(seconds: dict[str, list[float]]) -> dict[str, Any]:
    """Times as fast as each contender: of medians, and the range over rounds."""
    ours = seconds["oodles"]
    found: dict[str, Any] = {}
    for name, theirs in seconds.items():
        if name != "oodles":
            each = [t / o for t, o in zip(theirs, ours, strict=True)]
            found[f"ratio_{name}"] = figure(statistics.median(theirs) / statistics.median(ours))
            found[f"range_{name}"] = [figure(min(each)), figure(max(each))]
    return found


def agreement(ours: np.ndarray, theirs: np.ndarray) -> dict[str, Any]:
    """How far two ways are apart in the margin of the first answer over the second."""
    a, b = ours[:, 0] - ours[:, 1], theirs[:, 0] - theirs[:, 1]
    clear = np.abs(b) > CLEAR
    return {
        "max_margin_difference": float(f"{np.abs(a - b).max():.2e}"),
        "equal_winners": float(((a > 0) == (b > 0))[clear].mean()),
        "clear_margins": int(clear.sum()),
        "prompts": len(a),
    }


def elsewhere(since: tuple[float, float] = (0.0, 0.0)) -> tuple[float, float]:
    """How many cores others kept busy on average since an earlier call; above a few hundredths, timings are noisy."""
    own, now = os.times(), time.monotonic()
    table = Path("/proc/stat")
    busy = [int(n) for n in table.read_text().split("\n")[0].split()[1:9]] if table.is_file() else [0] * 8
    used = (
        (sum(busy) - busy[3] - busy[4]) / os.sysconf("SC_CLK_TCK") - own.user - own.system
    )  # neither idle nor waiting
    if since == (0.0, 0.0):
        return used, now
    return (used - since[0]) / (now - since[1]), now


def describe(sets: Sequence[TestSet]) -> dict[str, Any]:
    return {
        "prompts": sum(len(one.tokens) for one in sets),
        "tokens_per_prompt": figure(tokens_per_prompt(sets)),
        "shared_share": figure(shared_share(sets)),
        "saved_by_our_packing": figure(1 - computed_tokens(sets) / all_tokens(sets)),
    }


def versions() -> dict[str, str]:
    from importlib.metadata import version

    names = ("torch", "transformers", "lm_eval", "datasets", "numpy")
    return {"python": platform.python_version(), **{name: version(name) for name in names}, "processor": processor()}


def processor() -> str:
    info = Path("/proc/cpuinfo")
    names = [line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
    return names[0] if names else platform.processor()


def figure(value: float) -> float:
    """Four digits are more than a timing holds."""
    return float(f"{value:.4g}")


# the page


BEGIN, END = "<!-- scoring: begin -->", "<!-- scoring: end -->"
LABELS = {
    "study": "the study's way: 128 tokens, all logits",
    "dynamic": "transformers, padded to the batch's longest",
    "lm_eval": "lm-evaluation-harness",
}


def markdown(found: dict[str, Any]) -> str:
    """The figures as a table, with what they are."""
    lines = [
        "## Scoring",
        "",
        _sample_text(found),
        "",
        "![Scoring compared](scoring.png)",
        "",
        "| compared with | oodles is faster | over rounds | arithmetic allows | margins differ by | same winner |",
        "|---|---|---|---|---|---|",
    ]
    for name, label in LABELS.items():
        low, high = found[f"range_{name}"]
        same = found["agreement"][name]
        lines.append(
            f"| {label} | {found[f'ratio_{name}']:.2f} x | {low:.2f} to {high:.2f} | {found[f'bound_{name}']:.2f} x "
            f"| {same['max_margin_difference']:.1e} | {100 * same['equal_winners']:.2f} % |"
        )
    return "\n".join([*lines, "", _speed_text(found), "", HOW]) + "\n"


HOW = """\
The study's way pads each prompt to 128 tokens, 32 to a batch in the data's order, and computes the logits of the whole
vocabulary at all positions. Two of its mistakes are fixed so that scores can be compared: prompts over 128 tokens are
kept whole, and the answer is read after the prompt's last token, not after padding. It is frozen in
`benchmarks/baselines/study.py`. All contenders share the loaded model, the threads and the prompts; tokenising is not
timed. They take turns in rounds: oodles scores the whole sample in each, the others some of their batches, scaled by
padded tokens. *Arithmetic allows*: multiply-adds of the other over those of the distinct tokens."""


def _sample_text(found: dict[str, Any]) -> str:
    sample, every = found["sample"], found["all_prompts"]
    return (
        f"{sample['prompts']:,} of the {every['prompts']:,} prompts of the eight NLI sets, in their proportions, "
        f"with all prompts of each drawn premise;\nSmolLM2-135M in fp32, {found['threads']} threads. "
        f"Computing each distinct prefix of a set once would save {100 * sample['shared_share']:.1f} % of "
        f"the\nsample's tokens ({100 * every['shared_share']:.1f} % of all prompts'); the packing saves "
        f"{100 * sample['saved_by_our_packing']:.1f} % ({100 * every['saved_by_our_packing']:.1f} %)."
    )


def _speed_text(found: dict[str, Any]) -> str:
    tokens = found["tokens"]
    return (
        f"oodles scores the sample in {statistics.median(found['seconds']['oodles']):.1f} s, after "
        f"{found['seconds_preparation']:.1f} s of preparation, which is done once per run: {tokens['distinct']:,}\n"
        f"distinct tokens of {tokens['all']:,}. All its linear layers alone, on batches of the same sizes, run at "
        f"{max(found['gigaflops']):.0f} GFLOP/s here; the distinct tokens go\nthrough the model at "
        f"{100 * found['gemm_share']:.0f} % of that rate (the best of {len(found['gigaflops'])}, our best "
        f"round). For all prompts, arithmetic allows "
        f"{found['bound_study_all_prompts']:.2f} x the study's way."
    )


def put_into(page: Path, text: str, before: str) -> None:
    """Replace what stands between our marks of a page; without marks, put it before another mark."""
    old = page.read_text()
    if BEGIN not in old:
        head, mark, rest = old.partition(before)
        old = f"{head}{BEGIN}\n{END}\n\n{mark}{rest}"
    head, rest = old.split(BEGIN, 1)
    page.write_text(f"{head}{BEGIN}\n\n{text}\n{END}{rest.split(END, 1)[1]}")


def draw_figure(found: dict[str, Any], path: Path) -> None:
    """Bars: how many times as long as ours everyone takes; ticks: what counted arithmetic allows."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    names = list(LABELS)[::-1]
    figure_, axes = plt.subplots(figsize=(7, 2.2), layout="constrained")
    values = [found[f"ratio_{name}"] for name in names]
    spans = np.array([found[f"range_{name}"] for name in names]).T
    errors = np.maximum(np.abs(spans - values), 0)
    axes.barh([LABELS[name] for name in names], values, color="#4c78a8", height=0.55, xerr=errors, ecolor="#333333")
    axes.scatter(
        [found[f"bound_{name}"] for name in names], range(len(names)), marker="|", s=500, color="#e45756", zorder=3,
        label="counted arithmetic allows",
    )  # fmt: skip
    axes.axvline(1, color="#333333", linewidth=0.8)
    axes.set_xlabel("seconds, as a multiple of oodles")
    axes.legend(loc="lower right", frameon=False, fontsize=8)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure_.savefig(path, dpi=90, metadata={"Software": None})
    plt.close(figure_)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=SIZE, help="prompts in the sample")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--whole", action="store_true", help="every contender scores everything in every round")
    parser.add_argument("--threads", type=int, default=0, help="default: all cores")
    parser.add_argument("--out", type=Path, help="JSON to write; the documentation is left alone")
    chosen = parser.parse_args(arguments)
    options = Options(size=chosen.size, rounds=chosen.rounds, whole=chosen.whole, threads=chosen.threads)
    found = measure(options)
    print(markdown(found))
    if chosen.out:
        save(chosen.out, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
