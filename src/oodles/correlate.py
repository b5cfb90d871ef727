"""Partial correlations between OOD test sets: the study's number, with an interval that holds and what to beware of.

Try it::

    result = partial_correlations(table, records, by=("model", "train_set"))
    result.table[["a", "b", "within", "r", "low", "high", "p_holm", "caveats"]]
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from oodles import cautions, noise, resample
from oodles.errors import ConfigError, DataError, nearest
from oodles.estimates import FEWEST, Estimate, Recipe, estimate, usable_points
from oodles.longtable import check_table
from oodles.resample import DESCRIPTIVE, INTERVALS
from oodles.residuals import METHODS, WITHIN, Smoothing
from oodles.robustness import robustness
from oodles.series import BY, Series, group_series, settle_by
from oodles.splines import SMOOTHING, Array

CORRELATIONS = ("pearson", "spearman")
NEARLY_ALL = 0.98  # R2 of a fit above which too little residual is left
NOISY = 0.3  # reliability of a residual below which too little residual is left
BIASED = 0.05  # bias through a noisy in-domain score that is worth saying
PAIR_COLUMNS = (
    *("a", "b", "r", "low", "high", "p_val", "p_holm", "p_bh", "r_corrected", "r_corrected_low", "r_corrected_high"),
    *("corrected_by", "n_runs", "n_units", "n_steps", "method", "within", "interval", "correlation", "caveats"),
)
FIT_COLUMNS = (
    *("test_set", "method", "within", "r2", "edf", "smoothing", "residual_sd", "reliability", "reliability_from"),
    *("n_runs", "n_steps", "caveats"),
)
POOLED = ("pooled", "run")
FOR = {  # which interval belongs to which way of pooling; the first is its default
    "pooled": ("jackknife", "bootstrap", "bootstrap-percentile", "naive"),
    "run": ("jackknife", "bootstrap", "bootstrap-percentile", "naive"),
    "separate": ("run-mean", "naive"),
}


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class PartialCorrelations:
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


def partial_correlations(
    table: pd.DataFrame,
    records: pd.DataFrame | None = None,
    *,
    by: Sequence[str] = BY,
    unit: str = "run",
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
    shared_examples: bool = False,
) -> PartialCorrelations:
    """Correlate every pair of OOD test sets once the in-domain score is regressed out.

    Parameters
    ----------
    table : pandas.DataFrame
        A long table: `run`, `step`, `test_set`, `value` and, where known, `model`, `train_set`, `role`, `n`, ...
    records : pandas.DataFrame, optional
        Per example: `run`, `step`, `test_set`, `example`, `correct` and, for templated sets, `template`. With them the
        noise of finite test sets is measured and corrected; without them a range is given.
    by : sequence of str
        Columns that make a group. Each group is analysed by itself.
    unit : str
        Column that says what is independent. Runs are; runs that share a seed's data may be declared one unit.
    metric : str
        Which metric to analyse.
    in_domain : str or sequence of str, optional
        In-domain test sets, for tables without roles.
    method : {"gam", "linear", "probit-linear", "logit-linear"}
        How the in-domain score is regressed out: a penalised spline, or a line, on the plain, probit or logit scale.
    within : {"pooled", "run", "separate"} or several of them
        One fit over all runs (the study's number), one fit plus an intercept per run (the question within runs), or one
        fit per run.
    interval : {"jackknife", "run-mean", "bootstrap", "bootstrap-percentile", "naive"}, optional
        `jackknife` where not given (`run-mean` for `separate`).
    correlation : {"pearson", "spearman"}
        `spearman` replaces all scores by their ranks before the fit.
    level : float
        Coverage of the intervals.
    smoothing : float or "gcv"
        Penalty of the spline, or `gcv` to select it for every test set.
    n_resamples, seed : int
        For the bootstrap.
    chance : float, optional
        Score of guessing; where not given, from a column `chance`, else one over the number of answers.
    shared_examples : bool
        Also correlate a set with its own slice. Their noise is the same noise, so that is off.

    Returns
    -------
    PartialCorrelations

    Notes
    -----
    `docs/statistics.md` explains each method, its assumptions and its measured error rates.

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
    'no model and no train_set in the table: grouped by nothing'
    """
    ways = _ways(within, interval)
    _check_choices(method, correlation, level, smoothing, n_resamples)
    checked, said = check_table(table, in_domain=in_domain)
    by, by_said = settle_by(checked, by)
    _check_range(checked, metric, method)
    recipes = [
        Recipe(
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
    items = noise.Records.read(records) if records is not None else None
    slices = cautions.slice_parents(checked)
    beware = cautions.Cautions.read(checked, metric=metric, chance=chance)
    rows, caveats = _Rows(), [*said, *by_said, *beware.caveats]
    for series in group_series(checked, by=by, unit=unit, metric=metric):
        caveats += _add_group(rows, series, recipes, items, slices if not shared_examples else {}, beware)
    caveats += _slice_caveat(slices, shared_examples)
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
        "shared_examples": shared_examples,
        "records": items is not None,
    }
    return _as_result(rows, by, settings, tuple(dict.fromkeys(caveats)))


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


def _check_choices(method: str, correlation: str, level: float, smoothing: Smoothing, n_resamples: int) -> None:
    if method not in METHODS:
        raise ConfigError(f"method '{method}' is not known; {nearest(method, METHODS)}")
    if correlation not in CORRELATIONS:
        raise ConfigError(f"correlation '{correlation}' is not known; {nearest(correlation, CORRELATIONS)}")
    if not 0 < level < 1:
        raise ConfigError(f"level is {level}; expected a number between 0 and 1, such as 0.95")
    if smoothing != "gcv" and not (isinstance(smoothing, int | float) and 0 < smoothing < np.inf):
        raise ConfigError(f"smoothing is {smoothing!r}; expected a positive number, or 'gcv' to select it")
    if n_resamples < 100:
        raise ConfigError(f"n_resamples is {n_resamples}; expected at least 100")


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


def _slice_caveat(slices: Mapping[str, str], shared: bool) -> list[str]:
    if not slices or shared:
        return []
    listed = ", ".join(f"{child} with {parent}" for child, parent in sorted(slices.items())[:4])
    return [f"not correlated because they share examples: {listed}"]


def _add_group(
    rows: _Rows,
    series: Series,
    recipes: Sequence[Recipe],
    items: noise.Records | None,
    slices: Mapping[str, str],
    beware: cautions.Cautions,
) -> list[str]:
    """Estimate one group in every way asked for; returns what concerns the group as a whole."""
    said: list[str] = []
    where = ", ".join(series.group.values()) or "the table"
    if len(series.test_sets) < 2:
        return [f"{where}: {len(series.test_sets)} OOD test set; a correlation needs two"]
    found: dict[str, list[dict[str, Any]]] = {}
    for recipe in recipes:
        usable = usable_points(series, recipe.within)
        if not usable.any():
            said.append(
                f"{where}: no run has {FEWEST[recipe.within]} steps or more, which within '{recipe.within}' needs: "
                "left out (for one checkpoint per model, group by train_set and use within pooled)"
            )
            continue
        found[recipe.within] = _add_estimates(rows, series, usable, recipe, items, slices, beware)
    _mark_disagreement(found)
    for pairs in found.values():
        rows.pairs += pairs
    return said


def _add_estimates(
    rows: _Rows,
    series: Series,
    usable: Any,
    recipe: Recipe,
    items: noise.Records | None,
    slices: Mapping[str, str],
    beware: cautions.Cautions,
) -> list[dict[str, Any]]:
    """One way of pooling: the pairs are returned, fits and residuals are added."""
    used = series.at(usable)
    said = [*series.caveats, *beware.of_group(series)]
    short = len(series.run_names) - len(used.run_names)
    if short:
        said.append(f"{short} of {len(series.run_names)} runs have fewer than {FEWEST[recipe.within]} steps: left out")
    job = _Job(recipe=recipe, items=items, beware=beware, said=tuple(said))
    known = ~np.isnan(used.scores)
    if known.all():
        found = job.run(used)
        rows.fits += _fit_rows(found, job, range(len(used.test_sets)))
        pairs = _pair_rows(found, job, slices)
    else:
        pairs = []
        for one in range(len(used.test_sets)):
            alone = _scored(used, known[:, one], [one], recipe.within)
            rows.fits += _fit_rows(job.run(alone), job, [0]) if alone is not None else []
        for i, j in combinations(range(len(used.test_sets)), 2):
            pairs += _pair_with_gaps(used, known[:, i] & known[:, j], i, j, job, slices)
    rows.residuals.append(robustness(used, recipe))
    _adjust(pairs)
    return pairs


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class _Found:
    """An estimate with its correction for noise."""

    estimate: Estimate
    corrected: noise.Corrected
    bias: Array


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class _Job:
    """What is the same for all estimates of a group and way of pooling."""

    recipe: Recipe
    items: noise.Records | None
    beware: cautions.Cautions
    said: tuple[str, ...]

    def run(self, used: Series) -> _Found:
        found = estimate(used, self.recipe)
        scale = "ranks" if self.recipe.correlation == "spearman" else self.beware.metric
        corrected = noise.correct(found, self.items, metric=scale, method=self.recipe.method, level=self.recipe.level)
        return _Found(estimate=found, corrected=corrected, bias=noise.covariate_bias(found, corrected))


def _pair_with_gaps(
    used: Series, both: Any, i: int, j: int, job: _Job, slices: Mapping[str, str]
) -> list[dict[str, Any]]:
    """A pair of sets that were not both scored at every point: only the points they share."""
    names = (used.test_sets[i], used.test_sets[j])
    if _shares_examples(*names, slices):
        return []
    part = _scored(used, both, [i, j], job.recipe.within)
    if part is None:
        why = "too rarely" if both.any() else "never"
        said = (*job.said, f"{names[0]} and {names[1]} were {why} scored at the same step")
        return [_empty_pair(used, names, job, said)]
    lost = len(both) - len(part.scores)
    return _pair_rows(
        job.run(part), job, slices, (f"a score is missing at {lost} of {len(both)} points",) if lost else ()
    )


def _scored(used: Series, points: Any, sets: Sequence[int], within: str) -> Series | None:
    """The sets at the points where they were scored, in runs that are still long enough; None where none is left."""
    if not points.any():
        return None
    part = used.at(points, sets)
    usable = usable_points(part, within)
    return part.at(usable) if usable.any() else None


def _shares_examples(a: str, b: str, slices: Mapping[str, str]) -> bool:
    return slices.get(a) == b or slices.get(b) == a


def _empty_pair(used: Series, names: tuple[str, str], job: _Job, said: tuple[str, ...]) -> dict[str, Any]:
    nothing = float("nan")
    numbers = dict.fromkeys(
        ("r", "low", "high", "p_val", "p_holm", "p_bh", "r_corrected", "r_corrected_low", "r_corrected_high"), nothing
    )
    return {
        **used.group,
        "a": names[0],
        "b": names[1],
        **numbers,
        "corrected_by": "none",
        "n_runs": 0,
        "n_units": 0,
        "n_steps": 0,
        **_labels(job.recipe),
        "caveats": list(dict.fromkeys(said)),
    }


def _labels(recipe: Recipe) -> dict[str, str]:
    return {
        "method": recipe.method,
        "within": recipe.within,
        "interval": recipe.interval,
        "correlation": recipe.correlation,
    }


def _pair_rows(
    found: _Found, job: _Job, slices: Mapping[str, str], extra: tuple[str, ...] = ()
) -> list[dict[str, Any]]:
    used, n_units = found.estimate.used, len(found.estimate.used.unit_names)
    of_set = [_set_caveats(found, job, k) for k in range(len(used.test_sets))]
    pairs = []
    for i, j in combinations(range(len(used.test_sets)), 2):
        names = (used.test_sets[i], used.test_sets[j])
        if _shares_examples(*names, slices):
            continue
        interval, corrected = found.estimate.interval, found.corrected
        tested = n_units >= DESCRIPTIVE
        pair = _empty_pair(used, names, job, ()) | {
            "r": found.estimate.r[i, j],
            "low": interval.low[i, j],
            "high": interval.high[i, j],
            "p_val": interval.p_val[i, j] if tested else float("nan"),
            "r_corrected": corrected.r[i, j],
            "r_corrected_low": corrected.low[i, j],
            "r_corrected_high": corrected.high[i, j],
            "corrected_by": _corrected_by(corrected, i, j),
            "n_runs": len(used.run_names),
            "n_units": n_units,
            "n_steps": len(used.scores),
        }
        said = [*job.said, *extra, *_unit_caveats(used, job.recipe), *of_set[i], *of_set[j]]
        if job.beware.parents.get(names[0]) == names[1] or job.beware.parents.get(names[1]) == names[0]:
            said.append("the two sets share examples: their noise is the same noise")
        said += _pair_caveats(pair, found, i, j)
        pairs.append(pair | {"caveats": list(dict.fromkeys(said))})
    return pairs


def _corrected_by(corrected: noise.Corrected, i: int, j: int) -> str:
    sources = {corrected.source[i], corrected.source[j]}
    if "none" in sources:
        return "none"
    return "records" if sources == {"records"} else "range"


def _unit_caveats(used: Series, recipe: Recipe) -> list[str]:
    """What the number of independent units allows to be said."""
    n_units, said = len(used.unit_names), []
    what = "run" if n_units == len(used.run_names) else "independent unit"
    if n_units == 1:
        said.append(f"one {what}: no interval, no test")
    elif n_units < DESCRIPTIVE:
        said.append(f"{n_units} {what}s: descriptive, no test (it takes {DESCRIPTIVE} or more)")
    if recipe.interval == "naive":
        said.append("naive interval: takes steps of a run as independent, so it is far too narrow")
    if recipe.interval == "bootstrap-percentile":
        said.append("percentile bootstrap: too narrow with few runs")
    return said


def _set_caveats(found: _Found, job: _Job, k: int) -> list[str]:
    """Caveats of one test set that concern all its pairs."""
    estimate_, corrected, name = found.estimate, found.corrected, found.estimate.used.test_sets[k]
    said = [*job.beware.of_set(estimate_.used, name), *corrected.caveats[k]]
    values = estimate_.used.scores[:, k]
    r2, reliability, left = estimate_.fit.r2[k], corrected.reliability[k], estimate_.left[k]
    if np.ptp(values) <= 1e-12 * max(1.0, float(np.abs(values).max())):
        return [*said, f"{name}: the same score at every point"]
    if not np.isfinite(estimate_.r[k, k]):
        why = "too few points for the fit" if left < 2 else "the in-domain score explains all of it"
        return [*said, f"{name}: too little residual left ({why})"]
    if r2 > NEARLY_ALL:
        said.append(f"{name}: too little residual left (R2 {r2:.3f})")
    elif reliability < NOISY:
        kind = "reliability" if corrected.source[k] == "records" else "reliability as low as"
        said.append(f"{name}: too little residual left ({kind} {max(reliability, 0.0):.2f})")
    if estimate_.fit.edf[k] > len(values) / 2:
        said.append(f"the fit uses {estimate_.fit.edf[k]:.1f} of {len(values)} points: little is left to correlate")
    if job.recipe.method in ("probit-linear", "logit-linear") and ((values <= 0) | (values >= 1)).any():
        said.append(f"{name}: scores of 0 or 1 were moved inside by half an example")
    return said


def _pair_caveats(pair: Mapping[str, Any], found: _Found, i: int, j: int) -> list[str]:
    said = []
    r, bias = float(pair["r"]), found.bias[i, j]
    if abs(r) > resample.PERFECT:
        said.append("the residuals are equal up to a factor: no interval")
    elif np.isfinite(r) and not np.isfinite(pair["low"]) and pair["n_units"] > 1:
        said.append("no interval: the runs are copies of each other, or nothing is left without one of them")
    if np.isfinite(bias) and abs(bias) > BIASED:
        size = np.nanmin(found.estimate.used.covariate_sizes) if found.estimate.used.covariate_sizes.size else np.nan
        known = f" (n = {size:.0f})" if np.isfinite(size) else ""
        way = "upward" if bias > 0 else "downward"
        said.append(f"in-domain set is small{known}: correlations biased {way}, here by up to about {abs(bias):.2f}")
    if pair["corrected_by"] == "range":
        said.append("no per-example records: r_corrected is only known to lie between its limits")
    elif pair["corrected_by"] == "records" and not np.isfinite(pair["r_corrected"]) and np.isfinite(r):
        said.append("noise of the test sets explains all residual: no corrected correlation")
    elif abs(float(pair["r_corrected"])) >= noise.CEILING:
        said.append("the corrected correlation reached its bound: noise is nearly all of the residual")
    return said


def _adjust(pairs: list[dict[str, Any]]) -> None:
    """Holm and Benjamini-Hochberg over the pairs of a group."""
    p_values = np.array([pair["p_val"] for pair in pairs], dtype=float)
    for pair, by_holm, by_bh in zip(pairs, resample.holm(p_values), resample.benjamini_hochberg(p_values), strict=True):
        pair["p_holm"], pair["p_bh"] = float(by_holm), float(by_bh)


def _mark_disagreement(found: Mapping[str, list[dict[str, Any]]]) -> None:
    """Pooling runs can flip the sign; say so on both numbers."""
    if "pooled" not in found or "run" not in found:
        return
    inside = {(pair["a"], pair["b"]): pair for pair in found["run"]}
    for pair in found["pooled"]:
        other = inside.get((pair["a"], pair["b"]))
        if other is not None and pair["r"] * other["r"] < 0:
            for one in (pair, other):
                one["caveats"].append(
                    "pooled and within-run correlations differ in sign: they answer different questions"
                )


def _fit_rows(found: _Found, job: _Job, which: Iterable[int]) -> list[dict[str, Any]]:
    used, fit = found.estimate.used, found.estimate.fit
    return [
        {
            **used.group,
            "test_set": used.test_sets[k],
            **{name: text for name, text in _labels(job.recipe).items() if name in ("method", "within")},
            "r2": fit.r2[k],
            "edf": fit.edf[k],
            "smoothing": fit.smoothing[k],
            "residual_sd": float(np.sqrt(np.mean(fit.residuals[:, k] ** 2))),
            "reliability": found.corrected.reliability[k],
            "reliability_from": found.corrected.source[k],
            "n_runs": len(used.run_names),
            "n_steps": len(used.scores),
            "caveats": list(dict.fromkeys([*job.said, *_set_caveats(found, job, k)])),
        }
        for k in which
    ]


def _as_result(
    rows: _Rows, by: Sequence[str], settings: Mapping[str, object], caveats: tuple[str, ...]
) -> PartialCorrelations:
    if not rows.pairs:
        raise DataError("table: no pair of OOD test sets can be correlated; " + "; ".join(caveats[-3:]))
    pairs = pd.DataFrame(rows.pairs)
    return PartialCorrelations(
        table=pairs[[*by, *PAIR_COLUMNS]],
        fits=pd.DataFrame(rows.fits, columns=[*by, *FIT_COLUMNS]),
        residuals=pd.concat(rows.residuals, ignore_index=True),
        settings=settings,
        caveats=caveats,
    )
