"""From the long table to aligned matrices: the scores of one group, run by run and step by step.

Try it::

    for series in group_series(table, by=("model", "train_set"), unit="run", metric="accuracy"):
        print(series.group, series.scores.shape)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from oodles.errors import ConfigError, DataError, listed, nearest, some
from oodles.stats.answers import several
from oodles.stats.copies import (
    CERTAIN,
    ROUNDING,
    apparent_examples,
    coincidence,
    copied_runs,
    copies_caveat,
    no_shares,
    resolution,
)
from oodles.stats.longtable import GUESSABLE, RIGHT, as_names
from oodles.stats.resample import DESCRIPTIVE
from oodles.stats.residuals import Ints
from oodles.stats.splines import Array

BY = ("model", "train_set")
OF_POINTS = ("step", "test_set", "value", "metric", "role", "n")  # columns that differ within a run
OF_SETS = ("chance", "slice_of", "slice", "template")  # columns about test sets
NO_NAME = "(none)"
NEARLY = 0.002  # of the metric's scale: scores of the same model on another device, in half precision


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Series:
    """The scores of one group; a point is one run at one step."""

    group: Mapping[str, str]
    test_sets: tuple[str, ...]  # the OOD sets, in the columns of `scores`
    in_domain: tuple[str, ...]  # in the columns of `covariates`
    run_names: tuple[str, ...]
    unit_names: tuple[str, ...]
    runs: Ints  # of each point, an index into run_names
    units: Ints  # of each point, an index into unit_names
    steps: NDArray[np.generic]
    covariates: Array  # points x in-domain sets, no gaps
    scores: Array  # points x OOD sets, nan where not scored
    covariate_sizes: Array  # examples behind each covariate, nan where not known
    sizes: Array  # examples behind each score
    scale: float = 1.0  # the largest score there is: 1, or 100 of percentages; nan where scores have no bounds
    caveats: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether every set was scored at every point."""
        return not bool(np.isnan(self.scores).any())

    def at(self, points: NDArray[np.bool_], sets: Sequence[int] | None = None) -> Series:
        """Only these points, and only these sets; runs and units are counted again."""
        columns = list(range(len(self.test_sets))) if sets is None else list(sets)
        rows = np.flatnonzero(points)[:, None]
        run_codes, runs = np.unique(self.runs[points], return_inverse=True)
        unit_codes, units = np.unique(self.units[points], return_inverse=True)
        return replace(
            self,
            test_sets=tuple(self.test_sets[c] for c in columns),
            run_names=tuple(self.run_names[c] for c in run_codes),
            unit_names=tuple(self.unit_names[c] for c in unit_codes),
            runs=runs.astype(np.int64),
            units=units.astype(np.int64),
            steps=self.steps[points],
            covariates=self.covariates[points],
            scores=self.scores[rows, columns],
            covariate_sizes=self.covariate_sizes[points],
            sizes=self.sizes[rows, columns],
        )


