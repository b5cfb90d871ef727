"""What training changed: last step minus first step of every run, per test set, with the run as the unit.

Try it::

    changes(table)[["test_set", "role", "first", "last", "change", "low", "high"]]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from oodles.errors import ConfigError, nearest
from oodles.stats.copies import copied_runs, copies_caveat
from oodles.stats.grouping import chosen_groups
from oodles.stats.longtable import check_table
from oodles.stats.resample import DESCRIPTIVE, jackknife_se
from oodles.stats.residuals import Ints
from oodles.stats.series import BY, grouped, units_of_runs
from oodles.stats.splines import Array


def changes(
    table: pd.DataFrame,
    *,
    by: Sequence[str] = BY,
    unit: str = "run",
    metric: str = "accuracy",
    level: float = 0.95,
    in_domain: str | Sequence[str] | None = None,
) -> pd.DataFrame:
    """Mean over runs of the last score minus the first, per group and test set.

    Parameters
    ----------
    table : pandas.DataFrame
        A long table.
    by : sequence of str
        Columns that make a group.
    unit : str
        Column that says what is independent; runs are.
    metric : str
        Which metric.
    level : float
        Coverage of the interval.
    in_domain : str or sequence of str, optional
        In-domain test sets, for tables without roles.

    Returns
    -------
    pandas.DataFrame
        The group's columns, then `test_set, role, first_step, last_step, first, last, change, low, high, n_runs,
        n_units, n, caveats`. Steps are the medians over runs, `n` the smallest number of examples.

    Notes
    -----
    The interval leaves out one unit at a time, with `n_units - 1` degrees of freedom; where runs are the units that is
    Student's over runs. It is about the mean over further runs of the same kind, on this test set. Where all scores lie
    in 0..1 no change is beyond -1..1, and limits that are beyond are cut there.

    Examples
    --------
    >>> rows = [(f"r{r}", s, name, 0.5 + 0.1 * s + 0.01 * r * s) for r in range(3) for s in (0, 2) for name in "ab"]
    >>> table = pd.DataFrame(rows, columns=["run", "step", "test_set", "value"])
    >>> found = changes(table, in_domain="a")
    >>> found[["test_set", "role", "change", "low", "high"]].round(3).values.tolist()
    [['a', 'in_domain', 0.22, 0.17, 0.27], ['b', 'ood', 0.22, 0.17, 0.27]]
    """
    checked, _ = check_table(table, in_domain=in_domain)
    by, _ = chosen_groups(checked, by)
    known = checked["metric"].unique()
    if metric not in known:
        raise ConfigError(f"metric '{metric}' is not in the table; {nearest(metric, map(str, known))}")
    rows = checked[checked["metric"] == metric]
    unit_of = units_of_runs(rows, unit, "the table")
    found = [
        {**group, **_change(own, unit_of, level, said), **_told(own, str(test_set), str(role))}
        for group, members, said in _counted_once(rows, by)
        for (role, test_set), own in members.groupby(["role", "test_set"], sort=True)
    ]
    columns = ["test_set", "role", "first_step", "last_step", "first", "last", "change", "low", "high"]
    return pd.DataFrame(found)[[*by, *columns, "n_runs", "n_units", "n", "caveats"]]


def _counted_once(
    rows: pd.DataFrame, by: Sequence[str]
) -> Iterator[tuple[dict[str, str], pd.DataFrame, tuple[str, ...]]]:
    """The groups without runs that are copies of another run, and a caveat about these."""
    for group, members in grouped(rows, by):
        copies = copied_runs(members[members["role"] != "other"])
        yield group, members[~members["run"].isin(copies)], (copies_caveat(copies),) if copies else ()


def _told(rows: pd.DataFrame, test_set: str, role: str) -> dict[str, Any]:
    return {"test_set": test_set, "role": role, "n": float(rows["n"].min())}


def _change(rows: pd.DataFrame, unit_of: Mapping[str, str], level: float, told: Sequence[str]) -> dict[str, Any]:
    ordered = rows.sort_values(["run", "step"], kind="stable")
    first, last = ordered.drop_duplicates("run", keep="first"), ordered.drop_duplicates("run", keep="last")
    moved = (last["step"].to_numpy() > first["step"].to_numpy()).astype(bool)
    said = [*told]
    if not moved.any():
        said.append("every run has one step: no change over training")
    elif not moved.all():
        said.append(f"{int((~moved).sum())} of {len(moved)} runs have one step: left out")
    first, last = first[moved], last[moved]
    differences = last["value"].to_numpy(float) - first["value"].to_numpy(float)
    units = np.unique([unit_of[run] for run in first["run"]], return_inverse=True)[1]
    n_runs, n_units = len(differences), int(units.max(initial=-1)) + 1
    low, high = _limits(differences, units, level)
    share = bool(rows["value"].between(0, 1).all())
    said += _interval_caveats(low, high, n_units, "run" if n_units == n_runs else "independent unit", share)
    return {
        "first_step": _middle(first["step"]),
        "last_step": _middle(last["step"]),
        "first": _middle(first["value"], np.mean),
        "last": _middle(last["value"], np.mean),
        "change": float(differences.mean()) if n_runs else float("nan"),
        "low": max(low, -1.0) if share else low,
        "high": min(high, 1.0) if share else high,
        "n_runs": n_runs,
        "n_units": n_units,
        "caveats": said,
    }


def _interval_caveats(low: float, high: float, n_units: int, what: str, share: bool) -> list[str]:
    said = []
    if n_units == 1:
        said.append(f"one {what}: no interval")
    elif 0 < n_units < DESCRIPTIVE:
        said.append(f"{n_units} {what}s: the interval is approximate")
    if n_units > 1 and not np.isfinite(low):
        said.append(f"the {what}s are equal: no interval")
    if share and (low < -1 or high > 1):
        said.append(f"the {what}s differ so much that the interval is cut at the largest change possible")
    return said


def _middle(values: pd.Series, how: Any = np.median) -> float:
    return float(how(values.to_numpy(float))) if len(values) else float("nan")


def _limits(differences: Array, units: Ints, level: float) -> tuple[float, float]:
    """Leave out one unit at a time; with one run per unit this is Student's interval."""
    n_units = int(units.max(initial=-1)) + 1
    if n_units < 2:
        return float("nan"), float("nan")
    left_out = np.array([differences[units != unit].mean() for unit in range(n_units)])
    error = float(jackknife_se(left_out))
    if error <= 1e-12:
        return float("nan"), float("nan")
    reach = float(stats.t.ppf(0.5 + level / 2, n_units - 1)) * error
    middle = float(differences.mean())
    return middle - reach, middle + reach
