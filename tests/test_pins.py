"""A hash of every row: what differs, and in which way."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from oodles.audit.pins import ANSWER_BITS, Difference, compare, pin_suite, pins_of, read_pins, write_pins
from oodles.contracts import Choice, Example
from oodles.errors import ConfigError, OodlesError
from oodles.suite.load import load_suite

ROWS = [
    Example(id=str(i), fields={"premise": f"p{i}", "hypothesis": "h"}, label="ec"[i % 2], answer=i % 2)
    for i in range(6)
]


def test_the_same_rows_in_any_order_do_not_differ() -> None:
    pins = pins_of(ROWS)
    assert pins.dtype == np.uint32
    assert not compare(ROWS, pins)
    assert not compare(ROWS[::-1], pins)
    renamed = [replace(row, id=f"x{row.id}", fields=dict(reversed(row.fields.items()))) for row in ROWS]
    assert not compare(renamed, pins)  # ids and the order of columns are not the data's


def test_texts_and_answers_are_told_apart() -> None:
    pins = pins_of(ROWS)
    other = [replace(ROWS[0], fields={**ROWS[0].fields, "premise": "new"}), replace(ROWS[1], answer=0), *ROWS[2:]]
    assert compare(other, pins) == Difference(missing=1, added=(1,), relabelled=(2,))
    assert compare(ROWS[1:], pins) == Difference(missing=1, added=(), relabelled=())
    assert compare([*ROWS, ROWS[0]], pins) == Difference(missing=0, added=(7,), relabelled=())  # once too often


def test_words_that_move_between_fields_are_another_text() -> None:
    moved = [replace(ROWS[0], fields={"premise": "0", "hypothesis": "hp"})]
    assert compare(moved, pins_of(ROWS[:1])).added == (1,)


def test_choices_are_part_of_a_row() -> None:
    own = [replace(row, choices=("a", f"b{row.id}")) for row in ROWS]
    pins = pins_of(own)
    assert not compare(own, pins)
    assert compare([replace(own[0], choices=("a", "c")), *own[1:]], pins).added == (1,)
    shown = tuple(Choice(context=f"Say {text}", continuation=f" {text}", text=text) for text in own[0].choices)
    task = [replace(own[0], rendered=shown)]
    other = [replace(own[0], rendered=tuple(replace(choice, context="5 + 5") for choice in shown))]
    assert not compare(task, pins_of(task))
    assert compare(other, pins_of(task)).added == (1,)


def test_answers_beyond_the_bits_share_a_number() -> None:
    most = (1 << ANSWER_BITS) - 1
    assert pins_of([replace(ROWS[0], answer=most)]) == pins_of([replace(ROWS[0], answer=most + 1)])
    assert pins_of([replace(ROWS[0], answer=most)]) != pins_of([replace(ROWS[0], answer=most - 1)])


def test_pins_are_read_back_under_any_name(toy_suite: Path) -> None:
    suite = replace(load_suite(toy_suite), rows="toy.rows")
    path = toy_suite.parent / "toy.rows"
    write_pins({"file": pins_of(ROWS), "away": pins_of(ROWS[:2])}, path)  # `file` is an argument of numpy's
    read = read_pins(suite)
    assert {name: pins.tolist() for name, pins in read.items()} == {
        "file": pins_of(ROWS).tolist(),
        "away": pins_of(ROWS[:2]).tolist(),
    }
    assert read_pins(replace(suite, rows="")) == {}


def test_a_suite_is_pinned_over_pins_only(toy_suite: Path) -> None:
    suite, path = load_suite(toy_suite), toy_suite.parent / "toy.rows"
    pin_suite(suite, path)
    pin_suite(suite, path)
    assert set(read_pins(replace(suite, rows="toy.rows"))) == set(suite.test_sets)
    thesis = toy_suite.parent / "thesis.tex"
    thesis.write_text("do not touch")
    with pytest.raises(OodlesError):
        pin_suite(suite, thesis)
    assert thesis.read_text() == "do not touch"


@pytest.mark.parametrize("data", [None, b"", b"PK\x03\x04", b"no rows at all"])
def test_pins_that_cannot_be_read_are_one_line(toy_suite: Path, data: bytes | None) -> None:
    suite = replace(load_suite(toy_suite), rows="toy.rows")
    if data is not None:
        (toy_suite.parent / "toy.rows").write_bytes(data)
    with pytest.raises(ConfigError, match=r"rows = 'toy\.rows' cannot be read .* write it with oodles check --pin"):
        read_pins(suite)
