"""Simulated trajectories with known correlations: do the intervals and tests hold?

    python -m benchmarks.statistics                          short: a few cells, seconds
    python -m benchmarks.statistics --long --seed 0 --out build/statistics.json
    python -m benchmarks.statistics --speed --out build/statistics.json   only the speed, measured anew
    python -m benchmarks.statistics --table build/statistics.json     as Markdown (--into docs/statistics-evidence.md)
    python -m benchmarks.statistics --merge build/statistics.json     into benchmarks/results.json

The long form prints each cell as it is done and writes it at once; started again with the same --out and --seed it goes
on where it stopped. A cell is a scenario, a true correlation and a method. Reported are the share of data sets whose
test rejects at 5 % and the share of 95 % intervals that cover the estimand. The estimand is what the method estimates
with endless data of this kind: the ratio of residual products summed over all data sets of the cell (for `run-mean`,
the mean of its Fisher z), so that attenuation by noise is not counted as an error of the interval.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import special

from oodles.stats import resample, residuals
from oodles.stats.estimates import Estimate, Estimator, as_correlations, estimate, usable_points
from oodles.stats.series import Series, shared_points

Array = NDArray[np.float64]

SIZES = np.array([635, 1000, 2126, 3200, 4906, 7600, 9815, 30000], dtype=float)
IN_DOMAIN = 9815.0
PAIRS = ((0, 1), (2, 3), (4, 5), (6, 7))  # disjoint, so that each holds its own true correlation
RESIDUAL = 0.025  # sd of the latent residual
LENGTH = 0.1  # correlation length of a residual, in runs
SPREAD = 0.3  # sd over runs of Fisher's z where runs differ
RHOS = (0.0, 0.3, 0.6)

# How OOD scores follow the in-domain score: lines, bends, a plateau, a threshold, and one that falls.
LINKS: tuple[Callable[[Array], Array], ...] = (
    lambda z: 0.5 + 0.9 * (z - 0.5),
    lambda z: 0.5 + 1.6 * (z - 0.5) ** 2,
    lambda z: 0.45 + 0.35 * np.sqrt(np.maximum(z - 0.45, 0.0)),
    lambda z: 0.5 + 0.25 * special.expit((z - 0.72) * 25),
    lambda z: 0.55 - 0.3 * (z - 0.5),
    lambda z: 0.5 + 0.35 * (1 - np.exp(-8 * np.maximum(z - 0.5, 0.0))),
    lambda z: 0.5 + 0.5 * (z - 0.5) + 0.05 * np.sin(14 * z),
    lambda z: 0.62 - 1.2 * (z - 0.7) ** 2,
)
LOADINGS = np.array([0.8, 0.8, 0.8, -0.8, 0.3, 0.8, -0.5, -0.5])  # of a drift towards Yes: 2 x share of Yes - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """How trajectories come about."""

    runs: int = 9
    steps: tuple[int, ...] = (20,)  # cycles over runs
    offset: float = 0.0  # sd of a run's own level on each set
    spread: str = "none"  # how Fisher's z differs over runs: none, normal, skewed, outlier
    walk: bool = False  # random walks instead of short-memory residuals
    log_steps: bool = False
    share: int = 1  # runs per seed; those share levels and z
    saturated: bool = False
    drift: float = 0.0  # sd of a common drift towards one answer
    gaps: float = 0.0  # share of scores that are missing
    starts: int = 0  # models that the runs start from, in turn; runs of one model share their step 0
    far: float = 0.0  # how far a model is from the curve at step 0, in sd of a residual
    fade: float = 0.0  # how long a run remembers that, in runs
    begin: float | None = None  # in-domain score at step 0, where it is not the lowest of the run


B = Scenario(offset=RESIDUAL)
SCENARIOS: dict[str, Scenario] = {}
for _steps in (20, 60):
    for _runs in (9, 3):
        _size = Scenario(runs=_runs, steps=(_steps,))
        SCENARIOS |= {
            f"A {_runs}x{_steps}": _size,
            f"B {_runs}x{_steps}": replace(_size, offset=RESIDUAL),
            f"C {_runs}x{_steps}": replace(_size, offset=RESIDUAL, spread="normal"),
            f"D {_runs}x{_steps}": replace(_size, walk=True),
        }
SCENARIOS |= {
    "8 steps": replace(B, steps=(8,)),
    "12 steps": replace(B, steps=(12,)),
    "5 runs": replace(B, runs=5),
    "5 runs, differing": replace(B, runs=5, spread="normal"),
    "log-spaced steps": replace(B, log_steps=True),
    "unequal steps": replace(B, steps=(20, 50, 100)),
    "shared seeds, 6 x 3": replace(B, runs=18, share=3, spread="normal"),
    "skewed runs": replace(B, spread="skewed"),
    "outlier runs": replace(B, spread="outlier"),
    "saturation": replace(B, saturated=True),
    "Yes drift": replace(B, drift=0.03),
    "missing steps": replace(B, gaps=0.2),
    "shared step 0": replace(B, starts=1, far=1.0),
    "shared step 0, far": replace(B, starts=1, far=4.0),
    "shared step 0, far, log steps": replace(B, starts=1, far=4.0, log_steps=True),
    "shared step 0, far, fading, log steps": replace(B, starts=1, far=4.0, fade=LENGTH, log_steps=True),
    "shared step 0, far, mid-range": replace(B, starts=1, far=4.0, begin=0.7),
    "shared step 0, far, mid-range, 8 steps": replace(B, starts=1, far=4.0, begin=0.7, steps=(8,)),
    "shared step 0, far, mid-range, 3 models": replace(B, starts=3, far=4.0, begin=0.7),
    "shared step 0, far, mid-range, walks": replace(B, starts=1, far=4.0, begin=0.7, offset=0.0, walk=True),
}
SHARED = tuple(name for name in SCENARIOS if name.startswith("shared step 0"))
MAIN = tuple(name for name in SCENARIOS if name[1:2] == " " and name[0] in "ABCD" and " 9x" in name)
HARD = tuple(name for name in SCENARIOS if name not in (*MAIN, *SHARED) and " 3x" not in name)
FEW = tuple(name for name in SCENARIOS if " 3x" in name)

JACKKNIFE_POOLED, JACKKNIFE_RUN = "jackknife, pooled", "jackknife, run"
RUN_MEAN = "run-mean, separate"
METHODS: dict[str, Estimator] = {
    JACKKNIFE_POOLED: Estimator(),
    JACKKNIFE_RUN: Estimator(within="run"),
    RUN_MEAN: Estimator(within="separate", interval="run-mean"),
    "naive, pooled": Estimator(interval="naive"),
    "naive, run": Estimator(within="run", interval="naive"),
    "bootstrap, pooled": Estimator(interval="bootstrap", n_resamples=400),
    "bootstrap, run": Estimator(within="run", interval="bootstrap", n_resamples=400),
    "bootstrap-percentile, pooled": Estimator(interval="bootstrap-percentile", n_resamples=400),
    "bootstrap-percentile, run": Estimator(within="run", interval="bootstrap-percentile", n_resamples=400),
    "jackknife, pooled, gcv": Estimator(smoothing="gcv"),
    "jackknife, run, gcv": Estimator(within="run", smoothing="gcv"),
    "jackknife, pooled, spearman": Estimator(correlation="spearman"),
    "jackknife, run, spearman": Estimator(within="run", correlation="spearman"),
    "run-mean, separate, spearman": Estimator(within="separate", interval="run-mean", correlation="spearman"),
    "jackknife, pooled, linear": Estimator(method="linear"),
    "jackknife, run, linear": Estimator(method="linear", within="run"),
    "run-mean, separate, linear": Estimator(method="linear", within="separate", interval="run-mean"),
    "jackknife, pooled, probit-linear": Estimator(method="probit-linear"),
    "jackknife, pooled, logit-linear": Estimator(method="logit-linear"),
}
CHEAP = (JACKKNIFE_POOLED, JACKKNIFE_RUN, RUN_MEAN, "naive, pooled", "naive, run")


def simulate(scenario: Scenario, rho: float, draw: np.random.Generator) -> Series:
    """One data set: the scores of a group as the analysis sees them."""
    counts, z, scores = latent(scenario, rho, draw)
    runs = np.repeat(np.arange(scenario.runs), counts)
    observed_z = draw.binomial(int(IN_DOMAIN), np.clip(z, 0.01, 0.995)) / IN_DOMAIN
    observed = draw.binomial(SIZES.astype(int), np.clip(scores, 0.01, 0.995)) / SIZES
    if scenario.starts:
        first, of = _first_points(scenario, counts)
        observed_z[first], observed[first] = observed_z[of], observed[of]
    if scenario.gaps:
        observed[draw.random(observed.shape) < scenario.gaps] = np.nan
    units = np.arange(scenario.runs) // scenario.share
    return Series(
        group={},
        test_sets=tuple(f"set{k}" for k in range(len(SIZES))),
        in_domain=("in-domain",),
        run_names=tuple(f"run{r}" for r in range(scenario.runs)),
        unit_names=tuple(f"unit{u}" for u in range(int(units.max()) + 1)),
        runs=runs,
        units=units[runs],
        steps=np.concatenate([np.arange(count) for count in counts]),
        covariates=observed_z[:, None],
        scores=observed,
        covariate_sizes=np.full((len(z), 1), IN_DOMAIN),
        sizes=np.broadcast_to(SIZES, observed.shape).copy(),
    )


def latent(scenario: Scenario, rho: float, draw: np.random.Generator) -> tuple[list[int], Array, Array]:
    """Steps of each run, and the in-domain and OOD scores before any test set is drawn."""
    counts = [scenario.steps[r % len(scenario.steps)] for r in range(scenario.runs)]
    levels = _run_levels(scenario, draw)
    rhos = _run_rhos(scenario, rho, draw)
    curves, scores = [], []
    for run, count in enumerate(counts):
        times = _times(scenario, count)
        curves.append(_learning_curve(scenario, times, draw))
        scores.append(_latent_scores(scenario, curves[-1], times, rhos[run], levels[run], draw))
    if scenario.starts:
        _start_apart(scenario, rho, curves, scores, draw)
    return counts, np.concatenate(curves), np.concatenate(scores)


def _start_apart(scenario: Scenario, rho: float, curves: list[Array], scores: list[Array], draw: Any) -> None:
    """Give the runs of a model one step 0, which is off the curve and, if it fades, felt in the steps that follow."""
    for model in range(scenario.starts):
        away = draw.normal(size=len(SIZES))
        for i, j in PAIRS:
            away[j] = rho * away[i] + np.sqrt(1 - rho**2) * away[j]
        away *= scenario.far * RESIDUAL
        for run in range(model, len(scores), scenario.starts):
            times = _times(scenario, len(curves[run]))
            felt = np.exp(-times / scenario.fade) if scenario.fade else (times == 0).astype(float)
            curves[run][0] = curves[run][0] if scenario.begin is None else scenario.begin
            scores[run][0] = [float(link(curves[run][0])) for link in LINKS]
            scores[run] += felt[:, None] * away


def _first_points(scenario: Scenario, counts: list[int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The first point of every run, and that of the first run of its model."""
    first = np.cumsum([0, *counts[:-1]])
    return first, first[np.arange(len(counts)) % scenario.starts]


