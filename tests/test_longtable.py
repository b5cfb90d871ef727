"""Tables from anyone: defaults, roles, duplicates, and one line for what cannot be used."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from oodles.errors import ConfigError, DataError
from oodles.longtable import EXPECTED, REQUIRED, check_table, pick_sets, read_table


def small(**changes):
    table = pd.DataFrame(
        {
            "run": ["r1", "r1", "r2", "r2"],
            "step": [0, 0, 0, 0],
            "test_set": ["mnli", "hans", "mnli", "hans"],
            "value": [0.5, 0.4, 0.6, 0.5],
            "role": ["in_domain", "ood", "in_domain", "ood"],
        }
    )
    return table.assign(**changes)


def test_defaults_are_filled_and_the_input_is_left_alone():
    given = small()
    table, caveats = check_table(given)
    assert set(REQUIRED) | set(EXPECTED) <= set(table.columns)
    assert (table["metric"] == "accuracy").all()
    assert caveats == ()
    assert list(given.columns) == ["run", "step", "test_set", "value", "role"]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_files_read_back(tmp_path, kind):
    path = tmp_path / f"scores.{kind}"
    table = small(run=["007", "007", "8", "8"], test_set=["null", "NA", "null", "NA"], shots=[32, 32, 64, 64])
    table.to_csv(path, index=False) if kind == "csv" else table.to_parquet(path)
    found = read_table(path)
    assert found["run"].tolist() == ["007", "007", "8", "8"]
    assert found["test_set"].tolist() == ["null", "NA", "null", "NA"]
    assert found["value"].tolist() == table["value"].tolist()
    assert found["shots"].tolist() == [32, 32, 64, 64]


def test_csv_gaps_become_missing_values(tmp_path):
    path = tmp_path / "scores.csv"
    path.write_text("run,step,test_set,value,n,model\na,0,mnli,0.5,100,\na,0,hans,,NaN,\na,1,hans,0.4,,\n")
    table, caveats = check_table(read_table(path), in_domain="mnli")
    assert len(table) == 2
    assert caveats == ("1 row was left out: no finite value",)
    assert np.isnan(table["n"].iloc[1])
    assert table["model"].isna().all()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("run,step,test_set\na,0,x\n", "no column 'value'; required: run, step, test_set, value; found: run"),
        ("run,step,test_set,value\n", "no rows"),
        ("", "cannot be read as csv"),
        ("run,step,test_set,value\na,0,x,high\n", "row 1: value is 'high'; expected a number"),
        ("run,step,test_set,value\na,0,x,0.5\na,late,x,0.5\n", "row 2: step is 'late'; expected a number"),
        ("run,step,test_set,value\na,,x,0.5\n", "row 1: step is missing"),
        ("run,step,test_set,value\na,-1,x,0.5\n", "row 1: step is -1; expected a whole number, 0 or more"),
        ("run,step,test_set,value\na,0,x,0.5\na,0.5,x,0.5\n", "row 2: step is 0.5; expected a whole number"),
        ("run,step,test_set,value,value\na,0,x,0.5,0.6\n", "column 'value' appears more than once; keep one"),
        ("run,step,test_set,value,n\na,0,x,0.5,0\n", "row 1: n is 0; expected how many examples"),
        ("run,step,test_set,value,n\na,0,x,0.5,9\na,1,x,0.5,-9\na,2,x,0.5,0\n", "rows 2, 3: n is -9"),
        ("run,step,test_set,value,chance\na,0,x,0.5,5\n", "row 1: chance is 5; expected the score of guessing"),
    ],
)
def test_bad_files_are_one_line(tmp_path, content, said):
    path = tmp_path / "scores.csv"
    path.write_text(content)
    with pytest.raises(DataError) as caught:
        read_table(path)
    assert said in str(caught.value)
    assert "scores.csv" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_and_strange_files_are_one_line(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        read_table(tmp_path / "absent.csv")
    (tmp_path / "a.xlsx").write_text("x")
    with pytest.raises(DataError, match=r"cannot read '.xlsx'; expected .csv or .parquet"):
        read_table(tmp_path / "a.xlsx")
    (tmp_path / "a.parquet").write_text("not parquet")
    with pytest.raises(DataError, match="cannot be read as parquet") as caught:
        read_table(tmp_path / "a.parquet")
    assert "\n" not in str(caught.value)


def test_equal_duplicates_are_dropped_and_conflicts_named():
    table, caveats = check_table(pd.concat([small(), small()[:2]]))
    assert len(table) == 4
    assert caveats == ("2 duplicated rows were dropped",)
    clash = small(value=[0.5, 0.4, 0.6, 0.5])
    with pytest.raises(
        DataError, match="rows 2, 5: run 'r1', step 0, test set 'hans', metric 'accuracy' has different"
    ):
        check_table(pd.concat([clash, clash[1:2].assign(value=0.9)]))


def test_roles_may_be_named_inferred_or_replaced():
    table, caveats = check_table(small().drop(columns="role"), in_domain="mnli")
    assert table.loc[table["test_set"] == "mnli", "role"].eq("in_domain").all()
    assert caveats == ()
    table, caveats = check_table(small(train_set="mnli").drop(columns="role"))
    assert table.loc[table["test_set"] == "mnli", "role"].eq("in_domain").all()
    assert "same name as the train set (mnli)" in caveats[0]
    _, caveats = check_table(small(), in_domain="hans")
    assert "roles in the table were replaced" in caveats[0]


@pytest.mark.parametrize(
    ("table", "in_domain", "error", "said"),
    [
        (small().drop(columns="role"), None, DataError, "no test set is in-domain; add a column 'role'"),
        (small(), "mnil", ConfigError, "did you mean 'mnli'?"),
        (small(role=["in_domain", "oood", "ood", "ood"]), None, DataError, "did you mean 'ood'?"),
        (small(run=["r1", None, "r1", "r1"]), None, DataError, "row 2: run is missing"),
        (small(value=[True, False, True, True]), None, DataError, "expected numbers"),
        (small(value=np.nan), None, DataError, "no row has a finite value"),
        (small(step=[0, np.inf, 0, 0]), None, DataError, "a step is infinite"),
        (small(n=[10, 10, 0, 10]), None, DataError, "table row 3: n is 0"),
        (small(chance=-0.5), None, DataError, "table rows 1, 2, 3, 4: chance is -0.5"),
    ],
)
def test_bad_tables_are_one_line(table, in_domain, error, said):
    with pytest.raises(error) as caught:
        check_table(table, in_domain=in_domain)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_set_with_two_roles_in_a_run_is_refused():
    table = pd.concat([small(), small(step=1, role=["ood", "ood", "in_domain", "ood"])])
    with pytest.raises(DataError, match="'mnli' is both in_domain and ood in run 'r1'"):
        check_table(table)


def test_a_set_may_be_in_domain_in_one_run_and_ood_in_another():
    table, _ = check_table(small(role=["in_domain", "ood", "ood", "in_domain"]))
    assert sorted(table["role"]) == ["in_domain", "in_domain", "ood", "ood"]


def test_a_column_that_looks_like_a_renamed_one_is_a_column(tmp_path):
    path = tmp_path / "scores.csv"
    path.write_text("run,step,test_set,value,value.1,,\na,0,x,0.5,0.6,,\n")
    assert read_table(path)["value"].tolist() == [0.5]


def test_a_row_without_a_value_may_have_no_examples():
    table, caveats = check_table(small(value=[0.5, 0.4, 0.6, np.nan], n=[9, 9, 9, 0]))
    assert (len(table), caveats) == (3, ("1 row was left out: no finite value",))


def test_picked_sets_come_with_the_in_domain_ones_whoever_names_them():
    plain = small().drop(columns="role")
    assert set(pick_sets(plain, ["hans"], ["mnli"])["test_set"]) == {"hans", "mnli"}
    assert set(pick_sets(small(), ["hans"])["test_set"]) == {"hans", "mnli"}
