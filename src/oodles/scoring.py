"""Model x prompts -> one score per answer: exact, and no more arithmetic than needed.

Each distinct prefix is computed once: prompts that share one (a premise with several hypotheses) are packed into one
row, with explicit positions and a mask that keeps them apart. Only the rows of the head that belong to answers are
multiplied. Both shortcuts are checked against the plain forward pass for the model at hand, and left out where they do
not agree.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from oodles.errors import DataError, ModelError
from oodles.records import FloatArray, Predictions, PromptSet
from oodles.tokens import context_limit, encode

if TYPE_CHECKING:
    import torch

SHARED_AT_LEAST = 6  # tokens; a shorter common prefix is not worth a mask
ROW_AT_MOST = 512  # tokens in a packed row, unless a single prompt is longer
AGREEMENT = 1e-3  # how far a shortcut may be from the plain pass, in log-probability, before it is dropped


@dataclass(frozen=True, slots=True)
class Item:
    """A token sequence and the positions whose next-token distribution is wanted."""

    tokens: tuple[int, ...]
    reads: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """Items packed behind their common prefix."""

    prefix: int  # tokens that all items share
    items: tuple[int, ...]  # indices into the plan's items
    length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All that scoring a set needs besides the model; made once, from the whole set."""

    name: str
    items: tuple[Item, ...]  # one per prompt, or one per prompt x answer if an answer has several tokens
    targets: tuple[tuple[int, ...], ...]  # tokens of each answer
    batches: tuple[tuple[Row, ...], ...]
    rows_of_head: bool = True  # the head is a plain matrix
    batch_tokens: int = 2048
    shortened: int = 0  # prompts that were cut to fit

    @property
    def one_token(self) -> bool:
        return all(len(t) == 1 for t in self.targets)

    @property
    def tokens(self) -> int:
        """Tokens computed, padding left out."""
        return sum(row.length for batch in self.batches for row in batch)


def score(
    model: torch.nn.Module,
    tokenizer: Any,
    prompts: PromptSet | Sequence[str],
    answers: Sequence[str] | None = None,
    *,
    batch_tokens: int = 2048,
) -> FloatArray:
    """One score per answer for every prompt: log-probabilities up to a constant per prompt.

    Parameters
    ----------
    model, tokenizer : any causal language model of transformers, with or without adapters.
    prompts : a `PromptSet`, or texts together with `answers`.
    batch_tokens : how many tokens go through the model at once.

    Returns
    -------
    Array of shape (prompts, answers).

    Examples
    --------
    >>> oo.score(model, tokenizer, ["It rains. Question: Is it dry? Yes or No?"], [" Yes", " No"])  # doctest: +SKIP
    """
    if not isinstance(prompts, PromptSet):
        if answers is None:
            raise DataError("score: answers are missing; give e.g. answers=[' Yes', ' No']")
        prompts = texts_as_set(prompts, answers)
    return execute(model, prepare(model, tokenizer, prompts, batch_tokens=batch_tokens))


def texts_as_set(texts: Sequence[str], answers: Sequence[str]) -> PromptSet:
    """Plain texts as a set without gold answers."""
    from oodles.records import Prompt

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


def prepare(model: torch.nn.Module, tokenizer: Any, prompts: PromptSet, *, batch_tokens: int = 2048) -> Plan:
    """Tokenise a set, find shared prefixes, cut batches, and check the shortcuts on this model."""
    encoded = encode(tokenizer, prompts, context_limit(causal_lm(model).config))
    items = _items(encoded.prompts, encoded.targets)
    plan = _cut(
        Plan(
            name=prompts.name,
            items=items,
            targets=encoded.targets,
            batches=(),
            batch_tokens=batch_tokens,
            shortened=len(encoded.shortened),
        ),
        share_prefixes(items),
    )
    return _without_failing_shortcuts(model, plan)


def _items(encoded: Sequence[tuple[int, ...]], targets: tuple[tuple[int, ...], ...]) -> tuple[Item, ...]:
    if all(len(t) == 1 for t in targets):
        return tuple(Item(ids, (len(ids) - 1,)) for ids in encoded)
    return tuple(
        Item((*ids, *target[:-1]), tuple(range(len(ids) - 1, len(ids) + len(target) - 1)))
        for ids in encoded
        for target in targets
    )


def share_prefixes(items: Sequence[Item]) -> list[Row]:
    """Rows of items with a common prefix. Sorted by tokens, items that share one are neighbours."""
    order = sorted(range(len(items)), key=lambda i: (items[i].tokens, i))
    rows: list[Row] = []
    for index in order:
        grown = _grow(rows[-1], index, items) if rows else None
        if grown is None:
            rows.append(Row(prefix=0, items=(index,), length=len(items[index].tokens)))
        else:
            rows[-1] = grown
    return rows


