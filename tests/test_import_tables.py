"""Tables as people have them: long and wide, separators, decimal commas, per cent, Excel; and what cannot be told."""

from __future__ import annotations

import json
import shlex
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import oodles as oo
from conftest import oodles
from oodles.errors import ConfigError, DataError, OodlesError
from oodles.imports.registry import importers
from scores import SETS, same, same_correlations, study, wide


def written(table: pd.DataFrame, path: Path) -> Path:
    """A table in the format that the name of a file says."""
    if path.suffix == ".parquet":
        table.to_parquet(path)
    elif path.suffix == ".jsonl":
        table.to_json(path, orient="records", lines=True, double_precision=15)
    elif path.suffix == ".json":
        path.write_text(json.dumps(table.to_dict("records")))
    elif path.suffix == ".xlsx":
        pytest.importorskip("openpyxl")
        table.to_excel(path, index=False)
    else:
        table.to_csv(path, index=False, sep="\t" if path.suffix == ".tsv" else ",")
    return path


@pytest.mark.parametrize("shape", ["long", "wide"])
@pytest.mark.parametrize("kind", ["csv", "tsv", "txt", "jsonl", "json", "parquet", "xlsx"])
def test_round_trip(tmp_path: Path, kind: str, shape: str) -> None:
    table = study(digits=12)
    path = written(table if shape == "long" else wide(table), tmp_path / f"t.{kind}")
    same(oo.import_scores(path).table, table)


def test_correlations_of_a_wide_file_are_those_of_the_long_table(tmp_path: Path) -> None:
    table = study()
    same_correlations(written(wide(table), tmp_path / "t.csv"), table)


def test_numbers_of_examples_beside_scores_belong_to_one_set(tmp_path: Path) -> None:
    """`snli_n` and `n_hans` are of one set each; `n` alone does not say of which, so it counts for none."""
    frame = wide(study()).assign(snli_n=9842, N_HANS=30_000, anli_n=0.5, n=200)
    imported = oo.import_scores(written(frame, tmp_path / "scores.csv"), in_domain="snli")
    told = {name: set(own["n"].dropna()) for name, own in imported.table.groupby("test_set")}
    assert {name for name in told if told[name]} == {"snli", "hans"}
    assert (told["snli"], told["hans"]) == ({9842}, {30_000})
    assert "numbers of examples are the columns snli_n, N_HANS" in imported.notes
    assert "column n is left out: of which test set? call it snli_n, or say --n snli=NUMBER" in imported.notes
    assert not any("snli_n (" in note or "N_HANS (" in note for note in imported.notes)
    assert "column anli_n is left out: 0.5 is no number of examples" in imported.notes
    broken = oo.import_scores(written(frame.assign(anli_n=1.5), tmp_path / "broken.csv"), in_domain="snli")
    assert "column anli_n is left out: 1.5 is no number of examples" in broken.notes
    both = oo.import_scores(written(frame.assign(n_snli=200), tmp_path / "both.csv"), in_domain="snli")
    assert both.table.loc[both.table["test_set"] == "snli", "n"].isna().all()
    assert any("one of them may be the number of examples of snli" in note for note in both.notes)
    called = wide(study()).rename(columns={"snli": "snli_acc"}).assign(n=200)
    noted = oo.import_scores(written(called, tmp_path / "called.csv"), in_domain="snli_acc").notes
    assert any("call it snli_n, or say --n snli=NUMBER" in note for note in noted)


def test_a_wide_frame_is_read_as_a_file_is(tmp_path: Path) -> None:
    frame = wide(study())
    from_file = oo.analyse(written(frame, tmp_path / "scores.csv"), in_domain="snli")
    before = frame.copy()
    for source in (frame, frame.set_index(["run", "step"]), frame.set_index("run", drop=False)):
        analysis = oo.analyse(source, in_domain="snli", n={"snli": 500})
        pd.testing.assert_frame_equal(
            analysis.result.table[["a", "b", "r", "low"]], from_file.result.table[["a", "b", "r", "low"]]
        )
        assert any(note.startswith("test sets are the columns") for note in analysis.notes)
    pd.testing.assert_frame_equal(frame, before)
    with pytest.raises(DataError, match="table: no column 'test_set'; required: run, step, test_set, value, or one"):
        oo.analyse(frame[["run", "step", "snli"]], in_domain="snli")


@pytest.mark.parametrize(
    ("separator", "decimal", "mark", "space", "encoding"),
    [
        (";", ",", "", "", "utf-8-sig"),
        (";", ",", "%", "", "utf-8"),
        (";", ".", " %", " ", "utf-8"),
        ("\t", ",", "", "", "utf-16"),
        (",", ".", "%", " ", "utf-8-sig"),
        ("|", ".", "", " ", "utf-8"),
    ],
)
def test_numbers_as_spreadsheets_write_them(
    tmp_path: Path, separator: str, decimal: str, mark: str, space: str, encoding: str
) -> None:
    table = study(digits=3)

    def cell(value: object) -> str:
        if not isinstance(value, float):
            return str(value)
        text = f"{value * 100:.1f}{mark}" if mark else f"{value:.3f}"
        return text.replace(".", decimal)

    rows = [list(wide(table).columns), *wide(table).to_numpy(dtype=object).tolist()]
    text = "\r\n".join((separator + space).join(map(cell, row)) for row in rows) + "\r\n"
    (tmp_path / "t.csv").write_bytes(text.encode(encoding))
    same(oo.import_scores(tmp_path / "t.csv").table, table)


def test_per_cent_without_signs_is_told(tmp_path: Path) -> None:
    table = study(digits=3)
    shown = wide(table)
    shown[list(SETS)] = (shown[list(SETS)] * 100).round(1)
    imported = oo.import_scores(written(shown, tmp_path / "t.csv"))
    same(imported.table, table, 1e-12)
    assert "scores above 1 are taken as per cent and divided by 100" in imported.notes


def test_names_of_columns_carry_metrics_and_other_names_of_columns_are_known(tmp_path: Path) -> None:
    table = study()
    other = wide(table).rename(columns={"run": "Name", "step": "Step", "snli": "snli_acc", "hans": "acc_hans"})
    other = other.assign(snli_loss=0.3, learning_rate=1e-4, Created="today", epoch=np.arange(len(other)))
    path = written(other, tmp_path / "t.csv")
    imported = oo.import_scores(path, in_domain="snli_acc")
    same(imported.table, table)
    assert set(imported.table.loc[imported.table["role"] == "in_domain", "test_set"]) == {"snli"}
    assert set(imported.table["metric"]) == {"accuracy", "loss"}
    assert any("learning_rate, epoch" in note for note in imported.notes)
    assert "column 'Name' is read as run" in imported.notes
    assert "column 'snli_loss' is read as the loss of snli" in imported.notes


def test_only_the_named_sets_are_taken(tmp_path: Path) -> None:
    path = written(wide(study()).assign(quota=0.5), tmp_path / "t.csv")
    assert "quota" in set(oo.import_scores(path).table["test_set"])
    table = oo.import_scores(path, in_domain="snli", test_sets=["hans", "anli"]).table
    assert set(table["test_set"]) == {"snli", "hans", "anli"}


def test_models_without_steps_or_runs(tmp_path: Path) -> None:
    """BenchBench's shape: a row per model."""
    table = pd.DataFrame({"model": list("abcdef"), "snli": np.linspace(0.5, 0.9, 6), "hans": np.linspace(0.4, 0.5, 6)})
    imported = oo.import_scores(written(table, tmp_path / "t.csv"))
    assert imported.table["run"].unique().tolist() == list("abcdef")
    assert (imported.table["step"] == 0).all()
    assert "no column for the step: every row is a model with one checkpoint" in imported.notes
    bare = written(table.drop(columns="model"), tmp_path / "bare.csv")
    with pytest.raises(DataError, match=r"no column names the run; .* --map run=row") as caught:
        oo.import_scores(bare)
    assert "\n" not in str(caught.value)
    assert oo.import_scores(bare, maps="run=row").table["run"].nunique() == 6


def test_a_long_table_without_runs_is_told_apart_by_what_it_says_of_them(tmp_path: Path) -> None:
    table = study().rename(columns={"run": "model"})
    imported = oo.import_scores(written(table, tmp_path / "t.csv"))
    same(imported.table, study())
    assert "runs are told apart by model" in imported.notes
    twice = pd.concat([table, table.assign(value=table["value"] / 2)])
    with pytest.raises(DataError, match="has different scores of snli; keep one of them"):
        oo.analyse(written(twice, tmp_path / "twice.csv"), in_domain="snli")


