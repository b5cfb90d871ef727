"""Which test sets should one run? Sets that tell the same story, and the few that predict the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from scipy.cluster import hierarchy
from scipy.spatial import distance

from oodles.errors import quoted
from oodles.stats.answers import Answer, several
from oodles.stats.clusters import Scores
from oodles.stats.estimates import estimate, usable_points
from oodles.stats.pairs import shares_examples
from oodles.stats.residuals import Ints
from oodles.stats.series import Series
from oodles.stats.splines import Array

ALIKE = 0.5  # residual correlation at which sets are put together
ENOUGH = 0.9  # share of the attainable reduction of the error at which a subset is enough
HELPS = 0.1  # share of the squared error that a subset must explain to be of use
FOLDS = 10  # parts into which units are divided; each unit by itself where there are fewer
RIDGE = 1e-6
COLUMNS = ("chosen", "test_set", "error", "error_in_domain", "noise", "reduction", "enough")
SETS = ("test_set", "cluster", "error_in_domain", "error", "noise")
TREE = ("merge", "left", "left_merge", "right", "right_merge", "r")


def redundancy(scores: Scores) -> Answer:
    """Clusters of test sets, and the smallest subset that predicts the others in runs it was not fitted to.

    Returns
    -------
    Answer
        Tables `redundancy`, a row per set in the order in which it is added; `redundancy_sets`, a row per set with its
        cluster; `redundancy_tree`, a row per merge of two sets or earlier merges, with the mean residual correlation at
        which they meet; a sentence per group.
    """
    chosen_rows: list[dict[str, Any]] = []
    set_rows: list[dict[str, Any]] = []
    merges: list[dict[str, Any]] = []
    sentences = []
    for series in scores.groups():
        used = _whole(series, scores)
        where = f"{', '.join(series.group.values())}: " if series.group else ""
        if used is None:
            sentences.append(f"{where}needs three test sets and three runs with all scores.")
            continue
        found = _select(used)
        tree = _tree(used, scores)
        clusters = np.asarray(hierarchy.fcluster(tree, 1.0 - ALIKE, "distance"), dtype=np.int64)
        merges += [{**series.group, **merge} for merge in _merges(tree, used.test_sets)]
        chosen_rows += [{**series.group, **row} for row in found.rows]
        for k, name in enumerate(used.test_sets):
            errors = {"error_in_domain": found.alone[k], "error": found.final[k], "noise": found.noise[k]}
            set_rows.append({**series.group, "test_set": name, "cluster": int(clusters[k]), **errors})
        sentences.append(where + _sentence(found, used, clusters))
    return Answer(
        name="redundancy",
        sentences=tuple(sentences),
        tables={
            "redundancy": pd.DataFrame(chosen_rows, columns=[*scores.by, *COLUMNS]),
            "redundancy_sets": pd.DataFrame(set_rows, columns=[*scores.by, *SETS]),
            "redundancy_tree": pd.DataFrame(merges, columns=[*scores.by, *TREE]),
        },
    )


def _whole(series: Series, scores: Scores) -> Series | None:
    """Points at which all sets were scored; of sets that share examples the first stays."""
    names = list(series.test_sets)
    kept: list[int] = []
    for k, name in enumerate(names):
        if all(not shares_examples(name, names[other], scores.overlapping) for other in kept):
            kept.append(k)
    known = np.asarray(~np.isnan(series.scores[:, kept]).any(axis=1), dtype=bool)
    if not known.any():
        return None
    used = series.at(known, kept)
    used = used.at(usable_points(used, "pooled"))
    return used if len(used.test_sets) > 2 and len(used.unit_names) > 2 else None


def _tree(used: Series, scores: Scores) -> Array:
    """Average linkage on one minus the residual correlation."""
    recipe = replace(scores.recipe, within=scores.ways[0], interval="jackknife")
    usable = usable_points(used, recipe.within)
    r = estimate(used.at(usable) if usable.any() else used, recipe).r
    apart = np.clip(1.0 - np.where(np.isfinite(r), r, 0.0), 0.0, 2.0)
    np.fill_diagonal(apart, 0.0)
    return np.asarray(hierarchy.linkage(distance.squareform((apart + apart.T) / 2, checks=False), "average"))


def _merges(tree: Array, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The tree as rows: each side is a test set, or an earlier merge (then it has no name, and a number)."""
    for k, (left, right, apart, _) in enumerate(tree):
        row: dict[str, Any] = {"merge": k + 1}
        for side, node in (("left", int(left)), ("right", int(right))):
            is_set = node < len(names)
            row |= {side: names[node] if is_set else "", f"{side}_merge": 0 if is_set else node - len(names) + 1}
        yield {**row, "r": 1.0 - float(apart)}


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class _Selection:
    rows: list[dict[str, Any]]
    alone: Array  # error of each set from the in-domain score alone
    final: Array  # and from the chosen subset; of its own sets nan
    noise: Array


