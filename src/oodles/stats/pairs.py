"""From estimates to rows: every number of a group with the caveats that qualify it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oodles.stats import cautions, noise, resample
from oodles.stats.estimates import (
    Estimate,
    Estimator,
    as_correlations,
    estimate,
    interval_of,
    raw_left_out,
    something_left,
)
from oodles.stats.inside import (
    Inside,
    by_usual_links,
    can_be_followed,
    covariate_bias,
    without_inside_noise,
)
from oodles.stats.outcomes import Examples
from oodles.stats.parts import Parts, without_parts
from oodles.stats.preference import Preference
from oodles.stats.resample import DESCRIPTIVE
from oodles.stats.residuals import SLIVER, centre
from oodles.stats.series import Series
from oodles.stats.splines import Array

SIGNIFICANT = 0.05
NOISE = "noise of the in-domain set"
UNKNOWN = "unknown noise of the in-domain set"
NOT_KNOWN = "noise of the in-domain set is not known and may make r by itself"  # how its caveat begins
AS_EXACT = "in-domain scores are taken as exact"
ONE_PART = "one part of training"
ERR_ALIKE = "models that err alike have less noise: keep per-example records"
NEARLY_ALL = 0.98  # R2 of a fit above which too little residual is left
NOISY = 0.3  # reliability of a residual below which too little residual is left
UNCERTAIN = 0.02  # correction of r for in-domain noise beyond which its own error counts
BIASED = 0.05  # bias through a noisy in-domain score that is worth saying
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


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Found:
    """An estimate with its correction for noise."""

    estimate: Estimate
    corrected: noise.Corrected
    inside: Inside  # noise of the in-domain set, followed through links that it can be followed through
    bias: Array  # that it adds to r there
    blurred: NDArray[np.bool_]  # per set: it makes up so much of a residual that taking it out is unsure
    p_corrected: Array  # sets x sets: of no correlation beyond what noise of the in-domain set makes
    answers: Preference  # how residuals depend on the share of an answer
    constant: tuple[bool, ...]  # per set: one answer nearly always, at most points
    outlier: Array  # sets x sets: the unit that stands out, or -1
    parts: Parts  # what is left without each part of training; none where nothing is significant


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class GroupTask:
    """What is the same for all estimates of a group and way of pooling."""

    recipe: Estimator
    items: Examples | None
    beware: cautions.Cautions
    said: tuple[str, ...]
    exact: bool = False  # in-domain scores are taken as free of noise where it is not known

    def run(self, used: Series) -> Found:
        """Estimate, correct for noise, look for what to beware of."""
        found = estimate(used, self.recipe)
        recipe, metric = self.recipe, self.beware.metric
        scale = "ranks" if recipe.correlation == "spearman" else metric
        corrected = noise.correct(found, self.items, metric=scale, method=recipe.method, level=recipe.level)
        followed, inside = found, corrected.inside
        flat = bool(self.beware.of_covariates(used, self.recipe.within))
        p_corrected = _beyond_noise(found, corrected.inside, self.recipe, flat)
        if not can_be_followed(recipe):
            usual = by_usual_links(recipe)
            followed = estimate(used, usual)
            inside = without_inside_noise(followed, self.items, metric, "gam")
            beyond = _beyond_noise(followed, inside, usual, flat)
            p_corrected = _without_bias(found, followed, inside, recipe, p_corrected, beyond)
        tested = any((values < SIGNIFICANT).any() for values in (found.interval.p_val, p_corrected))
        return Found(
            estimate=found,
            corrected=corrected,
            inside=inside,
            bias=covariate_bias(followed, inside),
            blurred=inside.unsure(followed.fit.residuals),
            p_corrected=p_corrected,
            answers=Preference.of(found, self.beware.shares_of(used), self.recipe, metric=self.beware.metric),
            constant=tuple(self.beware.mostly_one_answer(used, name) for name in used.test_sets),
            outlier=_outliers(found, self.recipe.within),
            parts=without_parts(found, self.recipe) if tested else Parts.none(len(used.test_sets)),
        )


def _beyond_noise(found: Estimate, inside: Inside, recipe: Estimator, flat: bool) -> Array:
    """p of no correlation, whatever part of it noise of the in-domain set may make.

    With records its noise is known, and the corrected correlation is tested. From n alone it lies between none and the
    binomial error: both ends are tested, and the larger p holds. Where in-domain scores differ by little more than
    noise, or by less, partial and raw correlations are the two ends.
    """
    p_val = found.interval.p_val
    if recipe.interval == "naive" or len(found.refits) > 1 or not len(found.left_out):
        return p_val
    if inside.r is not None and inside.left_out is not None:
        r, left_out = inside.r, inside.left_out
    elif flat or inside.hidden:
        r, left_out = found.raw, raw_left_out(found, recipe)
    else:
        return p_val
    other = _tested_anew(found, r, as_correlations(left_out), recipe)
    other = np.where(np.isnan(r) & np.isfinite(found.r), 1.0, other)
    at_the_limit = np.isnan(other) & (np.abs(r) > 1 - 1e-9) & (r * found.r > 0)  # more correlated without noise
    other = np.where(at_the_limit, p_val, other)
    if inside.source == "records" and inside.r is not None:
        return np.asarray(np.where(np.isnan(p_val), np.nan, other), dtype=float)
    return np.asarray(np.where(r * found.r < 0, 1.0, np.maximum(p_val, other)), dtype=float)


def _without_bias(
    found: Estimate, followed: Estimate, inside: Inside, recipe: Estimator, p_values: Array, beyond: Array
) -> Array:
    """p of no correlation beyond the bias that noise has in the usual links, where it cannot be followed in one's own.

    Without and with each unit that bias is taken off the correlation. Where every run has a fit of its own, `beyond`,
    the p of the usual links, takes the place of a p whose correlation is biased away from 0.
    """
    alone = len(followed.used.unit_names) < 2
    if inside.r is None or inside.left_out is None or alone or recipe.interval == "naive":
        return p_values
    bias = followed.r - inside.r
    if recipe.within == "separate":
        larger = ~(np.sign(found.r) * bias <= BIASED)
        other = np.where(larger, np.where(np.isnan(beyond), 1.0, beyond), p_values)
    else:
        shift = as_correlations(followed.left_out) - as_correlations(inside.left_out)
        r = np.clip(found.r - bias, -resample.PERFECT, resample.PERFECT)
        left_out = np.clip(as_correlations(found.left_out) - shift, -resample.PERFECT, resample.PERFECT)
        other = _tested_anew(found, r, left_out, recipe)
        other = np.where(np.isnan(other) | (r * found.r < 0), 1.0, other)
    return np.asarray(np.where(np.isnan(p_values), np.nan, np.fmax(p_values, other)), dtype=float)


def _tested_anew(found: Estimate, r: Array, left_out: Array, recipe: Estimator) -> Array:
    """p of correlations that were corrected, from one without each unit; t takes a correction as certain."""
    p_values = interval_of(found, r, left_out, recipe).p_val
    if recipe.interval == "t":
        anew = interval_of(found, r, left_out, replace(recipe, interval="jackknife")).p_val
        p_values = np.where(np.abs(found.r - r) > UNCERTAIN, anew, p_values)
    return np.asarray(p_values, dtype=float)


def _outliers(found: Estimate, within: str) -> Array:
    """The unit whose own correlation stands out, by pair; pooled residuals have no correlation of one run alone."""
    n_sets = len(found.used.test_sets)
    if within == "pooled":
        return np.full((n_sets, n_sets), -1.0)
    blocks = [found.fit.residuals[found.used.units == unit] for unit in range(len(found.used.unit_names))]
    totals = (found.fit.residuals**2).sum(axis=0)
    products = something_left(np.array([b.T @ b for b in blocks]), SLIVER * totals)
    return resample.standing_out(resample.to_z(as_correlations(products)))


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
    unknown = _unknown_noise(found, job) if not any(cautions.EQUAL in said for said in flat) else ""
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
        pair["doubt"] = _doubt(pair, found, i, j, shared=shared, flat=bool(flat))
        if unknown and not job.exact and not pair["doubt"] and np.isfinite(pair["p_val"]):
            pair["doubt"] = UNKNOWN
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


def _doubt(pair: Mapping[str, Any], found: Found, i: int, j: int, *, shared: bool, flat: bool) -> str:
    """What else than a relation could explain a correlation: nothing, or the word the verdict has for it."""
    if not np.isfinite(pair["p_val"]):
        return ""
    if shared:
        return "shared examples"
    if _of_answers(found, i, j):
        return "answers"
    hidden = not flat and (found.inside.hidden or bool(found.blurred[[i, j]].any()))
    gone = pair["p_val"] < SIGNIFICANT <= pair["p_corrected"]
    if hidden or gone:
        return NOISE
    return ONE_PART if _of_one_part(found, i, j) else ""


def _unknown_noise(found: Found, job: GroupTask) -> str:
    """Why nobody knows what noise of the in-domain set makes; empty where it is known."""
    if found.inside.source != "none":
        return ""
    if job.exact:
        return f"{AS_EXACT}: noise in them would correlate OOD sets by itself"
    return f"{NOT_KNOWN}: {found.inside.why}"


def _of_answers(found: Found, i: int, j: int) -> str:
    """Why how often an answer is given may explain a correlation; empty where nothing says so."""
    answers = found.answers
    if min(abs(answers.drift[i]), abs(answers.drift[j])) > cautions.DRIFTING:
        return "both residuals move with how often one answer is given"
    if found.constant[i] and found.constant[j]:
        return "both sets get one answer nearly always at half of the points or more"
    r, left = found.estimate.r[i, j], answers.r[i, j]
    gone = answers.p_val[i, j] >= SIGNIFICANT or left * r < 0
    if found.estimate.interval.p_val[i, j] < SIGNIFICANT and gone:
        told = f"r is {left:+.2f}" if np.isfinite(left) else "nothing is left"
        return f"without what the share of an answer can explain, {told}"
    return ""


def _of_one_part(found: Found, i: int, j: int) -> str:
    """Which part of training a correlation rests on, and what is left without it; empty where it rests on none."""
    parts, interval = found.parts, found.estimate.interval
    if not min(interval.p_val[i, j], found.p_corrected[i, j]) < SIGNIFICANT:
        return ""
    k = parts.carrier(i, j)
    if k is None:
        return ""
    told = f"r is {parts.r[k, i, j]:+.2f} ({parts.low[k, i, j]:+.2f} to {parts.high[k, i, j]:+.2f})"
    if np.isnan(parts.r[k, i, j]):
        told = "nothing is left to correlate"
    return f"without {parts.names[k]} {told}: much of it rests on one part of training"


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
    if of_answers := _of_answers(found, i, j):
        said.append(f"{of_answers}: this may be about answers, not skill")
    if of_one_part := _of_one_part(found, i, j):
        said.append(of_one_part)
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


def say_clear(pairs: list[dict[str, Any]]) -> None:
    """Which pairs are clear: beyond noise and doubt, with Holm's adjustment over all tests that are reported."""
    p_values = np.array([(pair["p_corrected"], pair["p_val"]) for pair in pairs], dtype=float).reshape(-1, 2)
    adjusted = (resample.holm(column) for column in p_values.T)
    for pair, p_said, p_with_noise in zip(pairs, *adjusted, strict=True):
        pair["p_said"] = float(p_said)
        if not pair["doubt"] and p_with_noise < SIGNIFICANT <= p_said and pair["p_val"] < pair["p_corrected"]:
            pair["doubt"] = NOISE  # it would be clear if in-domain scores had none
        pair["clear"] = bool(p_said < SIGNIFICANT and not pair["doubt"])


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
