"""Per-example records, aligned with the points of a group: which example was answered correctly, when.

An **item** is what was drawn independently: an example, or all examples that share a premise or a template. A
**stratum** is a part whose share of the set is fixed by design, such as a label in a balanced set. `Records` holds a
table of records in memory; a study's folder is read set by set (`oodles.api.records.StoredRecords`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import rankdata

from oodles.errors import DataError, shown, some
from oodles.stats.longtable import as_names
from oodles.stats.residuals import Ints
from oodles.stats.series import Series
from oodles.stats.splines import Array

COLUMNS = ("run", "step", "test_set", "example", "correct")
ITEM = ("item", "template")  # columns that may name the item of an example; the first one present is used
STRATUM = ("stratum", "label")
MEASURED = ("accuracy", "auc")  # metrics whose noise the records tell
SCORE = "score:"  # of an answer
NO_MARGIN = "records have no scores of two answers"
ROUNDED = 2e-3  # by which an AUC of rounded scores may differ from the table's


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Outcomes:
    """Outcomes of one test set at the points of a group: 0 or 1, or for AUC the placements of `placed`."""

    correct: NDArray[np.int8] | NDArray[np.float32]  # points x examples, -1 where a run did not see the example
    items: Ints  # of each example; its own number where examples are independent
    strata: Ints | None  # of each example; None where labels are not known
    shared: bool  # whether all runs saw the same examples

    @property
    def seen(self) -> Array:
        """How many examples are behind the score of each point."""
        return np.asarray((self.correct != -1).sum(axis=1), dtype=float)


class Examples(Protocol):
    """A source of per-example outcomes."""

    def outcomes(
        self, series: Series, name: str, values: Array, metric: str = "accuracy", /
    ) -> tuple[Outcomes | None, str]:
        """Outcomes of a test set at the points of a group, or why they cannot be used."""


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class _Coded:
    """The records of one test set; a place is a run at a step."""

    places: dict[tuple[str, float], int]
    place: NDArray[np.intp]  # of each row
    example: NDArray[np.intp]
    correct: NDArray[np.int8]
    margin: NDArray[np.float32] | None  # of the first answer over the second, where there are two
    item: NDArray[np.intp] | None
    stratum: NDArray[np.intp] | None

    def at(self, series: Series, values: Array, metric: str) -> tuple[Outcomes | None, str]:
        """Outcomes at the points of a group, or why they cannot be used."""
        point_of = np.full(len(self.places) + 1, -1)
        for point, (run, step) in enumerate(zip(series.runs, series.steps, strict=True)):
            point_of[self.places.get((series.run_names[run], float(step)), -1)] = point
        point_of[-1] = -1  # where a point has no records
        points = point_of[self.place]
        used = points >= 0
        present, column = np.unique(self.example[used], return_inverse=True)
        correct = np.full((len(series.runs), max(len(present), 1)), -1, dtype=np.int8)
        correct[points[used], column] = self.correct[used]
        items, strata = np.arange(correct.shape[1]), None
        if self.item is not None:
            items[column] = self.item[used]
            if (items[column] != self.item[used]).any():
                return None, "an example belongs to several items"
        if self.stratum is not None:
            strata = np.zeros(correct.shape[1], dtype=np.int64)
            strata[column] = self.stratum[used]
        if metric == "accuracy":
            return checked_outcomes(correct, items, strata, series.runs, values)
        if self.margin is None:
            return None, NO_MARGIN
        margin = np.zeros(correct.shape, dtype=np.float32)
        margin[points[used], column] = self.margin[used]
        return placed_outcomes(margin, correct, items, strata, series.runs, values)


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Records:
    """Per-example outcomes by test set, from one table."""

    sets: dict[str, _Coded]

    @classmethod
    def read(cls, records: pd.DataFrame) -> Records:
        """Check the columns, code the names and split by test set.

        >>> Records.read(pd.DataFrame({"run": ["a"], "step": [0]}))
        Traceback (most recent call last):
            ...
        oodles.errors.DataError: records: no column 'test_set'; required: run, step, test_set, example, correct
        """
        correct, steps = _checked(records)
        set_codes, set_names = pd.factorize(as_names(records["test_set"]))
        run_codes, run_names = pd.factorize(as_names(records["run"]))
        example, _ = pd.factorize(records["example"])
        item, stratum = _coded(records, ITEM), _coded(records, STRATUM)
        by_set = {}
        for code, name in enumerate(set_names):
            rows = np.flatnonzero(set_codes == code)
            keys = pd.MultiIndex.from_arrays([run_codes[rows], steps[rows]])
            place, places = pd.factorize(keys)
            _refuse_twins(records, rows, place.astype(np.int64) * (example.max() + 1) + example[rows])
            by_set[str(name)] = _Coded(
                places={(str(run_names[run]), float(step)): i for i, (run, step) in enumerate(places)},
                place=place,
                example=example[rows],
                correct=correct[rows],
                margin=_margin(records, rows),
                item=_complete(item, rows, "item"),
                stratum=_complete(stratum, rows, "stratum"),
            )
        return cls(sets=by_set)

    def about(self, runs: pd.Series) -> Records:
        """These records, if any of these runs is in them."""
        own = {run for coded in self.sets.values() for run, _ in coded.places}
        if own.isdisjoint(runs):
            listed = some(sorted(own), 3), some(sorted(set(runs)), 3)
            raise DataError(
                f"records: their runs ({listed[0]}) are not the table's ({listed[1]}); give runs the same names in both"
            )
        return self

    def outcomes(
        self, series: Series, name: str, values: Array, metric: str = "accuracy", /
    ) -> tuple[Outcomes | None, str]:
        """Align a set's records with the points of a group, or say why they cannot be used."""
        if name not in self.sets:
            return None, f"{name}: no records"
        outcomes, why = self.sets[name].at(series, values, metric)
        return outcomes, f"{name}: {why}" if why else ""


