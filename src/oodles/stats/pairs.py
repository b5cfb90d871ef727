"""From estimates to rows: every number of a group with the caveats that qualify it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import combinations
from typing import Any

import numpy as np

from oodles.stats import cautions, noise, resample
from oodles.stats.doubts import doubt, of_answers, of_curve, of_examples, of_one_part, unknown_noise
from oodles.stats.estimates import Estimate, Estimator, as_correlations
from oodles.stats.resample import DESCRIPTIVE
from oodles.stats.residuals import centre
from oodles.stats.series import Series
from oodles.stats.splines import Array
from oodles.stats.tested import BIASED, Found, GroupTask

ERR_ALIKE = "models that err alike have less noise: keep per-example records"
NEARLY_ALL = 0.98  # R2 of a fit above which too little residual is left
NOISY = 0.3  # reliability of a residual below which too little residual is left
CARRIES = 0.4  # share of a pair that one unit may carry without being named
UNEVEN = 0.75  # share of the units that mean squares of unequal size may be worth before it is said
LONG = 6  # points of a unit from which its mean square says something
SWAYS = 0.1  # by which a correlation may move without one model before the model is named
SHORT = 12  # steps of a run below which one curve per run is doubtful
TOGETHER = 0.05  # largest correlation that two sets' movements within runs allow, below which they never meet
CROWDED = 2 / 3  # share of points in the top tenth of the in-domain range above which it is doubtful, too
PAIR_COLUMNS = (
    *("a", "b", "r", "low", "high", "p_val", "p_holm", "p_bh", "r_raw"),
    *("r_corrected", "r_corrected_low", "r_corrected_high", "corrected_by", "p_corrected", "p_said", "clear", "doubt"),
    *("n_runs", "n_units", "n_steps", "method", "within", "interval", "correlation", "caveats"),
)
UNCORRECTED = {
    **dict.fromkeys(("r_corrected", "r_corrected_low", "r_corrected_high"), float("nan")),
    "corrected_by": "none",
}
FIT_COLUMNS = (
    *("test_set", "method", "within", "r2", "edf", "smoothing", "residual_sd", "reliability", "reliability_from"),
    *("n_runs", "n_steps", "caveats"),
)


def shares_examples(a: str, b: str, shared: Mapping[str, set[str]]) -> bool:
    """Whether two sets have examples in common, as a set and its slice."""
    return b in shared.get(a, ())


def empty_pair(used: Series, names: tuple[str, str], job: GroupTask, said: tuple[str, ...]) -> dict[str, Any]:
    """A row without numbers, which says why in its caveats."""
    return {
        **used.group,
        "a": names[0],
        "b": names[1],
        **dict.fromkeys(("r", "low", "high", "p_val", "p_holm", "p_bh", "r_raw"), float("nan")),
        **UNCORRECTED,
        "p_corrected": float("nan"),
        "p_said": float("nan"),
        "clear": False,
        "doubt": "",
        "n_runs": 0,
        "n_units": 0,
        "n_steps": 0,
        **_labels(job.recipe),
        "caveats": list(dict.fromkeys(said)),
    }


def _labels(recipe: Estimator) -> dict[str, str]:
    return {
        "method": recipe.method,
        "within": recipe.within,
        "interval": recipe.interval,
        "correlation": recipe.correlation,
    }


def pair_rows(
    found: Found, job: GroupTask, slices: Mapping[str, set[str]], extra: tuple[str, ...] = ()
) -> list[dict[str, Any]]:
    """One row per pair of test sets."""
    used = found.estimate.used
    of_set = [_set_caveats(found, job, k) for k in range(len(used.test_sets))]
    flat = job.beware.of_covariates(used, job.recipe.within)
    unknown = unknown_noise(found, job) if not any(cautions.EQUAL in said for said in flat) else ""
    meeting = _meeting(used, job.recipe.within)
    pairs = []
    for i, j in combinations(range(len(used.test_sets)), 2):
        names = (used.test_sets[i], used.test_sets[j])
        if shares_examples(*names, slices):
            continue
        interval, n_units = found.estimate.interval, int(found.estimate.counted[i, j])
        tested = n_units >= DESCRIPTIVE
        pair = empty_pair(used, names, job, ()) | {
            "r": found.estimate.r[i, j],
            "low": interval.low[i, j],
            "high": interval.high[i, j],
            "p_val": interval.p_val[i, j] if tested else float("nan"),
            "r_raw": found.estimate.raw[i, j],
            **_corrected_pair(found, i, j),
            "p_corrected": found.p_corrected[i, j] if tested else float("nan"),
            "n_runs": len(used.run_names),
            "n_units": n_units,
            "n_steps": len(used.scores),
        }
        said = [
            *job.said,
            *extra,
            *flat,
            *_unit_caveats(used, job.recipe, n_units),
            *of_set[i],
            *of_set[j],
        ]
        if shares_examples(*names, job.beware.shared):
            said.append("the two sets share examples: their noise is the same noise")
        if meeting[i, j] < TOGETHER and np.isfinite(pair["r"]):
            pair |= dict.fromkeys(("low", "high", "p_val", "p_corrected"), float("nan"))
            said.append(f"no interval: {names[0]} and {names[1]} hardly ever move in the same run")
        else:
            said += _interval_caveats(pair, found, i, j)
        if unknown and np.isfinite(pair["r"]):
            said.append(unknown)
        said += _pair_caveats(pair, found, i, j, bool(flat))
        shared = shares_examples(*names, job.beware.shared)
        not_known = bool(unknown) and not job.exact
        pair["doubt"] = doubt(pair, found, i, j, shared=shared, flat=bool(flat), unknown=not_known)
        pairs.append(pair | {"caveats": list(dict.fromkeys(said))})
    return pairs


def _meeting(used: Series, within: str) -> Array:
    """The largest correlation within runs that the sets' movements allow: what their shares of runs have in common.

    Of two sets that never move in the same run nothing can correlate within runs but what the fit puts there. Pooled,
    the levels of runs can correlate.
    """
    n_sets = len(used.test_sets)
    if within == "pooled":
        return np.ones((n_sets, n_sets))
    squares = np.zeros((len(used.run_names), n_sets))
    np.add.at(squares, used.runs, centre(used.scores, used.runs) ** 2)
    total = squares.sum(axis=0)
    shares = np.sqrt(squares / np.where(total > 0, total, np.nan))
    return np.asarray(shares.T @ shares, dtype=float)


def _corrected_pair(found: Found, i: int, j: int) -> dict[str, Any]:
    """What there is without noise; nothing where there is no correlation to correct."""
    corrected = found.corrected
    if not np.isfinite(found.estimate.r[i, j]):
        return UNCORRECTED
    return {
        "r_corrected": corrected.r[i, j],
        "r_corrected_low": corrected.low[i, j],
        "r_corrected_high": corrected.high[i, j],
        "corrected_by": _corrected_by(corrected, i, j),
    }


def _corrected_by(corrected: noise.Corrected, i: int, j: int) -> str:
    if "none" in (corrected.source[i], corrected.source[j]):
        return "none"
    return "records" if corrected.exact[i, j] else "range"


def _unit_caveats(used: Series, recipe: Estimator, n_units: int) -> list[str]:
    """What the number of independent units allows to be said."""
    said = []
    what = "run" if len(used.unit_names) == len(used.run_names) else "independent unit"
    if 0 < n_units < len(used.unit_names):
        said.append(
            f"{len(used.unit_names) - n_units} of {len(used.unit_names)} {what}s have no correlation of their own"
        )
    if n_units == 0:
        said.append(f"no {what} has a correlation of its own: no interval, no test")
    elif n_units == 1:
        said.append(f"one {what}: no interval, no test")
    elif n_units < DESCRIPTIVE:
        said.append(f"{n_units} {what}s: descriptive, no test (it takes {DESCRIPTIVE} or more)")
    if recipe.interval == "naive":
        said.append("naive interval: takes steps of a run as independent, so it is far too narrow")
    if recipe.interval == "bootstrap-percentile":
        said.append("percentile bootstrap: too narrow with few runs")
    return [*said, *_separate_caveats(used)] if recipe.within == "separate" else said


def _separate_caveats(used: Series) -> list[str]:
    """Where simulation shows that one curve per run leaves curvature behind, which then correlates."""
    said = []
    shortest = int(np.bincount(used.runs).min())
    if shortest < SHORT:
        said.append(f"runs of {shortest} steps: one fit per run may leave curvature behind; compare with within run")
    z = used.covariates
    top = (z > z.max(axis=0) - 0.1 * np.ptp(z, axis=0)).mean(axis=0).max()
    if top > CROWDED:
        said.append("in-domain scores crowd near their top: one fit per run may leave curvature behind")
    return said


def _set_caveats(found: Found, job: GroupTask, k: int) -> list[str]:
    """Caveats of one test set that concern all its pairs."""
    estimate_, corrected, name = found.estimate, found.corrected, found.estimate.used.test_sets[k]
    said = [*job.beware.of_set(estimate_.used, name), *corrected.caveats[k]]
    values = estimate_.used.scores[:, k]
    r2, reliability, left = estimate_.fit.r2[k], corrected.reliability[k], estimate_.left[k]
    if np.ptp(values) <= 1e-12 * max(1.0, float(np.abs(values).max())):
        return [*said, f"{name}: the same score at every point"]
    if not np.isfinite(estimate_.r[k, k]):
        why = "too few points for the fit" if left < 2 else _explained(estimate_, k)
        return [*said, f"{name}: too little residual left ({why})"]
    if r2 > NEARLY_ALL:
        said.append(f"{name}: too little residual left (R2 {r2:.3f})")
    elif corrected.violated[k]:
        said.append(
            f"{name}: its examples show more noise than there is residual (reliability {reliability:.2f}), so they are "
            "not independent draws within labels: r_corrected is not given"
        )
    elif reliability < NOISY:
        measured, least = corrected.source[k] == "records", f"{max(reliability, 0.0):.2f}"
        kind = f"reliability {least}" if measured else f"reliability as low as {least} by n alone; {ERR_ALIKE}"
        said.append(f"{name}: too little residual left ({kind})")
    if corrected.source[k] == "records" and not corrected.violated[k]:
        said += _correction_caveats(name, corrected.items[k], corrected.uncertainty[k])
    if estimate_.fit.edf[k] > len(values) / 2:
        said.append(f"the fit uses {estimate_.fit.edf[k]:.1f} of {len(values)} points: little is left to correlate")
    if job.recipe.method in ("probit-linear", "logit-linear") and ((values <= 0) | (values >= 1)).any():
        said.append(f"{name}: scores of 0 or 1 were moved inside by half an example")
    return said


def _correction_caveats(name: str, items: int, uncertainty: float) -> list[str]:
    """Where simulation shows that the corrected correlation is off, or says next to nothing."""
    if not noise.is_unsure(items, uncertainty):
        return []
    return [f"{name}: its residual without noise is poorly known from {items} independent items: r_corrected is unsure"]


def _explained(found: Estimate, k: int) -> str:
    """Why nothing is left of a set that does move."""
    left = float(np.sqrt(np.mean(found.fit.residuals[:, k] ** 2)))
    so = f": residuals of {left:.1g}, no more than rounding" if left > 1e-9 else ""
    return f"the in-domain score explains all of it{so}"


def _pair_caveats(pair: Mapping[str, Any], found: Found, i: int, j: int, flat: bool) -> list[str]:
    """Caveats of one pair; where in-domain scores hardly differ (`flat`) their noise has nothing to bias."""
    said = []
    r, bias = float(pair["r"]), found.bias[i, j]
    if not np.isfinite(r):
        return []
    if not flat:
        said += _noise_caveats(found, i, j, bias)
    said += _carried(found.estimate, i, j)
    if pair["within"] == "run":
        said += _uneven(found.estimate, i, j)
    if found.outlier[i, j] >= 0:
        name = found.estimate.used.unit_names[int(found.outlier[i, j])]
        said.append(f"{name} stands out from the other runs: interval and test take runs as near normal")
    if by_answers := of_answers(found, i, j):
        said.append(f"{by_answers}: this may be about answers, not skill")
    if by_one_part := of_one_part(found, i, j):
        said.append(by_one_part)
    if by_curve := of_curve(found, i, j):
        said.append(by_curve)
    if by_examples := of_examples(pair, found, i, j):
        said.append(by_examples)
    if pair["corrected_by"] == "range":
        both = {found.corrected.source[i], found.corrected.source[j]} == {"records"}
        lacking = "no records of the in-domain set" if both else "no per-example records"
        said.append(f"{lacking}: r_corrected is only known to lie between its limits")
    elif pair["corrected_by"] == "records" and not np.isfinite(pair["r_corrected"]):
        said.append("noise of the test sets explains all residual: no corrected correlation")
    elif abs(float(pair["r_corrected"])) >= noise.CEILING:
        low, high = sorted(found.corrected.reliability[[i, j]])
        said.append(
            "the corrected correlation reached its bound: without the noise "
            f"(reliabilities {low:.2f} and {high:.2f}) it would be 1 or more"
        )
    return said


def _noise_caveats(found: Found, i: int, j: int, bias: float) -> list[str]:
    """What noise of the in-domain set does to r, and whether r_corrected is free of it."""
    inside, sizes = found.inside, found.estimate.used.covariate_sizes
    size = float(np.nanmin(sizes)) if np.isfinite(sizes).any() else float("nan")
    known = f" (n = {size:.0f})" if np.isfinite(size) else ""
    noisy = f"in-domain scores are noisy relative to their spread{known}"
    if inside.hidden:
        alone = "" if inside.source == "records" else f" by n alone ({ERR_ALIKE})"
        return [f"{noisy}: noise may be most of it{alone}, so what r is without it cannot be told"]
    if not np.isfinite(bias) and inside.full is not None:
        return [f"{noisy}: this noise may explain all residual"]
    if not np.isfinite(bias) or abs(bias) <= BIASED:
        return []
    way, most = "upward" if bias > 0 else "downward", "" if inside.source == "records" else "up to "
    said = [f"{noisy}: r is biased {way}, by {most}about {abs(bias):.2f}"]
    if found.corrected.exact[i, j] and inside.source == "records" and found.corrected.inside.full is not None:
        unsure = bool(found.blurred[[i, j]].any())
        said[0] += "; r_corrected is not" if not unsure else "; this is most of a residual, so r_corrected is unsure"
    return said


def _carried(found: Estimate, i: int, j: int) -> list[str]:
    """Units that carry a large part of a pair, or, where each has one point, that move it by themselves."""
    n_units, names = len(found.used.unit_names), found.used.unit_names
    if n_units < DESCRIPTIVE:
        return []
    if len(found.used.scores) > n_units:
        share = found.shares[:, i, j]
        return [f"{names[u]} carries {share[u]:.0%} of this pair" for u in np.flatnonzero(share > CARRIES)]
    without = as_correlations(found.left_out)[:, i, j]
    moved = np.abs(without - found.r[i, j])
    order = np.argsort(-moved, kind="stable")
    return [f"without {names[u]} r is {without[u]:+.2f}" for u in order[:3] if moved[u] > SWAYS]


def uneven_units(found: Estimate) -> Array:
    """Sets x sets: what the mean squares of long units are worth in equal ones, as a share of these units."""
    points = np.bincount(found.used.units, minlength=len(found.used.unit_names))
    long = points >= LONG
    if long.sum() < 2:
        return np.ones_like(found.r)
    means = found.shares[long] / points[long, None, None]
    means /= np.maximum(means.sum(axis=0), 1e-300)
    return np.asarray(resample.effective_units(means) / long.sum(), dtype=float)


def _uneven(found: Estimate, i: int, j: int) -> list[str]:
    """Residuals of some runs are much larger: r is mostly theirs, and noise shrinks it more in the others."""
    worth = uneven_units(found)[i, j]
    if len(found.used.unit_names) < DESCRIPTIVE or not worth < UNEVEN:
        return []
    return [
        f"runs differ in the size of their residuals (worth {worth:.0%} of as many equal runs): r is mostly that of "
        "the largest, and with other runs noise may shrink it more or less"
    ]


def _interval_caveats(pair: Mapping[str, Any], found: Found, i: int, j: int) -> list[str]:
    """Why there is no interval, or no correlation."""
    r = float(pair["r"])
    if abs(r) > resample.PERFECT:
        return ["the residuals are equal up to a factor: no interval"]
    if np.isfinite(r) and not np.isfinite(pair["low"]) and pair["n_units"] > 1:
        return [_no_interval(found.estimate, i, j)]
    if not np.isfinite(r) and np.isfinite(found.estimate.r[[i, j], [i, j]]).all():
        return ["no correlation: in every run the residuals are equal up to a factor, or one of them is empty"]
    return []


def _no_interval(found: Estimate, i: int, j: int) -> str:
    """Which run a correlation rests on, if it rests on one."""
    for k in (i, j):
        without = np.flatnonzero(np.isnan(found.left_out[:, k, k]))
        if len(without):
            return f"no interval: {found.used.test_sets[k]} rests on {found.used.unit_names[without[0]]} alone"
    if np.ptp(as_correlations(found.left_out)[:, i, j]) <= 1e-12:
        return "no interval: the runs are copies of each other"
    return "no interval: in some resamples of the runs nothing is left to correlate"


def adjust(pairs: list[dict[str, Any]]) -> None:
    """Holm and Benjamini-Hochberg over the pairs of a group."""
    p_values = np.array([pair["p_val"] for pair in pairs], dtype=float)
    for pair, by_holm, by_bh in zip(pairs, resample.holm(p_values), resample.benjamini_hochberg(p_values), strict=True):
        pair["p_holm"], pair["p_bh"] = float(by_holm), float(by_bh)


def mark_disagreement(found: Mapping[str, list[dict[str, Any]]]) -> None:
    """Pooling runs can flip the sign; say so on both numbers."""
    if "pooled" not in found or "run" not in found:
        return
    inside = {(pair["a"], pair["b"]): pair for pair in found["run"]}
    for pair in found["pooled"]:
        other = inside.get((pair["a"], pair["b"]))
        # a correlation that rounds to zero has no sign to speak of
        if other is not None and pair["r"] * other["r"] < 0 and min(abs(pair["r"]), abs(other["r"])) >= 0.005:
            for one in (pair, other):
                one["caveats"].append(
                    "pooled and within-run correlations differ in sign: they answer different questions"
                )


def fit_rows(found: Found, job: GroupTask, which: Iterable[int]) -> list[dict[str, Any]]:
    """One row per test set: how well the in-domain score explains it, and how much of the rest is noise."""
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
