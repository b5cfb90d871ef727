"""Simulated studies of several models: is it found that a correlation depends on the model, and only where it does?

    python -m benchmarks.claim                                   short: a few data sets, seconds
    python -m benchmarks.claim --long --seed 0 --out build/claim.json     all cells; resumes where it stopped
    python -m benchmarks.claim --table build/claim.json          as Markdown (--into docs/statistics-evidence.md)
    python -m benchmarks.claim --merge build/claim.json          into benchmarks/results.json

A data set is a study: eight models of nine runs with 40 steps, one in-domain and seven OOD sets, 21 pairs. The residual
of set k in model m is `a f + sqrt(1 - a^2) e`, with a factor f that all sets of a run share and the loading a of set
and model, so that the true correlation of two sets is the product of their loadings. Under equal truth all models have
the same loadings; otherwise a model's own deviate from them by a normal with sd `loading`. What else models may differ
in must not look like a difference of correlations: size of the residuals, examples per test set (attenuation), examples
in-domain (bias), memory of the residuals, number of runs, and correlations that vary over runs.

The cells of `values` skip the trajectories: they draw Fisher's z of units directly, normal or not, with a spread over
units that differs between models, and are fast enough to score tests and prediction intervals closely.

The cells were written down before the method was scored on them.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from benchmarks.statistics import LINKS, merge, put_into, save
from oodles.stats import effects
from oodles.stats.clusters import ClusterValues, cluster_values
from oodles.stats.estimates import Estimator
from oodles.stats.resample import holm
from oodles.stats.series import Series

Array = NDArray[np.float64]

SETS = 7
LOADINGS = np.array([0.85, 0.75, 0.65, 0.55, 0.4, 0.2, -0.45])  # of the sets, where all models are alike
SIZES = np.array([635.0, 2126, 2490, 4906, 6605, 8000, 9815])
IN_DOMAIN = 9815.0
RESIDUAL = 0.025
BOUND = 0.97  # of a run's loadings


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """How the models of a study differ."""

    models: int = 8
    runs: int = 9
    steps: int = 40
    loading: float = 0.0  # sd over models of the loadings: the truth that is asked for
    residual: tuple[float, float] = (RESIDUAL, RESIDUAL)  # sd of the residuals, from the first to the last model
    fewer: tuple[float, float] = (1.0, 1.0)  # share of the examples of each test set
    in_domain: tuple[float, float] = (IN_DOMAIN, IN_DOMAIN)
    memory: tuple[float, float] = (0.1, 0.1)  # correlation length of the residuals, in runs
    spread: float = 0.0  # sd over runs of the loadings
    offset: float = RESIDUAL  # sd of a run's own level on each set
    heavy: bool = False  # run sizes of residuals from t with 3 degrees of freedom, shared by the sets


CELLS: dict[str, Cell] = {
    "alike": Cell(),
    "residual size .01 to .04": Cell(residual=(0.01, 0.04)),
    "residual size .04 to .01, correlations vary over runs": Cell(residual=(0.04, 0.01), spread=0.2),
    "test sets of 10 to 100 % of the examples": Cell(fewer=(0.1, 1.0)),
    "in-domain sets of 1,000 to 10,000": Cell(in_domain=(1000, 10000)),
    "all three": Cell(residual=(0.015, 0.04), fewer=(1.0, 0.3), in_domain=(2000, 10000)),
    "all three, the other way round": Cell(residual=(0.015, 0.04), fewer=(0.3, 1.0), in_domain=(10000, 2000)),
    "memory .03 to .3": Cell(memory=(0.03, 0.3)),
    "correlations vary over runs": Cell(spread=0.3),
    "sizes of runs from t3": Cell(heavy=True),
    "8 steps, 12 runs": Cell(steps=8, runs=12, residual=(0.015, 0.04)),
    "20 models": Cell(models=20, residual=(0.015, 0.04)),
    "loading sd .15": Cell(loading=0.15),
    "loading sd .3": Cell(loading=0.3),
    "loading sd .3, residual size .015 to .04": Cell(loading=0.3, residual=(0.015, 0.04)),
    "loading sd .3, correlations vary over runs": Cell(loading=0.3, spread=0.2),
    "loading sd .5": Cell(loading=0.5),
}
NULL = tuple(name for name, cell in CELLS.items() if not cell.loading)


def _between(ends: tuple[float, float], models: int) -> Array:
    """From the first to the last model, in equal ratios."""
    return np.geomspace(ends[0], ends[1], models)


def simulate(cell: Cell, draw: np.random.Generator) -> tuple[list[Series], Array]:
    """A study, a series per model, and the loadings, models x sets; one more model than there are series.

    The last loadings are those of a model that was not run: what a prediction interval is about.
    """
    loadings = LOADINGS + cell.loading * draw.normal(size=(cell.models + 1, SETS))
    loadings = np.clip(loadings, -0.95, 0.95)
    residual, fewer = _between(cell.residual, cell.models), _between(cell.fewer, cell.models)
    in_domain, memory = _between(cell.in_domain, cell.models), _between(cell.memory, cell.models)
    found = []
    for m in range(cell.models):
        sizes, n_id = np.round(SIZES * fewer[m]).astype(int), round(in_domain[m])
        z, scores = _latent(cell, loadings[m], residual[m], memory[m], draw)
        observed_z = draw.binomial(n_id, np.clip(z, 0.01, 0.995)) / n_id
        observed = draw.binomial(sizes, np.clip(scores, 0.01, 0.995)) / sizes
        found.append(_series(f"model{m}", observed_z, observed, n_id, sizes))
    return found, loadings


def true_z(cell: Cell, loading: Array) -> Array:
    """Fisher's z of every pair of sets in a model: of the mean over runs of the product of their loadings.

    Where loadings vary over runs they are held within `BOUND`, which moves the mean of large ones.
    """
    mean = loading
    if cell.spread:
        low, high = ((bound - loading) / cell.spread for bound in (-BOUND, BOUND))
        inside = stats.norm.cdf(high) - stats.norm.cdf(low)
        mean = BOUND * (stats.norm.sf(high) - stats.norm.cdf(low)) + loading * inside
        mean = mean - cell.spread * (stats.norm.pdf(high) - stats.norm.pdf(low))
    return np.asarray(np.arctanh(np.outer(mean, mean)), dtype=float)


def _latent(cell: Cell, loading: Array, size: float, memory: float, draw: np.random.Generator) -> tuple[Array, Array]:
    """In-domain scores, runs x steps, and OOD scores, runs x steps x sets, before any test set is drawn."""
    times = np.linspace(0.0, 1.0, cell.steps)
    top, pace = draw.normal(0.85, 0.02, (cell.runs, 1)), 0.25 * np.exp(0.3 * draw.normal(size=(cell.runs, 1)))
    z = 0.5 + (top - 0.5) * (1 - np.exp(-times / pace)) + 0.015 * _processes((cell.runs,), cell.steps, 0.05, draw)
    own = np.clip(loading + cell.spread * draw.normal(size=(cell.runs, SETS)), -BOUND, BOUND)[:, None, :]
    factor = _processes((cell.runs,), cell.steps, memory, draw)[..., None]
    alone = np.moveaxis(_processes((cell.runs, SETS), cell.steps, memory, draw), 1, 2)
    residual = own * factor + np.sqrt(1 - own**2) * alone
    if cell.heavy:
        residual = residual * np.abs(draw.standard_t(3, (cell.runs, 1, 1)))
    level = cell.offset * draw.normal(size=(cell.runs, 1, SETS))
    curve = np.stack([LINKS[k](z) for k in range(SETS)], axis=-1)
    return z, curve + size * residual + level


def _processes(shape: tuple[int, ...], steps: int, length: float, draw: np.random.Generator) -> Array:
    """Gaussian series with short memory and unit variance along the last axis."""
    keep = np.exp(-1 / ((steps - 1) * length))
    shocks = draw.normal(size=(*shape, steps))
    series = np.empty_like(shocks)
    series[..., 0] = shocks[..., 0]
    for t in range(1, steps):
        series[..., t] = keep * series[..., t - 1] + np.sqrt(1 - keep**2) * shocks[..., t]
    return series


def _series(name: str, z: Array, scores: Array, n_id: int, sizes: NDArray[np.int64]) -> Series:
    runs, steps = z.shape
    which = np.repeat(np.arange(runs), steps)
    names = tuple(f"{name}_run{r}" for r in range(runs))
    return Series(
        group={"model": name},
        test_sets=tuple(f"set{k}" for k in range(SETS)),
        in_domain=("in-domain",),
        run_names=names,
        unit_names=names,
        runs=which,
        units=which,
        steps=np.tile(np.arange(steps), runs),
        covariates=z.reshape(-1, 1),
        scores=scores.reshape(-1, SETS),
        covariate_sizes=np.full((runs * steps, 1), float(n_id)),
        sizes=np.broadcast_to(sizes.astype(float), (runs * steps, SETS)).copy(),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """Fisher's z of units, drawn directly."""

    models: int = 8
    units: tuple[int, ...] = (9,)  # cycles over models
    spread: tuple[float, float] = (0.5, 0.5)  # sd over units, from the first to the last model
    tau: float = 0.0  # sd over models of the true z
    mean: float = 0.3
    shape: str = "normal"  # of units: normal, skewed or t3


