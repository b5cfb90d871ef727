"""Load the examples of a set: read a generator, a file or a hub data set, map columns and labels, drop labels.

A hub data set is looked up in this order: the folder given by `--data` or `OODLES_DATA`, laid out as `<test
set>/<split>.parquet` (or below the suite's name); the cache; the hub. A copy from the hub is cached.

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

from oodles.contracts import DataSet, Example, Source, Suite, content_hash
from oodles.disk import cache_dir
from oodles.errors import DataError, nearest, some
from oodles.files import SUFFIXES, Rows, as_rows, join_rows, read_file
from oodles.suite import mini, opinions
from oodles.suite.choices import label_names, read_choices
from oodles.suite.columns import texts_of
from oodles.suite.hub import Provenance, bring, matches, provenance_of
from oodles.suite.stand_ins import STAND_IN, make_rows, stand_in_for
from oodles.suite.tasks import is_cached, load_task, locate_task, store_task, task_file

ROWS = "rows"  # in the counts of a set with choices, which has no labels of its own
BESIDE = "files are looked up beside the suite's TOML"
KEPT_SETS = 32  # sets held in memory, so that a study of many runs reads each set once
GENERATORS = {"mini": mini.generate, "opinions": opinions.generate}


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The origin of a set's rows, and its label counts before labels are dropped."""

    origin: str
    revision: str | None  # commit on the hub, if the copy records it
    counts: dict[str, int]  # label name -> rows, including dropped labels
    class_names: tuple[str, ...] = ()  # label names stored in the file itself


def load_examples(suite: Suite, data: DataSet) -> tuple[Example, ...]:
    """Load the examples of a set in the data's order, with labels mapped to answers and dropped labels left out."""
    return _load(suite, data)[0]


def load_origin(suite: Suite, data: DataSet) -> Origin:
    """Return the origin of a set, with the counts of all its labels."""
    return _load(suite, data)[1]


def with_stand_ins(suite: Suite) -> Suite:
    """Return the suite with generated rows for hub sets that are neither stored nor reachable; for estimates only."""

    def available(data: DataSet) -> DataSet:
        if data.source.hub is None or locate(suite, data) is not None:
            return data
        with contextlib.suppress(DataError):
            load_examples(suite, data)  # fetches it
            return data
        train = suite.train_sets.get(data.name) is data
        return stand_in_for(data, train=train) or data

    train_sets = {name: available(data) for name, data in suite.train_sets.items()}
    test_sets = {name: available(data) for name, data in suite.test_sets.items()}
    return replace(suite, train_sets=train_sets, test_sets=test_sets)


def stand_ins_of(suite: Suite) -> list[str]:
    """Return the sets whose rows are generated because the data are missing."""
    sets = (*suite.train_sets.values(), *suite.test_sets.values())
    return sorted({data.name for data in sets if data.source.generator == STAND_IN})


def set_hash(examples: Sequence[Example]) -> str:
    """Hash the content of a set: every id, field and label, in order."""
    return content_hash([e.parts for e in examples])


_kept: dict[str, tuple[tuple[Example, ...], Origin]] = {}


def _load(suite: Suite, data: DataSet) -> tuple[tuple[Example, ...], Origin]:
    if data.source.lm_eval is not None:
        task = load_task(suite, data)
        origin = Origin(origin=task.place, revision=task.revision, counts={ROWS: len(task.examples)})
        return task.examples, origin
    path = locate(suite, data)
    files = [] if path is None else files_of(suite, data, path)
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
    """Return the local file that holds a set, the first of several, if there is one."""
    source = data.source
    if source.lm_eval is not None:
        return locate_task(suite, data)
    if source.file is not None:
        return Path(suite.folder) / _named(source)[0]
    if source.hub is None:
        return None
    if suite.data:
        for folder in (Path(suite.data) / suite.name, Path(suite.data)):
            for suffix in SUFFIXES:
                path = folder / data.name / f"{source.split}{suffix}"
                if path.is_file():
                    return path
    copy = cached(suite, data)
    provenance = provenance_of(copy) if copy.is_file() else None
    return copy if provenance is not None and matches(provenance, source) else None


def files_of(suite: Suite, data: DataSet, path: Path) -> list[Path]:
    """Every file of a set that was located at a path: as its source lists them; a star names several, in order."""
    if data.source.file is None:
        return [path]
    where, found = f"{suite.name}/{data.name}", list[Path]()
    for name in _named(data.source):
        base = Path(Path(name).anchor or suite.folder)
        files = sorted(base.glob(name.removeprefix(base.anchor))) if "*" in name else [base / name]
        if not files:
            raise DataError(f"{where}: {base / name}: no such file; {BESIDE}")
        found += files
    twice = [file for file, count in Counter(found).items() if count > 1]
    if twice:
        raise DataError(f"{where}: {twice[0]} is named twice, and its rows would count twice; name it once")
    return found


