"""Families of trajectories that the intervals must hold in, beyond those of benchmarks/statistics.py.

    python -m benchmarks.families --cells develop --sets 300            on which the method was developed
    python -m benchmarks.families --cells confirm --sets 1000 --out build/families.json    written down before
    python -m benchmarks.families --table build/families.json           as Markdown (--into docs/statistics-evidence.md)
    python -m benchmarks.families --merge build/families.json           into benchmarks/results.json

A family says how runs come about: how large the residuals of a run are, how long runs are, whether they learn, what
they share, how the OOD scores follow the in-domain score and how many examples the in-domain score is made of.
The cells of `confirm` differ from those of `develop` in every number; they were committed before any was scored.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import special

from benchmarks.statistics import merge, put_into, save
from oodles.stats import noise
from oodles.stats.correlate import for_group, partial_correlations
from oodles.stats.doubts import ONE_PART
from oodles.stats.estimates import Estimator, as_correlations, estimate, interval_of, usable_points
from oodles.stats.outcomes import Outcomes
from oodles.stats.pairs import CARRIES, UNEVEN, uneven_units
from oodles.stats.resample import SIGNIFICANT, t_interval
from oodles.stats.residuals import fit_design, make_design
from oodles.stats.series import Series

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
RESIDUAL = 0.025  # sd of a residual
LENGTH = 0.1  # its memory, in runs
MANY = 10_000  # examples of a set whose noise is next to none


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """How the runs of a data set come about."""

    runs: int = 9
    steps: tuple[int, ...] = (15,)  # cycles over runs
    n_id: int = MANY
    n: int = 2000  # examples of every OOD set
    links: Literal["bends", "lines", "u", "s", "vee", "mixed"] = "bends"
    curve: Literal["rise", "jump", "still"] = "rise"  # of the in-domain score
    memory: Literal["short", "walk"] = "short"  # of residuals
    sizes: Literal["equal", "lognormal", "t3", "exponential", "first", "two"] = "equal"  # of a run's residuals
    factor: float = 1.0  # of the first run, or of the first two; or the sd of the logarithm
    dull: float = 0.0  # share of runs that never learn
    grow: float = 0.0  # residuals grow (or shrink) by exp(grow) over a run
    residual: float = RESIDUAL
    length: float = LENGTH
    level: float = RESIDUAL  # sd of a run's own level on each set
    clusters: int = 0  # runs in this many models, or draws of data, that share levels
    shared: float = 1.0  # share of the level's variance that a cluster has in common
    stable: float = 0.0  # share of an in-domain example's luck that never changes
    records: bool = False  # whether the in-domain examples are kept
    drift: float = 0.0  # sd of a common drift towards one answer
    sets: int = 8
    every: bool = False  # all pairs of sets correlate, not only disjoint ones
    start: float = 0.0  # residual that all runs and sets have in common at the first steps, in sd
    start_steps: int = 1  # how many


SOUND: dict[str, Family] = {  # nothing unusual: size and coverage must hold, and caveats must be rare
    "plain": Family(),
    "plateau, then a jump": Family(curve="jump"),
    "5 runs x 8": Family(runs=5, steps=(8,)),
    "18 runs x 40": Family(runs=18, steps=(40,)),
    "9 runs x 60": Family(steps=(60,)),
    "unequal steps, 3 to 60": Family(steps=(3, 8, 20, 60)),
    "residuals that grow": Family(grow=1.5),
    "items fixed over steps": Family(stable=0.8, n_id=2000),
    "U-shaped links": Family(links="u"),
    "random walks": Family(memory="walk", level=0.0),
}
HARD: dict[str, Family] = {
    "walks of run-specific size": Family(memory="walk", level=0.0, sizes="lognormal", factor=0.7),
    "t3 sizes": Family(sizes="t3"),
    "one run 5 times as large": Family(sizes="first", factor=5.0),
    "half never learn, 8 runs": Family(runs=8, dull=0.5),
    "one run of 120 steps, eight of 10": Family(steps=(120, *[10] * 8)),
}
CLUSTERS: dict[str, Family] = {
    "3 models x 3 runs": Family(clusters=3),
    "6 draws x 3 runs": Family(runs=18, clusters=6),
}
NOISY: dict[str, Family] = {
    f"n_id {n}, {links}{', records' if kept else ''}": Family(n_id=n, links=links, level=0.0, records=kept)
    for links in ("lines", "u")
    for n in (200, 1000, 2000)
    for kept in (True, False)
}
CONFIRM_SOUND: dict[str, Family] = {
    "7 runs x 12": Family(runs=7, steps=(12,)),
    "6 runs x 30, jump": Family(runs=6, steps=(30,), curve="jump"),
    "14 runs x 10": Family(runs=14, steps=(10,), links="mixed"),
    "12 runs, 8 to 60 steps": Family(runs=12, steps=(8, 15, 30, 60)),
    "residuals that shrink": Family(runs=8, grow=-1.2, steps=(20,)),
    "items fixed, n_id 1500": Family(runs=10, stable=0.9, n_id=1500, steps=(12,)),
    "vees, large n_id": Family(links="vee", runs=8, steps=(20,)),
    "walks with levels": Family(memory="walk", runs=7, steps=(25,)),
}
CONFIRM_HARD: dict[str, Family] = {
    "exponential sizes, 7 runs x 25": Family(runs=7, steps=(25,), sizes="exponential"),
    "walks of run-specific size, 12 runs": Family(
        runs=12, steps=(20,), memory="walk", level=0.01, sizes="lognormal", factor=1.0
    ),
    "two of 10 runs 4 times as large": Family(runs=10, steps=(12,), sizes="two", factor=4.0),
    "t3 sizes, 6 runs": Family(runs=6, steps=(20,), sizes="t3"),
    "one run of 60 steps, nine of 6": Family(runs=10, steps=(60, *[6] * 9)),
    "a third never learns, 12 runs": Family(runs=12, dull=1 / 3),
}
STUDY: dict[str, Family] = {  # the values of docs/smollm2-nli.md: 7 points a run, no memory, 512 examples in-domain
    f"{runs} runs x 7, residuals of {size}": Family(
        runs=runs, steps=(7,), residual=size, length=0.01, level=0.3 * size, n=MANY, n_id=512, stable=0.25, records=True
    )
    for runs in (5, 9)
    for size in (0.011, 0.022, 0.063)
}
CONFIRM_CLUSTERS: dict[str, Family] = {
    "4 models x 3 runs": Family(runs=12, clusters=4, steps=(12,)),
    "3 draws x 4 runs, half shared": Family(runs=12, clusters=3, shared=0.5),
}
CONFIRM_NOISY: dict[str, Family] = {
    f"n_id {n}, {links}{', fixed' if stable else ''}{', records' if kept else ''}": Family(
        n_id=n, links=links, level=level, records=kept, stable=stable, runs=runs, steps=(20,)
    )
    for n, links, level, stable, runs in (
        (200, "s", 0.0, 0.0, 9),
        (300, "vee", 0.01, 0.0, 10),
        (200, "mixed", 0.0, 0.8, 9),
        (800, "u", 0.02, 0.0, 7),
    )
    for kept in (True, False)
}
CONFIRM_NOISY |= {  # for the correction by a smooth distribution of true scores: committed before it was scored on any
    "n_id 220, u, 10 runs x 12, records": Family(n_id=220, links="u", level=0.01, records=True, runs=10, steps=(12,)),
    "n_id 250, bends, half fixed, records": Family(
        n_id=250, links="bends", level=0.0, stable=0.5, records=True, runs=8, steps=(25,)
    ),
    "n_id 300, lines, jump, records": Family(
        n_id=300, links="lines", curve="jump", level=0.015, records=True, runs=8, steps=(18,)
    ),
}
HEADLINE = {f"n_id {n}": Family(n_id=n, links="mixed", sets=7, every=True) for n in (200, 500, 2000, 6000)}
SILENT = (200, 500, 2000, 6000, 20_000)  # examples of an in-domain set in tables that do not tell it
CONFIRM_HEADLINE = {
    "n_id 150, 7 runs": Family(n_id=150, links="u", sets=7, every=True, runs=7),
    "n_id 350": Family(n_id=350, links="lines", sets=7, every=True, level=0.0, steps=(25,)),
    "n_id 1000, fixed items": Family(n_id=1000, links="mixed", sets=7, every=True, stable=0.7),
    "n_id 250, fixed items, records": Family(
        n_id=250, links="mixed", sets=7, every=True, stable=0.6, records=True, level=0.01, steps=(20,)
    ),
    "n_id 400, u, records": Family(n_id=400, links="u", sets=7, every=True, records=True, level=0.0),
}

PARTS = {
    "9 runs x 8": Family(steps=(8,), links="mixed", sets=7, every=True),
    "9 runs x 8, plateau, then a jump": Family(steps=(8,), curve="jump", links="mixed", sets=7, every=True),
    "9 runs x 40": Family(steps=(40,), links="mixed", sets=7, every=True),
    "5 runs x 8": Family(runs=5, steps=(8,), links="mixed", sets=7, every=True),
    "9 runs x 8, residuals that grow": Family(steps=(8,), links="mixed", sets=7, every=True, grow=1.5),
    "9 runs x 8, random walks": Family(steps=(8,), links="mixed", sets=7, every=True, memory="walk", level=0.0),
    "9 runs x 5, two sets": Family(steps=(5,), links="mixed", sets=2),
    "6 runs x 4, two sets": Family(runs=6, steps=(4,), links="mixed", sets=2),
}
STARTS = {
    f"{name}, a common start": replace(PARTS[name], start=4.0)
    for name in ("9 runs x 8", "9 runs x 8, plateau, then a jump")
} | {
    f"9 runs x {steps}, plateau, then a jump, {several} common steps": replace(
        PARTS["9 runs x 8, plateau, then a jump"], steps=(steps,), start=4.0, start_steps=several
    )
    for steps, several in ((8, 2), (16, 3), (40, 8))
}


def links_of(family: Family) -> list[tuple[str, float]]:
    """The shape of each set's link, with a sign."""
    one = {
        "lines": [("line", 0.9), ("line", 0.7)],
        "u": [("u", 1.0), ("u", 0.8)],
        "s": [("s", 1.0), ("s", 0.8)],
        "vee": [("vee", 1.0), ("line", -0.6)],
        "bends": [("line", 0.9), ("bend", 1.0), ("root", 1.0), ("s", 0.6), ("line", -0.3), ("u", 0.3)],
        "mixed": [("line", 0.9), ("u", 1.0), ("s", 0.8), ("line", -0.5), ("bend", 1.0)],
    }[family.links]
    return [one[k % len(one)] for k in range(family.sets)]


