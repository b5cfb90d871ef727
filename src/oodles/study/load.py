"""study.toml -> frozen records; unknown keys are refused and the nearest known key is offered.

oodles check study.toml
oodles run study.toml --set train.epochs=5
"""

from __future__ import annotations

import dataclasses
import math
import os
import tomllib
import types
import typing
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin

from oodles.contracts import Evaluation, Lora, ModelSpec, Recipe, Study
from oodles.errors import ConfigError, nearest
from oodles.names import check_name

T = TypeVar("T")
STUDY_SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Grid:
    models: tuple[str, ...]
    train_sets: tuple[str, ...]
    shots: tuple[int, ...]
    seeds: tuple[int, ...]
    patterns: tuple[str, ...] = ()
    data_seed: Literal["seed"] | int | tuple[int, ...] = "seed"
    draw: Literal["independent", "nested"] = "independent"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Model:
    source: str
    revision: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    schema: int
    name: str
    suite: str
    grid: _Grid
    out: str = ""
    data: str = ""
    allow: tuple[str, ...] = ()
    models: Mapping[str, _Model] = field(default_factory=dict)
    lora: Lora = field(default_factory=Lora)
    train: Recipe = field(default_factory=Recipe)
    eval: Evaluation = field(default_factory=Evaluation)


def load_study(source: str | Path, overrides: Sequence[str] = ()) -> Study:
    """Read a study file, or one that is shipped, by its name.

    Parameters
    ----------
    source : path of a TOML file, or the name of a shipped study (``"demo"``).
    overrides : ``key=value`` strings, e.g. ``train.epochs=5``; values are TOML.

    Examples
    --------
    >>> load_study("demo").suite
    'mini'
    >>> load_study("demo", ["grid.seeds=[7]"]).seeds
    (7,)
    """
    path = find_study(source)
    raw = read_toml(path)
    for override in overrides:
        _apply(raw, override)
    check_schema(raw, STUDY_SCHEMA, path.name)
    file = build(_File, raw, path.name)
    _check_ranges(file, path.name)
    grid = file.grid
    return Study(
        name=file.name,
        suite=file.suite,
        out=str(Path(os.environ.get("OUTPUT_DIR", "")) / (file.out or f"runs/{file.name}")),
        models=grid.models,
        train_sets=grid.train_sets,
        shots=grid.shots,
        seeds=grid.seeds,
        patterns=grid.patterns,
        data_seeds=(grid.data_seed,) if isinstance(grid.data_seed, int) else grid.data_seed,
        draw=grid.draw,
        data=str(path.parent / file.data) if file.data else "",
        allow=file.allow,
        sources={k: ModelSpec(label=k, source=m.source, revision=m.revision) for k, m in file.models.items()},
        lora=file.lora,
        recipe=file.train,
        evaluation=file.eval,
        folder=str(path.parent),
    )


def shipped_studies() -> list[str]:
    """Names of the studies in the package."""
    folder = resources.files("oodles.study") / "studies"
    return sorted(p.name.removesuffix(".toml") for p in folder.iterdir() if p.name.endswith(".toml"))


def find_study(source: str | Path) -> Path:
    """A study's file: a path as given, or a shipped name."""
    path = Path(source)
    if path.is_file():
        return path
    if path.suffix == "" and str(source) in shipped_studies():
        return Path(str(resources.files("oodles.study") / "studies" / f"{source}.toml"))
    if path.suffix == ".toml" or len(path.parts) > 1:
        raise ConfigError(
            f"{source}: no such file; give the path of a study TOML or a shipped study: {', '.join(shipped_studies())}"
        )
    raise ConfigError(f"{source}: no such study file or shipped study; {nearest(str(source), shipped_studies())}")


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
        found = raw.get("schema", "none")
        raise ConfigError(f"{where}: schema is {found}, expected {expected}; write 'schema = {expected}' at the top")


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
            known = ", ".join(str(a) for a in args)
            raise ConfigError(f"{where}: {key} is {value!r}, expected one of {known}")
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


def _apply(raw: dict[str, Any], override: str) -> None:
    """Put one --set key=value into the raw file."""
    key, equals, text = override.partition("=")
    parts = key.strip().split(".")
    if not equals or not all(parts):
        raise ConfigError(f"--set {override}: expected key=value, e.g. --set train.epochs=5")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()  # an unquoted word is a text
    table = raw
    for part in parts[:-1]:
        table = table.setdefault(part, {})
        if not isinstance(table, dict):
            raise ConfigError(f"--set {override}: '{part}' is not a table")
    table[parts[-1]] = value


