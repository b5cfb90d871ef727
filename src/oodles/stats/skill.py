"""Is a correlation one of skill, or one of answers? Accuracy, AUC and the share of an answer side by side.

Accuracy rises when a model tells examples apart better, and when it comes to prefer the answer that is right more
often. AUC knows nothing of the preferred answer; the share of an answer knows nothing else. A pair whose accuracies
correlate while their AUCs do not, and whose shares of an answer correlate, agrees in answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from oodles.stats import noise
from oodles.stats.answers import Answer, several
from oodles.stats.clusters import Scores, without_gaps
from oodles.stats.estimates import estimate
from oodles.stats.pairs import shares_examples
from oodles.stats.parts import Parts, without_parts
from oodles.stats.resample import DESCRIPTIVE, SIGNIFICANT, holm

SHARE = "share:"
COLUMNS = (
    *("a", "b", "within", "r_accuracy", "r_accuracy_corrected", "p_accuracy"),
    *("r_auc", "r_auc_corrected", "low_auc", "high_auc", "p_auc", "r_share", "p_share", "told", "n_units"),
)
SKILL, ANSWERS, OTHER, OPEN = "skill", "answers", "answers hide skill", "cannot be told"


def skill(scores: Scores) -> Answer:
    """Correlations of accuracy, AUC and the share of the first answer, pair by pair.

    Returns
    -------
    Answer
        Table `skill`, a row per group, way of pooling and pair; a sentence per group and way of pooling.
    """
    known = set(scores.table.loc[scores.table["role"] != "other", "metric"].astype(str))
    shares = sorted(metric for metric in known if metric.startswith(SHARE) and scores.has(metric))
    if not scores.has("auc") or not scores.has("accuracy"):
        lacks = "in-domain and OOD sets have no AUC in common" if "auc" in known else "the table has no AUC"
        said = f"Skill or answers: cannot be told, {lacks} (per-example scores of two answers give it)."
        return Answer(name="skill", sentences=(said,), tables={"skill": pd.DataFrame(columns=[*scores.by, *COLUMNS])})
    wanted = {"accuracy": "accuracy", "auc": "auc", **({"share": shares[0]} if shares else {})}
    found = {name: _pairs(scores, metric) for name, metric in wanted.items()}
    rows = [_row(key, found) for key in found["accuracy"] if key in found["auc"]]
    table = pd.DataFrame(rows, columns=[*scores.by, *COLUMNS])
    sentences = []
    for names, own in table.groupby([*scores.by, "within"], sort=False):
        sentences.append(_sentence(own, ", ".join(map(str, names))))
    return Answer(
        name="skill",
        sentences=tuple(sentences),
        tables={"skill": table},
        caveats=() if scores.items is not None else ("without records noise of AUC is not corrected",),
        settings={"share": shares[0] if shares else ""},
    )


def _pairs(scores: Scores, metric: str) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Estimates of all pairs by one metric, regressed on the same metric in-domain."""
    found = {}
    for series in replace(scores, metric=metric).groups():
        for within in scores.ways:
            rows = []
            recipe = replace(scores.recipe, within=within, interval="jackknife", method=_method(scores, metric))
            for part in without_gaps(series, within):
                one = estimate(part, recipe)
                parts = without_parts(one, recipe) if metric == "auc" else Parts.none(len(part.test_sets))
                clean = noise.correct(one, scores.items, metric=metric, method=recipe.method, level=recipe.level).r
                for i, j in combinations(range(len(part.test_sets)), 2):
                    names = (part.test_sets[i], part.test_sets[j])
                    if shares_examples(*names, scores.overlapping):
                        continue
                    units = int(one.counted[i, j])
                    p_val = one.interval.p_val[i, j] if units >= DESCRIPTIVE else float("nan")
                    limits = {"low": one.interval.low[i, j], "high": one.interval.high[i, j]}
                    told = {"group": series.group, "r": one.r[i, j], "p": p_val, "units": units, **limits}
                    told["corrected"] = clean[i, j]
                    told["one_part"] = parts.carrier(i, j) is not None
                    rows.append(((tuple(series.group.values()), within, *names), told))
            adjusted = holm(np.array([row["p"] for _, row in rows], dtype=float))
            found.update({key: {**row, "p": p} for (key, row), p in zip(rows, adjusted, strict=True)})
    return found


def _method(scores: Scores, metric: str) -> str:
    return "gam" if metric.startswith(SHARE) else scores.recipe.method


def _row(key: tuple[Any, ...], found: Mapping[str, Mapping[tuple[Any, ...], Mapping[str, Any]]]) -> dict[str, Any]:
    accuracy, auc = found["accuracy"][key], found["auc"][key]
    share = found.get("share", {}).get(key, {"r": float("nan"), "p": float("nan")})
    return {
        **accuracy["group"],
        "a": key[2],
        "b": key[3],
        "within": key[1],
        "r_accuracy": accuracy["r"],
        "r_accuracy_corrected": accuracy["corrected"],
        "p_accuracy": accuracy["p"],
        "r_auc": auc["r"],
        "r_auc_corrected": auc["corrected"],
        "low_auc": auc["low"],
        "high_auc": auc["high"],
        "p_auc": auc["p"],
        "r_share": share["r"],
        "p_share": share["p"],
        "told": _told(accuracy, auc, share),
        "n_units": accuracy["units"],
    }


def _told(accuracy: Mapping[str, Any], auc: Mapping[str, Any], share: Mapping[str, Any]) -> str:
    """What a pair agrees in, as far as it is clear."""
    by_accuracy, by_skill, by_share = (one["p"] < SIGNIFICANT for one in (accuracy, auc, share))
    if by_skill and auc["one_part"]:
        return OPEN
    if by_skill and accuracy["r"] * auc["r"] > 0 and by_accuracy:
        return SKILL
    if by_accuracy and by_share and not (by_skill and accuracy["r"] * auc["r"] > 0):
        return ANSWERS
    return OTHER if by_skill and not by_accuracy else OPEN


def _sentence(pairs: pd.DataFrame, where: str) -> str:
    counts = {told: pairs[pairs["told"] == told] for told in (SKILL, ANSWERS, OTHER)}
    text = f"{where}: of {len(pairs)} pairs {len(counts[SKILL])} agree in skill (accuracy and AUC, both significant)"
    text += f", {len(counts[ANSWERS])} in answers only"
    if len(counts[ANSWERS]):
        text += f" ({several([f'{a} ~ {b}' for a, b in zip(counts[ANSWERS]['a'], counts[ANSWERS]['b'], strict=True)])})"
    if len(counts[OTHER]):
        text += f", {len(counts[OTHER])} in skill that accuracy does not show"
    rest = len(pairs) - sum(map(len, counts.values()))
    return f"{text}; {rest} cannot be told."
