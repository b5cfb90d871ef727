"""The long table: one row per run, step, test set and metric, from us or from anyone.

`check_table` fills the defaults, settles which test set is in-domain for which run and says, as caveats, what it had to
change. What cannot be used is one `DataError` that names the rows. `oodles.imports` reads files.

Try it::

    table, caveats = check_table(read_table(Path("scores.csv")), in_domain="mnli")
"""

from __future__ import annotations

import numbers
import re
import sys
from collections.abc import Mapping, Sequence
from datetime import date
from decimal import Decimal

import numpy as np
import pandas as pd

from oodles.errors import ConfigError, DataError, nearest, no_test_set, shown, some

REQUIRED = ("run", "step", "test_set", "value")
EXPECTED = ("model", "train_set", "shots", "seed", "role", "metric", "n")
OPTIONAL = ("pattern", "data_seed", "suite", "slice_of", "slice", "template", "chance")

NUMBERS = ("value", "step", "n", "chance")
WHOLE_STEP = "a whole number, 0 or more"
KEY = ["run", "step", "test_set", "metric"]
ROLES = ("in_domain", "ood", "other")
NAMES = ("run", "test_set", "model", "train_set", "role", "metric", "pattern", "suite", "slice_of")
SAMPLED = 0.05  # by which chance may differ over runs that were scored on different samples of a set
LARGEST = 1e9  # squares of larger scores are beyond what sums of squares can hold exactly
MOST_EXAMPLES = 10**12  # of a test set
RIGHT = ("accuracy", "acc_norm", "exact_match")  # means of right and wrong, whose noise n bounds
GUESSABLE = ("accuracy", "balanced_accuracy", "auc")  # metrics for which guessing has a known score
FORMULA = re.compile(r"'*[=+\-@\t\r]")  # how a cell begins that a spreadsheet takes for a formula
ARMED = r"^'(?='*[=+\-@\t\r])"
SOURCE = "source"  # attribute of a table: the file it was read from, for messages
MISSING = ("", "na", "nan", "null", "none", "n/a", "#n/a", "<na>", "-", "--", "–", "—", ".")


def as_table(table: pd.DataFrame, where: str) -> pd.DataFrame:
    """A table that was read from a file: the required columns are there, and numbers are numbers.

    Raises
    ------
    DataError
        It is empty, lacks a required column or holds text among the numbers.
    """
    try:
        table = _with_numbers(_with_columns(table, where), where)
    except UnicodeDecodeError:
        raise DataError(f"{where}: a text is not UTF-8; write the file again") from None
    table.attrs[SOURCE] = where
    return table


def pick_sets(
    table: pd.DataFrame, test_sets: Sequence[str] | None, in_domain: Sequence[str] | None = None
) -> pd.DataFrame:
    """Only these test sets, beside the in-domain ones; all of them if none is named."""
    if not test_sets:
        return table
    known = table["test_set"].astype(str).unique()
    for name in test_sets:
        if name not in known:
            raise ConfigError(no_test_set(name_of(table), name, known))
    wanted = table["test_set"].isin([*test_sets, *(in_domain or ())])
    if "role" in table.columns:
        wanted |= table["role"].eq("in_domain")
    if "train_set" in table.columns:
        wanted |= table["test_set"].eq(table["train_set"])
    return table[wanted]


