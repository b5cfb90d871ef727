"""Run a batch through the model: hidden states, and only the part of the head that the answers need.

Weights may be in half precision, but logits never are. Rounded to bf16 they are .125 apart near 20, so answers tie and
the first one wins. The head's product is therefore computed in fp32 from the model's hidden state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from oodles.model.prefix_trees import Ints, Packing, Row, RowLayout, Sequences, lay_out

if TYPE_CHECKING:
    import torch

AGREEMENT = 1e-4  # allowed relative difference between two ways to compute the same numbers
VOCABULARY_AT_ONCE = 8192  # rows of a half-precision head that are copied to fp32 at a time
ITEMS_AT_ONCE = 32  # items that share such a copy
POSITIONS_AT_ONCE = 128  # positions of choices whose logits are held at a time

WINDOWED = "sliding_attention"  # what transformers calls layers that see only a window

ENTRY = "_oodles_entry"  # attribute of a model that several processes share: the module to call it through
T = TypeVar("T")
Bools = npt.NDArray[np.bool_]

# rows of head: the head is a plain matrix, and only its answer rows are multiplied
# model's logits: the model applies its own head, at the positions that are read
# one by one: the plain way, for models that accept neither positions nor masks
Way = Literal["rows of head", "model's logits", "one by one"]
Withheld = Literal["mask", "positions"] | None  # input of a packed row to spoil, to test whether it is used


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Plan:
    """Everything that scoring a set needs besides the model; made once, from the whole set."""

    name: str
    sequences: Sequences  # one per prompt, or one per prompt x answer if an answer has several tokens
    targets: tuple[tuple[int, ...], ...]  # tokens of each answer, or of each sequence if prompts have their own choices
    packing: Packing
    batch_tokens: int
    way: Way = "rows of head"
    normalise: bool = False  # log-probabilities over the vocabulary, also for answers of one token
    shortened: int = 0  # prompts that were shortened to fit
    ids: tuple[str, ...] = ()  # of the prompts, for messages
    counts: Ints | None = None  # choices of each prompt, if prompts have their own
    base: Ints | None = None  # of each choice the sequence of its baseline

    @property
    def one_token(self) -> bool:
        return self.counts is None and all(len(t) == 1 for t in self.targets)

    @property
    def tokens(self) -> int:
        """Number of tokens computed, without padding."""
        return self.packing.tokens

    @property
    def answer_tokens(self) -> list[int] | None:
        """The tokens whose logits are read; None if the whole vocabulary is needed."""
        return [t[0] for t in self.targets] if self.one_token and not self.normalise else None


# the model and its head


def causal_lm(model: Any) -> Any:
    """Return the causal language model inside a PEFT wrapper, if there is one."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def head_of(model: Any) -> Any:
    """Return the module that turns hidden states into logits; None if the model does not declare it."""
    find = getattr(causal_lm(model), "get_output_embeddings", None)
    return find() if find is not None else None


def hidden_states(model: Any, **inputs: Any) -> torch.Tensor:
    """Return the last layer's output, without the head."""
    output = causal_lm(model).base_model(use_cache=False, **inputs)
    return output.last_hidden_state


def is_sharded(model: torch.nn.Module) -> bool:
    """Whether every process holds only a part of the weights."""
    first = next(model.parameters())
    return hasattr(first, "full_tensor") or hasattr(first, "ds_tensor")  # torch's, or DeepSpeed's


def inside(model: torch.nn.Module, call: Callable[[], T]) -> T:
    """Call a function that uses the model where its engine, if it has one, gathers weights and averages gradients.

    All processes must call it equally often if the model is sharded, or if gradients are wanted.
    """
    import torch

    entry = vars(model).get(ENTRY)
    if entry is None or not (torch.is_grad_enabled() or is_sharded(model)):
        return call()
    return entry(call)  # type: ignore[no-any-return]


def without_gradients(model: torch.nn.Module) -> AbstractContextManager[Any]:
    """Compute no gradients. What a sharded model gathers is used in training too, and must not be of inference mode."""
    import torch

    kept: AbstractContextManager[Any] = torch.no_grad() if is_sharded(model) else torch.inference_mode()
    return kept


def device_of(model: torch.nn.Module) -> torch.device:
    """The device that takes the inputs. Weights that accelerate offloads are on the meta device between two uses."""
    import torch

    hook = getattr(model, "_hf_hook", None) or getattr(causal_lm(model), "_hf_hook", None)
    device = getattr(hook, "execution_device", None)
    if device is None:
        device = next(model.parameters()).device
    return torch.device("cpu") if torch.device(device).type == "meta" else torch.device(device)


