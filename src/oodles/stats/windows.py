"""Does a correlation change in the course of training? Early, middle and late, and as training goes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from oodles.stats.answers import Answer, counted, several
from oodles.stats.clusters import Scores, without_gaps
from oodles.stats.estimates import Estimate, as_correlations, estimate, usable_points
from oodles.stats.pairs import shares_examples
from oodles.stats.resample import DESCRIPTIVE, SIGNIFICANT, holm, jackknife_se, to_z
from oodles.stats.series import Series

WINDOWS = {  # shares of the evaluated steps of a run
    "early": (0.0, 1 / 3),
    "middle": (1 / 3, 2 / 3),
    "late": (2 / 3, 1.0),
    "first third": (0.0, 1 / 3),
    "first two thirds": (0.0, 2 / 3),
    "all": (0.0, 1.0),
}
APART = ("early", "middle", "late")
COLUMNS = ("a", "b", "within", "window", "r", "low", "high", "p_val", "n_units", "n_points")
CHANGE = ("a", "b", "within", "early", "middle", "late", "change_p", "change_p_holm", "told")


def windows(scores: Scores) -> Answer:
    """Every pair in windows of training, and whether the late correlation differs from the early one.

    Returns
    -------
    Answer
        Tables `windows`, a row per pair and window, and `windows_change`, a row per pair; a sentence per group and way
        of pooling.
    """
    rows: list[dict[str, Any]] = []
    changes: list[dict[str, Any]] = []
    sentences = []
    for series in scores.groups():
        for within in scores.ways:
            found, turned = _of_group(series, scores, within)
            rows += found
            changes += turned
            where = ", ".join([*series.group.values(), within])
            sentences.append(_sentence(turned, where))
    return Answer(
        name="windows",
        sentences=tuple(sentences),
        tables={
            "windows": pd.DataFrame(rows, columns=[*scores.by, *COLUMNS]),
            "windows_change": pd.DataFrame(changes, columns=[*scores.by, *CHANGE]),
        },
    )


def places(series: Series) -> NDArray[np.float64]:
    """Where each point lies among the evaluated steps of its run, from 0 to 1."""
    found = np.zeros(len(series.runs))
    for run in range(len(series.run_names)):
        own = np.flatnonzero(series.runs == run)
        order = np.argsort(np.argsort(series.steps[own].astype(float), kind="stable"), kind="stable")
        found[own] = (order + 0.5) / len(own)
    return found


def _of_group(series: Series, scores: Scores, within: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    recipe = replace(scores.recipe, within=within, interval="jackknife")
    rows, changes = [], []
    if int(np.bincount(series.runs).min()) < 3 * 2:
        return [], []
    for part in without_gaps(series, within):
        at = places(part)
        estimates = {}
        for name, (low, high) in WINDOWS.items():
            inside = part.at((at > low) & (at <= high))
            usable = usable_points(inside, within)
            if usable.any() and len(inside.unit_names) == len(part.unit_names):
                estimates[name] = estimate(inside.at(usable), recipe)
        for i, j in combinations(range(len(part.test_sets)), 2):
            names = (part.test_sets[i], part.test_sets[j])
            if shares_examples(*names, scores.overlapping):
                continue
            pair = {**series.group, "a": names[0], "b": names[1], "within": within}
            rows += [{**pair, "window": name, **_row(found, i, j)} for name, found in estimates.items()]
            if {"early", "late"} <= set(estimates):
                changes.append({**pair, **_change(estimates, i, j)})
    adjusted = holm(np.array([one["change_p"] for one in changes], dtype=float))
    return rows, [{**one, "change_p_holm": p, "told": _told(one, p)} for one, p in zip(changes, adjusted, strict=True)]


def _row(found: Estimate, i: int, j: int) -> dict[str, Any]:
    tested = int(found.counted[i, j]) >= DESCRIPTIVE
    return {
        "r": found.r[i, j],
        "low": found.interval.low[i, j],
        "high": found.interval.high[i, j],
        "p_val": found.interval.p_val[i, j] if tested else float("nan"),
        "n_units": int(found.counted[i, j]),
        "n_points": len(found.used.scores),
    }


def _change(estimates: Mapping[str, Estimate], i: int, j: int) -> dict[str, Any]:
    """Late against early, unit by unit left out of both: what they share does not count as a difference."""
    early, late = estimates["early"], estimates["late"]
    apart = float(to_z(late.r[i, j]) - to_z(early.r[i, j]))
    left = [to_z(as_correlations(one.left_out)[:, i, j]) for one in (late, early)]
    n_units = len(left[0])
    error = float(jackknife_se(left[0] - left[1])) if n_units > 1 else float("nan")
    tested = n_units >= DESCRIPTIVE and np.isfinite(error) and error > 0
    p_val = float(2 * stats.t.sf(abs(apart) / error, n_units - 1)) if tested else float("nan")
    values = {name: float(estimates[name].r[i, j]) if name in estimates else float("nan") for name in APART}
    return {**values, "change_p": p_val, "_ends": tuple(_clear(estimates[name], i, j) for name in ("early", "late"))}


def _clear(found: Estimate, i: int, j: int) -> int:
    """The sign that an interval leaves, or 0."""
    low, high = found.interval.low[i, j], found.interval.high[i, j]
    return int(np.sign(low)) if np.isfinite(low) and low * high > 0 else 0


def _told(change: dict[str, Any], p_holm: float) -> str:
    early, late = change.pop("_ends")
    if not np.isfinite(p_holm):
        return "not tested"
    if p_holm >= SIGNIFICANT:
        return "no change shown"
    return "changes sign" if early * late < 0 else "changes"


def _sentence(changes: list[dict[str, Any]], where: str) -> str:
    tested = [one for one in changes if np.isfinite(one["change_p"])]
    if not tested:
        return f"{where}: whether correlations change during training was not tested (too few runs, or steps per run)."
    turned = [one for one in tested if one["told"] == "changes sign"]
    moved = [one for one in tested if one["told"] == "changes"]
    if not turned and not moved:
        return f"{where}: no pair of {len(tested)} is shown to change from the first to the last third of training."
    text = f"{where}: from the first to the last third of training {counted(len(turned) + len(moved), 'pair')} of"
    text += f" {len(tested)} changed"
    named = [f"{one['a']} ~ {one['b']} ({one['early']:+.2f} to {one['late']:+.2f})" for one in [*turned, *moved]]
    return f"{text}, {len(turned)} of them from one clear sign to the other: {several(named)}."