def link(kind: str, size: float, z: Array) -> Array:
    """An OOD score without residual, given the in-domain score."""
    if kind == "line":
        return np.asarray(0.55 + size * (z - 0.6), dtype=float)
    if kind == "u":
        return np.asarray(0.45 + size * 6.0 * (z - 0.68) ** 2, dtype=float)
    if kind == "bend":
        return np.asarray(0.5 + size * 1.6 * np.maximum(z - 0.5, 0.0) ** 2, dtype=float)
    if kind == "root":
        return np.asarray(0.45 + size * 0.35 * np.sqrt(np.maximum(z - 0.45, 0.0)), dtype=float)
    if kind == "vee":
        return np.asarray(0.45 + size * 0.9 * np.abs(z - 0.68), dtype=float)
    return np.asarray(0.5 + size * 0.3 * special.expit((z - 0.7) * 20), dtype=float)


def pairs_of(family: Family) -> list[tuple[int, int]]:
    """The pairs of sets that are scored."""
    if family.every:
        return [(i, j) for i in range(family.sets) for j in range(i + 1, family.sets)]
    return [(k, k + 1) for k in range(0, family.sets - 1, 2)]


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class DataSet:
    """Scores as the analysis sees them, and what they would be without noise."""

    series: Series
    z: Array  # in-domain scores of endless sets
    scores: Array  # OOD scores of endless sets
    examples: Outcomes | None  # of the in-domain set
    models: tuple[str, ...]  # of each run
    share: Array  # share of Yes at every point, of every set; empty where answers do not drift

    def outcomes(
        self, _series: Series, name: str, values: Array, _metric: str = "accuracy", /
    ) -> tuple[Outcomes | None, str]:
        """In-domain records, as `oodles.stats.outcomes.Examples` has it."""
        if self.examples is None or name not in self.series.in_domain:
            return None, f"{name}: no records"
        if not np.allclose(self.examples.correct.mean(axis=1), values):  # a table that was read in another order
            raise ValueError(f"{name}: records are not in the order of the points")
        return self.examples, ""