def test_metrics_as_columns_beside_a_test_set(tmp_path: Path) -> None:
    table = study().rename(columns={"test_set": "task", "value": "acc"}).assign(f1=0.5)
    found = oo.import_scores(written(table, tmp_path / "t.csv")).table
    same(found, study())
    assert (found.loc[found["metric"] == "f1", "value"] == 0.5).all()


def test_a_column_map_names_what_is_what(tmp_path: Path) -> None:
    table = study().rename(columns={"run": "who", "step": "when", "test_set": "where", "value": "what"})
    path = written(table, tmp_path / "t.csv")
    same(oo.import_scores(path, maps="run=who,step=when,test_set=where,value=what").table, study())
    same(oo.import_scores(path, maps=["run=who", "step=when", "test_set=where", "value=what"]).table, study())
    with pytest.raises(ConfigError, match=r"--map step=whenn: .*t\.csv has no such column; did you mean 'when'"):
        oo.import_scores(path, maps="step=whenn")


def test_runs_from_their_names_and_from_a_file(tmp_path: Path) -> None:
    path = written(study(), tmp_path / "t.csv")
    table = oo.import_scores(path, names="{model}_{train_set}_{seed}_{shots}").table
    assert table[["model", "train_set", "shots"]].drop_duplicates().to_numpy().tolist() == [["m", "snli", 64]]
    assert sorted(table["seed"].unique()) == list(range(6))
    same(table, study())
    runs = study()["run"].unique()
    pd.DataFrame({"run": runs, "model": "other", "seed": range(6)}).to_csv(tmp_path / "runs.csv", index=False)
    told = oo.import_scores(path, maps=str(tmp_path / "runs.csv")).table
    assert (told["model"] == "other").all()
    assert told.groupby("run")["seed"].first().tolist() == list(range(6))
    with pytest.raises(ConfigError, match="is named otherwise"):
        oo.import_scores(path, names="{model}-{seed}")
    with pytest.raises(ConfigError, match="expected fields in braces"):
        oo.import_scores(path, names="model")


def test_a_folder_of_files_is_a_run_each(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    for run, rows in wide(study()).groupby("run"):
        written(rows.drop(columns="run"), tmp_path / "runs" / f"{run}.csv")
    same(oo.import_scores(tmp_path / "runs").table, study())
    same(oo.import_scores(sorted((tmp_path / "runs").glob("*.csv"))).table, study())
    written(wide(study()), tmp_path / "runs" / "t.parquet")
    with pytest.raises(DataError, match=r"files of several kinds \(.csv, .parquet\)"):
        oo.import_scores(tmp_path / "runs")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("run,step,snli,hans\na,1,0.5,0.4\na,1,0.6,0.4\n", "rows 1, 2: run 'a' at step 1 has different scores"),
        ("run,step,snli,hans\na,1,0.5\n", "row 1: 3 cells, the header has 4; is the file cut off"),
        ("run,step,snli,hans\na,1,0.5,0.4,9\nb,1,0.5,0.4,9\n", "row 1: 5 cells, the header has 4"),
        ("run,step,snli,speed\na,1,0.5,140\n", "column 'speed' holds 140, no accuracy; remove the column"),
        ("run,step,snli,temp\na,1,0.5,4\n", "'temp' goes up to 4, 'snli' to 0.5"),
        ("run;step;snli;hans\na;1,000;0,5;0,4\n", "step is '1,000': a decimal comma, or thousands"),
        ("run;step;snli;hans\na;1;0,5;0,4\nb;1;0.5;0,4\n", "snli is '0,5': a decimal comma, or thousands"),
        ("run,step,snli,hans\na,1,50%,0.4\nb,1,0.5,0.4\n", "row 2: snli has no per cent sign"),
        ("run,step,snli,hans\na,1,x,y\n", "no column 'test_set'; required"),
        ("run,step,snli\na,1,0.5\n", "columns that could be test sets: snli"),
        ("run,step,snli,snli\na,1,0.5,0.6\n", "column 'snli' appears more than once"),
        ("run,step,snli,hans\n", "t.csv: the table has no rows, only a header"),
        ("run,step,snli,hans\n,,,\n", "t.csv: the table has no rows, only a header"),
        ("run,step,test_set,value\n", "t.csv: the table has no rows, only a header"),
        ("", "the file is empty"),
    ],
)
def test_what_cannot_be_told_is_one_line(tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / "t.csv").write_text(content)
    with pytest.raises(DataError) as caught:
        oo.import_scores(tmp_path / "t.csv")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


WITHOUT_SEEDS = (("a", 0.5), ("a", 0.6), ("b", 0.7), ("b", 0.8), ("b", 0.9))
ROWS = ", or, where every row is a run of its own: --map run=row"


@pytest.mark.parametrize(
    ("own", "told"),
    [
        ({}, f"a column seed or step{ROWS}"),
        ({"step": 100}, f"a column seed{ROWS}"),
        ({"step": [1, 1, 1, 1, 2]}, "a column seed"),
        ({"seed": 1}, f"a column step{ROWS}"),
        ({"step": [1, 1, 1, 1, 2], "seed": 1}, "keep one of them"),
        ({"note": list("vwxyz")}, f"--map run=note{ROWS}"),
        ({"note": list("vwxyz"), "run": ["i", "i", "j", "j", "j"]}, f"--map train_set=note{ROWS}"),
        ({"trial": range(5), "seed": 1}, "--map run=trial"),
    ],
    ids=["models", "one step", "steps", "seeds", "all", "a text", "a text beside runs", "a number beside seeds"],
)
def test_advice_on_rows_that_nothing_tells_apart_names_no_column_that_is_there(
    tmp_path: Path, own: dict[str, object], told: str
) -> None:
    table = pd.DataFrame(WITHOUT_SEEDS, columns=["model", "snli"]).assign(hans=lambda t: t["snli"] / 2, **own)
    path = written(table, tmp_path / "t.csv")
    with pytest.raises(DataError) as caught:
        oo.import_scores(path)
    assert str(caught.value).split("; ")[-1].removeprefix("name what tells them apart: ") == told
    for advice in (word.strip(",") for word in told.split() if "=" in word):  # and it works
        assert oo.import_scores(path, maps=advice).table["run"].nunique() == len(table)


def test_rows_of_several_files_are_runs_each(tmp_path: Path) -> None:
    table = pd.DataFrame(WITHOUT_SEEDS, columns=["model", "snli"]).assign(hans=lambda t: t["snli"] / 2)
    paths = [written(table.assign(snli=table["snli"] / k), tmp_path / f"t{k}.csv") for k in (1, 2)]
    found = oo.import_scores(paths, maps="run=row").table
    assert found["run"].nunique() == 10
    assert found.groupby("run")["model"].nunique().eq(1).all()
    assert "t2 row 5" in set(found["run"])


def test_a_loss_is_not_told_as_a_test_set(tmp_path: Path) -> None:
    notes = oo.import_scores(written(wide(study()).assign(train_loss=0.3), tmp_path / "t.csv")).notes
    assert f"test sets are the columns {', '.join(SETS)}; choose others with --test-set" in notes
    assert "column 'train_loss' is read as the loss of train" in notes
    f1 = wide(study()).rename(columns={name: f"{name}_f1" for name in SETS})
    notes = oo.import_scores(written(f1, tmp_path / "f1.csv")).notes
    assert any(note.startswith("test sets are the columns snli_f1, ") for note in notes)


def test_a_long_line_and_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f"run,step,snli,hans,note\na,1,0.5,0.4,{'x' * 10_000_000}\n")
    assert len(oo.import_scores(path).table) == 2
    path.write_bytes(b"run,step,snli,hans\n\xe9,1,0.5,0.4\n")
    with pytest.raises(DataError, match="line 2: byte 0xe9 is not UTF-8 text; save the file as UTF-8"):
        oo.import_scores(path)
    path.with_suffix(".jsonl").write_text('{"run": "a", "step": 1, "snli": NaN, "hans": 0.4, "rte": 0.5}\n{')
    with pytest.raises(DataError, match="line 2: not JSON"):
        oo.import_scores(path.with_suffix(".jsonl"))
    path.with_suffix(".jsonl").write_text('{"run": "a", "step": 1, "snli": NaN, "hans": 0.4, "rte": 0.5}\n')
    with pytest.raises(OodlesError, match="in-domain set 'snli' is not in the table"):
        oo.analyse(path.with_suffix(".jsonl"), in_domain="snli")