def with_sizes(
    table: pd.DataFrame,
    sizes: Mapping[str, int],
    metric: str = "accuracy",
    in_domain: str | Sequence[str] | None = None,
) -> pd.DataFrame:
    """The table with the number of examples of these test sets, which scores of this metric must not tell otherwise.

    >>> with_sizes(pd.DataFrame({"test_set": ["mnli", "hans"], "value": [0.8, 0.5]}), {"mnli": 9815})["n"].tolist()
    [9815.0, nan]
    """
    if not sizes or "test_set" not in table.columns or not table.columns.is_unique:
        return table
    known = as_names(_plain_cells(table["test_set"], "test_set", name_of(table)))
    refuse_unknown_home(in_domain, known)  # whose name is then the wrong one in both
    asked = table["metric"].fillna("accuracy").astype(str) == metric if "metric" in table.columns else known.notna()
    told = _numbers(table["n"], "n", name_of(table)) if "n" in table.columns else pd.Series(np.nan, index=table.index)
    for name, size in sizes.items():
        if not isinstance(name, str):
            raise ConfigError(f"n names test set {shown(repr(name))}; expected its name as text, such as 'mnli'")
        own = known == name.strip()
        if not own.any():
            raise ConfigError(no_test_set(name_of(table), name, known.dropna().unique(), "--n"))
        if isinstance(size, bool) or not isinstance(size, numbers.Real) or not 1 <= size <= MOST_EXAMPLES or size % 1:
            raise ConfigError(f"n of {name} is {shown(repr(size))}; expected its number of examples, such as 9815")
        other = told[own & asked & told.notna() & (told != size)]
        if len(other):
            raise ConfigError(f"n of {name} is {size}, but {name_of(table)} has {other.iloc[0]:g} for it; leave n out")
        told = told.where(~(own & told.isna()), float(size))
    found = table.assign(n=told)
    found.attrs.update(table.attrs)
    return found


def chance_level(table: pd.DataFrame, name: str, metric: str) -> float:
    """Score of guessing on a test set: from a column `chance`, else one over the set's own answers, else nan.

    The answers of a set are those that have `share:` rows.

    >>> rows = [("mnli", "accuracy"), ("mnli", "share:Yes"), ("mnli", "share:No"), ("arc", "accuracy")]
    >>> table = pd.DataFrame(rows, columns=["test_set", "metric"])
    >>> chance_level(table, "mnli", "accuracy"), chance_level(table, "arc", "accuracy")
    (0.5, nan)
    """
    if metric not in GUESSABLE:
        return float("nan")
    own = table[table["test_set"].astype(str) == name]
    metrics = own["metric"].astype(str) if "metric" in own else pd.Series("accuracy", index=own.index)
    told = own.loc[metrics == metric, "chance"].dropna().tolist() if "chance" in own else []
    if told:
        return float(told[0])
    answers = metrics[metrics.str.startswith("share:")].nunique()
    return 0.5 if metric == "auc" else 1 / answers if answers >= 2 else float("nan")


def check_table(
    table: pd.DataFrame, *, in_domain: str | Sequence[str] | None = None
) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """Fill defaults, normalise types, drop duplicates and settle the roles of a long table.

    Parameters
    ----------
    table : pandas.DataFrame
        At least the columns `run`, `step`, `test_set`, `value`.
    in_domain : str or sequence of str, optional
        Test sets that are in-domain for every run. Meant for tables without a `role` column; where the table has roles
        they are replaced and a caveat says so.

    Returns
    -------
    table : pandas.DataFrame
        A new table with all required and expected columns, sorted by the key; the input is left alone.
    caveats : tuple of str
        What was dropped, assumed or replaced.

    Examples
    --------
    >>> rows = [("r0", 0, "mnli", 0.5), ("r0", 0, "hans", 0.4), ("r0", 0, "hans", 0.4)]
    >>> table = pd.DataFrame(rows, columns=["run", "step", "test_set", "value"])
    >>> checked, caveats = check_table(table, in_domain="mnli")
    >>> checked[["test_set", "role", "metric", "value"]].values.tolist()
    [['hans', 'ood', 'accuracy', 0.4], ['mnli', 'in_domain', 'accuracy', 0.5]]
    >>> caveats
    ('1 repeated score was dropped',)
    """
    where = name_of(table)
    table = _with_numbers(_with_columns(table, where), where)
    caveats: list[str] = []
    padded = _padded(table["test_set"])
    table = _with_names(_with_defaults(table), where)
    table = _without_gaps(table, caveats, where)
    table = _without_duplicates(table, caveats, where, padded)
    table = _with_roles(table, in_domain, caveats, where)
    _refuse_chance(table, where)
    table = table.sort_values(KEY, kind="stable").reset_index(drop=True)
    table.attrs.pop(SOURCE, None)  # pandas would write it into Parquet files
    return table, tuple(caveats)


