"""Check the shortcuts of scoring for the given model, on a few of the prompts it will score.

Rows of the head may replace the model's logits if these equal the head's product over the whole vocabulary. Packed rows
and padded batches must give the hidden states (or logits) of a prompt that goes through the model alone. In half
precision, rounding alone moves the states by some percent in a deep model, and a model that ignores positions may not
differ by much more. There, a packed row must also be closer to the plain prompt than the same row without its mask or
positions.

One check serves all sets of an evaluation. It uses the longest prompts that share a prefix, because attention windows
and other limits affect only long prompts. Where rows are longer than a window, it also uses the prompt with the fewest
tokens of its own: a window of columns that holds all of a prompt's own tokens may not show.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from oodles.contracts import content_hash
from oodles.model.forward import (
    AGREEMENT,
    Plan,
    Way,
    Withheld,
    causal_lm,
    evaluating,
    head_is_matrix,
    head_is_plain,
    hidden_at,
    hidden_states,
    inside,
    is_out_of_memory,
    logits_at,
    plain_input,
    plain_logits,
    takes_masks,
    text_config,
    without_gradients,
)
from oodles.model.load import free_memory
from oodles.model.prefix_trees import Row, pack_rows

if TYPE_CHECKING:
    import torch

AGREEMENT_HALF = 0.1  # like AGREEMENT; SmolLM2 in bf16: 0.02 by rounding, 0.08 without positions, 0.4 without a mask
TELLING = 0.5  # largest share of the error without mask or positions that is accepted, in half precision
TAIL = 4  # smallest number of another prompt's tokens that the mask hides in such a probe
AFFORDABLE = 50  # the longest packed row is checked whole if that costs at most a 50th of the evaluation


@dataclass(frozen=True, slots=True, eq=False)
class _Probe:
    """Rows of a plan, and the item among them that is compared with its plain prompt."""

    plan: Plan
    batch: tuple[Row, ...]
    item: int

    @property
    def length(self) -> int:
        """Length of the plain prompt."""
        return len(self.plan.sequences[self.item])

    @property
    def cost(self) -> int:
        """Number of tokens to compute: the padded rows and the plain prompt."""
        return len(self.batch) * max(row.length for row in self.batch) + self.length

    @property
    def hidden(self) -> int:
        """Number of tokens of the first prompt that the mask hides from the last."""
        row = self.batch[0]
        return row.length - self.length

    @property
    def own(self) -> int:
        """Number of tokens of the last of two prompts after what it shares with the first."""
        row = self.batch[0]
        return self.length - row.shared[-1]


def choose_ways(model: torch.nn.Module, plans: Sequence[Plan]) -> tuple[Plan, ...]:
    """Choose the fastest way for this model whose results equal those of the plain way; return the plans with it."""
    plan, index = min(((plan, _shortest(plan)) for plan in plans), key=lambda pair: len(pair[0].sequences[pair[1]]))
    plain_head = head_is_matrix(model) and head_is_plain(model, plain_input(model, plan.sequences, index))
    ways: tuple[Way, ...] = ("rows of head", "model's logits") if plain_head else ("model's logits",)
    able: list[Way] = []
    for way in ways:
        if not _agrees(model, way, [_padded(plan, index)]):
            continue
        if _sharing_agrees(model, way, plans):
            return tuple(replace(plan, way=way) for plan in plans)
        able.append(way)
    return tuple(
        replace(
            plan,
            way=able[0] if able else "one by one",
            packing=pack_rows(plan.sequences, plan.batch_tokens, share=False),
        )
        for plan in plans
    )


def signature(model: Any) -> str:
    """Hash what determines whether a shortcut is valid; models with equal signatures share the chosen ways."""
    inside = causal_lm(model)
    kinds = sorted({f"{type(m).__module__}.{type(m).__qualname__}" for m in model.modules()})
    dtypes = sorted({str(p.dtype) for p in model.parameters()})
    config = {k: v for k, v in inside.config.to_dict().items() if k not in ("_name_or_path", "transformers_version")}
    return content_hash([kinds, dtypes, str(sorted(config.items(), key=lambda item: item[0]))])


# the probes


def _shortest(plan: Plan) -> int:
    return int(np.diff(plan.sequences.starts).argmin())


def _padded(plan: Plan, index: int) -> _Probe:
    """Pair the shortest prompt with the next longer one, if there is one."""
    lengths = np.diff(plan.sequences.starts)
    longer = np.flatnonzero(lengths > lengths[index])
    rows = [Row((index,), (0,), int(lengths[index]))]
    if len(longer):
        other = int(longer[lengths[longer].argmin()])
        rows.append(Row((other,), (0,), int(lengths[other])))
    return _Probe(plan, tuple(rows), index)


def _packed(plans: Sequence[Plan]) -> Iterator[_Probe]:
    """Yield neighbours in packed rows of which the first continues after their common prefix."""
    for plan in plans:
        sizes = np.diff(plan.sequences.starts)
        for row in chain.from_iterable(plan.packing.batches):
            for (a, b), shared in zip(pairwise(row.items), row.shared[1:], strict=True):
                if sizes[a] > shared:
                    yield _Probe(plan, (Row((a, b), (0, shared), int(sizes[a] + sizes[b] - shared)),), b)


def _whole_row(plans: Sequence[Plan]) -> _Probe:
    """Return the longest packed row as it will be scored, read at its end."""
    rows = ((plan, row) for plan in plans for row in chain.from_iterable(plan.packing.batches) if row.packed)
    plan, row = max(rows, key=lambda pair: pair[1].length)
    return _Probe(plan, (row,), row.items[-1])


def _reach(model: Any) -> float:
    """Return the shortest attention window or chunk in the model's config."""
    sizes = [
        size
        for name, size in text_config(model).to_dict().items()
        if ("window" in name or "chunk" in name) and "layers" not in name and "pattern" not in name
        if isinstance(size, int) and not isinstance(size, bool) and size > 0
    ]
    return min(sizes, default=np.inf)


