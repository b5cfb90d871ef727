"""Model x prompts -> one score per answer: exact, and no more arithmetic than needed.

Each distinct beginning is computed once: prompts that begin alike are packed into one row as a tree, with explicit
positions and a mask that lets a token see its own path (packing.py). Only the rows of the head that belong to answers
are multiplied. Both shortcuts are checked against the plain forward pass for the model at hand, and left out where they
do not agree. Several processes share the batches out and all get the whole result.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from oodles.errors import DataError, ModelError
from oodles.packing import Ints, Laid, Packing, Row, Sequences, lay_out, pack
from oodles.records import FloatArray, Predictions, Prompt, PromptSet
from oodles.tokens import Encoded, context_limit, encode_once

if TYPE_CHECKING:
    import torch

AGREEMENT = 1e-4  # how far a shortcut may be from the plain pass, against the largest logit, before it is dropped
AGREEMENT_HALF = 0.05  # half precision rounds differently in another order of summation
BATCH_TOKENS = {"cpu": 384}  # a batch per core that fits its cache
BATCH_TOKENS_ELSEWHERE = 8192


# rows of head: the head is a plain matrix, and only its answer rows are multiplied
# model's logits: the model applies its own head, at the positions that are read
# one by one: the plainest way, for models that take neither positions nor masks
Way = Literal["rows of head", "model's logits", "one by one"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Plan:
    """All that scoring a set needs besides the model; made once, from the whole set."""

    name: str
    sequences: Sequences  # one per prompt, or one per prompt x answer if an answer has several tokens
    targets: tuple[tuple[int, ...], ...]  # tokens of each answer
    packing: Packing
    batch_tokens: int
    way: Way = "rows of head"
    normalise: bool = False  # log-probabilities over the vocabulary, for answers of one token too
    shortened: int = 0  # prompts that were cut to fit
    ids: tuple[str, ...] = ()  # of the prompts, for messages

    @property
    def one_token(self) -> bool:
        return all(len(t) == 1 for t in self.targets)

    @property
    def tokens(self) -> int:
        """Tokens computed, padding left out."""
        return self.packing.tokens


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
    model, tokenizer : any causal language model of transformers, with or without adapters.
    prompts : a `PromptSet`, or texts together with `answers`.
    batch_tokens : how many tokens go through the model at once; default 384 per core on a CPU, 8192 elsewhere.
    normalise : log-probabilities over the whole vocabulary. Answers of several tokens always are.
    adapters : False scores the base model under its adapters.
    distributed : in a job of several processes (torch.distributed), share the prompts out; all must call this. False
        scores all prompts in the process that calls.

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
    """Tokenise a set, find shared beginnings, cut batches, and check the shortcuts on this model."""
    if any(config.is_prompt_learning for config in getattr(model, "peft_config", {}).values()):
        raise ModelError(
            "the adapter is a learnt prompt, which scoring leaves out; use one that changes the layers, such as LoRA"
        )
    encoded = encode_once(tokenizer, prompts, context_limit(causal_lm(model).config))
    sequences = sequences_of(encoded)
    budget = batch_tokens or BATCH_TOKENS.get(_device(model).type, BATCH_TOKENS_ELSEWHERE)
    plan = Plan(
        name=prompts.name,
        sequences=sequences,
        targets=encoded.targets,
        packing=pack(sequences, budget),
        batch_tokens=budget,
        normalise=normalise,
        shortened=len(encoded.shortened),
        ids=tuple(p.id for p in prompts.prompts),
    )
    return _without_failing_shortcuts(model, plan)


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
    """Scores in the order of the set; the model's mode is left as found."""
    per_item = np.zeros((len(plan.sequences), len(plan.targets) if plan.one_token else 1))
    rank, world = _process(distributed)
    with _evaluating(model):
        for index, values in _batch_by_batch(model, plan, rank, world, Room()):
            per_item[index] = values
    if world > 1:
        per_item = _summed(per_item, _device(model))
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
    every one makes the same number of forward calls, because a sharded model needs all of them for each.
    """
    import torch

    batches = plan.packing.batches
    mine = batches[rank::world]
    threads = torch.get_num_threads()
    if world > 1:
        calls = -(-len(batches) // world)
        for number in range(calls):
            found = _values(model, plan, mine[number] if number < len(mine) else batches[0], room)
            if number < len(mine):
                yield from found
        return
    if _device(model).type != "cpu" or threads == 1 or len(batches) == 1:
        for batch in mine:
            yield from _values(model, plan, batch, room)
        return
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            for found in pool.map(lambda batch: _values(model, plan, batch, room), mine):
                yield from found
    finally:
        torch.set_num_threads(threads)  # the pool's setting would be inherited by threads to come


def _values(model: Any, plan: Plan, batch: Sequence[Row], room: Room) -> list[tuple[int, Any]]:
    """The values of a batch's items. Out of memory: halve the budget for such rows, then take rows apart; go on."""
    import torch

    parts = _halves(batch, plan.sequences)
    if not parts or room.holds(batch):
        run_batch = {"rows of head": _rows_of_head, "model's logits": _models_logits, "one by one": _one_by_one}
        try:
            with torch.inference_mode():  # holds for the thread that enters it
                return list(run_batch[plan.way](model, plan, batch))
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
        room.halve(batch)
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        if not parts:
            raise ModelError(
                f"{plan.name}: out of memory on one prompt of {batch[0].length} tokens; use a smaller model or a"
                " device with more memory, or set max_tokens in the pattern"
            )
    return [value for part in parts for value in _values(model, plan, part, room)]


