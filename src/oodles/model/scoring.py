"""Model x prompts -> one score per answer: exact, and no more arithmetic than needed.

Each distinct beginning is computed once: prompts that begin alike are packed into one row as a tree, with explicit
positions and a mask that lets a token see its own path (packing.py). Only the rows of the head that belong to answers
are multiplied (forward.py). Both shortcuts are checked against the plain forward pass for the model at hand, and left
out where they do not agree (shortcuts.py). Several processes share the batches out and all get the whole result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from oodles.contracts import FloatArray, Predictions, Prompt, PromptSet
from oodles.errors import DataError, ModelError
from oodles.model.forward import Plan, causal_lm, device_of, evaluating, is_out_of_memory, run_batch
from oodles.model.load import free_memory
from oodles.model.prefix_trees import Row, Sequences, pack_rows
from oodles.model.shortcuts import choose_ways
from oodles.model.tokens import Encoded, context_limit, encode_all

if TYPE_CHECKING:
    import torch

BATCH_TOKENS = {"cpu": 384}  # a batch per core that fits its cache
BATCH_TOKENS_ELSEWHERE = 8192


def score(
    model: torch.nn.Module,
    tokenizer: Any,
    prompts: PromptSet | Sequence[str],
    answers: Sequence[str] | None = None,
    *,
    batch_tokens: int | None = None,
    normalise: bool = False,
    adapters: bool = True,
    distributed: bool = True,
) -> FloatArray:
    """One score per answer for every prompt: log-probabilities up to a constant per prompt.

    Parameters
    ----------
    model
        Any causal language model of transformers, with or without adapters.
    tokenizer
        The model's tokenizer.
    prompts
        A `PromptSet`, or texts together with `answers`.
    answers
        The texts to choose from, each with its leading space; only with texts as `prompts`.
    batch_tokens
        How many tokens go through the model at once; default 384 per core on a CPU, 8192 elsewhere.
    normalise
        Log-probabilities over the whole vocabulary. Answers of several tokens always are.
    adapters
        False scores the base model under its adapters.
    distributed
        In a job of several processes (torch.distributed), share the prompts out; all must call this. False scores all
        prompts in the process that calls.

    Returns
    -------
    numpy.ndarray
        Of shape (prompts, answers).

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
        return execute(model, plan, distributed=distributed)


def texts_as_set(texts: Sequence[str], answers: Sequence[str]) -> PromptSet:
    """Plain texts as a set without gold answers."""
    prompts = tuple(Prompt(id=str(i), text=text, gold=-1) for i, text in enumerate(texts))
    return PromptSet(name="prompts", answers=tuple(answers), prompts=prompts)


def predict(model: torch.nn.Module, plan: Plan, prompts: PromptSet) -> Predictions:
    """The scores of a prepared set, with its ids and gold answers."""
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
    """The plan of one set; see `prepare_all`, which checks the shortcuts once for several."""
    return prepare_all(model, tokenizer, [prompts], batch_tokens=batch_tokens, normalise=normalise)[0]


def prepare_all(
    model: torch.nn.Module,
    tokenizer: Any,
    sets: Sequence[PromptSet],
    *,
    batch_tokens: int | None = None,
    normalise: bool = False,
) -> tuple[Plan, ...]:
    """Tokenise sets, find shared beginnings, cut batches, and check the shortcuts on this model."""
    if any(config.is_prompt_learning for config in getattr(model, "peft_config", {}).values()):
        raise ModelError(
            "the adapter is a learnt prompt, which scoring leaves out; use one that changes the layers, such as LoRA"
        )
    limit = context_limit(causal_lm(model).config)
    budget = batch_tokens or BATCH_TOKENS.get(device_of(model).type, BATCH_TOKENS_ELSEWHERE)
    encoded = encode_all(tokenizer, sets, limit)
    plans = [_draft(tokens, prompts, budget, normalise) for tokens, prompts in zip(encoded, sets, strict=True)]
    return choose_ways(model, plans)


