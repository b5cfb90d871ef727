from __future__ import annotations

import numpy as np

from oodles.contracts import Predictions
from oodles.store.metrics import metrics


def predictions(margins: list[float], gold: list[int], answers: tuple[str, ...] = (" Yes", " No")) -> Predictions:
    scores = np.array([[m, 0.0] for m in margins])
    return Predictions(test_set="t", answers=answers, ids=tuple(map(str, gold)), scores=scores, gold=np.array(gold))


def test_metrics_by_hand() -> None:
    # answers: Yes Yes No No Yes; gold: Yes No No Yes Yes
    found = metrics(predictions([2.0, 1.0, -1.0, -2.0, 3.0], [0, 1, 1, 0, 0]))
    assert found["accuracy"] == 3 / 5
    assert np.isclose(found["balanced_accuracy"], (2 / 3 + 1 / 2) / 2)
    assert np.isclose(found["f1"], 2 * 2 / (3 + 3))
    assert np.isclose(found["auc"], 4 / 6)  # pairs (yes, no) in the right order: 2>1 2>-1 3>1 3>-1, not -2
    assert found["share:Yes"] == 3 / 5
    assert found["share:No"] == 2 / 5


def test_what_cannot_be_computed_is_nan() -> None:
    found = metrics(predictions([-1.0, -1.0], [1, 1]))
    assert found["accuracy"] == 1.0
    assert np.isnan(found["auc"])
    assert np.isnan(found["balanced_accuracy"])
    assert np.isnan(found["f1"])


def test_three_answers_have_no_auc() -> None:
    scores = np.array([[0.0, 1.0, 2.0], [3.0, 1.0, 2.0]])
    three = Predictions(test_set="t", answers=(" a", " b", " c"), ids=("1", "2"), scores=scores, gold=np.array([2, 1]))
    found = metrics(three)
    assert "auc" not in found
    assert [found[f"share:{a}"] for a in "abc"] == [0.5, 0.0, 0.5]