def _times(scenario: Scenario, count: int) -> Array:
    if scenario.log_steps:
        return np.concatenate([[0.0], np.logspace(-2, 0, count - 1)])
    return np.linspace(0.0, 1.0, count)


def _learning_curve(scenario: Scenario, times: Array, draw: np.random.Generator) -> Array:
    top = 0.99 if scenario.saturated else draw.normal(0.85, 0.02)
    pace = (0.08 if scenario.saturated else 0.25) * np.exp(0.3 * draw.normal())
    wobble = 0.004 if scenario.saturated else 0.015
    rising = 0.5 + (top - 0.5) * (1 - np.exp(-times / pace))
    return np.asarray(rising + wobble * process(times, 0.05, False, draw), dtype=float)


def process(times: Array, length: float, walk: bool, draw: np.random.Generator) -> Array:
    """A Gaussian series with unit variance: short memory, or a random walk of mean variance 1."""
    if walk:
        steps = np.diff(times, prepend=times[0] - (times[1] - times[0]))
        walk_ = np.sqrt(2.0) * np.cumsum(draw.normal(size=len(times)) * np.sqrt(np.maximum(steps, 0.0)))
        return np.asarray(walk_, dtype=float)
    series = np.empty(len(times))
    keep = np.exp(-np.diff(times) / length)
    shocks = draw.normal(size=len(times))
    series[0] = shocks[0]
    for t, k in enumerate(keep, start=1):
        series[t] = k * series[t - 1] + np.sqrt(1 - k * k) * shocks[t]
    return series