def simulate(family: Family, rho: float, draw: np.random.Generator) -> DataSet:
    """One data set of a family."""
    counts = np.array([family.steps[r % len(family.steps)] for r in range(family.runs)])
    runs = np.repeat(np.arange(family.runs), counts)
    times = np.concatenate([np.linspace(0.0, 1.0, c) if c > 1 else np.ones(1) for c in counts])
    learning = draw.permutation(family.runs) >= round(family.dull * family.runs)
    z = _curves(family, runs, times, learning, draw)
    residual = _residuals(family, rho, runs, times, draw)
    steps = np.concatenate([np.arange(c) for c in counts])
    residual -= family.start * family.residual * (steps < family.start_steps)[:, None]
    drift = family.drift * _series(runs, times, 1, 0.3, draw)[:, 0]
    shape = links_of(family)
    latent = np.column_stack([link(kind, size, z) for kind, size in shape]) + residual
    leaning = np.where(np.arange(family.sets) % 3 == 2, -0.7, 0.8)  # 2 x share of examples to be answered Yes - 1
    latent = np.clip(latent + drift[:, None] * leaning, 0.01, 0.99)
    observed = draw.binomial(family.n, latent) / family.n
    share = np.clip(0.5 + 0.5 * leaning * (2 * latent - 1) + drift[:, None], 0.0, 1.0)
    share = draw.binomial(family.n, share) / family.n
    inside, examples = _in_domain(family, z, draw)
    names = tuple(f"run{r}" for r in range(family.runs))
    cluster = np.arange(family.runs) % family.clusters if family.clusters else np.arange(family.runs)
    series = Series(
        group={},
        test_sets=tuple(f"set{k}" for k in range(family.sets)),
        in_domain=("in-domain",),
        run_names=names,
        unit_names=names,
        runs=runs,
        units=runs,
        steps=steps,
        covariates=inside[:, None],
        scores=observed,
        covariate_sizes=np.full((len(z), 1), float(family.n_id)),
        sizes=np.full(observed.shape, float(family.n)),
    )
    return DataSet(
        series=series,
        z=z,
        scores=latent,
        examples=examples if family.records else None,
        models=tuple(f"model{c}" for c in cluster),
        share=share if family.drift else np.empty(0),
    )


