"""Noise of the in-domain set alone is not claimed as a relation: where little of its scores is real, where links bend,
with ranks and other scales, with models of one checkpoint each, with rounded scores. OOD scores are functions of the
true in-domain score plus independent residuals, so every claim is wrong; comments say what was claimed before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import pytest

from oodles.stats.correlate import partial_correlations
from oodles.stats.doubts import NOISE, UNKNOWN
from oodles.stats.estimates import Estimator, estimate
from oodles.stats.inside import Inside, inside_noise
from oodles.stats.outcomes import Outcomes
from oodles.stats.series import Series
from test_noise import small_series

Link = Callable[[float, int], float]


def bent(z: float, k: int) -> float:
    return 0.40 + (5 + k) * (z - 0.68) ** 2


def line(z: float, k: int) -> float:
    return 0.30 + (0.9 - 0.08 * k) * (z - 0.5)


def steep(z: float, k: int) -> float:
    return 0.45 + (4 + 0.3 * k) * (z - 0.8)


def simulated(
    draw: np.random.Generator,
    link: Link,
    *,
    runs: int = 9,
    steps: int = 15,
    n: int = 200,
    between: tuple[float, float] = (0.5, 0.85),
    wobble: float = 0.015,
    residual: float = 0.02,
) -> pd.DataFrame:
    low, top = between
    rows = []
    for run in range(runs):
        times = np.linspace(0, 1, steps)
        end = top + 0.02 * min(1, (top - low) / 0.35) * draw.normal()
        rising = low + (end - low) * (1 - np.exp(-times / (0.25 * np.exp(0.3 * draw.normal()))))
        z = rising if steps > 1 else draw.uniform(low, top, 1)
        for step, true in enumerate(np.clip(z + wobble * draw.normal(size=len(z)), 0.01, 0.99)):
            rows.append((f"r{run}", step, "home", draw.binomial(n, true) / n, n))
            for k in range(4):
                p = np.clip(link(true, k) + residual * draw.normal(), 0.01, 0.99)
                rows.append((f"r{run}", step, f"o{k}", draw.binomial(2000, p) / 2000, 2000))
    return pd.DataFrame(rows, columns=["run", "step", "test_set", "value", "n"])


def claimed(make: Callable[[np.random.Generator], pd.DataFrame], data_sets: int = 20, **options: object) -> int:
    draw = np.random.default_rng(1)
    found = [partial_correlations(make(draw), in_domain="home", **options).table for _ in range(data_sets)]  # type: ignore[arg-type]
    return sum(bool(table["clear"].any()) for table in found)


@pytest.mark.parametrize("options", [{"correlation": "spearman"}, {"within": "separate"}], ids=str)
def test_bent_links_on_other_scales(options: dict[str, str]) -> None:
    assert claimed(lambda draw: simulated(draw, bent, n=1000), **options) <= 1  # 37 and 40 of 40


def test_scores_that_are_mostly_noise() -> None:
    narrow = {"between": (0.78, 0.86), "wobble": 0.005}
    assert (
        claimed(lambda draw: simulated(draw, lambda z, k: 0.45 + (2 + 0.2 * k) * (z - 0.8), **narrow)) <= 2
    )  # 29 of 40
    assert claimed(lambda draw: simulated(draw, bent, n=10)) <= 3  # 40 of 40


def test_scores_that_hardly_differ_where_n_is_not_told() -> None:
    flat = {"between": (0.80, 0.815), "wobble": 0.001, "residual": 0.01, "n": 10_000}
    assert claimed(lambda draw: simulated(draw, steep, **flat).drop(columns="n")) == 0  # 27 of 40
    assert claimed(lambda draw: simulated(draw, steep, **flat)) <= 2


def test_models_of_one_checkpoint_each() -> None:
    """Student's t takes the correction as certain: it is given where it is small, and the jackknife where not."""
    assert claimed(lambda draw: simulated(draw, line, runs=25, steps=1)) <= 2  # 11 of 40
    related = simulated(np.random.default_rng(3), line, runs=25, steps=1, n=1_000_000)
    shared = related.pivot(index="run", columns="test_set", values="value")
    moved = shared["o0"] - line(shared["home"], 0)
    related["value"] += np.where(related["test_set"] == "o1", 3 * related["run"].map(moved), 0.0)
    table = partial_correlations(related, in_domain="home").table
    pair = table[(table["a"] == "o0") & (table["b"] == "o1")].iloc[0]
    assert pair["interval"] == "t"
    assert pair["p_corrected"] == pytest.approx(pair["p_val"], rel=0.2)
    assert pair["clear"]


def test_rounding_is_noise_too() -> None:
    """Two decimals of 10,000 examples: 13 of 40 before."""

    def rounded(draw: np.random.Generator) -> pd.DataFrame:
        table = simulated(draw, steep, between=(0.75, 0.85), wobble=0.005, n=10_000)
        return table.assign(value=table["value"].where(table["test_set"] != "home", table["value"].round(2)))

    assert claimed(rounded) <= 2


def test_noise_that_would_lower_r_does_not_explain_it() -> None:
    """Links of opposite slopes: noise makes a negative correlation, so a positive one is in no doubt."""
    draw, doubts = np.random.default_rng(5), []
    for _ in range(5):
        table = simulated(draw, lambda z, k: line(z, 0) if k % 2 == 0 else 1.0 - line(z, 0), n=1000, residual=0.0)
        common = 0.06 * draw.normal(size=table.groupby(["run", "step"]).ngroups)
        table["value"] += np.where(table["test_set"] == "home", 0.0, np.repeat(common, 5))
        found = partial_correlations(table, in_domain="home", correlation="spearman").table
        pair = found[(found["a"] == "o0") & (found["b"] == "o1") & (found["within"] == "pooled")].iloc[0]
        assert pair["r"] > 0
        assert pair["p_val"] < 0.05
        doubts.append(pair["doubt"])
    assert doubts == [""] * 5


