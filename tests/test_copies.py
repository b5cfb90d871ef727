"""Copies of a run count once; a coincidence of coarse scores is no copy."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from oodles.stats.changes import changes
from oodles.stats.copies import copied_runs, no_shares
from oodles.stats.correlate import partial_correlations
from oodles.stats.longtable import check_table
from oodles.stats.verdict import verdicts
from test_correlate import from_one_model, simulated


def copied(table: pd.DataFrame, runs: dict[str, str]) -> pd.DataFrame:
    """The table with runs under further names."""
    return pd.concat([table, *(table[table["run"] == run].assign(run=name) for name, run in runs.items())])


def found(table: pd.DataFrame) -> dict[str, str]:
    return copied_runs(check_table(table)[0])


@pytest.mark.parametrize("within", ["pooled", "run", "separate"])
def test_copies_change_no_number_and_are_named(within):
    table = from_one_model(runs=4)
    twice = copied(table, {f"x{r}_{i}": f"m_mnli_{r}" for r in range(4) for i in range(2)})
    alone, result = (partial_correlations(t, within=within) for t in (table, twice))
    numbers = ["r", "low", "high", "p_val", "n_runs", "n_units", "n_steps"]
    pd.testing.assert_frame_equal(alone.table[numbers], result.table[numbers])
    assert result.table["p_val"].isna().all()  # 4 runs, not 12
    said = "8 runs have the scores of another run at every step (x0_0 of m_mnli_0, x0_1 of m_mnli_0, x1_0 of m_mnli_1"
    assert all(any(text.startswith(said) for text in caveats) for caveats in result.table["caveats"])
    assert verdicts(result)[0].descriptive


def test_changes_count_copies_once():
    table = simulated(runs=4)
    alone, twice = changes(table), changes(copied(table, {"x": "m_mnli_0", "y": "m_mnli_1"}))
    numbers = ["change", "low", "high", "n_runs", "n_units"]
    pd.testing.assert_frame_equal(alone[numbers], twice[numbers])
    assert all("2 runs have the scores of another run at every step" in " ".join(c) for c in twice["caveats"])


def test_rounding_and_an_early_end_do_not_hide_a_copy():
    table = simulated(runs=3)
    twice = copied(table, {"x": "m_mnli_1", "y": "m_mnli_2"})
    twice["value"] += np.where(twice["run"] == "x", 1e-15, 0.0)
    twice = twice[(twice["run"] != "y") | (twice["step"] < 4)]
    assert found(twice) == {"x": "m_mnli_1", "y": "m_mnli_2"}
    assert found(twice[(twice["run"] != "y") | (twice["step"] < 1)]) == {"x": "m_mnli_1"}  # the untrained model
    assert partial_correlations(twice).table["n_steps"].eq(30).all()


def test_one_other_score_is_no_copy():
    twice = copied(simulated(runs=3), {"x": "m_mnli_1"})
    last = (twice["run"] == "x") & (twice["step"] == 9) & (twice["test_set"] == "rte")
    assert found(twice.assign(value=twice["value"] + np.where(last, 1e-2, 0.0))) == {}
    assert found(twice[~last]) == {}


def test_single_checkpoints_are_copies_where_their_scores_are_fine_enough():
    table = simulated(runs=8, steps=1, n=10_000)
    table["value"] = table["value"].round(4)
    twice = copied(table, {"x": "m_mnli_1"})
    assert found(twice) == {"x": "m_mnli_1"}
    assert found(twice[twice["test_set"].isin(["mnli", "hans"])].assign(n=50)) == {}


@pytest.mark.parametrize("steps", [1, 2])
def test_coarse_scores_that_agree_are_no_copies(steps):
    """Twenty examples per set, three sets: independent runs agree in some tables."""
    flagged = agreeing = 0
    for seed in range(60):
        draw = np.random.default_rng(seed)
        table = simulated(runs=30, steps=steps, seed=seed, sets=("mnli", "hans", "paws"), n=20)
        shared = (table["step"] == 0) & (steps > 1)
        table["value"] = np.where(shared, 0.5, draw.binomial(20, table["value"].clip(0, 1)) / 20)
        cells = table.pivot_table(index="run", columns=["step", "test_set"], values="value")
        agreeing += int(cells.duplicated().any())
        flagged += bool(found(table))
    assert agreeing > 5
    assert flagged == 0


def test_coarse_and_saturated_scores_are_no_copies():
    """Half the models near the ceiling, where a hundred examples give few different scores."""
    for seed in range(5):
        draw = np.random.default_rng(seed)
        rows = [
            (f"m{run:03d}", 0, name, value, 100)
            for run in range(100)
            for name, value in zip(
                ("id", "a", "b", "c"),
                draw.binomial(100, 0.98 if run % 2 else draw.uniform(0.2, 0.7), 4) / 100,
                strict=True,
            )
        ]
        assert copied_runs(pd.DataFrame(rows, columns=["run", "step", "test_set", "value", "n"])) == {}


def test_runs_that_jump_from_chance_to_perfect_are_no_copies():
    draw, rows = np.random.default_rng(1), []
    for run in range(12):
        jump = draw.integers(1, 6)
        rows += [
            (f"r{run:02d}", step, name, 0.5 if step < jump + i % 2 else 1.0, 1000)
            for step in range(6)
            for i, name in enumerate(("a", "b", "id"))
        ]
    assert copied_runs(pd.DataFrame(rows, columns=["run", "step", "test_set", "value", "n"])) == {}


@pytest.mark.parametrize("n", [997, 3000])
def test_honest_scores_are_shares_however_they_were_rounded(n: int) -> None:
    draw = np.random.default_rng(n)
    for level in (0.05, 0.7):
        exact = draw.binomial(n, level, size=200) / n
        half = exact.astype(np.float16).astype(float)
        ways = [exact, half, half.round(4), (100 * exact).astype(np.float16).astype(float) / 100]
        ways += [exact.round(d) for d in range(2, 9)] + [np.array([float(f"{v:.{g}g}") for v in exact]) for g in (3, 6)]
        ways += [np.concatenate([exact[:100].round(2), exact[100:].round(4)])]
        assert not [k for k, values in enumerate(ways) if no_shares(values, np.full(200, float(n)))]
    assert no_shares(draw.binomial(170, 0.6, size=200) / 170, np.full(200, 200.0))


@pytest.mark.parametrize(("steps", "copies"), [(4, {}), (8, {"x": "m_mnli_1"})])
def test_of_many_steps_early_and_late_scores_count_apart(steps: int, copies: dict[str, str]) -> None:
    """Scores of twenty examples on three sets, at four points after the first: not enough for one of many tables."""
    draw = np.random.default_rng(5)
    table = simulated(runs=3, steps=steps, sets=("mnli", "hans", "paws"), n=20)
    coarse = draw.binomial(20, draw.uniform(0.2, 0.9, len(table))) / 20
    assert found(copied(table.assign(value=coarse), {"x": "m_mnli_1"})) == copies


def test_a_common_start_and_a_common_end_are_no_copy() -> None:
    """Two runs of one model, beside runs of others; all end at perfect scores, so only their start tells them apart."""
    draw, rows = np.random.default_rng(6), []
    starts = {name: draw.uniform(0.3, 0.7, 4) for name in "abcd"}
    for run, start in {**starts, "twin": starts["a"]}.items():
        for step, scores in enumerate((start, np.ones(4))):
            rows += [(run, step, f"s{k}", value, np.nan) for k, value in enumerate(scores)]
    table = pd.DataFrame(rows, columns=["run", "step", "test_set", "value", "n"])
    assert copied_runs(table) == {}
    assert copied_runs(table[table["step"] == 0]) == {"twin": "a"}  # a point by itself is no start