def _curves(family: Family, runs: Ints, times: Array, learning: NDArray[np.bool_], draw: np.random.Generator) -> Array:
    top = draw.normal(0.85, 0.02, family.runs)[runs]
    pace = np.exp(0.3 * draw.normal(size=family.runs))[runs]
    wobble = 0.015 * _series(runs, times, 1, 0.05, draw)[:, 0]
    if family.curve == "jump":
        start = draw.uniform(0.2, 0.7, family.runs)[runs]
        rising = 0.5 + (top - 0.5) * special.expit((times - start) * 30)
    elif family.curve == "still":
        rising = top
    else:
        rising = 0.5 + (top - 0.5) * (1 - np.exp(-times / (0.25 * pace)))
    return np.asarray(np.clip(np.where(learning[runs], rising, 0.5) + wobble, 0.02, 0.98), dtype=float)


def _series(runs: Ints, times: Array, columns: int, length: float, draw: np.random.Generator) -> Array:
    """Gaussian series with a memory of `length` within each run, unit variance."""
    shocks = draw.normal(size=(len(runs), columns))
    found = shocks.copy()
    first = np.concatenate([[True], np.diff(runs) > 0])
    keep = np.where(first, 0.0, np.exp(-np.diff(times, prepend=0.0).clip(0) / length))
    for t in range(1, len(runs)):
        if not first[t]:
            found[t] = keep[t] * found[t - 1] + np.sqrt(1 - keep[t] ** 2) * shocks[t]
    return found


def _residuals(family: Family, rho: float, runs: Ints, times: Array, draw: np.random.Generator) -> Array:
    own = _walks(runs, times, family.sets, draw) if family.memory == "walk" else None
    own = _series(runs, times, family.sets, family.length, draw) if own is None else own
    clusters = family.clusters or family.runs
    together = draw.normal(size=(clusters, family.sets))[np.arange(family.runs) % clusters]
    apart = draw.normal(size=(family.runs, family.sets))
    share = family.shared if family.clusters else 0.0
    level = np.sqrt(share) * together + np.sqrt(1 - share) * apart
    for part in (own, level):
        _correlate(part, family, rho)
    size = _run_sizes(family, draw)[runs] * np.exp(family.grow * (times - 0.5))
    return np.asarray(family.residual * size[:, None] * own + family.level * level[runs], dtype=float)


def _walks(runs: Ints, times: Array, columns: int, draw: np.random.Generator) -> Array:
    first = np.concatenate([[True], np.diff(runs) > 0])
    gaps = np.where(first, 1 / 15, np.diff(times, prepend=0.0).clip(0))
    summed = np.cumsum(draw.normal(size=(len(runs), columns)) * np.sqrt(gaps)[:, None], axis=0)
    before = np.concatenate([np.zeros((1, columns)), summed[:-1]])[np.flatnonzero(first)]
    return np.asarray(np.sqrt(2.0) * (summed - before[runs]), dtype=float)