def shared_points(series: Series) -> NDArray[np.bool_]:
    """Points at which runs are still one and the same: the untrained model, scored once or once per run.

    Runs share a point if it is at the same step, every in-domain and OOD score that both have is equal, all points
    before it are shared too, and the run goes on apart from them. A run of one point, the untrained model as a run of
    its own, shares it if others do. Equal scores later on are a coincidence, and runs that are equal throughout are
    copies, which is another matter. At step 0 sets that are scored anew in each run (`scored_anew`) say nothing.

    Examples
    --------
    Two runs from one model, and a third from another:

    >>> z, y = np.array([0.4, 0.6, 0.4, 0.7, 0.3, 0.6]), np.array([0.5, 0.6, 0.5, 0.6, 0.5, 0.7])
    >>> runs = np.repeat([0, 1, 2], 2)
    >>> one = Series(
    ...     group={}, test_sets=("hans",), in_domain=("mnli",), run_names=("a", "b", "c"), unit_names=("a", "b", "c"),
    ...     runs=runs, units=runs, steps=np.tile([0, 9], 3), covariates=z[:, None], scores=y[:, None],
    ...     covariate_sizes=np.full((6, 1), 100.0), sizes=np.full((6, 1), 100.0),
    ... )
    >>> shared_points(one).tolist()
    [True, False, True, False, False, False]
    """
    series = _without(series, scored_anew(series))
    found, alike = np.zeros(len(series.runs), dtype=bool), np.zeros(len(series.runs), dtype=bool)
    order = np.lexsort((series.steps, series.runs))
    bounds = np.searchsorted(series.runs[order], np.arange(len(series.run_names) + 1))
    paths = {run: order[bounds[run] : bounds[run + 1]] for run in range(len(series.run_names))}
    active, at = np.array([run for run, path in paths.items() if len(path) > 1], dtype=np.int64), 0
    together, judge = np.ones(len(series.run_names), dtype=bool), _Agreement.of(series)
    while len(active):
        points = np.array([paths[run][at] for run in active])
        equal = _equal_to_another(series, points)
        alike[points[equal]] = True
        for step in np.unique(series.steps[points[equal]]):
            here = series.steps[points] == step
            if float(step) != 0 and not judge.tells(points[here], [paths[run][at : at + 2] for run in active[here]]):
                together[active[here]] = False
        together[active] &= equal
        found[points[together[active]]] = True
        at += 1
        active = np.array([run for run in active[equal] if len(paths[run]) > at], dtype=np.int64)
    copies = [run for run, path in paths.items() if alike[path].all()]
    found &= ~np.isin(series.runs, copies)
    shared = np.flatnonzero(found)
    for path in paths.values():
        if len(shared) and len(path) == 1:
            found[path] = _equal_to_another(series, np.append(shared, path))[-1]
    return found


def scored_anew(series: Series) -> NDArray[np.bool_]:
    """OOD sets that differ at a step 0 which runs share by all else: their answers are sampled, say.

    The in-domain score, and more OOD sets than differ, at least two, must agree, too finely for chance.
    """
    found = np.zeros(len(series.test_sets), dtype=bool)
    first = _before_training(series)
    rounded = series.covariates[first].round(ROUNDING)
    for start in np.unique(rounded[~np.isnan(rounded).any(axis=1)], axis=0):
        rows = series.scores[first[(rounded == start).all(axis=1)]].round(ROUNDING)
        known = ~np.isnan(rows)
        spread = np.where(known, rows, -np.inf).max(axis=0) - np.where(known, rows, np.inf).min(axis=0)
        equal, differ = ((known.sum(axis=0) > 1) & one for one in (spread == 0, spread > 0))
        if differ.any() and equal.sum() >= max(2, differ.sum() + 1):
            found |= differ
    if found.any():
        begin = np.concatenate([np.flatnonzero(series.runs == run)[:2] for run in np.unique(series.runs[first])])
        if not _Agreement.of(_without(series, found)).tells(first, [begin]):
            found[:] = False
    return found


def _before_training(series: Series) -> Ints:
    """The points at step 0 of runs that have others."""
    first = np.unique(series.runs, return_index=True)[1]
    return np.asarray(first[(series.steps[first] == 0) & (np.bincount(series.runs) > 1)], dtype=np.int64)


def _without(series: Series, sets: NDArray[np.bool_]) -> Series:
    """As if these sets had no score at step 0."""
    if not sets.any():
        return series
    unknown = (series.steps == 0)[:, None] & sets
    return replace(series, scores=np.where(unknown, np.nan, series.scores))


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class _Agreement:
    """Whether runs that agree on all sets can have trained apart."""

    values: Array  # points x in-domain and OOD sets
    resolutions: Array  # of each set
    needed: float  # power of ten by which chance must fall short

    @classmethod
    def of(cls, series: Series) -> _Agreement:
        scale = series.scale if np.isfinite(series.scale) else 1.0
        values = (np.column_stack([series.covariates, series.scores]) / scale).round(ROUNDING)
        sizes = np.column_stack([series.covariate_sizes, series.sizes])
        known = ~np.isnan(values)
        finest = [resolution(v[k], n[k]) for v, n, k in zip(values.T, sizes.T, known.T, strict=True)]
        pairs = len(series.run_names) * (len(series.run_names) - 1) / 2
        return cls(values=values, resolutions=np.array(finest), needed=CERTAIN + np.log10(max(pairs, 1)))

    def tells(self, points: Ints, near: Sequence[Ints]) -> bool:
        """Whether scores differ so finely that runs which trained apart hardly agree on all sets at these points.

        How much they differ is seen at these points themselves. If all agree there, it is seen with the next ones: most
        models that have just begun to train give one answer throughout, and agree by chance where later ones would not.
        """
        rows = self.values[points]
        if not any(np.unique(column[~np.isnan(column)]).size > 1 for column in rows.T):
            rows = self.values[np.concatenate(near)]
        return bool(coincidence(rows, self.resolutions) >= self.needed)


