"""The strict TOML loader."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from oodles.errors import ConfigError
from oodles.toml import build, check_schema, read_toml


@dataclass(frozen=True)
class Inner:
    name: str
    size: int = 1


@dataclass(frozen=True)
class Outer:
    title: str
    rate: float = 0.5
    kind: Literal["a", "b"] = "a"
    seed: int | None = None
    words: tuple[str, ...] = ()
    inner: Inner | None = None
    items: tuple[Inner, ...] = ()
    labels: Mapping[str, int] = field(default_factory=dict)


def test_a_table_becomes_a_record() -> None:
    raw = {
        "title": "t",
        "rate": 2,
        "kind": "b",
        "words": ["x", "y"],
        "inner": {"name": "i"},
        "items": [{"name": "j", "size": 3}],
        "labels": {"e": 0},
    }
    built = build(Outer, raw, "f.toml")
    assert built == Outer(
        title="t",
        rate=2.0,
        kind="b",
        words=("x", "y"),
        inner=Inner("i"),
        items=(Inner("j", 3),),
        labels={"e": 0},
    )
    assert type(built.rate) is float


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({}, "f.toml: missing key 'title'; add it"),
        ({"title": "t", "rat": 1}, "f.toml: unknown key 'rat'; did you mean 'rate'?"),
        ({"title": 3}, "f.toml: title is 3, expected text in quotes"),
        ({"title": "t", "rate": "fast"}, "f.toml: rate is 'fast', expected number"),
        ({"title": "t", "rate": True}, "f.toml: rate is True, expected number"),
        ({"title": "t", "seed": True}, "f.toml: seed is True, expected whole number"),
        ({"title": "t", "seed": 1.5}, "f.toml: seed is 1.5, expected whole number"),
        ({"title": "t", "kind": "c"}, "f.toml: kind is 'c', expected one of a, b"),
        ({"title": "t", "words": "x"}, "f.toml: words is 'x', expected a list of texts in quotes"),
        ({"title": "t", "words": ["x", 2]}, "f.toml: words[1] is 2, expected text in quotes"),
        ({"title": "t", "labels": {"e": "0"}}, "f.toml [labels]: e is '0', expected whole number"),
        ({"title": "t", "items": [{"name": "j", "sise": 1}]}, "f.toml [[items]] j: unknown key 'sise'"),
        ({"title": "t", "items": [{"size": 1}]}, "f.toml [[items]] number 1: missing key 'name'"),
    ],
)
def test_what_is_wrong_is_one_line_with_its_place(raw: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build(Outer, raw, "f.toml")
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, "cannot be read (No such file or directory)"),
        (b"a = \xff", "not UTF-8 text"),
        (b"a = ", "f.toml: not valid TOML"),
    ],
)
def test_files_that_are_no_toml(tmp_path: Path, data: bytes | None, message: str) -> None:
    path = tmp_path / "f.toml"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(ConfigError) as caught:
        read_toml(path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_schema_is_checked() -> None:
    check_schema({"schema": 1}, 1, "f.toml")
    for raw, stated in (({}, "none"), ({"schema": 2}, "2")):
        with pytest.raises(ConfigError, match=f"schema is {stated}, expected 1; write 'schema = 1' at the top"):
            check_schema(raw, 1, "f.toml")
