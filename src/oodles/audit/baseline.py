"""Shallow baselines that show how much of a test set can be solved without understanding.

`partial_input_baseline` sees only a part of each example, and `hypothesis_baseline` only the hypothesis. An accuracy
far above chance means that labels leak. `overlap_baseline` sees only how many words of the hypothesis are in the
premise. Try it::

    from oodles.audit.baseline import hypothesis_baseline
    from oodles.suite import mini
    print(hypothesis_baseline(mini.generate("genre")))
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.sparse import csr_array
from scipy.special import expit

from oodles.audit.overlap import words

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Matrix: TypeAlias = "csr_array[np.float64]"
FOLDS = 5
RIDGE = 1.0  # weight of the squared coefficients against the summed log loss


def partial_input_baseline(texts: Sequence[str], gold: Sequence[int], groups: Sequence[str], seed: int = 0) -> float:
    """Held-out accuracy of a classifier that sees one part of each example.

    Bag of words (presence of each word), logistic regression with an L2 penalty, five folds; the rows of one group stay
    in one fold. More than two answers: one regression for each answer against the rest, and the highest score wins.

    Parameters
    ----------
    texts : sequence of str
        The visible part, for example the hypotheses.
    gold : sequence of int
        The right answers.
    groups : sequence of str
        The hidden part that examples share, for example the premises.
    seed : int
        Decides which groups share a fold.

    Returns
    -------
    float
        Mean accuracy over the folds; with fewer groups than five, each group is a fold. ``nan`` if there is only one
        answer or only one group.

    Examples
    --------
    >>> partial_input_baseline(["no one", "someone"] * 20, [1, 0] * 20, [str(i) for i in range(40)])
    1.0
    """
    if not len(texts) == len(gold) == len(groups):
        raise ValueError(f"{len(texts)} texts, {len(gold)} answers and {len(groups)} groups: expected as many of each")
    answers, right = np.unique(np.asarray(gold, dtype=np.int64), return_inverse=True)
    folds = _folds(groups, seed)
    if len(answers) < 2 or len(np.unique(folds)) < 2:
        return math.nan
    features = _bag_of_words(texts)
    scores = []
    for fold in np.unique(folds):
        held_out = folds == fold
        chosen = _choose(features[~held_out], right[~held_out], features[held_out], len(answers))
        scores.append(np.mean(chosen == right[held_out]))
    return float(np.mean(scores))


def hypothesis_baseline(rows: Sequence[Mapping[str, str]], seed: int = 0) -> float:
    """Held-out accuracy of a classifier that never sees the premise: `partial_input_baseline` of the hypotheses.

    The rows of one premise stay in one fold. The label ``entailment`` is compared with all others together.

    Parameters
    ----------
    rows : sequence of mappings
        With ``premise``, ``hypothesis`` and ``label``.
    seed : int
        Decides which premises share a fold.

    Returns
    -------
    float
        Mean accuracy over the folds; 0.5 is chance for balanced labels. ``nan`` where it is not defined.
    """
    return partial_input_baseline(
        [row["hypothesis"] for row in rows],
        [int(row["label"] == "entailment") for row in rows],
        [row["premise"] for row in rows],
        seed,
    )


def overlap_baseline(rows: Sequence[Mapping[str, str]]) -> float:
    """Accuracy of the best threshold on the share of hypothesis words found in the premise, in either direction.

    The threshold is chosen on the same rows, so this is an upper bound for the cue. A hypothesis without words has a
    share of 0. ``nan`` without rows.
    """
    if not rows:
        return math.nan
    share = np.array([_overlap(row["premise"], row["hypothesis"]) for row in rows])
    gold = np.array([row["label"] == "entailment" for row in rows])
    cuts, place = np.unique(share, return_inverse=True)
    gain = np.bincount(place, weights=np.where(gold, 1.0, -1.0), minlength=len(cuts))
    right = np.sum(~gold) + np.cumsum(gain[::-1])  # correct rows if those from the cut up are entailment
    accuracy = right / len(rows)
    return float(max(accuracy.max(), 1 - accuracy.min()))


def _overlap(premise: str, hypothesis: str) -> float:
    premise_words, hypothesis_words = set(_words(premise)), _words(hypothesis)
    return sum(word in premise_words for word in hypothesis_words) / len(hypothesis_words) if hypothesis_words else 0.0


def _words(text: str) -> list[str]:
    """Split into lower-case words; an apostrophe belongs to its word."""
    return words(text.lower().replace("’", "'"), keep="'")


def _bag_of_words(texts: Sequence[str]) -> Matrix:
    """Return one column per word and a constant column."""
    bags = [sorted(set(_words(text))) for text in texts]
    vocabulary = {word: i for i, word in enumerate(sorted(set().union(*bags)))}
    columns = [[*(vocabulary[word] for word in row), len(vocabulary)] for row in bags]
    starts = np.cumsum([0, *map(len, columns)])
    indices = np.fromiter((column for row in columns for column in row), dtype=np.int64, count=int(starts[-1]))
    return csr_array((np.ones(len(indices)), indices, starts), shape=(len(texts), len(vocabulary) + 1))


def _folds(groups: Sequence[str], seed: int) -> Ints:
    """Assign a fold to every row; rows of a group share a fold."""
    number = {group: i for i, group in enumerate(sorted(set(groups)))}
    order = np.random.default_rng(seed).permutation(len(number))
    return np.array([order[number[group]] % FOLDS for group in groups], dtype=np.int64)


def _choose(features: Matrix, right: Ints, held_out: Matrix, answers: int) -> Ints:
    """Predict the answer to each held-out row after fitting on the others."""
    if answers == 2:
        return np.asarray(held_out @ _fit(features, right == 1) > 0, dtype=np.int64)
    scores = [np.asarray(held_out @ _fit(features, right == answer)) for answer in range(answers)]
    return np.asarray(np.argmax(scores, axis=0), dtype=np.int64)


def _fit(features: Matrix, gold: NDArray[np.bool_]) -> Floats:
    """Fit the coefficients of the penalised logistic regression."""
    sign = np.where(gold, 1.0, -1.0)
    transposed = features.T.tocsr()

    def loss(weights: Floats) -> tuple[float, Floats]:
        margin = sign * (features @ weights)
        value = np.logaddexp(0.0, -margin).sum() + 0.5 * RIDGE * weights @ weights
        gradient = -(transposed @ (sign * expit(-margin))) + RIDGE * weights
        return float(value), gradient

    result = minimize(loss, np.zeros(features.shape[1]), jac=True, method="L-BFGS-B")
    return np.asarray(result.x, dtype=np.float64)
