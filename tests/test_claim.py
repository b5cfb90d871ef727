"""Does it depend on the model? The test, the spread over models, and what is said of them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks import claim as simulation

import oodles as oo
from conftest import oodles
from oodles.errors import ConfigError
from oodles.stats import effects
from oodles.stats.analysis import read_results, write_results
from oodles.stats.claim import claim, compare
from oodles.stats.clusters import ClusterValues, Scores, cluster_values
from oodles.stats.effects import Sample
from oodles.stats.estimates import Estimator
from oodles.stats.longtable import check_table


def samples(draw: np.random.Generator, *means: float, units: int = 9, sd: float = 0.3) -> list[Sample]:
    return [Sample.of(mean + sd * draw.normal(size=units)) for mean in means]


def study(truth: list[float], runs: int = 9, steps: int = 12, sizes: tuple[float, float] = (0.02, 0.02), seed: int = 0):
    """Models whose two sets correlate at these values; residual sizes go from the first to the last."""
    draw = np.random.default_rng(seed)
    frames = []
    for m, (rho, size) in enumerate(zip(truth, np.linspace(*sizes, len(truth)), strict=True)):
        for run in range(runs):
            z = 0.5 + 0.3 * np.linspace(0, 1, steps) + 0.01 * draw.normal(size=steps)
            a, b, c = draw.normal(size=(3, steps))
            b = rho * a + np.sqrt(1 - rho**2) * b
            for name, value in (("in", z), ("a", z - 0.1 + size * a), ("b", z - 0.2 + size * b), ("c", z + size * c)):
                frames.append(
                    pd.DataFrame(
                        {
                            "run": f"m{m}_{run}",
                            "model": f"m{m}",
                            "train_set": "in",
                            "step": np.arange(steps),
                            "test_set": name,
                            "role": "in_domain" if name == "in" else "ood",
                            "value": np.clip(value, 0, 1).round(5),
                            "n": 100_000,
                        }
                    )
                )
    return pd.concat(frames, ignore_index=True)


def scores_of(table: pd.DataFrame, **changes) -> Scores:
    return Scores(table=check_table(table)[0], by=("model", "train_set"), **changes)


# numbers


def test_the_test_of_equal_means_is_scipys() -> None:
    """Scipy's deviates are Hill's approximation, which is good to 1e-3."""
    draw = np.random.default_rng(0)
    for _ in range(20):
        units = [draw.normal(scale=draw.uniform(0.1, 3), size=draw.integers(4, 20)) for _ in range(6)]
        found, wanted = effects.equal_means([Sample.of(u) for u in units]), stats.alexandergovern(*units)
        assert found.statistic == pytest.approx(wanted.statistic, rel=1e-3)
        assert found.p_val == pytest.approx(wanted.pvalue, rel=1e-3)


def test_twenty_equal_models_are_found_equal() -> None:
    """Welch's F rejects them in 7 %, and in .7 % at the level that one of 21 pairs must reach."""
    draw = np.random.default_rng(0)
    p_vals = []
    for _ in range(4000):
        squares = np.geomspace(0.3, 0.9, 20) ** 2 / 9
        drawn = zip(draw.normal(0.3, np.sqrt(squares)), squares * draw.chisquare(8, 20) / 8, strict=True)
        clusters = [Sample(mean=mean, square=square, units=9, effective=9.0) for mean, square in drawn]
        p_vals.append(effects.equal_means(clusters).p_val)
    assert 0.04 < np.mean(np.array(p_vals) < 0.05) < 0.06
    assert np.mean(np.array(p_vals) < 0.05 / 21) < 0.005


def test_paule_and_mandels_variance_solves_its_equation_and_equals_dersimonian_lairds_for_equal_errors() -> None:
    y, s = np.array([0.1, 0.7, -0.2, 0.4, 0.9]), np.full(5, 0.04)
    k = len(y)
    q = ((y - y.mean()) ** 2 / s).sum()
    by_moments = (q - (k - 1)) / (k / s[0] - (k / s[0] ** 2) / (k / s[0]))  # DerSimonian and Laird, by hand
    assert effects.paule_mandel(y, s) == pytest.approx(by_moments, rel=1e-6)
    s = np.array([0.01, 0.2, 0.05, 0.03, 0.1])
    tau2 = effects.paule_mandel(y, s)
    w = 1 / (s + tau2)
    assert (w * (y - (w * y).sum() / w.sum()) ** 2).sum() == pytest.approx(k - 1, rel=1e-8)
    assert effects.paule_mandel(np.full(4, 0.3), np.full(4, 0.1)) == 0


