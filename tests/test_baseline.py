"""What shallow baselines find, on the numbers of a dense reference, in every script and within little memory."""

from __future__ import annotations

import math
import re
import tracemalloc
from collections.abc import Sequence
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import expit

from oodles.audit.baseline import hypothesis_baseline, overlap_baseline, partial_input_baseline
from oodles.suite import mini


def dense_reference(texts: Sequence[str], gold: Sequence[bool], groups: Sequence[str], seed: int) -> float:
    """The same model written plainly, with a dense matrix, for English texts and two answers."""
    found = [set(re.findall(r"[a-z']+", text.lower())) for text in texts]
    vocabulary = sorted(set().union(*found))
    features = np.array([[*(word in row for word in vocabulary), True] for row in found], dtype=float)
    names, index = np.unique(groups, return_inverse=True)
    folds = np.random.default_rng(seed).permutation(len(names))[index] % 5
    right, sign, scores = np.array(gold), 2.0 * np.array(gold) - 1.0, []
    for fold in range(5):
        held = folds == fold
        x, y = features[~held], sign[~held]

        def loss(w: np.ndarray, x: np.ndarray = x, y: np.ndarray = y) -> tuple[float, np.ndarray]:
            margin = y * (x @ w)
            return np.logaddexp(0, -margin).sum() + 0.5 * w @ w, w - x.T @ (y * expit(-margin))

        weights = minimize(loss, np.zeros(x.shape[1]), jac=True, method="L-BFGS-B").x
        scores.append(np.mean((features[held] @ weights > 0) == right[held]))
    return float(np.mean(scores))


@pytest.mark.parametrize("name", list(mini.SETS))
@pytest.mark.parametrize("seed", [0, 1])
def test_numbers_are_those_of_the_dense_reference(name: str, seed: int) -> None:
    rows = mini.generate(name)
    expected = dense_reference(
        [row["hypothesis"] for row in rows],
        [row["label"] == "entailment" for row in rows],
        [row["premise"] for row in rows],
        seed,
    )
    assert hypothesis_baseline(rows, seed) == pytest.approx(expected, abs=1e-9)


def test_three_answers_are_told_apart() -> None:
    cues = ["surely", "perhaps", "never"]
    texts = [f"it is {cues[i % 3]} word{i % 7}" for i in range(90)]
    gold = [i % 3 for i in range(90)]
    groups = [str(i) for i in range(90)]
    assert partial_input_baseline(texts, gold, groups) == 1.0
    assert partial_input_baseline(texts, [10 * answer - 3 for answer in gold], groups) == 1.0  # any whole numbers
    Random(0).shuffle(gold)
    assert partial_input_baseline(texts, gold, groups) < 0.55


def test_a_group_is_never_learnt_from_and_tested_on() -> None:
    """Every group has its own word and, by chance, its own answer: known only to who has seen the group."""
    rng = Random(0)
    answers = [rng.randrange(2) for _ in range(100)]
    rows = [group for group in range(100) for _ in range(4)]
    texts, gold = [f"w{group}" for group in rows], [answers[group] for group in rows]
    assert partial_input_baseline(texts, gold, [str(group) for group in rows]) < 0.6
    assert partial_input_baseline(texts, gold, [str(i) for i in range(400)]) > 0.95


@pytest.mark.parametrize(
    "pair",
    [
        ("किताब की", "किताब का"),  # differ in a vowel sign, which is no letter of its own
        ("οὐ γὰρ ναί", "οὐ γὰρ οὔ"),
        ("это да", "это нет"),
        ("כן בטח", "לא בטח"),
        ("是 的", "不 是"),
        ("in 1999", "in 2001"),
        ("he can’t", "he can"),
    ],
)
def test_words_of_every_script_count(pair: tuple[str, str]) -> None:
    texts, gold = list(pair) * 25, [0, 1] * 25
    assert partial_input_baseline(texts, gold, [str(i) for i in range(50)]) == 1.0


def test_both_apostrophes_are_the_same() -> None:
    texts = ["he can't", "he can"] * 20 + ["he can’t", "he can"] * 5
    groups = ["a", "b", "c", "d"] * 10 + ["e"] * 10
    assert partial_input_baseline(texts, [0, 1] * 25, groups) == 1.0


def test_undefined_is_nan() -> None:
    four = ["a", "b", "c", "d"]
    assert math.isnan(partial_input_baseline(four, [1, 1, 1, 1], four))  # one answer
    assert math.isnan(partial_input_baseline(four, [0, 1, 0, 1], ["same"] * 4))  # one group
    assert math.isnan(partial_input_baseline([], [], []))
    assert math.isnan(hypothesis_baseline([]))
    assert math.isnan(overlap_baseline([]))


def test_fewer_groups_than_folds() -> None:
    texts, gold = ["yes", "no"] * 6, [0, 1] * 6
    assert partial_input_baseline(texts, gold, ["a"] * 6 + ["b"] * 6) == 1.0
    assert partial_input_baseline(texts, gold, ["a"] * 4 + ["b"] * 4 + ["c"] * 4) == 1.0
    assert partial_input_baseline(["yes", "no"], [0, 1], ["a", "b"]) == 0.0  # each fold has seen the other answer only


@pytest.mark.parametrize("text", ["", "...", "\0", "🙂", "\ud800"])
def test_texts_without_words(text: str) -> None:
    groups = [str(i) for i in range(20)]
    assert 0.0 <= partial_input_baseline([text] * 20, [0, 1] * 10, groups) <= 0.5
    rows = [{"premise": "a dog", "hypothesis": text, "label": "entailment"} for _ in range(3)]
    rows += [{"premise": text, "hypothesis": "a dog", "label": "neutral"}]
    rows += [{"premise": "a dog", "hypothesis": "a dog", "label": "neutral"}]
    assert overlap_baseline(rows) == 0.8  # shares 0, 0, 0, 0, 1: below 1 is entailment
    assert 0.0 <= hypothesis_baseline(rows) <= 1.0


def test_unequal_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="2 texts, 1 answers and 2 groups"):
        partial_input_baseline(["a", "b"], [0], ["a", "b"])


def test_many_rows_and_words_fit_into_little_memory() -> None:
    """As a dense matrix of numbers these rows would take 1.6 GB."""
    rng = Random(0)
    texts = [" ".join(f"w{rng.randrange(20_000)}" for _ in range(8)) for _ in range(10_000)]
    gold = [rng.randrange(2) for _ in texts]
    groups = [f"{i} {'x' * rng.randrange(2000)}" for i in range(10_000)]
    tracemalloc.start()
    accuracy = partial_input_baseline(texts, gold, groups)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 0.4 < accuracy < 0.6
    assert peak < 50e6


words = st.text("ab c'", max_size=6)


@given(st.lists(st.tuples(words, words, st.booleans()), min_size=1, max_size=20))
def test_overlap_is_the_best_of_all_thresholds(triples: list[tuple[str, str, bool]]) -> None:
    rows = [{"premise": p, "hypothesis": h, "label": "entailment" if e else "neutral"} for p, h, e in triples]
    share = []
    for premise, hypothesis, _ in triples:
        found = hypothesis.split()
        share.append(sum(word in premise.split() for word in found) / len(found) if found else 0.0)
    gold = np.array([e for _, _, e in triples])
    tried = [np.mean((np.array(share) >= cut) == gold) for cut in share]
    assert overlap_baseline(rows) == pytest.approx(max(max(a, 1 - a) for a in tried), abs=1e-12)
