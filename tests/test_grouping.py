"""Columns that make groups are there, and none has the name of a column of the results."""

from __future__ import annotations

import pytest

import oodles as oo
from conftest import oodles
from oodles.errors import ConfigError
from oodles.stats.changes import changes
from oodles.stats.correlate import partial_correlations
from oodles.stats.grouping import RESULTS, chosen_groups
from oodles.stats.longtable import check_table
from oodles.stats.questions import OWN, QUESTIONS
from test_correlate import simulated

CONTRACT = {"run", "step", "test_set", "value", "role", "n"}  # what a table has itself
ALSO = "give that of the table another name, such as"


def by_halves(name):
    """Runs of two groups, which a column of this name tells apart."""
    table = simulated(runs=6)
    half = {run: "xy"[place % 2] for place, run in enumerate(table["run"].unique())}
    return table.assign(**{name: table["run"].map(half)})


def test_every_column_of_the_results_is_refused_as_a_group():
    found = oo.analyse(by_halves("half"), by="half")
    tables = (found.result.table, found.result.fits, found.robustness, found.changes)
    columns = {str(column) for table in tables for column in table.columns} - CONTRACT - {"half"}
    assert columns <= RESULTS, columns - RESULTS
    for name in ("method", "within", "r", "clear", "caveats", "n_runs", "first"):
        for question in (partial_correlations, changes):
            with pytest.raises(ConfigError, match=f"^--by {name}: the results have a column of this name; {ALSO}"):
                question(by_halves(name), by=(name,))


@pytest.mark.parametrize("asked", [name for name in QUESTIONS if name not in ("averages", "skill")])
def test_columns_of_further_answers_are_refused_with_their_question(asked):
    across = {"across": ("half",)} if asked == "across" else {asked: True}
    half = by_halves("half").assign(kind="a")
    found = oo.analyse(half, by=("half", "kind"), **across)
    (answer,) = found.answers.values()
    own = {str(c) for table in answer.tables.values() for c in table.columns if "half" in table.columns}
    assert own - {"half", "kind"} <= {*OWN[asked], *RESULTS, *CONTRACT}
    name = next(name for name in OWN[asked] if name not in {*RESULTS, *CONTRACT})
    assert oo.analyse(by_halves(name), by=name).verdicts  # where it is not asked the name is free
    with pytest.raises(ConfigError, match=f"^--by {name}: the results have a column of this name"):
        oo.analyse(by_halves(name), by=name, **{**across, **({"across": (name,)} if asked == "across" else {})})


@pytest.mark.parametrize("absent", ["seed", "shots", "model"])
def test_an_absent_column_is_refused_where_it_is_asked_for(absent):
    table, _ = check_table(simulated(runs=3).drop(columns=["seed", "shots", "model"], errors="ignore"))
    with pytest.raises(ConfigError, match=f"^--by {absent}: no such column, or an empty one; known: run, train_set$"):
        chosen_groups(table, (absent,))
    with pytest.raises(ConfigError, match=f"^--by {absent}: no such column"):
        chosen_groups(table, ("run", absent))
    assert chosen_groups(table, ("model", "train_set"))[0] == ("train_set",)  # the default
    assert "train_set" in chosen_groups(table, ("train_set", "model"))[0]  # in any order
    assert chosen_groups(table, ()) == ((), ())


def test_the_command_line_refuses_them_in_one_line(tmp_path):
    by_halves("method").drop(columns="seed").to_csv(tmp_path / "scores.csv", index=False)
    for name, message in (("method", "the results have a column of this name"), ("seed", "no such column")):
        done = oodles("analyse", tmp_path / "scores.csv", "--by", name)
        assert done.returncode == 2
        assert done.stderr.startswith(f"ConfigError: --by {name}: {message}")
        assert done.stderr.count("\n") == 1
