"""Rows of a set -> Examples: read a generator, a file or a copy of a hub data set, map columns and labels, drop labels.

A hub data set is looked for in this order: the folder given by `--data` or `OODLES_DATA`, laid out as
`<test set>/<split>.parquet` (or below the suite's name); the cache; the hub, whose copy is then kept in the cache.

>>> from oodles.suite.load import load_suite
>>> suite = load_suite("mini")
>>> len(load_examples(suite, suite.test_sets["overlap"])) >= 1000
True
"""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from oodles.contracts import DataSet, Example, Suite, content_hash
from oodles.disk import cache_dir
from oodles.errors import DataError, nearest, some
from oodles.files import ABSENT, SUFFIXES, Rows, as_rows, join_rows, read_file
from oodles.suite import mini
from oodles.suite.hub import Provenance, bring, matches, provenance_of
from oodles.suite.stand_ins import STAND_IN, make_rows, stand_in_for

KEPT_SETS = 32  # sets held in memory, so that a study of many runs reads each once


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where the rows of a set came from, and what it holds before any label is dropped."""

    origin: str
    revision: str | None  # of the hub, if the copy says so
    counts: dict[str, int]  # label name -> rows, dropped ones too
    class_names: tuple[str, ...] = ()  # what the file itself calls its labels


def load_examples(suite: Suite, data: DataSet) -> tuple[Example, ...]:
    """The examples of one set, labels mapped to answers, dropped labels left out, in the data's order."""
    return _load(suite, data)[0]


def load_origin(suite: Suite, data: DataSet) -> Origin:
    """Where a set comes from, with the counts of all its labels."""
    return _load(suite, data)[1]


def with_stand_ins(suite: Suite) -> Suite:
    """The suite with generated rows for every set of the hub that is neither here nor to be had; for estimates only."""

    def available(data: DataSet) -> DataSet:
        if data.source.hub is None or locate(suite, data) is not None:
            return data
        with contextlib.suppress(DataError):
            load_examples(suite, data)  # brings it
            return data
        train = suite.train_sets.get(data.name) is data
        return stand_in_for(data, train=train) or data

    train_sets = {name: available(data) for name, data in suite.train_sets.items()}
    test_sets = {name: available(data) for name, data in suite.test_sets.items()}
    return replace(suite, train_sets=train_sets, test_sets=test_sets)


def stand_ins_of(suite: Suite) -> list[str]:
    """Sets whose rows are generated because the data are not here."""
    sets = (*suite.train_sets.values(), *suite.test_sets.values())
    return sorted({data.name for data in sets if data.source.generator == STAND_IN})


def set_hash(examples: Sequence[Example]) -> str:
    """Identifies the content of a set: every id, field and label, in order."""
    return content_hash([[e.id, dict(e.fields), e.label, e.answer] for e in examples])


_kept: dict[str, tuple[tuple[Example, ...], Origin]] = {}


def _load(suite: Suite, data: DataSet) -> tuple[tuple[Example, ...], Origin]:
    path = locate(suite, data)
    files = [] if path is None else files_of(path)
    known = [(str(file), file.stat()) for file in files if file.is_file()]
    stamp = [[name, stat.st_mtime_ns, stat.st_size] for name, stat in known]
    key = content_hash([suite.name, asdict(data), stamp]) if stamp or data.source.generator else None
    if key is None or key not in _kept:
        loaded = _examples(_read(suite, data, path), data, f"{suite.name}/{data.name}", path)
        if key is None:
            return loaded
        while len(_kept) >= KEPT_SETS:
            del _kept[next(iter(_kept))]
        _kept[key] = loaded
    return _kept[key]


def locate(suite: Suite, data: DataSet) -> Path | None:
    """The file that holds a set here, if one does."""
    source = data.source
    if source.file is not None:
        return Path(suite.folder) / source.file
    if source.hub is None:
        return None
    if suite.data:
        for folder in (Path(suite.data) / suite.name, Path(suite.data)):
            for suffix in SUFFIXES:
                path = folder / data.name / f"{source.split}{suffix}"
                if path.is_file():
                    return path
    kept = cached(suite, data)
    held = provenance_of(kept) if kept.is_file() else None
    return kept if held is not None and matches(held, source) else None


def files_of(path: Path) -> list[Path]:
    """The file itself; for a name with a star, every file that fits it, in order."""
    return sorted(path.parent.glob(path.name)) if "*" in path.name else [path]


