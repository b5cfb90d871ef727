"""Rows of a set -> Examples: read a generator, a file or the hub, map columns and labels, drop labels.

>>> from oodles.suite import load_suite
>>> suite = load_suite("mini")
>>> len(load_examples(suite, suite.test_sets["overlap"])) >= 1000
True
"""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from oodles import mini
from oodles.errors import DataError, MissingExtraError, nearest
from oodles.records import DataSet, Example, Source, Suite, content_hash

Rows = Sequence[Mapping[str, Any]]


def load_examples(suite: Suite, data: DataSet) -> tuple[Example, ...]:
    """The examples of one set, labels mapped to answers, dropped labels left out, in the data's order."""
    where = f"{suite.name}/{data.name}"
    rows = _read(data.name, data.source, suite.folder, where)
    label_column, id_column = data.columns.get("label", "label"), data.columns.get("id", "id")
    fields = {k: v for k, v in data.columns.items() if k not in ("label", "id")}
    examples = []
    for number, row in enumerate(rows):
        label = str(_cell(row, label_column, where, number))
        if label in data.drop:
            continue
        if label not in data.labels:
            known = ", ".join(data.labels)
            raise DataError(
                f"{where}: row {number}: label '{label}' has no mapping; mapped: {known}; map it or drop it"
            )
        texts = {name: str(_cell(row, column, where, number)) for name, column in fields.items()} or {
            name: str(_cell(row, name, where, number))
            for name in row
            if name not in (label_column, id_column, *data.slices)
        }
        slices = {name: str(_cell(row, name, where, number)) for name in data.slices}
        identity = str(row.get(id_column, number))
        examples.append(Example(id=identity, fields=texts, label=label, answer=data.labels[label], slices=slices))
    _check(examples, data, where)
    return tuple(examples)


def set_hash(examples: Sequence[Example]) -> str:
    """Identifies the content of a set: every id, field and label, in order."""
    return content_hash([[e.id, dict(e.fields), e.label, e.answer] for e in examples])


def _cell(row: Mapping[str, Any], column: str, where: str, number: int) -> Any:
    if column not in row:
        raise DataError(f"{where}: row {number}: no column '{column}'; {nearest(column, map(str, row))}")
    value = row[column]
    if value is None or value != value:
        raise DataError(f"{where}: row {number}: column '{column}' holds nothing; fill it or remove the row")
    return value


def _check(examples: Sequence[Example], data: DataSet, where: str) -> None:
    if not examples:
        raise DataError(f"{where}: no example is left after dropping {list(data.drop)}; expected at least one")
    counts = Counter(e.label for e in examples)
    for label, expected in data.expect.items():
        if counts[label] != expected:
            raise DataError(f"{where}: {counts[label]} rows labelled '{label}', expected {expected}; the data differ")
    repeated = [i for i, n in Counter(e.id for e in examples).items() if n > 1]
    if repeated:
        raise DataError(f"{where}: id '{repeated[0]}' occurs more than once; expected one row per id")


def _read(name: str, source: Source, folder: str, where: str) -> Rows:
    if source.generator is not None:
        return _generate(source, name, where)
    if source.file is not None:
        return _read_file(Path(folder) / source.file, where)
    return _read_hub(source, where)


def _generate(source: Source, name: str, where: str) -> Rows:
    if source.generator != "mini":
        raise DataError(f"{where}: no generator '{source.generator}'; {nearest(str(source.generator), ['mini'])}")
    return _generate_mini(name, source.split or "test", source.seed, where)


@lru_cache(maxsize=32)
def _generate_mini(name: str, split: str, seed: int, where: str) -> Rows:
    try:
        return tuple(mini.generate(name, split, seed))
    except ValueError as error:
        raise DataError(f"{where}: {error}") from None


def _read_file(path: Path, where: str) -> Rows:
    """Parquet, CSV, TSV or JSON lines, every cell as the file has it."""
    import pandas as pd  # slow to load, and generators need none of it

    try:
        if path.suffix == ".parquet":
            frame = pd.read_parquet(path)
        elif path.suffix in (".csv", ".tsv"):
            separator = "\t" if path.suffix == ".tsv" else ","
            # a tab-separated file knows no quotation marks: one that opens a field would swallow the rows after it
            quoting: Literal[0, 3] = csv.QUOTE_NONE if path.suffix == ".tsv" else csv.QUOTE_MINIMAL
            frame = pd.read_csv(path, sep=separator, dtype=str, keep_default_na=False, quoting=quoting)
        elif path.suffix == ".jsonl":
            return _read_json_lines(path, where)
        else:
            raise DataError(f"{where}: {path.name} is not a .parquet, .csv, .tsv or .jsonl file")
    except FileNotFoundError:
        raise DataError(f"{where}: {path}: no such file; files are looked up beside the suite's TOML") from None
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise DataError(f"{where}: {path} cannot be read: {reason}") from None
    return [{str(k): v for k, v in row.items()} for row in frame.to_dict("records")]


def _read_json_lines(path: Path, where: str) -> Rows:
    rows = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            row = json.loads(line) if line.strip() else {}
        except ValueError as error:
            raise DataError(f"{where}: {path} line {number}: not JSON ({error})") from None
        if not isinstance(row, dict):
            raise DataError(f"{where}: {path} line {number}: expected a JSON object")
        rows += [row] if row else []
    return rows


def _read_hub(source: Source, where: str) -> Rows:
    """A dataset of the Hugging Face hub, or a local folder laid out like one."""
    try:
        import datasets
    except ImportError:
        raise MissingExtraError(f"{where} from the hub", "data") from None
    try:
        loaded = datasets.load_dataset(source.hub, source.config, split=source.split, revision=source.revision)
    except Exception as error:  # the library raises many kinds, from the network, the cache and the parser
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(
            f"{where}: '{source.hub}' cannot be loaded: {reason}; fetch it where the hub can be reached"
        ) from None
    return [dict(row) for row in loaded]
