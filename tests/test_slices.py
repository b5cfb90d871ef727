from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from conftest import oodles
from oodles.api.records import StoredRecords
from oodles.contracts import Example, Pattern
from oodles.disk import write_json
from oodles.errors import ConfigError
from oodles.stats.cautions import sharing
from oodles.stats.correlate import partial_correlations
from oodles.store.sidecars import read_json
from oodles.store.table import DamageWarning, read_records, read_runs
from oodles.suite.patterns import render
from oodles.suite.slices import members_of, resolve_slice, slice_names, strata_of

COLUMNS = {
    "label": ["yes", "no", "yes", "no"],
    "heuristic": ["lex", "lex", "con", "con"],
    "subcase": ["ln_subject/object_swap", "lex", "con/yes", "c"],
}


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("hans/heuristic=lex", {"heuristic": "lex"}),
        ("hans/yes", {"label": "yes"}),
        ("hans/ln_subject/object_swap", {"subcase": "ln_subject/object_swap"}),
        ("hans/ln_subject/object_swap/yes", {"subcase": "ln_subject/object_swap", "label": "yes"}),
        ("hans/no/c/con", {"label": "no", "subcase": "c", "heuristic": "con"}),
    ],
)
def test_slices_are_named_by_values(name: str, values: dict[str, str]) -> None:
    found = resolve_slice(name, COLUMNS)
    assert (found.parent, found.values) == ("hans", values)


def test_unknown_and_ambiguous_slices_are_refused() -> None:
    with pytest.raises(ConfigError, match="no such slice of 'hans'; did you mean 'ln_subject/object_swap'"):
        resolve_slice("hans/ln_subject_object_swap", COLUMNS)
    with pytest.raises(
        ConfigError, match=r"'hans/lex' is ambiguous \(hans/(heuristic|subcase)=lex or .*\); name the column"
    ):
        resolve_slice("hans/lex", COLUMNS)
    with pytest.raises(ConfigError, match="is ambiguous"):
        resolve_slice("hans/con/yes", COLUMNS)  # a subcase of that name, or con and yes


def test_every_listed_name_resolves_to_its_size() -> None:
    for name, size in slice_names("hans", COLUMNS).items():
        values = resolve_slice(name, COLUMNS).values
        assert size == sum(all(COLUMNS[c][i] == v for c, v in values.items()) for i in range(4))


def test_overlapping_slices_share_examples_and_disjoint_ones_do_not() -> None:
    told = {n: str(resolve_slice(n, COLUMNS)) for n in ("h/heuristic=lex", "h/heuristic=con", "h/yes")}
    shared = sharing(["h", *told], dict.fromkeys(told, "h"), told)
    assert shared["h/heuristic=lex"] == {"h", "h/yes"}
    assert shared["h"] == set(told)
    assert "h/heuristic=con" not in shared["h/heuristic=lex"]