def text_config(model: Any) -> Any:
    """Return the config of the language model, without what a model of several media has beside it."""
    config = causal_lm(model).config
    return config.get_text_config() if hasattr(config, "get_text_config") else config


def takes_masks(model: Any) -> bool:
    """Whether attention takes a mask of its own for every row: FlashAttention takes none, and packed rows need one."""
    return "flash" not in str(getattr(text_config(model), "_attn_implementation", None) or "")


@contextmanager
def evaluating(model: torch.nn.Module, tokens: Sequence[int] | None = None) -> Iterator[None]:
    """Switch to evaluation mode with logits in at least fp32, for these tokens or all; restore the model afterwards."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        with ExitStack() as stack:
            for matrix in _rounding_matrices(head_of(model)):
                stack.enter_context(_unrounded(matrix, tokens))
            yield
    finally:
        for module in training:
            module.training = True


def _rounding_matrices(head: Any) -> list[Any]:
    """Return the matrices of a head, adapters included, whose product is rounded to half precision."""
    import torch

    if not isinstance(head, torch.nn.Module):
        return []
    matrices = [m for m in head.modules() if type(m) is torch.nn.Linear and "forward" not in vars(m)]
    size = max((m.out_features for m in matrices), default=0)
    return [m for m in matrices if m.out_features == size and m.weight.dtype in (torch.bfloat16, torch.float16)]


@contextmanager
def _unrounded(matrix: Any, tokens: Sequence[int] | None) -> Iterator[None]:
    """Let the matrix compute its product in fp32, for these tokens or for all."""
    import torch

    def forward(hidden: torch.Tensor) -> torch.Tensor:
        if tokens is None:
            return _all_logits(matrix, hidden)
        logits = torch.nn.functional.linear(hidden, matrix.weight, matrix.bias).float()
        logits[..., list(tokens)] = answer_logits(matrix, hidden, tokens)
        return logits

    matrix.forward = forward
    try:
        yield
    finally:
        del matrix.forward  # the method of the class is visible again


def _all_logits(matrix: Any, hidden: torch.Tensor) -> torch.Tensor:
    """Compute the product in fp32; the matrix is copied in parts, because a whole copy may not fit."""
    import torch

    parts = [hidden.float() @ rows.float().T for rows in matrix.weight.split(VOCABULARY_AT_ONCE)]
    logits = torch.cat(parts, dim=-1)
    return logits if matrix.bias is None else logits + matrix.bias.float()


def answer_logits(head: Any, hidden: torch.Tensor, tokens: Sequence[int]) -> torch.Tensor:
    """Compute the logits of some tokens in at least fp32; only their rows of the head are multiplied."""
    chosen = list(tokens)
    values = _at_least_single(hidden.to(head.weight.device)) @ _at_least_single(head.weight[chosen]).T
    return values if head.bias is None else values + _at_least_single(head.bias[chosen])


def _at_least_single(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.float() if tensor.element_size() < 4 else tensor


def head_is_matrix(model: Any) -> bool:
    """Whether the head is a bare matrix that is in memory.

    A head with an adapter is not, although a fresh adapter adds nothing; nor is one that accelerate offloads.
    """
    import torch

    head = head_of(model)
    return type(head) is torch.nn.Linear and not head.weight.is_meta


def head_is_plain(model: Any, tokens: torch.Tensor) -> bool:
    """Whether the model only applies the head after its last layer; compared over the whole vocabulary."""
    import torch

    with evaluating(model), torch.no_grad():
        try:
            plain = inside(model, lambda: head_of(model)(hidden_states(model, input_ids=tokens)[:, -1]))
        except (TypeError, RuntimeError, AttributeError):
            return False  # e.g. no head, or no hidden states
        full = inside(model, lambda: causal_lm(model)(input_ids=tokens, use_cache=False).logits[:, -1])
    full = full.to(plain.device)
    return float((plain - full).abs().max()) <= AGREEMENT * max(1.0, float(full.abs().max()))


# the ways to score


def run_batch(model: Any, plan: Plan, batch: Sequence[Row]) -> Iterator[tuple[int, Any]]:
    """Yield the answer values of each item of a batch, computed the plan's way; call it within `evaluating`."""
    if plan.way == "rows of head":
        yield from _rows_of_head(model, plan, batch)
        return
    read = logits_at if plan.way == "model's logits" else plain_logits
    for index, logits in read(model, plan, batch):
        yield index, _answer_values(logits, plan, index)


