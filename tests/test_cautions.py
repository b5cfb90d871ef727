"""What the table warns of."""

from __future__ import annotations

import pandas as pd
import pytest

from oodles.stats.cautions import Cautions, slice_parents
from oodles.stats.longtable import check_table
from oodles.stats.series import group_series
from test_correlate import simulated


def test_slices_by_name_or_column_and_only_beside_their_set():
    names = pd.DataFrame({"test_set": ["hans", "hans/a", "hans:b", "hans[c]", "hansel", "paws/a"]})
    assert slice_parents(names) == {"hans/a": "hans", "hans:b": "hans", "hans[c]": "hans"}
    told = pd.DataFrame({"test_set": ["hans", "lexical", "far"], "slice_of": [None, "hans", "absent"]})
    assert slice_parents(told) == {"lexical": "hans"}


def test_chance_comes_from_the_argument_the_column_or_the_answers_of_the_set():
    table, _ = check_table(simulated(runs=2))
    assert Cautions.read(table, metric="accuracy", chance=0.2).chance == {"mnli": 0.2}
    assert Cautions.read(table.assign(chance=1 / 3), metric="accuracy", chance=None).chance == {"mnli": 1 / 3}
    shares = [table.assign(metric=f"share:{answer}", value=0.25) for answer in "abcd"]
    answers = Cautions.read(pd.concat([table, *shares]), metric="accuracy", chance=None)
    assert answers.chance == {"mnli": 0.25}
    assert answers.caveats == ()
    others = pd.concat([table, *(one[(one["test_set"] != "mnli") | (one["metric"] < "share:d")] for one in shares)])
    assert Cautions.read(others, metric="accuracy", chance=None).chance == {"mnli": pytest.approx(1 / 3)}


def test_unknown_chance_is_said_and_nothing_is_measured_against_it():
    table, _ = check_table(simulated(runs=2).assign(value=lambda t: t["value"] - 0.4))  # far below one half
    unknown = Cautions.read(table, metric="accuracy", chance=None)
    assert unknown.chance == {}
    assert unknown.caveats == (
        "chance is not known for mnli (column chance, or --chance): whether a run rose above it was not checked",
    )
    (series,) = group_series(table, by=("model",), unit="run", metric="accuracy")
    assert unknown.of_group(series) == ()
    told = Cautions.read(table, metric="accuracy", chance=0.5)
    assert told.of_group(series) == ("in-domain never rose above chance in 2 of 2 runs",)
    assert Cautions.read(table, metric="accuracy", chance=0.1).of_group(series) == ()


def test_values_outside_0_to_1_are_counted():
    table, _ = check_table(simulated(runs=2).assign(chance=0.5))
    for count, said in ((1, "1 value of accuracy is outside 0..1"), (3, "3 values of accuracy are outside 0..1")):
        odd = table.assign(value=table["value"] + 2.0 * (table.index < count))
        (caveat,) = Cautions.read(odd, metric="accuracy", chance=None).caveats
        assert caveat.startswith(said)


def test_slices_of_the_in_domain_set_are_said():
    table, _ = check_table(simulated(runs=2).replace({"hans": "mnli/fiction"}))
    (series,) = group_series(table, by=("model",), unit="run", metric="accuracy")
    beware = Cautions.read(table, metric="accuracy", chance=None)
    assert beware.of_set(series, "mnli/fiction") == ("mnli/fiction: shares examples with the in-domain set mnli",)


def test_runs_with_their_own_in_domain_sets_are_compared_with_chance_where_it_is_one():
    table, _ = check_table(simulated(runs=2, sets=("mnli", "hans", "paws", "snli")))
    swapped = table["run"].eq("m_mnli_1") & table["test_set"].isin(["mnli", "snli"])
    table["role"] = table["role"].where(~swapped, table["test_set"].map({"mnli": "ood", "snli": "in_domain"}))
    (series,) = group_series(table, by=("model",), unit="run", metric="accuracy")
    assert series.in_domain == ("mnli/snli",)
    for levels, said in (({"mnli": 0.99, "snli": 0.99}, 1), ({"mnli": 0.99, "snli": 0.5}, 0), ({"mnli": 0.99}, 0)):
        told = table.assign(chance=table["test_set"].map(levels))
        assert len(Cautions.read(told, metric="accuracy", chance=None).of_group(series)) == said
