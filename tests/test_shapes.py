"""What a JSON file must look like."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from oodles.shapes import LARGEST, RUN_JSON, load_json, misfit, parse_json


@pytest.mark.parametrize(
    ("value", "shape", "problem"),
    [
        (1, int, ""),
        (True, int, "it is true, expected a whole number"),
        (LARGEST + 1, int, f"it is {LARGEST + 1}, expected a whole number"),
        (1, float, "it is 1, expected a number"),
        (None, (int, None), ""),
        ("x", (int, None), 'it is "x", expected a whole number or null'),
        (["a", 2], [str], "[1] is 2, expected text"),
        ("a", [str], 'it is "a", expected a list'),
        ({"a": 1, "b": "x"}, {...: int}, 'b is "x", expected a whole number'),
        ({"a": {}}, {"a": {"b": str}}, "'a.b' is missing"),
        ({"a": {"b": 1}}, {"a": {"b": str}}, "a.b is 1, expected text"),
        ({}, {"a?": str}, ""),
        ({"a": None}, {"a?": str}, "a is null, expected text"),
        ({"more": 1}, {"a?": str}, ""),
        ([], {"a?": str}, "it is [], expected an object"),
    ],
)
def test_misfits_are_named_with_their_place(value: Any, shape: Any, problem: str) -> None:
    assert misfit(value, shape) == problem


def test_a_long_value_is_shown_short() -> None:
    assert len(misfit("x" * 1000, int)) < 100


def test_every_shape_is_one_that_misfit_reads() -> None:
    for name, shape in RUN_JSON.items():
        assert misfit([], shape) == "it is [], expected an object", name
        assert isinstance(misfit({}, shape), str)


@pytest.mark.parametrize("data", [b"", b"{", b'{"a": "\xff"}', b'"\\ud800"', b"[" * 100_000])
def test_what_is_no_json_is_one_line(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(data)
    with pytest.raises(ValueError) as caught:
        load_json(path)
    assert "\n" not in str(caught.value)


def test_whole_surrogate_pairs_are_text() -> None:
    assert parse_json(b'"\\ud83d\\ude42"') == "🙂"


def test_a_missing_file_is_an_oserror(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load_json(tmp_path / "none.json")