def hidden_at(
    model: Any, plan: Plan, batch: Sequence[Row], without: Withheld = None
) -> tuple[list[tuple[int, int]], torch.Tensor]:
    """Return the hidden states that are read from a batch, and how many belong to each item."""
    import torch

    inputs, places = tensors(model, plan, batch, without)
    hidden = hidden_states(model, **inputs)
    rows = np.concatenate([np.full(len(columns), row) for _, row, columns in places])
    columns = np.concatenate([columns for _, _, columns in places])
    read = hidden[torch.from_numpy(rows), torch.from_numpy(columns)]
    return [(index, len(columns)) for index, _, columns in places], read


def _rows_of_head(model: Any, plan: Plan, batch: Sequence[Row]) -> Iterator[tuple[int, Any]]:
    """Compute the hidden states of the batch, then only the needed rows of the head."""
    import torch

    if plan.counts is not None:
        yield from _choices_of_head(model, plan, batch)
        return
    sizes, wanted = hidden_at(model, plan, batch)
    head = head_of(model)
    if plan.answer_tokens is not None:
        values = answer_logits(head, wanted, plan.answer_tokens)
        yield from zip((i for i, _ in sizes), values.cpu().double().numpy(), strict=True)
        return
    together = 1 if head.weight.dtype == torch.float32 else ITEMS_AT_ONCE
    at = 0
    for first in range(0, len(sizes), together):
        some = sizes[first : first + together]
        logits = head(wanted[at : at + sum(size for _, size in some)])
        for (index, _), own in zip(some, logits.split([size for _, size in some]), strict=True):
            yield index, _answer_values(own, plan, index)
        at += len(logits)


def _choices_of_head(model: Any, plan: Plan, batch: Sequence[Row]) -> Iterator[tuple[int, Any]]:
    """Sum the log-probabilities of each item's continuation; a position that several choices read is computed once."""
    import torch

    inputs, places = tensors(model, plan, batch)
    hidden = hidden_states(model, **inputs)
    width = inputs["input_ids"].shape[1]
    cells, which = np.unique(np.concatenate([row * width + columns for _, row, columns in places]), return_inverse=True)
    items = [index for index, _, _ in places]
    tokens = torch.tensor([token for index in items for token in plan.targets[index]], device=hidden.device)
    states = hidden.reshape(-1, hidden.shape[-1])[torch.from_numpy(cells).to(hidden.device)]
    head, logs = head_of(model), np.empty(len(which))
    for first in range(0, len(cells), POSITIONS_AT_ONCE):
        logits = head(states[first : first + POSITIONS_AT_ONCE])
        inside = np.flatnonzero((which >= first) & (which < first + POSITIONS_AT_ONCE))
        at = torch.from_numpy(which[inside] - first).to(logits.device)
        chosen = logits[at, tokens[torch.from_numpy(inside).to(tokens.device)].to(logits.device)]
        logs[inside] = (_double(chosen) - _log_sum(logits)[at]).cpu().numpy()
    ends = np.cumsum([len(plan.targets[index]) for index in items])
    yield from zip(items, np.add.reduceat(logs, np.concatenate([[0], ends[:-1]])), strict=True)


def logits_at(
    model: Any, plan: Plan, batch: Sequence[Row], without: Withheld = None
) -> Iterator[tuple[int, torch.Tensor]]:
    """Yield the model's own logits where they are read: the head may do more than multiply (soft-capping, scaling)."""
    import torch

    for row in batch:
        inputs, places = tensors(model, plan, [row], without)
        columns, where = np.unique(np.concatenate([c for _, _, c in places]), return_inverse=True)
        keep = torch.from_numpy(columns)  # an index may stay on the CPU, whichever device holds the last layer
        logits = causal_lm(model)(use_cache=False, logits_to_keep=keep, **inputs).logits[0]
        at = 0
        for index, _, read in places:
            yield index, logits[torch.from_numpy(where[at : at + len(read)])]
            at += len(read)


def plain_logits(model: Any, plan: Plan, batch: Sequence[Row]) -> Iterator[tuple[int, torch.Tensor]]:
    """Yield logits the plain way: one item at a time, no padding, the model's own logits."""
    for index in (i for row in batch for i in row.items):
        ids = plain_input(model, plan.sequences, index)
        logits = causal_lm(model)(input_ids=ids, use_cache=False).logits
        yield index, logits[0, -plan.sequences.reads_of(index) :]


def plain_input(model: Any, sequences: Sequences, index: int) -> torch.Tensor:
    """Return one sequence as the model's input."""
    import torch

    return torch.from_numpy(sequences[index].astype(np.int64))[None].to(device_of(model))


