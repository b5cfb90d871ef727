"""Arithmetic, memory and speed of a model without its weights, from its config alone.

The model is built on torch's meta device, where tensors have a shape but no content, and runs one training step there.
The tensors occupy as many bytes as with real weights.
"""

from __future__ import annotations

import math
import os
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers.pytorch_utils import Conv1D

from oodles.contracts import Recipe, RunSpec
from oodles.model.forward import causal_lm, hidden_states
from oodles.model.load import attach_lora
from oodles.runs.monitor import memory_gigabytes
from oodles.runs.train import Candidates

TIMED = 0.05  # seconds per matrix
TIMED_ROWS = 256  # tokens per product
TIMED_SIDE = {"cpu": 2048, "cuda": 4096}  # longest timed side of a matrix: a GPU needs large products
FEW = (2, 3)  # layers of a model that run a step and represent the others


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Footprint:
    """A model with its adapter on the meta device, and the sizes that follow from its shapes."""

    model: Any
    weights: int  # bytes
    linear: int  # weights that every token is multiplied with, without the head
    head: int
    adapter: int  # trained numbers
    adapter_bytes: int
    adapter_tensors: int
    stack: Stack | None  # None: all layers run a step
    rate: float  # operations per second that its matrix products reach on this machine

    def scoring(self, tokens: int) -> float:
        """Return the operations to score tokens: 2 per weight. The answers' rows of the head are negligible."""
        return 2.0 * (self.linear + self.adapter) * tokens

    def training(self, tokens: float, answers: float, recipe: Recipe) -> float:
        """Return the operations to train on tokens; `answers` of them are answer positions, where the head is applied.

        The forward pass takes 2 per weight, and so does the gradient of the input. Only the adapter's weights have
        their own gradient, 2 more each. With gradient checkpointing, the forward pass runs twice.
        """
        again = self.scoring(1) * recipe.gradient_checkpointing
        return tokens * (4 * self.linear + 6 * self.adapter + again) + answers * 4 * self.head


def device_name() -> str:
    """Return the device on which models run."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def draw_footprint(outline: torch.nn.Module, spec: RunSpec, *, every_layer: bool = False) -> Footprint:
    """Measure a model's outline as a run would use it: in its precision, with its adapter, partly timed.

    If all layers are equal, only a few of them are kept to represent the others, unless every layer is requested.
    """
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[spec.recipe.precision]
    model = outline.to(dtype)
    head: Any = causal_lm(model).get_output_embeddings()
    parts = [m for m in model.modules() if isinstance(m, torch.nn.Linear | Conv1D) and m is not head]
    matrices = Counter(tuple(part.weight.shape) for part in parts)
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    stack = None if every_layer else find_stack(model)
    if stack:
        stack.keep(FEW[1])
    with torch.device("meta"):
        adapted: Any = attach_lora(model, spec.lora, 0, spec.model)
    trained = [p for p in adapted.parameters() if p.requires_grad]
    if stack:  # every removed layer would be adapted like the last one
        trained += (stack.depth - FEW[1]) * [p for p in stack.layers[-1].parameters() if p.requires_grad]
    return Footprint(
        model=adapted,
        weights=weights,
        linear=sum(rows * columns * count for (rows, columns), count in matrices.items()),
        head=head.weight.numel(),
        adapter=sum(p.numel() for p in trained),
        adapter_bytes=sum(p.numel() * p.element_size() for p in trained),
        adapter_tensors=len(trained),
        stack=stack,
        rate=time_products(matrices, dtype),
    )


# speed


def time_products(matrices: Mapping[tuple[int, ...], int], dtype: torch.dtype) -> float:
    """Return the operations per second of matrix products with these shapes and counts, timed on this device."""
    operations = seconds = 0.0
    for shape, count in matrices.items():
        rows, columns = (min(side, TIMED_SIDE[device_name()]) for side in shape)
        operations += count * 2.0 * TIMED_ROWS * rows * columns
        seconds += count * _time_product(rows, columns, dtype)
    return operations / seconds


@cache
def _time_product(rows: int, columns: int, dtype: torch.dtype) -> float:
    """Return the fastest of many calls, because the others were disturbed. Cached, because models share shapes."""
    matrix = torch.ones(rows, columns, dtype=dtype, device=device_name())
    tokens = torch.ones(TIMED_ROWS, columns, dtype=dtype, device=device_name())
    best, start = math.inf, time.perf_counter()
    while time.perf_counter() - start < TIMED:
        called = time.perf_counter()
        torch.nn.functional.linear(tokens, matrix)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - called)
    return best


# memory


def training_bytes(
    footprint: Footprint, shots: Candidates, batch: tuple[int, int, int], *, checkpointing: bool = False
) -> int:
    """Return the peak bytes of tensors in a training step: activations, gradients, logits.

    `batch` is the number of sequences, their length, and the number of positions of the loss.
    """
    model = footprint.model.train()
    if checkpointing:
        # recomputation happens in the backward pass, which the mode below does not reach
        again = {"use_reentrant": False, "context_fn": lambda: (nullcontext(), FusedAttention())}
        model.gradient_checkpointing_enable(again)
    else:
        model.gradient_checkpointing_disable()

    def step() -> int:
        with FusedAttention(), Shapes(model) as live:
            _loss(model, shots, *batch).backward()
        model.zero_grad()
        return int(live.peak)

    stack = footprint.stack
    if stack is None:
        return step()
    few, more = (_with_layers(stack, count, step) for count in FEW)
    return few + (stack.depth - FEW[0]) * (more - few) // (FEW[1] - FEW[0])


def _with_layers(stack: Stack, count: int, measure: Callable[[], int]) -> int:
    with stack.only(count):
        return measure()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stack:
    """A model's layers if they are all equal: the module that holds them, their name in it, and their number."""

    holder: torch.nn.Module
    name: str
    depth: int
    config: Any

    @property
    def layers(self) -> torch.nn.ModuleList:
        """The remaining layers."""
        layers: torch.nn.ModuleList = getattr(self.holder, self.name)
        return layers

    def keep(self, count: int) -> None:
        """Keep the first layers only."""
        self._set(torch.nn.ModuleList(list(self.layers)[:count]))

    @contextmanager
    def only(self, count: int) -> Iterator[None]:
        """Reduce the model temporarily to its first layers."""
        layers = self.layers
        self.keep(count)
        try:
            yield
        finally:
            self._set(layers)

    def _set(self, layers: torch.nn.ModuleList) -> None:
        setattr(self.holder, self.name, layers)
        self.config.num_hidden_layers = len(layers)


