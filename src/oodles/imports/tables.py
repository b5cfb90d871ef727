"""Tables of scores, long (a row per test set) or wide (a column per test set), from one file or several.

A wide table needs no preparation: columns that hold numbers and are no setting are test sets. What was taken for what
is told in notes, and what cannot be told is asked for.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from numbers import Real
from pathlib import Path

import numpy as np
import pandas as pd

from oodles.errors import ConfigError, DataError, listed, nearest, shown, some
from oodles.imports.cells import NUMBER, PICKLES, SUFFIXES, TEXT, cells_of, read_cells
from oodles.imports.columns import (
    LEVEL,
    SYNONYMS,
    are_steps,
    as_steps,
    chosen,
    index_levels,
    is_score,
    is_summary,
    mapped,
)
from oodles.imports.contract import NO_TEST_SETS, Imported, Options
from oodles.imports.found import files_below
from oodles.imports.identity import FIELDS, RunMap, read_maps
from oodles.imports.keys import METRICS, PREFIX, by_suffix, canonical, split_keys
from oodles.imports.shares import SHARES, long_shares, wide_shares
from oodles.stats.longtable import KEY, OPTIONAL, REQUIRED, SOURCE, as_table, disarmed, is_missing

NAME = "table"
IN_FOLDERS = (*TEXT, ".parquet", ".jsonl", ".xlsx")  # a folder's .json files are rarely tables
EXPORT = re.compile(r"(?P<run>.+) - (?P<key>.+?)(?P<kind>__MIN|__MAX|__STEP)?")  # of a chart of wandb
TIME = re.compile(r"relative time.*|wall time", re.IGNORECASE)  # what a chart of wandb has instead of the step
NO_STEPS = "no column for the step: every row is a model with one checkpoint"
DATE = re.compile(r"\d{4}-\d{1,2}-\d{1,2}([T ].*)?$|\d{1,2}[./]\d{1,2}[./]\d{4}([T ].*)?$")
UNNAMED = re.compile(r"column \d+|Unnamed.*")  # a column without a name, as it is called here and by pandas
STEPS = re.compile(
    r"(?i)^(.*[-_])?(checkpoint|ckpt|step|iter(ation)?|epoch)s?[-_ ]?\d+$|^\d+$"
)  # folders of checkpoints
ROW = "row"  # --map run=row: every row is a run
ROWS_ARE_RUNS = f"where every row is a run of its own: --map run={ROW}"


def recognise(path: Path) -> bool:
    """A file with the ending of a table; a folder with nothing but such files."""
    if path.is_dir():
        return any(file.suffix.lower() in IN_FOLDERS for file in files_below(path))
    return path.suffix.lower() in (*SUFFIXES, *PICKLES)


def read(paths: Sequence[Path], options: Options) -> Imported:
    """All tables, under each other; a file without a column for its run is a run where there are several."""
    files = [file for path in paths for file in (_tables_in(path) if path.is_dir() else [path])]
    maps = read_maps(options)
    parts = _read_all(files, [file.stem if len(files) > 1 else "" for file in files], maps, options)
    if _disagree([part.table for part in parts]) and (names := _names_of(files)):
        parts = _read_all(files, names, maps, options)
    tables = [part.table for part in parts]
    table = pd.concat(tables, ignore_index=True) if len(tables) > 1 else tables[0]
    table.attrs[SOURCE] = str(files[0]) if len(files) == 1 else f"{len(files)} tables"
    aliases = {alias: name for part in parts for alias, name in part.aliases.items()}
    notes = dict.fromkeys([*(note for part in parts for note in part.notes), *_in_several(files, tables)])
    return Imported(format=NAME, table=_with_identity(table, maps), notes=tuple(notes), aliases=aliases)


def _read_all(files: Sequence[Path], names: Sequence[str], maps: RunMap, options: Options) -> list[Imported]:
    cells = (read_cells(file, wanted=_wanted(options)) for file in files)
    return [
        _read_one(cells_, file, maps, options, called) for cells_, file, called in zip(cells, files, names, strict=True)
    ]


def _disagree(tables: Sequence[pd.DataFrame]) -> bool:
    """Whether files have different scores of one run and step."""
    if len(tables) < 2:
        return False
    table = pd.concat(tables, ignore_index=True)
    key = [name for name in KEY if name in table.columns]
    return bool((table.groupby(key, dropna=False)["value"].nunique() > 1).any())


def _wanted(options: Options) -> tuple[str, ...]:
    """The columns that a user calls test sets."""
    return (*options.in_domain, *options.test_sets)


def _in_several(files: Sequence[Path], tables: Sequence[pd.DataFrame]) -> list[str]:
    """A note on runs of one name in several files, which are taken as one run unless something tells them apart."""
    owners: dict[str, list[tuple[str, dict[str, str]]]] = {}
    for label, table in zip(_short_paths(files), tables, strict=True):
        known = [name for name in FIELDS if name in table.columns]
        for run, *cells in table[["run", *known]].drop_duplicates().astype(str).itertuples(index=False):
            owners.setdefault(run, []).append((label, dict(zip(known, cells, strict=True))))
    twins: dict[str, list[str]] = {}
    for run, places in owners.items():
        (first, about), *others = places
        for name, other in others:
            if name == first or any(about[field] != other[field] for field in about.keys() & other.keys()):
                continue
            only = next(iter(sorted(about.keys() ^ other.keys())), None)
            if only is not None:
                raise DataError(
                    f"run '{shown(run)}' is in {first} and in {name}, and only one of them says its {only}; add a"
                    f" column {only} to the other, or give its runs other names"
                )
            twins.setdefault(run, [first]).append(name)
    if not twins:
        return []
    run, names = next(iter(twins.items()))
    others_too = f" (and {len(twins) - 1} others)" if len(twins) > 1 else ""
    return [
        f"run '{shown(run)}'{others_too} is in {some(names, 3)}: taken as one run; if they differ, give each"
        " file a column model or seed, or its runs other names"
    ]


def _short_paths(files: Sequence[Path]) -> list[str]:
    """File names where they differ, else the paths below the folder that holds all files."""
    if len({file.name for file in files}) == len(files):
        return [file.name for file in files]
    whole = [str(file.absolute()) for file in files]
    common = os.path.commonpath(whole)
    return [os.path.relpath(path, common) for path in whole]


def read_table(path: Path) -> pd.DataFrame:
    """The long table in a file, long or wide; `check_table` fills what is absent."""
    return read([Path(path)], Options()).table


def _tables_in(folder: Path) -> list[Path]:
    kinds = sorted({f.suffix.lower() for f in files_below(folder)} & set(IN_FOLDERS))
    if not kinds:
        raise DataError(f"{folder}: no table in it; expected files such as {', '.join(IN_FOLDERS[:3])}")
    if len(kinds) != 1:  # the same scores may be there as .csv and as .parquet
        raise DataError(f"{folder}: files of several kinds ({', '.join(kinds)}); name one kind: {folder}/*{kinds[0]}")
    return [file for file in files_below(folder) if file.suffix.lower() == kinds[0]]


def read_frame(frame: pd.DataFrame, options: Options) -> Imported:
    """The long table of a `DataFrame`, long or wide."""
    where = str(frame.attrs.get(SOURCE, "table"))
    maps = read_maps(options)
    found = _read_one(cells_of(frame.copy(), where, _wanted(options)), Path(where), maps, options)
    found.table.attrs[SOURCE] = where
    return replace(found, table=_with_identity(found.table, maps))


def is_long(frame: pd.DataFrame) -> bool:
    """Whether a frame is a long table as it stands: numbers, and none above 1 where they are shares."""
    if not frame.columns.is_unique or not {*REQUIRED} <= {*frame.columns} or not _is_number(frame["value"]):
        return False
    metrics = frame["metric"] if "metric" in frame.columns else pd.Series("accuracy", frame.index)
    shares = metrics.isna() | metrics.map(lambda name: canonical(str(name).lower())).isin(SHARES)
    return not (shares.to_numpy(bool) & (frame["value"].to_numpy(float, na_value=np.nan) > 1)).any()


def _names_of(files: Sequence[Path]) -> list[str]:
    """What tells files of one name apart: the shortest end of their paths; nothing if that tells steps, not runs.

    >>> _names_of([Path("a/seed_0/scores.csv"), Path("a/seed_1/scores.csv")])
    ['seed_0', 'seed_1']
    >>> _names_of([Path("a/step_0/scores.csv"), Path("a/step_9/scores.csv")]), _names_of([Path("a.csv"), Path("b.csv")])
    ([], [])
    """
    if len({file.stem for file in files}) > 1:
        return []
    parts = [file.parent.parts for file in files]
    while min(map(len, parts)) > 1 and len({own[-1] for own in parts}) == 1:
        parts = [own[:-1] for own in parts]
    if any(STEPS.search(part) for own in parts for part in own[-2:]):
        return []
    for end in range(1, max(map(len, parts)) + 1):
        ends = ["/".join(own[-end:]) for own in parts]
        if len({*ends}) == len(ends):
            return ends
    return []  # some are one file


def _read_one(cells: pd.DataFrame, file: Path, maps: RunMap, options: Options, called: str = "") -> Imported:
    """The long table in a file; of several each is `called` something, which is its run where no column says it."""
    where, notes = str(file), list[str]()
    table = _renamed(_with_rows(cells, where), maps, where, notes)
    if _is_export(table):
        table = as_table(_from_export(table, notes), where)
        return Imported(format=NAME, table=long_shares(table, where, notes, by_hand=False), notes=tuple(notes))
    _refuse_timed_chart(table, where)
    if called and "run" not in table.columns and not any(name in table.columns for name in FIELDS):
        table["run"] = called
    if "step" in table.columns:
        table["step"] = as_steps(table["step"])
    if "test_set" in table.columns and "value" not in table.columns:
        table = _from_columns(_from_metrics(table, notes), notes)
    if "test_set" in table.columns or "value" in table.columns:
        return _from_long(table, where, maps, notes)
    wide = _from_wide(table, where, maps, options, notes)
    if called and maps.columns.get("run") == ROW:  # every file has a row 1
        return replace(wide, table=wide.table.assign(run=f"{called} " + wide.table["run"]))
    return wide


def _with_rows(table: pd.DataFrame, where: str) -> pd.DataFrame:
    if table.isna().all(axis=None):
        raise DataError(f"{where}: the table has no rows, only a header; expected a row per run and step")
    return table


def _from_long(table: pd.DataFrame, where: str, maps: RunMap, notes: list[str]) -> Imported:
    if "value" not in table.columns:
        numbers = [c for c in table.columns if c not in _KEPT and _is_number(table[c])]
        numbers = [c for c in numbers if not UNNAMED.fullmatch(c)]
        if numbers:
            says = f"say which column holds the score: {mapped('value', numbers[0])}"
            raise DataError(f"{where}: no column 'value'; {says}; columns of numbers: {some(numbers)}")
    _refuse_unnamed_runs(table, where)
    own = list(table.columns)
    if "run" not in table.columns and any(name in table.columns for name in FIELDS):
        table = _with_run(table, maps, where, notes)
    if "step" not in table.columns:
        table["step"] = 0
        notes.append(NO_STEPS)
    table = _with_metrics(as_table(table, where))
    _refuse_unnamed_runs(table, where)
    table = _told_apart(table, notes)
    _refuse_long_twins(table, where, own)
    table = as_table(long_shares(table, where, notes, by_hand=True), where)
    return Imported(format=NAME, table=table, notes=tuple(notes))


def _with_metrics(table: pd.DataFrame) -> pd.DataFrame:
    """Metrics under their usual names, `Acc` as accuracy; but not where both are there."""
    if "metric" not in table.columns:
        return table
    known = [str(name) for name in table["metric"].dropna().unique()]
    usual = {name: canonical(name.lower()) if name.lower() in METRICS else name for name in known}
    counts = Counter(usual.values())
    clear = {name: one for name, one in usual.items() if counts[one] == 1}
    return table.assign(metric=table["metric"].map(lambda name: clear.get(name, name)))


def _renamed(table: pd.DataFrame, maps: RunMap, where: str, notes: list[str]) -> pd.DataFrame:
    """Columns under the long table's names: those that a user maps, else those that go by another name."""
    names: dict[str, str] = {}
    for field, column in maps.columns.items():
        if column not in table.columns and not (field == "run" and column == ROW):
            raise ConfigError(f"--map {field}={column}: {where} has no such column; {nearest(column, table.columns)}")
        if column in table.columns:
            names[column] = field
    lower = {str(name).strip().lower().replace(" ", "_").replace("-", "_"): name for name in reversed(table.columns)}
    for field, known in SYNONYMS.items():
        if field in table.columns or field in maps.columns:
            continue
        called = next((lower[name] for name in known if name in lower and lower[name] not in names), None)
        if called is None or (field == "test_set" and called.lower() == "dataset" and not _has_metric(table)):
            continue
        names[called] = field
        if called.lower() != field:
            notes.append(f"column '{shown(called)}' is read as {field}")
    replaced = [name for name in names.values() if name in table.columns and names.get(name, name) == name]
    return table.drop(columns=[n for n in replaced if n not in names]).rename(columns=names)