def test_pickles_are_refused(tmp_path: Path) -> None:
    """One that would run code if it were loaded."""

    class Trap:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return (Path.touch, (Path(tmp_path / "sprung"),))  # type: ignore[return-value]

    import pickle

    (tmp_path / "cache.pkl").write_bytes(pickle.dumps(Trap()))
    done = oodles("analyse", tmp_path / "cache.pkl")
    assert done.returncode == 2
    assert "a pickle runs any code" in done.stderr
    assert not (tmp_path / "sprung").exists()


def test_the_command_writes_a_table_that_analyse_reads(tmp_path: Path) -> None:
    path = written(wide(study()), tmp_path / "scores.csv")
    before = path.read_bytes()
    for name in ("table.parquet", "table.csv"):
        done = oodles("import", path, "--in-domain", "snli", "--out", tmp_path / name)
        assert done.returncode == 0, done.stderr
        again = oodles("analyse", tmp_path / name, "--json")
        assert again.returncode == 0, again.stderr
    same(oo.import_scores(tmp_path / "table.csv").table, study())
    assert oodles("import", path, "--in-domain", "snli", "--out", tmp_path / "table.parquet").returncode == 0
    refused = oodles("import", path, "--out", tmp_path / "table.csv")
    assert (refused.returncode, "was not written by oodles" in refused.stderr) == (2, True)
    refused = oodles("import", path, "--out", path)
    assert (refused.returncode, path.read_bytes()) == (2, before)
    assert oodles("import", path).returncode == 2
    assert oodles("import", tmp_path / "none", "--inspect").returncode == 2


def test_inspect_ends_with_a_command_that_works(tmp_path: Path) -> None:
    written(wide(study()), tmp_path / "my scores.csv")
    shown = oodles("import", "--inspect", "my scores.csv", cwd=tmp_path).stdout
    assert "runs: 6" in shown
    assert "steps: 2 to 8, 4 different" in shown
    command = shown.splitlines()[-1].removeprefix("next: ")
    assert command == "oodles analyse 'my scores.csv' --in-domain snli"
    assert "where n is blank and you know it, add --n SET=NUMBER to what follows" in shown
    assert oodles(*shlex.split(command)[1:], cwd=tmp_path).returncode == 0


def test_several_paths_and_a_study_do_not_mix(tmp_path: Path) -> None:
    path = written(wide(study()), tmp_path / "a.csv")
    (tmp_path / "study").mkdir()
    (tmp_path / "study" / "study.json").write_text("{}")
    with pytest.raises(ConfigError, match="analyse it alone"):
        oo.analyse([path, tmp_path / "study"])
    with pytest.raises(OodlesError, match="no such format"):
        oo.analyse(path, format="tabel")


