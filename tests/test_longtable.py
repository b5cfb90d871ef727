"""Tables from anyone: defaults, roles, duplicates, and one line for what cannot be used."""

from __future__ import annotations

import csv
import datetime as dt
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from conftest import oodles
from oodles.errors import ConfigError, DataError, OodlesError
from oodles.imports.tables import read_table
from oodles.stats.analysis import analyse_table, write_results
from oodles.stats.longtable import EXPECTED, REQUIRED, check_table, pick_sets, with_sizes


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


def varying(chance=(0.5, 0.33), run="r1"):
    """An in-domain set and its chance at two steps."""
    table = pd.DataFrame({"run": run, "step": [0, 1], "test_set": "mnli", "value": [0.5, 0.6], "role": "in_domain"})
    return table.assign(chance=list(chance))


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
        ("run,step,test_set,value\na,0.5,x,0.5\n", "0 or more; of epochs write epoch times the steps per epoch"),
        ("run,step,test_set,value,n\na,0,x,0.5,1e308\n", "row 1: n is 1e+308; expected a number of examples, 1e+12"),
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
    (tmp_path / "a.docx").write_text("x")
    with pytest.raises(DataError, match=r"cannot read '.docx'; expected .csv, .tsv"):
        read_table(tmp_path / "a.docx")
    (tmp_path / "a.parquet").write_text("not parquet")
    with pytest.raises(DataError, match="cannot be read as parquet") as caught:
        read_table(tmp_path / "a.parquet")
    assert "\n" not in str(caught.value)


def test_equal_duplicates_are_dropped_and_conflicts_named():
    table, caveats = check_table(pd.concat([small(), small()[:2]]))
    assert len(table) == 4
    assert caveats == ("2 repeated scores were dropped",)
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
        (small(n=[10, 10, 10.5, 10]), None, DataError, "table row 3: n is 10.5; expected how many examples"),
        (small(chance=1.0), None, DataError, "chance of the in-domain set 'mnli' is 1; expected the score of guessing"),
        (varying(), None, DataError, "chance of test set 'mnli' is 0.33 in one row and 0.5 in another"),
        (varying(run=["r1", "r2"]), None, DataError, "chance of test set 'mnli' is 0.33 in one row and 0.5 in another"),
    ],
)
def test_bad_tables_are_one_line(table, in_domain, error, said):
    with pytest.raises(error) as caught:
        check_table(table, in_domain=in_domain)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_chance_may_differ_a_little_over_samples_and_be_1_on_a_slice_of_one_label():
    check_table(varying(chance=[0.5, 0.52], run=["r1", "r2"]))
    check_table(small(chance=small()["role"].map({"in_domain": 0.5, "ood": 1.0})))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"role": "ood"}, "no test set is in-domain"),
        ({"role": "odd"}, "role 'odd' is not known"),
        ({"value": np.nan}, "no row has a finite value"),
        ({"step": [0, 0, 1, 1], "run": "r1", "test_set": "a", "role": ["ood", "in_domain"] * 2}, "rows 1, 2: run 'r1'"),
        ({"chance": 1.0}, "chance of the in-domain set"),
    ],
)
def test_messages_name_the_file_and_results_do_not(tmp_path, change, said):
    path = tmp_path / "scores.csv"
    small(**change).to_csv(path, index=False)
    with pytest.raises(DataError) as caught:
        check_table(read_table(path))
    assert str(caught.value).startswith(str(path))
    assert said in str(caught.value)
    small().to_csv(path, index=False)
    assert check_table(read_table(path))[0].attrs == {}


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


