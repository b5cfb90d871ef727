"""Simulated examples behind simulated scores: does the correction for noise of finite test sets hold?

    python -m benchmarks.noise                                   short: a few data sets, seconds
    python -m benchmarks.noise --long --seed 0 --out build/noise.json      all cells; resumes where it stopped
    python -m benchmarks.noise --confirm --seed 1 --out build/confirm.json  cells on which nothing was chosen
    python -m benchmarks.noise --table build/noise.json          as Markdown (--into docs/statistics-evidence.md)
    python -m benchmarks.noise --merge build/noise.json          into benchmarks/results.json

Every set has as many examples to be answered Yes as No. An example is answered correctly if its own luck is below a
threshold that follows the model's skill; a drift towards Yes lowers the threshold of one label and raises the other's.
Part of an example's luck never changes, and is shared by the examples of an item: none, a premise with a hypothesis of
either label, or a template with one label. The truth is the correlation of the residuals of the scores that endless
sets of this kind would have, the ratio of their products summed over all data sets of a cell. `caveat` counts the data
sets whose result carries a caveat about noise.

The cells of `--confirm` differ in everything: runs, steps, sizes, shares of labels, sizes of templates and the shape of
luck. They were written down before the correction was scored on them, and nothing was changed after.
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
from oodles.stats import noise
from oodles.stats.estimates import Estimator, estimate
from oodles.stats.outcomes import Outcomes
from oodles.stats.residuals import fit_design
from oodles.stats.series import Series

Array = NDArray[np.float64]
Kind = Literal["alone", "premises", "templates"]
Form = Literal["short", "long", "confirm"]
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
    yes: float = 0.5  # share of the examples to be answered Yes
    luck: Literal["normal", "logistic"] = "normal"  # its part that changes

    @property
    def label(self) -> str:
        """What the cell is seeded by: fields added later appear only where they differ from their defaults."""
        plain, text = Sets(), f"n {self.n}, {self.kind}, drift {self.drift:g}, rho {self.rho}, stable {self.stable}"
        later = ("per_template", "runs", "steps", "yes", "luck")
        return text + "".join(f", {f} {getattr(self, f)}" for f in later if getattr(self, f) != getattr(plain, f))


@dataclass(frozen=True, eq=False, slots=True)
class Simulated:
    """Per-example outcomes of the two sets."""

    sets: dict[str, Outcomes]

    def outcomes(
        self, _series: Series, name: str, _values: Array, _metric: str = "accuracy", /
    ) -> tuple[Outcomes | None, str]:
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
    label, items = _examples(sets)
    towards = np.where(label == 0, 1.0, -1.0)
    ease, bias = draw.normal(size=(2, int(items.max()) + 1)) * np.sqrt(sets.stable / 2)
    constant = ease[items] + towards * bias[items]
    luck = _luck(sets, draw, (len(skill), sets.n)) * np.sqrt(1 - sets.stable) + constant
    correct = (luck < skill[:, None] + drift[:, None] * towards).astype(np.int8)
    yes = float(np.mean(label == 0))
    expected = yes * _chance_below(sets, skill + drift) + (1 - yes) * _chance_below(sets, skill - drift)
    return Outcomes(correct=correct, items=items, strata=label, shared=True), expected


def _examples(sets: Sets) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The label of every example, 0 where Yes is right, and its item."""
    index = np.arange(sets.n)
    if sets.kind == "templates" and sets.yes == 0.5:
        label = index % 2
        return label, 2 * (index // (2 * sets.per_template)) + label
    if sets.kind == "templates":
        template = index // sets.per_template
        return _labels(template, sets.yes), template
    return _labels(index, sets.yes), index // 2 if sets.kind == "premises" else index


def _labels(index: NDArray[np.int64], yes: float) -> NDArray[np.int64]:
    """0 for a share of `yes`, spread evenly; 0, 1, 0, 1 for a half."""
    return 1 - (np.ceil((index + 1) * yes) - np.ceil(index * yes)).astype(np.int64)


def _luck(sets: Sets, draw: np.random.Generator, shape: tuple[int, int]) -> NDArray[Any]:
    """Unit variance."""
    if sets.luck == "logistic":
        return draw.logistic(scale=np.sqrt(3) / np.pi, size=shape)
    return draw.standard_normal(shape, dtype=np.float32)


def _chance_below(sets: Sets, threshold: Array) -> Array:
    """That an example of an endless set is answered correctly: its luck, the constant part included, is below."""
    if sets.luck == "normal":
        return np.asarray(special.ndtr(threshold))
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    left = (threshold[:, None] - np.sqrt(sets.stable) * nodes) / np.sqrt(1 - sets.stable)
    return np.asarray(special.expit(left * np.pi / np.sqrt(3)) @ weights / weights.sum())


def score(sets: Sets, n_sets: int, seed: int) -> dict[str, Any]:
    """Median of the corrected correlation against the truth, and how often its interval covers the truth."""
    draw = np.random.default_rng([seed, zlib.crc32(sets.label.encode())])
    plain, corrected, low, high, reliability, told, products = [], [], [], [], [], [], np.zeros((2, 2))
    for _ in range(n_sets):
        series, records, truth = simulate(sets, draw)
        estimated = estimate(series, Estimator())
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
    """Whether the result says that the correction is uncertain, by the rules of `oodles.stats.pairs`."""
    unsure = [noise.is_unsure(items, error) for items, error in zip(exact.items, exact.uncertainty, strict=True)]
    return any(unsure) or any(exact.violated) or bool(np.isnan(exact.r[0, 1]))


# Running it ----------------------------------------------------------------------------------------------------------


def plan(form: Form) -> Iterator[Sets]:
    """Every cell, in order."""
    if form == "short":
        yield Sets(n=200, drift=1.0)
    elif form == "long":
        kinds: tuple[Kind, ...] = ("premises", "templates")
        for kind in kinds:
            for n in (200, 635, 2000):
                for drift in (0.0, 1.0, 2.0):
                    yield Sets(n=n, kind=kind, drift=drift)
        for rho in (0.0, 0.3):
            yield Sets(n=635, rho=rho)
        for stable in (0.0, 0.5, 0.95):
            yield Sets(n=635, stable=stable, kind="alone")
    else:
        yield Sets(n=400, drift=0.5, rho=0.3, runs=6, steps=12)
        yield Sets(n=400, drift=1.5, rho=-0.3, runs=6, steps=12)
        yield Sets(n=1000, drift=1.0, rho=0.6, runs=16, steps=8)
        yield Sets(n=1000, drift=0.5, rho=0.0, runs=16, steps=8, yes=0.33)
        yield Sets(n=480, kind="templates", per_template=4, drift=1.0, rho=0.3, runs=6, steps=12)
        yield Sets(n=480, kind="templates", per_template=4, drift=0.0, rho=-0.3, yes=0.33)
        yield Sets(n=1000, kind="templates", per_template=20, drift=0.5)
        yield Sets(n=1000, kind="templates", per_template=20, drift=1.5, rho=0.0)
        yield Sets(n=400, kind="templates", per_template=20, drift=1.0, rho=0.3)
        yield Sets(n=400, kind="alone", drift=1.0, stable=0.3, luck="logistic")
        yield Sets(n=2000, drift=2.0, rho=0.3, luck="logistic", stable=0.6)


def run(form: Form, seed: int, out: Path | None) -> dict[str, Any]:
    """Do what is not done yet; print and save each cell."""
    done: dict[str, Any] = {"seed": seed, "form": form, "cells": {}}
    if out is not None and out.is_file():
        earlier = json.loads(out.read_text())
        done = earlier if (earlier.get("seed"), earlier.get("form")) == (seed, form) else done
    for sets in plan(form):
        if sets.label in done["cells"]:
            continue
        start = time.perf_counter()
        done["cells"][sets.label] = asdict(sets) | score(sets, 20 if form == "short" else 1000, seed)
        print(f"{sets.label}  ({time.perf_counter() - start:.1f} s)  {done['cells'][sets.label]}", flush=True)
        if out is not None:
            save(out, done)
    return done


HEAD = (
    "| items | runs x steps | examples | drift | rho | stable share | truth | uncorrected | corrected | covered, % "
    "| half width | no interval, % | caveat, % |"
)


def _kind(cell: dict[str, Any]) -> str:
    """The items of a cell, and what is unusual about it."""
    of = f" of {cell['per_template']}" if cell["kind"] == "templates" else ""
    shares = f", {100 * cell['yes']:.0f} % Yes" if cell["yes"] != 0.5 else ""
    return f"{cell['kind']}{of}{shares}" + (f", {cell['luck']}" if cell["luck"] != "normal" else "")


def markdown(found: dict[str, Any]) -> str:
    """All cells as a table for the documentation."""
    rows = [
        f"| {_kind(c)} | {c['runs']} x {c['steps']} | {c['n']} | {c['drift']:g} | {c['rho']} | {c['stable']} | "
        f"{c['truth']:.3f} | {c['uncorrected']:.3f} | {c['corrected']:.3f} | {100 * c['covered']:.1f} | "
        f"{c['half_width']:.2f} | {100 * c['no_interval']:.1f} | {100 * c['caveat']:.1f} |"
        for c in found["cells"].values()
    ]
    return "\n".join([HEAD, "|---" * (HEAD.count("|") - 1) + "|", *rows, ""])


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--long", action="store_true", help="all cells, 1,000 data sets each; about half an hour")
    parser.add_argument("--confirm", action="store_true", help="the cells on which nothing was chosen, likewise")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="JSON to write and to resume from")
    parser.add_argument("--merge", type=Path, help="put this JSON into benchmarks/results.json and stop")
    parser.add_argument("--table", type=Path, help="print this JSON as Markdown and stop")
    parser.add_argument("--into", type=Path, help="with --table: a page that has the two marks")
    chosen = parser.parse_args(arguments)
    if chosen.table:
        found = json.loads(chosen.table.read_text())
        marks = CONFIRMED if found["form"] == "confirm" else MARKS
        put_into(chosen.into, markdown(found), *marks) if chosen.into else print(markdown(found))
    elif chosen.merge:
        confirmed = json.loads(chosen.merge.read_text())["form"] == "confirm"
        name = "noise_confirmed" if confirmed else "noise"
        merge(chosen.merge, Path(__file__).parent / "results.json", name)
    else:
        run("confirm" if chosen.confirm else "long" if chosen.long else "short", chosen.seed, chosen.out)
    return 0


MARKS = ("<!-- measured noise: begin -->", "<!-- measured noise: end -->")
CONFIRMED = ("<!-- measured noise confirmed: begin -->", "<!-- measured noise confirmed: end -->")

if __name__ == "__main__":
    sys.exit(main())