def _correlate(part: Array, family: Family, rho: float) -> None:
    """Correlate the columns in place: all by one factor, or two by two."""
    if family.every:
        if rho:
            common = part[:, :1].copy()
            part[:, 1:] = rho * common + np.sqrt(1 - rho**2) * part[:, 1:]
        return
    for i, j in pairs_of(family):
        part[:, j] = rho * part[:, i] + np.sqrt(1 - rho**2) * part[:, j]


def _run_sizes(family: Family, draw: np.random.Generator) -> Array:
    size = np.ones(family.runs)
    if family.sizes == "lognormal":
        size = np.exp(family.factor * draw.normal(size=family.runs))
    elif family.sizes == "t3":
        size = np.abs(draw.standard_t(3, size=family.runs))
    elif family.sizes == "exponential":
        size = draw.exponential(size=family.runs)
    elif family.sizes in ("first", "two"):
        size[: 1 if family.sizes == "first" else 2] = family.factor
    return np.asarray(size, dtype=float)


def _in_domain(family: Family, z: Array, draw: np.random.Generator) -> tuple[Array, Outcomes | None]:
    """In-domain scores, and the examples behind them where these are fixed or kept."""
    if not family.stable and not family.records:
        return draw.binomial(family.n_id, z) / family.n_id, None
    luck = draw.standard_normal((len(z), family.n_id), dtype=np.float32) * np.float32(np.sqrt(1 - family.stable))
    luck += (np.sqrt(family.stable) * draw.normal(size=family.n_id)).astype(np.float32)
    correct = (luck < special.ndtri(z)[:, None].astype(np.float32)).astype(np.int8)
    outcomes = Outcomes(correct=correct, items=np.arange(family.n_id), strata=None, shared=True)
    return correct.mean(axis=1, dtype=float), outcomes


def single(models: int, rho: float, bend: float, draw: np.random.Generator) -> Series:
    """Models with one checkpoint each: an in-domain score of endless examples, two sets, and a bend of their links."""
    z = draw.normal(0.75, 0.06, models)
    e = RESIDUAL * draw.normal(size=(models, 2))
    e[:, 1] = rho * e[:, 0] + np.sqrt(1 - rho**2) * e[:, 1]
    scores = np.column_stack([0.4 + 0.9 * (z - 0.7), 0.3 + 0.6 * (z - 0.7)]) + bend * ((z - 0.75) ** 2)[:, None] + e
    names = tuple(f"model{m}" for m in range(models))
    index = np.arange(models)
    return Series(
        group={},
        test_sets=("set0", "set1"),
        in_domain=("in-domain",),
        run_names=names,
        unit_names=names,
        runs=index,
        units=index,
        steps=np.zeros(models, dtype=np.int64),
        covariates=z[:, None],
        scores=scores,
        covariate_sizes=np.full((models, 1), np.nan),
        sizes=np.full(scores.shape, np.nan),
    )


SINGLE = ((10, 0.0), (19, 0.0), (60, 0.0), (200, 0.0), (19, 1.5))  # models, bend
CONFIRM_SINGLE = ((14, 0.0), (30, 0.0), (30, 2.5), (120, 2.5))


def without_noise(family: Family) -> Family:
    """The same family scored on endless in-domain examples."""
    return replace(family, n_id=10**7, stable=0.0, records=False)


# Scoring -------------------------------------------------------------------------------------------------------------


def score_intervals(family: Family, rho: float, n_sets: int, seed: int) -> dict[str, Any]:
    """Size (or power), coverage and the share of pairs with a caveat on unequal runs, pooled and run."""
    found: dict[str, Any] = {}
    i, j = np.array(pairs_of(family)).T
    for within in ("pooled", "run"):
        recipe, draw = Estimator(within=within), np.random.default_rng([seed, round(10 * rho) + 10])
        low, high, p_val, carried, uneven, products = [], [], [], [], [], np.zeros((family.sets, family.sets))
        for _ in range(n_sets):
            series = simulate(family, rho, draw).series
            estimated = estimate(series.at(usable_points(series, within)), recipe)
            products += estimated.fit.residuals.T @ estimated.fit.residuals
            low.append(estimated.interval.low[i, j])
            high.append(estimated.interval.high[i, j])
            p_val.append(estimated.interval.p_val[i, j])
            carried.append(estimated.shares.max(axis=0)[i, j] > CARRIES)
            uneven.append(uneven_units(estimated)[i, j] < UNEVEN if within == "run" else np.zeros(len(i), dtype=bool))
        target = as_correlations(products[None])[0][i, j]
        known = np.isfinite(low)
        found[within] = {
            "data_sets": n_sets,
            "rejected": float((np.array(p_val) < 0.05)[known].mean()),
            "covered": float(((np.array(low) <= target) & (target <= np.array(high)))[known].mean()),
            "carried": float(np.mean(carried)),
            "warned": float(np.mean(np.array(carried) | np.array(uneven))),
        }
    return found