def _has_metric(table: pd.DataFrame) -> bool:
    return any(str(name).lower() in (*METRICS, "value", "score") for name in table.columns)


def _from_metrics(table: pd.DataFrame, notes: list[str]) -> pd.DataFrame:
    """A row per test set, a column per metric -> a row per metric; unchanged where no column is a metric."""
    metrics = [name for name in table.columns if str(name).lower() in METRICS and _is_number(table[name])]
    if not metrics or "metric" in table.columns:
        return table
    notes.append(f"metrics are the columns {some(metrics)}")
    long = table.melt([c for c in table.columns if c not in metrics], metrics, "metric", "value")
    return long.assign(metric=long["metric"].map(lambda name: canonical(str(name).lower())))


def _from_columns(table: pd.DataFrame, notes: list[str]) -> pd.DataFrame:
    """A row per test set and a column per step, or a column per run -> a row per score; else unchanged."""
    numbers = [c for c in table.columns if c not in _KEPT and _is_number(table[c])]
    others = [c for c in table.columns if c not in numbers]
    told = any(name in table.columns for name in ("run", *FIELDS))
    if "value" in table.columns or "step" in table.columns or len(numbers) < 2:
        return table
    if told and are_steps(numbers):
        notes.append(f"columns are steps: {some(numbers)}")
        return table.melt(others, numbers, "step", "value").astype({"step": np.int64})
    if told or are_steps(numbers) or others != ["test_set"]:
        return table
    notes.append(f"rows are test sets, and columns are runs: {some(numbers)}")
    return table.melt(others, numbers, "run", "value")


