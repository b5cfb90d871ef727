"""What trackers and trainers logged -> the long table: the one place where runs, steps and names of metrics are read.

An importer gives `Log`s: the points of a run under the names that its tool gives them, or scores of test sets.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from oodles.errors import DataError, shown, some
from oodles.imports.contract import Imported, Options
from oodles.imports.identity import read_maps, untold
from oodles.imports.keys import NO_SCORES, OTHERS, TIMES, canonical, split_keys
from oodles.imports.shares import long_shares
from oodles.stats.longtable import SOURCE, as_table

LARGEST = 2**53
UNREAD, MOST_TOLD = ": left out, no number", 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """The points of one run; of points at the same step and of the same name the last counts."""

    run: str
    config: Mapping[str, Any] = field(default_factory=dict)
    steps: Sequence[int] = ()
    keys: Sequence[str] = ()
    values: Sequence[float] = ()
    unread: Mapping[str, int] = field(default_factory=dict)  # name -> how many values are no numbers


@dataclass(slots=True)
class Points:
    """The points of a run, as they are gathered."""

    steps: list[int] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    unread: Counter[str] = field(default_factory=Counter)

    def add(self, step: int, key: str, value: Any) -> None:
        """A value that was logged; None is a gap, and what is no number is counted."""
        number = as_number(value)
        if number is not None:
            self.steps.append(step)
            self.keys.append(key)
            self.values.append(number)
        elif value is not None:
            self.unread[key] += 1

    def log(self, run: str, config: Mapping[str, Any]) -> Log:
        """All of them."""
        return Log(run=run, config=config, steps=self.steps, keys=self.keys, values=self.values, unread=self.unread)


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """A score of a test set, where the tool itself names both."""

    run: str
    step: int
    test_set: str
    metric: str
    value: float
    origin: str  # names the file in messages
    n: float = math.nan
    stderr: float = math.nan
    slice_of: str | None = None


def as_number(value: Any) -> float | None:
    """A logged value as a number, NaN as trackers spell it; None for what is none."""
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        try:
            return float(value)
        except OverflowError:
            return None
    return math.nan if value in ("NaN", "Infinity", "-Infinity") else None


def tell_unread(notes: list[str], file: Path, what: str, value: Any) -> None:
    """A note on a score that is no number, a gap that nobody would see; a few of them, for there may be thousands."""
    if value is None:
        return
    told = sum(one.endswith(UNREAD) for one in notes)
    if told < MOST_TOLD:
        notes.append(f"{file.name}: {shown(what)} is {shown(value, 20)}{UNREAD}")
    elif told == MOST_TOLD:
        notes.append(f"and further scores{UNREAD}")


def as_step(value: Any, where: str) -> int:
    """A step as a whole number."""
    number = as_number(value)
    if number is None or not number.is_integer() or not 0 <= number < LARGEST:
        raise DataError(f"{where}: step is {shown(value, 40)}; expected a whole number, 0 or more")
    return int(number)


def from_logs(name: str, logs: Iterable[Log], options: Options, where: str, notes: Iterable[str] = ()) -> Imported:
    """The scores in logs, as a long table, with what is known of their runs."""
    logs, told, maps = list(logs), list(notes), read_maps(options)
    if not any(len(log.values) for log in logs):
        raise DataError(f"{where}: nothing is logged in it; expected scores such as eval_hans_accuracy")
    maps.check_runs(log.run for log in logs)
    _refuse_same_names(logs, where)
    abouts = {log.run: maps.about(log.run, log.config) for log in logs}
    table = _points(logs)
    splits = split_keys(table["key"].cat.categories, options.keys)
    if not splits:
        found = some(table["key"].cat.categories, 6)
        raise DataError(
            f"{where}: no metric is named like a score; found: {found}; say how they are named, e.g."
            " --keys 'eval/{test_set}_{metric}'"
        )
    told += _left_out(table["key"].cat.categories, splits)
    told += _unread(logs, options)
    table = _split(table[table["key"].isin(list(splits))], splits)
    table, repeated = _last(table)
    told += [f"{repeated} points are logged more than once: the last counts (a resumed run)"] if repeated else []
    empty = sorted({log.run for log in logs} - set(table["run"].unique()))
    told += [f"no scores in {len(empty)} of {len(logs)} runs: {some(empty, 3)}"] if empty else []
    table = long_shares(as_table(_with_abouts(table, abouts), where), where, told, by_hand=False)
    table.attrs[SOURCE] = where
    aliases = {key: test_set for key, (test_set, _) in splits.items()}
    notes = (*told, *untold(abouts))
    return Imported(format=name, table=table, notes=notes, aliases=aliases)


def from_scores(
    name: str,
    scores: Sequence[Score],
    configs: Mapping[str, Mapping[str, Any]],
    options: Options,
    where: str,
    notes: Iterable[str] = (),
) -> Imported:
    """Scores whose test sets and metrics the tool names, as a long table."""
    told = list(dict.fromkeys(notes))
    if not scores:
        raise DataError(f"{where}: no score in it; {told[0] if told else 'expected results of test sets'}")
    maps = read_maps(options)
    maps.check_runs(configs)
    names = ("run", "step", "test_set", "metric", "value", "n", "stderr", "slice_of", "origin")
    table = pd.DataFrame({column: [getattr(score, column) for score in scores] for column in names})
    table["metric"] = table["metric"].map(canonical)
    _refuse_conflicts(table, where)
    table = table.drop_duplicates(["run", "step", "test_set", "metric"]).drop(columns="origin")
    table = table.drop(columns=[c for c in ("n", "stderr", "slice_of") if table[c].isna().all()])
    abouts = {run: maps.about(run, configs.get(run, {})) for run in map(str, table["run"].unique())}
    table = long_shares(as_table(_with_abouts(table, abouts), where), where, told, by_hand=False)
    return Imported(format=name, table=table, notes=(*told, *untold(abouts)))


def _refuse_same_names(logs: Sequence[Log], where: str) -> None:
    seen: set[str] = set()
    for log in logs:
        if log.run in seen:
            raise DataError(f"{where}: two runs are named '{shown(log.run)}'; rename one, or import them apart")
        seen.add(log.run)


def _points(logs: Sequence[Log]) -> pd.DataFrame:
    """Column by column: a sweep has millions of points."""
    counts = [len(log.values) for log in logs]
    owners = np.repeat(np.arange(len(logs), dtype=np.int64), counts)
    keys = pd.Categorical([key for log in logs for key in log.keys])
    return pd.DataFrame(
        {
            "run": pd.Categorical.from_codes(owners, pd.Index([log.run for log in logs])),
            "step": np.fromiter((step for log in logs for step in log.steps), np.int64, sum(counts)),
            "key": keys,
            "value": np.fromiter((value for log in logs for value in log.values), np.float64, sum(counts)),
        }
    )


def _left_out(keys: Iterable[str], splits: Mapping[str, Any]) -> list[str]:
    """A note on metrics that are no scores, as far as their names tell; times and training are not worth one."""
    others = [
        key
        for key in keys
        if key not in splits
        and not OTHERS.match(key)
        and not any(key == name or key.endswith((f"_{name}", f"/{name}")) for name in (*TIMES, *NO_SCORES))
        and key not in ("loss", "learning_rate", "grad_norm", "total_flos", "train_loss")
    ]
    return [f"metrics left out, their names are no test set's: {some(others, 6)}; see --keys"] if others else []


def _unread(logs: Sequence[Log], options: Options) -> list[str]:
    """A note on scores whose values are no numbers: gaps that nobody would see."""
    counts: Counter[str] = Counter()
    for log in logs:
        counts.update(log.unread)
    keys = list(split_keys(counts, options.keys))[:MOST_TOLD] if counts else []
    return [f"{shown(key)}: left out where it is no number (text, true or a list), {counts[key]} times" for key in keys]


def _split(table: pd.DataFrame, splits: Mapping[str, tuple[str, str]]) -> pd.DataFrame:
    keys = table["key"].cat.remove_unused_categories()
    codes, known = keys.cat.codes.to_numpy(), list(keys.cat.categories)
    columns = {}
    for place, name in enumerate(("test_set", "metric")):
        words = [splits[key][place] for key in known]
        labels = list(dict.fromkeys(words))
        places = np.array([labels.index(word) for word in words], dtype=np.int64)
        columns[name] = pd.Categorical.from_codes(places[codes], pd.Index(labels))
    return table.drop(columns="key").assign(**columns)


def _last(table: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    """Without the points that a later one replaces; how many of them said something else."""
    key = ["run", "step", "test_set", "metric"]
    again = table.duplicated(key, keep="last")
    if not again.any():
        return table, 0
    distinct = len(table.drop_duplicates([*key, "value"])) - int((~again).sum())
    return table[~again], distinct


def _with_abouts(table: pd.DataFrame, abouts: Mapping[str, Mapping[str, Any]]) -> pd.DataFrame:
    """What is known of each run, in columns; names as text."""
    runs = pd.Categorical(table["run"])
    columns: dict[str, Any] = {}
    for name in dict.fromkeys(name for about in abouts.values() for name in about if name not in table.columns):
        told = pd.Series([abouts[run].get(name) for run in runs.categories])
        columns[name] = told.infer_objects().take(runs.codes).array
    texts = {c: table[c].astype(str) for c in ("run", "test_set", "metric")}
    return table.assign(**texts, **columns).reset_index(drop=True)


def _refuse_conflicts(table: pd.DataFrame, where: str) -> None:
    """Two files that say different things of one score: one of them is stale, and nobody but the user knows which."""
    key = ["run", "step", "test_set", "metric"]
    again = table[table.duplicated(key, keep=False)]
    if again.empty:
        return
    apart = again.groupby(key, sort=False)["value"].transform("nunique") > 1
    if apart.any():
        first = again[apart].iloc[0]
        same = again[(again[key] == first[key]).all(axis=1)]
        files = [str(origin).removeprefix(f"{where}/") for origin in same["origin"].unique()]
        raise DataError(
            f"{where}: {some(files, 2)} differ on run '{shown(first['run'])}', step {first['step']},"
            f" {shown(first['test_set'])} {shown(first['metric'])}; name one of them, or move the other away"
        )