def score_noise(family: Family, rho: float, n_sets: int, seed: int) -> dict[str, Any]:
    """Bias of r and of r without in-domain noise, size and coverage of the second; doubt as the result has it."""
    found: dict[str, Any] = {}
    i, j = np.array(pairs_of(family)).T
    for within in ("pooled", "run"):
        recipe, draw = Estimator(within=within), np.random.default_rng([seed, round(10 * rho) + 10])
        plain, better, low, high, p_val, doubted, truth = [], [], [], [], [], [], np.zeros((family.sets, family.sets))
        for _ in range(n_sets):
            data = simulate(family, rho, draw)
            estimated = estimate(data.series, recipe)
            inside = noise.correct(estimated, data, metric="accuracy", method="gam", level=0.95).inside
            design = make_design(data.z[:, None], data.series.runs, method="gam", within=within)
            left = fit_design(design, data.series.scores).residuals
            truth += left.T @ left
            assert inside.r is not None
            assert inside.left_out is not None
            limits = interval_of(estimated, inside.r, as_correlations(inside.left_out), recipe)
            blurred = inside.unsure(estimated.fit.residuals)
            plain.append(estimated.r[i, j])
            better.append(inside.r[i, j])
            low.append(limits.low[i, j])
            high.append(limits.high[i, j])
            p_val.append(limits.p_val[i, j])
            doubted.append(blurred[i] | blurred[j])
        target = as_correlations(truth[None])[0][i, j]
        known = np.isfinite(low)
        found[within] = {
            "data_sets": n_sets,
            "truth": float(target.mean()),
            "bias": float(np.nanmedian(np.array(plain) - target)),
            "bias_corrected": float(np.nanmedian(np.array(better) - target)),
            "rejected": float((np.array(p_val) < 0.05)[known].mean()),
            "covered": float(((np.array(low) <= target) & (target <= np.array(high)))[known].mean()),
            "unsure": float(np.mean(doubted)),
        }
    return found


def long_table(data: DataSet) -> pd.DataFrame:
    """A data set as the long table that a user has; with the share of Yes where answers drift."""
    series = data.series
    names = ["in-domain", *series.test_sets]
    values = np.column_stack([series.covariates, series.scores])
    rows = pd.DataFrame(
        {
            "run": np.repeat([series.run_names[r] for r in series.runs], len(names)),
            "model": "m",
            "step": np.repeat(series.steps, len(names)),
            "test_set": np.tile(names, len(values)),
            "role": np.tile(["in_domain"] + ["ood"] * len(series.test_sets), len(values)),
            "value": values.ravel(),
            "n": np.column_stack([series.covariate_sizes, series.sizes]).ravel(),
            "metric": "accuracy",
        }
    )
    if data.share.size == 0:
        return rows
    shares = rows[rows["role"] == "ood"].assign(metric="share:Yes", value=data.share.ravel())
    rest = shares.assign(metric="share:No", value=1 - shares["value"])
    return pd.concat([rows, shares, rest], ignore_index=True)


def score_headline(family: Family, rho: float, n_sets: int, seed: int) -> dict[str, Any]:
    """How often the verdict claims a relation, and the share it counts as clear: of all tests, and within runs."""
    draw = np.random.default_rng([seed, round(10 * rho) + 10])
    claimed, clear, within_runs = [], [], []
    for _ in range(n_sets):
        data = simulate(family, rho, draw)
        table = partial_correlations(long_table(data), data if family.records else None).table
        claimed.append(bool(table["clear"].any()))
        clear.append(float(table["clear"].mean()))
        within_runs.append(float(table.loc[table["within"] == "run", "clear"].mean()))
    shares = {"claimed": claimed, "clear": clear, "within_runs": within_runs}
    return {"data_sets": n_sets, **{name: float(np.mean(values)) for name, values in shares.items()}}


def score_silent(family: Family, rho: float, n_sets: int, seed: int) -> dict[str, Any]:
    """How often the verdict claims a relation where the table has no n: by default, and with in-domain scores exact."""
    draw = np.random.default_rng([seed, round(10 * rho) + 10])
    claimed, exact = [], []
    for _ in range(n_sets):
        table = long_table(simulate(family, rho, draw)).drop(columns="n")
        claimed.append(bool(partial_correlations(table).table["clear"].any()))
        exact.append(bool(partial_correlations(table, exact=True).table["clear"].any()))
    return {"data_sets": n_sets, "claimed": float(np.mean(claimed)), "exact": float(np.mean(exact))}