VALUES: dict[str, Values] = {
    **{f"tau {tau}": Values(tau=tau) for tau in (0.0, 0.1, 0.2, 0.35, 0.7)},
    **{f"tau {tau}, sd 1:9": Values(tau=tau, spread=(0.15, 1.35)) for tau in (0.0, 0.1, 0.2, 0.35)},
    "tau 0, sd 1:9, 5 units": Values(spread=(0.15, 1.35), units=(5,)),
    "tau 0, sd 1:9, 18 units": Values(spread=(0.15, 1.35), units=(18,)),
    "tau 0, 9 to 30 units": Values(spread=(0.3, 0.9), units=(9, 30, 15)),
    "tau 0, 4 models": Values(models=4, spread=(0.3, 0.9)),
    "tau 0.2, 4 models": Values(models=4, spread=(0.3, 0.9), tau=0.2),
    **{f"tau {tau}, 20 models": Values(models=20, spread=(0.3, 0.9), tau=tau) for tau in (0, 0.1, 0.2)},
    "tau 0, 45 models": Values(models=45, spread=(0.3, 0.9), units=(9, 12, 20, 60)),
    "tau 0, skewed units": Values(spread=(0.3, 0.9), shape="skewed"),
    "tau 0, units from t3": Values(spread=(0.3, 0.9), shape="t3"),
    "tau 0.2, mean 0": Values(tau=0.2, mean=0.0, spread=(0.3, 0.9)),
}