def _named(source: Source) -> tuple[str, ...]:
    return (source.file,) if isinstance(source.file, str) else source.file or ()


def cached(suite: Suite, data: DataSet) -> Path:
    """Return the path at which a hub data set is cached."""
    return cache_dir() / "data" / suite.name / data.name / f"{data.source.split}.parquet"


def fetch_sets(suite: Suite, folder: Path | None, say: Callable[[str], None]) -> list[tuple[DataSet, Path, Provenance]]:
    """Copy all hub data sets and tasks of a suite to a folder (or the cache); existing copies are kept."""
    fetched = []
    for data in (*suite.train_sets.values(), *suite.test_sets.values()):
        if data.source.lm_eval is not None:
            fetched.append(_fetch_task(suite, data, folder, say))
        if data.source.hub is None:
            continue
        where = f"{suite.name}/{data.name}"
        path = cached(suite, data) if folder is None else folder / data.name / f"{data.source.split}.parquet"
        provenance = provenance_of(path) if path.is_file() else None
        stranger = provenance is None or not matches(provenance, data.source)
        if folder is not None and path.is_file() and stranger:
            raise DataError(
                f"{where}: {path} exists and is not a copy of {data.source.hub}; choose another --to or remove it"
            )
        if provenance is None or stranger:
            say(f"{where}: fetching {data.source.hub} {data.source.config or ''} {data.source.split}")
            provenance = bring(data.source, path, where, say)
        fetched.append((data, path, provenance))
    if not fetched:
        raise DataError(f"suite {suite.name}: nothing to fetch; none of its sets comes from the hub")
    return fetched


def _fetch_task(
    suite: Suite, data: DataSet, folder: Path | None, say: Callable[[str], None]
) -> tuple[DataSet, Path, Provenance]:
    """Render a task of lm-evaluation-harness and store it, unless it is stored already."""
    source, there = data.source, replace(suite, data="" if folder is None else str(folder))
    path = locate_task(there, data)
    if path is None or (folder is not None and is_cached(path, there, data)):
        path = task_file(there, data)
        say(f"{suite.name}/{data.name}: rendering {source.lm_eval} with lm-evaluation-harness")
        store_task(there, data, path)
    task = load_task(there, data)
    provenance = Provenance(
        hub=str(source.lm_eval),
        config=None,
        split=source.split or "eval",
        asked_revision=source.revision,
        revision=task.revision,
        origin=f"lm-evaluation-harness {task.origin.harness}, version {task.version}, {task.origin.shots} shots",
        rows=len(task.examples),
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
    )
    return data, path, provenance


# reading


def _read(suite: Suite, data: DataSet, path: Path | None) -> Rows:
    where, source = f"{suite.name}/{data.name}", data.source
    if source.generator is not None:
        return _generate(data, where)
    if path is not None:
        files = files_of(suite, data, path)
        parts = [read_file(file, where, _wanted(data), source.format) for file in files]
        many = isinstance(source.file, tuple)
        return parts[0] if len(parts) == 1 else join_rows(parts, some(files, 2) if many else str(path))
    if Path(str(source.hub)).is_dir():  # laid out like the hub; it may change, so no copy is kept
        with tempfile.TemporaryDirectory() as scratch:
            copy = Path(scratch) / f"{source.split}.parquet"
            bring(source, copy, where, lambda _: None)
            return read_file(copy, where, _wanted(data))
    target = cached(suite, data)
    try:
        bring(source, target, where, lambda _: None)
    except DataError as error:
        looked = f"; {suite.data} has no {data.name}/{source.split}.parquet" if suite.data else ""
        raise DataError(f"{error}{looked}") from None
    return read_file(target, where, _wanted(data))


def _wanted(data: DataSet) -> list[str] | None:
    """Return the columns a set needs; None if all columns are fields."""
    fields = [c for k, c in data.columns.items() if k not in ("label", "id")]
    if not fields:
        return None
    special = [data.columns.get("label", "label"), data.columns.get("id", "id"), *_choice_columns(data)]
    return [name.split(".")[0] if "." in name else name for name in (*fields, *special, *data.slices)] + fields


