"""The measured noise equals its definition, and removing it gives back the true correlation."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
from scipy import special

from oodles.errors import DataError
from oodles.stats import inside, items, noise, residuals
from oodles.stats.correlate import partial_correlations
from oodles.stats.estimates import Estimator, estimate
from oodles.stats.outcomes import Outcomes, Records, placements
from oodles.stats.series import Series, group_series


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
    found = estimate(series, Estimator(within=within))
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
    found = estimate(series, Estimator(within=within))
    corrected = noise.correct(found, None, metric="accuracy", method="gam", level=0.95)
    maker = residual_maker(found, len(series.scores))
    p = series.scores[:, 0]
    expected = np.trace(maker @ np.diag(p * (1 - p) / 60) @ maker.T)
    assert corrected.reliability[0] == pytest.approx(1 - expected / (found.fit.residuals[:, 0] ** 2).sum(), abs=1e-8)
    assert corrected.source == ("binomial", "binomial")
    assert np.isnan(corrected.r[0, 1])
    assert corrected.low[0, 1] <= found.r[0, 1] <= corrected.high[0, 1]


@pytest.mark.parametrize(
    ("size", "factor", "needs"),
    [(np.nan, 1, "n (--n)"), (60, 100, "values in 0..1"), (np.nan, 100, "n (--n) and values in 0..1")],
    ids=["n", "values", "both"],
)
def test_noise_that_is_not_known_says_only_what_it_needs(size, factor, needs):
    series, _ = small_series(np.random.default_rng(1))
    series = replace(series, scores=series.scores * factor, sizes=np.full_like(series.sizes, size))
    found = estimate(series, Estimator())
    (first, _) = items.noises_of(found, None, "accuracy", "gam")
    assert first.caveats == (f"set0: noise is not known without {needs}",)


def test_binomial_noise_beyond_all_variance_ends_at_one():
    series, _ = small_series(np.random.default_rng(1))
    smooth = replace(series, scores=series.scores * 0.02 + 0.5, sizes=np.full_like(series.sizes, 20.0))
    smooth = replace(smooth, covariate_sizes=np.full_like(series.covariate_sizes, np.nan))
    found = estimate(smooth, Estimator())
    corrected = noise.correct(found, None, metric="accuracy", method="gam", level=0.95)
    assert corrected.reliability[0] < 0
    ends = sorted([found.r[0, 1], np.sign(found.r[0, 1])])
    assert [corrected.low[0, 1], corrected.high[0, 1]] == pytest.approx(ends)


def test_half_splits_average_to_the_same_correction():
    """The products of residuals of random halves of the examples estimate the residual without its noise."""
    series, outcomes = small_series(np.random.default_rng(2))
    found = estimate(series, Estimator())
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
    found = estimate(series, Estimator())

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
    found = estimate(series, Estimator(within="run"))
    apart = noise.correct(found, Records.read(records), metric="accuracy", method="gam", level=0.95)
    maker = residual_maker(found, len(series.scores))
    same_run = series.runs[:, None] == series.runs[None, :]
    spread = np.where(same_run, np.cov(outcomes["set0"]) / 60, 0.0)
    expected = 1 - np.trace(maker @ spread @ maker.T) / (found.fit.residuals[:, 0] ** 2).sum()
    assert apart.reliability[0] == pytest.approx(expected, abs=1e-8)


def test_separate_fits_sum_their_noise():
    series, outcomes = small_series(np.random.default_rng(6))
    found = estimate(series, Estimator(within="separate", interval="run-mean"))
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
    found = estimate(series, Estimator())
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


@pytest.mark.parametrize("outcome", [0, 1])
def test_an_example_that_is_given_twice_is_refused(outcome):
    frame = pd.DataFrame({"run": "a", "step": 0, "test_set": "x", "example": [1, 2, 3], "correct": 1})
    twin = frame.iloc[[1]].assign(correct=outcome)
    said = "records rows 2, 4: run 'a', step 0, test set 'x', example '2' is given twice; keep one of them"
    with pytest.raises(DataError, match=said):
        Records.read(pd.concat([frame, twin]))
    Records.read(pd.concat([frame, twin.assign(step=1), twin.assign(run="b"), twin.assign(test_set="y")]))
    with pytest.raises(DataError, match="records row 2: example is missing"):
        Records.read(frame.assign(example=[1, None, 3]))


def test_records_may_come_from_an_object():
    series, outcomes = small_series(np.random.default_rng(9))

    class Lazy:
        asked: ClassVar[list[str]] = []

        def outcomes(self, _series, name, _values, _metric="accuracy", /):
            self.asked.append(name)
            if name not in outcomes:
                return None, f"{name}: no records"
            items = np.arange(outcomes[name].shape[1])
            return Outcomes(correct=outcomes[name], items=items, strata=None, shared=True), ""

    found = estimate(series, Estimator())
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
        found = estimate(series, Estimator(method="linear"))
        corrected = noise.correct(found, None, metric="accuracy", method="linear", level=0.95)
        found_r.append(found.r[0, 1])
        told.append(inside.covariate_bias(found, corrected.inside)[0, 1])
    assert np.mean(found_r) > 0.3
    assert np.mean(told) == pytest.approx(np.mean(found_r), abs=0.05)


BIAS, LUCK = 1.0, 0.3  # sd of how true the two hypotheses of a premise look at a step, and of each one's own luck


def drifting(draw, *, drift, skill=0.3, pairs=100, runs=6, steps=20):
    """Two sets of premises with one hypothesis per label; the model drifts between Yes and No, its skill hardly moves.

    Returns the series, per set the outcomes, the labels and premises of the examples, and the scores without noise.
    """
    series, _ = small_series(draw, runs=runs, steps=steps, sizes=(2 * pairs, 2 * pairs))
    label, premise = np.arange(2 * pairs) % 2, np.arange(2 * pairs) // 2
    towards = np.where(label == 0, 1.0, -1.0)
    shift = drift * draw.normal(size=len(series.runs))
    correct, truth = {}, []
    for name in series.test_sets:
        skills = skill * (1 + draw.normal(size=len(series.runs)) / 3)
        own = BIAS * draw.normal(size=(len(skills), pairs))[:, premise] * towards
        luck = LUCK * draw.normal(size=(len(skills), 2 * pairs))
        correct[name] = (own + luck < skills[:, None] + shift[:, None] * towards).astype(np.int8)
        scale = np.sqrt(LUCK**2 + BIAS**2)
        truth.append((special.ndtr((skills + shift) / scale) + special.ndtr((skills - shift) / scale)) / 2)
    scores = np.column_stack([c.mean(axis=1) for c in correct.values()])
    return replace(series, scores=scores), correct, label, premise, np.column_stack(truth)


def reliability_by(series, correct, items, strata):
    class Known:
        def outcomes(self, _series, name, _values, _metric="accuracy", /):
            if name not in correct:
                return None, f"{name}: no records"
            return Outcomes(correct=correct[name], items=items, strata=strata, shared=True), ""

    return noise.correct(estimate(series, Estimator()), Known(), metric="accuracy", method="gam", level=0.95)


def test_a_drift_of_the_answers_is_not_noise():
    """With balanced labels a drift moves both labels by the same amount in every sample, so it adds no noise."""
    measured, true = [], []
    for seed in range(20):
        series, correct, label, premise, truth = drifting(np.random.default_rng(seed), drift=1.0)
        alone = np.arange(len(label))
        measured.append(
            [
                reliability_by(series, correct, *how).reliability
                for how in ((alone, None), (alone, label), (premise, label))
            ]
        )
        found = estimate(series, Estimator())
        left = residuals.fit_design(found.refits[0].design, truth).residuals
        true.append((left**2).sum(axis=0) / (found.fit.residuals**2).sum(axis=0))
    blind, by_label, by_premise = np.mean(measured, axis=(0, 2))
    assert by_premise == pytest.approx(np.mean(true), abs=0.05)
    assert by_label < by_premise - 0.15
    assert blind < by_label - 0.1


def test_more_noise_than_residual_is_a_violated_assumption_and_gives_no_number():
    series, correct, label, premise, _ = drifting(np.random.default_rng(11), drift=2.0, skill=0.0)
    blind = reliability_by(series, correct, np.arange(len(label)), None)
    assert (blind.reliability < -1).all()
    assert blind.violated == (True, True)
    assert np.isnan(blind.r[0, 1])
    assert np.isnan(blind.low[0, 1])
    sound = reliability_by(series, correct, premise, label)
    assert sound.violated == (False, False)


def test_one_item_per_stratum_is_merged():
    assert items.merged_strata(np.array([0, 0, 1, 1]), np.array([0, 1, 2, 2])).tolist() == [0, 0, 0, 0]
    assert items.merged_strata(np.array([0, 1, 2]), np.array([0, 1, 2])).tolist() == [0, 0, 0]
    assert items.merged_strata(None, np.arange(3)).tolist() == [0, 0, 0]


def test_templates_with_one_label_are_items_within_their_label():
    """The covariance of the template sums within labels, by hand."""
    series, correct, label, _, _ = drifting(np.random.default_rng(12), drift=0.5, pairs=80)
    template = label + 2 * (np.arange(160) // 16)  # ten templates of eight examples per label
    found = estimate(series, Estimator())
    maker = residual_maker(found, len(series.scores))
    expected = 0.0
    for own in (0, 1):
        inside = correct["set0"][:, label == own]
        sums = np.array(
            [
                (inside[:, template[label == own] == t] - inside.mean(axis=1, keepdims=True)).sum(axis=1)
                for t in np.unique(template[label == own])
            ]
        )
        expected += ((maker @ sums.T) ** 2).sum() * (10 / 9) / 160**2
    measured = reliability_by(series, correct, template, label).reliability[0]
    assert measured == pytest.approx(1 - expected / (found.fit.residuals[:, 0] ** 2).sum(), abs=1e-9)


def test_a_table_of_records_may_name_items_and_strata():
    series, correct, label, premise, _ = drifting(np.random.default_rng(13), drift=1.0, pairs=30)
    found = estimate(series, Estimator())
    frame = as_records(series, correct)
    place = frame["example"].str[1:].astype(int)
    frame = frame.assign(item=premise[place], stratum=np.array(["yes", "no"])[label[place]])
    told = noise.correct(found, Records.read(frame), metric="accuracy", method="gam", level=0.95)
    direct = reliability_by(series, correct, premise, label)
    assert told.reliability == pytest.approx(direct.reliability)
    assert told.r[0, 1] == pytest.approx(direct.r[0, 1])
    assert told.caveats == ((), ())
    blind = noise.correct(
        found, Records.read(frame.drop(columns="stratum")), metric="accuracy", method="gam", level=0.95
    )
    assert "records without labels" in blind.caveats[0][0]


def test_runs_that_share_some_examples_are_not_corrected_by_records():
    """Noise that runs share would count as noise of each: a difference of one example used to raise r_corrected."""
    series, correct, _, _, _ = drifting(np.random.default_rng(14), drift=0.5, pairs=40)
    frame = as_records(series, correct)
    gone = (frame["run"] == "run0") & (frame["example"] == "e0")
    fewer = {name: np.where(series.runs == 0, c[:, 1:].mean(axis=1), c.mean(axis=1)) for name, c in correct.items()}
    changed = replace(series, scores=np.column_stack(list(fewer.values())))
    records = Records.read(frame[~gone])
    corrected = noise.correct(estimate(changed, Estimator()), records, metric="accuracy", method="gam", level=0.95)
    assert corrected.source == ("binomial", "binomial")
    assert "runs saw partly the same examples" in corrected.caveats[0][0]
    assert np.isnan(corrected.r[0, 1])


def test_items_are_named_for_all_examples_and_always_the_same():
    series, correct, _, _, _ = drifting(np.random.default_rng(15), drift=0.5, pairs=30)
    frame = as_records(series, correct)
    named = frame.assign(item=[f"p{i // 2}" for i in frame["example"].str[1:].astype(int)])
    named.loc[5, "item"] = None
    with pytest.raises(DataError, match="records row 6: item is missing"):
        Records.read(named)
    two = named.assign(item=named["item"].fillna("p2"))
    two.loc[two["step"] == 3, "item"] = "other"
    corrected = noise.correct(
        estimate(series, Estimator()), Records.read(two), metric="accuracy", method="gam", level=0.95
    )
    assert "an example belongs to several items" in corrected.caveats[0][0]
    few = Records.read(frame.assign(item="all"))
    corrected = noise.correct(estimate(series, Estimator()), few, metric="accuracy", method="gam", level=0.95)
    assert corrected.source == ("none", "none")
    assert "1 independent items are too few" in corrected.caveats[0][0]


# AUC


def auc_data(draw, runs=10, steps=8, sets=("mnli", "a", "b"), shared=0.75):
    """Margins of examples whose difficulty stays, in runs whose skill on two OOD sets has a part in common.

    Returns the long table of sample AUCs, the records, and the same table with AUCs of so many examples that hardly any
    noise is left.
    """
    many = 2000
    labels = {name: np.arange(many) % 2 for name in sets}
    hard = {name: draw.normal(size=many) for name in sets}
    rows, exact, records = [], [], []
    for run in range(runs):
        common = draw.normal(size=steps)
        for step in range(steps):
            rise = 0.3 + 1.2 * step / steps + 0.15 * draw.normal()
            for name in sets:
                n = 500 if name == "mnli" else 60
                own = 0.0 if name == "mnli" else np.sqrt(shared) * common[step] + np.sqrt(1 - shared) * draw.normal()
                skill = rise + 0.2 * own
                margin = skill * (2 * labels[name] - 1) + 0.6 * hard[name] + 1.5 * draw.normal(size=many)
                for table, size in ((rows, n), (exact, many)):
                    placed = placements(margin[:size], labels[name][:size] == 1)
                    table.append((f"r{run}", step, name, "auc", placed.mean() / 2, size))
                records.append(
                    pd.DataFrame(
                        {
                            **{"run": f"r{run}", "step": step, "test_set": name, "example": np.arange(n)},
                            **{"score:Yes": margin[:n], "score:No": 0.0},
                            "correct": ((margin[:n] >= 0) == (labels[name][:n] == 1)).astype(int),
                        }
                    )
                )
    columns = ["run", "step", "test_set", "metric", "value", "n"]
    return pd.DataFrame(rows, columns=columns), pd.concat(records), pd.DataFrame(exact, columns=columns)


def test_noise_of_auc_is_measured_from_scores():
    """Of 60 examples half of a residual is noise: what the records say equals what 2,000 examples lack."""
    draw = np.random.default_rng(2)
    told, lacking, plain, corrected, truth = [], [], [], [], []
    choose = {"in_domain": "mnli", "metric": "auc", "within": "run", "method": "linear"}
    for _ in range(4):
        table, records, exact = auc_data(draw)
        found, known = partial_correlations(table, records, **choose), partial_correlations(exact, **choose)
        few, many = (estimate(series_of(one), Estimator(method="linear", within="run")) for one in (table, exact))
        told += [one.total for one in items.noises_of(few, Records.read(records), "auc", "linear")]
        lacking += list((few.fit.residuals**2).sum(axis=0) - (many.fit.residuals**2).sum(axis=0))
        plain.append(found.table.iloc[0]["r"])
        corrected.append(found.table.iloc[0]["r_corrected"])
        truth.append(known.table.iloc[0]["r"])
    assert np.mean(told) == pytest.approx(np.mean(lacking), rel=0.15)
    assert np.mean(plain) < np.mean(truth) - 0.2
    assert abs(np.mean(corrected) - np.mean(truth)) < 0.15


def series_of(table):
    named = table.assign(role=np.where(table["test_set"] == "mnli", "in_domain", "ood"), model="m")
    return next(iter(group_series(named, metric="auc", by=("model",), unit="run")))


def test_noise_of_auc_is_not_known_without_scores():
    table, records, _ = auc_data(np.random.default_rng(3), runs=6, steps=6)
    choose = {"in_domain": "mnli", "metric": "auc", "within": "run", "method": "linear"}
    for kept in (None, records.drop(columns="score:No")):
        pair = partial_correlations(table, kept, **choose).table.iloc[0]
        assert np.isnan(pair["r_corrected"])
        assert np.isfinite(pair["r"])
    changed = table.assign(value=np.where(table["test_set"] == "a", 0.9 * table["value"], table["value"]))
    assert np.isnan(partial_correlations(changed, records, **choose).table.iloc[0]["r_corrected"])


def test_placements_add_up_to_auc():
    draw = np.random.default_rng(4)
    margin, positive = draw.normal(size=40).round(1), draw.random(40) < 0.3
    above = (margin[positive][:, None] > margin[~positive]) + 0.5 * (margin[positive][:, None] == margin[~positive])
    placed = placements(margin, positive)
    assert placed.mean() / 2 == pytest.approx(above.mean())
    assert placed[positive] * positive.sum() / 40 == pytest.approx(above.mean(axis=1))
    assert placements(margin, np.ones(40, dtype=bool)) is None