def draw_values(cell: Values, draw: np.random.Generator) -> tuple[list[Array], float]:
    """Values of the units of every model, and the true value of a model that was not run."""
    truth = cell.mean + cell.tau * draw.normal(size=cell.models + 1)
    spread = _between(cell.spread, cell.models)
    drawn = []
    for m in range(cell.models):
        n = cell.units[m % len(cell.units)]
        error = {
            "normal": lambda n=n: draw.normal(size=n),
            "skewed": lambda n=n: draw.exponential(size=n) - 1.0,
            "t3": lambda n=n: draw.standard_t(3, n) / np.sqrt(3.0),
        }[cell.shape]()
        drawn.append(truth[m] + spread[m] * error)
    return drawn, float(truth[-1])


# Scoring -------------------------------------------------------------------------------------------------------------

TESTED = ("observed", "corrected", "both")


def score_cell(name: str, n_sets: int, seed: int) -> dict[str, Any]:
    """Rejections of one cell: per pair, over all pairs, and of signs; with a true spread, the prediction interval too.

    `observed` ignores noise; `corrected` takes it from the number of examples, which is right here; `both` is what is
    reported without records: the larger p-value.
    """
    cell = CELLS[name]
    draw = np.random.default_rng([seed, zlib.crc32(name.encode())])
    rejected: dict[str, list[tuple[float, bool]]] = {end: [] for end in TESTED}
    reversed_, left_out, covered, widths, spreads = [], [], [], [], []
    for number in range(n_sets):
        series, loadings = simulate(cell, draw)
        clusters = [cluster_values(one, Estimator(within="run"), name=str(m)) for m, one in enumerate(series)]
        pairs = sorted({pair for cluster in clusters for pair in cluster.observed})
        found = {end: [_units(clusters, pair, end) for pair in pairs] for end in ("observed", "corrected")}
        p_values = {end: np.array([effects.equal_means(v).p_val for v in values]) for end, values in found.items()}
        p_values["both"] = np.maximum(p_values["observed"], p_values["corrected"])
        for end, p in p_values.items():
            rejected[end].append((float(np.nanmean(p < 0.05)), bool(np.nanmin(holm(p)) < 0.05)))
        reversed_.append(float(np.mean([effects.sign_reversal(v).p_val < 0.05 for v in found["corrected"]])))
        left_out.append(np.mean([1 - len(v) / cell.models for v in found["corrected"]]))
        if cell.loading:
            truth = true_z(cell, loadings[-1])
            for pair, values in zip(pairs, found["corrected"], strict=True):
                spread = effects.random_effects(values, seed=number, draws=1000)
                new = truth[int(pair[0][3:]), int(pair[1][3:])]
                covered.append(spread.prediction[0] <= new <= spread.prediction[1])
                widths.append(np.ptp(np.tanh(spread.prediction)) / 2)
                spreads.append(spread.tau)
    return {
        "data_sets": n_sets,
        **{f"pair_{end}": float(np.mean([one for one, _ in rejected[end]])) for end in TESTED},
        **{f"all_{end}": float(np.mean([every for _, every in rejected[end]])) for end in TESTED},
        "reversed": float(np.mean(reversed_)),
        "left_out": float(np.mean(left_out)),
        **({"covered": float(np.mean(covered)), "half_width": float(np.mean(widths))} if covered else {}),
        **({"tau": float(np.median(spreads))} if spreads else {}),
    }