def _draft(encoded: Encoded, prompts: PromptSet, batch_tokens: int, normalise: bool) -> Plan:
    """A plan whose way is still to be chosen."""
    sequences = sequences_of(encoded)
    return Plan(
        name=prompts.name,
        sequences=sequences,
        targets=encoded.targets,
        packing=pack_rows(sequences, batch_tokens),
        batch_tokens=batch_tokens,
        normalise=normalise,
        shortened=len(encoded.shortened),
        ids=tuple(p.id for p in prompts.prompts),
    )


def sequences_of(encoded: Encoded) -> Sequences:
    """What goes through the model: the prompts, or each prompt with each answer but its last token."""
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
    """Scores in the order of the set; the model's mode is restored."""
    per_item = np.zeros((len(plan.sequences), len(plan.targets) if plan.one_token else 1))
    rank, world = _process(distributed)
    with evaluating(model, plan.answer_tokens):
        for index, values in _batch_by_batch(model, plan, rank, world, Room()):
            per_item[index] = values
    if world > 1:
        per_item = _summed(per_item, device_of(model))
    scores = per_item if plan.one_token else per_item.reshape(-1, len(plan.targets))
    bad = np.flatnonzero(~np.isfinite(scores).all(axis=1))
    if len(bad):
        which = plan.ids[bad[0]]
        raise ModelError(
            f"{plan.name}: the model gave {scores[bad[0]]} for example {which}, and for {len(bad)} of {len(scores)} in"
            " all; scores must be finite: look at the weights, or at the precision they are loaded in"
        )
    return scores


@dataclass(frozen=True, slots=True)
class Room:
    """What was learnt of the memory: how many tokens fit, for rows of some length and longer."""

    tokens: dict[int, int] = field(default_factory=dict)

    def holds(self, batch: Sequence[Row]) -> bool:
        """Whether a batch is smaller than those that were too large, or unlike them."""
        width = max(row.length for row in batch)
        return all(len(batch) * width <= most for length, most in self.tokens.items() if 2 * width > length)

    def halve(self, batch: Sequence[Row]) -> None:
        """This batch was too large: half as many tokens from now on, for rows more than half as long."""
        width = max(row.length for row in batch)
        self.tokens[width] = min(len(batch) * width // 2, self.tokens.get(width, len(batch) * width))


def _batch_by_batch(model: torch.nn.Module, plan: Plan, rank: int, world: int, room: Room) -> Iterator[tuple[int, Any]]:
    """The values of this process's items.

    On a CPU, a batch per core beats all cores on one batch: no core waits for another. In a job of several processes
    each makes the same number of forward calls, because a sharded model needs all processes for every call.
    """
    import torch

    batches = plan.packing.batches
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
        torch.set_num_threads(threads)  # the pool's setting would be inherited by threads to come


def _values(model: Any, plan: Plan, batch: Sequence[Row], room: Room) -> list[tuple[int, Any]]:
    """The values of a batch's items. Out of memory: halve the budget for such rows, then take rows apart; go on."""
    import torch

    parts = _halves(batch, plan.sequences)
    if not parts or room.holds(batch):
        try:
            with torch.inference_mode():  # holds for the thread that enters it
                return list(run_batch(model, plan, batch))
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
        room.halve(batch)
        free_memory()
        if not parts:
            raise ModelError(
                f"{plan.name}: out of memory on one prompt of {batch[0].length} tokens; use a smaller model or a"
                " device with more memory, or set max_tokens in the pattern"
            )
    return [value for part in parts for value in _values(model, plan, part, room)]


def _halves(batch: Sequence[Row], sequences: Sequences) -> list[Sequence[Row]]:
    """Two smaller batches with the same items; none if there is only one item."""
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
    """This process's number and how many there are."""
    import torch.distributed as dist

    if not distributed or not dist.is_available() or not dist.is_initialized():
        return 0, 1
    return dist.get_rank(), dist.get_world_size()


def _summed(values: FloatArray, device: torch.device) -> FloatArray:
    """The sum over all processes: each has filled its own part of the array and left zeros elsewhere."""
    import torch
    import torch.distributed as dist

    tensor = torch.from_numpy(values)
    if dist.get_backend() == "nccl":
        tensor = tensor.to(device)
    dist.all_reduce(tensor)
    return np.asarray(tensor.cpu().numpy(), dtype=np.float64)
