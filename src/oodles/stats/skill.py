"""Is a correlation one of skill, or one of answers? Accuracy, AUC and the share of an answer side by side.

Accuracy rises when a model tells examples apart better, and when it comes to prefer the answer that is right more
often. AUC knows nothing of the preferred answer; the share of an answer knows nothing else. A pair whose accuracies
correlate while their AUCs do not, and whose shares of an answer correlate, agrees in answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from oodles.errors import DataError
from oodles.stats.answers import Answer, several
from oodles.stats.clusters import Scores
from oodles.stats.correlate import partial_correlations
from oodles.stats.resample import SIGNIFICANT

SHARE = "share:"
COLUMNS = (
    *("a", "b", "within", "r_accuracy", "r_accuracy_corrected", "p_accuracy"),
    *("r_auc", "r_auc_corrected", "low_auc", "high_auc", "p_auc", "r_share", "p_share", "told", "n_units"),
)
SKILL, ANSWERS, OTHER, OPEN = "skill", "answers", "answers hide skill", "cannot be told"
KINDS = {
    SKILL: "agree in skill (accuracy and AUC)",
    ANSWERS: "in answers only",
    OTHER: "in skill that accuracy does not show",
}


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
    rows = [_row(key, found, scores.by) for key in found["accuracy"] if key in found["auc"]]
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


def _pairs(scores: Scores, metric: str) -> dict[tuple[str, ...], dict[str, Any]]:
    """The pairs as the verdict by this metric has them, regressed on the same metric in-domain."""
    try:
        result = partial_correlations(
            scores.table,
            scores.items,
            metric=metric,
            by=scores.by,
            unit=scores.unit,
            method="gam" if metric.startswith(SHARE) else scores.recipe.method,
            within=scores.ways,
            level=scores.recipe.level,
            smoothing=scores.recipe.smoothing,
            shared_start="drop" if scores.drop else "keep",
            exact=scores.exact,
        )
    except DataError:  # by this metric there is nothing to correlate
        return {}
    keys = [*scores.by, "within", "a", "b"]
    rows: list[dict[str, Any]] = result.table.to_dict("records")  # type: ignore[assignment]
    return {tuple(str(row[name]) for name in keys): row for row in rows}


def _row(
    key: tuple[str, ...], found: Mapping[str, Mapping[tuple[str, ...], Mapping[str, Any]]], by: tuple[str, ...]
) -> dict[str, Any]:
    accuracy, auc = found["accuracy"][key], found["auc"][key]
    share = found.get("share", {}).get(key, {"r": float("nan"), "p_said": float("nan")})
    return {
        **{name: accuracy[name] for name in (*by, "a", "b", "within")},
        "r_accuracy": accuracy["r"],
        "r_accuracy_corrected": accuracy["r_corrected"],
        "p_accuracy": accuracy["p_said"],
        "r_auc": auc["r"],
        "r_auc_corrected": auc["r_corrected"],
        "low_auc": auc["low"],
        "high_auc": auc["high"],
        "p_auc": auc["p_said"],
        "r_share": share["r"],
        "p_share": share["p_said"],
        "told": _told(accuracy, auc, share),
        "n_units": accuracy["n_units"],
    }


def _told(accuracy: Mapping[str, Any], auc: Mapping[str, Any], share: Mapping[str, Any]) -> str:
    """What a pair agrees in, as far as it is clear: in skill where the verdict by AUC counts it."""
    by_accuracy, by_share = (one["p_said"] < SIGNIFICANT for one in (accuracy, share))
    alike = accuracy["r"] * auc["r"] > 0
    if auc["clear"]:
        return SKILL if by_accuracy and alike else OTHER
    by_auc = auc["p_said"] < SIGNIFICANT and alike
    return ANSWERS if by_accuracy and by_share and not by_auc else OPEN


def _sentence(pairs: pd.DataFrame, where: str) -> str:
    """Numbers of pairs with their names; most pairs cannot be told."""
    text = f"{where}: of {len(pairs)} pairs"
    for told, words in KINDS.items():
        own = pairs[pairs["told"] == told]
        names = f" ({several([f'{a} ~ {b}' for a, b in zip(own['a'], own['b'], strict=True)])})" if len(own) else ""
        if len(own) or told != OTHER:
            text += f"{'' if told == SKILL else ','} {len(own)} {words}{names}"
    return f"{text}; {int((pairs['told'] == OPEN).sum())} cannot be told."