def score_parts(family: Family, rho: float, n_sets: int, seed: int) -> dict[str, Any]:
    """How many tests are clear, and how many would be if they did not rest on one part of training."""
    draw = np.random.default_rng([seed, round(10 * rho) + 10])
    clear, doubted, claimed, before = [], [], [], []
    for _ in range(n_sets):
        table = partial_correlations(long_table(simulate(family, rho, draw))).table
        of_one_part = (table["doubt"] == ONE_PART) & (table["p_said"] < SIGNIFICANT)
        clear.append(float(table["clear"].mean()))
        doubted.append(float(of_one_part.mean()))
        claimed.append(bool(table["clear"].any()))
        before.append(bool((table["clear"] | of_one_part).any()))
    shares = {"clear": clear, "one_part": doubted, "claimed": claimed, "claimed_with": before}
    return {"data_sets": n_sets, **{name: float(np.mean(values)) for name, values in shares.items()}}


def score_single(models: int, bend: float, n_sets: int, seed: int) -> dict[str, Any]:
    """Models with one checkpoint each: size and power of the default beside the classical t test on a line."""
    found: dict[str, Any] = {"data_sets": n_sets}
    for rho in (0.0, 0.6):
        draw = np.random.default_rng([seed, models, round(10 * rho)])
        own, exact = [], []
        for _ in range(n_sets):
            series = single(models, rho, bend, draw)
            own.append(estimate(series, for_group(Estimator(), series, None)).interval.p_val[0, 1] < 0.05)
            line = estimate(series, Estimator(method="linear"))
            exact.append(t_interval(line.r[0, 1], line.left[0], level=0.95).p_val < 0.05)
        found[f"rho {rho}"] = {"default": float(np.mean(own)), "t test on a line": float(np.mean(exact))}
    return found


Work = tuple[str, Callable[[int, int], dict[str, Any]]]


def plan(cells: str) -> Iterator[Work]:
    """Every piece of work with its name: it takes a number of data sets and a seed."""
    confirm = cells == "confirm"
    sound, hard = (CONFIRM_SOUND, CONFIRM_HARD) if confirm else (SOUND, HARD)
    for kind, families in (("sound", sound), ("dominated", hard)):
        for name, family in families.items():
            for rho in (0.0, 0.6):
                yield f"{kind}: {name}, rho {rho}", partial(score_intervals, family, rho)
    for name, family in (CONFIRM_NOISY if confirm else NOISY).items():
        for rho in (-0.3, 0.0, 0.6):
            yield f"noise: {name}, rho {rho}", partial(score_noise, family, rho)
    for name, family in (STUDY if confirm else {}).items():
        for rho in (0.0, 0.6):
            yield f"study: {name}, rho {rho}", partial(score_noise, family, rho)
    for name, family in (CONFIRM_HEADLINE if confirm else HEADLINE).items():
        yield f"headline: {name}, rho 0.0", partial(score_headline, family, 0.0)
    drifting = replace(HEADLINE["n_id 2000"], drift=0.03)
    yield "headline: n_id 2000, Yes drift, rho 0.0", partial(score_headline, drifting, 0.0)
    strong = HEADLINE["n_id 2000"]
    yield "headline: n_id 2000, rho 0.6", partial(score_headline, strong, 0.6)
    yield "headline: n_id 2000, records, rho 0.6", partial(score_headline, replace(strong, records=True), 0.6)
    yield "headline: no noise, rho 0.6", partial(score_headline, without_noise(strong), 0.6)
    for n_id in SILENT:
        yield f"silent: n_id {n_id}, rho 0.0", partial(score_silent, replace(strong, n_id=n_id), 0.0)
    yield "silent: n_id 2000, rho 0.6", partial(score_silent, strong, 0.6)
    for name, family in PARTS.items():
        yield f"parts: {name}, rho 0.6", partial(score_parts, family, 0.6)
    for name, family in STARTS.items():
        yield f"parts: {name}, rho 0.0", partial(score_parts, family, 0.0)
    for models, bend in CONFIRM_SINGLE if confirm else SINGLE:
        yield f"single: {models} models, bend {bend:g}", partial(score_single, models, bend)