def test_an_importer_of_another_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by its entry point, asked first."""
    package = tmp_path / "other-1.0.dist-info"
    package.mkdir()
    (package / "entry_points.txt").write_text("[oodles.importers]\nmine = other_importer\n")
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    (tmp_path / "other_importer.py").write_text(
        "import pandas as pd\n"
        "from oodles.imports.contract import Imported\n"
        "NAME = 'mine'\n"
        "def recognise(path):\n    return path.suffix == '.mine'\n"
        "def read(paths, options):\n"
        "    rows = [('r', 1, 'snli', 0.5), ('r', 1, 'hans', 0.4)]\n"
        "    return Imported(format=NAME, table=pd.DataFrame(rows, columns=['run', 'step', 'test_set', 'value']))\n"
    )
    (tmp_path / "x.mine").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    importers.cache_clear()
    try:
        assert oo.import_scores(tmp_path / "x.mine").format == "mine"
    finally:
        importers.cache_clear()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (
            "run,step,mnli,hans\n" + "".join(f"a,{i},.7,.5\n" for i in range(8)) + "a,9,80.1*,.5\n",
            r"row 9: mnli is '80\.1\*'",
        ),
        ("model,mnli,hans\na,80.1,50.2\nb,85.1,55.2\nc,0.9,60.2\n", r"row 3: mnli is 0\.9, other rows go up to 85\.1"),
        (
            "run;step;mnli;hans\na;500;0,7;0,5\na;1.000;0,8;0,6\n",
            r"row 2: step is '1\.000': thousands\? write it as 1000, or as 1",
        ),
    ],
    ids=["a spoilt cell", "a share among per cent", "thousands"],
)
def test_cells_that_would_silently_change_the_table(tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / "t.csv").write_text(content)
    with pytest.raises(DataError, match=said):
        oo.import_scores(tmp_path / "t.csv", in_domain="mnli")


@pytest.mark.parametrize("gap", ["-", "–", "."])
def test_a_dash_is_a_gap(tmp_path: Path, gap: str) -> None:
    rows = "".join(f"a,{i},.7,.5,.4\n" for i in range(8))
    (tmp_path / "t.csv").write_text(f"run,step,mnli,hans,rte\n{rows}a,9,.7,{gap},.4\n", encoding="utf-8")
    table = oo.import_scores(tmp_path / "t.csv", in_domain="mnli").table
    assert (table.test_set == "hans").sum() == 8
    assert (table.test_set == "rte").sum() == 9


def test_two_runs_of_one_name_are_not_one(tmp_path: Path) -> None:
    first, second = study(), study(seed=1)
    both = pd.concat([first.assign(model="A"), second.assign(model="B", step=lambda t: t["step"] + 1)])
    with pytest.raises(DataError, match=r"run 'm_snli_0_64' has several values of model \(A and B\)"):
        oo.analyse(both, in_domain=SETS[0], by="none")
    assert len(oo.analyse(both, in_domain=SETS[0], by=["model"]).verdicts) == 2


def test_a_run_in_several_files_is_told(tmp_path: Path) -> None:
    """Its steps may go on in the next file; or two people both called it seed0."""
    for number, name in enumerate(("a", "b")):
        rows = [f"seed0,{10 * number + step},.{step}{number}1,.{step}2" for step in range(1, 4)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["run,step,mnli,hans", *rows]))
    found = oo.import_scores(tmp_path, in_domain="mnli")
    assert found.table["run"].unique().tolist() == ["seed0"]
    assert [n for n in found.notes if "run 'seed0' is in a.csv, b.csv: taken as one run" in n]
    for name in ("a", "b"):
        text = (tmp_path / f"{name}.csv").read_text().splitlines()
        told = [text[0] + ",model", *(f"{line},{name}" for line in text[1:])]
        (tmp_path / f"{name}.csv").write_text("\n".join(told))
    assert not [n for n in oo.import_scores(tmp_path, in_domain="mnli").notes if "taken as one run" in n]
    text = (tmp_path / "b.csv").read_text().replace(",model", "").replace(",b\n", "\n").removesuffix(",b")
    (tmp_path / "b.csv").write_text(text)
    with pytest.raises(DataError, match=r"run 'seed0' is in a.csv and in b.csv, and only one of them says its model"):
        oo.import_scores(tmp_path, in_domain="mnli")


def test_averages_settings_and_spreads_are_no_test_sets(tmp_path: Path) -> None:
    rows = "".join(f"a,{i},.{70 + i},.5,.4,.45,.1,64,.02\n" for i in range(6))
    header = "run,step,MNLI_ACC,HANS_ACC,HANS_F1,average,warmup_ratio,n_samples,acc_std"
    (tmp_path / "t.csv").write_text(f"{header}\n{rows}")
    table = oo.import_scores(tmp_path / "t.csv").table
    assert set(zip(table.test_set, table.metric, strict=True)) == {
        ("MNLI", "accuracy"),
        ("HANS", "accuracy"),
        ("HANS", "f1"),
    }
    assert "n" not in table or table["n"].isna().all()


WIDE = "run,step,snli,hans"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (f"{WIDE}\na,1,70.1 (0.3),50\na,2,71.0 (0.2),51\n", "row 1: snli is '70.1 (0.3)', a score and its spread"),
        (f"{WIDE}\na,1,0.70 ± 0.01,.5\na,2,0.7 ± 0.02,.5\n", "row 1: snli is '0.70 ± 0.01', a score and its spread"),
        (f"{WIDE},rte\na,1,**70.1**,50,60\na,2,**71.1**,51,61\n", "row 1: snli is '**70.1**', a score with a mark"),
        (
            f"{WIDE},rte\n" + "".join(f"a,{i},5{i}%,6{i}%,7{i}%\n" for i in range(6)) + "a,9,True,,\n",
            "row 7: snli is 'True', the other cells are numbers",
        ),
        (f"{WIDE}\na,1.000,.7,.5\na,2.000,.8,.6\n", "row 1: step is '1.000': thousands?"),
        (f"{WIDE}\na,1,.7,.5\nb,1,.8,.6\nmean,1,.75,.55\n", "row 3: run is 'mean', a summary of the others?"),
        (f"{WIDE}\na,1,.7,.5\n,2,.8,.6\n", "row 2: run is missing; write it in every row"),
        (f"{WIDE}\na,1,,\na,,.9,.9\n", "row 2: step is missing"),
        (f"My results\n{WIDE}\na,1,.7,.5\n", "the header has 1; is 'My results' a title? remove the line"),
        (f"{WIDE}\na,1,\u2212.7,.5\na,2,.8,.5\n", "snli is '\u2212.7' in row 1, no number"),
        (
            "run,step,test_set,value\na,1,snli,71.3\na,1,hans,0.5\na,2,snli,80\na,2,hans,.55\n",
            "accuracy of snli goes up to 80, hans to 0.55; write all as shares or all as per cent",
        ),
        (
            "run,step,test_set,value\na,1,snli,71.3\na,1,hans,50\na,2,snli,0.8\na,2,hans,55\n",
            "row 3: snli is 0.8, other rows go up to 71.3",
        ),
        (
            "Relative Time (Process),r1 - eval/snli_accuracy,r1 - eval/hans_accuracy\n1.5,.5,.5\n",
            "a chart over 'Relative Time (Process)'; export it with Step",
        ),
    ],
)
def test_cells_that_are_no_scores_are_one_line(tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / "t.csv").write_text(content, encoding="utf-8")
    with pytest.raises(DataError) as caught:
        oo.import_scores(tmp_path / "t.csv")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_per_cent_in_a_long_table_is_told(tmp_path: Path) -> None:
    table = study(digits=3)
    shown = table.assign(value=(table["value"] * 100).round(1), stderr=2.0)
    imported = oo.import_scores(written(shown, tmp_path / "t.csv"))
    same(imported.table, table, 1e-12)
    assert imported.table["stderr"].eq(0.02).all()
    assert "scores above 1 are taken as per cent and divided by 100" in imported.notes
    losses = shown.assign(metric="loss")
    assert oo.import_scores(written(losses, tmp_path / "l.csv")).table["value"].max() > 1


def test_truths_and_dates_among_numbers_are_refused(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text('{"run": "a", "step": true, "snli": 0.1, "hans": 0.5}\n' * 1)
    with pytest.raises(DataError, match="column 'step' holds bool"):
        oo.import_scores(tmp_path / "t.jsonl")
    rows = ['{"run": "a", "step": 1, "snli": true, "hans": 0.5}', '{"run": "a", "step": 2, "snli": 0.1, "hans": 0.5}']
    (tmp_path / "t.jsonl").write_text("\n".join(rows))
    with pytest.raises(DataError, match="row 1: snli is True, other cells are numbers"):
        oo.import_scores(tmp_path / "t.jsonl")


def test_excel_as_people_fill_it_in(tmp_path: Path) -> None:
    """Dates that Excel made, formulas that nobody computed, merged cells, a title above the header."""
    openpyxl = pytest.importorskip("openpyxl")
    head = ["run", "step", "snli", "hans"]
    cases = [
        ([head, ["a", 1, datetime(2024, 5, 1), 0.4], ["a", 2, 0.6, 0.5]], "row 1: snli is 2024-05-01"),
        ([head, ["a", 1, "=1/2", 0.4], ["a", 2, 0.5, 0.5]], r"C2 is a formula \(=1/2\) without a stored result"),
        ([head, ["a", 1, 0.5, 0.4], [None, 2, 0.6, 0.5]], "row 2: run is missing"),
        ([[None, None, "accuracy"], head, ["a", 1, 0.5, 0.4]], "leave no merged cells or titles above it"),
    ]
    for rows, said in cases:
        book = openpyxl.Workbook()
        for row in rows:
            book.active.append(row)
        book.save(tmp_path / "t.xlsx")
        with pytest.raises(DataError, match=said):
            oo.import_scores(tmp_path / "t.xlsx")


def test_runs_named_by_their_seeds(tmp_path: Path) -> None:
    """Of several models: the model is part of the name. Where the names repeat without a reason, that is asked for."""
    first, second = study().assign(run=lambda t: t["run"].str[-4]), study(seed=1).assign(run=lambda t: t["run"].str[-4])
    both = pd.concat([first.assign(model="A"), second.assign(model="B")], ignore_index=True)
    for shape in (both, both.pivot_table(index=["run", "step", "model"], columns="test_set", values="value")):
        path = written(shape if shape is both else shape.reset_index(), tmp_path / "t.csv")
        imported = oo.import_scores(path)
        assert imported.table["run"].nunique() == 12
        assert {"A_0", "B_0"} < set(imported.table["run"])
        assert any("runs of one name differ in model" in note for note in imported.notes)
        expected = both.assign(run=both["model"] + "_" + both["run"])
        same(imported.table, expected, 1e-15)


def test_a_file_of_one_run_needs_no_name(tmp_path: Path) -> None:
    """A history that was downloaded: rows of one step are merged."""
    rows = ["_step,train/global_step,eval/snli_accuracy,eval/hans_accuracy", "1,10,.5,", "2,10,,.4", "3,20,.6,.5"]
    (tmp_path / "mine.csv").write_text("\n".join(rows))
    imported = oo.import_scores(tmp_path / "mine.csv")
    assert sorted(imported.table[["run", "step", "test_set", "value"]].to_numpy().tolist()) == [
        ["mine", 10, "hans", 0.4],
        ["mine", 10, "snli", 0.5],
        ["mine", 20, "hans", 0.5],
        ["mine", 20, "snli", 0.6],
    ]
    assert "no column names the run: the file is one run" in imported.notes
    (tmp_path / "mine.csv").write_text("\n".join([*rows, "4,20,.9,.9"]))
    with pytest.raises(DataError, match="no column names the run; add one, or, where every row is a run"):
        oo.import_scores(tmp_path / "mine.csv")


def test_rows_with_objects_and_with_nothing(tmp_path: Path) -> None:
    rows = [{"run": "a", "step": i, "eval": {"snli": {"accuracy": 0.5}, "hans": {"accuracy": 0.4}}} for i in range(3)]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert set(oo.import_scores(tmp_path / "t.jsonl").table["test_set"]) == {"snli", "hans"}
    (tmp_path / "t.csv").write_text(f"{WIDE}\na,1,.5,.4\n,,,\na,2,.5,#N/A\n* best,,,\n")
    assert len(oo.import_scores(tmp_path / "t.csv").table) == 3


def test_groups_of_one_run_are_told_how_to_be_one(tmp_path: Path) -> None:
    path = written(wide(study()).rename(columns={"run": "model"}), tmp_path / "t.csv")
    done = oodles("import", "--inspect", path)
    assert f"next: oodles analyse {path} --by none --in-domain snli" in done.stdout
    done = oodles("analyse", path, "--in-domain", "snli")
    told = " ".join(done.stdout.split())
    assert "every group has one run (by model): --by none takes all runs together" in told
    done = oodles("analyse", path, "--in-domain", "snli", "--by", "none")
    assert "every group has one run" not in " ".join(done.stdout.split())


def test_a_column_that_is_mostly_text_is_told(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("run,step,snli,hans,rte\na,1,.5,.4,.3\na,2,.6,.5,x\na,3,.6,.5,bad\n")
    notes = oo.import_scores(tmp_path / "t.csv").notes
    assert "a column is left out: rte is 'x' in row 2, no number" in notes
    (tmp_path / "t.csv").write_text("run,step,snli,hans,rte\na,1,.5,.4,.3\na,2,.6,.5,.3\na,3,,,bad\n")
    notes = oo.import_scores(tmp_path / "t.csv").notes  # the row with the odd cell has no score
    assert "a column is left out: rte is 'bad' in row 3, no number" in notes


def test_a_folder_without_tables_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "x.png").write_text("")
    with pytest.raises(DataError, match=r"no table in it; expected files such as \.csv"):
        oo.import_scores(tmp_path, format="table")


def test_names_of_nothing_but_spaces_are_no_twins(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text('{"run": "a", "step": 1, "snli": 0.5, "hans": 0.4, "": 1, " ": 2}\n')
    assert set(oo.import_scores(tmp_path / "t.jsonl").table["test_set"]) == {"snli", "hans"}


def test_parquet_with_categories_and_bytes(tmp_path: Path) -> None:
    table = wide(study())
    table["run"] = table["run"].astype("category")
    same(oo.import_scores(written(table, tmp_path / "t.parquet")).table, study())
    both = pd.concat([study().assign(model="A"), study(seed=1).assign(model="B")], ignore_index=True)
    both[["run", "model"]] = both[["run", "model"]].astype("category")
    assert oo.import_scores(written(both, tmp_path / "t.parquet")).table["run"].nunique() == 12
    written(study().assign(run=b"\xff"), tmp_path / "t.parquet")
    with pytest.raises(DataError, match="column 'run' holds bytes"):
        oo.import_scores(tmp_path / "t.parquet")


HEAD = "mnli,hans,snli"
CELLS = ".7,.5,.6"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        # a summary among models, not only among runs
        *(
            (f"model,{HEAD}\na,{CELLS}\nb,.8,.6,.7\n{name},{CELLS}\n", f"row 3: model is '{name}', a summary of the")
            for name in ("Average", "AVG.", "Mean (3 seeds)", "Mean ± std", "Std.", "best", "Overall average")
        ),
        (f"run,step,{HEAD}\na,1,{CELLS}\nb,1,.8,.6,.7\nmean,,{CELLS}\n", "row 3: run is 'mean', a summary"),
        # merged cells
        (f"model,seed,{HEAD}\na,0,{CELLS}\n,1,.8,.6,.7\nb,2,{CELLS}\n,3,{CELLS}\n", "row 2: model is missing; write"),
        # lines that are no rows
        (f"run,step,{HEAD}\na,1,{CELLS}\n#a,2,.8,.6,.7\nb,1,{CELLS}\n", "row 2: begins with '#a', a comment?"),
        (
            f"run,step,{HEAD}\na,1,{CELLS}\n# crashed\nb,1,{CELLS}\n",
            "row 2: 1 cells, the header has 5; is it a comment?",
        ),
        (f"run,step,{HEAD}\na,1,{CELLS}\nrun,step,{HEAD}\nb,1,{CELLS}\n", "row 2: the header again; remove the line"),
        (f"My study,,,,\nrun,step,{HEAD}\na,1,{CELLS}\n", "is 'My study' a title? remove the line"),
        ("run step mnli hans\na 1 .7 .5\n", "one column, 'run step mnli hans'; expected several, separated by commas"),
        # two columns of one score
        (f"run,step,hans_acc,{HEAD}\na,1,.4,{CELLS}\n", "columns 'hans_acc' and 'hans' are both the accuracy of hans"),
        # steps and sets in other places
        (f"run,100,200,300\na,{CELLS}\n", "columns 100, 200, 300 are named by numbers: are they steps?"),
        (
            "run,test_set,split,value\na,hans,val,.5\na,hans,test,.6\n",
            "rows 1, 2: run 'a' at step 0 has different scores",
        ),
        ("run,test_set,metric,value\na,hans,,.5\na,hans,,.6\n", "rows 1, 2: run 'a' at step 0 has different scores"),
        (
            "test_set,run,mean,std\nhans,a,.5,.1\n",
            "no column 'value'; say which column holds the score: --map value=mean",
        ),
        (f"run,step,{HEAD}\na,1 000,{CELLS}\n", "row 1: step is '1 000'; expected a number"),
    ],
)
def test_sheets_that_would_be_read_wrongly_are_refused(tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / "t.csv").write_text(content, encoding="utf-8")
    with pytest.raises(DataError) as caught:
        oo.import_scores(tmp_path / "t.csv")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_advice_works_when_pasted(tmp_path: Path) -> None:
    """The first --map or --test-set of a message, as a shell splits it, makes the table readable."""
    seeds = [f"{seed},{model},.{70 + seed},.5{seed},.6\n" for model in ("x", "y") for seed in range(4)]
    cases = {
        "unnamed": f",{HEAD}\n" + "".join(f"m{i},.7{i},.5{i},.6\n" for i in range(5)),
        "seeds": f"run,architecture,{HEAD}\n"
        + "".join(row.replace(",.", ",.1" if "y" in row else ",.") for row in seeds),
        "folds": f"model,fold,{HEAD}\n" + "".join(f"m,{i},.7{i},.5{i},.6\n" for i in range(5)),
        "epochs": f"run,epoch,{HEAD}\n" + "".join(f"a,{i},.7{i},.5{i},.6\n" for i in range(5)),
        "gaps": f"run,step,{HEAD},gap\n" + "".join(f"a,{i},.7{i},.5{i},.6,-.{i + 1}\n" for i in range(5)),
        "means": "run,step,hans acc (mean),mnli acc (mean)\n" + "".join(f"a,{i},.7{i},.5{i}\n" for i in range(5)),
        "slashed": "run,step,val/mnli,val/hans\n" + "".join(f"a,{i},.7{i},.5{i}\n" for i in range(5)),
        "unit": "run,step,dataset,Accuracy (%)\n" + "".join(f"a,{i},mnli,7{i}\na,{i},hans,5{i}\n" for i in range(5)),
    }
    options = {"--map": "maps", "--test-set": "test_sets", "--keys": "keys"}
    for name, content in cases.items():
        (tmp_path / f"{name}.csv").write_text(content)
        with pytest.raises(DataError) as caught:
            oo.import_scores(tmp_path / f"{name}.csv")
        words = shlex.split("--" + str(caught.value).partition(" --")[2].partition(", or")[0])
        told: dict[str, list[str]] = {}
        for option, value in zip(words[::2], words[1::2], strict=False):
            told.setdefault(options[option], []).append(value)
        said = {key: values[0] if key == "keys" else values for key, values in told.items()}
        table = oo.import_scores(tmp_path / f"{name}.csv", **said).table
        assert set(table["test_set"]) >= {"mnli", "hans"} or name == "means", (name, words)
        assert table["value"].between(0, 1).all()
        assert len(table) == len(table.drop_duplicates(["run", "step", "test_set"])), name


def test_bests_averages_and_spreads_of_all_kinds_are_no_test_sets(tmp_path: Path) -> None:
    others = ["best", "best_hans", "hans_best", "AVG OOD", "Macro-avg", "mean acc", "hans (std)", "hans ±", "hans_sem"]
    others += ["GPU hours", "Params (B)", "Year", "max"]
    rows = "".join(f"a,{i},.7{i},.5{i},.6{',.9' * len(others)}\n" for i in range(5))
    (tmp_path / "t.csv").write_text(f"run,step,{HEAD},{','.join(others)}\n{rows}")
    found = oo.import_scores(tmp_path / "t.csv")
    assert set(found.table["test_set"]) == {"mnli", "hans", "snli"}
    assert [note for note in found.notes if "no test sets: best, best_hans" in note]


def test_steps_as_people_write_them(tmp_path: Path) -> None:
    for name, steps in {"k": "0.5k,1k,1.5k", "folders": "checkpoint-500,checkpoint-1000,checkpoint-1500"}.items():
        rows = "".join(f"a,{step},.7,.5\n" for step in steps.split(","))
        (tmp_path / f"{name}.csv").write_text(f"run,step,mnli,hans\n{rows}")
        assert set(oo.import_scores(tmp_path / f"{name}.csv").table["step"]) == {500, 1000, 1500}


def test_long_tables_without_steps_and_sheets_on_their_side(tmp_path: Path) -> None:
    """The same scores: a row per score, a column per run, a column per step, and runs as a Parquet file's index."""
    scores = {(f"m{i}", name): 0.5 + i / 100 + j / 10 for i in range(4) for j, name in enumerate(("hans", "mnli"))}
    long = pd.DataFrame([(*key, value) for key, value in scores.items()], columns=["model", "dataset", "Accuracy"])
    files = {
        "long": long,
        "metric": long.rename(columns={"Accuracy": "value"}).assign(metric="Acc"),
        "turned": long.pivot(index="dataset", columns="model", values="Accuracy").reset_index(names="task"),
        "steps": long.rename(columns={"Accuracy": "0", "dataset": "task"}).assign(**{"10": 0.9}),
    }
    for name, table in files.items():
        written(table, tmp_path / f"{name}.csv")
        found = oo.import_scores(tmp_path / f"{name}.csv").table.query("step == 0")
        assert dict(zip(zip(found["run"], found["test_set"], strict=True), found["value"], strict=True)) == scores
        assert "metric" not in found or set(found["metric"]) == {"accuracy"}
    long.pivot(index="model", columns="dataset", values="Accuracy").to_parquet(tmp_path / "indexed.parquet")
    found = oo.import_scores(tmp_path / "indexed.parquet").table
    assert dict(zip(zip(found["run"], found["test_set"], strict=True), found["value"], strict=True)) == scores