def _is_number(column: pd.Series) -> bool:
    other = pd.api.types.is_bool_dtype(column) or pd.api.types.is_complex_dtype(column)
    return bool(pd.api.types.is_numeric_dtype(column) and not other)


# wide


@dataclass(frozen=True, slots=True)
class _Scores:
    """The columns of a wide table that are scores."""

    splits: Mapping[str, tuple[str, str]]  # column -> test set, metric
    left_out: tuple[str, ...]

    @property
    def test_sets(self) -> list[str]:
        return list(dict.fromkeys(test_set for test_set, _ in self.splits.values()))


def _from_wide(table: pd.DataFrame, where: str, maps: RunMap, options: Options, notes: list[str]) -> Imported:
    scores = _scores(table, options)
    if len(scores.test_sets) < 2:
        found = f"; columns that could be test sets: {some(scores.splits)}" if scores.splits else ""
        found += "".join(f"; {said}" for said in list(_odd_cells(table).values())[:1])
        raise DataError(
            f"{where}: no column 'test_set'; required: {', '.join(REQUIRED)}, or one column of numbers per test set;"
            f" found: {some(table.columns)}{found}{_further(table, scores)}"
        )
    _refuse_same_set(scores, where)
    if are_steps(scores.splits) and not options.test_sets:
        raise DataError(
            f"{where}: columns {some(scores.splits, 3)} are named by numbers: are they steps? write a row per step,"
            f" with the columns {', '.join(REQUIRED)}; or, where they are test sets: {chosen(scores.splits)}"
        )
    odd = _odd_cells(table)
    notes += [f"a column is left out: {said}" for said in list(odd.values())[:4]]
    sizes = _sizes(table, scores, options, notes)
    table = table.drop(columns="n", errors="ignore")
    left_out = _left_out(table.drop(columns=[*odd, *sizes.values()], errors="ignore"), scores, options)
    own = list(table.columns)
    table = _with_steps(table, list(scores.splits), where, notes)
    if "run" not in (*table.columns, *maps.columns) and _is_one_run(table, list(scores.splits)):
        table = table.assign(run=Path(where).stem)
        notes.append("no column names the run: the file is one run")
    table = _with_run(table, maps, where, notes)
    table = _told_apart(table, notes)
    others = {c: split for c, split in scores.splits.items() if split[1] != "accuracy" and "/" not in c}
    taken = [c for c in scores.splits if c not in others] or others
    notes.append(f"test sets are the columns {some(taken)}; choose others with --test-set")
    notes += left_out
    read_as = [f"column '{shown(c)}' is read as the {metric} of {shown(name)}" for c, (name, metric) in others.items()]
    notes += read_as[:4]
    _refuse_twins(table, list(scores.splits), where, own)
    table = wide_shares(table, scores.splits, where, notes)
    kept = [c for c in table.columns if c not in scores.splits and (c in _KEPT or not _is_number(table[c]))]
    kept += [c for c in dict.fromkeys(sizes.values()) if c not in kept]
    long = table.melt(kept, list(scores.splits), "column", "value").dropna(subset="value")
    if long.empty:
        raise DataError(f"{where}: no cell of a test set holds a number; expected scores such as 0.713")
    split = pd.DataFrame(scores.splits.values(), index=list(scores.splits), columns=["test_set", "metric"])
    long = long.drop(columns="column").assign(**{c: split[c].loc[long["column"]].to_numpy() for c in split.columns})
    if sizes:
        known = {name: long[column] for name, column in sizes.items()}
        long["n"] = np.select([long["test_set"] == name for name in known], list(known.values()), np.nan)
        long = long.drop(columns=list(sizes.values()))
    aliases = {column: test_set for column, (test_set, _) in scores.splits.items()}
    return Imported(format=NAME, table=as_table(long, where), notes=tuple(notes), aliases=aliases)