def _units(clusters: list[ClusterValues], pair: tuple[str, str], end: str) -> list[effects.Sample]:
    every = [getattr(cluster, end).get(pair) for cluster in clusters]
    return [sample for sample in every if sample is not None]


def score_values(name: str, n_sets: int, seed: int) -> dict[str, Any]:
    """Test, spread over models and prediction interval, on values of units that are drawn directly."""
    cell = VALUES[name]
    draw = np.random.default_rng([seed, zlib.crc32(name.encode())])
    rejected, reversed_, covered, spread_covered, widths = [], [], [], [], []
    for number in range(n_sets):
        drawn, new = draw_values(cell, draw)
        values = [effects.Sample.of(units) for units in drawn]
        rejected.append(effects.equal_means(values).p_val < 0.05)
        reversed_.append(effects.sign_reversal(values).p_val < 0.05)
        found = effects.random_effects(values, seed=number, draws=1000)
        covered.append(found.prediction[0] <= new <= found.prediction[1])
        spread_covered.append(found.tau_interval[0] <= cell.tau <= found.tau_interval[1])
        widths.append(np.ptp(found.prediction) / 2)
    return {
        "data_sets": n_sets,
        "rejected": float(np.mean(rejected)),
        "reversed": float(np.mean(reversed_)),
        "covered": float(np.mean(covered)),
        "tau_covered": float(np.mean(spread_covered)),
        "half_width": float(np.mean(widths)),
    }


def plan(sets: int) -> Iterator[tuple[str, Callable[[int], Any]]]:
    """Every piece of work with its name, in order."""
    for name in CELLS:
        yield name, lambda seed, name=name: score_cell(name, sets, seed)
    for name in VALUES:
        yield f"values: {name}", lambda seed, name=name: score_values(name, sets, seed)


def run(sets: int, seed: int, out: Path | None) -> dict[str, Any]:
    """Do what is not done yet, print and save each piece."""
    done: dict[str, Any] = {"seed": seed, "cells": {}}
    if out is not None and out.is_file():
        earlier = json.loads(out.read_text())
        done = earlier if earlier.get("seed") == seed else done
    for label, work in plan(sets):
        if done["cells"].get(label, {}).get("data_sets", 0) >= sets:
            continue
        start = time.perf_counter()
        done["cells"][label] = work(seed)
        print(f"{label}  ({time.perf_counter() - start:.0f} s)  {done['cells'][label]}", flush=True)
        if out is not None:
            save(out, done)
    return done


BEGIN, END = "<!-- measured claim: begin -->", "<!-- measured claim: end -->"


def markdown(found: dict[str, Any]) -> str:
    """The results as tables for the documentation."""
    cells = found["cells"]
    text = [
        "| models differ in | data sets | a pair, % | without correction | any pair, % | without correction "
        "| sign reversed, % | new model covered, % |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name in CELLS:
        if one := cells.get(name):
            covered = f"{100 * one['covered']:.1f}" if "covered" in one else ""
            numbers = (one["pair_both"], one["pair_observed"], one["all_both"], one["all_observed"], one["reversed"])
            told = " | ".join(f"{100 * value:.1f}" for value in numbers)
            text.append(f"| {name} | {one['data_sets']} | {told} | {covered} |")
    text += [
        "",
        "| values of units | data sets | rejected, % | sign reversed, % | new model covered, % | tau covered, % "
        "| half width |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in VALUES:
        if one := cells.get(f"values: {name}"):
            numbers = (one["rejected"], one["reversed"], one["covered"], one["tau_covered"])
            told = " | ".join(f"{100 * value:.1f}" for value in numbers)
            text.append(f"| {name} | {one['data_sets']} | {told} | {one['half_width']:.2f} |")
    return "\n".join([*text, ""])


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--long", action="store_true", help="1,000 data sets a cell; about half an hour on one core")
    parser.add_argument("--sets", type=int, default=20, help="data sets a cell, without --long")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="JSON to write and to go on from")
    parser.add_argument("--merge", type=Path, help="put this JSON into benchmarks/results.json and stop")
    parser.add_argument("--table", type=Path, help="print this JSON as Markdown and stop")
    parser.add_argument("--into", type=Path, help="with --table: a page that has the two marks")
    chosen = parser.parse_args(arguments)
    if chosen.table:
        tables = markdown(json.loads(chosen.table.read_text()))
        put_into(chosen.into, tables, BEGIN, END) if chosen.into else print(tables)
        return 0
    if chosen.merge:
        merge(chosen.merge, Path(__file__).parent / "results.json", "claim")
        return 0
    run(1000 if chosen.long else chosen.sets, chosen.seed, chosen.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
