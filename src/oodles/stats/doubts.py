"""What else than a relation of two test sets could explain their correlation, and which pairs are clear of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from oodles.stats import cautions, resample
from oodles.stats.parts import SHRINKS
from oodles.stats.resample import SIGNIFICANT
from oodles.stats.tested import Found, GroupTask

NOISE = "noise of the in-domain set"
UNKNOWN = "unknown noise of the in-domain set"
NOT_KNOWN = "noise of the in-domain set is not known and may make r by itself"  # how its caveat begins
AS_EXACT = "in-domain scores are taken as exact"
ONE_PART = "one part of training"
EXAMPLES = "draw of the examples"
CURVE = "the curve"
ENOUGH = 6.0  # residual degrees of freedom with which a further curve can be tested


def doubt(pair: Mapping[str, Any], found: Found, i: int, j: int, *, shared: bool, flat: bool, unknown: bool) -> str:
    """What else than a relation could explain a correlation: nothing, or the word the verdict has for it.

    `shared`: both sets have examples in common; `flat`: in-domain scores hardly differ; `unknown`: nobody
    knows how noisy they are.
    """
    if not np.isfinite(pair["p_val"]):
        return ""
    if shared:
        return "shared examples"
    if of_answers(found, i, j):
        return "answers"
    hidden = not flat and (found.inside.hidden or bool(found.blurred[[i, j]].any()))
    gone = pair["p_val"] < SIGNIFICANT <= pair["p_corrected"]
    if hidden or gone:
        return NOISE
    if of_one_part(found, i, j):
        return ONE_PART
    if of_curve(found, i, j):
        return CURVE
    if of_examples(pair, found, i, j):
        return EXAMPLES
    return UNKNOWN if unknown else ""


def unknown_noise(found: Found, job: GroupTask) -> str:
    """Why nobody knows what noise of the in-domain set makes; empty where it is known."""
    if found.inside.source != "none":
        return ""
    if job.exact:
        return f"{AS_EXACT}: noise in them would correlate OOD sets by itself"
    return f"{NOT_KNOWN}: {found.inside.why}"


def of_answers(found: Found, i: int, j: int) -> str:
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


def of_one_part(found: Found, i: int, j: int) -> str:
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


def of_curve(found: Found, i: int, j: int) -> str:
    """What is left of a correlation of single checkpoints with a curve that may bend more, if that is too little."""
    if found.bent is None or not min(found.estimate.interval.p_val[i, j], found.p_corrected[i, j]) < SIGNIFICANT:
        return ""
    r, bent, p_val = found.estimate.r[i, j], found.bent.r[i, j], found.bent.interval.p_val[i, j]
    tested = found.bent.left[[i, j]].min() > ENOUGH  # with fewer a true relation is not significant either
    if np.isnan(bent) or (bent * np.sign(r) >= SHRINKS * abs(r) and not (tested and p_val >= SIGNIFICANT)):
        return ""
    return f"with a curve that may bend more r is {bent:+.2f}: much of it may be what the curve misses"


def of_examples(pair: Mapping[str, Any], found: Found, i: int, j: int) -> str:
    """What is left of a correlation with other examples of the same sets, if that may be nothing.

    All runs share the examples, so the plain interval does not count their draw; the corrected one does, where
    records tell it.
    """
    if pair["corrected_by"] != "records" or not min(pair["p_val"], pair["p_corrected"]) < SIGNIFICANT:
        return ""
    low, high = float(found.checked.low[i, j]), float(found.checked.high[i, j])
    if np.isnan(pair["r_corrected"]):
        return "with other examples nothing may be left: noise of the examples explains all residual"
    if not (low <= 0 if pair["r"] > 0 else high >= 0):
        return ""
    return f"with other examples of these sets r may be 0: without their noise it is {low:+.2f} to {high:+.2f}"


def say_clear(pairs: list[dict[str, Any]]) -> None:
    """Which pairs are clear: beyond noise and doubt, with Holm's adjustment over all tests that are reported."""
    p_values = np.array([(pair["p_corrected"], pair["p_val"]) for pair in pairs], dtype=float).reshape(-1, 2)
    adjusted = (resample.holm(column) for column in p_values.T)
    for pair, p_said, p_with_noise in zip(pairs, *adjusted, strict=True):
        pair["p_said"] = float(p_said)
        if not pair["doubt"] and p_with_noise < SIGNIFICANT <= p_said and pair["p_val"] < pair["p_corrected"]:
            pair["doubt"] = NOISE  # it would be clear if in-domain scores had none
        pair["clear"] = bool(p_said < SIGNIFICANT and not pair["doubt"])