def _sizes(table: pd.DataFrame, scores: _Scores, options: Options, notes: list[str]) -> dict[str, str]:
    """By test set the column with its number of examples, `snli_n` or `n_snli`; one called `n` does not say whose."""
    names = {str(c).lower(): str(c) for c in table.columns if c not in scores.splits and _is_number(table[c])}
    found = {}
    for name in scores.test_sets:
        called = (f"{name}_n", f"n_{name}", f"{name}/n", f"{name} n", f"n {name}")
        columns = [names[one.lower()] for one in called if one.lower() in names]
        cells = pd.concat([table[column] for column in columns]).dropna() if columns else pd.Series(dtype=float)
        odd = cells[(cells < 1) | (cells % 1 != 0)]
        if len(columns) > 1:
            notes.append(f"columns {some(columns)} are left out: one of them may be the number of examples of {name}")
        elif len(odd):
            notes.append(f"column {columns[0]} is left out: {shown(odd.iloc[0])} is no number of examples")
        elif len(cells):
            found[name] = columns[0]
    if found:
        notes.append(f"numbers of examples are the columns {some(found.values())}")
    if "n" in table.columns and table["n"].notna().any():
        one = next((scores.splits.get(name, (name, ""))[0] for name in options.in_domain), scores.test_sets[0])
        notes.append(f"column n is left out: of which test set? call it {one}_n, or say --n {one}=NUMBER")
    return found


