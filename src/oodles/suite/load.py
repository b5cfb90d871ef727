"""Load suites: test sets and the patterns of their prompts. A path to your own TOML works like a built-in name.

oodles suites            # list them
oodles suites mini       # one: its sets, labels, licences
"""

from __future__ import annotations

import os
import string
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from importlib import resources
from pathlib import Path

from oodles.contracts import OF_CHOICES, SHOTS, DataSet, Pattern, ScoreForm, Source, Suite
from oodles.errors import ConfigError, nearest, shown
from oodles.names import check_name, check_split
from oodles.suite.stand_ins import STAND_IN
from oodles.toml import build, check_schema, read_toml

SUITE_SCHEMA = 1
FORMATS = ("parquet", "csv", "tsv", "jsonl")  # of files
TASK = Pattern(name="task", text="{question}")  # of sets that lm-evaluation-harness renders


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pattern:
    text: str
    answers: tuple[str, ...] = ()
    truncate: str | None = None
    max_tokens: int | None = None
    chat: bool = False
    choice: str = " {choice}"
    blank: str = ""
    score: ScoreForm = "sum"
    baseline: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    schema: int
    name: str
    test_sets: tuple[DataSet, ...]
    patterns: Mapping[str, _Pattern] = field(default_factory=dict)
    train_sets: tuple[DataSet, ...] = ()
    citation: str = ""
    description: str = ""
    rows: str = ""


def list_suites() -> list[str]:
    """Return the names of the built-in suites."""
    return sorted(path.stem for path in _built_in().glob("*.toml"))


def _built_in() -> Path:
    return Path(str(resources.files("oodles.suite") / "suites"))


def load_suite(source: str | Path | Suite, folder: str | Path = "", data: str | Path = "") -> Suite:
    """Load a suite by name or from your own TOML file; a `Suite` is returned unchanged.

    Parameters
    ----------
    source
        A built-in name (see ``oodles suites``) or the path of a TOML file.
    folder
        Folder in which a relative path is looked up if it does not exist in the current folder.
    data
        A folder with copies of hub data sets, ``<test set>/<split>.parquet``; default ``$OODLES_DATA``.

    Examples
    --------
    >>> suite = load_suite("mini")
    >>> suite.patterns["question"].answers
    (' Yes', ' No')
    """
    if isinstance(source, Suite):
        _check_all_names(source, f"suite {shown(source.name)}")
        return replace(source, data=_data_folder(data)) if data else source
    path = _find(source, Path(folder))
    raw = read_toml(path)
    check_schema(raw, SUITE_SCHEMA, path.name)
    file = build(_File, raw, path.name)
    suite = Suite(
        name=file.name,
        patterns={k: _pattern(k, p) for k, p in file.patterns.items()} or _patterns_of(file),
        train_sets={s.name: s for s in file.train_sets},
        test_sets={s.name: s for s in file.test_sets},
        citation=file.citation,
        description=file.description,
        folder=str(path.parent),
        data=_data_folder(data),
        rows=file.rows,
        file="" if path.parent == _built_in() else str(path),
    )
    _check(suite, file, path.name)
    return suite


def _patterns_of(file: _File) -> dict[str, Pattern]:
    """A suite needs no pattern if the harness renders all its sets."""
    alone = all(data.source.lm_eval is not None for data in (*file.train_sets, *file.test_sets))
    return {TASK.name: TASK} if alone else {}


def _pattern(name: str, read: _Pattern) -> Pattern:
    return Pattern(name=name, **asdict(read))


def _data_folder(given: str | Path) -> str:
    """Return the folder with copies of hub data sets: the argument, else the environment variable."""
    folder = str(given or os.environ.get("OODLES_DATA", ""))
    if folder and not Path(folder).is_dir():
        origin = "--data" if given else "OODLES_DATA"
        raise ConfigError(f"{origin} {folder}: no such folder; expected one with <test set>/<split>.parquet files")
    return folder