def test_a_dominating_unit_leaves_fewer_units() -> None:
    values = np.array([0.1, 0.3, 0.2, 0.5, 0.4])
    even = Sample.of(values, np.ones(5))
    uneven = Sample.of(values, np.array([10.0, 1, 1, 1, 1]))
    assert even.effective == 5
    assert uneven.effective == pytest.approx(14**2 / 104)
    assert uneven.square > even.square
    assert np.ptp(uneven.interval(0.95)) > np.ptp(even.interval(0.95))


def test_prediction_interval_covers_a_new_model() -> None:
    """The bootstrapped one; the plain one is too narrow where the spread is small."""
    for name, least in (("tau 0.1", 0.9), ("tau 0.35", 0.88)):
        found = simulation.score_values(name, 150, seed=3)
        assert least < found["covered"] < 0.995
        assert found["tau_covered"] > 0.89


def test_errors_that_are_not_well_known_do_not_narrow_the_range_of_a_new_model() -> None:
    """Draws that overstate errors would take them from the spread: 2 % narrower than with known errors."""
    draw = np.random.default_rng(0)
    ratios = []
    for number in range(20):
        drawn = draw.normal(0.3, 0.3, 8)
        known, estimated = (
            [Sample(mean=mean, square=0.03, units=9, effective=units) for mean in drawn] for units in (1e6, 9.0)
        )
        widths = [np.ptp(effects.random_effects(one, seed=number).prediction) for one in (known, estimated)]
        ratios.append(widths[1] / widths[0])
    assert 1.0 < np.mean(ratios) < 1.06


def test_means_that_are_equal_by_luck_do_not_bound_the_spread_at_nothing() -> None:
    """Three models of nine runs cannot tell that models never differ: the interval was 0 to 0."""
    close = [Sample(mean=mean, square=0.01, units=9, effective=9.0) for mean in (0.3, 0.301, 0.299)]
    usual = [Sample(mean=mean, square=0.01, units=9, effective=9.0) for mean in (0.3, 0.3 + 0.083, 0.3 - 0.083)]
    limits = [effects.random_effects(one).tau_interval for one in (close, usual)]  # of the second Q is at its median
    assert limits[0][0] == 0
    assert limits[0][1] == pytest.approx(limits[1][1], rel=0.05)
    assert limits[0][1] > 0.3


def test_the_spread_of_twenty_equal_models_may_be_nothing() -> None:
    """The draws alone exclude 0 in a tenth of such studies, which is four times too often."""
    draw = np.random.default_rng(0)
    found = [
        effects.random_effects(samples(draw, *[0.3] * 20, sd=0.5), seed=number, draws=500).tau_interval[0]
        for number in range(200)
    ]
    assert np.mean(np.array(found) > 0) < 0.05


def test_signs_that_reverse_are_named() -> None:
    draw = np.random.default_rng(1)
    found = effects.sign_reversal(samples(draw, 1.0, 0.0, -1.0))
    assert (found.above, found.below) == ((0,), (2,))
    assert found.p_val < 0.05
    assert effects.sign_reversal(samples(draw, 1.0, 1.0, 0.9)).p_val > 0.5


# unequal noise


def test_unequal_residual_size_alone_is_no_difference() -> None:
    """As observed it is found in most studies; without noise no more often than by chance."""
    found = simulation.score_cell("residual size .01 to .04", 25, seed=1)
    assert found["all_observed"] > 0.4
    assert found["all_both"] <= 0.2
    assert found["pair_both"] < 0.1


def test_runs_of_very_unequal_size_do_not_fake_a_difference() -> None:
    """Taken as nine units each, such runs reject in a third of the pairs."""
    found = simulation.score_cell("sizes of runs from t3", 12, seed=1)
    assert found["pair_both"] < 0.12


def test_a_true_difference_is_found() -> None:
    found = simulation.score_cell("loading sd .3", 8, seed=1)
    assert found["all_both"] == 1.0
    assert found["pair_both"] > 0.7


# in words


def test_yes_names_its_pairs_and_models() -> None:
    answer = claim(scores_of(study([0.9, 0.8, -0.8, 0.0])), ["model"])
    (sentence,) = answer.sentences
    assert sentence.startswith("Depends on the model: yes.")
    assert "a ~ b" in sentence
    assert "above 0 in m0, m1; below in m2" in sentence
    table = answer.tables["claim"].set_index(["a", "b"])
    assert table.loc[("a", "b"), "p_holm"] < 0.001 < table.loc[("a", "c"), "p_val"]
    assert table.loc[("a", "b"), "tau"] > 0.5
    assert len(answer.tables["claim_levels"]) == 4 * 3