def checked_outcomes(
    correct: NDArray[np.int8], items: Ints, strata: Ints | None, runs: Ints, values: Array
) -> tuple[Outcomes | None, str]:
    """Outcomes that fit the scores of a group, or why these do not."""
    seen = correct >= 0
    why = _problem(seen, runs)
    if why:
        return None, why
    means = np.where(seen, correct, 0).sum(axis=1) / seen.sum(axis=1)
    if np.abs(means - values).max() > 1e-6:
        return None, "records do not give the table's accuracy"
    return Outcomes(correct=correct, items=items, strata=strata, shared=bool(seen.all())), ""


def placed_outcomes(
    margin: NDArray[np.float32], correct: NDArray[np.int8], items: Ints, strata: Ints | None, runs: Ints, values: Array
) -> tuple[Outcomes | None, str]:
    """The same for AUC: what each example adds to it, in place of right or wrong.

    References
    ----------
    DeLong, E. R., DeLong, D. M. and Clarke-Pearson, D. L. (1988). Comparing the areas under two or more correlated
    receiver operating characteristic curves: a nonparametric approach. Biometrics 44.
    """
    seen = correct >= 0
    why = _problem(seen, runs)
    if why:
        return None, why
    agree = (correct == (margin >= 0)) & seen  # the first answer wins ties
    first = agree.sum(axis=0) * 2 > seen.sum(axis=0)  # examples whose right answer is the first
    values_of = np.full(correct.shape, -1.0, dtype=np.float32)
    for point, here in enumerate(seen):
        placed = placements(margin[point, here], first[here])
        if placed is None:
            return None, "records have one label only: no AUC"
        values_of[point, here] = placed
        if abs(placed.mean() / 2 - values[point]) > ROUNDED:
            return None, "records do not give the table's AUC"
    parts = first.astype(np.int64) if strata is None else 2 * strata + first
    return Outcomes(correct=values_of, items=items, strata=parts, shared=bool(seen.all())), ""


def placements(margin: Array | NDArray[np.float32], positive: NDArray[np.bool_]) -> Array | None:
    """For each example the share of the other label that it is on the right side of, times n over its label's n.

    Their deviations from the mean of the label, summed and divided by n, are the error of AUC. None with one label.

    >>> placements(np.array([0.9, 0.2, 0.4, 0.1]), np.array([True, True, False, False])).tolist()
    [2.0, 1.0, 1.0, 2.0]
    """
    n_positive, n_negative = int(positive.sum()), int((~positive).sum())
    if not n_positive or not n_negative:
        return None
    below = rankdata(margin)  # less the rank among its own: examples of the other label below, ties half
    below[positive] -= rankdata(margin[positive])
    below[~positive] -= rankdata(margin[~positive])
    right = np.where(positive, below / n_negative, 1 - below / n_positive)
    return np.asarray(right * len(margin) / np.where(positive, n_positive, n_negative), dtype=float)


