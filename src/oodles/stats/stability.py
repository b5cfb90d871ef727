"""How steady are models? Their residuals, their scores from step to step, and their correlations from run to run.

The study's second discovery: some models fluctuate, others are steady. Per model (or whatever makes groups): the sd of
the residuals (with records: without the noise of finite test sets), the sd of a score from one evaluation to the next,
and the sd of Fisher's z over runs; whether groups differ, whether it goes with size, and whether test sets of one kind
of shift agree more than sets of different kinds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from oodles.stats import effects
from oodles.stats.answers import Answer, several
from oodles.stats.clusters import ClusterValues, Pair, Scores, cluster_values
from oodles.stats.effects import Sample
from oodles.stats.estimates import Estimate, estimate, usable_points
from oodles.stats.items import noises_of
from oodles.stats.pairs import shares_examples
from oodles.stats.residuals import centre
from oodles.stats.series import Series
from oodles.stats.splines import Array

WHAT = {
    "residuals": "Sd of residuals",
    "steps": "Sd from step to step",
    "correlations": "Sd over runs of Fisher's z",
}
TESTED = 9  # as for the claim
COLUMNS = ("what", "sd", "low", "high", "units", "parameters")
TRENDS = ("what", "p_differ", "groups", "per_tenfold", "per_tenfold_low", "per_tenfold_high", "p_size")
KINDS = ("kinds", "difference", "low", "high", "p_val", "same_pairs", "other_pairs", "groups")
SIZE = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)\s*([kmb])(?![a-z])", re.IGNORECASE)
UNITS = {"k": 1e3, "m": 1e6, "b": 1e9}


def stability(scores: Scores) -> Answer:
    """Steadiness of every group, with intervals, and what it goes with.

    Returns
    -------
    Answer
        Tables `stability`, a row per group and measure; `stability_trends`, whether groups differ and how a measure
        changes with size; `stability_kinds`, whether sets of one kind agree more.
    """
    within = "run" if scores.table.groupby("run")["step"].nunique().max() > 1 else "pooled"
    recipe = replace(scores.recipe, within=within, interval="jackknife")
    rows: list[dict[str, Any]] = []
    samples: dict[str, list[tuple[Mapping[str, str], Sample, float]]] = {what: [] for what in WHAT}
    clusters = []
    for series in scores.groups():
        used = _complete(series, within)
        if used is None:
            continue
        found = estimate(used, recipe)
        label = ", ".join(series.group.values())
        values = cluster_values(used, recipe, scores.items, name=label, metric=scores.metric, exact=scores.exact)
        clusters.append(values)
        size = size_of(series, scores.table)
        for what, sample in _measures(found, values, scores).items():
            samples[what].append((series.group, sample, size))
            low, high = np.exp(sample.interval(scores.recipe.level)) if np.isfinite(sample.square) else (np.nan, np.nan)
            told = {"sd": float(np.exp(sample.mean)), "low": float(low), "high": float(high)}
            rows.append({**series.group, "what": what, **told, "units": sample.units, "parameters": size})
    trends = [_trend(what, known) for what, known in samples.items() if known]
    kinds = _kinds(clusters, scores)
    return Answer(
        name="stability",
        sentences=tuple(filter(None, [*(_sentence(t, samples[t["what"]]) for t in trends), _kinds_sentence(kinds)])),
        tables={
            "stability": pd.DataFrame(rows, columns=[*scores.by, *COLUMNS]),
            "stability_trends": pd.DataFrame(trends, columns=list(TRENDS)),
            "stability_kinds": pd.DataFrame(kinds, columns=list(KINDS)),
        },
        caveats=(*_said(scores),),
    )


def _said(scores: Scores) -> list[str]:
    """What qualifies all of it."""
    said = [] if "tags" in scores.table.columns else ["no column tags: kinds of shift were not compared"]
    if scores.items is None:
        said.append("no per-example records: sds include the noise of the test sets, which may differ between groups")
    return said


def _complete(series: Series, within: str) -> Series | None:
    """Points at which all sets were scored."""
    known = np.asarray(~np.isnan(series.scores).any(axis=1), dtype=bool)
    if not known.any():
        return None
    used = series.at(known)
    usable = usable_points(used, within)
    used = used.at(usable) if usable.any() else used
    return used if usable.any() and len(used.unit_names) > 1 and len(used.test_sets) > 1 else None


def _measures(found: Estimate, values: ClusterValues, scores: Scores) -> dict[str, Sample]:
    """Log of every measure, from pseudo-values."""
    used = found.used
    noises = noises_of(found, scores.items, scores.metric, scores.recipe.method)
    own = np.array([[one.total, *one.left_out] for one in noises]).T
    own = np.where([one.source == "records" for one in noises], own, 0.0)
    squares = np.concatenate(
        [(found.fit.residuals**2).sum(axis=0)[None], np.diagonal(found.left_out, axis1=1, axis2=2)]
    )
    points = len(used.scores) - np.array([0, *np.bincount(used.units)])
    left = np.where(squares - own > 0.05 * squares, squares - own, np.nan)
    known = np.isfinite(left).all(axis=0)
    measured = {"residuals": _log_sample(left[:, known].mean(axis=1) / points)} if known.any() else {}
    steps = _step_squares(used)
    if steps is not None:
        measured["steps"] = _log_sample(steps)
    spreads = [
        sample.units * sample.square
        for pair, sample in values.observed.items()
        if np.isfinite(sample.square) and not shares_examples(*pair, scores.overlapping)
    ]
    if spreads:
        units = next(iter(values.observed.values())).units
        # A sample variance has a log with variance 2 / (n - 1); pairs are not independent, so their mean counts as one.
        square = 2.0 / (units - 1) / 4
        mean = 0.5 * float(np.log(np.mean(spreads)))
        measured["correlations"] = Sample(mean=mean, square=square, units=units, effective=float(units))
    return measured


def _log_sample(values: Array) -> Sample:
    """Log of a root, of all units and without each, as pseudo-values."""
    logs = 0.5 * np.log(np.maximum(values, 1e-12))
    n_units = len(logs) - 1
    return Sample.of(n_units * logs[0] - (n_units - 1) * logs[1:])


def _step_squares(used: Series) -> Array | None:
    """Mean squared change of a score from one evaluation to the next, less its mean over the run."""
    order = np.lexsort((used.steps.astype(float), used.runs))
    runs, units = used.runs[order], used.units[order]
    same = np.diff(runs) == 0
    if not same.any():
        return None
    moves = np.diff(used.scores[order], axis=0)[same]
    moves = centre(moves, np.unique(runs[:-1][same], return_inverse=True)[1].astype(np.int64))
    squares, counts = np.zeros(len(used.unit_names)), np.zeros(len(used.unit_names))
    np.add.at(squares, units[:-1][same], (moves**2).mean(axis=1))
    np.add.at(counts, units[:-1][same], 1.0)
    total, count = squares.sum(), counts.sum()
    return np.asarray([total / count, *((total - squares) / np.maximum(count - counts, 1.0))], dtype=float)


def size_of(series: Series, table: pd.DataFrame) -> float:
    """Parameters of a group's model: from a column `size` or `parameters`, else from its name; nan where not told.

    >>> read_size("pythia-1.4b"), read_size("smollm2-135m-q4"), read_size("resnet50")
    (1400000000.0, 135000000.0, nan)
    """
    rows = table[table["run"].isin(series.run_names)]
    for column in ("parameters", "size", "model"):
        if column in rows.columns and rows[column].notna().any():
            sizes = {read_size(str(value)) for value in rows[column].dropna().unique()}
            if len(sizes) == 1 and np.isfinite(next(iter(sizes))):
                return sizes.pop()
    return float("nan")


def read_size(text: str) -> float:
    """A number of parameters in a name."""
    found = SIZE.search(text.replace("_", "-").replace("-", " "))
    if found:
        return float(found[1]) * UNITS[found[2].lower()]
    try:
        return float(text) if float(text) > 1e5 else float("nan")
    except ValueError:
        return float("nan")


def _trend(what: str, known: Sequence[tuple[Mapping[str, str], Sample, float]]) -> dict[str, Any]:
    """Whether groups differ (nine units and more), and the change with a tenfold size."""
    usable = [sample for _, sample, _ in known if sample.units >= TESTED and np.isfinite(sample.square)]
    differ = effects.equal_means(usable).p_val if len(usable) > 1 else float("nan")
    sized = _sized(known)
    nothing = dict.fromkeys(("per_tenfold", "per_tenfold_low", "per_tenfold_high", "p_size"), float("nan"))
    row = {"what": what, "p_differ": differ, "groups": len(known), **nothing}
    if len({size for size, _ in sized}) < 4:
        return row
    x, y = np.log10([size for size, _ in sized]), np.array([value for _, value in sized])
    line = stats.linregress(x, y)
    reach = float(stats.t.ppf(0.975, len(x) - 2)) * float(line.stderr)
    limits = np.exp([line.slope, line.slope - reach, line.slope + reach])
    return {
        **row,
        "per_tenfold": float(limits[0]),
        "per_tenfold_low": float(limits[1]),
        "per_tenfold_high": float(limits[2]),
        "p_size": float(line.pvalue),
    }


def _sized(known: Sequence[tuple[Mapping[str, str], Sample, float]]) -> list[tuple[float, float]]:
    """Size and mean of every model: groups of one model (its train sets) are no independent models of that size."""
    values: dict[tuple[str, float], list[float]] = {}
    for number, (group, sample, size) in enumerate(known):
        if np.isfinite(size):
            values.setdefault((group.get("model", str(number)), size), []).append(sample.mean)
    return [(size, float(np.mean(own))) for (_, size), own in values.items()]


def _sentence(trend: Mapping[str, Any], known: Sequence[tuple[Mapping[str, str], Sample, float]]) -> str:
    ranked = sorted(known, key=lambda one: one[1].mean)
    ends = [f"{', '.join(one[0].values()) or 'all runs'} {np.exp(one[1].mean):.3f}" for one in (ranked[0], ranked[-1])]
    text = f"{WHAT[trend['what']]}: "
    text += ends[0] if len(known) == 1 else f"from {ends[0]} to {ends[1]} over {len(known)} groups"
    if np.isfinite(trend["p_differ"]):
        verb = "differ" if trend["p_differ"] < 0.05 else "are not shown to differ"
        text += f"; groups {verb} (p {_p(trend['p_differ'])})"
    elif len(known) > 1:
        text += f"; whether groups differ was not tested (it takes {TESTED} independent runs in each of two)"
    if np.isfinite(trend["per_tenfold"]):
        text += (
            f"; times {trend['per_tenfold']:.2f} [{trend['per_tenfold_low']:.2f}, {trend['per_tenfold_high']:.2f}]"
            " with ten times the size"
        )
    return f"{text}."


def _p(value: float) -> str:
    return "< .001" if value < 0.001 else f"= {value:.3f}".replace("0.", ".")


# kinds of shift


def _kinds(clusters: Sequence[ClusterValues], scores: Scores) -> list[dict[str, Any]]:
    """Mean Fisher's z of pairs with a kind in common less that of the other pairs, over groups."""
    table = scores.table
    if "tags" not in table.columns:
        return []
    tags = table.drop_duplicates("test_set").set_index("test_set")["tags"]
    named = {str(name): set(split_tags(text)) for name, text in tags.items()}
    sets = sorted({name for cluster in clusters for pair in cluster.observed for name in pair})
    pairs = list(combinations(sets, 2))
    values = np.array([_means(cluster, pairs, scores) for cluster in clusters]).reshape(len(clusters), len(pairs))
    shares = np.array([[bool(named.get(a, set()) & named.get(b, set())) for b in sets] for a in sets], dtype=bool)
    same = np.array([shares[sets.index(a), sets.index(b)] for a, b in pairs], dtype=bool)
    apart = _apart(values, same)
    compared = np.isfinite(apart)
    if not compared.any():
        return []
    values, apart = values[compared], apart[compared]
    error = np.std(apart, ddof=1) / np.sqrt(len(apart)) if len(apart) > 1 else float("nan")
    reach = float(stats.t.ppf(0.975, max(len(apart) - 1, 1))) * float(error)
    known = np.isfinite(values).any(axis=0)
    return [
        {
            "kinds": ", ".join(sorted(set().union(*named.values()))),
            "difference": float(apart.mean()),
            "low": float(apart.mean()) - reach,
            "high": float(apart.mean()) + reach,
            "p_val": _permuted(values, shares, float(apart.mean())),
            "same_pairs": int((known & same).sum()),
            "other_pairs": int((known & ~same).sum()),
            "groups": len(apart),
        }
    ]