OTHER_SCALES = ({"correlation": "spearman"}, {"method": "logit-linear"}, {"within": "separate"})


@pytest.mark.parametrize("options", OTHER_SCALES, ids=str)
@pytest.mark.parametrize("runs", [1, 2])
@pytest.mark.parametrize("interval", [None, "naive"])
@pytest.mark.filterwarnings("ignore:naive")
def test_few_runs_on_other_scales(options: dict[str, str], runs: int, interval: str | None) -> None:
    table = simulated(np.random.default_rng(8), line, runs=runs)
    found = partial_correlations(table, in_domain="home", interval=interval, **options).table  # type: ignore[arg-type]
    assert np.isfinite(found["r"]).all()
    assert found["p_val"].isna().all()  # nothing is tested
    assert not found["clear"].any()


@pytest.mark.parametrize("options", OTHER_SCALES, ids=str)
def test_noise_is_no_relation_on_other_scales(options: dict[str, str]) -> None:
    """Nine runs: most pairs are significant by themselves, and all of these are noise of 200 examples."""
    found = partial_correlations(simulated(np.random.default_rng(8), line), in_domain="home", **options).table  # type: ignore[arg-type]
    significant = found[found["p_holm"] < 0.05]
    assert len(significant) > len(found) / 2
    assert set(significant["doubt"]) == {NOISE}
    assert not found["clear"].any()


def test_n_that_is_too_small_makes_no_relation() -> None:
    """With n = 5 all in-domain scores hardly differ; scores that are no multiples of 1/5 say otherwise."""
    table = simulated(np.random.default_rng(6), bent, n=200)
    small = partial_correlations(
        table.assign(n=table["n"].mask(table["test_set"] == "home", 5)), in_domain="home"
    ).table
    assert not small["clear"].any()
    assert set(small["doubt"]) <= {UNKNOWN, NOISE}


def test_in_domain_scores_have_a_scale_of_their_own() -> None:
    table = simulated(np.random.default_rng(7), line, n=5000)
    usual = partial_correlations(table, in_domain="home").table
    per_cent = table.assign(value=table["value"] * np.where(table["test_set"] == "home", 1, 100))
    mixed = partial_correlations(per_cent, in_domain="home").table
    assert not any("no multiples of 1/n" in text for said in mixed["caveats"] for text in said)
    shifted = table.assign(value=table["value"] - np.where(table["test_set"] == "o3", 0.9, 0.0))  # such as a MCC
    found = partial_correlations(shifted, in_domain="home").table
    assert UNKNOWN not in set(found["doubt"])
    pd.testing.assert_series_equal(found["p_corrected"], usual["p_corrected"])


@pytest.mark.parametrize(
    ("source", "points", "bend", "unsure"),
    [
        ("records", 200, 0.0, False),
        ("records", 99, 0.0, True),  # too few points
        ("records", 200, 0.9, True),  # the link is bent
        ("binomial", 200, 0.0, True),  # the most that it can be
    ],
    ids=["known", "few points", "bent", "bound"],
)
def test_a_correction_by_more_than_half_is_sure_only_where_noise_is_known_well(
    source: str, points: int, bend: float, unsure: bool
) -> None:
    left = np.ones((points, 2))
    share = np.array([0.6, 0.4])  # of each residual that is noise
    inside = Inside(
        source=source, variance=1e-4, full=np.diag((1 - share) * points), left_out=None, bend=np.full(2, bend)
    )
    assert inside.unsure(left).tolist() == [unsure, False]


def test_scores_that_are_no_shares_still_have_the_noise_of_n_where_they_differ_by_more() -> None:
    """Rounded or averaged scores beside a plausible n; an n that allows no more than noise is not believed."""
    series, _ = small_series(np.random.default_rng(1))  # scores that are no multiples of 1/500
    assert inside_noise(estimate(series, Estimator()), None, "accuracy").source == "binomial"
    small = replace(series, covariate_sizes=np.full_like(series.covariates, 5.0))
    told = inside_noise(estimate(small, Estimator()), None, "accuracy")
    assert told.source == "none"
    assert told.why == "scores of mnli are no multiples of 1/n, and n would allow no more than noise"


def test_examples_whose_luck_never_changes_are_no_noise_and_not_less_than_none() -> None:
    """One stratum of a fixed pattern, others answered as one: what is measured is rounding, of either sign."""
    for seed in range(10):
        draw = np.random.default_rng(seed)
        series, _ = small_series(draw)
        points = len(series.runs)
        fixed = np.tile(draw.integers(2, size=40), (points, 1))
        moving = np.repeat(np.arange(20) < draw.integers(5, 20, (points, 1)), 10, axis=1)
        told = Told(
            Outcomes(
                correct=np.hstack([fixed, moving]).astype(np.int8),
                items=np.arange(240),
                strata=np.repeat(np.arange(21), [40, *[10] * 20]),
                shared=True,
            )
        )
        scores = told.found.correct.mean(axis=1, keepdims=True)
        series = replace(series, covariates=scores, covariate_sizes=np.full((points, 1), 240.0))
        noise = inside_noise(estimate(series, Estimator()), told, "accuracy")
        assert noise.source == "records"
        assert 0 <= noise.variance < 1e-15 < noise.most


@dataclass(frozen=True)
class Told:
    """Records of the in-domain set, as they were drawn."""

    found: Outcomes

    def outcomes(
        self, _series: Series, _name: str, _values: np.ndarray, _metric: str = "accuracy", /
    ) -> tuple[Outcomes | None, str]:
        return self.found, ""