def shared_runs(series: Series, shared: NDArray[np.bool_]) -> list[int]:
    """How many runs begin with each shared start, the largest number first."""
    first = np.unique(series.runs, return_index=True)[1]
    scores = _without(series, scored_anew(series)).scores
    values = np.column_stack([series.steps.astype(float), series.covariates, scores]).round(ROUNDING)
    starts: list[list[int]] = []
    for point in first[shared[first]]:
        alike = (one for one in starts if not (np.abs(values[one[0]] - values[point]) > 0).any())
        held = next(alike, None)
        starts.append([point]) if held is None else held.append(point)
    return sorted(map(len, starts), reverse=True)


def same_sets(series: Series) -> list[list[str]]:
    """OOD sets that have the same scores at all points, and not the same score everywhere."""
    same: dict[bytes, list[str]] = {}
    for name, scores in zip(series.test_sets, series.scores.T.round(ROUNDING) + 0.0, strict=True):
        if np.unique(scores[~np.isnan(scores)]).size > 1:
            same.setdefault(scores.tobytes(), []).append(name)
    return [names for names in same.values() if len(names) > 1]


def nearly_shared(series: Series, shared: NDArray[np.bool_]) -> int:
    """Runs whose scores before training are within `NEARLY` of another run's, all of them, and not the same.

    `NEARLY` is a share of the metric's scale, or of each set's range where the metric has no bounds. The untrained
    model that is scored again for every run, on another device or in half precision, differs by a few examples. Whether
    it is the same model the scores cannot tell, so such points are counted and not left out.
    """
    first = _before_training(series)
    values = np.column_stack([series.covariates, series.scores])
    known = ~np.isnan(values).all(axis=0)
    reach = np.nanmax(values[:, known], axis=0) - np.nanmin(values[:, known], axis=0)
    reach = NEARLY * (series.scale if np.isfinite(series.scale) else reach)
    values, found = values[first][:, known], 0
    for place in np.flatnonzero(~shared[first]):
        apart = np.abs(values - values[place])
        alike = ~(apart > reach).any(axis=1) & np.isfinite(apart[:, series.covariates.shape[1] :]).any(axis=1)
        found += alike.sum() > 1
    return int(found)


def _equal_to_another(series: Series, points: Ints) -> NDArray[np.bool_]:
    """Which of these points has all its scores in common with another of them; a missing score says nothing."""
    found = np.zeros(len(points), dtype=bool)
    # equal but for rounding: a score that was divided, averaged or written by another program
    covariates, scores = series.covariates.round(ROUNDING), series.scores.round(ROUNDING)
    places: dict[tuple[object, bytes], list[int]] = {}
    for place, point in enumerate(points):
        places.setdefault((series.steps[point].item(), covariates[point].tobytes()), []).append(place)
    for block in places.values():
        rows = scores[points[block]]
        known = ~np.isnan(rows)
        for place, row, has in zip(block, rows, known, strict=True):
            both = known & has
            same = both.any(axis=1) & ~(both & (rows != row)).any(axis=1)
            found[place] = same.sum() > 1  # with itself, and with another
    return found


