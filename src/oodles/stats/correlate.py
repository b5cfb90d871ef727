"""Partial correlations between OOD test sets: the study's number, with an interval that holds and what to beware of.

Try it::

    result = partial_correlations(table, records, by=("model", "train_set"))
    result.table[["a", "b", "within", "r", "low", "high", "p_holm", "caveats"]]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from numbers import Integral
from typing import Any

import numpy as np
import pandas as pd

from oodles.display import Displayed
from oodles.errors import ConfigError, DataError, listed, nearest, shown, some
from oodles.stats import cautions
from oodles.stats.doubts import say_clear
from oodles.stats.estimates import FEWEST, Estimator, light_curve, one_checkpoint, usable_points
from oodles.stats.grouping import chosen_groups
from oodles.stats.longtable import check_table, name_of
from oodles.stats.outcomes import Examples, Records
from oodles.stats.pairs import (
    FIT_COLUMNS,
    PAIR_COLUMNS,
    adjust,
    empty_pair,
    fit_rows,
    mark_disagreement,
    pair_rows,
    shares_examples,
)
from oodles.stats.resample import INTERVALS
from oodles.stats.residuals import METHODS, WITHIN, Smoothing
from oodles.stats.robustness import robustness
from oodles.stats.series import (
    BY,
    Series,
    group_series,
    nearly_shared,
    one_step,
    same_sets,
    scored_anew,
    shared_points,
    shared_runs,
)
from oodles.stats.splines import SMOOTHING
from oodles.stats.tested import GroupTask
from oodles.stats.threads import one_thread

CORRELATIONS = ("pearson", "spearman")
POOLED = ("pooled", "run")
SHARED_START = ("drop", "keep")
UNTESTED_GROUPS = "differences between groups are not tested"
FEW_MODELS = 40  # with one checkpoint each: below this the jackknife loses power, and t is tested
NEEDS_TWO = "a correlation needs two"  # test sets, beside the in-domain one
SEVERAL = 4  # different starts of which each is counted
FOR = {  # which interval belongs to which way of pooling; the first is its default
    "pooled": ("jackknife", "t", "bootstrap", "bootstrap-percentile", "naive"),
    "run": ("jackknife", "bootstrap", "bootstrap-percentile", "naive"),
    "separate": ("run-mean", "naive"),
}


@dataclass(frozen=True, eq=False, kw_only=True, slots=True, repr=False)
class PartialCorrelations(Displayed):
    """The result of `partial_correlations`; every table is tidy and carries its caveats."""

    table: pd.DataFrame  # one row per group, way of pooling and pair of test sets
    fits: pd.DataFrame  # one row per group, way of pooling and test set
    residuals: pd.DataFrame  # effective robustness: one row per group, way of pooling, run, step and test set
    settings: Mapping[str, object]
    caveats: tuple[str, ...] = ()  # about the whole input


@dataclass(slots=True)
class _Rows:
    """What the groups have added so far."""

    pairs: list[dict[str, Any]] = field(default_factory=list)
    fits: list[dict[str, Any]] = field(default_factory=list)
    residuals: list[pd.DataFrame] = field(default_factory=list)


@one_thread
def partial_correlations(
    table: pd.DataFrame,
    records: pd.DataFrame | Examples | None = None,
    *,
    by: Sequence[str] = BY,
    unit: str | None = None,
    metric: str = "accuracy",
    in_domain: str | Sequence[str] | None = None,
    method: str = "gam",
    within: str | Sequence[str] = POOLED,
    interval: str | None = None,
    correlation: str = "pearson",
    level: float = 0.95,
    smoothing: Smoothing = SMOOTHING,
    n_resamples: int = 2000,
    seed: int = 0,
    chance: float | None = None,
    shared_start: str = "drop",
    shared_examples: bool = False,
    exact: bool = False,
) -> PartialCorrelations:
    """Correlate every pair of OOD test sets once the in-domain score is regressed out.

    Parameters
    ----------
    table
        A long table: `run`, `step`, `test_set`, `value` and, where known, `model`, `train_set`, `role`, `n`, ...
    records
        Per example: `run`, `step`, `test_set`, `example`, `correct` and, for templated sets, `template`. With them the
        noise of finite test sets is measured and corrected; without them a range is given. Records too many for one
        table may come from an object that loads a test set when asked (`oodles.stats.outcomes.Examples`).
    by
        Columns that make a group; default ``("model", "train_set")``, of which each may be absent. Each group is
        analysed by itself. A column of the results, such as ``r`` or ``method``, cannot be one of them.
    unit
        Column that says what is independent. Where not given, runs are, or models in a group that holds several runs
        of several models; runs that share a seed's data may be declared one unit.
    metric
        Which metric to analyse.
    in_domain
        In-domain test sets, for tables without roles.
    method
        How the in-domain score is regressed out: `gam`, a penalised spline; `linear`, `probit-linear` or
        `logit-linear`, a line on the plain, probit or logit scale.
    within
        `pooled`, one fit over all runs (the study's number); `run`, one fit plus an intercept per run (the question
        within runs); `separate`, one fit per run; or several of them. Default ``("pooled", "run")``.
    interval
        `jackknife`, `t`, `run-mean`, `bootstrap`, `bootstrap-percentile` or `naive`; where not given, `jackknife`
        (`run-mean` for `separate`; `t` for fewer than 40 models with one checkpoint each).
    correlation
        `pearson`, or `spearman`, which replaces all scores by their ranks before the fit.
    level
        Coverage of the intervals.
    smoothing
        Penalty of the spline, default ``0.6``, or `gcv` to select it for every test set. Models with one checkpoint
        each are smoothed more where they are few.
    n_resamples
        Resamples of the bootstrap.
    seed
        Seed of the bootstrap.
    chance
        Score of guessing; where not given, from a column `chance`, else one over the number of the set's answers.
    shared_start
        What to do with points that are identical in several runs from their first step on: the untrained model. They
        are one observation, so `drop` leaves them out; `keep` counts them once per run, and intervals no longer hold.
    shared_examples
        Also correlate a set with its own slice. Their noise is the same noise, so that is off.
    exact
        Take in-domain scores as free of noise where it is not known (no `n`, a metric other than accuracy without
        records). Otherwise such pairs are not counted: noise of the in-domain set alone makes OOD sets correlate.

    Returns
    -------
    PartialCorrelations
        `table`: a row per group, way of pooling and pair of test sets. `fits`: a row per test set. `residuals`: a row
        per run, step and test set. `settings`, and `caveats` about the whole input.

    Notes
    -----
    `docs/statistics.md` explains each method and its assumptions; `docs/statistics-evidence.md` has its error rates.

    Examples
    --------
    >>> draw = np.random.default_rng(0)
    >>> rows = [
    ...     (f"run{r}", step, name, 0.5 + 0.04 * step + 0.02 * draw.normal())
    ...     for r in range(6) for step in range(8) for name in ("mnli", "hans", "paws")
    ... ]
    >>> table = pd.DataFrame(rows, columns=["run", "step", "test_set", "value"])
    >>> result = partial_correlations(table, in_domain="mnli", method="linear")
    >>> result.table[["a", "b", "within", "n_runs", "n_steps", "interval"]].values.tolist()
    [['hans', 'paws', 'pooled', 6, 48, 'jackknife'], ['hans', 'paws', 'run', 6, 48, 'jackknife']]
    >>> result.caveats[0]
    'no model and no train_set in the table: all runs in one group'
    """
    _ways(within, interval)
    _check_choices(method, correlation, level, smoothing)
    _check_draws(n_resamples, seed)
    _check_start(shared_start, chance)
    checked, said = check_table(table, in_domain=in_domain)
    by, by_said = chosen_groups(checked, by)
    single = one_step(checked)
    ways = _ways("pooled" if single and within == POOLED and interval != "run-mean" else within, interval)
    _check_home(checked, metric, name_of(table))
    _check_range(checked, metric, method)
    recipes = [
        Estimator(
            method=method,
            within=way,
            interval=kind,
            correlation=correlation,
            level=level,
            smoothing=smoothing,
            n_resamples=n_resamples,
            seed=seed,
        )
        for way, kind in ways.items()
    ]
    items = Records.read(records).about(checked["run"]) if isinstance(records, pd.DataFrame) else records
    beware = cautions.Cautions.read(checked, metric=metric, chance=chance)
    rows, caveats = _Rows(), [*said, *by_said, *beware.caveats]
    reasons: list[str] = []  # why a group, or a pair, has no correlation
    for series in group_series(checked, by=by, unit=unit, metric=metric):
        caveats += cautions.shared_origins(series, checked, unit)
        slices = {} if shared_examples else beware.shared
        own = [for_group(recipe, series, interval) for recipe in recipes]
        why = _add_group(rows, series, own, items, slices, beware, drop=shared_start == "drop", exact=exact)
        caveats, reasons = [*caveats, *why], [*reasons, *why]
    apart = _slice_caveat(beware.shared, shared_examples)
    caveats, reasons = [*caveats, *apart], [*reasons, *apart]
    settings: dict[str, object] = {
        "by": list(by),
        "unit": unit,
        "metric": metric,
        "in_domain": [in_domain] if isinstance(in_domain, str) else list(in_domain or ()),
        "method": method,
        "within": list(ways),
        "interval": dict(ways),
        "correlation": correlation,
        "level": level,
        "smoothing": smoothing,
        "n_resamples": n_resamples,
        "seed": seed,
        "chance": chance,
        "shared_start": shared_start,
        "shared_examples": shared_examples,
        "exact": exact,
        "records": items is not None,
    }
    if len(by) and len({tuple(pair[name] for name in by) for pair in rows.pairs}) > 1:
        caveats.append(UNTESTED_GROUPS)
    if not rows.pairs:
        raise DataError(
            f"{name_of(table)}: no pair of OOD test sets can be correlated; "
            + "; ".join(list(dict.fromkeys(reasons or caveats))[-3:])
        )
    return _as_result(rows, by, settings, tuple(dict.fromkeys(caveats)))


def for_group(recipe: Estimator, series: Series, interval: str | None) -> Estimator:
    """The settings of a group: models with one checkpoint each have a lighter curve and, if few, the t test."""
    if not one_checkpoint(series):
        if recipe.interval == "t":
            where = ", ".join(series.group.values()) or "the table"
            raise ConfigError(
                f"{where}: interval t takes points as independent; use jackknife for runs of several steps"
            )
        return recipe
    few = interval is None and recipe.within == "pooled" and len(series.run_names) < FEW_MODELS
    return light_curve(replace(recipe, interval="t") if few else recipe, series)


def _ways(within: str | Sequence[str], interval: str | None) -> dict[str, str]:
    """The interval of each way of pooling that was asked for."""
    asked = (within,) if isinstance(within, str) else tuple(within)
    if interval is not None and interval not in INTERVALS:
        raise ConfigError(f"interval '{interval}' is not known; {nearest(interval, INTERVALS)}")
    if interval == "run-mean" and asked == POOLED:
        asked = ("separate",)  # the only one it belongs to
    if not asked:
        raise ConfigError(f"within is empty; expected one or more of: {', '.join(WITHIN)}")
    ways = {}
    for way in asked:
        if way not in WITHIN:
            raise ConfigError(f"within '{way}' is not known; {nearest(way, WITHIN)}")
        ways[way] = interval or FOR[way][0]
        if ways[way] not in FOR[way]:
            raise ConfigError(f"interval '{interval}' does not go with within '{way}'; use {' or '.join(FOR[way])}")
    return ways


def _check_choices(method: str, correlation: str, level: float, smoothing: Smoothing) -> None:
    if method not in METHODS:
        raise ConfigError(f"method '{method}' is not known; {nearest(method, METHODS)}")
    if correlation not in CORRELATIONS:
        raise ConfigError(f"correlation '{correlation}' is not known; {nearest(correlation, CORRELATIONS)}")
    if not 0 < level < 1:
        raise ConfigError(f"level is {level}; expected a number between 0 and 1, such as 0.95")
    if smoothing != "gcv" and not (isinstance(smoothing, int | float) and 0 < smoothing < np.inf):
        raise ConfigError(f"smoothing is {smoothing!r}; expected a positive number, or 'gcv' to select it")


def _check_draws(n_resamples: object, seed: object) -> None:
    if not _is_whole(n_resamples, 100):
        raise ConfigError(f"n_resamples is {shown(repr(n_resamples))}; expected a whole number, at least 100")
    if not _is_whole(seed, 0):
        raise ConfigError(f"seed is {shown(repr(seed))}; expected a whole number, 0 or more")


def _is_whole(value: object, least: int) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least


def _check_start(shared_start: str, chance: float | None) -> None:
    if shared_start not in SHARED_START:
        raise ConfigError(f"shared_start '{shared_start}' is not known; {nearest(shared_start, SHARED_START)}")
    if chance is not None and not 0 <= chance < 1:
        raise ConfigError(f"chance is {chance:g}; expected the score of guessing, from 0 to below 1")


def _check_home(table: pd.DataFrame, metric: str, where: str) -> None:
    """The in-domain sets may have been scored by another metric than the others."""
    home = table[table["role"] == "in_domain"]
    if home.empty or metric in set(home["metric"]) or metric not in set(table["metric"]):
        return
    names, metrics = (some(sorted(map(str, home[column].unique())), 3) for column in ("test_set", "metric"))
    raise DataError(
        f"{where}: in-domain set {names} has no {metric}, only {metrics}; add its {metric}, or choose a metric"
        " that all test sets have with --metric"
    )


def _check_range(table: pd.DataFrame, metric: str, method: str) -> None:
    """Probit and logit of a score outside 0..1 do not exist."""
    if method not in ("probit-linear", "logit-linear"):
        return
    rows = table[(table["metric"] == metric) & ((table["value"] < 0) | (table["value"] > 1))]
    if len(rows):
        first = rows.iloc[0]
        raise DataError(
            f"run '{first['run']}', step {first['step']}, test set '{first['test_set']}': "
            f"{metric} is {first['value']:g}, outside 0..1; "
            f"{method} needs shares (divide percentages by 100) or use method linear or gam"
        )


def _slice_caveat(shared: Mapping[str, set[str]], asked_for: bool) -> list[str]:
    pairs = sorted((max(a, b), min(a, b)) for a, others in shared.items() for b in others if a < b and b in shared)
    if not pairs or asked_for:
        return []
    told = ", ".join(f"{child} with {parent}" for child, parent in pairs[:4])
    more = f" and {len(pairs) - 4} more pairs" if len(pairs) > 4 else ""
    return [f"not correlated because they share examples: {told}{more}"]


def _add_group(
    rows: _Rows,
    series: Series,
    recipes: Sequence[Estimator],
    items: Examples | None,
    slices: Mapping[str, set[str]],
    beware: cautions.Cautions,
    *,
    drop: bool,
    exact: bool,
) -> list[str]:
    """Estimate one group in every way asked for; returns what concerns the group as a whole."""
    said: list[str] = []
    series = _own_points(series, drop)
    where = ", ".join(series.group.values()) or "the table"
    if len(series.test_sets) < 2:
        return [f"{where}: {len(series.test_sets)} OOD test set; {NEEDS_TWO}"]
    said += [
        f"{where}: {listed(names)} have the same scores: one test set by two names?" for names in same_sets(series)
    ]
    found: dict[str, list[dict[str, Any]]] = {}
    for recipe in recipes:
        usable = usable_points(series, recipe.within)
        if not usable.any():
            said.append(
                f"{where}: no run has {FEWEST[recipe.within]} steps of its own, which within '{recipe.within}' needs: "
                "left out (for one checkpoint per model, group by train_set and use within pooled)"
            )
            continue
        if np.isnan(series.scores[usable]).all():
            said.append(f"{where}: no step has both an in-domain and an OOD score; score both at the same steps")
            continue
        found[recipe.within] = _add_estimates(rows, series, usable, recipe, items, slices, beware, exact=exact)
    mark_disagreement(found)
    for pairs in found.values():
        rows.pairs += pairs
    return said


def _own_points(series: Series, drop: bool) -> Series:
    """Only the points that a run shares with no other, where they are asked for, and a caveat that says so."""
    shared = shared_points(series)
    near = nearly_shared(series, shared)
    if near:
        which = "1 run" if near == 1 else f"{near} runs"
        said = f"step 0 of {which} is nearly that of another run: if the model is the same, leave these points out"
        series = replace(series, caveats=(*series.caveats, said))
    if not shared.any():
        return series
    steps = sorted({f"{step:g}" for step in series.steps[shared].astype(float)}, key=float)
    runs = shared_runs(series, shared)
    counts = f"{sum(runs)} runs ({len(runs)} starts)" if len(runs) > SEVERAL else f"{listed(runs)} runs"
    what = f"step {', '.join(steps[:3])}{' ...' if len(steps) > 3 else ''} is the same in {counts}"
    anew = [name for name, differs in zip(series.test_sets, scored_anew(series), strict=True) if differs]
    what += f" (but for {some(anew)}, scored anew in each)" if anew else ""
    if drop:
        said = f"{what}: {int(shared.sum())} of {len(shared)} points left out, being no observation of one run"
        return replace(series.at(~shared), caveats=(*series.caveats, said))
    said = f"{what} and counted in each of them: interval and test take it as {sum(runs)} observations"
    return replace(series, caveats=(*series.caveats, said))


def _add_estimates(
    rows: _Rows,
    series: Series,
    usable: Any,
    recipe: Estimator,
    items: Examples | None,
    slices: Mapping[str, set[str]],
    beware: cautions.Cautions,
    *,
    exact: bool,
) -> list[dict[str, Any]]:
    """One way of pooling: the pairs are returned, fits and residuals are added."""
    used = series.at(usable)
    said = [*series.caveats, *beware.of_group(series)]
    short = len(series.run_names) - len(used.run_names)
    if short:
        said.append(f"{short} of {len(series.run_names)} runs have fewer than {FEWEST[recipe.within]} steps: left out")
    job = GroupTask(recipe=recipe, items=items, beware=beware, said=tuple(said), exact=exact)
    known = ~np.isnan(used.scores)
    if known.all():
        found = job.run(used)
        rows.fits += fit_rows(found, job, range(len(used.test_sets)))
        pairs = pair_rows(found, job, slices)
    else:
        pairs = []
        for one in range(len(used.test_sets)):
            alone = _scored(used, known[:, one], [one], recipe.within)
            rows.fits += fit_rows(job.run(alone), job, [0]) if alone is not None else []
        for i, j in combinations(range(len(used.test_sets)), 2):
            pairs += _pair_with_gaps(used, known[:, i] & known[:, j], i, j, job, slices)
    rows.residuals.append(robustness(used, recipe))
    adjust(pairs)
    return pairs


def _pair_with_gaps(
    used: Series, both: Any, i: int, j: int, job: GroupTask, slices: Mapping[str, set[str]]
) -> list[dict[str, Any]]:
    """A pair of sets that were not both scored at every point: only the points they share."""
    names = (used.test_sets[i], used.test_sets[j])
    if shares_examples(*names, slices):
        return []
    part = _scored(used, both, [i, j], job.recipe.within)
    if part is None:
        why = "too rarely" if both.any() else "never"
        said = (*job.said, f"{names[0]} and {names[1]} were {why} scored at the same step")
        return [empty_pair(used, names, job, said)]
    lost = len(both) - len(part.scores)
    return pair_rows(
        job.run(part), job, slices, (f"a score is missing at {lost} of {len(both)} points",) if lost else ()
    )


def _scored(used: Series, points: Any, sets: Sequence[int], within: str) -> Series | None:
    """The sets at the points where they were scored, in runs that are still long enough; None where none is left."""
    if not points.any():
        return None
    part = used.at(points, sets)
    usable = usable_points(part, within)
    return part.at(usable) if usable.any() else None


def _as_result(
    rows: _Rows, by: Sequence[str], settings: Mapping[str, object], caveats: tuple[str, ...]
) -> PartialCorrelations:
    say_clear(rows.pairs)
    pairs = pd.DataFrame(rows.pairs)
    return PartialCorrelations(
        table=pairs[[*by, *PAIR_COLUMNS]],
        fits=pd.DataFrame(rows.fits, columns=[*by, *FIT_COLUMNS]),
        residuals=pd.concat(rows.residuals, ignore_index=True),
        settings=settings,
        caveats=caveats,
    )