def test_few_runs_are_described_and_not_tested() -> None:
    answer = claim(scores_of(study([0.9, 0.0, -0.9], runs=5)), ["model"])
    assert "cannot be told. A model has 5 independent units here, and a test needs 9" in answer.sentences[0]
    assert answer.tables["claim"]["p_val"].isna().all()
    assert np.isfinite(answer.tables["claim"]["tau"]).all()


def test_no_difference_is_not_a_no_unless_it_is_excluded() -> None:
    said = claim(scores_of(study([0.5, 0.5, 0.5], runs=9, steps=8)), ["model"]).sentences[0]
    assert "cannot be told" in said
    assert "would take" in said


def test_without_n_unequal_noise_cannot_be_excluded() -> None:
    answer = claim(scores_of(study([0.9, -0.9]).assign(n=np.nan)), ["model"])
    assert "Noise of the test sets is not known" in answer.sentences[0]


def test_residuals_that_may_be_all_noise_are_told_apart_from_noise_that_is_not_known() -> None:
    table = study([0.5, 0.5], sizes=(0.004, 0.1)).assign(n=1000, value=lambda t: t["value"].round(3))
    (said,) = claim(scores_of(table), ["model"]).sentences
    assert "nearly all of the residuals in m0: a ~ b, a ~ c, b ~ c. Larger test sets, or records" in said
    assert "not known" not in said


@pytest.mark.parametrize(("runs", "told"), [(3, "m2 (3)"), (1, "m2 (none with a correlation)")])
def test_models_of_few_runs_are_named_as_left_out(runs: int, told: str) -> None:
    table = study([0.6, 0.6, -0.9])
    few = table[~(table["model"].eq("m2") & table["run"].str[-1].astype(int).ge(runs))]
    (said,) = claim(scores_of(few), ["model"]).sentences
    assert "With 2 models" in said
    assert said.endswith(f"Left out, with fewer than 9 independent units: {told}.")
    (said,) = claim(scores_of(few[few["model"] != "m1"]), ["model"]).sentences
    assert told in said if runs == 1 else "A model has 3 to 9 independent units here" in said
    assert "Left out" not in claim(scores_of(table), ["model"]).sentences[0]


def test_levels_are_called_by_their_names() -> None:
    table = pd.concat(
        [
            study([rho], seed=k, steps=8).assign(model="m", shots=shots, run=lambda t, k=k: t["run"] + str(k))
            for k, (shots, rho) in enumerate([(8, 0.8), (32, 0.8), (128, -0.8)])
        ]
    )
    (said,) = claim(scores_of(table), ["shots"]).sentences
    assert said.startswith("Depends on the shots: yes. With 3 values of shots of 9 or more independent units")
    assert "differ between values of shots" in said
    said = claim(scores_of(study([0.5, 0.5], steps=8).assign(family=lambda t: t["model"])), ["family"]).sentences[0]
    assert "difference between families" in said


def test_units_of_a_family_are_its_models() -> None:
    table = study([0.5] * 6, runs=2, steps=8)
    table["family"] = table["model"].map(lambda name: "odd" if int(name[1:]) % 2 else "even")
    answer = claim(scores_of(table), ["family"])
    assert answer.caveats == ("the units of a family are its models",)
    assert set(answer.tables["claim_levels"]["units"]) == {3}


def test_runs_on_one_draw_are_one_unit() -> None:
    table = study([0.5, 0.2], runs=6, steps=8).assign(shots=32)
    table["data_seed"] = table["run"].str[-1].astype(int) // 2
    answer = claim(scores_of(table), ["model"])
    assert "runs that were trained on the same draw of data are one unit" in answer.caveats
    assert set(answer.tables["claim_levels"]["units"]) == {3}


def test_strata_are_compared_by_themselves() -> None:
    table = pd.concat(
        [study([0.9, -0.9], seed=0), study([0.5, 0.5], seed=1).assign(train_set="other", run=lambda t: t["run"] + "x")]
    )
    sentences = claim(scores_of(table), ["model"]).sentences
    assert ["train set in" in s and "yes" in s for s in sentences] == [True, False]


def test_a_column_that_is_not_there_is_refused() -> None:
    table = study([0.5, 0.5], runs=3, steps=6)
    with pytest.raises(ConfigError, match="--across famly: no such column"):
        claim(scores_of(table), ["famly"])
    with pytest.raises(ConfigError, match="one value of it"):
        claim(scores_of(table), ["train_set"])
    alone = table.assign(model=None, train_set="mnli")
    with pytest.raises(ConfigError, match=r"^--across model: no such column; the table has no column"):
        claim(scores_of(alone), ["model"])