def _find(source: str | Path, folder: Path) -> Path:
    for path in (Path(source), folder / source):
        if path.is_file():
            return path
    if str(source) in list_suites():
        return _built_in() / f"{source}.toml"
    raise ConfigError(f"suite '{source}': no such file or built-in suite; {nearest(str(source), list_suites())}")


def pattern_of(suite: Suite, name: str) -> Pattern:
    """Return a pattern by name; the first one if the name is empty."""
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
    """Select test sets by name, in the given order; all of them if no name is given. A slice selects its set."""
    chosen = {}
    for name in names or suite.test_sets:
        parent = name.partition("/")[0]
        if parent not in suite.test_sets:
            raise ConfigError(f"suite {suite.name}: no test set '{parent}'; {nearest(parent, suite.test_sets)}")
        chosen[parent] = suite.test_sets[parent]
    return tuple(chosen.values())


def pattern_for(suite: Suite, data: DataSet, pattern: Pattern) -> Pattern:
    """Return the pattern of a set: its own, if it has one, else the run's, with the set's own form of the score."""
    if not data.has_choices:
        return pattern_of(suite, data.pattern) if data.pattern else pattern
    if data.source.lm_eval is not None:
        own = TASK
    else:  # the run's pattern may have the form of another set's score
        own = pattern_of(suite, data.pattern) if data.pattern else suite.patterns.get(pattern.name, pattern)
    return replace(own, score=data.score) if data.score else own


def _check(suite: Suite, file: _File, where: str) -> None:
    """Check the rules that hold for every suite, independent of its data."""
    if not suite.patterns or not suite.test_sets:
        raise ConfigError(f"{where}: expected at least one pattern and one test set")
    _check_all_names(suite, where)
    for pattern in suite.patterns.values():
        check_pattern(pattern, f"{where} [patterns.{pattern.name}]")
    for kind, listed in (("train sets", file.train_sets), ("test sets", file.test_sets)):
        _check_names([data.name for data in listed], kind, where)
    for data in (*suite.train_sets.values(), *suite.test_sets.values()):
        _check_set(suite, data, f"{where} [{data.name}]")


def _check_set(suite: Suite, data: DataSet, where: str) -> None:
    _check_source(data.source, where)
    if data.pattern and data.pattern not in suite.patterns:
        raise ConfigError(f"{where}: pattern is '{data.pattern}'; {nearest(data.pattern, suite.patterns)}")
    if data.has_choices:
        _check_choices(suite, data, where)
        return
    if not data.labels:
        raise ConfigError(f"{where}: missing key 'labels'; add it")
    if data.gold != "index" or data.score is not None:
        raise ConfigError(f"{where}: gold and score are for sets with choices; name their column with choices")
    answers = _fewest_answers(suite, data)
    for label, index in data.labels.items():
        if not 0 <= index < answers:
            raise ConfigError(f"{where}: label '{label}' is mapped to {index}, expected 0 to {answers - 1}")
    both = set(data.labels) & set(data.drop)
    if both:
        raise ConfigError(f"{where}: label '{both.pop()}' is both mapped and dropped; choose one")
    labels = {*data.labels, *data.drop}
    for label in data.expect:
        if label not in labels:
            raise ConfigError(f"{where}: expect names label '{label}'; {nearest(label, labels)}")
    for raw, name in data.label_names.items():
        if name not in labels:
            raise ConfigError(f"{where}: label_names calls '{raw}' '{name}', which is neither mapped nor dropped")


def _check_choices(suite: Suite, data: DataSet, where: str) -> None:
    """Check a set whose examples bring their own answers."""
    if data.source.lm_eval is not None:
        given = [k for k in ("labels", "choices", "columns", "pattern", "drop", "label_names") if getattr(data, k)]
        given += ["gold"] if data.gold != "index" else []
        if given:
            raise ConfigError(f"{where}: {given[0]} does not go with lm_eval: the task has its own")
        if data.item and data.item not in ("question", *data.slices):
            known = ", ".join(["question", *data.slices])
            raise ConfigError(
                f"{where}: item is '{data.item}', expected question or a column that slices names: {known}"
            )
    else:
        used = [suite.patterns[data.pattern]] if data.pattern else shared_patterns(suite)
        fixed = next((p for p in used if p.answers), None)
        if fixed is not None:
            raise ConfigError(
                f"{where}: has choices, but pattern '{fixed.name}' has answers of its own; name a pattern without"
            )
        if not data.pattern and any(t.source.lm_eval is not None for t in suite.train_sets.values()):
            raise ConfigError(f"{where}: name its pattern, because runs may be trained on a task of the harness")
    if any(index < 0 for index in data.labels.values()):
        raise ConfigError(f"{where}: a label is mapped to a negative number, expected the index of a choice")
    if set(data.expect) - {"rows"}:
        raise ConfigError(f"{where}: expect is {dict(data.expect)}, expected a number of rows: {{ rows = 1000 }}")