def _checked(records: pd.DataFrame) -> tuple[NDArray[np.int8], Array]:
    for column in COLUMNS:
        if column not in records.columns:
            raise DataError(f"records: no column '{column}'; required: {', '.join(COLUMNS)}")
    outcome = pd.to_numeric(records["correct"], errors="coerce").to_numpy(float)
    wrong = np.flatnonzero(~np.isin(outcome, (0.0, 1.0)))
    if len(wrong):
        found = records["correct"].iloc[int(wrong[0])]
        raise DataError(f"records row {int(wrong[0]) + 1}: correct is '{found}'; expected 0 or 1")
    nameless = np.flatnonzero(records["example"].isna())
    if len(nameless):
        raise DataError(f"records row {int(nameless[0]) + 1}: example is missing; expected its name or number")
    steps = pd.to_numeric(records["step"], errors="coerce").to_numpy(float)
    if np.isnan(steps).any():
        row = int(np.flatnonzero(np.isnan(steps))[0])
        raise DataError(f"records row {row + 1}: step is '{records['step'].iloc[row]}'; expected a number")
    return outcome.astype(np.int8), steps


def _refuse_twins(records: pd.DataFrame, rows: NDArray[np.intp], keys: Ints) -> None:
    """An example that is given twice would count as its last row says."""
    again = pd.Series(keys).duplicated()
    if again.any():
        last = int(np.argmax(again.to_numpy()))
        first = int(np.argmax(keys == keys[last]))
        run, step, name, example = (shown(records[c].iloc[int(rows[last])]) for c in COLUMNS[:4])
        raise DataError(
            f"records rows {int(rows[first]) + 1}, {int(rows[last]) + 1}: run '{run}', step {step}, test set '{name}', "
            f"example '{example}' is given twice; keep one of them"
        )


def _coded(records: pd.DataFrame, names: tuple[str, ...]) -> NDArray[np.intp] | None:
    """The first of these columns as codes, -1 where a value is missing."""
    present = [name for name in names if name in records.columns]
    return pd.factorize(records[present[0]])[0] if present else None


def _margin(records: pd.DataFrame, rows: NDArray[np.intp]) -> NDArray[np.float32] | None:
    """The first answer's score less the second's, where a set's records have two answers."""
    scores = [name for name in records.columns if str(name).startswith(SCORE)]
    known = [name for name in scores if records[name].iloc[rows].notna().all()]
    if len(known) != 2 or any(records[name].dtype.kind != "f" for name in known):
        return None
    first, second = (records[name].to_numpy(np.float32)[rows] for name in known)
    return np.asarray(first - second, dtype=np.float32)


def _complete(codes: NDArray[np.intp] | None, rows: NDArray[np.intp], what: str) -> NDArray[np.intp] | None:
    """The codes of a set's rows; None if the set has none. Some of them missing is an error."""
    if codes is None or (codes[rows] < 0).all():
        return None
    missing = rows[codes[rows] < 0]
    if len(missing):
        raise DataError(
            f"records row {int(missing[0]) + 1}: {what} is missing; give it for all examples of a set, or none"
        )
    return codes[rows]


def _problem(seen: NDArray[np.bool_], runs: Ints) -> str:
    """Why these records cannot tell the noise of these values; nothing where they can."""
    some = seen.any(axis=1)
    if not some.all():
        return f"records are missing at {int((~some).sum())} of {len(seen)} points"
    first = np.unique(runs, return_index=True)[1]
    if (seen != seen[first[runs]]).any():
        return "records hold different examples at different steps of a run"
    of_run = seen[first]
    if not of_run.all() and (of_run.sum(axis=0) > 1).any():
        return "runs saw partly the same examples, so that their noise is partly the same"
    return "records hold one example" if seen.sum(axis=1).min() < 2 else ""
