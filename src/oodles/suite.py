"""Suites: which sets are tested, and how a prompt reads. A path to your own TOML works like a built-in name.

oodles suites            # list them
oodles suites mini       # one: its sets, labels, licences
"""

from __future__ import annotations

import string
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path

from oodles.config import build, check_schema, read_toml
from oodles.errors import ConfigError, nearest
from oodles.records import DataSet, Pattern, Source, Suite

SUITE_SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pattern:
    text: str
    answers: tuple[str, ...]
    truncate: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    schema: int
    name: str
    patterns: Mapping[str, _Pattern]
    test_sets: tuple[DataSet, ...]
    train_sets: tuple[DataSet, ...] = ()
    citation: str = ""
    description: str = field(default="")


def list_suites() -> list[str]:
    """Names of the built-in suites."""
    folder = resources.files("oodles") / "suites"
    return sorted(p.name.removesuffix(".toml") for p in folder.iterdir() if p.name.endswith(".toml"))


def load_suite(source: str | Path | Suite, folder: str | Path = "") -> Suite:
    """Load a suite by name or from your own TOML file; a `Suite` is returned as it is.

    Parameters
    ----------
    source : a built-in name (see ``oodles suites``) or the path of a TOML file.
    folder : where a relative path is looked up if it is not found from here.

    Examples
    --------
    >>> suite = load_suite("mini")
    >>> suite.patterns["question"].answers
    (' Yes', ' No')
    """
    if isinstance(source, Suite):
        return source
    path = _find(source, Path(folder))
    raw = read_toml(path)
    check_schema(raw, SUITE_SCHEMA, path.name)
    file = build(_File, raw, path.name)
    suite = Suite(
        name=file.name,
        patterns={
            k: Pattern(name=k, text=p.text, answers=p.answers, truncate=p.truncate) for k, p in file.patterns.items()
        },
        train_sets={s.name: s for s in file.train_sets},
        test_sets={s.name: s for s in file.test_sets},
        citation=file.citation,
        description=file.description,
        folder=str(path.parent),
    )
    _check(suite, file, path.name)
    return suite


def _find(source: str | Path, folder: Path) -> Path:
    for path in (Path(source), folder / source):
        if path.is_file():
            return path
    if str(source) in list_suites():
        return Path(str(resources.files("oodles") / "suites" / f"{source}.toml"))
    raise ConfigError(f"suite '{source}': no such file or built-in suite; {nearest(str(source), list_suites())}")


def pattern_of(suite: Suite, name: str) -> Pattern:
    """A pattern by name; the first one if the name is empty."""
    if not name:
        return next(iter(suite.patterns.values()))
    if name not in suite.patterns:
        raise ConfigError(f"suite {suite.name}: no pattern '{name}'; {nearest(name, suite.patterns)}")
    return suite.patterns[name]


def train_set_of(suite: Suite, name: str) -> DataSet:
    if name not in suite.train_sets:
        raise ConfigError(f"suite {suite.name}: no train set '{name}'; {nearest(name, suite.train_sets)}")
    return suite.train_sets[name]


def select_test_sets(suite: Suite, names: tuple[str, ...] = ()) -> tuple[DataSet, ...]:
    """The test sets by name, in the order asked for; all of them if no name is given."""
    for name in names:
        if name not in suite.test_sets:
            raise ConfigError(f"suite {suite.name}: no test set '{name}'; {nearest(name, suite.test_sets)}")
    return tuple(suite.test_sets[name] for name in names or suite.test_sets)


def _check(suite: Suite, file: _File, where: str) -> None:
    """What must hold for every suite, whatever its data say."""
    if not suite.patterns or not suite.test_sets:
        raise ConfigError(f"{where}: expected at least one pattern and one test set")
    for pattern in suite.patterns.values():
        _check_pattern(pattern, f"{where} [patterns.{pattern.name}]")
    for kind, listed in (("train sets", file.train_sets), ("test sets", file.test_sets)):
        _check_names([data.name for data in listed], kind, where)
    answers = min(len(p.answers) for p in suite.patterns.values())
    for data in (*suite.train_sets.values(), *suite.test_sets.values()):
        _check_source(data.source, f"{where} [{data.name}]")
        for label, index in data.labels.items():
            if not 0 <= index < answers:
                raise ConfigError(
                    f"{where} [{data.name}]: label '{label}' is mapped to {index}, expected 0 to {answers - 1}"
                )
        both = set(data.labels) & set(data.drop)
        if both:
            raise ConfigError(f"{where} [{data.name}]: label '{both.pop()}' is both mapped and dropped; choose one")


def _check_names(names: list[str], kind: str, where: str) -> None:
    """A set's name is a file name in the run folder, and its key in the long table."""
    for name in names:
        if not name or not all(c.isalnum() or c in "-_.," for c in name) or name.startswith("."):
            raise ConfigError(f"{where}: name '{name}' in {kind}; expected letters, digits, - _ . and , only")
        if names.count(name) > 1:
            raise ConfigError(f"{where}: two {kind} are named '{name}'; expected distinct names")


def _check_pattern(pattern: Pattern, where: str) -> None:
    if len(pattern.answers) < 2:
        raise ConfigError(f"{where}: {len(pattern.answers)} answers, expected at least 2")
    for index, answer in enumerate(pattern.answers):
        if not answer.strip():
            raise ConfigError(f"{where}: answer {index} is empty ({answer!r}); expected a word such as ' Yes'")
    if len(set(pattern.answers)) < len(pattern.answers):
        raise ConfigError(f"{where}: two answers are equal; expected distinct answers")
    names = pattern_fields(pattern, where)
    if pattern.truncate is not None and pattern.truncate not in names:
        raise ConfigError(f"{where}: truncate is '{pattern.truncate}'; {nearest(pattern.truncate, names)}")


def pattern_fields(pattern: Pattern, where: str = "pattern") -> tuple[str, ...]:
    """The {fields} of a pattern's text, in order."""
    try:
        names = [name for _, name, _, _ in string.Formatter().parse(pattern.text) if name is not None]
    except ValueError as error:
        raise ConfigError(f"{where}: text cannot be read ({error}); write {{{{ for a brace") from None
    bad = [n for n in names if not n.isidentifier()]
    if bad or not names:
        raise ConfigError(
            f"{where}: text has {'field ' + repr(bad[0]) if bad else 'no field'}; expected e.g. {{premise}}"
        )
    return tuple(dict.fromkeys(names))


def _check_source(source: Source, where: str) -> None:
    given = [k for k in ("generator", "file", "hub") if getattr(source, k) is not None]
    if len(given) != 1:
        raise ConfigError(f"{where}: source names {given or 'nothing'}, expected one of generator, file, hub")