def test_a_trainers_names_are_read_alike_in_tables_and_logs(tmp_path: Path) -> None:
    rows = "".join(f"a,{i},.7,.5,1.{i},2\n" for i in range(3))
    header = "run,step,eval_mnli_accuracy,eval_hans_accuracy,eval_hans_loss,eval_runtime"
    (tmp_path / "t.csv").write_text(f"{header}\n{rows}")
    table = oo.import_scores(tmp_path / "t.csv", in_domain="mnli").table
    assert set(zip(table["test_set"], table["metric"], strict=True)) == {
        ("mnli", "accuracy"),
        ("hans", "accuracy"),
        ("hans", "loss"),
    }


def test_objects_in_cells_are_told(tmp_path: Path) -> None:
    rows = [{"run": "a", "step": step, "mnli": {"acc": 0.7}, "hans": {"acc": 0.5}} for step in range(3)]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(DataError, match="mnli, hans hold objects: write numbers, under names such as mnli/acc"):
        oo.import_scores(tmp_path / "t.jsonl")
    rows = [{"run": "a", "step": step, "mnli/acc": 0.7, "hans/acc": 0.5} for step in range(3)]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert set(oo.import_scores(tmp_path / "t.jsonl").table["test_set"]) == {"mnli", "hans"}


def test_one_note_names_the_columns_that_are_no_test_sets_and_why(tmp_path: Path) -> None:
    rows = [
        "run,seed,date,comment,id,learning_rate,runtime,nothing,mnli,hans,rte,passed",
        "a,1,2024-01-02,first one,x17,0.001,33.5,,0.71,0.52,0.61,true",
        "b,2,2024-01-03,second,x18,0.001,33.1,,0.72,0.51,0.63,false",
        "c,3,2024-01-04,third,x19,0.002,34.1,,0.70,0.55,0.60,true",
    ]
    (tmp_path / "wide.csv").write_text("\n".join(rows) + "\n")
    imported = oo.import_scores(tmp_path / "wide.csv")
    assert set(imported.table["test_set"]) == {"mnli", "hans", "rte"}
    told = [note for note in imported.notes if note.startswith("columns that are no test sets: ")]
    assert len(told) == 1
    said = dict(part.rstrip(")").split(" (")[::-1] for part in told[0].partition(": ")[2].split("; "))
    assert said == {
        "dates": "date",
        "text": "comment, id",
        "named like a setting or a summary": "learning_rate, runtime",
        "empty": "nothing",
        "true or false": "passed",
    }
    chosen = oo.import_scores(tmp_path / "wide.csv", test_sets=["hans", "rte"])
    assert any("mnli (not among --test-set)" in note.replace("learning_rate, runtime, ", "") for note in chosen.notes)