def is_out_of_memory(error: BaseException) -> bool:
    text = str(error).lower()
    return isinstance(error, MemoryError) or "out of memory" in text or "can't allocate memory" in text


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
def _evaluating(model: torch.nn.Module) -> Iterator[None]:
    """Evaluation mode; afterwards every module is in the mode it was in."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


@contextmanager
def _adapters(model: Any, enabled: bool) -> Iterator[None]:
    if enabled or not hasattr(model, "disable_adapter"):
        yield
        return
    with model.disable_adapter():
        yield


def causal_lm(model: Any) -> Any:
    """The causal language model inside a PEFT wrapper, if there is one."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def hidden_states(model: Any, **inputs: Any) -> torch.Tensor:
    """The last layer's output; the head is not applied."""
    output = causal_lm(model).base_model(use_cache=False, **inputs)
    return output.last_hidden_state


def _device(model: torch.nn.Module) -> torch.device:
    return next(model.parameters()).device


def _rows_of_head(model: Any, plan: Plan, batch: Sequence[Row]) -> Iterator[tuple[int, Any]]:
    """Hidden states of the batch, then only what the answers need of the head."""
    import torch

    inputs, places = _tensors(model, plan, batch)
    hidden = hidden_states(model, **inputs)
    head = causal_lm(model).get_output_embeddings()
    rows = np.concatenate([np.full(len(columns), row) for _, row, columns in places])
    wanted = hidden[torch.from_numpy(rows), torch.from_numpy(np.concatenate([columns for _, _, columns in places]))]
    if plan.one_token and not plan.normalise:
        tokens = [t[0] for t in plan.targets]
        values = wanted @ head.weight[tokens].T
        if getattr(head, "bias", None) is not None:
            values = values + head.bias[tokens]
        yield from zip((i for i, _, _ in places), values.double().cpu().numpy(), strict=True)
        return
    at = 0
    for index, _, columns in places:
        yield index, _answer_values(head(wanted[at : at + len(columns)]), plan, index)
        at += len(columns)


def _log_probability(logits: torch.Tensor, plan: Plan, index: int) -> Any:
    """Log-probabilities over the vocabulary: of every answer of one token, or of this item's answer, summed."""
    logs = logits.double().log_softmax(dim=-1)
    if plan.one_token:
        return logs[-1, [t[0] for t in plan.targets]].cpu().numpy()
    target = plan.targets[index % len(plan.targets)]
    return float(logs[range(len(target)), list(target)].sum())


def _models_logits(model: Any, plan: Plan, batch: Sequence[Row]) -> Iterator[tuple[int, Any]]:
    """For heads that are more than a matrix (soft-capping, scaling): the model's own logits, where they are read."""
    import torch

    for row in batch:
        inputs, places = _tensors(model, plan, [row])
        columns, where = np.unique(np.concatenate([c for _, _, c in places]), return_inverse=True)
        keep = torch.from_numpy(columns).to(_device(model))
        logits = causal_lm(model)(use_cache=False, logits_to_keep=keep, **inputs).logits[0]
        at = 0
        for index, _, read in places:
            yield index, _answer_values(logits[torch.from_numpy(where[at : at + len(read)])], plan, index)
            at += len(read)


def _one_by_one(model: Any, plan: Plan, batch: Sequence[Row]) -> Iterator[tuple[int, Any]]:
    """The plainest way: one item at a time, no padding, the model's own logits."""
    import torch

    for index in (i for row in batch for i in row.items):
        keep = plan.sequences.reads_of(index)
        ids = torch.from_numpy(plan.sequences[index].astype(np.int64))[None].to(_device(model))
        yield index, _answer_values(causal_lm(model)(input_ids=ids, use_cache=False).logits[0, -keep:], plan, index)


def _answer_values(logits: torch.Tensor, plan: Plan, index: int) -> Any:
    """What an item's logits say of its answers."""
    if plan.one_token and not plan.normalise:
        return logits[-1, [t[0] for t in plan.targets]].double().cpu().numpy()
    return _log_probability(logits, plan, index)