@pytest.mark.parametrize("column", ["step", "run", "test_set", "metric", "value", "n", "role", "kind"])
def test_a_column_that_is_no_factor_is_refused_with_the_reason_and_those_that_are(column: str) -> None:
    table = study([0.5, 0.5], runs=3, steps=6).assign(kind=lambda rows: rows["test_set"])
    why = "runs are the units" if column == "run" else "it tells scores of one run apart, .* whole runs"
    more = r" \(--windows asks .*\)" if column == "step" else ".*"
    told = f"^--across {column}: cannot be compared: {why}{more}; columns that can: model$"
    with pytest.raises(ConfigError, match=told):
        claim(scores_of(table), [column])


def test_gaps_are_left_to_the_pairs_they_concern() -> None:
    table = study([0.8, 0.8], runs=9)
    holes = (table["test_set"] == "c") & (table["step"] == 3)
    clusters = [
        cluster_values(one, Estimator(within="run"), name=one.group["model"])
        for one in scores_of(table[~holes]).groups(by=("model",))
    ]
    whole = [cluster_values(one, Estimator(within="run")) for one in scores_of(table).groups(by=("model",))]
    assert compare(clusters)["levels"].tolist() == [2, 2, 2]
    assert clusters[0].observed["a", "b"].mean == pytest.approx(whole[0].observed["a", "b"].mean)


# through the doors


def test_the_answer_is_written_read_and_shown(tmp_path: Path) -> None:
    analysis = oo.analyse(study([0.9, 0.8, -0.8, 0.0], steps=8), across="model")
    assert analysis.claim is not None
    write_results(analysis, tmp_path / "results")
    again = read_results(tmp_path / "results")
    assert again.claim is not None
    assert again.claim.sentences == analysis.claim.sentences
    pd.testing.assert_frame_equal(again.claim.tables["claim"], analysis.claim.tables["claim"], check_dtype=False)
    page = oo.write_report(again, tmp_path / "report.html").read_text()
    assert "Depends on the model: yes." in page
    assert "Correlations by level with intervals" in page
    (tmp_path / "results" / "claim.parquet").write_text("no table")
    refused = oodles("report", tmp_path / "results", "--out", tmp_path / "other.html")
    assert refused.returncode == 2
    assert "claim.parquet: cannot be read" in refused.stderr


def test_across_on_the_command_line(tmp_path: Path) -> None:
    study([0.9, -0.9], steps=8).to_csv(tmp_path / "table.csv", index=False)
    told = oodles("analyse", tmp_path / "table.csv", "--across", "model").stdout
    assert "Does it depend on the model?" in told
    assert "Depends on the model: yes." in " ".join(told.split())
    found = json.loads(oodles("analyse", tmp_path / "table.csv", "--across", "model", "--json").stdout)
    assert set(found["answers"]["claim"]) == {"sentences", "caveats", "claim", "claim_levels"}


def test_the_simulated_truth_knows_the_bound_of_loadings():
    """Loadings of runs are held within bounds, which moves the mean of large ones: .9 becomes .85."""
    cell, loading = simulation.Cell(spread=0.2), np.array([0.9, -0.8, 0.3, 0.95, 0.0, 0.5, -0.45])
    draws = loading + cell.spread * np.random.default_rng(0).normal(size=(200_000, len(loading)))
    mean = np.clip(draws, -simulation.BOUND, simulation.BOUND).mean(axis=0)
    assert simulation.true_z(cell, loading) == pytest.approx(np.arctanh(np.outer(mean, mean)), abs=0.005)
    plain = simulation.true_z(simulation.Cell(), loading)
    assert plain == pytest.approx(np.arctanh(np.outer(loading, loading)))
    assert plain[0, 3] - simulation.true_z(cell, loading)[0, 3] > 0.2


def test_measured_noise_that_leaves_nothing_is_not_called_a_lack_of_models() -> None:
    """With records of which noise takes all, correlations are shown as observed and not tested."""
    draw = np.random.default_rng(0)
    both = [{("a", "b"): one} for one in samples(draw, 0.2, 0.4)]
    noisy = [
        ClusterValues(name=f"m{k}", observed=one, corrected={}, measured=True, known=True) for k, one in enumerate(both)
    ]
    (row,) = compare(noisy).to_dict("records")
    assert np.isfinite(row["r"])
    assert np.isnan(row["p_val"])
    assert row["corrected_by"] == "range"


def test_a_column_that_is_blank_at_some_steps_is_no_factor() -> None:
    table = study([0.5, 0.5])
    table["size"] = np.where(table["step"] < 4, np.nan, table["model"].str[-1].astype(float))
    with pytest.raises(ConfigError, match="--across size"):
        claim(scores_of(table), ["size"])
