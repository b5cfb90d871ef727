"""Compute the metrics of one step and test set from predictions."""

from __future__ import annotations

import numpy as np

from oodles.contracts import Predictions


def metrics(predictions: Predictions) -> dict[str, float]:
    """Return accuracy, balanced accuracy, F1 of the first answer, AUC (two answers only) and the share of each answer.

    Undefined values are nan: AUC and balanced accuracy if there is only one gold answer, F1 if the first answer is
    neither given nor right. If prompts have their own choices, accuracy by every form of the score; and of the others
    only accuracy, unless the choices are the same everywhere.
    """
    choice, gold = predictions.choice, predictions.gold
    hits = predictions.correct
    forms = {name: float(right.mean()) for name, right in predictions.right.items()}
    if not predictions.answers:
        return {"accuracy": float(hits.mean()), **forms}
    present = np.unique(gold)
    out = {
        "accuracy": float(hits.mean()),
        "balanced_accuracy": float(np.mean([hits[gold == g].mean() for g in present])) if len(present) > 1 else np.nan,
        "f1": _f1(choice == 0, gold == 0),
    }
    if len(predictions.answers) == 2:
        out["auc"] = _auc(predictions.scores[:, 0] - predictions.scores[:, 1], gold == 0)
    for index, answer in enumerate(predictions.answers):
        out[f"share:{answer.strip()}"] = float((choice == index).mean())
    return {**out, **forms}


def _f1(predicted: np.ndarray, true: np.ndarray) -> float:
    counted = predicted.sum() + true.sum()
    return float(2 * (predicted & true).sum() / counted) if counted else np.nan


def _auc(margin: np.ndarray, positive: np.ndarray) -> float:
    """Return the probability that a positive example has the larger margin; ties count half."""
    n_positive, n_negative = int(positive.sum()), int((~positive).sum())
    if not n_positive or not n_negative:
        return np.nan
    from scipy.stats import rankdata  # slow to load, and most commands score nothing

    ranks = rankdata(margin)
    return float((ranks[positive].sum() - n_positive * (n_positive + 1) / 2) / (n_positive * n_negative))
