"""Rows as trees: every sequence can be read back, sees itself and nothing else, and shared beginnings stand once."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from oodles.model.prefix_trees import Sequences, distinct_tokens, lay_out, pack_rows


def sequences(lists: list[list[int]], reads: int | tuple[int, ...] = 1) -> Sequences:
    tokens = np.array([t for one in lists for t in one], dtype=np.int32)
    return Sequences(tokens=tokens, starts=np.cumsum([0, *map(len, lists)], dtype=np.int64), reads=reads)


# few distinct tokens, so that beginnings are shared, and long enough to pack
beginnings = st.lists(st.lists(st.sampled_from([1, 2, 70000]), min_size=1, max_size=12), min_size=1, max_size=12)


@given(beginnings, st.integers(8, 60), st.integers(10, 200))
def test_every_sequence_sees_itself_and_nothing_else(lists: list[list[int]], row_tokens: int, batch: int) -> None:
    packed = pack_rows(sequences(lists), batch, row_tokens=row_tokens)
    seen_items = []
    for row in (row for b in packed.batches for row in b):
        laid = lay_out(row, sequences(lists))
        assert row.length == len(laid.tokens)
        assert len(row.items) == 1 or row.length <= row_tokens
        for item, columns in zip(row.items, laid.columns, strict=True):
            at = int(columns[-1])
            path = [i for i in range(at + 1) if at < laid.ends[i]]  # what the mask lets the last token see
            assert laid.tokens[path].tolist() == lists[item]
            assert laid.positions[path].tolist() == list(range(len(lists[item])))
            seen_items.append(item)
    assert sorted(seen_items) == list(range(len(lists)))


@given(beginnings)
def test_distinct_tokens_count_every_beginning_once(lists: list[list[int]]) -> None:
    assert distinct_tokens(sequences(lists)) == len({tuple(one[: k + 1]) for one in lists for k in range(len(one))})


def test_a_long_row_holds_every_beginning_once() -> None:
    shared = list(range(100, 120))
    lists = [[*shared, 1, 2], [*shared, 1, 3, 4], [*shared, 5], [*shared, 1, 2]]
    (batch,) = pack_rows(sequences(lists), 500).batches
    assert [row.length for row in batch] == [distinct_tokens(sequences(lists))] == [25]
    assert len(lay_out(batch[0], sequences(lists)).columns) == 4


def test_what_shares_next_to_nothing_stays_alone() -> None:
    lists = [[7, i, *range(i, i + 9)] for i in range(20, 40)]
    assert all(not row.packed for batch in pack_rows(sequences(lists), 500).batches for row in batch)


def test_answers_share_their_prompt_and_are_read_on_it() -> None:
    lists = [[1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6, 7, 8]]  # one prompt with answers of 1 and of 3 tokens
    packed = sequences(lists, reads=(1, 3))
    (batch,) = pack_rows(packed, 500).batches
    laid = lay_out(batch[0], packed)
    assert batch[0].length == 8
    assert [list(c) for c in laid.columns] == [[5], [5, 6, 7]]


def test_batches_are_cut_where_padding_is_least() -> None:
    """Rows of 30 and of 10 tokens do not share a batch that both would fit into."""
    lists = [[i, *range(100, 129)] for i in range(3)] + [[50 + i, *range(200, 209)] for i in range(20)]
    found = pack_rows(sequences(lists), 200).batches
    padded = sum(len(batch) * max(row.length for row in batch) for batch in found)
    assert padded == sum(map(len, lists))
    assert all(len(batch) * max(row.length for row in batch) <= 200 for batch in found)
    mixed = pack_rows(sequences([[i, *range(100, 100 + i)] for i in range(5, 60)]), 200).batches
    padding = sum(max(r.length for r in batch) - row.length for batch in mixed for row in batch)
    assert padding < 0.08 * sum(row.length for batch in mixed for row in batch)