def _further(table: pd.DataFrame, scores: _Scores) -> str:
    """What a user may type where columns of scores are named in another way."""
    objects = [c for c in table.columns if table[c].dtype == object and isinstance(table[c].iloc[0], Mapping)]
    if objects:
        return f"; {some(objects, 4)} hold objects: write numbers, under names such as {shown(objects[0])}/acc"
    left_out = [c for c in scores.left_out if not c.lower().startswith(("column ", "unnamed"))]
    slashed = [c for c in left_out if PREFIX.match(c) and "/" in c]
    if slashed:
        prefix = slashed[0].partition("/")[0]
        return f"; say how scores are named, e.g. --keys '{shown(prefix)}/{{test_set}}'"
    called = [c for c in table.columns if c.lower() in SYNONYMS["test_set"] and not _is_number(table[c])]
    if called and len(scores.splits) == 1:
        pair = mapped("value", next(iter(scores.splits)))
        return f"; where the rows of {shown(called[0])} are test sets: {mapped('test_set', called[0])} {pair}"
    if len(left_out) > 1:
        return f"; taken for settings or averages: {some(left_out, 4)}; if they are scores: {chosen(left_out[:4])}"
    return ""


def _refuse_same_set(scores: _Scores, where: str) -> None:
    """`hans` beside `hans_acc`."""
    owners: dict[tuple[str, str], str] = {}
    for column, split in scores.splits.items():
        if owners.setdefault(split, column) != column:
            both = f"'{shown(owners[split])}' and '{shown(column)}'"
            raise DataError(f"{where}: columns {both} are both the {split[1]} of {shown(split[0])}; remove one")


def _left_out(table: pd.DataFrame, scores: _Scores, options: Options) -> list[str]:
    """One note: which columns are no test sets, and why."""
    reasons: dict[str, list[str]] = {}
    for name in (c for c in table.columns if c not in _KEPT and c not in scores.splits):
        reasons.setdefault(_reason(table[name], scores, options), []).append(str(name))
    told = [f"{some(names)} ({why})" for why, names in reasons.items()]
    return [f"{NO_TEST_SETS}: {'; '.join(told)}"] if told else []


