"""The measured noise equals its definition, and removing it gives back the true correlation."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest

from oodles import noise
from oodles.errors import DataError
from oodles.estimates import Recipe, estimate
from oodles.outcomes import Outcomes, Records
from oodles.series import Series


def small_series(draw, *, runs=4, steps=9, sizes=(60, 80)):
    points = runs * steps
    z = draw.uniform(0.4, 0.9, size=(points, 1))
    coded = np.repeat(np.arange(runs), steps)
    outcomes = {
        f"set{k}": (draw.random((points, n)) < z * 0.8 + 0.1 * draw.normal(size=n)).astype(np.int8)
        for k, n in enumerate(sizes)
    }
    scores = np.column_stack([o.mean(axis=1) for o in outcomes.values()])
    series = Series(
        group={},
        test_sets=tuple(outcomes),
        in_domain=("mnli",),
        run_names=tuple(f"run{r}" for r in range(runs)),
        unit_names=tuple(f"run{r}" for r in range(runs)),
        runs=coded,
        units=coded,
        steps=np.tile(np.arange(steps), runs),
        covariates=z,
        scores=scores,
        covariate_sizes=np.full((points, 1), 500.0),
        sizes=np.broadcast_to(np.array(sizes, dtype=float), scores.shape).copy(),
    )
    return series, outcomes


def as_records(series, outcomes, templates=None):
    frames = []
    for name, correct in outcomes.items():
        for point, row in enumerate(correct):
            frames.append(
                pd.DataFrame(
                    {
                        "run": series.run_names[series.runs[point]],
                        "step": series.steps[point],
                        "test_set": name,
                        "example": [f"e{i}" for i in range(len(row))],
                        "correct": row,
                    }
                    | ({"template": templates[name]} if templates else {})
                )
            )
    return pd.concat(frames, ignore_index=True)


def residual_maker(found, n_points):
    """M, column by column: the residuals of unit vectors."""
    (refit,) = found.refits
    basis, runs = refit.design.basis, refit.design.runs
    system = basis.T @ basis + 0.6 * refit.design.penalty + refit.design.ridge
    start = np.eye(n_points)
    if runs is not None:
        start = start - (runs[:, None] == runs[None, :]) / np.bincount(runs)[runs][:, None]
    return start - basis @ np.linalg.solve(system, basis.T @ start)


@pytest.mark.parametrize("within", ["pooled", "run"])
def test_measured_noise_is_trace_of_residualised_item_covariance(within):
    series, outcomes = small_series(np.random.default_rng(0))
    found = estimate(series, Recipe(within=within))
    corrected = noise.correct(
        found, Records.read(as_records(series, outcomes)), metric="accuracy", method="gam", level=0.95
    )
    maker = residual_maker(found, len(series.scores))
    for k, correct in enumerate(outcomes.values()):
        spread = np.cov(correct) / correct.shape[1]
        expected = np.trace(maker @ spread @ maker.T)
        squares = (found.fit.residuals[:, k] ** 2).sum()
        assert corrected.reliability[k] == pytest.approx(1 - expected / squares, abs=1e-8)
    assert corrected.source == ("records", "records")


@pytest.mark.parametrize("within", ["pooled", "run"])
def test_binomial_noise_is_trace_of_diagonal_covariance(within):
    series, _ = small_series(np.random.default_rng(1))
    found = estimate(series, Recipe(within=within))
    corrected = noise.correct(found, None, metric="accuracy", method="gam", level=0.95)
    maker = residual_maker(found, len(series.scores))
    p = series.scores[:, 0]
    expected = np.trace(maker @ np.diag(p * (1 - p) / 60) @ maker.T)
    assert corrected.reliability[0] == pytest.approx(1 - expected / (found.fit.residuals[:, 0] ** 2).sum(), abs=1e-8)
    assert corrected.source == ("binomial", "binomial")
    assert np.isnan(corrected.r[0, 1])
    assert corrected.low[0, 1] <= found.r[0, 1] <= corrected.high[0, 1]


def test_binomial_noise_beyond_all_variance_ends_at_one():
    series, _ = small_series(np.random.default_rng(1))
    smooth = replace(series, scores=series.scores * 0.02 + 0.5, sizes=np.full_like(series.sizes, 20.0))
    found = estimate(smooth, Recipe())
    corrected = noise.correct(found, None, metric="accuracy", method="gam", level=0.95)
    assert corrected.reliability[0] < 0
    ends = sorted([found.r[0, 1], np.sign(found.r[0, 1])])
    assert [corrected.low[0, 1], corrected.high[0, 1]] == pytest.approx(ends)


def test_half_splits_average_to_the_same_correction():
    """The products of residuals of random halves of the examples estimate the residual without its noise."""
    series, outcomes = small_series(np.random.default_rng(2))
    found = estimate(series, Recipe())
    records = Records.read(as_records(series, outcomes))
    corrected = noise.correct(found, records, metric="accuracy", method="gam", level=0.95)
    maker, draw = residual_maker(found, len(series.scores)), np.random.default_rng(3)
    correct, split = outcomes["set0"], []
    for _ in range(3000):
        order = draw.permutation(60)
        halves = [maker @ correct[:, part].mean(axis=1) for part in (order[:30], order[30:])]
        split.append(halves[0] @ halves[1])
    squares = (found.fit.residuals[:, 0] ** 2).sum()
    assert np.mean(split) / squares == pytest.approx(corrected.reliability[0], abs=0.02)


def test_templates_of_one_example_change_nothing_and_copies_do():
    series, outcomes = small_series(np.random.default_rng(4))
    found = estimate(series, Recipe())

    def reliability(templates):
        records = Records.read(as_records(series, outcomes, templates))
        return noise.correct(found, records, metric="accuracy", method="gam", level=0.95).reliability[0]

    singles = reliability({name: [f"t{i}" for i in range(o.shape[1])] for name, o in outcomes.items()})
    alone = reliability(None)
    assert singles == pytest.approx(alone, abs=1e-9)
    # Every example four times: as examples the noise looks a quarter of what it is, as templates it is right.
    copied = {name: np.repeat(o, 4, axis=1) for name, o in outcomes.items()}
    larger = replace(series, sizes=series.sizes * 4)
    records = as_records(larger, copied, {name: np.repeat(np.arange(o.shape[1]), 4) for name, o in outcomes.items()})
    again = noise.correct(found, Records.read(records), metric="accuracy", method="gam", level=0.95)
    assert again.reliability[0] == pytest.approx(alone, abs=1e-6)


def test_runs_with_different_examples_are_independent():
    series, outcomes = small_series(np.random.default_rng(5))
    records = as_records(series, outcomes)
    records["example"] = records["run"] + records["example"]
    found = estimate(series, Recipe(within="run"))
    apart = noise.correct(found, Records.read(records), metric="accuracy", method="gam", level=0.95)
    maker = residual_maker(found, len(series.scores))
    same_run = series.runs[:, None] == series.runs[None, :]
    spread = np.where(same_run, np.cov(outcomes["set0"]) / 60, 0.0)
    expected = 1 - np.trace(maker @ spread @ maker.T) / (found.fit.residuals[:, 0] ** 2).sum()
    assert apart.reliability[0] == pytest.approx(expected, abs=1e-8)


def test_separate_fits_sum_their_noise():
    series, outcomes = small_series(np.random.default_rng(6))
    found = estimate(series, Recipe(within="separate", interval="run-mean"))
    records = Records.read(as_records(series, outcomes))
    corrected = noise.correct(found, records, metric="accuracy", method="gam", level=0.95)
    assert ((corrected.reliability > -1) & (corrected.reliability < 1)).all()
    assert len(found.left_out) == 4


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda r: r[r["step"] != 3], "records are missing at 4 of 36 points"),
        (lambda r: r[~((r["step"] == 3) & (r["example"] == "e5"))], "different examples at different steps"),
        (lambda r: r.assign(correct=1 - r["correct"]), "do not give the table's accuracy"),
        (lambda r: r[r["test_set"] == "set1"], "set0: no records"),
    ],
)
def test_records_that_cannot_be_used_say_why(change, said):
    series, outcomes = small_series(np.random.default_rng(7))
    found = estimate(series, Recipe())
    records = Records.read(change(as_records(series, outcomes)))
    corrected = noise.correct(found, records, metric="accuracy", method="gam", level=0.95)
    assert corrected.source[0] == "binomial"
    assert said in corrected.caveats[0][0]


def test_bad_records_are_one_line():
    with pytest.raises(DataError, match="no column 'example'"):
        Records.read(pd.DataFrame({"run": [1], "step": [1], "test_set": ["a"]}))
    frame = pd.DataFrame({"run": ["a"], "step": [0], "test_set": ["x"], "example": [1], "correct": ["maybe"]})
    with pytest.raises(DataError, match="correct is 'maybe'; expected 0 or 1"):
        Records.read(frame)


def test_records_may_come_from_an_object():
    series, outcomes = small_series(np.random.default_rng(9))

    class Lazy:
        asked: ClassVar[list[str]] = []

        def outcomes(self, _series, name, _values, /):
            self.asked.append(name)
            if name not in outcomes:
                return None, f"{name}: no records"
            items = np.arange(outcomes[name].shape[1])
            return Outcomes(correct=outcomes[name], items=items, strata=None, shared=True), ""

    found = estimate(series, Recipe())
    lazy = noise.correct(found, Lazy(), metric="accuracy", method="gam", level=0.95)
    table = Records.read(as_records(series, outcomes))
    plain = noise.correct(found, table, metric="accuracy", method="gam", level=0.95)
    assert lazy.reliability == pytest.approx(plain.reliability)
    assert Lazy.asked == ["set0", "set1", "mnli"]


def test_noise_in_the_in_domain_score_is_announced():
    """Two sets that only follow the in-domain score correlate through its noise, about as much as predicted."""
    draw, found_r, told = np.random.default_rng(8), [], []
    for _ in range(60):
        runs = np.repeat(np.arange(6), 20)
        truth = np.tile(np.linspace(0.5, 0.8, 20), 6)
        z = draw.binomial(500, truth) / 500
        scores = truth[:, None] + 0.02 * draw.normal(size=(120, 2))
        series, _ = small_series(draw, runs=6, steps=20)
        series = replace(series, covariates=z[:, None], scores=scores, runs=runs, sizes=np.full((120, 2), 1e9))
        found = estimate(series, Recipe(method="linear"))
        corrected = noise.correct(found, None, metric="accuracy", method="linear", level=0.95)
        found_r.append(found.r[0, 1])
        told.append(noise.covariate_bias(found, corrected)[0, 1])
    assert np.mean(found_r) > 0.3
    assert np.mean(told) == pytest.approx(np.mean(found_r), abs=0.05)