def _choice_columns(data: DataSet) -> list[str]:
    """The columns that hold choices and name the right one, without what is inside their cells."""
    listed = [data.choices] if isinstance(data.choices, str) else [*data.choices]
    named = [data.gold] if data.gold not in ("index", "text") else []
    return [part for column in (*listed, *named) if column for part in dict.fromkeys((column, column.split(".")[0]))]


def _generate(data: DataSet, where: str) -> Rows:
    source = data.source
    if source.generator == STAND_IN:
        return as_rows(make_rows(data), "generator stand-in")
    if source.generator not in GENERATORS:
        raise DataError(f"{where}: no generator '{source.generator}'; {nearest(str(source.generator), GENERATORS)}")
    return _generate_rows(source.generator, data.name, source.split or "test", source.seed, where)


@lru_cache(maxsize=32)
def _generate_rows(generator: str, name: str, split: str, seed: int, where: str) -> Rows:
    try:
        return as_rows(GENERATORS[generator](name, split, seed), f"generator {generator}, seed {seed}")
    except ValueError as error:
        raise DataError(f"{where}: {error}") from None


# rows -> examples


def _examples(rows: Rows, data: DataSet, where: str, path: Path | None) -> tuple[tuple[Example, ...], Origin]:
    place = f"{where}: {rows.origin}" if rows.origin and not rows.origin.startswith("generator") else where
    if not rows.size:
        raise DataError(f"{place}: no rows{', only a header' if rows.columns else ''}; expected at least one example")
    label_column, id_column = data.columns.get("label", "label"), data.columns.get("id", "id")
    labels = [data.label_names.get(raw, raw) for raw in texts_of(rows, label_column, place)]
    keep = _kept_rows(labels, data, place)
    choices: Sequence[tuple[str, ...]] = [()] * len(keep)
    if data.choices:
        choices, answers = read_choices(rows, data, place, keep, [labels[number] for number in keep])
        names = label_names(choices, answers)
    else:
        names = [labels[number] for number in keep]
        answers = [data.labels[name] for name in names]
    special = (label_column, id_column, *data.slices, *_choice_columns(data))
    fields = {k: v for k, v in data.columns.items() if k not in ("label", "id")} or {
        name: name for name in rows.columns if name not in special
    }
    known = (*fields, *data.slices)
    if data.item and data.item not in known:
        raise DataError(f"{place}: item is '{data.item}', expected a field or slice; {nearest(data.item, known)}")
    texts = {name: texts_of(rows, column, place, keep) for name, column in fields.items()}
    slices = {name: texts_of(rows, name, place, keep, gaps=True) for name in data.slices}
    has_ids = id_column in rows.columns or "id" in data.columns
    ids = texts_of(rows, id_column, place, keep) if has_ids else [str(number) for number in keep]
    examples = tuple(
        Example(id=identity, fields=row, label=name, answer=answer, slices=part, choices=own)
        for identity, row, name, answer, part, own in zip(
            ids, _by_row(texts, keep), names, answers, _by_row(slices, keep), choices, strict=True
        )
    )
    _check(examples, data, place)
    provenance = provenance_of(path) if path is not None and data.source.hub is not None else None
    origin = Origin(
        origin=rows.origin,
        revision=provenance.revision if provenance and path and _is_copy(path, provenance) else None,
        counts={ROWS: len(examples)} if data.choices else dict(Counter(labels)),
        class_names=rows.class_names.get(label_column, ()),
    )
    return examples, origin


def _is_copy(path: Path, provenance: Provenance) -> bool:
    """Whether a file still matches its provenance."""
    return hashlib.sha256(path.read_bytes()).hexdigest() == provenance.sha256


def _by_row(columns: dict[str, list[str]], keep: Sequence[int]) -> Iterator[dict[str, str]]:
    if not columns:
        return ({} for _ in keep)
    return (dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True))


def _kept_rows(labels: Sequence[str], data: DataSet, place: str) -> list[int]:
    """Return the indices of rows whose label is not dropped; a label neither mapped nor dropped is an error."""
    dropped = set(data.drop)
    keep = []
    for number, label in enumerate(labels):
        if label in dropped:
            continue
        if label not in data.labels and not data.choices:
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


def _check(examples: Sequence[Example], data: DataSet, place: str) -> None:
    if not examples:
        raise DataError(f"{place}: no example is left after dropping {list(data.drop)}; expected at least one")
    repeated = [i for i, n in Counter(e.id for e in examples).items() if n > 1]
    if repeated:
        raise DataError(f"{place}: id '{repeated[0]}' occurs more than once; expected one row per id")