def _reason(column: pd.Series, scores: _Scores, options: Options) -> str:
    if is_missing(column).all():
        return "empty"
    if column.name in scores.left_out:
        if options.test_sets:
            return "not among --test-set"
        if UNNAMED.fullmatch(str(column.name)):
            counts = column.dropna().diff().dropna().eq(1).all()
            return "unnamed, a row index" if counts else "unnamed"
        other = is_score(str(column.name)) and not LEVEL.fullmatch(str(column.name))
        return "not named like an evaluation" if other else "named like a setting or a summary"
    texts = column[~is_missing(column)].astype(str)
    if texts.str.lower().isin(["true", "false"]).all():
        return "true or false"
    dates = pd.api.types.is_datetime64_any_dtype(column) or bool(texts.str.match(DATE).all())
    return "dates" if dates else "text"


def _odd_cells(table: pd.DataFrame) -> dict[str, str]:
    """What keeps columns that have numbers from being columns of numbers, by column."""
    found = {}
    for name in (c for c in table.columns if c not in _KEPT and not _is_number(table[c])):
        if pd.api.types.is_bool_dtype(table[name]) or not table[name].map(lambda cell: isinstance(cell, _CELLS)).all():
            continue
        texts = table[name].astype(str).str.strip()
        odd = table[name][~texts.str.fullmatch(rf"{NUMBER}\s*%?", flags=re.ASCII) & ~is_missing(table[name])]
        if texts.str.fullmatch(r"[+\-\u2212]?[\d.,]*\d\s*%?").any() and len(odd):
            found[name] = f"{shown(name)} is '{shown(odd.iloc[0])}' in row {int(odd.index[0]) + 1}, no number"
    return found


_CELLS = (str, Real, Decimal, type(None), type(pd.NA))
_KEPT = ("run", "step", *FIELDS, "n", "role", *OPTIONAL)


def _scores(table: pd.DataFrame, options: Options) -> _Scores:
    """Columns of numbers that are no setting; of a tracker's table those that are named like an evaluation."""
    numbers = [c for c in table.columns if c not in _KEPT and _is_number(table[c]) and table[c].notna().any()]
    tracked = [c for c in numbers if PREFIX.match(c) and "/" in c]
    if options.keys is not None or tracked:
        splits = split_keys(numbers if options.keys is not None else tracked, options.keys)
    else:
        levels = index_levels(table.columns)
        own = [c for c in numbers if is_score(c) and c not in levels]
        splits = _unprefixed({c: by_suffix(c) or (c, "accuracy") for c in own})
    wanted = {*options.test_sets, *options.in_domain}
    for name in wanted & {*numbers} - {*splits}:
        splits[name] = by_suffix(name) or (name, "accuracy")
    if options.test_sets:
        splits = {c: split for c, split in splits.items() if c in wanted or split[0] in wanted}
    return _Scores(splits, tuple(c for c in numbers if c not in splits))


def _unprefixed(splits: dict[str, tuple[str, str]]) -> dict[str, tuple[str, str]]:
    """`eval_hans_accuracy`, as a Trainer names it, is the accuracy of hans, unless another column is."""
    bare = {c: (name.removeprefix("eval_"), metric) for c, (name, metric) in splits.items() if c != name}
    counts = Counter({**splits, **bare}.values())
    return {c: bare[c] if c in bare and counts[bare[c]] == 1 else split for c, split in splits.items()}


def _with_run(table: pd.DataFrame, maps: RunMap, where: str, notes: list[str]) -> pd.DataFrame:
    """A table with a column `run`: its own, or made of what tells runs apart."""
    if maps.columns.get("run") == ROW and ROW not in table.columns:
        return table.assign(run=[f"row {number}" for number in range(1, len(table) + 1)])
    if "run" in table.columns:
        return table
    parts = [name for name in FIELDS if name in table.columns]
    if not parts:
        raise DataError(f"{where}: no column names the run; {_which_run(table)}")
    notes.append(f"runs are told apart by {', '.join(parts)}")
    names = table[parts[0]].map(_text)
    for part in parts[1:]:
        names = names + "_" + table[part].map(_text)
    return table.assign(run=names)