SEED = "expected 0 to 4294967295"
LEAST = defaultdict(float, polynomial=1e-7)  # where that schedule ends


def _is_seed(seed: int) -> bool:
    """What numpy takes, whose generator the Trainer seeds."""
    return 0 <= seed < 2**32


def _data_seeds(file: _File) -> tuple[int, ...]:
    seeds = file.grid.data_seed
    return (seeds,) if isinstance(seeds, int) else () if isinstance(seeds, str) else seeds


def _own_seeds(recipe: Recipe) -> dict[str, int]:
    named = {name: getattr(recipe, name) for name in ("adapter_seed", "order_seed", "dropout_seed")}
    return {name: seed for name, seed in named.items() if seed is not None}


def _check_ranges(file: _File, where: str) -> None:
    """What a type cannot say."""
    train, lora, evaluation = file.train, file.lora, file.eval
    rules = [
        (bool(file.grid.models), "[grid]: models is empty; name at least one"),
        (bool(file.grid.train_sets), "[grid]: train_sets is empty; name at least one"),
        (bool(file.grid.seeds), "[grid]: seeds is empty; name at least one"),
        (bool(file.grid.shots), "[grid]: shots is empty; name at least one"),
        (all(s > 0 for s in file.grid.shots), "[grid]: shots must be positive"),
        (file.grid.data_seed != (), '[grid]: data_seed is empty; name at least one, or "seed"'),
        *((_is_seed(s), f"[grid]: seeds holds {s}, {SEED}") for s in file.grid.seeds),
        *((abs(s) < 2**63, f"[grid]: data_seed is {s}, expected 64 bits at most") for s in _data_seeds(file)),
        *((_is_seed(s), f"[train]: {name} is {s}, {SEED}") for name, s in _own_seeds(train).items()),
        (train.epochs > 0, f"[train]: epochs is {train.epochs}, expected at least 1"),
        (train.batch_size > 0, f"[train]: batch_size is {train.batch_size}, expected at least 1"),
        (train.steps is None or train.steps > 0, f"[train]: steps is {train.steps}, expected at least 1"),
        (train.accumulate > 0, f"[train]: accumulate is {train.accumulate}, expected at least 1"),
        (
            LEAST[train.schedule] < train.learning_rate < math.inf,
            f"[train]: learning_rate is {train.learning_rate}, expected more than {LEAST[train.schedule]:g}"
            f"{' with this schedule' * (train.schedule == 'polynomial')} and less than infinity",
        ),
        (
            0 <= train.weight_decay < math.inf,
            f"[train]: weight_decay is {train.weight_decay}, expected 0 or more and less than infinity",
        ),
        (train.max_grad_norm >= 0, f"[train]: max_grad_norm is {train.max_grad_norm}, expected 0 (no limit) or more"),
        (0 <= train.warmup <= 1, f"[train]: warmup is {train.warmup}, expected a share between 0 and 1"),
        (lora.rank > 0, f"[lora]: rank is {lora.rank}, expected at least 1"),
        (lora.alpha > 0, f"[lora]: alpha is {lora.alpha}, expected at least 1"),
        (0 <= lora.dropout < 1, f"[lora]: dropout is {lora.dropout}, expected 0 or more and less than 1"),
        (evaluation.limit is None or evaluation.limit > 0, "[eval]: limit must be positive"),
        (
            evaluation.limit_in_domain is None or evaluation.limit_in_domain > 0,
            "[eval]: limit_in_domain must be positive",
        ),
        (evaluation.batch_tokens is None or evaluation.batch_tokens > 0, "[eval]: batch_tokens must be positive"),
        (evaluation.points > 0, "[eval]: points must be positive"),
    ]
    for holds, message in rules:
        if not holds:
            raise ConfigError(f"{where} {message}")
    if isinstance(evaluation.steps, str) and evaluation.steps not in ("log", "linear"):
        raise ConfigError(f'{where} [eval]: steps is "{evaluation.steps}", expected "log", "linear" or a list of steps')
    check_name(file.name, f"{where}: name")
    for label in file.models:
        check_name(label, f"{where} [models]: a label")