def test_a_wide_table_of_scores_alone_has_no_such_note(tmp_path: Path) -> None:
    (tmp_path / "wide.csv").write_text("run,step,mnli,hans\na,0,0.5,0.4\na,1,0.6,0.5\n")
    assert not any("no test sets" in note for note in oo.import_scores(tmp_path / "wide.csv").notes)


@pytest.mark.parametrize(("cell", "told"), [("inf", "inf"), ("-inf", "-inf"), ("-1", "-1"), ("-0.2", "-0.2")])
def test_a_cell_that_is_no_accuracy_is_told_with_its_row(tmp_path: Path, cell: str, told: str) -> None:
    path = tmp_path / "t.csv"
    rows = [f"a,{step},0.5,0.6,0.4" for step in range(6)]
    rows[3:4] = ["a,,,,", f"a,3,{cell},0.6,0.4"]  # a row without scores counts as a row of the file
    path.write_text("\n".join(["run,step,snli,hans,rte", *rows]))
    with pytest.raises(DataError, match=rf"t\.csv row 5: snli is {told}, no accuracy; correct the cell, or leave"):
        oo.import_scores(path)


def test_digits_that_are_no_digits_to_pandas_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    rows = [f"a,{step},0.5,0.6,0.4" for step in range(6)]
    rows[3] = "a,3,\uff10.\uff15,0.6,0.4"
    path.write_text("\n".join(["run,step,snli,hans,rte", *rows]), encoding="utf-8")
    with pytest.raises(DataError, match=r"t\.csv row 4: snli is '\uff10\.\uff15', the other cells are numbers"):
        oo.import_scores(path)


def test_lines_may_end_as_on_old_macs(tmp_path: Path) -> None:
    table = study(digits=12)
    written(wide(table), tmp_path / "t.csv")
    (tmp_path / "cr.csv").write_bytes((tmp_path / "t.csv").read_bytes().replace(b"\r\n", b"\n").replace(b"\n", b"\r"))
    same(oo.import_scores(tmp_path / "cr.csv").table, table)


def test_an_index_that_pandas_wrote_is_called_one(tmp_path: Path) -> None:
    table = wide(study())
    table.to_csv(tmp_path / "t.csv")
    table[["run", "step"]].assign(**{"": 7.5}).join(table[list(SETS)]).to_csv(tmp_path / "other.csv", index=False)
    assert (
        "columns that are no test sets: column 1 (unnamed, a row index)" in oo.import_scores(tmp_path / "t.csv").notes
    )
    assert "columns that are no test sets: column 3 (unnamed)" in oo.import_scores(tmp_path / "other.csv").notes


