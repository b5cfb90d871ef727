"""Cells of columns: texts, and lists of texts for choices."""

from __future__ import annotations

import pytest

from oodles.errors import DataError
from oodles.files import as_rows
from oodles.suite.columns import lists_of, texts_of

ROWS = as_rows(
    [
        {"q": "one", "choices": {"text": ["a", "b"]}, "flat": ["x", 2]},
        {"q": None, "choices": {"text": ["c"]}, "flat": "no list"},
    ],
    "rows.jsonl",
)


def test_texts_and_lists() -> None:
    assert texts_of(ROWS, "choices.text.0", "toy") == ["a", "c"]
    assert texts_of(ROWS, "q", "toy", gaps=True) == ["one", ""]
    assert lists_of(ROWS, "choices.text", "toy") == [["a", "b"], ["c"]]
    assert lists_of(ROWS, "flat", "toy", [0]) == [["x", "2"]]


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("flat", "toy row 2: column 'flat' holds 'no list', expected a list of texts"),
        ("choices.label", "toy row 1: column 'choices.label' holds nothing, expected a list of texts"),
        ("choises", "no column 'choises'; did you mean 'choices'"),
    ],
)
def test_a_cell_that_is_no_list(column: str, message: str) -> None:
    with pytest.raises(DataError) as caught:
        lists_of(ROWS, column, "toy")
    assert message in str(caught.value)