def test_a_mask_follows_the_sample() -> None:
    pattern = Pattern(name="q", text="{t}", answers=(" a", " b"))
    rows = [
        Example(id=str(i), fields={"t": f"x{i}"}, label="yn"[i % 2], answer=i % 2, slices={"k": "uv"[i // 5]})
        for i in range(10)
    ]
    members = members_of(render(pattern, rows, "t", limit=6), rows)
    mask = resolve_slice("t/u/y", members.columns).mask(members)
    chosen = [identity for identity, inside in zip(members.ids, mask, strict=True) if inside]
    assert set(chosen) <= {"0", "2", "4"}
    assert len(members.ids) == 6


@pytest.fixture(scope="module")
def sliced(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Path:
    """A finished study whose test set `away` has slices by `kind`."""
    folder = tmp_path_factory.mktemp("sliced")
    suite = 'schema = 1\nname = "toy"\n[patterns.question]\ntext = "{premise} Question: {hypothesis} Yes or No?"\n'
    suite += 'answers = [" Yes", " No"]\ntruncate = "premise"\n'
    for kind, name in (("train", "home"), ("test", "home"), ("test", "away"), ("test", "far")):
        suite += f'\n[[{kind}_sets]]\nname = "{name}"\nsource = {{ file = "{name}_{kind}.csv" }}\n'
        suite += 'labels = { e = 0, c = 1 }\nslices = ["kind"]\n'
        lines = ["premise,hypothesis,label,kind"]
        lines += [f"A {name} {kind} text {i}.,It is {i}.,{'ec'[i % 2]},{'uv'[i % 3 == 0]}" for i in range(24)]
        (folder / f"{name}_{kind}.csv").write_text("\n".join(lines))
    (folder / "suite.toml").write_text(suite)
    (folder / "study.toml").write_text(
        'schema = 1\nname = "toy"\nsuite = "suite.toml"\n[grid]\nmodels = ["tiny-llama-untrained"]\n'
        'train_sets = ["home"]\nshots = [8]\nseeds = [0, 1]\n[train]\nepochs = 2\nbatch_size = 4\n'
        'learning_rate = 1e-2\n[eval]\ntest_sets = ["home", "away/u", "far", "home/e"]\nshots = true\n'
    )
    done = oodles("run", folder / "study.toml", "--out", folder / "out", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_a_slice_is_read_from_the_records_of_its_set(sliced: Path) -> None:
    table = read_runs(sliced / "out")
    assert set(table["test_set"]) == {"home", "away", "away/u", "far", "home/e", "shots"}
    stored = {p.stem for p in (sliced / "out" / "runs").rglob("records/*/*.parquet")}
    assert stored == {"home", "away", "far", "shots"}  # a slice is never scored, never stored
    accuracy = table[(table["metric"] == "accuracy") & (table["test_set"] == "away/u")]
    records = read_records(sliced / "out")
    for row in accuracy.itertuples():
        mine = records[(records["run"] == row.run) & (records["step"] == row.step) & (records["test_set"] == "away")]
        inside = mine["example"].astype(int) % 3 != 0
        assert row.value == pytest.approx(mine.loc[inside, "correct"].mean())
        assert row.n == inside.sum() == 16
    part = records[records["test_set"] == "away/u"]
    assert len(part) == 16 * len(accuracy)


def test_chance_is_that_of_the_best_constant_answer(sliced: Path) -> None:
    table = read_runs(sliced / "out")
    told = table[table["metric"] == "accuracy"].groupby("test_set")["chance"].unique().map(list).to_dict()
    told.pop("shots")  # whose members are not kept
    assert told == {"home": [0.5], "away": [0.5], "far": [0.5], "away/u": [0.5], "home/e": [1.0]}
    assert table.loc[table["metric"] != "accuracy", "chance"].isna().all()


def test_roles_of_slices_and_shots(sliced: Path) -> None:
    table = read_runs(sliced / "out")
    roles = dict(zip(table["test_set"], table["role"], strict=True))
    assert roles["away/u"] == "ood"
    assert roles["home/e"] == roles["shots"] == "other"
    told = table[table["test_set"] == "away/u"].iloc[0]
    assert (told["slice_of"], json.loads(told["slice"])) == ("away", {"kind": "u"})


def test_slices_can_be_chosen_after_the_runs(sliced: Path) -> None:
    table = read_runs(sliced / "out", ["away/v/e", "far"])
    assert set(table["test_set"]) == {"home", "away/v/e", "far"}
    done = oodles("analyse", sliced / "out", "--test-set", "away/kind=v", "--test-set", "far", "--json")
    assert {(r["a"], r["b"]) for r in json.loads(done.stdout)["pairs"]} == {("away/kind=v", "far")}
    done = oodles("analyse", sliced / "out", "--test-set", "awai")
    assert done.returncode == 2
    assert "no scores of test set 'awai'; choose another --test-set (did you mean 'away'?)" in done.stderr


def test_a_set_is_not_correlated_with_what_shares_its_examples(sliced: Path) -> None:
    names = ["away", "away/u", "away/v", "away/e", "far"]
    options = [option for name in names for option in ("--test-set", name)]
    rows = json.loads(oodles("analyse", sliced / "out", *options, "--json").stdout)["pairs"]
    pairs = {(r["a"], r["b"]) for r in rows}
    assert ("away/u", "away/v") in pairs
    assert not pairs & {("away", "away/u"), ("away", "away/e"), ("away/e", "away/u"), ("away/e", "away/v")}


def test_a_slice_that_does_not_exist_stops_before_training(sliced: Path) -> None:
    asked = 'eval.test_sets=["home", "away/w", "far"]'
    done = oodles("run", sliced / "study.toml", "--set", asked, "--out", sliced / "none", cwd=sliced)
    assert done.returncode == 2
    assert "test set 'away/w': no such slice of 'away'" in done.stderr
    assert not (sliced / "none").exists()


def test_the_report_and_the_list_know_slices(sliced: Path) -> None:
    assert oodles("report", sliced / "out").returncode == 0
    page = (sliced / "out" / "report.html").read_text()
    assert "away/u" in page
    assert "shots" in page
    listed = json.loads(oodles("suites", sliced / "suite.toml", "--slices", "--json").stdout)
    assert {"slice": "away/u", "column": "kind", "n": 16} in listed


@pytest.mark.parametrize("more", [[], ["--set", "grid.seeds=[0, 1, 2]"]])
@pytest.mark.parametrize(
    ("old", "new"), [("It is 3.", "It is three."), (",e,u", ",c,u"), (",e,u", ",e,v")], ids=["text", "label", "slice"]
)
def test_changed_data_are_not_mixed_with_earlier_scores(
    sliced: Path, tmp_path: Path, more: list[str], old: str, new: str
) -> None:
    """The same study on data that changed, all runs finished or not: refused, and nothing is touched."""
    folder = tmp_path / "copy"
    shutil.copytree(sliced, folder)
    far = folder / "far_test.csv"
    assert old in far.read_text()
    far.write_text(far.read_text().replace(old, new, 1))
    before = {p: p.read_bytes() for p in (folder / "out").rglob("*") if p.is_file()}
    done = oodles("run", folder / "study.toml", "--out", folder / "out", *more, cwd=folder)
    assert done.returncode == 2
    assert "test set 'far' differs from earlier runs (" in done.stderr
    assert "its data, labels or slices changed" in done.stderr
    assert {p: p.read_bytes() for p in (folder / "out").rglob("*") if p.is_file()} == before


def test_items_are_examples_that_share_a_premise_or_a_column() -> None:
    pattern = Pattern(name="q", text="{premise} {hypothesis}", answers=(" a", " b"), truncate="premise")
    rows = [
        Example(
            id=str(i),
            fields={"premise": f"p{i // 2}", "hypothesis": f"h{i}"},
            label="yn"[i % 2],
            answer=i % 2,
            slices={"template": f"t{i // 4}"},
        )
        for i in range(8)
    ]
    every, some = render(pattern, rows, "t"), render(pattern, rows, "t", limit=4)
    assert members_of(every, rows).items == tuple(range(8))
    assert members_of(every, rows, item="premise").items == (0, 0, 2, 2, 4, 4, 6, 6)
    assert members_of(every, rows, item="template").items == (0, 0, 0, 0, 4, 4, 4, 4)
    sampled = members_of(some, rows, item="premise")
    assert sampled.items == tuple(int(i) // 2 * 2 for i in sampled.ids)  # the same number in every sample


def test_strata_are_labels_and_slices_that_hold_two_items() -> None:
    columns = {"label": list("eeeeeennnn"), "kind": list("uuvvwxuuvv")}
    assert strata_of(columns, np.arange(10)).tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    # one template per kind: only the label is left
    assert strata_of(columns, np.array([0, 0, 1, 1, 2, 3, 4, 4, 5, 5])).tolist() == [0] * 6 + [1] * 4
    # a label's last item joins the label's largest stratum, never another label's
    assert strata_of({"label": list("eeen"), "kind": list("uuvw")}, np.arange(4)).tolist() == [0, 0, 0, 1]


def test_members_keep_the_items_of_hans_and_of_premises(sliced: Path) -> None:
    (away,) = (sliced / "out" / "sets").glob("away-*.parquet")
    assert pd.read_parquet(away)["item"].tolist() == list(range(24))
    records = read_records(sliced / "out")
    assert {"item", "stratum"} <= set(records.columns)
    part = records[(records["test_set"] == "away") & (records["step"] == 0)].head(24)
    assert part["stratum"].nunique() == 4  # label x kind


def test_stored_records_give_what_the_table_of_records_gives(sliced: Path) -> None:
    names = ["away", "away/u", "far"]
    table = read_runs(sliced / "out", names)
    by_table = partial_correlations(table, read_records(sliced / "out", names), shared_examples=True)
    stored = StoredRecords.read(sliced / "out", names)
    by_set = partial_correlations(table, stored, shared_examples=True)
    pd.testing.assert_frame_equal(by_table.fits, by_set.fits)
    pd.testing.assert_frame_equal(by_table.table, by_set.table)
    assert set(by_set.fits["reliability_from"]) == {"records"}


def test_stored_records_without_members_stand_alone(sliced: Path, tmp_path: Path) -> None:
    shutil.copytree(sliced / "out", tmp_path / "out")
    table = read_runs(tmp_path / "out", ["away", "far"])
    shutil.rmtree(tmp_path / "out" / "sets")
    study = read_json(tmp_path / "out" / "study.json")
    older = {key: value for key, value in study.items() if key not in ("checksum", "sets", "members")}
    write_json(tmp_path / "out" / "study.json", older)
    result = partial_correlations(table, StoredRecords.read(tmp_path / "out", ["away", "far"]))
    assert set(result.fits["reliability_from"]) == {"records"}
    assert any("records without labels" in said for said in result.table["caveats"].iloc[0])


@pytest.mark.parametrize("harm", ["item", "gold", "slice:label", "slice:kind", "example", "another set", "gone"])
def test_a_set_that_is_not_the_stored_one_is_noted_and_not_used(harm: str, sliced: Path, tmp_path: Path) -> None:
    root = tmp_path / "out"
    shutil.copytree(sliced / "out", root)
    (file,), (far,) = (list((root / "sets").glob(f"{name}-*.parquet")) for name in ("away", "far"))
    if harm == "gone":
        file.unlink()
    elif harm == "another set":
        file.write_bytes(far.read_bytes())
    else:
        held = pq.read_table(file)
        cells = held.column(harm).to_pylist()
        changed = held.set_column(held.column_names.index(harm), harm, pa.array([*cells[1:], cells[0]]))
        pq.write_table(changed, file)  # with the file's own metadata
    names = ["away", "far", "away/u"]
    with pytest.warns(DamageWarning) as told:
        table = read_runs(root, names)
    note = f"{file}: .*; run the study again to rewrite it; test set 'away' is analysed without records and slices"
    assert len(told) == 1
    assert re.fullmatch(note, str(told[0].message))
    assert set(table.test_set) == {"home", "away", "far"}
    away = table[(table.test_set == "away") & (table.metric == "accuracy")]
    assert away["chance"].isna().all()
    stored = StoredRecords.read(root, names)
    result = partial_correlations(table, stored)
    assert dict(zip(result.fits["test_set"], result.fits["reliability_from"], strict=True)) == {
        "away": "binomial",
        "far": "records",
    }
    assert stored.notes.texts == table.attrs["notes"]
    with pytest.warns(DamageWarning):
        assert set(read_records(root, names).test_set) == {"home", "far"}


def test_damaged_records_are_noted_and_not_used(sliced: Path, tmp_path: Path) -> None:
    shutil.copytree(sliced / "out", tmp_path / "out")
    file = next((tmp_path / "out" / "runs").rglob("records/4/away.parquet"))
    file.write_bytes(file.read_bytes()[:-9] + b"123456789")
    stored = StoredRecords.read(tmp_path / "out", ["away", "far"])
    result = partial_correlations(read_runs(tmp_path / "out", ["away", "far"]), stored)
    sources = dict(zip(result.fits["test_set"], result.fits["reliability_from"], strict=True))
    assert sources == {"away": "binomial", "far": "records"}
    assert any("away.parquet: damaged" in note for note in stored.notes.texts)