ROWS = [("r0", s, t, 0.5 + 0.01 * s, r) for s in range(4) for t, r in (("in", "in_domain"), ("a", "ood"), ("b", "ood"))]
ODD_COLUMNS = {
    "list": pa.array([[1, 2]] * 12),
    "struct": pa.array([{"a": 1}] * 12),
    "bytes": pa.array([b"x"] * 12),
    "map": pa.array([[("k", 1)]] * 12, type=pa.map_(pa.string(), pa.int64())),
    "date": pa.array([dt.date(2020, 1, 1)] * 12),
    "timestamp": pa.array([dt.datetime(2020, 1, 1)] * 12),
    "duration": pa.array([dt.timedelta(1)] * 12),
    "time": pa.array([dt.time(1)] * 12),
    "decimal": pa.array([Decimal("0.5")] * 12),
    "bool": pa.array([True] * 12),
    "dictionary": pa.array(["x"] * 12).dictionary_encode(),
    "null": pa.nulls(12),
}


@pytest.mark.parametrize("place", ["run", "step", "test_set", "value", "n", "metric", "model", "chance", "further"])
@pytest.mark.parametrize("kind", ODD_COLUMNS)
def test_odd_columns_are_read_or_refused_in_one_line(kind: str, place: str, tmp_path: Path) -> None:
    """Parquet can hold anything in a column; a table of scores cannot."""
    table = pa.table(pd.DataFrame(ROWS, columns=["run", "step", "test_set", "value", "role"]))
    names = [name for name in table.column_names if name != place]
    table = table.select(names).append_column(place, ODD_COLUMNS[kind])
    pq.write_table(table.replace_schema_metadata(None), tmp_path / "t.parquet")
    done = oodles("analyse", tmp_path / "t.parquet", "--out", tmp_path / "results")
    assert "Traceback" not in done.stderr, done.stderr
    if done.returncode:
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
    if kind in ("list", "struct", "bytes", "map"):
        assert done.returncode == 2
        assert f"column '{place}' holds " in done.stderr
    if kind in ("date", "timestamp", "duration", "time") and place in ("step", "value", "n"):
        assert done.returncode == 2  # never read as a number of nanoseconds


def test_decimals_are_numbers(tmp_path: Path) -> None:
    table = pd.DataFrame(ROWS, columns=["run", "step", "test_set", "value", "role"])
    exact = table.assign(value=[Decimal(str(v)) for v in table["value"]])
    pq.write_table(pa.table(exact), tmp_path / "t.parquet")
    assert read_table(tmp_path / "t.parquet")["value"].tolist() == table["value"].round(2).tolist()


def test_half_a_surrogate_pair_is_no_name() -> None:
    table = pd.DataFrame(ROWS, columns=["run", "step", "test_set", "value", "role"]).astype({"run": object})
    table.loc[0, "run"] = "\ud800"
    with pytest.raises(DataError, match=r"column 'run' holds '.ud800', half a surrogate pair"):
        check_table(table)


def test_names_that_are_formulas_are_harmless_in_csv_and_read_back(tmp_path: Path) -> None:
    names = ["=1+2", "+a", "-b", "@c", "'=d", "-0.5", "plain", "'quoted'", "a=b"]
    rows = [(n, s, t, 0.5 + 0.01 * s) for n in names for s in (0, 1) for t in ("in", "=HYPERLINK(1)", "-x")]
    table = pd.DataFrame(rows, columns=["run", "step", "test_set", "value"]).assign(value=lambda t: -t["value"])
    write_results(analyse_table(table, in_domain="in"), tmp_path)
    for file in tmp_path.glob("*.csv"):
        cells = [cell for line in csv.reader(file.open(newline="")) for cell in line]
        armed = [c for c in cells if c[:1] in ("=", "+", "-", "@") and not is_number(c)]
        assert not armed, (file.name, armed)
    again = read_table(tmp_path / "table.csv")
    assert set(again["run"]) == set(names)
    assert set(again["test_set"]) == {"in", "=HYPERLINK(1)", "-x"}
    assert (again["value"] < 0).all()


