"""Shallow baselines that show what a test set gives away without understanding.

`hypothesis_baseline` sees only the hypothesis: far above chance means that labels leak. `overlap_baseline` sees only
how many words of the hypothesis are in the premise. Try it::

    python -c "from oodles import baseline, mini; print(baseline.hypothesis_baseline(mini.generate('genre')))"
"""

import re
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit

Floats = NDArray[np.float64]
FOLDS = 5
RIDGE = 1.0  # weight of the squared coefficients against the summed log loss


def hypothesis_baseline(rows: Sequence[Mapping[str, str]], seed: int = 0) -> float:
    """Held-out accuracy of a classifier that never sees the premise.

    Bag of words (presence of each word), logistic regression with an L2 penalty, five folds; the rows of one premise
    stay in one fold. The label ``entailment`` stands against all others.

    Parameters
    ----------
    rows : sequence of mappings
        With ``premise``, ``hypothesis`` and ``label``.
    seed : int
        Decides which premises share a fold.

    Returns
    -------
    float
        Mean accuracy over the folds; 0.5 is chance for balanced labels.
    """
    features = _bag_of_words([row["hypothesis"] for row in rows])
    gold = np.array([row["label"] == "entailment" for row in rows], dtype=np.float64)
    folds = _folds([row["premise"] for row in rows], seed)
    scores = []
    for fold in range(FOLDS):
        held = folds == fold
        weights = _fit(features[~held], gold[~held])
        scores.append(np.mean((features[held] @ weights > 0) == (gold[held] > 0.5)))
    return float(np.mean(scores))


def overlap_baseline(rows: Sequence[Mapping[str, str]]) -> float:
    """Accuracy of the best threshold on the share of hypothesis words found in the premise, in either direction.

    The threshold is chosen on the same rows, so this is what the cue can give at most.
    """
    share = np.array([_overlap(row["premise"], row["hypothesis"]) for row in rows])
    gold = np.array([row["label"] == "entailment" for row in rows])
    accuracies = [np.mean((share >= cut) == gold) for cut in np.unique(share)]
    return float(max(max(accuracy, 1 - accuracy) for accuracy in accuracies))


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z']+", text.lower())


def _overlap(premise: str, hypothesis: str) -> float:
    known, words = set(_words(premise)), _words(hypothesis)
    return sum(word in known for word in words) / len(words)


def _bag_of_words(texts: Sequence[str]) -> Floats:
    """One column per word and a constant one."""
    vocabulary = {word: i for i, word in enumerate(sorted({word for text in texts for word in _words(text)}))}
    features = np.zeros((len(texts), len(vocabulary) + 1))
    features[:, -1] = 1.0
    for i, text in enumerate(texts):
        features[i, [vocabulary[word] for word in _words(text)]] = 1.0
    return features


def _folds(premises: Sequence[str], seed: int) -> NDArray[np.int64]:
    """A fold for every row, the same for rows of the same premise."""
    groups, index = np.unique(np.array(premises), return_inverse=True)
    order = np.random.default_rng(seed).permutation(len(groups))
    return np.asarray(order[index] % FOLDS, dtype=np.int64)


def _fit(features: Floats, gold: Floats) -> Floats:
    """Coefficients of the penalised logistic regression."""
    sign = 2.0 * gold - 1.0

    def loss(weights: Floats) -> tuple[float, Floats]:
        margin = sign * (features @ weights)
        value = np.logaddexp(0.0, -margin).sum() + 0.5 * RIDGE * weights @ weights
        gradient = -features.T @ (sign * expit(-margin)) + RIDGE * weights
        return float(value), gradient

    result = minimize(loss, np.zeros(features.shape[1]), jac=True, method="L-BFGS-B")
    return np.asarray(result.x, dtype=np.float64)