def _fewest_answers(suite: Suite, data: DataSet) -> int:
    """Return the number of answers a set has at least: those of its own pattern, else of any shared pattern."""
    used = (suite.patterns[data.pattern],) if data.pattern else shared_patterns(suite)
    fewest = min(used, key=lambda pattern: len(pattern.answers))
    if not fewest.answers:
        raise ConfigError(f"suite {suite.name} [{data.name}]: pattern '{fewest.name}' has no answers; add them")
    return len(fewest.answers)


def shared_patterns(suite: Suite) -> tuple[Pattern, ...]:
    """Return the patterns available to runs: those that no set has as its own."""
    own = {s.pattern for s in (*suite.train_sets.values(), *suite.test_sets.values())}
    return tuple(p for name, p in suite.patterns.items() if name not in own) or tuple(suite.patterns.values())


def _check_all_names(suite: Suite, where: str) -> None:
    """Check every name that becomes part of a path."""
    check_name(suite.name, f"{where}: name")
    for pattern in suite.patterns.values():
        check_name(pattern.name, f"{where}: the name of a pattern")
    for kind, sets in (("train sets", suite.train_sets), ("test sets", suite.test_sets)):
        for data in sets.values():
            check_name(data.name, f"{where}: a name in {kind}")


def _check_names(names: list[str], kind: str, where: str) -> None:
    """Check the names of sets, which are keys in the long table."""
    for name in names:
        if name == SHOTS:
            raise ConfigError(f"{where}: name '{name}' in {kind} is kept for a run's own shots; choose another")
        if names.count(name) > 1:
            raise ConfigError(f"{where}: two {kind} are named '{name}'; expected distinct names")


def check_pattern(pattern: Pattern, where: str) -> None:
    if not pattern.answers:
        _check_open_pattern(pattern, where)
        return
    plain = Pattern(name=pattern.name, text=pattern.text)
    given = [key for key in OF_CHOICES if getattr(pattern, key) != getattr(plain, key)]
    if given:
        raise ConfigError(f"{where}: {given[0]} is for patterns without answers; remove one of the two")
    if len(pattern.answers) < 2:
        raise ConfigError(f"{where}: {len(pattern.answers)} answers, expected at least 2")
    for index, answer in enumerate(pattern.answers):
        if not answer.strip():
            raise ConfigError(f"{where}: answer {index} is empty ({answer!r}); expected a word such as ' Yes'")
    stripped = [a.strip() for a in pattern.answers]
    if len(set(stripped)) < len(stripped):
        raise ConfigError(f"{where}: two answers are equal; expected distinct answers")
    if pattern.max_tokens is not None and pattern.max_tokens < 1:
        raise ConfigError(f"{where}: max_tokens is {pattern.max_tokens}, expected at least 1")
    if callable(pattern.text):
        return
    pieces = pattern_pieces(pattern, where)
    names = [name for _, name in pieces if name is not None]
    if pattern.truncate is not None and names.count(pattern.truncate) != 1:
        if pattern.truncate in names:
            raise ConfigError(f"{where}: truncate is '{pattern.truncate}', which the text uses twice; use it once")
        raise ConfigError(f"{where}: truncate is '{pattern.truncate}'; {nearest(pattern.truncate, names)}")