def run(cells: str, n_sets: int, seed: int, out: Path | None, only: str = "") -> dict[str, Any]:
    """Do what is not done yet; print and save each piece."""
    done: dict[str, Any] = {"seed": seed, "cells_of": cells, "sets": n_sets, "cells": {}}
    if out is not None and out.is_file():
        earlier = json.loads(out.read_text())
        done = earlier if all(earlier.get(k) == done[k] for k in ("seed", "cells_of", "sets")) else done
    for label, work in plan(cells):
        if label in done["cells"] or not label.startswith(only):
            continue
        done["cells"][label] = work(n_sets, seed)
        print(label, done["cells"][label], flush=True)
        if out is not None:
            save(out, done)
    return done


NOISES = "| family | way | data sets | truth | bias of r | bias without noise | rejected, % | covered, % | unsure, % |"
UNITS = "| family | way | data sets | rejected, % | covered, % | a run carries > 40 %, % | that, or runs differ, % |"
HEADS = {
    "sound": UNITS,
    "dominated": UNITS,
    "noise": NOISES,
    "study": NOISES,
    "headline": "| family | data sets | a relation claimed, % | tests clear, % | within runs alone, % |",
    "silent": "| family | data sets | a relation claimed, % | with `--exact`, % |",
    "parts": "| family | data sets | tests clear, % | rest on one part, % | claimed, % | claimed if counted, % |",
    "single": "| models | data sets | rejected at 0: default, t on a line, % | at .6: default, t on a line, % |",
}
TITLES = {
    "sound": "Nothing unusual",
    "dominated": "A run that dominates",
    "noise": "Noise of the in-domain set",
    "study": "With the values of a real study",
    "headline": "What the verdict claims",
    "silent": "Without n",
    "parts": "One part of training",
    "single": "Models with one checkpoint each",
}


def markdown(found: dict[str, Any]) -> str:
    """All cells as tables."""
    text = []
    for kind, title in TITLES.items():
        rows = [
            row
            for label, cell in found["cells"].items()
            if label.startswith(f"{kind}: ")
            for row in _rows(kind, label.removeprefix(f"{kind}: "), cell)
        ]
        if rows:
            text += [f"#### {title}", "", HEADS[kind], "|---" * (HEADS[kind].count("|") - 1) + "|", *rows, ""]
    return "\n".join(text)


def _rows(kind: str, name: str, cell: dict[str, Any]) -> Iterator[str]:
    if kind == "headline":
        shares = [f"{100 * cell[key]:.1f}" for key in ("claimed", "clear", "within_runs")]
        yield f"| {name} | {cell['data_sets']} | {' | '.join(shares)} |"
    elif kind == "silent":
        yield f"| {name} | {cell['data_sets']} | {100 * cell['claimed']:.1f} | {100 * cell['exact']:.1f} |"
    elif kind == "parts":
        shares = [f"{100 * cell[key]:.1f}" for key in ("clear", "one_part", "claimed", "claimed_with")]
        yield f"| {name} | {cell['data_sets']} | {' | '.join(shares)} |"
    elif kind == "single":
        both = (f"{100 * one['default']:.1f}, {100 * one['t test on a line']:.1f}" for one in list(cell.values())[1:])
        yield f"| {name} | {cell['data_sets']} | {' | '.join(both)} |"
    else:
        for way, one in cell.items():
            shares = [f"{100 * one[key]:.1f}" for key in ("rejected", "covered")]
            if kind in ("noise", "study"):
                biases = [f"{one[key]:+.3f}" for key in ("truth", "bias", "bias_corrected")]
                shares = [*biases, *shares, f"{100 * one['unsure']:.1f}"]
            else:
                shares += [f"{100 * one[key]:.1f}" for key in ("carried", "warned")]
            yield f"| {name} | {way} | {one['data_sets']} | {' | '.join(shares)} |"


MARKS = ("<!-- measured families: begin -->", "<!-- measured families: end -->")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", choices=["develop", "confirm"], default="develop")
    parser.add_argument("--sets", type=int, default=1000, help="data sets of a cell")
    parser.add_argument("--only", default="", help="cells whose name begins so, such as noise")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="JSON to write and to resume from")
    parser.add_argument("--merge", type=Path, help="put this JSON into benchmarks/results.json and stop")
    parser.add_argument("--table", type=Path, help="print this JSON as Markdown and stop")
    parser.add_argument("--into", type=Path, help="with --table: a page that has the two marks")
    chosen = parser.parse_args(arguments)
    if chosen.table:
        tables = markdown(json.loads(chosen.table.read_text()))
        put_into(chosen.into, tables, *MARKS) if chosen.into else print(tables)
    elif chosen.merge:
        merge(chosen.merge, Path(__file__).parent / "results.json", "families")
    else:
        run(chosen.cells, chosen.sets, chosen.seed, chosen.out, chosen.only)
    return 0


if __name__ == "__main__":
    sys.exit(main())
