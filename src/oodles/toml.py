"""A strict TOML loader: a table becomes a frozen record; unknown keys are refused, the nearest known key is offered."""

from __future__ import annotations

import dataclasses
import tomllib
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin

from oodles.errors import ConfigError, nearest

T = TypeVar("T")


def read_toml(path: Path) -> dict[str, Any]:
    """A TOML file as a dict, or one line about what is wrong with it."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); check the path") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not UTF-8 text; expected a TOML file") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path.name}: not valid TOML: {error}") from None


def check_schema(raw: Mapping[str, Any], expected: int, where: str) -> None:
    if raw.get("schema") != expected:
        stated = raw.get("schema", "none")
        raise ConfigError(f"{where}: schema is {stated}, expected {expected}; write 'schema = {expected}' at the top")


def build(cls: type[T], raw: Mapping[str, Any], where: str) -> T:
    """A frozen record from a TOML table; refuses unknown keys, wrong types and missing keys."""
    hints = typing.get_type_hints(cls)
    fields = {f.name: f for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
    for key in raw:
        if key not in fields:
            raise ConfigError(f"{where}: unknown key '{key}'; {nearest(key, fields)}")
    values = {key: _value(hints[key], value, _inside(where, key, value), key) for key, value in raw.items()}
    required = [n for n, f in fields.items() if f.default is f.default_factory is dataclasses.MISSING]
    missing = [name for name in required if name not in values]
    if missing:
        raise ConfigError(f"{where}: missing key '{missing[0]}'; add it")
    return cls(**values)


def _inside(where: str, key: str, value: Any) -> str:
    """The place named in a message: a table adds its name."""
    if not isinstance(value, Mapping):
        return where
    return f"{where[:-1]}.{key}]" if where.endswith("]") else f"{where} [{key}]"


def _item(where: str, key: str, number: int, item: Any) -> str:
    """The place of an item of a list of tables: by its name, if it has one."""
    if not isinstance(item, Mapping):
        return where
    return f"{where} [[{key}]] {item.get('name', f'number {number + 1}')}"


def _value(hint: Any, value: Any, where: str, key: str) -> Any:
    """Check a TOML value against a type hint; lists become tuples."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (typing.Union, types.UnionType):
        for option in args:
            try:
                return _value(option, value, where, key)
            except ConfigError:
                continue
        raise _wrong_type(hint, value, where, key)
    if origin is Literal:
        if value not in args:
            choices = ", ".join(str(a) for a in args)
            raise ConfigError(f"{where}: {key} is {value!r}, expected one of {choices}")
        return value
    if dataclasses.is_dataclass(hint) and isinstance(value, Mapping):
        return build(typing.cast(type, hint), value, where)
    if origin is tuple and isinstance(value, list):
        return tuple(_value(args[0], item, _item(where, key, i, item), f"{key}[{i}]") for i, item in enumerate(value))
    if origin is not None and issubclass(origin, Mapping) and isinstance(value, Mapping):
        return {k: _value(args[1], v, _inside(where, k, v), k) for k, v in value.items()}
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(hint, type) and isinstance(value, hint) and not (hint is int and isinstance(value, bool)):
        return value
    raise _wrong_type(hint, value, where, key)


def _wrong_type(hint: Any, value: Any, where: str, key: str) -> ConfigError:
    return ConfigError(f"{where}: {key} is {value!r}, expected {_words(hint)}")


def _words(hint: Any) -> str:
    """A type hint in a user's words."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_words(a) for a in args if a is not type(None))
    if origin is Literal:
        return " or ".join(f'"{a}"' for a in args)
    if origin is tuple:
        return f"a list of {_words(args[0])}s".replace("text in quotess", "texts in quotes").removeprefix(
            "a list of a "
        )
    if dataclasses.is_dataclass(hint) or (origin is not None and issubclass(origin, Mapping)):
        return "a table"
    names = {int: "whole number", float: "number", str: "text in quotes", bool: "true or false"}
    return names.get(hint, str(hint))
