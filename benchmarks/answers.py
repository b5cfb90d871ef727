"""Skill or answers: which pairs does the verdict count where skill moves, where the preferred answer moves, or both?

    python -m benchmarks.answers --sets 100 --out build/answers.json
    python -m benchmarks.answers --table build/answers.json       as Markdown (--into docs/statistics-evidence.md)
    python -m benchmarks.answers --merge build/answers.json       into benchmarks/results.json

Signal detection: an example is answered Yes if its evidence, `+-d'/2` by its label and its own luck, exceeds a
criterion. Skill is d', the preferred answer the criterion. All examples are the same at every point, and part of their
luck never changes, so that accuracy follows the criterion along one curve in all runs, as in a real study.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import special

from benchmarks.families import Family, _curves, _series
from benchmarks.statistics import merge, put_into, save
from oodles.stats.correlate import partial_correlations

Array = NDArray[np.float64]
LABELS = (0.5, 0.44, 0.35, 0.49, 0.4, 0.6)  # share of examples to be answered Yes, by set
SKILL = 0.15  # sd of d' beyond what the in-domain score tells: .025 in accuracy


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What moves in a study."""

    runs: int = 9
    steps: int = 15
    n: int = 500
    n_id: int = 6000
    rho: float = 0.0  # correlation of d' of any two sets, beyond in-domain performance
    skill: float = SKILL  # its sd
    learns: float = 1.0  # slope of the OOD sets' d' on the in-domain one; 0: no skill at all
    centre: float = 0.0  # criterion: its middle
    drift: float = 0.0  # sd of what all sets share of it
    own: float = 0.05  # and of what each has for itself
    late: float = 0.0  # share of training in which all answers are Yes
    one_sided: int = 0  # sets that get Yes nearly always: their criterion is 1.9 lower
    labels: tuple[float, ...] = LABELS
    stable: float = 0.7  # share of an example's luck that never changes


SOUND: dict[str, Case] = {
    "skill, rho .6": Case(rho=0.6),
    "skill, rho .6, half of the labels Yes": Case(rho=0.6, labels=(0.5,) * 6),
    "skill, rho .6, n 2000": Case(rho=0.6, n=2000),
    "skill, rho .6, moderate drift": Case(rho=0.6, drift=0.15),
    "skill, rho .6, answers lean to Yes (.8)": Case(rho=0.6, centre=-0.8, drift=0.1),
    "strong skill, rho .6, large drift": Case(rho=0.6, skill=0.4, drift=0.3),
    "strong skill, rho .6, two of six sets near one answer": Case(rho=0.6, skill=0.4, one_sided=2),
}
ANSWERS: dict[str, Case] = {
    "skill, rho .6, all Yes in the first 60 % of steps": Case(rho=0.6, late=0.6),
    "no skill, moderate drift": Case(skill=0.0, learns=0.0, drift=0.15),
    "no skill, large drift": Case(skill=0.0, learns=0.0, drift=0.6),
    "no skill, drift near one answer": Case(skill=0.0, learns=0.0, centre=-1.9, drift=0.9),
    "no skill, drift near one answer, 7 runs x 7, n 128": Case(
        skill=0.0, learns=0.0, centre=-1.9, drift=0.9, runs=7, steps=7, n=128, n_id=512
    ),
    "skill that does not agree, moderate drift": Case(drift=0.15),
    "skill that does not agree, drift near one answer": Case(centre=-1.9, drift=0.9),
    "little skill that does not agree, drift near one answer": Case(centre=-1.9, drift=0.9, learns=0.2, skill=0.1),
}
CASES = {**SOUND, **ANSWERS}


def simulate(case: Case, draw: np.random.Generator) -> pd.DataFrame:
    """A long table of accuracies and shares of answers."""
    runs, times = np.repeat(np.arange(case.runs), case.steps), np.tile(np.linspace(0, 1, case.steps), case.runs)
    z = _curves(Family(runs=case.runs), runs, times, np.ones(case.runs, dtype=bool), draw)
    learnt = 2 * special.ndtri(z)  # d' in-domain
    common = _series(runs, times, 1, 0.1, draw)
    skill = np.sqrt(case.rho) * common + np.sqrt(1 - case.rho) * _series(runs, times, len(case.labels), 0.1, draw)
    criterion = case.centre + case.drift * _series(runs, times, 1, 0.3, draw)
    criterion = criterion + case.own * _series(runs, times, len(case.labels), 0.1, draw)
    criterion[times < case.late] = -3.0
    criterion[:, : case.one_sided] -= 1.9
    steps = np.tile(np.arange(case.steps), case.runs)
    frames = [_rows(runs, steps, "in-domain", "accuracy", draw.binomial(case.n_id, z) / case.n_id, case.n_id)]
    for k, labels in enumerate(case.labels):
        own = case.learns * (0.7 - 0.05 * k) * learnt + case.skill * skill[:, k]
        correct, yes = _answers(case, labels, own, criterion[:, k], draw)
        for metric, values in (("accuracy", correct), ("share:Yes", yes), ("share:No", 1 - yes)):
            frames.append(_rows(runs, steps, f"set{k}", metric, values, case.n))
    return pd.concat(frames, ignore_index=True)


