"""What how often an answer is given can explain of a correlation, and what it cannot."""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks import answers

import oodles as oo
from oodles.stats.correlate import partial_correlations
from oodles.stats.estimates import Estimator, estimate
from oodles.stats.preference import Preference
from oodles.stats.series import Series


def two_sets(shares: np.ndarray, scores: np.ndarray, runs: int = 9) -> Series:
    points = len(shares)
    names = tuple(f"run{r}" for r in range(runs))
    index = np.repeat(np.arange(runs), points // runs)
    z = np.random.default_rng(0).uniform(0.5, 0.9, size=(points, 1))
    return Series(
        group={},
        test_sets=("a", "b"),
        in_domain=("in",),
        run_names=names,
        unit_names=names,
        runs=index,
        units=index,
        steps=np.tile(np.arange(points // runs), runs),
        covariates=z,
        scores=scores + 0.3 * z,
        covariate_sizes=np.full((points, 1), np.nan),
        sizes=np.full((points, 2), np.nan),
    )


def seen(shares: np.ndarray, scores: np.ndarray, metric: str = "accuracy") -> tuple[float, Preference]:
    recipe = Estimator(method="linear")
    found = estimate(two_sets(shares, scores), recipe)
    return float(found.r[0, 1]), Preference.of(found, shares, recipe, metric=metric)


def test_a_correlation_that_the_share_explains_is_gone_without_it():
    draw = np.random.default_rng(1)
    common = draw.normal(size=(270, 1))
    shares = 0.6 + 0.1 * common + 0.01 * draw.normal(size=(270, 2))
    scores = 0.3 + shares * [0.5, 0.8] - 0.9 * (shares - 0.6) ** 2 + 0.01 * draw.normal(size=(270, 2))
    r, answered = seen(shares, scores)
    assert r > 0.8
    assert abs(answered.r[0, 1]) < 0.2
    assert answered.p_val[0, 1] > 0.05


def test_skill_that_moves_the_share_along_is_no_matter_of_answers():
    """Of unequal labels, skill moves accuracy by three times what it moves the share: more than any answer does."""
    draw = np.random.default_rng(2)
    skill = 0.03 * draw.normal(size=(270, 1)) + 0.01 * draw.normal(size=(270, 2))
    r, answered = seen(0.45 - skill / 3, 0.6 + skill)
    assert np.abs(answered.drift).min() > 0.99
    assert answered.r[0, 1] == pytest.approx(r, abs=1e-6)
    assert answered.p_val[0, 1] < 1e-6


def test_auc_knows_nothing_of_answers():
    draw = np.random.default_rng(3)
    shares = 0.6 + 0.1 * draw.normal(size=(270, 1)) + 0.01 * draw.normal(size=(270, 2))
    _, answered = seen(shares, 0.3 + 0.5 * shares, metric="auc")
    assert np.isnan(answered.r).all()


def near_one_answer(metric: str) -> pd.DataFrame:
    """Two sets that get Yes at 97 % of the examples, whose scores move together; the share does not move along."""
    draw = np.random.default_rng(4)
    rows = []
    for run in range(9):
        for step in range(10):
            z, common = 0.5 + 0.03 * step + 0.01 * draw.normal(), 0.01 * draw.normal()
            values = {"in": z, "a": 0.5 + common, "b": 0.45 + common + 0.003 * draw.normal()}
            for name, value in values.items():
                told = {
                    "run": f"r{run}",
                    "step": step,
                    "test_set": name,
                    "role": "in_domain" if name == "in" else "ood",
                }
                yes = 0.5 if name == "in" else 0.97 + 0.005 * draw.normal()
                rows += [{**told, "metric": metric, "value": value}, {**told, "metric": "share:Yes", "value": yes}]
                rows.append({**told, "metric": "share:No", "value": 1 - yes})
    return pd.DataFrame(rows)


@pytest.mark.parametrize(("metric", "doubt"), [("accuracy", "answers"), ("auc", "")])
def test_a_pair_of_sets_that_get_one_answer_is_not_counted(metric: str, doubt: str):
    table = partial_correlations(near_one_answer(metric), metric=metric, exact=True).table
    assert (table["p_said"] < 0.05).all()
    assert set(table["doubt"]) == {doubt}
    assert (table["clear"] == (doubt == "")).all()
    caveat = (
        "both sets get one answer nearly always at half of the points or more: this may be about answers, not skill"
    )
    assert all((caveat in said) == bool(doubt) for said in table["caveats"])


def test_a_drift_of_answers_is_not_claimed_and_skill_still_is():
    """Shares of pairs counted as clear, of 8 studies each: without the share taken out, 4 % and more of the first."""
    drifting = answers.score(answers.CASES["no skill, large drift"], 8, seed=12)
    assert drifting["run_significant"] > 0.2
    assert drifting["run_clear"] + drifting["pooled_clear"] == 0
    skilled = answers.score(answers.CASES["skill, rho .6, n 2000"], 3, seed=12)
    assert skilled["run_clear"] > 0.6


def test_the_projects_own_study_counts_no_pair_of_answers():
    table = oo.analyse("smollm2-nli").result.table
    assert not table["clear"].any()
    table = table[(table["model"] == "smollm2-135m-q4") & (table["train_set"] == "snli")]
    pairs = table[(table["a"] == "paws") & table["b"].isin(["scitail", "wnli"]) & (table["within"] == "run")]
    assert (pairs["p_said"] < 0.05).all()
    assert set(pairs["doubt"]) == {"answers"}