# the comparison


def _sharing_agrees(model: torch.nn.Module, way: Way, plans: Sequence[Plan]) -> bool:
    """Whether packed rows give the same results as their prompts alone."""
    pairs = list(_packed(plans))
    if not pairs:
        return True
    if not takes_masks(model):
        return False
    probes = [max(pairs, key=lambda probe: (probe.length, probe.hidden))]
    row = _whole_row(plans)
    reach = _reach(model)
    if row.cost * AFFORDABLE <= sum(plan.tokens for plan in plans) or reach < row.batch[0].length:
        probes.append(row)
    if beyond := [probe for probe in pairs if probe.batch[0].length > reach]:
        probes.append(min(beyond, key=lambda probe: (probe.own, -probe.hidden)))
    if not _half(model):
        return _agrees(model, way, probes)
    telling = min(pairs, key=lambda probe: (probe.hidden < TAIL, probe.cost))
    return _agrees(model, way, probes) and _mask_and_positions_tell(model, way, telling)


def _agrees(model: torch.nn.Module, way: Way, probes: Sequence[_Probe]) -> bool:
    """Whether these rows give the same results as their prompts alone; False if they do not fit into memory."""
    most = AGREEMENT_HALF if _half(model) else AGREEMENT
    return all(_error(model, way, probe) <= most for probe in probes)


def _mask_and_positions_tell(model: torch.nn.Module, way: Way, probe: _Probe) -> bool:
    """Whether a row without its mask, or without its positions, is clearly further off than the row itself."""
    error = _error(model, way, probe)
    without: tuple[Withheld, ...] = ("mask", "positions")
    return bool(np.isfinite(error)) and all(error <= TELLING * _error(model, way, probe, part) for part in without)


def _error(model: torch.nn.Module, way: Way, probe: _Probe, without: Withheld = None) -> float:
    """Return the relative error of the probed item against its plain prompt; infinite if the model rejects the row."""
    with evaluating(model, probe.plan.answer_tokens), without_gradients(model):
        try:
            probed = inside(model, lambda: _read(model, way, probe, without))
        except (TypeError, RuntimeError, AttributeError, ValueError, KeyError, MemoryError) as error:
            if is_out_of_memory(error):
                free_memory()
            return np.inf  # e.g. an architecture that accepts no explicit positions
        plain = inside(model, lambda: _read_plainly(model, way, probe))
    return float(((probed - plain).norm(dim=-1) / plain.norm(dim=-1)).max())


def _read(model: Any, way: Way, probe: _Probe, without: Withheld) -> torch.Tensor:
    """Read the probed item the given way: hidden states or logits."""
    if way == "rows of head":
        sizes, wanted = hidden_at(model, probe.plan, probe.batch, without)
        indices = [index for index, _ in sizes]
        return wanted.split([size for _, size in sizes])[indices.index(probe.item)].cpu().double()
    return _centred(dict(logits_at(model, probe.plan, probe.batch, without))[probe.item])


def _read_plainly(model: Any, way: Way, probe: _Probe) -> torch.Tensor:
    """Read the same values from the prompt alone."""
    if way == "rows of head":
        hidden = hidden_states(model, input_ids=plain_input(model, probe.plan.sequences, probe.item))
        return hidden[0, -probe.plan.sequences.reads_of(probe.item) :].cpu().double()
    alone = Row((probe.item,), (0,), probe.length)
    return _centred(dict(plain_logits(model, probe.plan, [alone]))[probe.item])


def _centred(logits: torch.Tensor) -> torch.Tensor:
    """A constant added to all logits means nothing."""
    exact = logits.cpu().double()
    return exact - exact.mean(dim=-1, keepdim=True)


def _half(model: torch.nn.Module) -> bool:
    return bool(next(model.parameters()).element_size() < 4)