def cached(suite: Suite, data: DataSet) -> Path:
    """Where a copy of a hub data set is kept."""
    return cache_dir() / "data" / suite.name / data.name / f"{data.source.split}.parquet"


def fetch_sets(suite: Suite, folder: Path | None, say: Callable[[str], None]) -> list[tuple[DataSet, Path, Provenance]]:
    """Copy all hub data sets of a suite to a folder (or the cache); what is there already is left as it is."""
    found = []
    for data in (*suite.train_sets.values(), *suite.test_sets.values()):
        if data.source.hub is None:
            continue
        where = f"{suite.name}/{data.name}"
        path = cached(suite, data) if folder is None else folder / data.name / f"{data.source.split}.parquet"
        held = provenance_of(path) if path.is_file() else None
        stranger = held is None or not matches(held, data.source)
        if folder is not None and path.is_file() and stranger:
            raise DataError(
                f"{where}: {path} is there and no copy of {data.source.hub}; choose another --to or remove it"
            )
        if held is None or stranger:
            say(f"{where}: fetching {data.source.hub} {data.source.config or ''} {data.source.split}")
            held = bring(data.source, path, where, say)
        found.append((data, path, held))
    if not found:
        raise DataError(f"suite {suite.name}: nothing to fetch; none of its sets comes from the hub")
    return found


# reading


def _read(suite: Suite, data: DataSet, path: Path | None) -> Rows:
    where, source = f"{suite.name}/{data.name}", data.source
    if source.generator is not None:
        return _generate(data, where)
    if path is not None:
        parts = [read_file(file, where, _wanted(data), source.format) for file in files_of(path)]
        if not parts:
            raise DataError(f"{where}: {path}: no such file; files are looked up beside the suite's TOML")
        return parts[0] if len(parts) == 1 else join_rows(parts, str(path))
    if Path(str(source.hub)).is_dir():  # laid out like the hub; it may change, so no copy is kept
        with tempfile.TemporaryDirectory() as scratch:
            copy = Path(scratch) / f"{source.split}.parquet"
            bring(source, copy, where, lambda _: None)
            return read_file(copy, where, _wanted(data))
    target = cached(suite, data)
    try:
        bring(source, target, where, lambda _: None)
    except DataError as error:
        looked = f"; {suite.data} was looked in and has no {data.name}/{source.split}.parquet" if suite.data else ""
        raise DataError(f"{error}{looked}") from None
    return read_file(target, where, _wanted(data))


def _wanted(data: DataSet) -> list[str] | None:
    """The columns a set needs; None if its fields are all there are."""
    fields = [c for k, c in data.columns.items() if k not in ("label", "id")]
    if not fields:
        return None
    special = [data.columns.get("label", "label"), data.columns.get("id", "id")]
    return [name.split(".")[0] if "." in name else name for name in (*fields, *special, *data.slices)] + fields


def _generate(data: DataSet, where: str) -> Rows:
    source = data.source
    if source.generator == STAND_IN:
        return as_rows(make_rows(data), "generator stand-in")
    if source.generator != "mini":
        raise DataError(f"{where}: no generator '{source.generator}'; {nearest(str(source.generator), ['mini'])}")
    return _generate_mini(data.name, source.split or "test", source.seed, where)


@lru_cache(maxsize=32)
def _generate_mini(name: str, split: str, seed: int, where: str) -> Rows:
    try:
        return as_rows(mini.generate(name, split, seed), f"generator mini, seed {seed}")
    except ValueError as error:
        raise DataError(f"{where}: {error}") from None


# rows -> examples


