"""Correlations that rest on one part of training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from benchmarks.families import PARTS, STARTS, long_table, simulate

import oodles as oo
from oodles.api.findings import findings
from oodles.stats.correlate import partial_correlations
from oodles.stats.doubts import ONE_PART
from oodles.stats.estimates import Estimator, estimate
from oodles.stats.parts import Parts, moments, without_parts
from oodles.stats.series import Series
from oodles.stats.verdict import verdicts

START = "9 runs x 8, plateau, then a jump, a common start"


def claimed(table: pd.DataFrame) -> pd.DataFrame:
    found = partial_correlations(table).table
    return found[found["p_said"] < 0.05]


def test_a_start_that_runs_nearly_share_is_not_counted() -> None:
    """Nothing correlates but the first step, at which all sets of all runs are off the curve."""
    table = long_table(simulate(STARTS[START], 0.0, np.random.default_rng(1)))
    found = claimed(table)
    assert len(found) > 5
    assert (found["doubt"] == ONE_PART).mean() > 0.8
    caveats = [
        said for pair in found["caveats"] for said in pair if said.endswith("much of it rests on one part of training")
    ]
    assert all(said.startswith("without step 0 r is ") for said in caveats)
    later = partial_correlations(table[table["step"] > 0]).table
    pair = found[found["doubt"] == ONE_PART].iloc[0]
    same = later[(later["a"] == pair["a"]) & (later["b"] == pair["b"]) & (later["within"] == pair["within"])].iloc[0]
    told = f"without step 0 r is {same['r']:+.2f} ({same['low']:+.2f} to {same['high']:+.2f})"
    assert any(said.startswith(told) for said in pair["caveats"])
    (verdict,) = verdicts(partial_correlations(table))
    assert "may be due to one part of training alone" in verdict.sentence


def test_correlations_throughout_training_are_counted() -> None:
    found = claimed(long_table(simulate(PARTS["9 runs x 40"], 0.6, np.random.default_rng(2))))
    assert found["clear"].sum() > 3
    assert not (found["doubt"] == ONE_PART).any()


def test_each_tenth_of_many_steps_is_left_out_once() -> None:
    series = simulate(PARTS["9 runs x 40"], 0.6, np.random.default_rng(3)).series
    recipe = Estimator(within="run")
    parts = without_parts(estimate(series, recipe), recipe)
    assert parts.names[:2] == ("steps 0 to 3", "steps 4 to 7")
    assert parts.names[10:12] == ("steps 0 to 7", "steps 4 to 11")  # and each two in a row
    assert len(parts.names) == 10 + 9
    alone = estimate(series.at(series.steps > 3), recipe)
    assert parts.r[0] == pytest.approx(alone.r)
    assert parts.low[0] == pytest.approx(alone.interval.low, nan_ok=True)


def test_of_three_steps_none_is_left_out() -> None:
    series = simulate(PARTS["9 runs x 8"], 0.6, np.random.default_rng(3)).series
    found = estimate(series.at(series.steps < 3), Estimator())
    assert without_parts(found, Estimator()).names == ()


def test_of_four_steps_each_is_left_out() -> None:
    series = simulate(PARTS["9 runs x 8"], 0.6, np.random.default_rng(3)).series
    found = estimate(series.at(series.steps < 4), Estimator())
    assert without_parts(found, Estimator()).names == ("step 0", "step 1", "step 2", "step 3")


def test_a_part_is_compared_with_the_runs_that_go_on_without_it() -> None:
    """Three of nine runs end after two steps: without one of these they are too short, and the other six are asked."""
    series, recipe = ended_after_two_steps(3), Estimator(within="run")
    found = estimate(series, recipe)
    parts = without_parts(found, recipe)
    assert parts.names[:3] == ("step 0", "step 1", "step 2")
    others = estimate(series.at(series.runs >= 3), recipe)
    assert np.abs(others.r - found.r).max() > 0.02
    assert parts.whole[0] == pytest.approx(others.r)
    assert parts.r[0] == pytest.approx(estimate(series.at((series.runs >= 3) & (series.steps > 0)), recipe).r)
    assert parts.whole[2] == pytest.approx(found.r)  # all nine go on without the third


def test_a_part_without_which_most_runs_are_too_short_is_not_asked() -> None:
    recipe = Estimator(within="run")
    names = without_parts(estimate(ended_after_two_steps(6), recipe), recipe).names
    assert names[0] == "step 2"
    assert not {"step 0", "step 1"} & {*names}


def ended_after_two_steps(runs: int) -> Series:
    """Nine runs of eight steps, of which the first few have only two."""
    series = simulate(PARTS["9 runs x 8"], 0.6, np.random.default_rng(3)).series
    return series.at((series.runs >= runs) | (series.steps < 2))


@pytest.mark.parametrize("interval", ["naive", "t", "bootstrap"])
def test_what_is_left_without_a_part_has_an_interval_over_runs_whatever_was_asked(interval: str) -> None:
    series = simulate(PARTS["9 runs x 8"], 0.6, np.random.default_rng(3)).series
    asked, jackknife = (Estimator(within="run", interval=name) for name in (interval, "jackknife"))
    parts, expected = (without_parts(estimate(series, recipe), recipe) for recipe in (asked, jackknife))
    assert parts.low == pytest.approx(expected.low, nan_ok=True)
    assert parts.high == pytest.approx(expected.high, nan_ok=True)


def test_less_than_two_thirds_is_too_little() -> None:
    assert carried(0.5, [0.3, 0.9], [1, 1]) == 0
    assert carried(0.44, [0.3, 0.9], [1, 1]) is None
    assert carried(-0.5, [0.3, -0.9], [1, 1]) == 0  # without it the sign is another
    assert carried(0.5, [0.3, 0.2], [1, 1]) == 1
    assert carried(0.5, [0.3, 0.1], [1, 2]) == 0  # the shortest part that suffices
    assert carried(0.5, [np.nan, 0.5], [1, 1]) == 0  # nothing is left at all
    assert carried(np.nan, [np.nan], [1]) is None
    assert Parts.none(1).carrier(0, 0) is None


def carried(whole: float, left: list[float], pieces: list[int]) -> int | None:
    shape = (len(left), 1, 1)
    nothing = np.zeros(shape)
    names = tuple(f"step {k}" for k in range(len(left)))
    r, both = np.reshape(left, shape), np.full(shape, whole)
    return Parts(names=names, pieces=tuple(pieces), whole=both, r=r, low=nothing, high=nothing).carrier(0, 0)


def test_a_pair_that_is_constant_but_for_one_step_is_not_counted() -> None:
    draw, rows = np.random.default_rng(4), []
    for run in range(9):
        for step in (4, 8, 16, 24, 32, 48, 64, 80):
            learnt = 0.5 + 0.35 * (1 - np.exp(-step / 15)) + draw.normal(0, 0.01)
            dip = draw.normal(0.1, 0.03) * (step == 8)
            a, b = (0.5 - dip - draw.normal(0, 0.01) * (step == 8) for _ in "ab")
            rows += [(f"r{run}", step, name, value, 20_000) for name, value in (("in", learnt), ("a", a), ("b", b))]
    table = pd.DataFrame(rows, columns=["run", "step", "test_set", "value", "n"]).round({"value": 4})
    analysis = oo.analyse(table, in_domain="in")
    pairs = analysis.result.table
    assert (pairs["p_val"] < 0.05).all()
    assert not pairs["clear"].any()
    assert set(pairs["doubt"]) == {ONE_PART}
    told = "without step 8 nothing is left to correlate: much of it rests on one part of training"
    assert all(told in caveats for caveats in pairs["caveats"])


@pytest.mark.parametrize("family", [name for name in STARTS if name.endswith("common steps")])
def test_an_event_of_several_steps_is_not_counted(family: str) -> None:
    claims = claimed(long_table(simulate(STARTS[family], 0.0, np.random.default_rng(5))))
    assert len(claims) > 5
    assert (claims["doubt"] == ONE_PART).mean() > 0.9


def test_moments_are_steps_in_a_row_that_no_run_has_twice() -> None:
    series = simulate(PARTS["9 runs x 8"], 0.6, np.random.default_rng(3)).series
    assert moments(series).tolist() == series.steps.tolist()
    own = replace(series, steps=100 * series.steps + series.runs)
    assert moments(own).tolist() == series.steps.tolist()
    dense = replace(series, steps=np.where(series.runs == 0, series.steps, 2 * series.steps))
    assert moments(dense)[:8].tolist() == list(range(8))


def gemma(keep: Callable[[pd.DataFrame], pd.Series], step: Callable[[pd.DataFrame], pd.Series]) -> pd.DataFrame:
    """Our own study's pair that rests on step 8, with other steps or without some rows."""
    table = findings()["smollm2-nli"].table()
    table = table[(table["model"] == "gemma3-270m-q4") & (table["train_set"] == "mnli") & (table["metric"] == "auc")]
    table = table[table["test_set"].isin(["mnli", "scitail", "snli"])]
    table = table[keep(table)].assign(step=step)
    pairs = oo.analyse(table, metric="auc").result.table
    assert (pairs["p_said"] < 0.05).all()
    return pairs