def find_stack(model: Any) -> Stack | None:
    """Return the layers of a model; None if they differ or are few."""
    config = causal_lm(model).config.get_text_config()
    for holder in causal_lm(model).modules():
        for name, part in holder.named_children():
            if isinstance(part, torch.nn.ModuleList) and len(part) == config.num_hidden_layers > FEW[1]:
                alike = len({_parameters(layer) for layer in part}) == 1
                return Stack(holder=holder, name=name, depth=len(part), config=config) if alike else None
    return None


def _parameters(module: torch.nn.Module) -> tuple[tuple[str, tuple[int, ...]], ...]:
    return tuple((name, tuple(p.shape)) for name, p in module.named_parameters())


def _loss(model: Any, shots: Candidates, rows: int, width: int, reads: int) -> torch.Tensor:
    """Compute the loss as AnswerTrainer does; only the graph survives."""
    tokens, where, gold = _indices(rows, width), _indices(reads), _indices(rows // shots.each)
    hidden = hidden_states(model, input_ids=tokens)
    logits = causal_lm(model).get_output_embeddings()(hidden[where, where]).float()
    plain = replace(
        shots, own=False
    )  # examples with their own choices: the softmax over them needs nothing to speak of
    return plain.loss(logits, {"tokens": tokens, "row": where, "target": where, "gold": gold})


def scoring_bytes(footprint: Footprint, rows: int, width: int) -> int:
    """Return the peak bytes of tensors while a batch of packed rows is scored."""
    model = footprint.model.eval()
    dtype = next(model.parameters()).dtype

    def score() -> int:
        with torch.no_grad(), FusedAttention(), Shapes(model) as live:
            mask = torch.empty(rows, 1, width, width, dtype=dtype, device="meta")
            position = _indices(rows, width)
            hidden_states(model, input_ids=_indices(rows, width), position_ids=position, attention_mask=mask)
        return int(live.peak)

    # without gradients, a layer's tensors are freed before the next layer
    return _with_layers(footprint.stack, FEW[0], score) if footprint.stack else score()


def _indices(*shape: int) -> torch.Tensor:
    return torch.empty(shape, dtype=torch.int64, device="meta")


class Shapes(TorchDispatchMode):  # type: ignore[misc]
    """Counts the bytes of all live tensors within its context, without the model's own."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.now: int = 0
        self.peak: int = 0
        self._known = {id(tensor.untyped_storage()) for tensor in (*model.parameters(), *model.buffers())}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.all.default and args[0].is_meta:
            return torch.tensor(True)  # e.g. "are all positions in order?", asked of a tensor without content
        result = func(*args, **(kwargs or {}))
        for value in tree_leaves(result):
            if isinstance(value, torch.Tensor) and id(value.untyped_storage()) not in self._known:
                self._count(value.untyped_storage())
        return result

    def _count(self, storage: torch.UntypedStorage) -> None:
        self._known.add(id(storage))
        self.now += storage.nbytes()
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._gone, id(storage), storage.nbytes())

    def _gone(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.now -= size


class FusedAttention(TorchFunctionMode):  # type: ignore[misc]
    """Fused attention as in real device kernels; the meta device has none and would build all attention weights."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.nn.functional.scaled_dot_product_attention:
            return _Attended.apply(*args[:3], args[3] if len(args) > 3 else (kwargs or {}).get("attn_mask"))
        return func(*args, **(kwargs or {}))


class _Attended(torch.autograd.Function):  # type: ignore[misc]
    """Keeps query, key, value and result for the backward pass; quadratic in the positions is a given mask only."""

    @staticmethod
    def forward(ctx: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: Any) -> torch.Tensor:
        result = torch.empty_like(query[..., : value.shape[-1]])  # same memory layout as the query
        kept = () if mask is None else (mask.to(query.dtype),)  # kernels add it, so booleans become numbers
        ctx.save_for_backward(query, key, value, result, *kept)
        return result

    @staticmethod
    def backward(ctx: Any, _: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return (*(torch.empty_like(tensor) for tensor in ctx.saved_tensors[:3]), None)


def resident_bytes() -> int:
    """Return the memory of this process; if the system does not report it, its peak."""
    statm = Path("/proc/self/statm")
    if statm.is_file():
        return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return round(memory_gigabytes() * 1e9)