def _latent_scores(
    scenario: Scenario, z: Array, times: Array, rho: Array, level: Array, draw: np.random.Generator
) -> Array:
    columns = []
    drift = scenario.drift * process(times, 0.3, False, draw) if scenario.drift else np.zeros(len(times))
    for pair, (i, j) in enumerate(PAIRS):
        first = process(times, LENGTH, scenario.walk, draw)
        second = process(times, LENGTH, scenario.walk, draw)
        second = rho[pair] * first + np.sqrt(1 - rho[pair] ** 2) * second
        for k, residual in ((i, first), (j, second)):
            columns.append(_score(scenario, z, k, RESIDUAL * residual + level[k]) + LOADINGS[k] * drift)
    return np.column_stack(columns)


def _score(scenario: Scenario, z: Array, k: int, residual: Array) -> Array:
    if not scenario.saturated:
        return LINKS[k](z) + residual
    ceiling = 0.985 - (0.25 + 0.1 * k) * (0.99 - z)
    return ceiling + residual * np.clip((1 - ceiling) / 0.3, 0.05, 1.0)


def _run_levels(scenario: Scenario, draw: np.random.Generator) -> Array:
    seeds = -(-scenario.runs // scenario.share)
    return np.repeat(scenario.offset * draw.normal(size=(seeds, len(SIZES))), scenario.share, axis=0)


def _run_rhos(scenario: Scenario, rho: float, draw: np.random.Generator) -> Array:
    """True correlation of each run and pair; the effects have mean 0 on Fisher's scale."""
    shape = (-(-scenario.runs // scenario.share), len(PAIRS))
    if scenario.spread == "normal":
        effect = SPREAD * draw.normal(size=shape)
    elif scenario.spread == "skewed":
        effect = SPREAD * (draw.exponential(size=shape) - 1.0)
    elif scenario.spread == "outlier":
        far = draw.random(shape) < 0.2
        effect = np.where(far, 1.0, -0.25) * np.ones(shape)  # mean 0, one run in five far away
    else:
        effect = np.zeros(shape)
    return np.repeat(np.tanh(np.arctanh(rho) + effect), scenario.share, axis=0)


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Outcome:
    """What a method said about the four pairs of one data set."""

    r: Array
    low: Array
    high: Array
    p_val: Array
    products: Array  # pairs x (own, own, cross): for the estimand


def judge(series: Series, recipe: Estimator) -> Outcome:
    """Run one method on one data set, pair by pair where scores are missing."""
    used = series.at(usable_points(series, recipe.within))
    if used.complete:
        found = estimate(used, recipe)
        return _collect([(found, i, j) for i, j in PAIRS])
    known = ~np.isnan(used.scores)
    parts = []
    for i, j in PAIRS:
        part = used.at(known[:, i] & known[:, j], [i, j])
        parts.append((estimate(part.at(usable_points(part, recipe.within)), recipe), 0, 1))
    return _collect(parts)


KEPT, ONCE = ", step 0 kept", ", step 0 once"  # without either, points that runs share are dropped, as by default


START = (
    *(way + treated for way in (JACKKNIFE_POOLED, JACKKNIFE_RUN) for treated in ("", KEPT, ONCE)),
    *(RUN_MEAN + treated for treated in ("", KEPT)),
)


def judge_start(series: Series, method: str) -> Outcome:
    """One method on runs that share their step 0, which is dropped, kept, or counted once."""
    recipe = METHODS[method.removesuffix(KEPT).removesuffix(ONCE)]
    if method.endswith(KEPT):
        return judge(series, recipe)
    shared = shared_points(series)
    return _counted_once(series, shared, recipe) if method.endswith(ONCE) else judge(series.at(~shared), recipe)


def _counted_once(series: Series, shared: NDArray[np.bool_], recipe: Estimator) -> Outcome:
    """A point that k runs share counts 1/k in each of them: weighted least squares with run intercepts."""
    same = np.unique(np.column_stack([series.steps, series.covariates]), axis=0, return_inverse=True)[1].ravel()
    weights = np.where(shared, 1.0 / np.bincount(same)[same], 1.0)
    design = residuals.make_design(series.covariates, series.runs, method=recipe.method, within="pooled")
    basis, scores, ridge = design.basis, series.scores, design.ridge
    if recipe.within == "run":
        total = np.bincount(series.runs, weights=weights)[:, None]
        means = [np.zeros((len(total), columns.shape[1])) for columns in (basis, scores)]
        for mean, columns in zip(means, (basis, scores), strict=True):
            np.add.at(mean, series.runs, weights[:, None] * columns)
        basis, scores = (c - (m / total)[series.runs] for c, m in zip((basis, scores), means, strict=True))
        ridge = ridge + 1.0 / len(ridge)
    root = np.sqrt(weights)[:, None]
    weighted = residuals.Design(basis=root * basis, penalty=design.penalty, ridge=ridge)
    moments = residuals.unit_moments(weighted, root * scores, series.units)
    n_units = len(series.unit_names)
    summed = moments.weighted(np.vstack([np.ones(n_units), resample.jackknife_weights(n_units)]))
    solved, _, _ = residuals.coefficients(weighted, summed, recipe.smoothing)
    products = residuals.residual_products(summed, solved)
    r = as_correlations(products)
    found = resample.jackknife_interval(r[0], r[1:], level=recipe.level)
    i, j = np.array(PAIRS).T
    own = products[0]
    return Outcome(
        r=r[0][i, j],
        low=found.low[i, j],
        high=found.high[i, j],
        p_val=found.p_val[i, j],
        products=np.column_stack([own[i, i], own[j, j], own[i, j]]),
    )


def _collect(parts: list[tuple[Estimate, int, int]]) -> Outcome:
    def pick(matrix: str) -> Array:
        return np.array([getattr(f.interval, matrix)[i, j] for f, i, j in parts])

    left = [(f.fit.residuals[:, i], f.fit.residuals[:, j]) for f, i, j in parts]
    return Outcome(
        r=np.array([f.r[i, j] for f, i, j in parts]),
        low=pick("low"),
        high=pick("high"),
        p_val=pick("p_val"),
        products=np.array([(a @ a, b @ b, a @ b) for a, b in left]),
    )


def score_cell(name: str, rho: float, methods: tuple[str, ...], n_sets: int, seed: int) -> dict[str, Any]:
    """Size and coverage of several methods on the same data sets of a cell."""
    draw = np.random.default_rng([seed, zlib.crc32(f"{name} {rho}".encode())])
    said: dict[str, list[Outcome]] = {method: [] for method in methods}
    for _ in range(n_sets):
        series = simulate(SCENARIOS[name], rho, draw)
        for method in methods:
            if name in SHARED:
                said[method].append(judge_start(series, method))
            else:
                said[method].append(judge(_with_units(series, method), METHODS[method.removesuffix(RUNS_AS_UNITS)]))
    return {method: _summarise(outcomes, method) for method, outcomes in said.items()}


RUNS_AS_UNITS = ", runs as units"


def _with_units(series: Series, method: str) -> Series:
    """Where runs share a seed, the seed is the unit unless the method's name says otherwise."""
    if not method.endswith(RUNS_AS_UNITS):
        return series
    return replace(series, units=series.runs, unit_names=series.run_names)


def _summarise(outcomes: list[Outcome], method: str) -> dict[str, Any]:
    r = np.array([o.r for o in outcomes])
    low, high = np.array([o.low for o in outcomes]), np.array([o.high for o in outcomes])
    p_val = np.array([o.p_val for o in outcomes])
    own, other, cross = np.nansum([o.products for o in outcomes], axis=0).T
    ratio = cross / np.sqrt(own * other)
    target = np.tanh(np.nanmean(np.arctanh(r), axis=0)) if method.startswith("run-mean") else ratio
    answered = np.isfinite(low)
    return {
        "data_sets": len(outcomes),
        "rejected": _share(p_val < 0.05, np.isfinite(p_val)),
        "covered": _share((low <= target) & (target <= high), answered),
        "half_width": float(np.nanmean(high - low) / 2),
        "median_r": [round(float(m), 4) for m in np.nanmedian(r, axis=0)],
        "estimand": [round(float(t), 4) for t in target],
        "no_interval": float(1 - answered.mean()),
    }


def _share(hits: NDArray[np.bool_], known: NDArray[np.bool_]) -> float:
    return float(hits[known].mean()) if known.any() else float("nan")


# Speed ---------------------------------------------------------------------------------------------------------------


def long_table(n_runs: int, n_steps: int, seed: int) -> pd.DataFrame:
    """A study as a long table: nine runs per group, one in-domain and seven OOD sets."""
    draw = np.random.default_rng(seed)
    frames = []
    for group in range(n_runs // 9):
        series = simulate(replace(B, steps=(n_steps,)), 0.3, draw)
        names = ["mnli", *series.test_sets[:7]]
        values = np.column_stack([series.covariates, series.scores[:, :7]])
        points = len(values)
        frames.append(
            pd.DataFrame(
                {
                    "run": np.repeat([f"model{group}_run{r}" for r in series.runs], 8),
                    "model": f"model{group}",
                    "train_set": "mnli",
                    "step": np.repeat(series.steps, 8),
                    "test_set": np.tile(names, points),
                    "role": np.tile(["in_domain"] + ["ood"] * 7, points),
                    "value": values.ravel(),
                    "n": np.tile([int(IN_DOMAIN), *SIZES[:7].astype(int)], points),
                }
            )
        )
    return pd.concat(frames, ignore_index=True)


def measure_speed(seed: int) -> dict[str, Any]:
    """Whole study: jackknife, then 2,000 refitted draws of runs, in all groups; and how time grows with runs."""
    from oodles.stats.correlate import partial_correlations

    found: dict[str, Any] = {"seconds_by_runs": {}}
    for n_runs in (36, 72, 144, 288):
        table = long_table(n_runs, 60, seed)
        start = time.perf_counter()
        partial_correlations(table)
        between = time.perf_counter()
        partial_correlations(table, interval="bootstrap", n_resamples=2000)
        found["seconds_by_runs"][str(n_runs)] = {
            "jackknife": round(between - start, 3),
            "bootstrap": round(time.perf_counter() - between, 3),
        }
    one = found["seconds_by_runs"]["144"]
    found["seconds"] = round(one["jackknife"] + one["bootstrap"], 3)
    found["refits"] = 16 * 7 * 2 * (1 + 9) + 16 * 7 * 2 * (1 + 9 + 2000)  # groups x sets x ways x fits
    found["seconds_per_refit"] = found["seconds"] / found["refits"]
    found |= _compare_with_pygam(found["seconds_per_refit"])
    found["peak_memory_gb"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 3)
    return found


def _compare_with_pygam(seconds_per_refit: float) -> dict[str, Any]:
    """Against a loop of pyGAM fits: a slice of 40 fits of 540 points is timed here and now, then scaled to the number
    of refits. `make bench` brings pyGAM aside, without its pins; where it is absent there is no ratio."""
    try:
        from pygam import LinearGAM, s
    except ImportError:
        return {}
    rng = np.random.default_rng(0)
    z = rng.uniform(0.4, 0.9, 540)
    y = z + rng.normal(0.0, 0.02, (41, 540))
    LinearGAM(s(0)).fit(z, y[40])
    start = time.perf_counter()
    for row in y[:40]:
        LinearGAM(s(0)).fit(z, row)
    per_fit = (time.perf_counter() - start) / 40
    return {"pygam_seconds_per_fit": round(per_fit, 5), "times_faster_than_pygam": round(per_fit / seconds_per_refit)}


# Running it ----------------------------------------------------------------------------------------------------------


def plan(long: bool) -> Iterator[tuple[str, Callable[[int], Any]]]:
    """Every piece of work with its name, in order."""
    sets = 1000 if long else 40
    for name in MAIN if long else ("A 9x20", "C 9x20"):
        for rho in RHOS if long else (0.0, 0.6):
            yield _cell_work(name, rho, CHEAP, sets)
    if not long:
        return
    for name in (*FEW, *HARD):
        methods: tuple[str, ...] = CHEAP
        if "shared seeds" in name:
            methods = (
                *CHEAP,
                JACKKNIFE_POOLED + RUNS_AS_UNITS,
                JACKKNIFE_RUN + RUNS_AS_UNITS,
                RUN_MEAN + RUNS_AS_UNITS,
            )
        for rho in (0.0, 0.6):
            yield _cell_work(name, rho, methods, 500)
    for name in SHARED:
        for rho in RHOS:
            yield _cell_work(name, rho, START, 500)
    others = tuple(method for method in METHODS if method not in CHEAP)
    for name in ("A 9x20", "B 9x20", "C 9x20", "D 9x20"):
        for rho in (0.0, 0.6):
            yield _cell_work(name, rho, others, 300, "others: ")
    yield "speed", measure_speed


def _cell_work(
    name: str, rho: float, methods: tuple[str, ...], sets: int, prefix: str = ""
) -> tuple[str, Callable[[int], Any]]:
    return f"{prefix}{name}, rho {rho}", lambda seed: score_cell(name, rho, methods, sets, seed)


def run(long: bool, seed: int, out: Path | None, only: str = "") -> dict[str, Any]:
    """Do what is not done yet, print and save each piece; `only` is done again, and nothing else."""
    done: dict[str, Any] = {"seed": seed, "long": long, "cells": {}}
    if out is not None and out.is_file():
        earlier = json.loads(out.read_text())
        done = earlier if (earlier.get("seed"), earlier.get("long")) == (seed, long) else done
    for label, work in plan(long):
        if label != only and (only or label in done["cells"]):
            continue
        start = time.perf_counter()
        done["cells"][label] = work(seed)
        show(label, done["cells"][label], time.perf_counter() - start)
        if out is not None:
            save(out, done)
    return done


def show(label: str, found: dict[str, Any], seconds: float) -> None:
    print(f"{label}  ({seconds:.1f} s)", flush=True)
    for method, numbers in found.items():
        if isinstance(numbers, dict) and "rejected" in numbers:
            print(
                f"    {method:42s} rejected {numbers['rejected']:6.1%}  covered {numbers['covered']:6.1%}  "
                f"half width {numbers['half_width']:.2f}  estimand {numbers['estimand']}",
                flush=True,
            )
        else:
            print(f"    {method}: {numbers}", flush=True)


def save(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_suffix(".part")
    aside.write_text(json.dumps(content, indent=1) + "\n")
    aside.replace(path)


BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


def markdown(found: dict[str, Any]) -> str:
    """Everything in a results file as tables for the documentation."""
    cells = found["cells"]
    parts = [
        ("Nine runs, scenarios A to D", MAIN, ""),
        ("Three runs: no test is offered", FEW, ""),
        ("Harder scenarios, nine runs of 20 steps where not said otherwise", HARD, ""),
        ("Runs that share their step 0: dropped (the default), kept, counted once", SHARED, ""),
        ("Every other method offered", MAIN, "others: "),
    ]
    text = []
    for title, names, prefix in parts:
        rows = [row for name in names for row in _cell_rows(cells, name, prefix)]
        if rows:
            text += [f"### {title}", "", CELL_HEAD, "|---|---|---|---|---|---|---|", *rows, ""]
    if "speed" in cells:
        text += ["### Speed", "", _speed_text(cells["speed"]), ""]
    return "\n".join(text)


CELL_HEAD = (
    "| scenario | method | data sets | rejected at rho 0, % | covered at rho 0 / .3 / .6, % | half width at 0 "
    "| estimand at rho 0, four pairs |"
)


def _cell_rows(cells: dict[str, Any], name: str, prefix: str) -> Iterator[str]:
    own = {rho: cells.get(f"{prefix}{name}, rho {rho}", {}) for rho in RHOS}
    for method, null in own[0.0].items():
        at = [own[rho].get(method) for rho in RHOS]
        covered = " / ".join("-" if one is None else f"{100 * one['covered']:.1f}" for one in at)
        targets = " ".join(f"{value:.2f}" for value in null["estimand"])
        yield (
            f"| {name} | {method} | {null['data_sets']} | {100 * null['rejected']:.1f} | {covered} "
            f"| {null['half_width']:.2f} | {targets} |"
        )


def _speed_text(speed: dict[str, Any]) -> str:
    by_runs = ", ".join(
        f"{runs} runs {one['jackknife'] + one['bootstrap']:.1f} s" for runs, one in speed["seconds_by_runs"].items()
    )
    compared = ""
    if "times_faster_than_pygam" in speed:
        compared = (
            f" One refit takes {1e6 * speed['seconds_per_refit']:.1f} microseconds, a fit by pyGAM "
            f"{1e3 * speed['pygam_seconds_per_fit']:.1f} milliseconds (mean of 40 fits of 540 points, timed "
            f"in the same run and scaled): {speed['times_faster_than_pygam']} times faster."
        )
    return (
        f"144 runs of 60 steps on 8 sets, 16 groups, pooled and run, jackknife and then 2,000 refitted draws of runs: "
        f"{speed['seconds']:.1f} s for {speed['refits']} refits, {speed['peak_memory_gb']:.2f} GB.{compared} "
        f"By number of runs: {by_runs}."
    )


def put_into(page: Path, tables: str, begin: str = BEGIN, end: str = END) -> None:
    """Replace what stands between the two marks of a page."""
    before, rest = page.read_text().split(begin, 1)
    after = rest.split(end, 1)[1]
    page.write_text(f"{before}{begin}\n\n{tables}\n{end}{after}")


def merge(source: Path, target: Path, key: str = "statistics") -> None:
    """Put the results under a key of the benchmark file."""
    everything = json.loads(target.read_text()) if target.is_file() else {}
    everything[key] = json.loads(source.read_text())
    save(target, everything)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--long", action="store_true", help="all scenarios and methods; about an hour on one core")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="JSON to write and to go on from")
    parser.add_argument("--speed", action="store_true", help="measure the speed and nothing else")
    parser.add_argument("--merge", type=Path, help="put this JSON into benchmarks/results.json and stop")
    parser.add_argument("--table", type=Path, help="print this JSON as Markdown and stop")
    parser.add_argument("--into", type=Path, help="with --table: a page that has the two marks")
    chosen = parser.parse_args(arguments)
    if chosen.table:
        tables = markdown(json.loads(chosen.table.read_text()))
        put_into(chosen.into, tables) if chosen.into else print(tables)
        return 0
    if chosen.merge:
        merge(chosen.merge, Path(__file__).parent / "results.json")
        return 0
    run(chosen.long or chosen.speed, chosen.seed, chosen.out, "speed" if chosen.speed else "")
    return 0


if __name__ == "__main__":
    sys.exit(main())