def _answers(
    case: Case, labels: float, skill: Array, criterion: Array, draw: np.random.Generator
) -> tuple[Array, Array]:
    """Share of right answers and of Yes at every point."""
    gold = np.arange(case.n) < round(labels * case.n)
    luck = np.sqrt(case.stable) * draw.normal(size=case.n)
    luck = luck + np.sqrt(1 - case.stable) * draw.normal(size=(len(skill), case.n))
    yes = np.where(gold, 0.5, -0.5) * skill[:, None] + luck > criterion[:, None]
    return (yes == gold).mean(axis=1), yes.mean(axis=1)


def _rows(runs: Array, steps: Array, name: str, metric: str, values: Array, n: int) -> pd.DataFrame:
    role = "in_domain" if name == "in-domain" else "ood"
    columns = {"run": [f"run{r}" for r in runs], "model": "m", "step": steps, "test_set": name, "role": role}
    return pd.DataFrame({**columns, "metric": metric, "value": values, "n": n})


def score(case: Case, n_sets: int, seed: int) -> dict[str, Any]:
    """Share of pairs that are clear, that are called pairs of answers, and of studies that claim a relation."""
    draw = np.random.default_rng(seed)
    found: dict[str, list[float]] = {}
    for _ in range(n_sets):
        table = partial_correlations(simulate(case, draw)).table
        for within in ("pooled", "run"):
            own = table[table["within"] == within]
            significant = own["p_holm"] < 0.05
            told = {"r": own["r"].mean(), "significant": significant.mean(), "clear": own["clear"].mean()}
            told |= {"answers": (significant & (own["doubt"] == "answers")).mean(), "claimed": own["clear"].any()}
            for name, value in told.items():
                found.setdefault(f"{within}_{name}", []).append(float(value))
    return {"data_sets": n_sets, **{name: float(np.mean(values)) for name, values in found.items()}}


def run(n_sets: int, seed: int, out: Path | None, only: str) -> dict[str, Any]:
    """Score every case; print and save each."""
    done: dict[str, Any] = {"seed": seed, "cells": {}}
    for name, case in CASES.items():
        if not name.startswith(only):
            continue
        done["cells"][name] = score(case, n_sets, seed)
        print(name, {k: round(v, 3) for k, v in done["cells"][name].items()}, flush=True)
        if out is not None:
            save(out, done)
    return done


MARKS = ("<!-- measured answers: begin -->", "<!-- measured answers: end -->")


def markdown(found: dict[str, Any]) -> str:
    """Every case as a row."""
    head = (
        "| what moves | data sets | r | significant, % | called answers, % | clear, % | pooled: clear, % "
        "| a relation claimed, % |"
    )
    rows = [head, "|---" * (head.count("|") - 1) + "|"]
    for name, one in found["cells"].items():
        shares = (one[key] for key in ("run_significant", "run_answers", "run_clear", "pooled_clear", "run_claimed"))
        told = " | ".join(f"{100 * share:.1f}" for share in shares)
        rows.append(f"| {name} | {one['data_sets']} | {one['run_r']:+.2f} | {told} |")
    return "\n".join([*rows, ""])


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=100, help="data sets a case")
    parser.add_argument("--only", default="", help="cases whose name begins so")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="JSON to write")
    parser.add_argument("--merge", type=Path, help="put this JSON into benchmarks/results.json and stop")
    parser.add_argument("--table", type=Path, help="print this JSON as Markdown and stop")
    parser.add_argument("--into", type=Path, help="with --table: a page that has the two marks")
    chosen = parser.parse_args(arguments)
    if chosen.table:
        told = markdown(json.loads(chosen.table.read_text()))
        put_into(chosen.into, told, *MARKS) if chosen.into else print(told)
    elif chosen.merge:
        merge(chosen.merge, Path(__file__).parent / "results.json", "answers")
    else:
        run(chosen.sets, chosen.seed, chosen.out, chosen.only)
    return 0


if __name__ == "__main__":
    sys.exit(main())
