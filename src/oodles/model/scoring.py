"""Score prompts with a model: one score per answer, exact, with as little arithmetic as possible.

Each distinct prefix is computed once: prompts with a common prefix are packed into one row as a tree, with explicit
positions and a mask that lets a token see its own path (prefix_trees.py). Only the answers' rows of the head are
multiplied (forward.py). Both shortcuts are compared with the plain forward pass of the given model and disabled if the
results differ (shortcuts.py). Several processes share the batches, and each gets the whole result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from oodles.contracts import Choice, FloatArray, Predictions, Prompt, PromptSet
from oodles.errors import DataError, ModelError
from oodles.model.choice_tokens import EncodedChoices, encode_sets
from oodles.model.choices import by_prompt, judged, owners
from oodles.model.forward import (
    Plan,
    causal_lm,
    device_of,
    evaluating,
    inside,
    is_out_of_memory,
    is_sharded,
    run_batch,
    without_gradients,
)
from oodles.model.load import free_memory
from oodles.model.prefix_trees import Row, Sequences, pack_rows
from oodles.model.shortcuts import choose_ways
from oodles.model.tokens import Encoded, context_limit

if TYPE_CHECKING:
    import torch

BATCH_TOKENS = {"cpu": 384}  # one batch per core, which fits its cache
BATCH_TOKENS_ELSEWHERE = 8192
STRETCH = 2  # rows of choices may be twice as long as what they share, which another row would repeat


def score(
    model: torch.nn.Module,
    tokenizer: Any,
    prompts: PromptSet | Sequence[str],
    answers: Sequence[str] | Sequence[Sequence[str]] | None = None,
    *,
    batch_tokens: int | None = None,
    normalise: bool = False,
    adapters: bool = True,
    distributed: bool = True,
) -> FloatArray:
    """Return one score per answer for every prompt: log-probabilities up to a constant per prompt.

    Parameters
    ----------
    model
        Any causal language model of transformers, with or without adapters.
    tokenizer
        The model's tokenizer.
    prompts
        A `PromptSet`, or texts together with `answers`.
    answers
        The texts to choose from, each with its leading space; only with texts as `prompts`. A list of such texts for
        every prompt, if prompts have their own.
    batch_tokens
        How many tokens go through the model at once; default 384 per core on a CPU, 8192 elsewhere.
    normalise
        Return log-probabilities over the whole vocabulary. Answers of several tokens always use them.
    adapters
        False scores the base model without its adapters.
    distributed
        In a job of several processes (torch.distributed), share the prompts out; all must call this. False scores all
        prompts in the process that calls.

    Returns
    -------
    numpy.ndarray
        Of shape (prompts, answers). Prompts with their own answers always have log-probabilities over the vocabulary;
        nan where one has fewer answers than another.

    Examples
    --------
    >>> oo.score(model, tokenizer, ["It rains. Question: Is it dry? Yes or No?"], [" Yes", " No"])  # doctest: +SKIP
    """
    if not isinstance(prompts, PromptSet):
        if answers is None:
            raise DataError("score: answers are missing; give e.g. answers=[' Yes', ' No']")
        prompts = texts_as_set(prompts, answers)
    with _adapters(model, adapters):
        plan = prepare(model, tokenizer, prompts, batch_tokens=batch_tokens, normalise=normalise)
        values = execute(model, plan, distributed=distributed)
        return values if plan.counts is None else by_prompt(values, plan.counts)


def texts_as_set(texts: Sequence[str], answers: Sequence[str] | Sequence[Sequence[str]]) -> PromptSet:
    """Wrap plain texts as a set without gold answers."""
    own = [(answer,) if isinstance(answer, str) else tuple(answer) for answer in answers]
    if all(isinstance(answer, str) for answer in answers):
        prompts = tuple(Prompt(id=str(i), text=text, gold=-1) for i, text in enumerate(texts))
        return PromptSet(name="prompts", answers=tuple(answer for (answer,) in own), prompts=prompts)
    if len(texts) != len(own) or any(isinstance(answer, str) for answer in answers):
        raise DataError(f"score: {len(texts)} prompts, but {len(own)} lists of answers; expected a list for each")
    prompts = tuple(
        Prompt(
            id=str(i),
            text=text,
            gold=-1,
            choices=tuple(Choice(context=text, continuation=answer, text=answer) for answer in some),
        )
        for i, (text, some) in enumerate(zip(texts, own, strict=True))
    )
    return PromptSet(name="prompts", answers=(), prompts=prompts)


def predict(model: torch.nn.Module, plan: Plan, prompts: PromptSet) -> Predictions:
    """Score a prepared set; return the scores with ids and gold answers."""
    if plan.counts is not None:
        return judged(prompts, plan, execute(model, plan))
    return Predictions(
        test_set=prompts.name,
        answers=prompts.answers,
        ids=tuple(p.id for p in prompts.prompts),
        scores=execute(model, plan),
        gold=np.array([p.gold for p in prompts.prompts], dtype=np.int64),
    )


# the plan


def prepare(
    model: torch.nn.Module,
    tokenizer: Any,
    prompts: PromptSet,
    *,
    batch_tokens: int | None = None,
    normalise: bool = False,
) -> Plan:
    """Prepare the plan of one set; `prepare_all` checks the shortcuts once for several sets."""
    return prepare_all(model, tokenizer, [prompts], batch_tokens=batch_tokens, normalise=normalise)[0]


def prepare_all(
    model: torch.nn.Module,
    tokenizer: Any,
    sets: Sequence[PromptSet],
    *,
    batch_tokens: int | None = None,
    normalise: bool = False,
) -> tuple[Plan, ...]:
    """Tokenise sets, find shared prefixes, form batches, and check the shortcuts on this model."""
    if any(config.is_prompt_learning for config in getattr(model, "peft_config", {}).values()):
        raise ModelError("prompt-learning adapters are not supported; use an adapter inside the layers, such as LoRA")
    limit = context_limit(causal_lm(model).config)
    budget = batch_tokens or BATCH_TOKENS.get(device_of(model).type, BATCH_TOKENS_ELSEWHERE)
    encoded = encode_sets(tokenizer, sets, limit)
    plans = [_draft(tokens, prompts, budget, normalise) for tokens, prompts in zip(encoded, sets, strict=True)]
    return choose_ways(model, plans)


def _draft(encoded: Encoded | EncodedChoices, prompts: PromptSet, batch_tokens: int, normalise: bool) -> Plan:
    """Return a plan whose way of scoring is not yet chosen."""
    sequences = sequences_of(encoded)
    own = isinstance(encoded, EncodedChoices)
    return Plan(
        name=prompts.name,
        sequences=sequences,
        targets=encoded.targets,
        packing=pack_rows(sequences, batch_tokens, stretch=STRETCH if own else 0),
        batch_tokens=batch_tokens,
        normalise=normalise,
        shortened=len(encoded.shortened),
        ids=tuple(p.id for p in prompts.prompts),
        counts=encoded.counts if isinstance(encoded, EncodedChoices) else None,
        base=encoded.base if isinstance(encoded, EncodedChoices) and len(encoded.base) else None,
    )


def sequences_of(encoded: Encoded | EncodedChoices) -> Sequences:
    """Return the sequences to compute: the prompts, or each prompt with each answer except its last token."""
    if isinstance(encoded, EncodedChoices):
        return encoded.sequences
    if all(len(t) == 1 for t in encoded.targets):
        return Sequences(tokens=encoded.tokens, starts=encoded.starts, reads=1)
    parts, sizes = [], [0]
    for first, end in zip(encoded.starts, encoded.starts[1:], strict=False):
        for target in encoded.targets:
            parts += [encoded.tokens[first:end], np.array(target[:-1], dtype=np.int32)]
            sizes.append(int(end - first) + len(target) - 1)
    return Sequences(
        tokens=np.concatenate(parts),
        starts=np.cumsum(sizes, dtype=np.int64),
        reads=tuple(len(t) for t in encoded.targets),
    )


# execution


def execute(model: torch.nn.Module, plan: Plan, *, distributed: bool = True) -> FloatArray:
    """Return the scores in the order of the set; the model's mode is unchanged.

    Of shape (prompts, answers); if prompts have their own choices, one score per sequence of the plan.
    """
    per_item = np.zeros((len(plan.sequences), len(plan.targets) if plan.one_token else 1))
    rank, world = _process(distributed)
    with evaluating(model, plan.answer_tokens):
        for index, values in _batch_by_batch(model, plan, rank, world, Room()):
            per_item[index] = values
    if world > 1:
        per_item = _summed(per_item, device_of(model))
    if plan.counts is not None:
        scores = per_item  # one per sequence
    else:
        scores = per_item if plan.one_token else per_item.reshape(-1, len(plan.targets))
    bad = np.flatnonzero(~np.isfinite(scores).all(axis=1))
    if len(bad):
        which = plan.ids[bad[0] if plan.counts is None else owners(plan)[bad[0]]]
        raise ModelError(
            f"{plan.name}: the model gave {scores[bad[0]]} for example {which}, and for {len(bad)} of {len(scores)} in"
            " all; scores must be finite: look at the weights, or at the precision they are loaded in"
        )
    return scores if plan.counts is None else scores[:, 0]


@dataclass(frozen=True, slots=True)
class Room:
    """Memory limits learned so far: how many tokens fit, for rows of a given length or longer."""

    tokens: dict[int, int] = field(default_factory=dict)

    def holds(self, batch: Sequence[Row]) -> bool:
        """Whether a batch is smaller than the batches of similar rows that were too large."""
        width = max(row.length for row in batch)
        return all(len(batch) * width <= most for length, most in self.tokens.items() if 2 * width > length)

    def halve(self, batch: Sequence[Row]) -> None:
        """Halve the token budget after a batch was too large, for rows more than half as long."""
        width = max(row.length for row in batch)
        self.tokens[width] = min(len(batch) * width // 2, self.tokens.get(width, len(batch) * width))


def _batch_by_batch(model: torch.nn.Module, plan: Plan, rank: int, world: int, room: Room) -> Iterator[tuple[int, Any]]:
    """Yield the values of this process's items.

    On a CPU, one batch per core is faster than all cores on one batch, because no core waits for another. In a job of
    several processes, each makes the same number of forward calls, because a sharded model needs all of them for each
    call.
    """
    import torch

    batches = plan.packing.batches if world == 1 else _one_call_each(plan)
    mine = batches[rank::world]
    threads = torch.get_num_threads()
    if world > 1:
        calls = -(-len(batches) // world)
        for number in range(calls):
            values = _values(model, plan, mine[number] if number < len(mine) else batches[0], room)
            if number < len(mine):
                yield from values
        return
    if device_of(model).type != "cpu" or threads == 1 or len(batches) == 1:
        for batch in mine:
            yield from _values(model, plan, batch, room)
        return
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            for values in pool.map(lambda batch: _values(model, plan, batch, room), mine):
                yield from values
    finally:
        torch.set_num_threads(threads)  # new threads would inherit the pool's setting


def _one_call_each(plan: Plan) -> Sequence[Sequence[Row]]:
    """Return batches that take one forward call each: only rows of the head are computed for several rows at once."""
    if plan.way == "rows of head":
        return plan.packing.batches
    return [(row,) for batch in plan.packing.batches for row in batch]


def _values(model: Any, plan: Plan, batch: Sequence[Row], room: Room) -> list[tuple[int, Any]]:
    """Return the values of a batch's items; out of memory, halve the budget for such rows, then split rows."""
    parts = _halves(batch, plan.sequences)
    if not parts or room.holds(batch):
        try:
            with without_gradients(model):  # applies only to the thread that enters it
                return inside(model, lambda: list(run_batch(model, plan, batch)))
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
        if is_sharded(model):  # the other processes are in the middle of this call
            raise ModelError(
                f"{plan.name}: out of memory on a batch of {plan.batch_tokens} tokens; a sharded model cannot try a"
                " smaller one by itself: halve [eval] batch_tokens"
            )
        room.halve(batch)
        free_memory()
        if not parts:
            raise ModelError(
                f"{plan.name}: out of memory on one prompt of {batch[0].length} tokens; use a smaller model or a"
                " device with more memory, or set max_tokens in the pattern"
            )
    return [value for part in parts for value in _values(model, plan, part, room)]