def name_of(table: pd.DataFrame) -> str:
    """What messages call a table: its file, if it was read from one."""
    return str(table.attrs.get(SOURCE, "table"))


def disarmed(column: pd.Series) -> pd.Series:
    """Text as a CSV file holds it: what a spreadsheet would run as a formula gets an apostrophe in front.

    >>> disarmed(pd.Series(["=1+2", "-0.5", "-a", "'@b", "a=b"])).tolist()
    ["'=1+2", '-0.5', "'-a", "''@b", 'a=b']
    """
    return column.map(lambda cell: f"'{cell}" if isinstance(cell, str) and _is_formula(cell) else cell)


def _is_formula(cell: str) -> bool:
    if not FORMULA.match(cell):
        return False
    try:
        return not np.isfinite(float(cell))
    except ValueError:
        return True


def refuse_levels(table: pd.DataFrame, where: str) -> None:
    """Refuse columns with several names each, as pandas makes them of pivots and of summaries."""
    levels = table.columns.nlevels
    if levels > 1:
        found = f"columns have {levels} levels, such as {shown(next(iter(table.columns), ()))}"
        raise DataError(f"{where}: {found}; flatten them, one column per test set")


def _with_columns(table: pd.DataFrame, where: str) -> pd.DataFrame:
    refuse_levels(table, where)
    repeated = sorted({str(c) for c in table.columns[table.columns.duplicated()]})
    if repeated:
        raise DataError(f"{where}: column '{repeated[0]}' appears more than once; keep one")
    absent = [c for c in REQUIRED if c not in table.columns]
    if absent:
        found = some(table.columns) or "none"
        raise DataError(f"{where}: no column '{absent[0]}'; required: {', '.join(REQUIRED)}; found: {found}")
    if table.empty:
        raise DataError(f"{where}: no rows; expected one per run, step, test set and metric")
    table = table.rename(columns=str)
    return table.assign(**{name: _plain_cells(table[name], name, where) for name in table.columns})