def _which_run(table: pd.DataFrame) -> str:
    """What a user may type where no column is called run, or model."""
    column = next((c for c in table.columns if c != "step" and not _is_number(table[c])), None)
    if column is None:
        return f"add one, or, {ROWS_ARE_RUNS}"
    says = f"say which does: {mapped('run', column)}, or, "
    if not table["step"].any():  # a row per test set?
        says += (
            f"where {shown(column)} names test sets and the other columns are runs: {mapped('test_set', column)}, or, "
        )
    return says + ROWS_ARE_RUNS


def _with_steps(table: pd.DataFrame, scores: list[str], where: str, notes: list[str]) -> pd.DataFrame:
    """The rows that have scores, with steps; checked here, where a message can name the file's row."""
    if "step" not in table.columns:
        table["step"] = 0
        notes.append(NO_STEPS)
    scored = table[scores].notna().any(axis=1)
    _refuse_unnamed_runs(table[scored], where)
    stand_in = {name: table[name] if name in table.columns else "" for name in ("run", "test_set")}
    checked = as_table(table.assign(**stand_in, step=table["step"].where(scored, 0), value=0.0), where)
    return table.assign(step=checked["step"].to_numpy())[scored]


def _is_one_run(table: pd.DataFrame, scores: list[str]) -> bool:
    """Whether nothing tells runs apart and nothing has to: steps differ, and none has two scores of a test set."""
    if any(name in table.columns for name in FIELDS) or table["step"].nunique() < 2:
        return False
    return bool((table.groupby("step")[scores].nunique() <= 1).all(axis=None))


def _told_apart(table: pd.DataFrame, notes: list[str]) -> pd.DataFrame:
    """Runs named by their seeds, say, of several models: what is said of them is added to the names.

    Only where it must be: rows of one run and step that differ in the model are two runs.
    """
    key = [name for name in ("run", "step", "test_set", "metric") if name in table.columns]
    for name in (name for name in FIELDS if name in table.columns):
        twins = table[table.duplicated(key, keep=False)]
        if (twins.groupby(key, dropna=False)[name].nunique() > 1).any():
            table = table.assign(run=table[name].map(_text) + "_" + table["run"].map(_text))
            notes.append(f"runs of one name differ in {name}: it is part of their names, as in {table['run'].iloc[0]}")
    return table


def _refuse_unnamed_runs(table: pd.DataFrame, where: str) -> None:
    """Gaps, as merged cells leave them, and rows that sum up the others."""
    for column in (name for name in ("run", "model") if name in table.columns):
        if table[column].dtype == object and table[column].map(lambda cell: isinstance(cell, bytes)).any():
            continue  # refused later
        names = table[column].where(~is_missing(table[column]), "").astype(str).str.strip()
        if names.eq("").any() and not names.eq("").all():
            row = int(names.index[names.eq("")][0]) + 1
            cure = "write it in every row (of merged cells only one has it)"
            raise DataError(f"{where} row {row}: {column} is missing; {cure}")
        summary = next((name for name in names.unique() if is_summary(name)), None)
        if summary is not None and names.nunique() > 2:
            row = int(names.index[names.eq(summary)][0]) + 1
            found = f"{column} is '{shown(summary)}', a summary of the others?"
            raise DataError(f"{where} row {row}: {found} remove it, or rename the {column}")


def _refuse_timed_chart(table: pd.DataFrame, where: str) -> None:
    first, *others = map(str, table.columns)
    if TIME.fullmatch(first) and others and all(EXPORT.fullmatch(name) for name in others):
        raise DataError(f"{where}: a chart over '{shown(first)}'; export it with Step, or train/global_step, as x-axis")


def _text(value: object) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _refuse_twins(table: pd.DataFrame, scores: list[str], where: str, own: Sequence[str]) -> None:
    """Two rows of one run and step that differ in a score: something else tells them apart.

    `own` are the columns that the file has, the others were added here.
    """
    again = table.duplicated(["run", "step"], keep=False)
    if not again.any():
        return
    apart = table[again].groupby(["run", "step"], dropna=False, sort=False)[scores].nunique() > 1
    if not apart.to_numpy().any():
        return
    run, step = apart.index[int(np.argmax(apart.any(axis=1).to_numpy()))]
    rows = np.flatnonzero((table["run"] == run) & (table["step"] == step))
    said = f"run '{shown(run)}' at step {step} has different scores"
    one_step = (table.groupby("run", dropna=False)["step"].nunique() == 1).all()
    cures = _apart(table, rows, scores, own, [ROWS_ARE_RUNS] if one_step else []) or ["keep one of them"]
    raise DataError(f"{where} rows {some(rows + 1, 3)}: {said}; {', or, '.join(cures)}")


