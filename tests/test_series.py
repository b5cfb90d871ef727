"""Groups, units and gaps."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import oodles as oo
from oodles.errors import ConfigError, DataError
from oodles.stats.longtable import check_table
from oodles.stats.series import (
    BY,
    group_series,
    natural_unit,
    scale_of,
    scored_anew,
    settle_by,
    shared_points,
    shared_runs,
)


def study(runs=4, steps=3, **changes):
    rows = [
        {
            "run": f"m_{train}_{r}",
            "model": "m",
            "train_set": train,
            "seed": r // 2,
            "step": step,
            "test_set": name,
            "role": "in_domain" if name == train else "ood",
            "value": 0.5 + 0.01 * step + 0.001 * r,
            "n": 1000,
        }
        for train in ("mnli", "snli")
        for r in range(runs)
        for step in range(steps)
        for name in ("mnli", "snli", "hans")
    ]
    return check_table(pd.DataFrame(rows).assign(**changes))[0]


def series_of(table, by=("model", "train_set"), unit="run"):
    return list(group_series(table, by=by, unit=unit, metric="accuracy"))


def test_groups_have_their_own_in_domain_set():
    first, second = series_of(study())
    assert (first.in_domain, first.test_sets) == (("mnli",), ("hans", "snli"))
    assert (second.in_domain, second.test_sets) == (("snli",), ("hans", "mnli"))
    assert first.scores.shape == (12, 2)
    assert first.group == {"model": "m", "train_set": "mnli"}


def test_runs_of_different_train_sets_pool_their_own_in_domain_scores():
    (pooled,) = series_of(study(), by=("model",))
    assert pooled.in_domain == ("mnli/snli",)
    assert pooled.covariates.shape == (24, 1)
    assert not pooled.complete


def test_units_hold_whole_runs():
    first, _ = series_of(study(), unit="seed")
    assert first.unit_names == ("0", "1")
    assert np.bincount(first.units).tolist() == [6, 6]
    left = first.at(first.runs != 0)
    assert left.run_names == ("m_mnli_1", "m_mnli_2", "m_mnli_3")
    assert left.units.max() == 1


def test_points_without_in_domain_score_are_left_out_and_counted():
    table = study()
    table = table[~((table["role"] == "in_domain") & (table["step"] == 2) & (table["run"] == "m_mnli_0"))]
    first, _ = series_of(table)
    assert len(first.scores) == 11
    assert first.caveats == ("in-domain score missing at 1 of 12 points: those were left out",)


def test_an_n_of_which_scores_are_no_shares_is_named():
    """Of 100 examples .503 cannot be right; of 1000 it can, also in per cent, rounded or in half precision."""
    shares, percent, wrong = study(), study(), study()
    percent["value"] *= 100
    wrong.loc[wrong["test_set"] == "hans", "n"] = 100
    wrong.loc[wrong["test_set"] == "snli", "n"] = 300
    for table in (shares, percent, shares.assign(value=shares["value"].astype(np.float16).astype(float))):
        assert all(series.caveats == () and (series.sizes == 1000).all() for series in series_of(table))
    for table in (wrong, wrong.assign(value=100 * wrong["value"])):
        first, second = series_of(table)
        assert first.caveats == (
            "hans (n = 100), snli (n = 300): scores are no multiples of 1/n, so n is wrong or they are no means of "
            "right and wrong; what is said of their noise is rough",
        )
        assert second.caveats[0].startswith("snli (n = 300), hans (n = 100)")  # snli is in-domain there
        assert (second.covariate_sizes == 300).all()  # and bounds its noise all the same
    (f1,) = group_series(wrong.assign(metric="f1"), by=(), unit="run", metric="f1")
    assert f1.caveats == ()  # of which nobody said that it is a share


def test_bad_choices_are_one_line():
    table = study()
    with pytest.raises(ConfigError, match="--by modle: no such column; did you mean 'model'"):
        settle_by(table, ("modle",))
    with pytest.raises(ConfigError, match="groups are made of whole runs"):
        settle_by(table, ("test_set",))
    with pytest.raises(ConfigError, match="--unit sede"):
        series_of(table, unit="sede")
    with pytest.raises(ConfigError, match="metric 'acuracy' is not in the table; did you mean 'accuracy'"):
        list(group_series(table, by=(), unit="run", metric="acuracy"))
    with pytest.raises(ConfigError, match="--unit step: units are made of whole runs"):
        series_of(table, unit="step")
    with pytest.raises(DataError, match="has no seed"):
        series_of(table.assign(seed=None), unit="seed")


def test_absent_default_columns_are_not_grouped_by():
    table = study().assign(model=None)
    by, caveats = settle_by(table, ("model", "train_set"))
    assert by == ("train_set",)
    assert caveats == ("no model in the table: grouped by train_set",)


def paths(**runs):
    """One in-domain and up to six OOD scores per step of each run; None where there is no score."""
    rows = [
        (run, step, name, value)
        for run, steps in runs.items()
        for step, scores in enumerate(steps)
        for name, value in zip(("mnli", "hans", "paws", "rte", "wnli", "anli", "scitail"), scores, strict=False)
        if value is not None
    ]
    table = pd.DataFrame(rows, columns=["run", "step", "test_set", "value"])
    (series,) = series_of(check_table(table, in_domain="mnli")[0], by=())
    return series


def test_the_untrained_model_is_shared_whoever_starts_from_it():
    small, large = (0.4, 0.5, 0.3), (0.6, 0.7, 0.5)
    series = paths(
        a=[small, (0.5, 0.5, 0.4)],
        b=[small, (0.5, 0.6, 0.4)],
        c=[large, (0.7, 0.5, 0.4)],
        d=[large, (0.7, 0.5, 0.3)],
        e=[(0.4, 0.5, 0.31), (0.5, 0.5, 0.5)],  # one score is another
    )
    assert shared_points(series).tolist() == [True, False] * 4 + [False, False]


def test_rounding_does_not_hide_a_shared_start():
    series = paths(
        a=[(0.4, 0.5, 0.1 + 0.2), (0.5, 0.5, 0.4)],
        b=[(0.4 + 1e-15, 0.5 - 1e-15, 0.3), (0.5, 0.6, 0.4)],
    )
    assert shared_points(series).tolist() == [True, False] * 2


def test_a_step_that_trains_nothing_is_shared_too_and_a_later_coincidence_is_not():
    start, later = (0.41237, 0.52514, 0.31868), (0.70211, 0.51387, 0.41112)  # too fine to agree by chance
    series = paths(
        a=[start, start, (0.61318, 0.51729, 0.42336), later],
        b=[start, start, (0.52561, 0.63147, 0.44492), later],
    )
    assert shared_points(series).tolist() == [True, True, False, False] * 2


def test_copies_and_single_checkpoints_are_not_a_shared_start():
    assert not shared_points(paths(a=[(0.4, 0.5, 0.3), (0.5, 0.6, 0.4)], b=[(0.4, 0.5, 0.3), (0.5, 0.6, 0.4)])).any()
    assert not shared_points(paths(a=[(0.4, 0.5, 0.3)], b=[(0.4, 0.5, 0.3)], c=[(0.5, 0.5, 0.3)])).any()


def test_the_untrained_model_as_a_run_of_its_own_shares_the_start():
    """It is the one observation that the runs share; as a further unit it made four runs five, which are tested."""
    trained = {f"r{k}": [(0.4, 0.5, 0.3), (0.5 + k / 20, 0.6, 0.4), (0.6, 0.7 + k / 20, 0.4)] for k in range(4)}
    untrained, other = [(0.4, 0.5, 0.3)], [(0.4, 0.5, 0.31)]
    series = paths(**trained, untrained=untrained, untrained_again=untrained, z_other=other)
    assert shared_points(series).tolist() == [True, False, False] * 4 + [True, True, False]


def test_a_score_that_one_run_lacks_does_not_hide_a_shared_start():
    series = paths(
        a=[(0.4, 0.5, None), (0.5, 0.5, None)],
        b=[(0.4, 0.5, 0.3), (0.5, 0.6, 0.4)],
        c=[(0.4, 0.6, 0.3), (0.5, 0.5, 0.4)],
    )
    assert shared_points(series).tolist() == [True, False, True, False, False, False]


def test_runs_that_agree_by_chance_before_they_learn_are_not_a_shared_start():
    """At step 4 all but a few examples get one answer, so that two of nine agree; at step 8 scores are far apart."""
    draw = np.random.default_rng(3)
    early = [count / 128 for count in (67, 64, 56, 64, 51, 65, 63)]
    rows = {}
    for run in range(9):
        barely = [value + (draw.integers(3) / 128 if place < 2 else 0) for place, value in enumerate(early)]
        apart = [round(64 + 26 * draw.random()) / 128 for _ in early]
        rows[f"r{run}"] = [tuple(early), tuple(barely), tuple(apart)]
    assert len({path[1] for path in rows.values()}) < 9  # some agree
    assert shared_points(paths(**rows)).tolist() == [True, False, False] * 9


def test_scores_that_hardly_move_yet_are_not_a_shared_start():
    """Of a pair of sets, r does not depend on which other sets are named (PAWS has two values at step 4)."""
    two = oo.analyse("smollm2-nli", test_sets=["hans", "paws"]).result.table
    every = oo.analyse("smollm2-nli").result.table
    every = every[(every["a"] == "hans") & (every["b"] == "paws")]
    assert two["r"].tolist() == pytest.approx(every["r"].tolist(), abs=1e-12)
    assert all("step 0 is the same in 9 runs" in caveats[0] for caveats in two["caveats"])


def with_a_sampled_set(sampled: bool, seed: int = 1) -> pd.DataFrame:
    """Nine runs from one untrained model; one set is scored by sampled answers, so it differs at step 0."""
    draw, rows = np.random.default_rng(seed), []
    for run in range(9):
        common = 0.02 * draw.normal(size=7)
        for step in range(7):
            z = 0.62 if step == 0 else 0.45 + 0.06 * step + 0.01 * draw.normal()
            rows.append((f"r{run}", step, "home", round(z, 4), 5000))
            for name, level in zip("abc", (0.08, -0.08, 0.08), strict=True):
                off = level if step == 0 else common[step] + 0.015 * draw.normal()
                rows.append((f"r{run}", step, name, round(0.2 + 0.6 * z + off, 3), 1000))
    table = pd.DataFrame(rows, columns=["run", "step", "test_set", "value", "n"])
    other = table[table["test_set"] == "a"].assign(test_set="d", value=lambda t: draw.integers(400, 600, len(t)) / 1000)
    return pd.concat([table, other]) if sampled else table


def test_a_set_that_is_sampled_anew_does_not_hide_a_shared_start() -> None:
    """Before, a with b had +.55 without it and -.24 beside it."""
    alone, beside = (oo.analyse(with_a_sampled_set(one), in_domain="home").result.table for one in (False, True))
    both = alone.merge(beside, on=["a", "b", "within"], suffixes=("", "_beside"))
    assert len(both) == 6
    np.testing.assert_allclose(both["r"], both["r_beside"], atol=1e-9)
    assert (both["n_steps_beside"] == 54).all()
    assert (
        "step 0 is the same in 9 runs (but for d, scored anew in each): 9 of 63 points left out"
        in beside["caveats"].iloc[0][0]
    )


def test_runs_that_differ_on_most_sets_at_step_0_share_no_start() -> None:
    table = with_a_sampled_set(True)
    own = table["run"].map(lambda run: int(run[1:]) / 1000)
    apart = table["step"].eq(0) & table["test_set"].isin(["a", "b"])
    found = oo.analyse(table.assign(value=table["value"] + own.where(apart, 0.0)), in_domain="home").result.table
    assert (found["n_steps"] == 63).all()


def test_the_model_is_the_unit_only_where_models_have_several_runs():
    runs = [f"r{k}" for k in range(6)]
    assert natural_unit(pd.DataFrame({"run": runs, "model": runs})) == ("run", ())  # a model each
    assert natural_unit(pd.DataFrame({"run": runs, "model": "m"})) == ("run", ())
    unit, (said,) = natural_unit(pd.DataFrame({"run": runs, "model": ["a", "a", "b", "b", "c", "c"]}))
    assert unit == "model"
    assert said.startswith("6 runs of 3 models: the model is the unit")


@pytest.mark.parametrize(("runs", "grouped_by"), [(4, ("train_set",)), (5, ("model", "train_set"))])
def test_models_of_one_checkpoint_each_are_groups_where_they_have_runs_enough_for_a_test(runs, grouped_by):
    table = study(runs=runs, steps=1)
    table = table[table["train_set"] == "mnli"]
    both = pd.concat([table, table.assign(model="other", run=table["run"].str.replace("m_", "other_"))])
    assert settle_by(both, BY)[0] == grouped_by


def test_one_run_by_itself_is_not_told_that_all_could_be_taken_together():
    table = study()
    alone = table[table["run"] == "m_mnli_0"]
    assert settle_by(alone, BY)[1] == ()
    two = table[table["run"].isin(["m_mnli_0", "m_snli_0"])]
    assert settle_by(two, BY)[1] == (
        "every group has one run (by model, train_set): --by none takes all runs together",
    )


def test_a_few_scores_above_one_are_no_per_cent():
    assert np.isnan(scale_of(np.array([5.0, 12.0, 20.0]), "accuracy"))
    assert scale_of(np.array([5.0, 12.0, 20.1]), "accuracy") == 100.0


def test_the_start_that_most_runs_share_is_counted_first():
    small, large = (0.4, 0.5, 0.3), (0.6, 0.7, 0.5)
    runs = {name: [small, (0.5 + k / 20, 0.5, 0.4)] for k, name in enumerate("ab")}
    runs |= {name: [large, (0.7 + k / 20, 0.5, 0.4)] for k, name in enumerate("cde")}
    series = paths(**runs)
    assert shared_runs(series, shared_points(series)) == [3, 2]


def test_coarse_scores_that_agree_at_step_0_by_chance_are_no_shared_start() -> None:
    """Models of their own, four examples a set: all but one set agree before training, which happens."""
    draw = np.random.default_rng(3)
    rows = [
        (f"r{run}", step, name, (0.5 if step == 0 and name != "c" else draw.integers(0, 5) / 4), 4)
        for run in range(3)
        for step in range(5)
        for name in ("home", "a", "b", "c")
    ]
    table = pd.DataFrame(rows, columns=["run", "step", "test_set", "value", "n"])
    (series,) = group_series(check_table(table, in_domain="home")[0], by=(), unit="run", metric="accuracy")
    assert not scored_anew(series).any()
    assert not shared_points(series).any()