def _grow(row: Row, index: int, items: Sequence[Item]) -> Row | None:
    """The row with one more item behind the common prefix, if that saves tokens."""
    first, last, new = items[row.items[0]], items[row.items[-1]], items[index]
    at_most = min(new.reads[0], row.prefix or first.reads[0])  # a prefix ends before the first read position
    common = 0
    while common < at_most and last.tokens[common] == new.tokens[common]:
        common += 1
    lost = (row.prefix - common) * (len(row.items) - 1) if row.prefix else 0
    if common < SHARED_AT_LEAST or lost >= common:
        return None
    members = (*row.items, index)
    length = common + sum(len(items[i].tokens) - common for i in members)
    return Row(prefix=common, items=members, length=length) if length <= ROW_AT_MOST else None


def _cut(plan: Plan, rows: Sequence[Row]) -> Plan:
    """Batches by token budget; packed rows apart from plain ones, which need no mask."""
    batches: list[tuple[Row, ...]] = []
    for packed in (True, False):
        kind = sorted((r for r in rows if (len(r.items) > 1) == packed), key=lambda r: (-r.length, r.items))
        batch: list[Row] = []
        for row in kind:
            if batch and batch[0].length * (len(batch) + 1) > plan.batch_tokens:
                batches.append(tuple(batch))
                batch = []
            batch.append(row)
        if batch:
            batches.append(tuple(batch))
    return replace(plan, batches=tuple(batches))


# execution


def execute(model: torch.nn.Module, plan: Plan) -> FloatArray:
    """Scores in the order of the set; the model's mode is left as found."""
    per_item = np.zeros((len(plan.items), len(plan.targets) if plan.one_token else 1))
    with _evaluating(model):
        for index, values in _batch_by_batch(model, plan):
            per_item[index] = values
    scores = per_item if plan.one_token else per_item.reshape(-1, len(plan.targets))
    bad = np.flatnonzero(~np.isfinite(scores).all(axis=1))
    if len(bad):
        raise ModelError(f"{plan.name}: the model gave {scores[bad[0]]} for example number {bad[0]}; it is not finite")
    return scores


def _batch_by_batch(model: torch.nn.Module, plan: Plan) -> Iterator[tuple[int, Any]]:
    """The values of all items. On a CPU, a batch per core beats all cores on one batch: no core waits for another."""
    import torch

    run_batch = _rows_of_head if plan.rows_of_head else _all_of_head

    def values(batch: tuple[Row, ...]) -> list[tuple[int, Any]]:
        with torch.inference_mode():  # holds for the thread that enters it
            return list(run_batch(model, plan, batch))

    threads = torch.get_num_threads()
    if next(model.parameters()).device.type != "cpu" or threads == 1:
        for batch in plan.batches:
            yield from values(batch)
        return
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            for found in pool.map(values, plan.batches):
                yield from found
    finally:
        torch.set_num_threads(threads)  # the pool's setting would be inherited by threads to come


@contextmanager
def _evaluating(model: torch.nn.Module) -> Iterator[None]:
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


def causal_lm(model: Any) -> Any:
    """The causal language model inside a PEFT wrapper, if there is one."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def hidden_states(model: Any, **inputs: Any) -> torch.Tensor:
    """The last layer's output; the head is not applied."""
    output = causal_lm(model).base_model(use_cache=False, **inputs)
    return output.last_hidden_state


def _rows_of_head(model: Any, plan: Plan, batch: Sequence[Row]) -> Iterator[tuple[int, Any]]:
    """Hidden states of the batch, then only what the answers need of the head."""
    inputs, places = _tensors(model, plan, batch)
    hidden = hidden_states(model, **inputs)
    head = causal_lm(model).get_output_embeddings()
    rows, columns = zip(*((r, c) for _, r, cs in places for c in cs), strict=True)
    wanted = hidden[list(rows), list(columns)]
    if plan.one_token:
        tokens = [t[0] for t in plan.targets]
        values = wanted @ head.weight[tokens].T
        if getattr(head, "bias", None) is not None:
            values = values + head.bias[tokens]
        yield from zip((i for i, _, _ in places), values.double().cpu().numpy(), strict=True)
        return
    at = 0
    for index, _, columns_of in places:
        yield index, _log_probability(head(wanted[at : at + len(columns_of)]), plan.targets[index % len(plan.targets)])
        at += len(columns_of)


def _log_probability(logits: torch.Tensor, target: tuple[int, ...]) -> float:
    """Summed log-probability of an answer of several tokens."""
    logs = logits.double().log_softmax(dim=-1)
    return float(logs[range(len(target)), list(target)].sum())


