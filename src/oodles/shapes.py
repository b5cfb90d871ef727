"""Check the structure of JSON values when a file is read.

A shape is a type, a tuple of alternative shapes, `[shape]` for a list, `{...: shape}` for an object with any keys, or
`{"key": shape}` for an object with these keys (`"key?"` is optional; additional keys are accepted).

>>> misfit({"model": {"label": 3}}, {"model": {"label": str}, "shots?": (int, None)})
'model.label is 3, expected text'
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from oodles.errors import first_line, shown

ANY: Mapping[Any, Any] = {}
NUMBER = (int, float)
WORDS = {str: "text", int: "a whole number", float: "a number", bool: "true or false", None: "null"}
LARGEST = 2**53  # larger whole numbers are not exact as floats

RUN_JSON: Mapping[str, Any] = {
    "study.json": {
        "study?": (str, None),
        "suite?": (str, None),
        "suite_file?": (str, None),
        "runs?": [str],
        "slices?": [str],
        "sets?": {...: str},
        "members?": {...: str},
    },
    "spec.json": {
        "model": {"label": str, "source?": str, "revision?": (str, None)},
        "suite": str,
        "train_set": str,
        "pattern": {"name": str, "text?": str, "answers?": [str]},
        "shots": (int, None),
        "seed": (int, None),
        "data_seed": (int, None),
        "run_id?": (str, None),
        "evaluation?": {"limit?": (int, None), "limit_in_domain?": (int, None), "batch_tokens?": (int, None)},
        "recipe?": {"precision?": str},
        "lora?": ANY,
        "checkpoints?": {...: (str, None)},
    },
    "env.json": {"oodles": str, "python": str, "packages?": {...: (str, None)}},
    "draw.json": {"ids?": [str], "hash?": str},
    "done.json": {"seconds?": (*NUMBER, None), "last_step?": (int, None)},
    "failed.json": {"reason?": (str, None)},
    "audit.json": {
        "findings?": [{"severity": str, "code": str, "where": str, "text": str}],
        "allowed?": [str],
        "sets?": [
            {
                **{"set": str, "kind?": str, "n?": int, "chance?": (*NUMBER, None), "tags?": [str]},
                **{"labels?": {...: int}, "dropped?": {...: int}},
                **dict.fromkeys(("hash?", "origin?", "revision?"), (str, None)),
                "rendered?": {...: {...: ANY}},
            }
        ],
    },
    "adapter_config.json": {"base_model_name_or_path?": (str, None)},
}


def load_json(path: Path) -> Any:
    """Read the JSON value in a file; raises OSError, or ValueError with a one-line reason."""
    try:
        return parse_json(path.read_bytes())
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except ValueError as error:
        raise ValueError(first_line(error)) from None


def parse_json(data: bytes) -> Any:
    """Parse a JSON value; ValueError if it is invalid or holds half a surrogate pair, which is not valid text."""
    value = json.loads(data.decode())
    if b"\\ud" in data or b"\\uD" in data:
        json.dumps(value, ensure_ascii=False).encode()
    return value


def misfit(value: Any, shape: Any, place: str = "") -> str:
    """Describe where a value does not match its shape, and what was expected; empty if it matches."""
    if isinstance(shape, tuple):
        return (
            "" if any(not misfit(value, alternative, place) for alternative in shape) else _wrong(value, shape, place)
        )
    if isinstance(shape, list):
        if not isinstance(value, list):
            return _wrong(value, shape, place)
        return next(filter(None, (misfit(v, shape[0], f"{place}[{i}]") for i, v in enumerate(value))), "")
    if isinstance(shape, Mapping):
        return _misfit_object(value, shape, place)
    if shape is None:
        return "" if value is None else _wrong(value, shape, place)
    if shape is float:
        return "" if isinstance(value, float) else _wrong(value, shape, place)
    if shape is int:
        fits = isinstance(value, int) and not isinstance(value, bool) and abs(value) <= LARGEST
        return "" if fits else _wrong(value, shape, place)
    return "" if isinstance(value, shape) else _wrong(value, shape, place)


def _misfit_object(value: Any, shape: Mapping[Any, Any], place: str) -> str:
    if not isinstance(value, dict):
        return _wrong(value, shape, place)
    if ... in shape:
        return next(filter(None, (misfit(v, shape[...], _below(place, k)) for k, v in value.items())), "")
    for key, expected in shape.items():
        name = key.removesuffix("?")
        if name not in value:
            if not key.endswith("?"):
                return f"'{_below(place, name)}' is missing"
            continue
        if problem := misfit(value[name], expected, _below(place, name)):
            return problem
    return ""


def _below(place: str, key: str) -> str:
    return f"{place}.{key}" if place else key


def _wrong(value: Any, shape: Any, place: str) -> str:
    return f"{shown(place) or 'it'} is {shown(json.dumps(value, default=str), 40)}, expected {_words(shape)}"


def _words(shape: Any) -> str:
    if isinstance(shape, tuple):
        return " or ".join(dict.fromkeys(map(_words, shape)))
    if isinstance(shape, list):
        return "a list"
    return "an object" if isinstance(shape, Mapping) else WORDS[shape]
