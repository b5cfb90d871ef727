from __future__ import annotations

from collections import Counter

import pytest

from oodles.contracts import Example
from oodles.errors import ConfigError
from oodles.suite.draw import draw

ROWS = [Example(id=f"{i:03}", fields={"x": str(i)}, label="abc"[i % 3], answer=i % 3) for i in range(90)]


def test_balanced_distinct_and_repeatable() -> None:
    first = draw(ROWS, "t", 30, 0)
    assert Counter(e.label for e in first.examples) == {"a": 10, "b": 10, "c": 10}
    assert len({e.id for e in first.examples}) == 30
    assert draw(ROWS, "t", 30, 0) == first
    assert draw(ROWS[::-1], "t", 30, 0).hash == first.hash  # the order of the file does not matter
    assert draw(ROWS, "t", 30, 1).hash != first.hash


def test_draws_of_different_sizes_are_independent() -> None:
    small, large = draw(ROWS, "t", 15, 0), draw(ROWS, "t", 30, 0)
    assert not {e.id for e in small.examples} <= {e.id for e in large.examples}


def test_shots_must_divide_by_the_labels_and_exist() -> None:
    with pytest.raises(ConfigError, match=r"shots is 32, not divisible by the 3 labels of 't' \(a, b, c\)"):
        draw(ROWS, "t", 32, 0)
    with pytest.raises(ConfigError, match=r"shots is 93, 31 per label, but train set 't' has only 30"):
        draw(ROWS, "t", 93, 0)


def test_hash_sees_the_content() -> None:
    changed = [Example(id=e.id, fields={"x": "!"}, label=e.label, answer=e.answer) for e in ROWS]
    assert draw(changed, "t", 30, 0).hash != draw(ROWS, "t", 30, 0).hash


def test_nested_draws_contain_the_smaller() -> None:
    small, large = draw(ROWS, "t", 15, 0, nested=True), draw(ROWS, "t", 30, 0, nested=True)
    assert {e.id for e in small.examples} < {e.id for e in large.examples}
    assert Counter(e.label for e in small.examples) == {"a": 5, "b": 5, "c": 5}
    assert draw(ROWS, "t", 15, 1, nested=True).hash != small.hash
    assert draw(ROWS[::-1], "t", 15, 0, nested=True).hash == small.hash
