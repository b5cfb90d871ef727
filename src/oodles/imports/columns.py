"""Names of a table's columns: what they are called, which are no test sets, and which are steps."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from decimal import Decimal

import pandas as pd

from oodles.errors import shown
from oodles.imports.keys import METRICS, by_suffix
from oodles.stats.longtable import is_missing

SYNONYMS = {  # what people call a column, in lower case, the surest first
    "run": ("run", "run_name", "run_id", "experiment", "name"),
    "step": ("step", "steps", "global_step", "train/global_step", "iteration", "checkpoint", "_step"),
    "test_set": ("test_set", "testset", "eval_set", "task", "benchmark", "dataset"),
    "value": ("value", "score"),
    "model": ("model", "model_name", "model_name_or_path", "base_model"),
    "train_set": ("train_set", "train_ds", "train_dataset", "trained_on"),
    "shots": ("shots", "shot", "n_shots", "num_shots"),
    "seed": ("seed", "random_seed"),
    "metric": ("metric", "metric_name"),
    "n": ("n",),  # n_samples, num_examples and the like are often the training set's
    "role": ("role",),
}
SETTINGS = re.compile(  # columns of numbers that are no scores
    r"(column \d+|unnamed.*|index|id|epochs?|k|folds?|shift|((gpu|peak)_)*mem(ory)?(_[gm]i?b)?|total|"
    r"(.*[_ ])?total|.*(n_samples|"
    r"warmup|ratio|momentum|smoothing|beta\d?|eps(ilon)?|gamma|width|depth|heads|learning_rate|lr|loss|runtime|time|timestamp|seconds?|date|"
    r"batch(_size)?|steps?|tokens?|examples|params|parameters|flops|flos|size|layers|grad_norm|decay|dropout|seed|"
    r"temperature|rank|alpha|stderr|std|_se|_sd|error|count|_n|[_ ]ci(95)?|[_ ](ci_)?(low|high|lower|upper)(er)?)|"
    r"(n|num|number)_.*|.*±.*|(params|parameters)\W.*|.*hours?|year)",
    re.IGNORECASE,
)
SUMMARIES = ("mean", "average", "avg", "median", "std", "stdev", "sd", "sem", "overall", "total", "max", "min", "best")
OF_ALL = {"mean", "average", "averaged", "avg", "median", "overall", "best", "max", "min", "std", "stdev", "sem"}
SUMMARY = re.compile(  # a row called Average, Avg., Mean (3 seeds), Mean ± std, Std. dev.
    rf"(?:overall|macro|grand)?[ _-]?(?:{'|'.join(SUMMARIES)}|sum|count|std\.? dev|variance)\.?(?:\s*[(±+/\[].*)?",
    re.IGNORECASE,
)
LEVEL = re.compile(r"level_\d+")  # a level of an index without a name, as pandas calls it
LARGE = {"": 1, "k": 1_000, "m": 1_000_000}
STEP = re.compile(r"(?:checkpoint|ckpt|global_step|step|iteration|iter)[-_ ]?(\d{1,15})|(\d{1,9}(?:\.\d+)?)([kKmM]?)")


def is_score(name: str) -> bool:
    """Whether a column of numbers may be a test set's: no setting, and no summary of others.

    >>> [is_score(name) for name in ("hans", "hans_acc", "hans_std", "AVG OOD", "best_acc", "learning_rate", "k")]
    [True, True, False, False, False, False, False]
    """
    if OF_ALL & set(re.split(r"[^a-z]+", name.lower())):
        return False
    return by_suffix(name) is not None or not (SETTINGS.fullmatch(name) or name.lower() in METRICS)


def index_levels(names: Iterable[str]) -> list[str]:
    """Levels of an index that have no names of their own; test sets of levels 1 to 5 are none.

    >>> [index_levels(names) for names in (["level_0", "level_1", "a"], ["run", "level_1"], ["level_1", "level_2"])]
    [['level_0', 'level_1'], ['level_1'], []]
    """
    levels = [name for name in names if LEVEL.fullmatch(name)]
    return levels if "level_0" in levels or len(levels) == 1 else []


def is_summary(name: str) -> bool:
    """Whether a row of this name sums up the others."""
    return SUMMARY.fullmatch(name.strip()) is not None


def are_steps(names: Iterable[str]) -> bool:
    """Whether columns are named by numbers."""
    names = list(names)
    return len(names) > 1 and all(re.fullmatch(r"\d{1,15}", name) for name in names)


def as_steps(column: pd.Series) -> pd.Series:
    """`checkpoint-500`, `step500` and `0.5k` as 500; the column itself where a cell is written in another way.

    >>> as_steps(pd.Series(["step500", "1.5k", "2000"])).tolist(), as_steps(pd.Series(["500", "last"])).tolist()
    ([500, 1500, 2000], ['500', 'last'])
    """
    if not pd.api.types.is_string_dtype(column):
        return column
    found = []
    for cell, missing in zip(column, is_missing(column), strict=True):
        match = None if missing else STEP.fullmatch(str(cell).strip())
        if match is None and not missing:
            return column
        found.append(_step(match) if match else None)
    return pd.Series(found, column.index, dtype=object).infer_objects()


def _step(match: re.Match[str]) -> int | float:
    number = Decimal(match[1] or match[2]) * LARGE[(match[3] or "").lower()]
    return int(number) if number == int(number) else float(number)


def mapped(field: str, column: object) -> str:
    """The option that says what a column is, as a shell takes it.

    >>> mapped("run", "column 1"), mapped("step", "epoch")
    ("--map 'run=column 1'", '--map step=epoch')
    """
    return f"--map {shlex.quote(f'{field}={shown(column)}')}"


def chosen(columns: Iterable[object]) -> str:
    """The options that choose columns as test sets, as a shell takes them."""
    return " ".join(f"--test-set {shlex.quote(shown(column))}" for column in columns)