def test_an_in_domain_set_of_another_metric_is_told(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("\n".join(["run,step,snli_f1,hans_acc,rte_acc", *(f"a,{s},0.5,0.6,0.4" for s in range(6))]))
    with pytest.raises(DataError, match=r"t\.csv: in-domain set snli has no accuracy, only f1; add its accuracy, or"):
        oo.analyse(path, in_domain="snli")


def test_columns_taken_for_settings_are_told_where_too_few_test_sets_are_left(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("\n".join(["run,step,snli,hans,best,mean", *(f"a,{s},0.{s}5,0.6,0.4,0.5" for s in range(6))]))
    with pytest.raises(DataError) as caught:
        oo.analyse(path, in_domain="snli")
    assert str(caught.value).endswith(
        "a correlation needs two; columns that are no test sets: best, mean (named like a setting or a summary);"
        " choose test sets with --test-set"
    )


def test_two_columns_that_could_be_one_set_by_a_trainers_prefix_are_two_sets(tmp_path: Path) -> None:
    frame = wide(study()).rename(columns={"hans": "hans_accuracy"})
    frame = frame.assign(eval_hans_accuracy=frame["hans_accuracy"] / 2)
    found = oo.import_scores(written(frame, tmp_path / "t.csv"), in_domain="snli").table
    means = found.groupby("test_set")["value"].mean()
    assert {"hans", "eval_hans"} < {*means.index}
    assert means["eval_hans"] == pytest.approx(means["hans"] / 2)


def test_two_runs_may_be_called_best_and_last(tmp_path: Path) -> None:
    """Among three runs, one called best sums up the others; of two, both are runs."""
    table = study(runs=3)
    names = dict(zip(sorted(table["run"].unique()), ("best", "last", "first"), strict=True))
    table = table.assign(run=table["run"].map(names))
    two = oo.import_scores(written(table[table["run"] != "first"], tmp_path / "two.csv")).table
    assert {*two["run"]} == {"best", "last"}
    with pytest.raises(DataError, match="run is 'best', a summary of the others"):
        oo.import_scores(written(table, tmp_path / "three.csv"))


def test_two_metrics_that_are_called_nearly_the_same_stay_two(tmp_path: Path) -> None:
    table = study()
    both = pd.concat([table.assign(metric="Acc", value=table["value"] / 2), table.assign(metric="accuracy")])
    found = oo.import_scores(written(both, tmp_path / "both.csv")).table
    assert found.groupby("metric")["value"].mean().to_dict() == pytest.approx(
        {"Acc": table["value"].mean() / 2, "accuracy": table["value"].mean()}
    )
    alone = oo.import_scores(written(both[both["metric"] == "Acc"], tmp_path / "alone.csv")).table
    assert {*alone["metric"]} == {"accuracy"}


def test_one_row_without_a_name_is_asked_whose_it_is(tmp_path: Path) -> None:
    """A file of several steps is one run; of one row nobody knows whether others belong to it."""
    path = written(wide(study()).drop(columns="run").head(1), tmp_path / "t.csv")
    with pytest.raises(DataError, match="no column names the run"):
        oo.import_scores(path)


CELLS = {
    "object": lambda column: column.astype(object),
    "text": lambda column: column.astype(str),
    "string with NA": lambda column: column.astype("string"),
    "category": lambda column: column.astype("category"),
    "Decimal": lambda column: column.map(lambda value: Decimal(str(value))),
    "per cent": lambda column: column.map(lambda value: f"{100 * value:.2f}%"),
    "a gap": lambda column: pd.Series(["-", *column[1:]], dtype=object),
    "pd.NA": lambda column: pd.Series([pd.NA, *column[1:]], dtype=object),
}


@pytest.mark.parametrize("cells", CELLS)
@pytest.mark.parametrize("kind", ["frame", "parquet"])
def test_numbers_in_a_column_of_another_kind_are_read_as_from_csv(tmp_path: Path, kind: str, cells: str) -> None:
    frame = wide(study(digits=4))
    frame["hans"] = CELLS[cells](frame["hans"])
    if kind == "parquet" and cells == "a gap":
        frame["hans"] = frame["hans"].astype(str)
    expected = oo.import_scores(written(frame, tmp_path / "scores.csv")).table
    source = frame if kind == "frame" else written(frame, tmp_path / "scores.parquet")
    analysis = oo.analyse(source, in_domain="snli", by="none")
    assert not any("hans" in note for note in analysis.notes if note.startswith("columns that are no test sets"))
    wanted = expected[expected["test_set"] == "hans"].sort_values(["run", "step"])["value"].to_numpy()
    found = analysis.long_table[analysis.long_table["test_set"] == "hans"].sort_values(["run", "step"])["value"]
    np.testing.assert_allclose(found.to_numpy(), wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("x", "table row 2: hans is 'x', the other cells are numbers; correct the cell, or leave it empty"),
        (True, "table row 2: hans is True, other cells are numbers"),
        (10**400, "table row 2: hans is 1000000000"),
    ],
    ids=["text", "true", "beyond any float"],
)
def test_a_cell_that_spoils_a_column_of_a_frame_is_named(cell: object, said: str) -> None:
    frame = wide(study())
    frame["hans"] = pd.Series([frame["hans"][0], cell, *frame["hans"][2:]], dtype=object)
    frame.index = pd.Index(range(5, 5 + len(frame)))
    with pytest.raises(DataError) as caught:
        oo.analyse(frame, in_domain="snli")
    assert said in str(caught.value)


def test_names_of_a_frame_stay_text(tmp_path: Path) -> None:
    frame = wide(study()).rename(columns={"run": "experiment"})
    codes = {name: f"00{place}" for place, name in enumerate(frame["experiment"].unique())}
    frame["experiment"] = frame["experiment"].map(codes)
    assert set(oo.analyse(frame, in_domain="snli").long_table["run"]) == set(codes.values())
    other = frame.rename(columns={"experiment": "Job"})
    assert set(oo.analyse(other, in_domain="snli", maps="run=Job").long_table["run"]) == set(codes.values())
    stored = written(other, tmp_path / "scores.parquet")
    assert set(oo.import_scores(stored, maps="run=Job").table["run"]) == set(codes.values())


def test_levels_of_an_index_that_are_columns_too_are_left_out() -> None:
    frame = wide(study())
    expected = oo.analyse(frame, in_domain="snli").result.table
    indexed = frame.set_index(["run", "step"], drop=False)
    for source in (indexed, indexed.drop(columns="step"), indexed.drop(columns="run")):
        pd.testing.assert_frame_equal(oo.analyse(source, in_domain="snli").result.table, expected)


def test_a_long_frame_is_read_as_a_file_is(tmp_path: Path) -> None:
    table = study(digits=3)
    plain = oo.analyse(table, in_domain="snli", by="none")
    assert plain.notes == ()  # shares under the usual names are taken as they are
    sized = table.assign(n=1000)
    frames = {
        "per cent": sized.assign(value=100 * sized["value"]),
        "text": sized.assign(value=[f"{100 * value:.1f} %" for value in sized["value"]]),
        "names": sized.rename(columns={"test_set": "task", "value": "score", "step": "steps"}),
        "indexed": sized.rename(columns={"test_set": "task"}).set_index(["run", "step"]),
        "no step": sized[sized["step"] == 8].drop(columns="step"),
    }
    for name, frame in frames.items():
        before = frame.copy()
        (tmp_path / f"{name}.csv").write_text(frame.to_csv(index=name == "indexed"))
        from_file = oo.analyse(tmp_path / f"{name}.csv", in_domain="snli", by="none")
        found = oo.analyse(frame, in_domain="snli", by="none")
        pd.testing.assert_frame_equal(found.result.table, from_file.result.table)
        assert found.notes == from_file.notes, name
        assert found.long_table["value"].max() <= 1, name
        pd.testing.assert_frame_equal(frame, before)
    losses = table.assign(metric="loss", value=3 * table["value"])
    assert oo.analyse(losses, in_domain="snli", by="none", metric="loss").notes == ()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda table: table.drop(columns="test_set"), "table: no column 'test_set'; required: run, step, test_set"),
        (
            lambda table: pd.concat([table, table["test_set"]], axis=1),
            "table: column 'test_set' appears more than once; keep one",
        ),
        (lambda table: table.assign(value=table["value"] + 0j), "table: column 'value' holds complex128"),
        (
            lambda table: table.pivot(index=["run", "step"], columns="test_set", values=["value"]),
            "table: columns have 2 levels, such as ('value', 'anli'); flatten them, one column per test set",
        ),
        (
            lambda table: wide(table).groupby("run")[list(SETS)].agg(["mean", "std"]),
            "table: columns have 2 levels, such as ('snli', 'mean'); flatten them, one column per test set",
        ),
    ],
)
def test_a_frame_that_is_no_table_of_scores_is_refused_in_one_line(change: Any, said: str) -> None:
    frame = change(study())
    for options in ({}, {"test_sets": ["hans", "anli"]}):
        with pytest.raises(DataError) as caught:
            oo.analyse(frame, in_domain="snli", **options)
        assert str(caught.value).startswith(said)
        assert "\n" not in str(caught.value)


def test_columns_of_bookkeeping_are_no_test_sets(tmp_path: Path) -> None:
    frame = wide(study())
    kept = ["mem", "memory", "gpu_mem", "peak_memory_gb", "fold", "k", "shift", "index", "level_0", "level_1"]
    busy = frame.assign(**{name: np.arange(len(frame)) / 100 for name in kept}, topk=frame["hans"])
    imported = oo.import_scores(written(busy, tmp_path / "scores.csv"))
    assert set(imported.table["test_set"]) == {*SETS, "topk"}
    (note,) = (note for note in imported.notes if note.startswith("columns that are no test sets"))
    assert "named like a setting" in note
    asked = oo.import_scores(tmp_path / "scores.csv", test_sets=["shift", "level_1"])
    assert set(asked.table["test_set"]) == {"shift", "level_1"}
    levels = frame.rename(columns=dict(zip(SETS[1:], ("level_1", "level_2", "level_3"), strict=True)))
    assert "level_1" in set(oo.import_scores(written(levels, tmp_path / "levels.csv")).table["test_set"])