def _tensors(
    model: Any, plan: Plan, batch: Sequence[Row]
) -> tuple[dict[str, torch.Tensor], list[tuple[int, int, Ints]]]:
    """Model inputs of a batch, padded on the right, and where each item is read: (item, row, columns)."""
    import torch

    laid = [lay_out(row, plan.sequences) for row in batch]
    width = max(len(one.tokens) for one in laid)
    ids = np.zeros((len(batch), width), dtype=np.int64)
    for r, one in enumerate(laid):
        ids[r, : len(one.tokens)] = one.tokens
    places = [
        (index, r, columns)
        for r, (row, one) in enumerate(zip(batch, laid, strict=True))
        for index, columns in zip(row.items, one.columns, strict=True)
    ]
    parameter = next(model.parameters())
    inputs = {"input_ids": torch.from_numpy(ids).to(parameter.device)}
    if any(row.packed for row in batch):  # plain rows: padding comes last, causality hides it
        positions = np.zeros_like(ids)
        for r, one in enumerate(laid):
            positions[r, : len(one.tokens)] = one.positions
        inputs["position_ids"] = torch.from_numpy(positions).to(parameter.device)
        inputs["attention_mask"] = _mask(laid, width, parameter)
    return inputs, places


def _mask(laid: Sequence[Laid], width: int, parameter: torch.Tensor) -> torch.Tensor:
    """Additive mask: a token sees the tokens before it whose subtree it is in; padding sees itself."""
    import torch

    columns = np.arange(width)
    ends = np.tile(columns + 1, (len(laid), 1))
    for r, one in enumerate(laid):
        ends[r, : len(one.ends)] = one.ends
    seen = (columns[None, :] <= columns[:, None])[None] & (columns[None, :, None] < ends[:, None, :])
    lowest = torch.finfo(parameter.dtype).min
    mask = torch.zeros(seen.shape, dtype=parameter.dtype).masked_fill_(torch.from_numpy(~seen), lowest)
    return mask[:, None].to(parameter.device)


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


# the shortcuts are checked, not assumed


def _without_failing_shortcuts(model: torch.nn.Module, plan: Plan) -> Plan:
    """The quickest way whose results for a few items are those of the plainest one, for this model."""
    import torch

    first = torch.from_numpy(plan.sequences[0].astype(np.int64))[None].to(_device(model))
    ways: tuple[Way, ...] = ("rows of head", "model's logits") if head_is_plain(model, first) else ("model's logits",)
    for way in ways:
        if _agrees(model, replace(plan, way=way)):
            return replace(plan, way=way)
    plain = replace(plan, packing=pack(plan.sequences, plan.batch_tokens, share=False))
    for way in ways:
        if _agrees(model, replace(plain, way=way)):
            return replace(plain, way=way)
    return replace(plain, way="one by one")


def head_is_plain(model: Any, tokens: torch.Tensor) -> bool:
    """Whether head(hidden) is all the model does after its last layer: compared over the whole vocabulary."""
    import torch

    with _evaluating(model), torch.no_grad():
        try:
            plain = causal_lm(model).get_output_embeddings()(hidden_states(model, input_ids=tokens)[:, -1])
        except (TypeError, RuntimeError, AttributeError):
            return False
        full = causal_lm(model)(input_ids=tokens, use_cache=False).logits[:, -1]
    return float((plain - full).abs().max()) <= _tolerance(model) * max(1.0, float(full.abs().max()))


def _agrees(model: torch.nn.Module, plan: Plan) -> bool:
    """Whether a plan's way gives the plainest way's scores, on a packed row and on a plain one."""
    import torch

    batches = plan.packing.batches
    probes = [batch[:1] for batch in batches if batch[0].packed][:1]
    probes += [batch[:1] for batch in batches if not batch[0].packed][:1]
    for batch in probes:
        with _evaluating(model), torch.inference_mode():
            try:
                fast = dict((_rows_of_head if plan.way == "rows of head" else _models_logits)(model, plan, batch))
            except (TypeError, RuntimeError, AttributeError, ValueError) as error:
                if is_out_of_memory(error):
                    continue  # seen to when the set is scored
                return False  # e.g. an architecture that takes no explicit positions
            few = [Row((i,), (0,), len(plan.sequences[i])) for i in batch[0].items[-4:]]
            slow = dict(_one_by_one(model, plan, few))
        scale = max(1.0, *(float(np.abs(v).max()) for v in slow.values()))
        if any(np.abs(np.asarray(fast[i]) - slow[i]).max() > _tolerance(model) * scale for i in slow):
            return False
    return True


def _tolerance(model: torch.nn.Module) -> float:
    import torch

    return AGREEMENT if next(model.parameters()).dtype == torch.float32 else AGREEMENT_HALF