def is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def test_a_message_lists_a_few_of_many() -> None:
    rows = [("r", 0, f"set{i}", 0.5) for i in range(500)]
    table = pd.DataFrame(rows, columns=["run", "step", "test_set", "value"])
    for call in (lambda: check_table(table), lambda: check_table(table, in_domain="x")):
        with pytest.raises(OodlesError, match="and 492 more") as told:
            call()
        assert len(str(told.value)) < 400
    wide = pd.DataFrame([range(500)], columns=[f"column{i}" for i in range(500)])
    with pytest.raises(DataError, match="and 492 more"):
        check_table(wide)


def test_a_text_that_is_not_utf8_is_one_line(tmp_path: Path) -> None:
    """Parquet does not look at the bytes of its texts."""
    names = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"a\xff")])
    columns = {"run": names, "step": [0], "test_set": ["a"], "value": [0.5]}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    with pytest.raises(DataError, match=r"t\.parquet: a text is not UTF-8"):
        read_table(tmp_path / "t.parquet")


def test_numbers_of_examples_are_filled_in_where_a_table_has_none() -> None:
    assert with_sizes(small(), {"mnli": 500})["n"].tolist()[::2] == [500, 500]
    assert with_sizes(small(), {"mnli": 500})["n"].isna().tolist() == [False, True] * 2
    same = with_sizes(small(n=[500, 40, 500, 40]), {"mnli": 500})
    assert same["n"].tolist() == [500, 40, 500, 40]
    assert "n" not in with_sizes(small(), {})
    padded = small(test_set=["mnli ", "hans", "mnli", "hans"])
    assert with_sizes(padded, {"mnli": 500})["n"].tolist()[::2] == [500, 500]
    other = pd.concat([small(metric="accuracy"), small(metric="auc", n=90)], ignore_index=True)
    told = with_sizes(other, {"mnli": 500})
    assert told.loc[told["test_set"] == "mnli", "n"].tolist() == [500, 500, 90, 90]
    with pytest.raises(ConfigError, match="n of mnli is 500, but table has 90"):
        with_sizes(other, {"mnli": 500}, "auc")


@pytest.mark.parametrize(
    ("sizes", "told"),
    [
        ({"mnlj": 500}, r"no scores of test set 'mnlj'; choose another --n \(did you mean 'mnli'\?\)"),
        ({"mnli": 0}, "n of mnli is 0; expected its number of examples, such as 9815"),
        ({"mnli": 99.5}, r"n of mnli is 99\.5; expected its number"),
        ({"mnli": True}, "n of mnli is True; expected its number"),
        ({"mnli": "500"}, "n of mnli is '500'; expected its number"),
        ({"hans": 41}, "n of hans is 41, but table has 40 for it; leave n out"),
    ],
)
def test_a_number_of_examples_that_cannot_be_is_refused(sizes, told) -> None:
    with pytest.raises(ConfigError, match=told):
        with_sizes(small(n=[np.nan, 40, np.nan, 40]), sizes)
    with pytest.raises(DataError, match="no column 'test_set'"):
        analyse_table(small().drop(columns="test_set"), n=sizes)


@pytest.mark.parametrize("column", ["value", "step", "n"])
def test_a_whole_number_beyond_any_float_is_named(column: str) -> None:
    given = small(n=[1, 2, 3, 4]).astype({column: object})
    given.loc[1, column] = 10**400
    with pytest.raises(DataError, match=f"row 2: {column} is '1000"):
        check_table(given)


def test_sizes_of_sets_that_are_no_names_are_refused() -> None:
    given = small().astype({"test_set": object})
    given.at[1, "test_set"] = ["mnli"]
    with pytest.raises(DataError, match="row 2: column 'test_set' holds a list; expected text or numbers"):
        with_sizes(given, {"mnli": 9})


def test_columns_of_two_levels_are_refused() -> None:
    pivoted = small().pivot(index=["run", "step"], columns="test_set", values=["value"]).reset_index()
    with pytest.raises(DataError, match=r"columns have 2 levels, such as .*; flatten them, one column per test set"):
        check_table(pivoted)