def _means(cluster: ClusterValues, pairs: Sequence[Pair], scores: Scores) -> list[float]:
    """Fisher's z of these pairs, without noise where it was measured; of sets that share examples nan."""
    end = cluster.corrected if cluster.measured else cluster.observed
    found = []
    for a, b in pairs:
        sample = None if shares_examples(a, b, scores.overlapping) else end.get((a, b))
        found.append(float("nan") if sample is None else sample.mean)
    return found


def _apart(values: Array, same: NDArray[np.bool_]) -> Array:
    """Of every group (row) the mean over these pairs less that over the others; nan where it lacks either."""
    known, filled = np.isfinite(values), np.nan_to_num(values)
    with np.errstate(invalid="ignore"):
        ours, others = ((filled * which).sum(axis=1) / (known & which).sum(axis=1) for which in (same, ~same))
    return np.asarray(ours - others, dtype=float)


def split_tags(text: object) -> list[str]:
    """The kinds of shift that a cell of the column `tags` names.

    >>> split_tags("user group, syntax"), split_tags(None)
    (['user group', 'syntax'], [])
    """
    missing = text is None or text is pd.NA or (isinstance(text, float) and np.isnan(text))
    return [] if missing else [tag.strip() for tag in re.split("[,;]", str(text)) if tag.strip()]


def _permuted(values: Array, shares: NDArray[np.bool_], observed: float, draws: int = 2000) -> float:
    """Kinds permuted over test sets: pairs share sets, so pairs cannot be permuted (QAP)."""
    i, j = np.triu_indices(len(shares), 1)  # in the order of `combinations`
    draw = np.random.default_rng(0)
    drawn = [draw.permutation(len(shares)) for _ in range(draws)]
    apart = np.array([_apart(values, shares[order[i], order[j]]) for order in drawn])
    apart = apart[np.isfinite(apart).all(axis=1)].mean(axis=1)
    return float((np.abs(apart) >= abs(observed) - 1e-12).sum() + 1) / (len(apart) + 1)


def _kinds_sentence(kinds: Sequence[Mapping[str, Any]]) -> str:
    if not kinds:
        return ""
    row = kinds[0]
    more = "more" if row["difference"] > 0 else "less"
    shown = "agree" if row["p_val"] < 0.05 else "are not shown to agree"
    names = several(str(row["kinds"]).split(", "))
    return (
        f"Test sets with a kind of shift in common ({names}) {shown} {more} than others: Fisher's z differs by"
        f" {row['difference']:+.2f} (p {_p(row['p_val'])}, kinds permuted over test sets)."
    )