def _refuse_long_twins(table: pd.DataFrame, where: str, own: Sequence[str]) -> None:
    """The same for a row per test set."""
    key = [name for name in KEY if name in table.columns]
    known = table.assign(**{name: table[name].astype(object).fillna("") for name in key})  # a gap equals a gap
    again = known[known.duplicated(key, keep=False)]
    apart = again.groupby(key, dropna=False, sort=False)["value"].transform("nunique") > 1
    if not apart.any():
        return
    first = again[apart].iloc[0]
    rows = np.flatnonzero((known[key] == first[key]).all(axis=1))
    said = f"run '{shown(first['run'])}' at step {first['step']} has different scores of {shown(first['test_set'])}"
    cures = ["keep one of them", *_apart(table, rows, ["value"], own)]
    raise DataError(f"{where} rows {some(rows + 1, 3)}: {said}; {', or '.join(cures)}")


def _apart(
    table: pd.DataFrame, rows: np.ndarray, scores: list[str], own: Sequence[str], further: Sequence[str] = ()
) -> list[str]:
    """What a user may type where rows of one run and step differ: what tells them apart, by what it holds.

    `further` is what else helps, unless a column was wrongly taken for a score.
    """
    columns = [c for c in table.columns if c not in ("run", "step", *FIELDS) and table[c].iloc[rows].nunique() > 1]
    whole = [c for c in columns if c in scores and (table[c].dropna() % 1 == 0).all()]
    others = [*(c for c in columns if c not in scores), *whole]  # a fold or a trial may have been taken for a score
    if not others:
        absent = [name for name in ("model", "seed", "step") if name not in own]
        return [*([f"name what tells them apart: a column {listed(absent, 'or')}"] if absent else []), *further]
    column = others[0]
    steps = _is_number(table[column]) and re.search("epoch|step|iter|tokens|checkpoint", column, re.IGNORECASE)
    if steps and (table[column].dropna() % 1 != 0).any():
        factor = "the steps per epoch" if "epoch" in column.lower() else "1000"
        return [f"add a column step of whole numbers, such as {shown(column)} times {factor}"]
    fields = [*(["seed"] if column in whole else []), "model", "run", "train_set"]
    field = "step" if steps else next((name for name in fields if name not in own), "run")
    return [f"name what tells them apart: {mapped(field, column)}", *(() if column in whole else further)]


# what wandb exports from a chart: `Step`, `<run> - <metric>`, and its range


def _is_export(table: pd.DataFrame) -> bool:
    others = [str(c) for c in table.columns if c != "step"]
    return "step" in table.columns and bool(others) and all(EXPORT.fullmatch(c) for c in others)


def _from_export(table: pd.DataFrame, notes: list[str]) -> pd.DataFrame:
    named = {c: match for c in table.columns if (match := EXPORT.fullmatch(str(c))) and not match["kind"]}
    splits = split_keys(match["key"] for match in named.values())
    left_out = [column for column, match in named.items() if match["key"] not in splits]
    notes.append("a chart that wandb exported" + (f"; not taken: {some(left_out)}" if left_out else ""))
    parts = []
    for column, match in named.items():
        if match["key"] not in splits:
            continue
        test_set, metric = splits[match["key"]]
        part = table[["step"]].assign(value=table[column], run=match["run"], test_set=test_set, metric=metric)
        parts.append(part.dropna(subset="value"))
    return pd.concat(parts, ignore_index=True) if parts else table


def _with_identity(table: pd.DataFrame, maps: RunMap) -> pd.DataFrame:
    """What names and a mapping file say of the runs, in columns."""
    if maps.names is None and not maps.runs:
        return table
    runs = table["run"].astype(str)
    maps.check_runs(runs)
    abouts = {run: {**maps.by_name(run), **maps.runs.get(run, {})} for run in runs.unique()}
    for name in dict.fromkeys(name for about in abouts.values() for name in about):
        told = runs.map({run: about.get(name) for run, about in abouts.items()})
        table[name] = told if name not in table.columns else told.where(told.notna(), table[name])
    return table


def as_csv(table: pd.DataFrame) -> pd.DataFrame:
    """A table as a CSV file holds it: no text that a spreadsheet would take for a formula."""
    texts = [column for column in table.columns if not pd.api.types.is_numeric_dtype(table[column])]
    return table.assign(**{column: disarmed(table[column]) for column in texts})