def _all_of_head(model: Any, plan: Plan, batch: Sequence[Row]) -> Iterator[tuple[int, Any]]:
    """The plain way, for heads that are more than a matrix: one item at a time, the model's own logits."""
    import torch

    device = next(model.parameters()).device
    for index in (i for row in batch for i in row.items):
        item = plan.items[index]
        keep = len(item.tokens) - item.reads[0]
        ids = torch.tensor([item.tokens], device=device)
        logits = causal_lm(model)(input_ids=ids, use_cache=False, logits_to_keep=keep).logits[0, -keep:]
        if plan.one_token:
            yield index, logits[-1, [t[0] for t in plan.targets]].double().cpu().numpy()
        else:
            yield index, _log_probability(logits, plan.targets[index % len(plan.targets)])


def _tensors(
    model: Any, plan: Plan, batch: Sequence[Row]
) -> tuple[dict[str, torch.Tensor], list[tuple[int, int, list[int]]]]:
    """Model inputs of a batch, padded on the right, and where each item is read: (item, row, columns)."""
    import torch

    width = max(row.length for row in batch)
    ids = np.zeros((len(batch), width), dtype=np.int64)
    positions = np.zeros_like(ids)
    segment = np.full_like(ids, -1)  # 0: shared prefix, 1...: items, -1: padding
    places = []
    for r, row in enumerate(batch):
        at = row.prefix
        first = plan.items[row.items[0]].tokens
        ids[r, :at], positions[r, :at], segment[r, :at] = first[:at], np.arange(at), 0
        for s, index in enumerate(row.items, start=1):
            item = plan.items[index]
            size = len(item.tokens) - row.prefix
            ids[r, at : at + size] = item.tokens[row.prefix :]
            positions[r, at : at + size] = np.arange(row.prefix, len(item.tokens))
            segment[r, at : at + size] = s
            places.append((index, r, [at + read - row.prefix for read in item.reads]))
            at += size
    parameter = next(model.parameters())
    inputs = {"input_ids": torch.from_numpy(ids).to(parameter.device)}
    if any(len(row.items) > 1 for row in batch):  # plain rows: padding comes last, causality hides it
        inputs["position_ids"] = torch.from_numpy(positions).to(parameter.device)
        inputs["attention_mask"] = _mask(torch.from_numpy(segment), parameter)
    return inputs, places


def _mask(segment: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
    """Additive mask: a token sees the shared prefix and the earlier tokens of its own segment."""
    import torch

    width = segment.shape[1]
    causal = torch.ones(width, width, dtype=torch.bool).tril()
    own = segment[:, :, None] == segment[:, None, :]
    shared = (segment == 0)[:, None, :] & (segment >= 0)[:, :, None]
    seen = (own | shared) & causal
    mask = torch.zeros(seen.shape, dtype=parameter.dtype).masked_fill(~seen, torch.finfo(parameter.dtype).min)
    return mask[:, None].to(parameter.device)


# the shortcuts are checked, not assumed


def _without_failing_shortcuts(model: torch.nn.Module, plan: Plan) -> Plan:
    """Compare a few items with the plain pass; drop packing, then the rows of the head, where they differ."""
    probe = replace(plan, batches=(plan.batches[0][:1],))
    indices = [i for row in probe.batches[0] for i in row.items][:4]
    plain = _cut(plan, [Row(prefix=0, items=(i,), length=len(plan.items[i].tokens)) for i in range(len(plan.items))])
    if _agrees(model, probe, indices):
        return plan
    one = replace(plain, batches=((Row(prefix=0, items=(indices[0],), length=len(plan.items[indices[0]].tokens)),),))
    if _agrees(model, one, indices[:1]):
        return plain
    return replace(plain, rows_of_head=False)


def _agrees(model: torch.nn.Module, plan: Plan, indices: Sequence[int]) -> bool:
    import torch

    rows = tuple(Row(prefix=0, items=(i,), length=len(plan.items[i].tokens)) for i in indices)
    with _evaluating(model), torch.inference_mode():
        try:
            fast = dict(_rows_of_head(model, plan, plan.batches[0]))
        except (TypeError, RuntimeError, AttributeError, ValueError):
            return False  # e.g. an architecture that takes no explicit positions
        slow = dict(_all_of_head(model, plan, rows))
    # half precision rounds differently in another order of summation
    bound = AGREEMENT if next(model.parameters()).dtype == torch.float32 else 0.1
    return all(_differ(fast[i], slow[i]) < bound for i in indices)


def _differ(a: Any, b: Any) -> float:
    """Largest difference up to the constant per prompt that a score leaves open."""
    a, b = np.atleast_1d(a), np.atleast_1d(b)
    shift = (a - b).mean() if len(a) > 1 else 0.0
    return float(np.abs(a - b - shift).max())
