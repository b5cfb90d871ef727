"""oo.analyse: what Python users and the command line call."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

import oodles as oo
from conftest import oodles
from oodles.errors import ConfigError


def long_table() -> pd.DataFrame:
    """Six runs of eight steps on an in-domain and three OOD sets."""
    rows = []
    for run in range(6):
        for step in range(8):
            level = 0.5 + 0.05 * step + 0.01 * run
            wobble = ((run * 7 + step * 5) % 11) / 100
            values = {"home": level, "a": level / 2 + wobble, "b": level / 3 + 2 * wobble, "c": 0.9 - wobble}
            rows += [
                {"run": f"r{run}", "step": step, "test_set": name, "value": value, "n": 200}
                | {"model": "m", "train_set": "home", "role": "in_domain" if name == "home" else "ood"}
                for name, value in values.items()
            ]
    return pd.DataFrame(rows)


def test_a_table_a_file_and_results_give_the_same(tmp_path: Path) -> None:
    table = long_table()
    table.to_csv(tmp_path / "t.csv", index=False)
    table.to_parquet(tmp_path / "t.parquet")
    analyses = [oo.analyse(source) for source in (table, tmp_path / "t.csv", str(tmp_path / "t.parquet"))]
    assert oodles("analyse", tmp_path / "t.csv", "--out", tmp_path / "results").returncode == 0
    analyses.append(oo.analyse(tmp_path / "results"))
    first = analyses[0].result.table
    assert len(first) == 6  # three pairs, pooled and within runs
    for analysis in analyses[1:]:
        pd.testing.assert_frame_equal(analysis.result.table, first)
        assert analysis.verdicts == analyses[0].verdicts


def test_options_and_chosen_sets_are_those_of_the_command_line(tmp_path: Path) -> None:
    table = long_table()
    analysis = oo.analyse(table, method="linear", within=["run"], test_sets=["a", "c"])
    assert set(analysis.result.table.method) == {"linear"}
    assert list(zip(analysis.result.table.a, analysis.result.table.b, strict=True)) == [("a", "c")]
    with pytest.raises(ConfigError, match="nope"):
        oo.analyse(table, test_sets=["nope"])
    with pytest.raises(ConfigError, match="a folder brings its own records"):
        oo.analyse(tmp_path, records=table)


def test_the_report_from_python_is_that_of_the_command_line(toy_study: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert oodles("run", toy_study, "--out", out).returncode == 0
    assert oodles("report", out, "--out", tmp_path / "cli.html").returncode == 0
    analysis = oo.analyse(out, sensitivity=True)
    oo.write_report(analysis, tmp_path / "python.html")
    assert (tmp_path / "python.html").read_bytes() == (tmp_path / "cli.html").read_bytes()
    assert [run["name"] for run in analysis.runs] == ["tiny-llama-untrained_home_0_8", "tiny-llama-untrained_home_1_8"]
    assert oodles("pack", out).returncode == 0
    oo.write_report(oo.analyse(tmp_path / "out.oodles.zip", sensitivity=True), tmp_path / "packed.html")
    assert (tmp_path / "packed.html").read_bytes() == (tmp_path / "cli.html").read_bytes()


def test_the_older_form_of_the_report_still_works(tmp_path: Path) -> None:
    table = long_table()
    oo.write_report(table, oo.partial_correlations(table), tmp_path / "old.html")
    oo.write_report(oo.analyse(table), tmp_path / "new.html")
    assert (tmp_path / "old.html").read_bytes() == (tmp_path / "new.html").read_bytes()


def test_what_is_left_out_is_noted(toy_study: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert oodles("run", toy_study, "--out", out).returncode == 0
    next((out / "runs").glob("*_1_8/done.json")).unlink()
    assert oo.analyse(out).notes == (
        "run tiny-llama-untrained_home_1_8 is not finished (started); its scores so far are analysed",
    )


def test_results_keep_their_settings_when_they_are_analysed_again(tmp_path: Path) -> None:
    done = oodles("analyse", "pythia", "--out", tmp_path / "r")
    assert done.returncode == 0, done.stderr
    first, again = oo.analyse(tmp_path / "r"), oo.analyse(tmp_path / "r", level=0.95)
    assert set(first.result.table.n_units) == set(again.result.table.n_units) == {8}  # the unit is the size
    assert again.verdicts == first.verdicts
    pooled = oo.analyse(tmp_path / "r", within=["pooled"])
    assert (set(pooled.result.table.within), set(pooled.result.table.n_units)) == ({"pooled"}, {8})


def test_what_is_no_source_is_refused_in_one_line(tmp_path: Path) -> None:
    table = long_table()
    for source, message in (
        (3, "expected a path, a finding's name or a DataFrame"),
        ({"run": ["a"]}, "got dict, expected a path, a finding's name or a DataFrame"),
        ("bert-han", "did you mean 'bert-hans'"),
        (tmp_path, "cannot read this folder; expected a study"),
    ):
        with pytest.raises(ConfigError, match=message):
            oo.analyse(source)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="give records with a table only"):
        oo.analyse("pythia", records=table)
    plain = table.drop(columns="role")
    assert len(oo.analyse(plain, in_domain="home", test_sets=["a", "b"]).result.table) == 2


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"level": "0.9"}, "level is '0.9', expected a number"),
        ({"level": True}, "level is True, expected a number"),
        ({"in_domain": 3}, "in_domain is 3, expected a name or a list of names"),
        ({"test_sets": [3]}, r"test_sets is \[3\], expected a name or a list of names"),
        ({"method": 1}, "method is 1, expected text"),
        ({"exact": "no"}, "exact is 'no', expected True or False"),
        ({"n": 200}, r"n is 200, expected examples by test set: \{'mnli': 9815\}"),
        ({"n": {5: 200}}, "n names test set 5; expected its name as text"),
        ({"n": {"a": 10**400}}, "n of a is 1000"),
        ({"n": {"a": float("nan")}}, "n of a is nan; expected its number of examples"),
        ({"foo": 1}, "analyse: no option 'foo'; known: across, averages"),
        ({"sensitivty": True}, "analyse: no option 'sensitivty'; did you mean 'sensitivity'"),
        ({"in_domain": "hom", "n": {"hom": 200}}, r"in-domain set 'hom' is not in the table; did you mean 'home'\?"),
    ],
)
def test_an_option_of_a_wrong_type_is_refused_by_its_name(options: dict[str, object], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        oo.analyse(long_table(), **options)  # type: ignore[arg-type]