def _select(used: Series) -> _Selection:
    """Add the set that lowers the error of the others most, one after the other."""
    folds = _folds(used)
    n_sets = len(used.test_sets)
    errors = {(): _errors(used, [], folds)}
    chosen: list[int] = []
    path = [errors[()]]
    while len(chosen) < n_sets - 1:
        rest = [k for k in range(n_sets) if k not in chosen]
        tried = {k: _errors(used, [*chosen, k], folds) for k in rest}
        best = min(rest, key=lambda k: float(np.nanmean(tried[k] ** 2)) if len(rest) > 1 else 0.0)
        chosen.append(best)
        path.append(tried[best])
    # Errors of different subsets are compared as shares of what in-domain leaves, over the sets that are not chosen.
    shares = [1.0 - float(np.nansum(e**2)) / float(np.nansum(path[0][np.isfinite(e)] ** 2)) for e in path]
    most = max(shares)
    enough = (
        next((k for k, share in enumerate(shares) if share >= ENOUGH * most), len(shares) - 1) if most >= HELPS else 0
    )
    noise = np.sqrt(np.nanmean(used.scores * (1 - used.scores) / used.sizes, axis=0)) if _bounded(used) else None
    floor = np.full(n_sets, np.nan) if noise is None else noise
    rows = [
        {
            "chosen": k,
            "test_set": used.test_sets[chosen[k - 1]] if k else "(in-domain alone)",
            "error": float(np.sqrt(np.nanmean(path[k] ** 2))),
            "error_in_domain": float(np.sqrt(np.nanmean(path[0][np.isfinite(path[k])] ** 2))),
            "noise": float(np.sqrt(np.mean(floor[np.isfinite(path[k])] ** 2))),
            "reduction": shares[k],
            "enough": k == enough,
        }
        for k in range(len(path))
    ]
    return _Selection(rows=rows, alone=path[0], final=path[enough], noise=floor)


def _bounded(used: Series) -> bool:
    inside = (used.scores >= 0).all() and (used.scores <= 1).all()
    return bool(inside and np.isfinite(used.sizes).all() and (used.sizes > 0).all())


def _folds(used: Series) -> Ints:
    """Units by themselves, or in ten parts."""
    n_units = len(used.unit_names)
    part = np.arange(n_units) if n_units <= FOLDS else np.random.default_rng(0).permutation(n_units) % FOLDS
    return np.asarray(part[used.units], dtype=np.int64)


def _errors(used: Series, chosen: list[int], folds: Ints) -> Array:
    """Root mean square error of every set that is not chosen, in units that were left out of the fit."""
    rest = [k for k in range(len(used.test_sets)) if k not in chosen]
    design = np.column_stack([used.covariates, used.scores[:, chosen]])
    squares, count = np.zeros(len(rest)), 0
    for fold in np.unique(folds):
        inside, outside = folds != fold, folds == fold
        middle, spread = design[inside].mean(axis=0), design[inside].std(axis=0) + 1e-12
        x = np.column_stack([np.ones(len(design)), (design - middle) / spread])
        gram = x[inside].T @ x[inside] + RIDGE * inside.sum() * np.eye(x.shape[1])
        fit = np.linalg.solve(gram, x[inside].T @ used.scores[inside][:, rest])
        squares += ((used.scores[outside][:, rest] - x[outside] @ fit) ** 2).sum(axis=0)
        count += int(outside.sum())
    found = np.full(len(used.test_sets), np.nan)
    found[rest] = np.sqrt(squares / count)
    return found


def _sentence(found: _Selection, used: Series, clusters: Ints) -> str:
    at = next(k for k, row in enumerate(found.rows) if row["enough"])
    groups = [[used.test_sets[k] for k in np.flatnonzero(clusters == c)] for c in np.unique(clusters)]
    alike = [" + ".join(map(quoted, names)) for names in groups if len(names) > 1]
    none = f"No two sets correlate at {ALIKE:g} or more beyond in-domain."
    told = f"Sets that move together beyond in-domain: {several(alike)}." if alike else none
    if at == 0:
        return f"No test set helps to predict the others in runs that were not seen: run them all. {told}"
    names = [quoted(row["test_set"]) for row in found.rows[1 : at + 1]]
    row = found.rows[at]
    return (
        f"{len(names)} of {len(used.test_sets)} test sets ({several(names, 6)}) predict the others in runs that were "
        f"not seen with an error of {row['error']:.3f}, against {row['error_in_domain']:.3f} from in-domain alone."
        f" {told}"
    )
