"""Pack token sequences into rows that hold each distinct prefix once, and rows into batches. Needs no model.

After sorting, sequences with a common prefix are neighbours; together they form a tree whose paths are the sequences. A
row holds such a tree in depth-first order, so a token sees exactly the earlier tokens whose subtree contains it.
Sequences that share almost nothing have their own rows, which need no mask.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Tokens = npt.NDArray[np.int32]

SHARED_AT_LEAST = 2  # tokens; a shorter common prefix is not worth a mask
BATCHES_COST = 24  # the fixed cost of a batch is a 24th of its token budget
ROW_TOKENS = 256  # limit for a row with several sequences; longer rows repeat fewer prefixes but cost more attention


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sequences:
    """Concatenated token sequences, and how many positions at the end of each are read."""

    tokens: Tokens
    starts: Ints  # start of each sequence, and the end of the last
    reads: int | tuple[int, ...]  # for every sequence; a tuple repeats over them (one entry per answer)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, index: int) -> Tokens:
        return self.tokens[self.starts[index] : self.starts[index + 1]]

    def reads_of(self, index: int) -> int:
        return self.reads if isinstance(self.reads, int) else self.reads[index % len(self.reads)]


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """Sequences packed as a tree: the first `shared[k]` tokens of the k-th are those of the sequence before it."""

    items: tuple[int, ...]
    shared: tuple[int, ...]
    length: int

    @property
    def packed(self) -> bool:
        return len(self.items) > 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RowLayout:
    """The layout of a row: tokens, positions, ends of subtrees, and the columns at which each sequence is read."""

    tokens: Tokens
    positions: Ints
    ends: Ints
    columns: tuple[Ints, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Packing:
    """All rows of a set, split into batches."""

    batches: tuple[tuple[Row, ...], ...]
    row_tokens: int = ROW_TOKENS
    lengths: tuple[int, ...] = field(default=())

    @property
    def tokens(self) -> int:
        """Number of tokens computed, without padding."""
        return sum(row.length for batch in self.batches for row in batch)


def distinct_tokens(sequences: Sequences) -> int:
    """Count the tokens with each distinct prefix counted once: the minimum that must be computed."""
    order = _sorted(sequences)
    common = _common(sequences, order)
    sizes = np.diff(sequences.starts)[order]
    return int((sizes - common).sum())


def pack_rows(
    sequences: Sequences, batch_tokens: int, *, share: bool = True, row_tokens: int = ROW_TOKENS, stretch: int = 0
) -> Packing:
    """Pack a set into rows and batches; without `share`, every sequence has its own row.

    A row may be longer than `row_tokens`, up to `stretch` times what its next sequence shares with the last: another
    row would repeat that.
    """
    rows = (
        list(_rows(sequences, row_tokens, stretch)) if share else [_alone(sequences, i) for i in range(len(sequences))]
    )
    return Packing(batches=tuple(_batches(rows, batch_tokens)), row_tokens=row_tokens)


def lay_out(row: Row, sequences: Sequences) -> RowLayout:
    """Lay out the tokens of a row in depth-first order of its tree."""
    tokens = np.empty(row.length, dtype=np.int32)
    positions = np.empty(row.length, dtype=np.int64)
    ends = np.full(row.length, row.length, dtype=np.int64)
    path = np.empty(0, dtype=np.int64)  # columns of the current sequence
    columns, at = [], 0
    for index, shared in zip(row.items, row.shared, strict=True):
        sequence = sequences[index]
        ends[path[shared:]] = at  # tokens that the next sequence does not share end here
        size = len(sequence) - shared
        tokens[at : at + size] = sequence[shared:]
        positions[at : at + size] = np.arange(shared, len(sequence))
        path = np.concatenate([path[:shared], np.arange(at, at + size)])
        columns.append(path[len(sequence) - sequences.reads_of(index) :])
        at += size
    return RowLayout(tokens=tokens, positions=positions, ends=ends, columns=tuple(columns))


def _sorted(sequences: Sequences) -> Ints:
    """Return an order in which sequences with a common prefix are neighbours; equal ones keep their order."""
    keys = sequences.tokens.astype(">u4")  # big-endian bytes sort like the numbers
    starts = sequences.starts
    return np.array(
        sorted(range(len(sequences)), key=lambda i: keys[starts[i] : starts[i + 1]].tobytes()), dtype=np.int64
    )


def _common(sequences: Sequences, order: Ints) -> Ints:
    """Count the tokens that each sequence shares with the one before it in this order."""
    common = np.zeros(len(order), dtype=np.int64)
    for place in range(1, len(order)):
        a, b = sequences[order[place - 1]], sequences[order[place]]
        size = min(len(a), len(b))
        differ = np.flatnonzero(a[:size] != b[:size])
        common[place] = differ[0] if len(differ) else size
    return common


def _rows(sequences: Sequences, row_tokens: int, stretch: int) -> Iterator[Row]:
    order = _sorted(sequences)
    items: list[int] = []
    shared: list[int] = []
    length = 0
    for index, common in zip(map(int, order), map(int, _common(sequences, order)), strict=True):
        new = len(sequences[index]) - common
        if items and (common < SHARED_AT_LEAST or length + new > max(row_tokens, stretch * common)):
            yield Row(tuple(items), tuple(shared), length)
            items, shared, length = [], [], 0
        if not items:
            common, new = 0, len(sequences[index])
        items.append(index)
        shared.append(common)
        length += new
    if items:
        yield Row(tuple(items), tuple(shared), length)


def _alone(sequences: Sequences, index: int) -> Row:
    return Row((index,), (0,), len(sequences[index]))


def _batches(rows: Sequence[Row], batch_tokens: int) -> Iterator[tuple[Row, ...]]:
    """Form batches by token budget, longest rows first; packed rows apart from plain ones, which need no mask."""
    for packed in (True, False):
        kind = sorted((r for r in rows if r.packed == packed), key=lambda r: (-r.length, r.items))
        cuts = _cuts(np.array([row.length for row in kind], dtype=np.int64), batch_tokens)
        yield from (tuple(kind[a:b]) for a, b in pairwise(cuts))


def _cuts(lengths: Ints, batch_tokens: int) -> list[int]:
    """Choose where to cut sorted rows into batches, with the least padding plus fixed cost per batch."""
    own = max(1, batch_tokens // BATCHES_COST)
    least = np.zeros(len(lengths) + 1)  # cost of the rows from here to the end
    ends = np.zeros(len(lengths), dtype=np.int64)
    for first in range(len(lengths) - 1, -1, -1):
        most = max(1, batch_tokens // int(lengths[first]))
        sizes = np.arange(1, min(most, len(lengths) - first) + 1)
        costs = sizes * lengths[first] + own + least[first + sizes]
        best = int(costs.argmin())
        least[first], ends[first] = costs[best], first + sizes[best]
    cuts = [0]
    while cuts[-1] < len(lengths):
        cuts.append(int(ends[cuts[-1]]))
    return cuts