def settle_by(table: pd.DataFrame, by: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The columns to group by, and a caveat where a default one is not in the table."""
    by = (by,) if isinstance(by, str) else tuple(by)
    for column in by:
        if column not in table.columns:
            raise ConfigError(f"--by {column}: no such column; {nearest(column, of_runs(table))}")
        if column in OF_POINTS:
            raise ConfigError(f"--by {column}: groups are made of whole runs; use a column such as model or train_set")
    absent = [column for column in by if column in BY and table[column].isna().all()]
    if by == BY and "model" not in absent and _models_alone(table):
        kept = tuple(c for c in by if c not in (*absent, "model"))
        by_what = f" (by {', '.join(kept)})" if kept else ""
        return kept, (f"one checkpoint per model: models are grouped together{by_what}",)
    if absent and by == BY:
        kept = tuple(c for c in by if c not in absent)
        groups = f"grouped by {', '.join(kept)}" if kept else "all runs in one group"
        said = f"no {' and no '.join(absent)} in the table: {groups}"
        return kept, (said, *_lonely(table, kept))
    return by, _lonely(table, by)


def _lonely(table: pd.DataFrame, by: Sequence[str]) -> tuple[str, ...]:
    """A caveat where every group has one run, of which nothing can be tested."""
    runs = table.groupby(list(by), dropna=False)["run"].nunique() if by else pd.Series(dtype=int)
    if len(runs) < 2 or runs.max() > 1:
        return ()
    return (f"every group has one run (by {', '.join(by)}): --by none takes all runs together",)


def _models_alone(table: pd.DataFrame) -> bool:
    """Whether runs have one checkpoint each and models too few runs to be groups."""
    per_model = table.groupby("model")["run"].nunique()
    return bool(one_step(table) and len(per_model) > 1 and per_model.max() < DESCRIPTIVE)


def one_step(table: pd.DataFrame) -> bool:
    """Whether every run has one checkpoint."""
    return bool((table.groupby("run")["step"].nunique() == 1).all())


def natural_unit(rows: pd.DataFrame) -> tuple[str, tuple[str, ...]]:
    """The run; or the model, where a group has several models with several runs, which have much in common."""
    runs = rows[["run", "model"]].drop_duplicates() if "model" in rows.columns else None
    if runs is None or runs["model"].isna().any() or runs["run"].duplicated().any():
        return "run", ()
    n_models = runs["model"].nunique()
    if not 1 < n_models < len(runs):
        return "run", ()
    return "model", (
        f"{len(runs)} runs of {n_models} models: the model is the unit (--unit run takes all runs as independent)",
    )


def of_runs(table: pd.DataFrame) -> list[str]:
    """Columns of a checked table that say something of its runs."""
    return [str(c) for c in table.columns if c not in (*OF_POINTS, *OF_SETS) and table[c].notna().any()]


def group_series(table: pd.DataFrame, *, by: Sequence[str], unit: str | None, metric: str) -> Iterator[Series]:
    """The groups of a checked table, one after the other.

    Parameters
    ----------
    table : pandas.DataFrame
        As `check_table` returns it.
    by : sequence of str
        Columns whose values make a group; none for one group of everything.
    unit : str, optional
        Column whose values name the independent units; every run belongs to one. Where not given: the run, or the model
        of groups in which several models have several runs.
    metric : str
        Which metric's values to take.
    """
    known = table["metric"].unique()
    if metric not in known:
        raise ConfigError(f"metric '{metric}' is not in the table; {nearest(metric, map(str, known))}")
    rows = table[(table["metric"] == metric) & (table["role"] != "other")]
    scale = scale_of(rows["value"].to_numpy(float), metric)
    for names, group in grouped(rows, by):
        copies = copied_runs(group)
        left = group[~group["run"].isin(copies)]
        own, said = (unit, ()) if unit is not None else natural_unit(left)
        said = (*said, *([copies_caveat(copies)] if copies else []))
        series = replace(_make_series(left, names, own), scale=scale)
        odd = _odd_sizes(series) if metric == "accuracy" else ()
        yield replace(series, caveats=(*series.caveats, *odd, *said))


def _odd_sizes(series: Series) -> tuple[str, ...]:
    """Names the sets whose scores are no shares of n examples, or of fewer. OOD sets keep their n, as a rough bound."""
    columns = [
        (name, values[:, k] / _own_scale(values[:, k], series.scale), sizes[:, k])
        for names, values, sizes in (
            (series.in_domain, series.covariates, series.covariate_sizes),
            (series.test_sets, series.scores, series.sizes),
        )
        for k, name in enumerate(names)
    ]
    odd = [f"{some([name])} ({_sizes(sizes)})" for name, values, sizes in columns if no_shares(values, sizes)]
    known = [(name, values, sizes) for name, values, sizes in columns[len(series.in_domain) :] if (sizes > 0).any()]
    fewer = [(name, sizes, apparent_examples(values, sizes)) for name, values, sizes in known]
    large = [f"{some([name])} ({_sizes(sizes)}, not {examples})" for name, sizes, examples in fewer if examples]
    said = {
        "scores are no multiples of 1/n, so n is wrong or they are no means of right and wrong; what is said of their "
        "noise is rough": odd,
        "scores are plainly shares of fewer examples, so n is too large, and too little is said of their noise": large,
    }
    return tuple(f"{several(names)}: {text}" for text, names in said.items() if names)


def _sizes(sizes: Array) -> str:
    low, high = np.nanmin(sizes), np.nanmax(sizes)
    return f"n = {low:.0f}" if low == high else f"n = {low:.0f} to {high:.0f}"


def _own_scale(values: Array, shared: float) -> float:
    """Of one set's accuracies, which others need not have: shares beside per cent."""
    own = scale_of(values[np.isfinite(values)], "accuracy")
    return own if np.isfinite(own) else shared


def scale_of(values: Array, metric: str) -> float:
    """The largest score there is, as far as the scores show it.

    >>> scale_of(np.array([0.5, 0.7]), "f1"), scale_of(np.array([50.0, 70.0]), "accuracy")
    (1.0, 100.0)
    >>> scale_of(np.array([5.0]), "loss"), scale_of(np.array([0.5, 0.7, 7.0]), "accuracy")  # a slip, no percentages
    (nan, nan)
    """
    low, high = values.min(initial=0.0), values.max(initial=0.0)
    if low >= 0 and high <= 1:
        return 1.0
    percent = metric in (*GUESSABLE, *RIGHT) and low >= 0 and 20 < high <= 100 and np.median(values) > 1
    return 100.0 if percent else float("nan")


def grouped(table: pd.DataFrame, by: Sequence[str]) -> Iterator[tuple[dict[str, str], pd.DataFrame]]:
    """Groups with their names as text; a missing value is a name of its own."""
    if not by:
        yield {}, table
        return
    keys = [as_names(table[column], NO_NAME) for column in by]
    for values, rows in table.groupby(keys, sort=True):
        yield dict(zip(by, map(str, values), strict=True)), rows


def _refuse_namesakes(rows: pd.DataFrame, where: str) -> None:
    """Two runs of one name would be taken for one."""
    columns = [column for column in ("model", "train_set", "shots", "seed") if column in rows]
    known = rows[["run", *columns]].drop_duplicates()
    for column in columns:
        pairs = known[["run", column]].dropna().drop_duplicates()
        twice = pairs[pairs["run"].duplicated(keep=False)]
        if len(twice):
            run = twice["run"].iloc[0]
            values = listed(sorted(map(str, twice.loc[twice["run"] == run, column]))[:3])
            raise DataError(
                f"{where}: run '{run}' has several values of {column} ({values}); are these runs of one name? give each"
                " run a name of its own"
            )


def _make_series(rows: pd.DataFrame, group: dict[str, str], unit: str) -> Series:
    where = ", ".join(f"{k} {v}" for k, v in group.items()) or "the table"
    inside = (rows["role"] == "in_domain").to_numpy()
    if not inside.any():
        raise DataError(f"{where}: no in-domain rows; every group needs the in-domain score that is regressed out")
    _refuse_namesakes(rows, where)
    points = np.asarray(rows.groupby(["run", "step"], sort=True).ngroup(), dtype=np.int64)
    keys = rows[["run", "step"]].drop_duplicates().sort_values(["run", "step"])
    names, columns = _covariate_columns(rows[inside], where)
    covariates, covariate_sizes = _spread(rows[inside], points[inside], columns, len(keys), len(names))
    test_sets, codes = np.unique(rows.loc[~inside, "test_set"].to_numpy(str), return_inverse=True)
    scores, sizes = _spread(rows[~inside], points[~inside], codes.astype(np.int64), len(keys), len(test_sets))
    run_names, runs = np.unique(keys["run"].to_numpy(str), return_inverse=True)
    units, unit_names = _units(rows, unit, run_names, where)
    series = Series(
        group=group,
        test_sets=tuple(map(str, test_sets)),
        in_domain=names,
        run_names=tuple(map(str, run_names)),
        unit_names=unit_names,
        runs=runs.astype(np.int64),
        units=units[runs],
        steps=keys["step"].to_numpy(),
        covariates=covariates,
        scores=scores,
        covariate_sizes=covariate_sizes,
        sizes=sizes,
    )
    return _without_gaps(series, where)


def _covariate_columns(inside: pd.DataFrame, where: str) -> tuple[tuple[str, ...], Ints]:
    """Which covariate each in-domain row feeds: its own set's, or, where runs differ in their set, the only one."""
    pairs = inside[["run", "test_set"]].drop_duplicates().sort_values(["run", "test_set"])
    combinations = sorted({tuple(map(str, own["test_set"])) for _, own in pairs.groupby("run")})
    if len(combinations) == 1:
        names = combinations[0]
        place = {name: i for i, name in enumerate(names)}
        return names, np.array([place[name] for name in inside["test_set"]], dtype=np.int64)
    if {len(c) for c in combinations} == {1}:
        return ("/".join(c[0] for c in combinations),), np.zeros(len(inside), dtype=np.int64)
    listed = "; ".join(", ".join(c) for c in combinations[:3])
    raise DataError(f"{where}: runs differ in how many in-domain sets they have ({listed}); group by train_set as well")


def _spread(rows: pd.DataFrame, points: Ints, columns: Ints, n_points: int, n_columns: int) -> tuple[Array, Array]:
    values = np.full((n_points, n_columns), np.nan)
    sizes = np.full((n_points, n_columns), np.nan)
    values[points, columns] = rows["value"].to_numpy(float)
    sizes[points, columns] = rows["n"].to_numpy(float)
    return values, sizes


def _units(rows: pd.DataFrame, unit: str, run_names: NDArray[np.str_], where: str) -> tuple[Ints, tuple[str, ...]]:
    of_run = units_of_runs(rows, unit, where)
    if unit == "run":
        return np.arange(len(run_names)), tuple(map(str, run_names))
    names, codes = np.unique([of_run[str(run)] for run in run_names], return_inverse=True)
    return codes.astype(np.int64), tuple(map(str, names))


def units_of_runs(rows: pd.DataFrame, unit: str, where: str) -> dict[str, str]:
    """The independent unit of every run."""
    if unit not in rows.columns:
        raise ConfigError(f"--unit {unit}: no such column; {nearest(unit, of_runs(rows))}")
    if unit in OF_POINTS:
        raise ConfigError(f"--unit {unit}: units are made of whole runs; use a column such as run or model")
    if unit == "run":
        return {str(run): str(run) for run in rows["run"].unique()}
    pairs = rows[["run", unit]].drop_duplicates()
    if pairs[unit].isna().any():
        raise DataError(
            f"{where}: run '{pairs.loc[pairs[unit].isna(), 'run'].iloc[0]}' has no {unit}; --unit needs one"
        )
    if pairs["run"].duplicated().any():
        raise DataError(
            f"{where}: run '{pairs.loc[pairs['run'].duplicated(), 'run'].iloc[0]}' has several values of {unit}"
        )
    return {str(run): str(name) for run, name in zip(pairs["run"], as_names(pairs[unit]), strict=True)}


def _without_gaps(series: Series, where: str) -> Series:
    """A point without its in-domain score cannot be used."""
    usable = np.asarray(~np.isnan(series.covariates).any(axis=1), dtype=bool)
    if usable.all():
        return series
    if not usable.any():
        raise DataError(f"{where}: no step has both an in-domain score and an OOD score; score them at the same steps")
    lost = int((~usable).sum())
    said = f"in-domain score missing at {lost} of {len(usable)} points: those were left out"
    return replace(series.at(usable), caveats=(*series.caveats, said))