def _check_open_pattern(pattern: Pattern, where: str) -> None:
    """Check a pattern for examples with their own choices."""
    if pattern.truncate is not None:
        raise ConfigError(
            f"{where}: truncate is '{pattern.truncate}', but without answers the beginning is cut; remove it"
        )
    if pattern.blank and pattern.chat:
        raise ConfigError(f"{where}: blank does not go with chat; end the text before the answer")
    if pattern.max_tokens is not None and pattern.max_tokens < 1:
        raise ConfigError(f"{where}: max_tokens is {pattern.max_tokens}, expected at least 1")
    if pattern == TASK or pattern == replace(TASK, score=pattern.score):
        return
    templates = [pattern.choice] if callable(pattern.text) else [pattern.text, pattern.choice]
    names = [name for template in templates for _, name in pieces_of(template, where)]
    if "choice" not in names and not pattern.blank:
        raise ConfigError(f"{where}: neither text nor choice has {{choice}}; expected it in one of them, or a blank")


def pattern_pieces(pattern: Pattern, where: str = "pattern") -> list[tuple[str, str | None]]:
    """Split a pattern's text into literal parts, each with the field that follows it."""
    assert isinstance(pattern.text, str)
    pieces = pieces_of(pattern.text, where)
    if not any(name is not None for _, name in pieces):
        raise ConfigError(f"{where}: text has no field; expected e.g. {{premise}}")
    return pieces


def fields_of(pattern: Pattern) -> list[str]:
    """The fields that a pattern's templates use."""
    assert isinstance(pattern.text, str)
    templates = [pattern.text] if pattern.answers else [pattern.text, pattern.choice]
    names = [name for template in templates for _, name in pieces_of(template, "pattern") if name is not None]
    return [name for name in dict.fromkeys(names) if name != "choice" or pattern.answers]


def pieces_of(text: str, where: str) -> list[tuple[str, str | None]]:
    """Split a text into literal parts, each with the field that follows it."""
    try:
        parsed = list(string.Formatter().parse(text))
    except ValueError as error:
        raise ConfigError(f"{where}: text cannot be read ({error}); write {{{{ for a brace") from None
    for _, name, spec, conversion in parsed:
        if name is not None and (not name.isidentifier() or spec or conversion):
            written = name + (f"!{conversion}" if conversion else "") + (f":{spec}" if spec else "")
            raise ConfigError(f"{where}: text has field {written!r}; expected a plain name, e.g. {{premise}}")
    return [(literal, name) for literal, name, _, _ in parsed]


def _check_source(source: Source, where: str) -> None:
    given = [k for k in ("generator", "file", "hub", "lm_eval") if getattr(source, k) is not None]
    if len(given) != 1:
        raise ConfigError(f"{where}: source names {given or 'nothing'}, expected one of generator, file, hub, lm_eval")
    if source.lm_eval is None and source.fewshot is not None:
        raise ConfigError(f"{where}: fewshot is for lm_eval; write the examples into the pattern's text")
    if source.fewshot is not None and source.fewshot < 0:
        raise ConfigError(f"{where}: fewshot is {source.fewshot}, expected 0 or more")
    if source.lm_eval is not None and source.split not in (None, "train", "validation", "test"):
        raise ConfigError(f"{where}: split is '{shown(source.split)}', expected train, validation or test")
    if source.generator == STAND_IN:
        raise ConfigError(f"{where}: generator '{STAND_IN}' is for estimates only; name a file or a hub data set")
    if source.file is not None and (not source.file or not all(source.file)):
        raise ConfigError(f"{where}: file is {source.file!r}, expected the name of a file, or a list of them")
    if source.format is not None and (source.file is None or source.format not in FORMATS):
        raise ConfigError(f"{where}: format is '{shown(source.format)}', expected one of a file: {', '.join(FORMATS)}")
    if source.hub is not None and not source.split:
        raise ConfigError(f'{where}: source has no split; name one, e.g. split = "test"')
    if source.hub is not None:
        check_split(str(source.split), f"{where}: split")
    if source.fallback is not None and source.hub is None:
        raise ConfigError(f"{where}: source has a fallback without a hub data set; name the hub id or drop it")