def test_levels_of_an_index_without_names_are_no_test_sets() -> None:
    frame = wide(study())
    both = frame.set_index([frame["run"], np.arange(len(frame)) / 100])
    both.index.names = ["run", None]
    numbers = frame.set_index([np.arange(len(frame)) % 2, np.arange(len(frame)) / 100])
    for source in (both, numbers, frame.set_index(np.arange(len(frame)) / 100)):
        found = oo.analyse(source, in_domain="snli")
        assert set(found.long_table["test_set"]) == set(SETS)


def test_files_of_one_name_are_runs_that_are_called_as_their_folders(tmp_path: Path) -> None:
    frame = wide(study())
    files = []
    for place, (_, own) in enumerate(frame.groupby("run")):
        folder = tmp_path / "sub" / f"seed_{place}"
        folder.mkdir(parents=True)
        files.append(written(own.drop(columns="run"), folder / "results.csv"))
    found = oo.import_scores(files).table
    assert set(found["run"]) == {f"seed_{place}" for place in range(6)}
    assert set(oo.import_scores(tmp_path / "sub").table["run"]) == set(found["run"])
    same_correlations(files, study())
    rows = [written(pd.read_csv(file).tail(1).drop(columns="step"), file) for file in files]
    assert set(oo.import_scores(rows, maps="run=row").table["run"]) == {f"seed_{place} row 1" for place in range(6)}


def test_a_run_in_several_files_of_one_name_is_told(tmp_path: Path) -> None:
    frame = wide(study())
    files = []
    for folder, own in (("first", frame[frame["step"] < 5]), ("second", frame[frame["step"] > 5])):
        (tmp_path / folder).mkdir()
        files.append(written(own, tmp_path / folder / "results.csv"))
    notes = oo.import_scores(files).notes
    assert any("is in first/results.csv, second/results.csv: taken as one run" in note for note in notes)


def test_examples_may_be_told_by_the_name_of_the_column(tmp_path: Path) -> None:
    frame = wide(study()).rename(columns={"snli": "snli_acc"})
    path = written(frame, tmp_path / "scores.csv")
    for called in ("snli", "snli_acc"):
        table = oo.analyse(path, in_domain="snli_acc", n={called: 9842}).long_table
        assert set(table.loc[table["test_set"] == "snli", "n"]) == {9842}
    assert oodles("analyse", path, "--in-domain", "snli_acc", "--n", "snli_acc=9842").returncode == 0
    with pytest.raises(ConfigError, match="n of snli is 9842 and, called snli, 9000; leave one out"):
        oo.analyse(path, in_domain="snli", n={"snli_acc": 9842, "snli": 9000})
    done = oodles("analyse", written(wide(study()), tmp_path / "t.csv"), "--in-domain", "SNLI", "--n", "SNLI=9842")
    assert done.returncode == 2
    assert "in-domain set 'SNLI' is not in the table; did you mean 'snli'?" in done.stderr


def test_epochs_in_place_of_steps_are_told_what_to_write(tmp_path: Path) -> None:
    frame = wide(study()).assign(epoch=lambda table: table.pop("step") / 8)
    path = written(frame, tmp_path / "scores.csv")
    with pytest.raises(DataError, match="add a column step of whole numbers, such as epoch times the steps per epoch"):
        oo.import_scores(path)
    with pytest.raises(DataError, match=r"row.* step is 0.25; expected .*; of epochs write epoch times the steps per"):
        oo.import_scores(path, maps="step=epoch")
    whole = written(frame.assign(epoch=frame["epoch"] * 8), tmp_path / "whole.csv")
    with pytest.raises(DataError, match="name what tells them apart: --map step=epoch"):
        oo.import_scores(whole)


@pytest.mark.parametrize("separator", [",", ";", "|"])
def test_a_tsv_file_without_tabs_is_read_by_what_separates_it(tmp_path: Path, separator: str) -> None:
    wide(study()).to_csv(tmp_path / "g.tsv", index=False, sep=separator)
    same(oo.import_scores(tmp_path / "g.tsv").table, study())


def test_names_that_differ_in_blanks_are_told() -> None:
    table = study()
    table["test_set"] = table["test_set"].replace("rte_x", "hans ")
    with pytest.raises(
        DataError, match="has different values; keep one of them, or rename 'hans ', which is 'hans' but"
    ):
        oo.analyse(table, in_domain="snli")
    with pytest.raises(DataError, match="table: columns 'hans' and 'hans ' differ in blanks only; rename one"):
        oo.analyse(wide(study()).rename(columns={"rte_x": "hans "}), in_domain="snli")


def test_a_column_in_per_cent_with_low_scores_may_be_left_out(tmp_path: Path) -> None:
    frame = wide(study())
    frame[[*SETS]] *= 100
    frame["exactmatch"] = np.linspace(0.2, 1.4, len(frame))
    path = written(frame, tmp_path / "scores.csv")
    with pytest.raises(DataError) as caught:
        oo.import_scores(path)
    said, _, cure = str(caught.value).partition(", or leave the column out, e.g. ")
    assert said.endswith("exactmatch is 0.2, other rows go up to 1.4; write all as shares or all as per cent")
    assert cure == "--test-set snli --test-set hans --test-set rte_x --test-set anli"
    same(oo.import_scores(path, test_sets=shlex.split(cure)[1::2]).table, study(), 1e-12)


def test_truths_and_dates_with_gaps_in_a_frame_are_left_out() -> None:
    frame = wide(study())
    gaps = [np.nan] * (len(frame) - 2)
    busy = frame.assign(
        passed=pd.Series([True, False, *gaps], dtype=object),
        when=pd.Series([datetime(2025, 1, 2), datetime(2025, 1, 3), *gaps], dtype=object),
    )
    assert set(oo.analyse(busy, in_domain="snli").long_table["test_set"]) == set(SETS)


def checkpoints(folder: Path, name: str) -> None:
    """Two runs, a file per checkpoint and no column that says which."""
    for run, rows in wide(study(runs=2)).groupby("run"):
        for step, row in rows.groupby("step"):
            path = folder / str(run) / name.format(step)
            path.parent.mkdir(parents=True, exist_ok=True)
            written(row.drop(columns=["run", "step"]), path)


@pytest.mark.parametrize("name", ["checkpoint-{}/results.csv", "step{}/results.csv", "{}/results.csv"])
def test_folders_of_checkpoints_are_no_runs(tmp_path: Path, name: str) -> None:
    checkpoints(tmp_path / "all", name)
    with pytest.raises(DataError):
        oo.analyse(tmp_path / "all", in_domain="snli", exact=True)


def test_files_of_one_run_in_folders_of_their_test_sets_are_one_run(tmp_path: Path) -> None:
    table = study(runs=6).drop(columns="role", errors="ignore")
    for (name, run), rows in table.groupby(["test_set", "run"]):
        (tmp_path / "all" / str(name)).mkdir(parents=True, exist_ok=True)
        written(rows.drop(columns="run"), tmp_path / "all" / str(name) / f"{run}.csv")
    found = oo.analyse(tmp_path / "all", in_domain="snli", by="none").result.table
    assert set(found["n_runs"]) == {6}


def test_texts_of_a_frame_that_are_no_scores_stay_texts(tmp_path: Path) -> None:
    """Versions 1.1 and 1.10 are two groups, 007 and 7 two units, and neither is a test set; in Parquet too."""
    frame = wide(study(runs=12))
    place = frame["run"].map({run: k for k, run in enumerate(sorted(frame["run"].unique()))})
    frame = frame.assign(
        version=np.where(place < 6, "1.1", "1.10"), cfg=place.map(lambda k: "0" * (k % 2) + str(7 + k // 2)), p="0.5"
    )
    long = frame.melt(["run", "step", "version", "cfg", "p"], var_name="test_set", value_name="value")
    for source in (frame, long, long.assign(value=100 * long["value"]), written(frame, tmp_path / "scores.parquet")):
        found = oo.analyse(source, in_domain="snli", by="version")
        assert set(found.result.table["version"]) == {"1.1", "1.10"}
        assert not {"p", "cfg", "version"} & set(found.long_table["test_set"])
        units = oo.analyse(source, in_domain="snli", by="none", unit="cfg").result.table["n_units"]
        assert set(units) == {12}