def test_runs_with_steps_of_their_own_are_compared_by_moments() -> None:
    pairs = gemma(lambda t: t["step"] >= 0, lambda t: t["step"] * 100 + t["seed"] * (t["step"] > 0))
    assert set(pairs["doubt"]) == {ONE_PART}
    assert any(said.startswith("without steps 800 to 808 r is +0.26") for said in pairs["caveats"].iloc[0])


def test_a_run_that_ended_early_does_not_hide_a_part() -> None:
    pairs = gemma(lambda t: (t["seed"] > 0) | (t["step"] <= 8), lambda t: t["step"])
    assert set(pairs["doubt"]) == {ONE_PART}


def test_the_pair_of_our_own_study_that_rests_on_two_early_steps_is_not_counted() -> None:
    table = oo.analyse("smollm2-nli", metric="auc").result.table
    pair = table[(table["a"] == "scitail") & (table["b"] == "snli") & (table["model"] == "gemma3-270m-q4")]
    pair = pair[pair["within"] == "pooled"].iloc[0]
    assert pair["p_said"] < 0.05
    assert pair["doubt"] == ONE_PART
    assert not pair["clear"]
    (answer,) = oo.analyse("smollm2-nli", skill=True).answers.values()
    assert len(answer.tables["skill"])
    assert not (answer.tables["skill"]["told"] == "skill").any()