def _plain_cells(column: pd.Series, name: str, where: str) -> pd.Series:
    """A column of text, numbers or truths; lists, bytes and the like have no place in a long table."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        column = column.astype(object)
    if pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_complex_dtype(column):
        return column  # truths too
    if column.dtype != object and not pd.api.types.is_string_dtype(column):
        if name in NUMBERS:
            raise DataError(f"{where}: column '{name}' holds {column.dtype}; expected numbers")
        return column.astype(str).where(column.notna(), None)
    for kind in set(map(type, column)) if column.dtype == object else ():
        if not issubclass(kind, (str, numbers.Real, Decimal, date, type(None), type(pd.NA), type(pd.NaT))):
            row = next(i for i, cell in enumerate(column, start=1) if type(cell) is kind)
            raise DataError(f"{where} row {row}: column '{shown(name)}' holds {_kind(kind)}; expected text or numbers")
    for cell in column.unique():
        if isinstance(cell, str) and any("\ud800" <= c <= "\udfff" for c in cell):
            raise DataError(f"{where}: column '{shown(name)}' holds '{shown(cell)}', half a surrogate pair; not text")
    return column


def _kind(kind: type) -> str:
    return {list: "a list", dict: "a table", bytes: "bytes", np.ndarray: "a list"}.get(kind, f"a {kind.__name__}")


def _with_numbers(table: pd.DataFrame, where: str) -> pd.DataFrame:
    """`value` and `step` as numbers; the first cell that is none is named."""
    table = table.reset_index(drop=True)
    for column in (c for c in NUMBERS if c in table.columns):
        table[column] = _numbers(table[column], column, where)
    if table["step"].isna().any():
        row = int(np.flatnonzero(table["step"].isna())[0])
        raise DataError(f"{where} row {row + 1}: step is missing; expected the optimiser steps done (0 if not known)")
    large = np.flatnonzero(np.isfinite(table["value"]) & (table["value"].abs() > LARGEST))
    if len(large):
        found = table["value"].iloc[int(large[0])]
        raise DataError(f"{where} row {int(large[0]) + 1}: value is {found:g}; expected a score such as 0.713")
    if not np.isfinite(table["step"]).all():
        raise DataError(f"{where}: a step is infinite; expected the optimiser steps done")
    _refuse(table, "step", table["step"] < 0, where, WHOLE_STEP)
    epochs = f"{WHOLE_STEP}; of epochs write epoch times the steps per epoch"
    _refuse(table, "step", table["step"] % 1 != 0, where, epochs)
    if "n" in table.columns:
        wrong = ((table["n"] <= 0) | np.isinf(table["n"]) | (table["n"] % 1 > 0)) & np.isfinite(table["value"])
        expected = "how many examples are behind the value, a whole number of 1 or more (empty if not known)"
        _refuse(table, "n", wrong, where, expected)
        large = (table["n"] > MOST_EXAMPLES) & np.isfinite(table["value"])
        _refuse(table, "n", large, where, f"a number of examples, {MOST_EXAMPLES:.0e} at most")
    if "chance" in table.columns:
        wrong = (table["chance"] < 0) | (table["chance"] > 1)
        _refuse(table, "chance", wrong, where, "the score of guessing, between 0 and 1")
    if table["step"].max() < 2**53:
        table["step"] = table["step"].astype(np.int64)
    return table


def _refuse(table: pd.DataFrame, column: str, wrong: pd.Series, where: str, expected: str) -> None:
    rows = np.flatnonzero(wrong)
    if len(rows):
        listed = f"row {rows[0] + 1}" if len(rows) == 1 else f"rows {some(rows + 1, 4)}"
        raise DataError(f"{where} {listed}: {column} is {table[column].iloc[int(rows[0])]:g}; expected {expected}")


def _numbers(column: pd.Series, name: str, where: str) -> pd.Series:
    if pd.api.types.is_bool_dtype(column) or pd.api.types.is_complex_dtype(column):
        raise DataError(f"{where}: column '{name}' holds {column.dtype}; expected numbers")
    found = to_numbers(column).astype(float)
    wrong = found.isna() & ~is_missing(column)
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise DataError(f"{where} row {row + 1}: {name} is '{shown(column.iloc[row])}'; expected a number")
    return found


def to_numbers(column: pd.Series) -> pd.Series:
    """Cells as numbers; what is none, or too large for one, is missing.

    >>> to_numbers(pd.Series([1, "0.5", 10**400, "x"], dtype=object)).tolist()
    [1.0, 0.5, nan, nan]
    """
    if getattr(column.dtype, "na_value", None) is pd.NA and not pd.api.types.is_numeric_dtype(column):
        column = column.astype(object)  # of such texts pandas makes columns with another kind of gaps
    try:
        return pd.to_numeric(column, errors="coerce")
    except OverflowError:
        return pd.to_numeric(column.mask(column.map(is_beyond)), errors="coerce")


def is_beyond(cell: object) -> bool:
    """Whether a whole number is larger than any float."""
    return isinstance(cell, int) and abs(cell) > sys.float_info.max


def is_missing(column: pd.Series) -> pd.Series:
    """Cells that say that there is no value."""
    if pd.api.types.is_numeric_dtype(column):
        return column.isna()
    return column.isna() | column.astype(str).str.strip().str.lower().isin(MISSING)


def _with_defaults(table: pd.DataFrame) -> pd.DataFrame:
    for column in EXPECTED:
        if column not in table.columns:
            table[column] = np.nan if column == "n" else None
    table["metric"] = table["metric"].where(~is_missing(table["metric"]), "accuracy")
    return table


def _with_names(table: pd.DataFrame, where: str) -> pd.DataFrame:
    """Names as text; a run or a test set without a name cannot be told apart, so that is an error."""
    for column in NAMES:
        if column in table.columns:
            table[column] = as_names(table[column])
    for column in ("run", "test_set"):
        # Only what is truly absent is missing here: a test set may well be called 'null'.
        absent = table[column].isna()
        if absent.any():
            row = int(np.flatnonzero(absent)[0])
            raise DataError(f"{where} row {row + 1}: {column} is missing; expected a name")
    return table


def as_names(column: pd.Series, missing: str | None = None) -> pd.Series:
    """The values as text, `3.0` from a table that had gaps as `3`; each distinct value is converted once."""
    codes, values = pd.factorize(column)
    names = [_as_name(value, missing) for value in values]
    return pd.Series(np.array([*names, missing], dtype=object)[codes], index=column.index, dtype=object)


def _as_name(value: object, missing: str | None) -> str | None:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip() or missing


def _without_gaps(table: pd.DataFrame, caveats: list[str], where: str) -> pd.DataFrame:
    usable = np.isfinite(table["value"].to_numpy(float))
    if not usable.any():
        raise DataError(f"{where}: no row has a finite value; expected numbers such as 0.713")
    if not usable.all():
        caveats.append(f"{_count(int((~usable).sum()), 'row')} left out: no finite value")
    return table[pd.Series(usable, index=table.index)]


def _padded(names: pd.Series) -> dict[str, str]:
    """Names with blanks around them, by those without, where both are there."""
    known = {name for name in names.unique() if isinstance(name, str)}
    return {name.strip(): name for name in known if name != name.strip() and name.strip() in known}


def _without_duplicates(table: pd.DataFrame, caveats: list[str], where: str, padded: Mapping[str, str]) -> pd.DataFrame:
    repeated = table.duplicated(KEY, keep=False)
    if not repeated.any():
        return table
    twins = table[repeated]
    distinct = twins.groupby(KEY, sort=False, dropna=False)["value"].transform("nunique")
    if (distinct > 1).any():
        first = twins[distinct > 1].iloc[0]
        same = (twins[KEY] == first[KEY]).all(axis=1)
        rows = ", ".join(str(i + 1) for i in twins.index[same])
        name = first["test_set"]
        other = padded.get(name)
        blanks = f", or rename '{shown(other)}', which is '{shown(name)}' but for blanks" if other else ""
        raise DataError(
            f"{where} rows {rows}: run '{first['run']}', step {first['step']}, test set '{name}', "
            f"metric '{first['metric']}' has different values; keep one of them{blanks}"
        )
    kept: pd.DataFrame = table[~table.duplicated(KEY, keep="first")]
    caveats.append(f"{_count(len(table) - len(kept), 'repeated score')} dropped")
    return kept


def _count(number: int, what: str) -> str:
    return f"{number} {what} was" if number == 1 else f"{number} {what}s were"


def _with_roles(
    table: pd.DataFrame, in_domain: str | Sequence[str] | None, caveats: list[str], where: str
) -> pd.DataFrame:
    names = _as_list(in_domain)
    present = table["role"].notna()
    if names:
        return _with_override(table, names, bool(present.any()), caveats)
    table = table.copy()
    _refuse_roles(table["role"], where)
    table["role"] = _as_roles(table["role"])
    if not present.all():
        inferred = table["train_set"].notna() & (table["train_set"] == table["test_set"])
        table["role"] = table["role"].where(present, np.where(inferred, "in_domain", "ood"))
        _explain_inference(table, present, inferred, caveats)
    _refuse_mixed_roles(table, where)
    if not (table["role"] == "in_domain").any():
        raise DataError(
            f"{where}: no test set is in-domain; add a column 'role' (in_domain, ood) or name it with --in-domain; "
            f"test sets: {some(table['test_set'].unique())}"
        )
    return table


def refuse_unknown_home(in_domain: str | Sequence[str] | None, test_sets: pd.Series) -> None:
    """Refuse an in-domain set that is not among the test sets of a table."""
    known = test_sets.dropna().unique()
    for name in _as_list(in_domain):
        if name not in known:
            raise ConfigError(f"in-domain set '{shown(name)}' is not in the table; {nearest(name, known)}")


def _as_list(names: str | Sequence[str] | None) -> list[str]:
    return [names] if isinstance(names, str) else list(names or ())


def _with_override(table: pd.DataFrame, names: list[str], had_roles: bool, caveats: list[str]) -> pd.DataFrame:
    refuse_unknown_home(names, table["test_set"])
    role = np.where(table["test_set"].isin(names), "in_domain", "ood")
    if had_roles and (_as_roles(table["role"]).fillna("") != role).any():
        caveats.append(f"the roles in the table were replaced: in-domain is {', '.join(names)}")
    return table.assign(role=role)


def _as_roles(roles: pd.Series) -> pd.Series:
    return roles.map({role: _as_role(role) for role in roles.dropna().unique()})


def _as_role(role: str) -> str:
    plain = role.strip().lower().replace("-", "_").replace(" ", "_")
    return {"id": "in_domain", "indomain": "in_domain", "out_of_domain": "ood", "out_of_distribution": "ood"}.get(
        plain, plain
    )


def _refuse_roles(roles: pd.Series, where: str) -> None:
    for role in roles.dropna().unique():
        if _as_role(role) not in ROLES:
            raise DataError(f"{where}: role '{shown(role)}' is not known; {nearest(_as_role(role), ROLES)}")


def _refuse_chance(table: pd.DataFrame, where: str) -> None:
    """Chance is one number per test set, below 1 in-domain; samples of a set that differ over runs may differ in it."""
    if "chance" not in table.columns or not table["chance"].notna().any():
        return
    for keys in ["run", "test_set", "metric"], ["test_set", "metric"]:
        groups = table.groupby(keys, sort=False)
        told, sampled = groups["chance"], (8 / groups["n"].min()) ** 0.5  # four standard errors of a difference
        apart = told.max() - told.min() > (1e-9 if "run" in keys else np.fmax(SAMPLED, sampled))
        if apart.any():
            name = apart.index[int(np.argmax(apart.to_numpy()))]
            low, high = told.min()[name], told.max()[name]
            test_set = name[keys.index("test_set")]
            raise DataError(
                f"{where}: chance of test set '{shown(test_set)}' is {low:g} in one row and {high:g} in another; "
                "expected one score of guessing per test set"
            )
    sure = table["chance"].ge(1) & table["role"].eq("in_domain")
    if sure.any():
        raise DataError(
            f"{where}: chance of the in-domain set '{shown(table.loc[sure, 'test_set'].iloc[0])}' is 1; "
            "expected the score of guessing, below 1"
        )


def _explain_inference(table: pd.DataFrame, present: pd.Series, inferred: pd.Series, caveats: list[str]) -> None:
    sets = sorted(table.loc[~present & inferred, "test_set"].unique())
    if sets:
        caveats.append(f"no role given: in-domain is the set of the same name as the train set ({some(sets)})")
    elif present.any():
        caveats.append("some rows have no role: taken as ood")


def _refuse_mixed_roles(table: pd.DataFrame, where: str) -> None:
    counts = table.groupby(["run", "test_set"], sort=False)["role"].nunique()
    if (counts > 1).any():
        run, test_set = counts.index[int(np.argmax(counts.to_numpy() > 1))]
        raise DataError(f"{where}: test set '{test_set}' is both in_domain and ood in run '{run}'; give it one role")
