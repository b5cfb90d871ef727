"""Simulated examples behind simulated scores: does the correction for noise of finite test sets hold?

    python -m benchmarks.noise                                   short: a few data sets, seconds
    python -m benchmarks.noise --long --seed 0 --out build/noise.json      all cells; resumes where it stopped
    python -m benchmarks.noise --table build/noise.json          as Markdown (--into docs/statistics.md: there)
    python -m benchmarks.noise --merge build/noise.json          into benchmarks/results.json

Every set has as many examples to be answered Yes as No. An example is answered correctly if its own luck is below a
threshold that follows the model's skill; a drift towards Yes lowers the threshold of one label and raises the other's.
Part of an example's luck never changes, and is shared by the examples of an item: none, a premise with a hypothesis of
either label, or a template with one label. The truth is the correlation of the residuals of the scores that endless
sets of this kind would have, the ratio of their products summed over all data sets of a cell. `caveat` counts the data
sets whose result carries a caveat about noise.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import special

from benchmarks.statistics import IN_DOMAIN, Scenario, latent, merge, process, put_into, save
from oodles import noise
from oodles.estimates import Recipe, estimate
from oodles.outcomes import Outcomes
from oodles.residuals import fit_design
from oodles.series import Series

Array = NDArray[np.float64]
Kind = Literal["alone", "premises", "templates"]
MEMORY = 0.3  # correlation length of the drift, in runs


@dataclass(frozen=True, slots=True, kw_only=True)
class Sets:
    """How two sets of examples come about."""

    n: int = 635
    rho: float = 0.6
    drift: float = 0.0  # sd over points of the common shift towards Yes, in probits
    stable: float = 0.8  # share of an example's luck that never changes
    kind: Kind = "premises"
    per_template: int = 8
    runs: int = 9
    steps: int = 20

    @property
    def label(self) -> str:
        return f"n {self.n}, {self.kind}, drift {self.drift:g}, rho {self.rho}, stable {self.stable}"


@dataclass(frozen=True, eq=False, slots=True)
class Simulated:
    """Per-example outcomes of the two sets."""

    sets: dict[str, Outcomes]

    def outcomes(self, _series: Series, name: str, _values: Array) -> tuple[Outcomes | None, str]:
        return (self.sets[name], "") if name in self.sets else (None, f"{name}: no records")


def simulate(sets: Sets, draw: np.random.Generator) -> tuple[Series, Simulated, Array]:
    """One data set: the scores of a group, the outcomes behind them, and the scores without noise."""
    scenario = Scenario(runs=sets.runs, steps=(sets.steps,))
    counts, z, scores = latent(scenario, sets.rho, draw)
    skill = special.ndtri(np.clip(scores[:, :2], 0.01, 0.99))
    drift = np.concatenate([process(np.linspace(0.0, 1.0, c), MEMORY, False, draw) for c in counts]) * sets.drift
    parts, truth = {}, []
    for k in range(2):
        parts[f"set{k}"], expected = _outcomes(sets, skill[:, k], drift, draw)
        truth.append(expected)
    runs = np.repeat(np.arange(sets.runs), counts)
    names = tuple(f"run{r}" for r in range(sets.runs))
    series = Series(
        group={},
        test_sets=tuple(parts),
        in_domain=("in-domain",),
        run_names=names,
        unit_names=names,
        runs=runs,
        units=runs,
        steps=np.concatenate([np.arange(count) for count in counts]),
        covariates=(draw.binomial(int(IN_DOMAIN), np.clip(z, 0.01, 0.995)) / IN_DOMAIN)[:, None],
        scores=np.column_stack([o.correct.mean(axis=1, dtype=float) for o in parts.values()]),
        covariate_sizes=np.full((len(z), 1), IN_DOMAIN),
        sizes=np.full((len(z), 2), float(sets.n)),
    )
    return series, Simulated(parts), np.column_stack(truth)


def _outcomes(sets: Sets, skill: Array, drift: Array, draw: np.random.Generator) -> tuple[Outcomes, Array]:
    label = np.arange(sets.n) % 2  # 0: Yes is right
    towards = np.where(label == 0, 1.0, -1.0)
    if sets.kind == "premises":  # each with both labels
        items = np.arange(sets.n) // 2
    elif sets.kind == "templates":  # each with one label
        items = 2 * (np.arange(sets.n) // (2 * sets.per_template)) + label
    else:
        items = np.arange(sets.n)
    ease, bias = draw.normal(size=(2, int(items.max()) + 1)) * np.sqrt(sets.stable / 2)
    constant = ease[items] + towards * bias[items]
    luck = draw.standard_normal((len(skill), sets.n), dtype=np.float32) * np.sqrt(1 - sets.stable) + constant
    correct = (luck < skill[:, None] + drift[:, None] * towards).astype(np.int8)
    expected = (special.ndtr(skill + drift) + special.ndtr(skill - drift)) / 2
    if sets.n % 2:  # the odd example is a Yes
        expected += (special.ndtr(skill + drift) - special.ndtr(skill - drift)) / (2 * sets.n)
    return Outcomes(correct=correct, items=items, strata=label, shared=True), expected


def score(sets: Sets, n_sets: int, seed: int) -> dict[str, Any]:
    """Median of the corrected correlation against the truth, and how often its interval covers the truth."""
    draw = np.random.default_rng([seed, zlib.crc32(sets.label.encode())])
    plain, corrected, low, high, reliability, told, products = [], [], [], [], [], [], np.zeros((2, 2))
    for _ in range(n_sets):
        series, records, truth = simulate(sets, draw)
        estimated = estimate(series, Recipe())
        exact = noise.correct(estimated, records, metric="accuracy", method="gam", level=0.95)
        left = fit_design(estimated.refits[0].design, truth).residuals
        products += left.T @ left
        plain.append(estimated.r[0, 1])
        corrected.append(exact.r[0, 1])
        low.append(exact.low[0, 1])
        high.append(exact.high[0, 1])
        reliability.append(exact.reliability)
        told.append(_warned(exact))
    truth_r = float(products[0, 1] / np.sqrt(products[0, 0] * products[1, 1]))
    answered = np.isfinite(low)
    covered = (np.array(low) <= truth_r) & (truth_r <= np.array(high))
    return {
        "data_sets": n_sets,
        "truth": truth_r,
        "uncorrected": float(np.nanmedian(plain)),
        "corrected": float(np.nanmedian(corrected)),
        "covered": float(covered[answered].mean()) if answered.any() else float("nan"),
        "no_interval": float(1 - answered.mean()),
        "reliability": [round(float(v), 3) for v in np.nanmedian(reliability, axis=0)],
        "reliability_quantiles": [round(float(v), 3) for v in np.nanquantile(reliability, [0.05, 0.95])],
        "half_width": float(np.nanmedian((np.array(high) - np.array(low)) / 2)),
        "caveat": float(np.mean(told)),
    }


def _warned(exact: noise.Corrected) -> bool:
    """Whether the result says that the correction is uncertain, by the rules of `oodles.rows`."""
    unsure = [noise.is_unsure(items, error) for items, error in zip(exact.items, exact.uncertainty, strict=True)]
    return any(unsure) or any(exact.violated) or bool(np.isnan(exact.r[0, 1]))


# Running it ----------------------------------------------------------------------------------------------------------


def plan(long: bool) -> Iterator[Sets]:
    """Every cell, in order."""
    if not long:
        yield Sets(n=200, drift=1.0)
        return
    kinds: tuple[Kind, ...] = ("premises", "templates")
    for kind in kinds:
        for n in (200, 635, 2000):
            for drift in (0.0, 1.0, 2.0):
                yield Sets(n=n, kind=kind, drift=drift)
    for rho in (0.0, 0.3):
        yield Sets(n=635, rho=rho)
    for stable in (0.0, 0.5, 0.95):
        yield Sets(n=635, stable=stable, kind="alone")


def run(long: bool, seed: int, out: Path | None) -> dict[str, Any]:
    """Do what is not done yet; print and save each cell."""
    done: dict[str, Any] = {"seed": seed, "long": long, "cells": {}}
    if out is not None and out.is_file():
        earlier = json.loads(out.read_text())
        done = earlier if (earlier.get("seed"), earlier.get("long")) == (seed, long) else done
    for sets in plan(long):
        if sets.label in done["cells"]:
            continue
        start = time.perf_counter()
        done["cells"][sets.label] = asdict(sets) | score(sets, 1000 if long else 20, seed)
        print(f"{sets.label}  ({time.perf_counter() - start:.1f} s)  {done['cells'][sets.label]}", flush=True)
        if out is not None:
            save(out, done)
    return done


HEAD = (
    "| items | examples | drift | rho | stable share | truth | uncorrected | corrected | covered, % | half width "
    "| no interval, % | caveat, % |"
)


def markdown(found: dict[str, Any]) -> str:
    """All cells as a table for the documentation."""
    rows = [
        f"| {c['kind']} | {c['n']} | {c['drift']:g} | {c['rho']} | {c['stable']} | {c['truth']:.3f} | "
        f"{c['uncorrected']:.3f} | {c['corrected']:.3f} | {100 * c['covered']:.1f} | {c['half_width']:.2f} | "
        f"{100 * c['no_interval']:.1f} | {100 * c['caveat']:.1f} |"
        for c in found["cells"].values()
    ]
    return "\n".join([HEAD, "|---" * (HEAD.count("|") - 1) + "|", *rows, ""])


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--long", action="store_true", help="all cells, 1,000 data sets each; about half an hour")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="JSON to write and to resume from")
    parser.add_argument("--merge", type=Path, help="put this JSON into benchmarks/results.json and stop")
    parser.add_argument("--table", type=Path, help="print this JSON as Markdown and stop")
    parser.add_argument("--into", type=Path, help="with --table: a page that has the two marks")
    chosen = parser.parse_args(arguments)
    if chosen.table:
        table = markdown(json.loads(chosen.table.read_text()))
        put_into(chosen.into, table, *MARKS) if chosen.into else print(table)
    elif chosen.merge:
        merge(chosen.merge, Path(__file__).parent / "results.json", "noise")
    else:
        run(chosen.long, chosen.seed, chosen.out)
    return 0


MARKS = ("<!-- measured noise: begin -->", "<!-- measured noise: end -->")

if __name__ == "__main__":
    sys.exit(main())