def _answer_values(logits: torch.Tensor, plan: Plan, index: int) -> Any:
    """Return the answer values of an item, from its logits."""
    if plan.answer_tokens is not None:
        return logits[-1, plan.answer_tokens].cpu().double().numpy()
    return _log_probability(logits, plan, index)


def _double(tensor: torch.Tensor) -> torch.Tensor:
    """In float64, which Apple's MPS lacks: there on the CPU."""
    return (tensor.cpu() if tensor.device.type == "mps" else tensor).double()


def _log_sum(logits: torch.Tensor) -> torch.Tensor:
    """The logarithm of the sum of exponentials, summed in float64 where there is one."""
    most = logits.max(dim=-1, keepdim=True).values
    total = (logits - most).exp_()
    return _double(most[:, 0]) + _double(total).sum(dim=-1).log()


def _log_probability(logits: torch.Tensor, plan: Plan, index: int) -> Any:
    """Log-probabilities over the vocabulary: of every answer of one token, or of this item's answer, summed."""
    logs = _double(logits).log_softmax(dim=-1)
    if plan.one_token:
        return logs[-1, [t[0] for t in plan.targets]].cpu().numpy()
    target = plan.targets[index % len(plan.targets)]
    return float(logs[range(len(target)), list(target)].sum())


# inputs


def tensors(
    model: Any, plan: Plan, batch: Sequence[Row], without: Withheld = None
) -> tuple[dict[str, Any], list[tuple[int, int, Ints]]]:
    """Return the inputs of a batch, padded on the right, and where each item is read: (item, row, columns).

    Positions that are withheld are reversed, not left out: OPT would compute some from the mask, outside its table, and
    on a GPU that ends the process.
    """
    import torch

    layouts = [lay_out(row, plan.sequences) for row in batch]
    width = max(len(layout.tokens) for layout in layouts)
    ids = np.zeros((len(batch), width), dtype=np.int64)
    for r, layout in enumerate(layouts):
        ids[r, : len(layout.tokens)] = layout.tokens
    places = [
        (index, r, columns)
        for r, (row, layout) in enumerate(zip(batch, layouts, strict=True))
        for index, columns in zip(row.items, layout.columns, strict=True)
    ]
    device, dtype = device_of(model), next(model.parameters()).dtype
    inputs: dict[str, Any] = {"input_ids": torch.from_numpy(ids).to(device)}
    if any(row.packed for row in batch):  # plain rows: padding comes last, causality hides it
        positions = np.zeros_like(ids)
        for r, layout in enumerate(layouts):
            positions[r, : len(layout.tokens)] = layout.positions
        if without == "positions":
            positions = positions.max(axis=1, keepdims=True) - positions
        inputs["position_ids"] = torch.from_numpy(positions).to(device)
        seen = _seen(layouts, width, causal=without == "mask")
        inputs["attention_mask"] = _masks(text_config(model), seen, positions, dtype, device)
    return inputs, places


def _seen(layouts: Sequence[RowLayout], width: int, causal: bool) -> Bools:
    """Which tokens a token sees: those before it whose subtree it is in; padding sees itself.

    With `causal`, a token sees all tokens before it.
    """
    columns = np.arange(width)
    ends = np.tile(columns + 1, (len(layouts), 1))
    for r, layout in enumerate(layouts):
        ends[r, : len(layout.ends)] = width if causal else layout.ends
    return (columns[None, :] <= columns[:, None])[None] & (columns[None, :, None] < ends[:, None, :])


def _masks(config: Any, seen: Bools, positions: Ints, dtype: torch.dtype, device: torch.device) -> Any:
    """Return the additive mask, or one for each kind of layer where some see only a window of the positions.

    A mask that is given replaces the window of such layers, so it must hold the window itself.
    """
    import torch

    def additive(some: Bools) -> torch.Tensor:
        hidden = torch.from_numpy(~some)
        return torch.zeros(some.shape, dtype=dtype).masked_fill_(hidden, torch.finfo(dtype).min)[:, None].to(device)

    whole = additive(seen)
    window = getattr(config, "sliding_window", None)
    kinds = set(getattr(config, "layer_types", None) or ())
    if not isinstance(window, int) or positions.max() < window or (kinds and WINDOWED not in kinds):
        return whole
    near = additive(seen & (positions[:, :, None] - positions[:, None, :] < window))
    return {kind: near if kind == WINDOWED else whole for kind in kinds} if kinds else near


# memory


def is_out_of_memory(error: BaseException) -> bool:
    text = str(error).lower()
    return isinstance(error, MemoryError) or "out of memory" in text or "can't allocate memory" in text
