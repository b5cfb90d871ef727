"""What training changed: last step minus first step of every run, per test set, with the run as the unit.

Try it::

    changes(table)[["test_set", "role", "first", "last", "change", "low", "high"]]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from oodles.errors import ConfigError, nearest
from oodles.longtable import check_table
from oodles.resample import DESCRIPTIVE
from oodles.series import BY, grouped, settle_by


def changes(
    table: pd.DataFrame,
    *,
    by: Sequence[str] = BY,
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
    metric : str
        Which metric.
    level : float
        Coverage of the interval.
    in_domain : str or sequence of str, optional
        In-domain test sets, for tables without roles.

    Returns
    -------
    pandas.DataFrame
        The group's columns, then `test_set, role, first_step, last_step, first, last, change, low, high, n_runs, n,
        caveats`. Steps are the medians over runs, `n` the smallest number of examples.

    Notes
    -----
    The interval is Student's over runs with `n_runs - 1` degrees of freedom. It is about the mean over further runs of
    the same kind, on this test set.

    Examples
    --------
    >>> rows = [(f"r{r}", s, name, 0.5 + 0.1 * s + 0.01 * r * s) for r in range(3) for s in (0, 2) for name in "ab"]
    >>> table = pd.DataFrame(rows, columns=["run", "step", "test_set", "value"])
    >>> found = changes(table, in_domain="a")
    >>> found[["test_set", "role", "change", "low", "high"]].round(3).values.tolist()
    [['a', 'in_domain', 0.22, 0.17, 0.27], ['b', 'ood', 0.22, 0.17, 0.27]]
    """
    checked, _ = check_table(table, in_domain=in_domain)
    by, _ = settle_by(checked, by)
    known = checked["metric"].unique()
    if metric not in known:
        raise ConfigError(f"metric '{metric}' is not in the table; {nearest(metric, map(str, known))}")
    rows = checked[checked["metric"] == metric]
    found = [
        {**group, **_change(own, level), **_told(own, str(test_set), str(role))}
        for group, members in grouped(rows, by)
        for (role, test_set), own in members.groupby(["role", "test_set"], sort=True)
    ]
    columns = ["test_set", "role", "first_step", "last_step", "first", "last", "change", "low", "high", "n_runs", "n"]
    return pd.DataFrame(found)[[*by, *columns, "caveats"]]


def _told(rows: pd.DataFrame, test_set: str, role: str) -> dict[str, Any]:
    return {"test_set": test_set, "role": role, "n": float(rows["n"].min())}


def _change(rows: pd.DataFrame, level: float) -> dict[str, Any]:
    ordered = rows.sort_values(["run", "step"], kind="stable")
    first, last = ordered.drop_duplicates("run", keep="first"), ordered.drop_duplicates("run", keep="last")
    moved = (last["step"].to_numpy() > first["step"].to_numpy()).astype(bool)
    said = []
    if not moved.all():
        said.append(f"{int((~moved).sum())} of {len(moved)} runs have one step: left out")
    first, last = first[moved], last[moved]
    differences = last["value"].to_numpy(float) - first["value"].to_numpy(float)
    low, high = _limits(differences, level)
    n_runs = len(differences)
    if n_runs == 1:
        said.append("one run: no interval")
    elif 0 < n_runs < DESCRIPTIVE:
        said.append(f"{n_runs} runs: the interval is approximate")
    if n_runs > 1 and not np.isfinite(low):
        said.append("the runs are equal: no interval")
    return {
        "first_step": _middle(first["step"]),
        "last_step": _middle(last["step"]),
        "first": _middle(first["value"], np.mean),
        "last": _middle(last["value"], np.mean),
        "change": float(differences.mean()) if n_runs else float("nan"),
        "low": low,
        "high": high,
        "n_runs": n_runs,
        "caveats": said,
    }


def _middle(values: pd.Series, how: Any = np.median) -> float:
    return float(how(values.to_numpy(float))) if len(values) else float("nan")


def _limits(differences: np.ndarray[Any, np.dtype[np.float64]], level: float) -> tuple[float, float]:
    n_runs = len(differences)
    if n_runs < 2 or np.ptp(differences) <= 1e-12:
        return float("nan"), float("nan")
    reach = float(stats.t.ppf(0.5 + level / 2, n_runs - 1)) * float(differences.std(ddof=1)) / np.sqrt(n_runs)
    middle = float(differences.mean())
    return middle - reach, middle + reach