def _halves(batch: Sequence[Row], sequences: Sequences) -> list[Sequence[Row]]:
    """Split a batch into two with the same items; empty if there is only one item."""
    if len(batch) > 1:
        return [batch[: len(batch) // 2], batch[len(batch) // 2 :]]
    items = batch[0].items
    if len(items) == 1:
        return []
    alone = [Row((i,), (0,), len(sequences[i])) for i in items]
    return [alone[: len(items) // 2], alone[len(items) // 2 :]]


@contextmanager
def _adapters(model: Any, enabled: bool) -> Iterator[None]:
    if enabled or not hasattr(model, "disable_adapter"):
        yield
        return
    with model.disable_adapter():
        yield


# several processes


def _process(distributed: bool) -> tuple[int, int]:
    """Return this process's rank and the number of processes."""
    import torch.distributed as dist

    if not distributed or not dist.is_available() or not dist.is_initialized():
        return 0, 1
    return dist.get_rank(), dist.get_world_size()


def _summed(values: FloatArray, device: torch.device) -> FloatArray:
    """Sum over all processes: each has filled its own part of the array and left zeros elsewhere."""
    import torch
    import torch.distributed as dist

    tensor = torch.from_numpy(values)
    if dist.get_backend() == "nccl":
        tensor = tensor.to(device)
    dist.all_reduce(tensor)
    return np.asarray(tensor.cpu().numpy(), dtype=np.float64)
