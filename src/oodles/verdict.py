"""One sentence per group that answers: do these generalisation results generalise?

It claims no more than the number of independent runs allows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from oodles.correlate import PartialCorrelations
from oodles.resample import DESCRIPTIVE

SIGNIFICANT = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The answer for one group."""

    group: Mapping[str, str]
    n_runs: int
    descriptive: bool  # too few runs for a test
    sentence: str


def verdicts(result: PartialCorrelations) -> tuple[Verdict, ...]:
    """Answer the question for every group of a result.

    The pooled correlations are summarised where they were asked for, otherwise the first way of pooling. Where the
    correlations within runs were asked for too, a second sentence gives them: the two can differ.

    Parameters
    ----------
    result : PartialCorrelations
        From `partial_correlations`.

    Returns
    -------
    tuple of Verdict
        In the order of the groups in the table.
    """
    by = [str(column) for column in _listed(result.settings.get("by"))]
    ways = list(dict.fromkeys(result.table["within"]))
    way = "pooled" if "pooled" in ways else ways[0]
    groups = result.table.groupby(by, sort=False) if by else [((), result.table)]
    return tuple(_verdict(dict(zip(by, map(str, names), strict=True)), pairs, way) for names, pairs in groups)


def _listed(by: object) -> list[object]:
    return list(by) if isinstance(by, list | tuple) else []


def _verdict(group: Mapping[str, str], found: pd.DataFrame, way: str) -> Verdict:
    pairs = found[found["within"] == way]
    inside = found[(found["within"] == "run") & np.isfinite(found["r"].to_numpy(float))]
    n_runs, n_units = int(pairs["n_runs"].max()), int(pairs["n_units"].max())
    descriptive = n_units < DESCRIPTIVE
    r = pairs["r"].to_numpy(float)
    known = np.isfinite(r)
    if not known.any():
        sentence = "No answer: no pair of test sets has enough variation left once in-domain performance is held fixed."
    elif descriptive:
        sentence = _described(r[known], n_runs, n_units)
    else:
        sentence = _tested(pairs[known], n_units, n_runs)
    if way == "pooled" and len(inside) and known.any():
        sentence += _within_runs(inside, descriptive)
    return Verdict(group=group, n_runs=n_runs, descriptive=descriptive, sentence=sentence)


def _within_runs(pairs: pd.DataFrame, descriptive: bool) -> str:
    """The same counts once each run's own level is taken out as well."""
    r = pairs["r"].to_numpy(float)
    clear = np.full(len(r), True) if descriptive else pairs["p_holm"].to_numpy(float) < SIGNIFICANT
    up, down = int((clear & (r > 0)).sum()), int((clear & (r < 0)).sum())
    rest = "" if descriptive else f" and {len(r) - up - down} cannot be told from no relation"
    return (
        f" That pools all runs; within runs, each run's own level taken out, {up} rise together"
        f"{' and' if descriptive else ','} {down} move apart{rest}."
    )


def _described(r: np.ndarray[tuple[int], np.dtype[np.float64]], n_runs: int, n_units: int) -> str:
    up, down, pairs = int((r > 0).sum()), int((r < 0).sum()), _pairs(len(r))
    units = _units(n_units, n_runs)
    return (
        f"Open: with {units}, {up} of {pairs} of test sets rise together and {down} move apart once in-domain "
        f"performance is held fixed, but such signs also differ by chance, so this describes these runs and "
        f"nothing was tested; {DESCRIPTIVE} or more independent runs would allow a test."
    )


def _tested(pairs: pd.DataFrame, n_units: int, n_runs: int) -> str:
    clear = pairs["p_holm"].to_numpy(float) < SIGNIFICANT
    r = pairs["r"].to_numpy(float)
    up, down = int((clear & (r > 0)).sum()), int((clear & (r < 0)).sum())
    open_ = len(pairs) - up - down
    counts = (
        f"with {_units(n_units, n_runs)} and once in-domain performance is held fixed, of {_pairs(len(pairs))} of test "
        f"sets {up} rise together, {down} move apart and {open_} cannot be told from no relation "
        f"(5 % level, adjusted for testing all pairs)"
    )
    return f"{_answer(up, down, open_)}: {counts}."


def _answer(up: int, down: int, open_: int) -> str:
    if not up and not down:
        return "No evidence either way"
    if up and down:
        return "It depends on the pair"
    if down:
        return "No, where it can be told" if open_ else "No"
    return "Yes, where it can be told" if open_ else "Yes"


def _pairs(count: int) -> str:
    return "1 pair" if count == 1 else f"{count} pairs"


def _units(n_units: int, n_runs: int) -> str:
    runs = "1 run" if n_runs == 1 else f"{n_runs} runs"
    return runs if n_units == n_runs else f"{runs} ({n_units} independent)"