def _examples(rows: Rows, data: DataSet, where: str, path: Path | None) -> tuple[tuple[Example, ...], Origin]:
    place = f"{where}: {rows.origin}" if rows.origin and not rows.origin.startswith("generator") else where
    if not rows.size:
        raise DataError(f"{place}: no rows{', only a header' if rows.columns else ''}; expected at least one example")
    label_column, id_column = data.columns.get("label", "label"), data.columns.get("id", "id")
    labels = [data.label_names.get(raw, raw) for raw in _texts(rows, label_column, place)]
    keep = _kept_rows(labels, data, place)
    fields = {k: v for k, v in data.columns.items() if k not in ("label", "id")} or {
        name: name for name in rows.columns if name not in (label_column, id_column, *data.slices)
    }
    known = (*fields, *data.slices)
    if data.item and data.item not in known:
        raise DataError(f"{place}: item is '{data.item}', expected a field or slice; {nearest(data.item, known)}")
    texts = {name: _texts(rows, column, place, keep) for name, column in fields.items()}
    slices = {name: _texts(rows, name, place, keep, gaps=True) for name in data.slices}
    has_ids = id_column in rows.columns or "id" in data.columns
    ids = _texts(rows, id_column, place, keep) if has_ids else [str(number) for number in keep]
    examples = tuple(
        Example(id=identity, fields=row, label=labels[number], answer=data.labels[labels[number]], slices=part)
        for number, identity, row, part in zip(keep, ids, _by_row(texts, keep), _by_row(slices, keep), strict=True)
    )
    _check(examples, data, place)
    held = provenance_of(path) if path is not None and data.source.hub is not None else None
    origin = Origin(
        origin=rows.origin,
        revision=held.revision if held and path and _is_copy(path, held) else None,
        counts=dict(Counter(labels)),
        class_names=rows.class_names.get(label_column, ()),
    )
    return examples, origin


def _is_copy(path: Path, held: Provenance) -> bool:
    """Whether a file is still what its provenance speaks of."""
    return hashlib.sha256(path.read_bytes()).hexdigest() == held.sha256


def _by_row(columns: dict[str, list[str]], keep: Sequence[int]) -> Iterator[dict[str, str]]:
    if not columns:
        return ({} for _ in keep)
    return (dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True))


def _kept_rows(labels: Sequence[str], data: DataSet, place: str) -> list[int]:
    """Numbers of the rows whose label is not dropped; a label that is neither mapped nor dropped is an error."""
    dropped = set(data.drop)
    keep = []
    for number, label in enumerate(labels):
        if label in dropped:
            continue
        if label not in data.labels:
            rows = sum(other == label for other in labels)
            raise DataError(
                f"{place} row {number + 1}: label '{label}' has no mapping ({rows} rows have it);"
                f" mapped: {', '.join(data.labels)}; map it or drop it{_hint(label, data)}"
            )
        keep.append(number)
    return keep


def _hint(label: str, data: DataSet) -> str:
    """Numbers where names are mapped: what says which is which."""
    if not label.lstrip("-").isdigit() or any(known.isdigit() for known in data.labels):
        return ""
    return f', or name the numbers: label_names = {{ {label} = "{next(iter(data.labels), "yes")}" }}'


def _texts(rows: Rows, column: str, place: str, keep: Sequence[int] | None = None, *, gaps: bool = False) -> list[str]:
    """The cells of a column as texts; gaps, if there may be any, as no text. `choices.text.0` reaches into cells."""
    name, *inside = [column] if column in rows.columns else column.split(".")
    if name not in rows.columns:
        own = (*rows.columns, *rows.unread)
        hint = nearest(column, own)
        listed = f" columns: {some(own)}" if hint.startswith("did you mean") else ""
        raise DataError(f"{place}: no column '{column}'; {hint}{listed}")
    cells = rows.columns[name]
    found = []
    for number in range(rows.size) if keep is None else keep:
        value = cells[number]
        if inside:
            value = _inside(value, inside)
        if isinstance(value, str):
            found.append(value)
        elif gaps and (value is ABSENT or value is None or value != value):
            found.append("")
        elif value is ABSENT:
            raise DataError(f"{place} row {number + 1}: no '{column}' there; fill it or remove the row")
        elif value is None or value != value:
            raise DataError(f"{place} row {number + 1}: column '{column}' holds nothing; fill it or remove the row")
        elif isinstance(value, (dict, list, bytes)):
            kind = {dict: "a table", list: "a list", bytes: "bytes"}[type(value)]
            raise DataError(f"{place} row {number + 1}: column '{column}' holds {kind}, expected text; e.g. {column}.0")
        else:
            found.append(str(value))
    return found


def _inside(value: Any, steps: Sequence[str]) -> Any:
    """What lies at the end of a path such as text.0."""
    for step in steps:
        try:
            value = value[int(step)] if isinstance(value, list) else value[step]
        except (LookupError, TypeError, ValueError):
            return ABSENT
    return value


def _check(examples: Sequence[Example], data: DataSet, place: str) -> None:
    if not examples:
        raise DataError(f"{place}: no example is left after dropping {list(data.drop)}; expected at least one")
    repeated = [i for i, n in Counter(e.id for e in examples).items() if n > 1]
    if repeated:
        raise DataError(f"{place}: id '{repeated[0]}' occurs more than once; expected one row per id")
