"""One sentence per group that answers: do these generalisation results generalise?

It claims no more than the number of independent runs allows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from oodles.stats.cautions import hardly_differ
from oodles.stats.correlate import PartialCorrelations
from oodles.stats.resample import DESCRIPTIVE

SIGNIFICANT = 0.05
ALIKE = 0.1  # a median difference of raw and partial correlations up to this is none to speak of


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
    known = pairs[np.isfinite(pairs["r"].to_numpy(float))]
    if not len(known):
        left = "enough points, or enough variation left, once in-domain performance is held fixed"
        sentence = f"No answer: no pair of test sets has {left}."
    elif descriptive:
        sentence = _described(known)
    else:
        sentence = _tested(known)
    if way == "pooled" and len(inside) and len(known) and n_runs > 1:  # of one run it is the same number
        sentence += _within_runs(inside, known, descriptive)
    return Verdict(group=group, n_runs=n_runs, descriptive=descriptive, sentence=sentence)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Counts:
    """How many pairs rise together, move apart, cannot be told from no relation, and were never tested."""

    up: int
    down: int
    open_: int
    untested: int

    @classmethod
    def of(cls, pairs: pd.DataFrame) -> _Counts:
        r, p_val = pairs["r"].to_numpy(float), pairs["p_holm"].to_numpy(float)
        clear, tested = p_val < SIGNIFICANT, np.isfinite(p_val)
        up, down = int((clear & (r > 0)).sum()), int((clear & (r < 0)).sum())
        return cls(up=up, down=down, open_=int(tested.sum()) - up - down, untested=int((~tested).sum()))

    @property
    def tested(self) -> int:
        return self.up + self.down + self.open_

    def told(self) -> str:
        counts = f"{self.up} rise together, {self.down} move apart and {self.open_} cannot be told from no relation"
        return counts if self.tested else "none could be tested"

    def rest(self) -> str:
        if not self.untested or not self.tested:
            return ""
        return f"; {_pairs(self.untested)} could not be tested, as the caveats say"


def _within_runs(pairs: pd.DataFrame, pooled: pd.DataFrame, descriptive: bool) -> str:
    """The same counts once each run's own level is taken out as well."""
    of_runs = "" if _units(pairs) == _units(pooled) else f" ({_units(pairs)})"
    fixed = " and with hardly anything to hold fixed" if _is_flat(pairs) else ""
    before = f" That pools all runs; within runs{of_runs}, each run's own level taken out{fixed},"
    after = "" if _is_flat(pooled) else _flat(pairs, "within runs")
    if descriptive:
        r = pairs["r"].to_numpy(float)
        return f"{before} {int((r > 0).sum())} rise together and {int((r < 0).sum())} move apart.{after}"
    counts = _Counts.of(pairs)
    return f"{before} {counts.told()}{counts.rest()}.{after}"


def _described(pairs: pd.DataFrame) -> str:
    r = pairs["r"].to_numpy(float)
    up, down = int((r > 0).sum()), int((r < 0).sum())
    return (
        f"Open: with {_units(pairs)}, {up} of {_pairs(len(r))} of test sets rise together and {down} move apart "
        f"{_given(pairs)}, but such signs also differ by chance, so this describes these runs and "
        f"nothing was tested; {DESCRIPTIVE} or more independent runs would allow a test.{_flat(pairs)}"
    )


def _tested(pairs: pd.DataFrame) -> str:
    counts = _Counts.of(pairs)
    level = "(5 % level, adjusted for testing all pairs)"
    return (
        f"{_answer(counts)}: with {_units(pairs)} and {_given(pairs)}, of {_pairs(len(pairs))} of test sets "
        f"{counts.told()}{f' {level}' if counts.tested else ', as the caveats say'}{counts.rest()}.{_flat(pairs)}"
    )


def _given(pairs: pd.DataFrame) -> str:
    """What was held fixed, if anything."""
    return "with hardly anything to hold fixed" if _is_flat(pairs) else "once in-domain performance is held fixed"


def _is_flat(pairs: pd.DataFrame) -> bool:
    return all(hardly_differ(said) for said in pairs["caveats"])


def _flat(pairs: pd.DataFrame, where: str = "here") -> str:
    """Where in-domain scores hardly differ, what that does to the correlations."""
    if not _is_flat(pairs):
        return ""
    moved = np.abs(pairs["r"].to_numpy(float) - pairs["r_raw"].to_numpy(float))
    middle, most = float(np.nanmedian(moved)), float(np.nanmax(moved))
    so = " and explains next to nothing" if most <= ALIKE else ""
    return (
        f" In-domain performance hardly differs {where}{so}: raw and partial r differ by {middle:.2f} in the median"
        f" and by {most:.2f} at most."
    )


def _answer(counts: _Counts) -> str:
    if not counts.tested:
        return "No answer"
    if not counts.up and not counts.down:
        return "No evidence either way"
    if counts.up and counts.down:
        return "It depends on the pair"
    answer = "No" if counts.down else "Yes"
    return f"{answer}, where it can be told" if counts.open_ or counts.untested else answer


def _pairs(count: int) -> str:
    return "1 pair" if count == 1 else f"{count} pairs"


def _units(pairs: pd.DataFrame) -> str:
    """How many runs the pairs rest on, as a range where pairs differ."""
    runs, units = (_span(pairs[column]) for column in ("n_runs", "n_units"))
    one_each = bool((pairs["n_steps"] == pairs["n_runs"]).all()) and runs != "1"
    told = "1 run" if runs == "1" else f"{runs} models, one checkpoint each," if one_each else f"{runs} runs"
    return told if units == runs else f"{told.removesuffix(',')} ({units} independent){',' * one_each}"


def _span(counts: pd.Series) -> str:
    low, high = int(counts.min()), int(counts.max())
    return f"{low}" if low == high else f"{low} to {high}"
