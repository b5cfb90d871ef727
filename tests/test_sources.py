from __future__ import annotations

import shutil
import zipfile
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from oodles.contracts import DataSet, Source, Suite
from oodles.errors import ConfigError, DataError
from oodles.suite.load import load_suite
from oodles.suite.sources import fetch_sets, load_examples, load_origin, set_hash

ROWS = pd.DataFrame(
    {"idx": [5, 6, 7], "s1": ["A.", "B.", "C."], "s2": ["x.", "y.", "z."], "gold": [0, 1, 2], "kind": ["u", "v", "u"]}
)
DATA = DataSet(
    name="t",
    source=Source(file="t.parquet"),
    columns={"premise": "s1", "hypothesis": "s2", "label": "gold", "id": "idx"},
    labels={"0": 0, "2": 1},
    drop=("1",),
    slices=("kind",),
)


def suite_in(folder: Path) -> Suite:
    return Suite(name="s", patterns={}, train_sets={}, test_sets={}, folder=str(folder))


def with_(data: DataSet, **changes: object) -> DataSet:
    from dataclasses import replace

    return replace(data, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("suffix", ["parquet", "csv", "tsv", "jsonl"])
def test_every_file_format_gives_the_same_examples(tmp_path: Path, suffix: str) -> None:
    writers = {
        "parquet": lambda p: ROWS.to_parquet(p),
        "csv": lambda p: ROWS.to_csv(p, index=False),
        "tsv": lambda p: ROWS.to_csv(p, index=False, sep="\t"),
        "jsonl": lambda p: ROWS.to_json(p, orient="records", lines=True),
    }
    writers[suffix](tmp_path / f"t.{suffix}")
    examples = load_examples(suite_in(tmp_path), with_(DATA, source=Source(file=f"t.{suffix}")))
    assert [(e.id, e.label, e.answer) for e in examples] == [("5", "0", 0), ("7", "2", 1)]
    assert examples[1].fields == {"premise": "C.", "hypothesis": "z."}
    assert examples[1].slices == {"kind": "u"}


def test_a_hub_folder_is_read_through_datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real loading code of the hub, on a local folder in the hub's layout."""
    pytest.importorskip("datasets")
    (tmp_path / "repo" / "data").mkdir(parents=True)
    ROWS.to_parquet(tmp_path / "repo" / "data" / "test-00000-of-00001.parquet")
    source = Source(hub=str(tmp_path / "repo"), split="test")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    examples = load_examples(suite_in(tmp_path), with_(DATA, source=source))
    assert [e.id for e in examples] == ["5", "7"]
    with pytest.raises(DataError, match=r"none.*Couldn't find any data file"):
        load_examples(suite_in(tmp_path), with_(DATA, source=Source(hub=str(tmp_path / "none"), split="test")))


def test_labels_without_mapping_name_the_row(tmp_path: Path) -> None:
    ROWS.to_parquet(tmp_path / "t.parquet")
    with pytest.raises(
        DataError,
        match=r"s/t: .*t\.parquet row 2: label '1' has no mapping \(1 rows have it\); mapped: 0, 2; map it or drop it",
    ):
        load_examples(suite_in(tmp_path), with_(DATA, drop=()))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"source": Source(file="none.parquet")}, r"no such file"),
        ({"source": Source(file="t.docx")}, r"not a .parquet, .csv, .tsv or .jsonl"),
        ({"columns": {"premise": "s3", "label": "gold"}}, r"t\.parquet: no column 's3'; known: gold, idx"),
        ({"columns": {"premise": "s1"}}, r"no column 'label'"),
        ({"drop": ("0", "1", "2"), "labels": {}}, r"no example is left"),
        ({"columns": {**DATA.columns, "id": "kind"}}, r"id 'u' occurs more than once"),
        ({"columns": {**DATA.columns, "id": "idd"}}, r"no column 'idd'; did you mean 'idx'"),
        ({"source": Source(generator="maxi")}, r"no generator 'maxi'"),
        ({"source": Source(generator="mini")}, r"s/t: "),
    ],
)
def test_bad_data_get_one_clear_line(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    ROWS.to_parquet(tmp_path / "t.parquet")
    with pytest.raises(DataError, match=message) as caught:
        load_examples(suite_in(tmp_path), with_(DATA, **changes))
    assert "\n" not in str(caught.value)


def test_a_damaged_file_names_itself(tmp_path: Path) -> None:
    (tmp_path / "t.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(DataError, match=r"t\.parquet cannot be read"):
        load_examples(suite_in(tmp_path), DATA)


def test_neutral_is_dropped_from_mini() -> None:
    suite = load_suite("mini")
    labels = {e.label for e in load_examples(suite, suite.test_sets["daily"])}
    assert labels == {"entailment", "contradiction"}


def test_set_hash_sees_content() -> None:
    suite = load_suite("mini")
    examples = load_examples(suite, suite.test_sets["daily"])
    assert set_hash(examples) == set_hash(list(examples))
    assert set_hash(examples) != set_hash(examples[1:])


def test_quotation_marks_in_tab_separated_files_are_text(tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_text(
        'idx\ts1\ts2\tgold\tkind\n1\t"Hi he said\tx\t0\tu\n2\tB.\ty\t2\tv\n3\t"Ho\tz\t0\tu\n'
    )
    examples = load_examples(suite_in(tmp_path), with_(DATA, source=Source(file="t.tsv")))
    assert [e.fields["premise"] for e in examples] == ['"Hi he said', "B.", '"Ho']


def test_nothing_in_a_cell_is_an_error_that_names_the_row(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text('{"premise": "A.", "label": 0}\n{"premise": null, "label": 0}\n')
    data = DataSet(name="t", source=Source(file="t.jsonl"), labels={"0": 0})
    with pytest.raises(DataError, match=r"s/t: .*t\.jsonl row 2: column 'premise' holds nothing"):
        load_examples(suite_in(tmp_path), data)
    (tmp_path / "t.jsonl").write_text('{"premise": "A.", "label": 0}\n{"premise": "B.", "label": null}\n')
    with pytest.raises(DataError, match=r"s/t: .*t\.jsonl row 2: column 'label' holds nothing"):
        load_examples(suite_in(tmp_path), data)
    (tmp_path / "t.jsonl").write_text('{"premise": "A.", "label": 0}\n{"premise": \n')
    with pytest.raises(DataError, match=r"t\.jsonl line 2: not JSON"):
        load_examples(suite_in(tmp_path), data)


# copies of hub data sets in a folder

HUB = with_(DATA, name="away", source=Source(hub="org/away", split="test"))


@pytest.mark.parametrize("place", ["away", "s/away"])
def test_a_folder_with_copies_is_looked_at_first(tmp_path: Path, place: str) -> None:
    (tmp_path / place).mkdir(parents=True)
    ROWS.to_parquet(tmp_path / place / "test.parquet")
    suite = replace(suite_in(tmp_path), data=str(tmp_path))
    assert [e.id for e in load_examples(suite, HUB)] == ["5", "7"]
    assert load_origin(suite, HUB).origin.endswith("away/test.parquet")
    assert load_origin(suite, HUB).counts == {"0": 1, "1": 1, "2": 1}


def test_a_set_that_is_nowhere_says_what_to_fetch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OODLES_CACHE", str(tmp_path / "cache"))
    with pytest.raises(DataError, match=r"oodles fetch TOML-OF-S --to DIR.*--data DIR") as caught:
        load_examples(replace(suite_in(tmp_path), data=str(tmp_path)), HUB)
    assert "HF_HUB_OFFLINE" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    data = DataSet(name="t", source=Source(file="t.jsonl"), labels={"0": 0})
    path.write_text('{"premise": "A.", "label": 0}\n')
    assert len(load_examples(suite_in(tmp_path), data)) == 1
    path.write_text('{"premise": "A.", "label": 0}\n{"premise": "B.", "label": 0}\n')
    assert len(load_examples(suite_in(tmp_path), data)) == 2


def test_nested_cells_are_reached_by_a_path(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text(
        '{"q": "Who?", "choices": {"text": ["I", "you"]}, "label": 0}\n'
        '{"q": "What?", "choices": {"text": ["x"]}, "label": 0}\n'
    )
    data = DataSet(name="t", source=Source(file="t.jsonl"), labels={"0": 0}, columns={"q": "q", "a": "choices.text.0"})
    assert [e.fields["a"] for e in load_examples(suite_in(tmp_path), data)] == ["I", "x"]
    with pytest.raises(DataError, match=r"t\.jsonl row 2: no 'choices\.text\.1' there"):
        load_examples(suite_in(tmp_path), with_(data, columns={"q": "q", "a": "choices.text.1"}))
    with pytest.raises(DataError, match=r"t\.jsonl row 1: column 'choices\.text' holds a list, expected text"):
        load_examples(suite_in(tmp_path), with_(data, columns={"q": "q", "a": "choices.text"}))


def test_a_column_missing_in_one_row_names_file_and_row(tmp_path: Path) -> None:
    lines = ['{"premise": "P.", "label": 0}'] * 8000
    lines[7000] = '{"label": 0}'
    (tmp_path / "t.jsonl").write_text("\n".join(lines))
    data = DataSet(name="t", source=Source(file="t.jsonl"), labels={"0": 0})
    with pytest.raises(DataError, match=r"s/t: .*t\.jsonl row 7001: no 'premise' there"):
        load_examples(suite_in(tmp_path), data)


def test_labels_get_their_names(tmp_path: Path) -> None:
    ROWS.to_parquet(tmp_path / "t.parquet")
    named = with_(DATA, label_names={"0": "yes", "1": "so", "2": "no"}, labels={"yes": 0, "no": 1}, drop=("so",))
    examples = load_examples(suite_in(tmp_path), named)
    assert [(e.label, e.answer) for e in examples] == [("yes", 0), ("no", 1)]


def test_fetching_leaves_a_strangers_file_alone(tmp_path: Path) -> None:
    (tmp_path / "to" / "away").mkdir(parents=True)
    ROWS.to_parquet(tmp_path / "to" / "away" / "test.parquet")
    suite = replace(suite_in(tmp_path), test_sets={"away": HUB})
    with pytest.raises(
        DataError, match=r"away/test\.parquet exists and is not a copy of org/away; choose another --to"
    ):
        fetch_sets(suite, tmp_path / "to", print)
    with pytest.raises(DataError, match="nothing to fetch"):
        fetch_sets(suite_in(tmp_path), tmp_path / "to", print)


def test_what_was_fetched_is_read_from_the_folder_and_from_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hub's own loading code on a local folder in the hub's layout; then neither it nor the hub is needed."""
    pytest.importorskip("datasets")
    (tmp_path / "repo" / "data").mkdir(parents=True)
    ROWS.to_parquet(tmp_path / "repo" / "data" / "test-00000-of-00001.parquet")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "hf"))
    monkeypatch.setenv("OODLES_CACHE", str(tmp_path / "cache"))
    data = with_(HUB, source=Source(hub=str(tmp_path / "repo"), split="test"))
    suite = replace(suite_in(tmp_path), test_sets={"away": data})
    for folder in (tmp_path / "to", None):
        ((_, path, held),) = fetch_sets(suite, folder, print)
        assert held.rows == 3
        assert fetch_sets(suite, folder, print)[0][2] == held  # again: nothing to do
        assert path.with_suffix(".json").is_file()
    shutil.rmtree(tmp_path / "repo")
    assert [e.id for e in load_examples(replace(suite, data=str(tmp_path / "to")), data)] == ["5", "7"]
    assert [e.id for e in load_examples(suite, data)] == ["5", "7"]


ROW = "premise\tlabel\tkind\nA.\tyes\tu\nB.\tno\t\n"
NAMED = DataSet(name="t", source=Source(file="t.txt"), labels={"yes": 0, "no": 1}, slices=("kind",))


def test_files_as_people_have_them(tmp_path: Path) -> None:
    """Tabs in a .txt, an ending that says nothing, a zip, several files."""
    (tmp_path / "t.txt").write_text(ROW)
    expected = [e.fields["premise"] for e in load_examples(suite_in(tmp_path), NAMED)]
    assert expected == ["A.", "B."]
    (tmp_path / "t.data").write_text(ROW)
    odd = with_(NAMED, source=Source(file="t.data", format="tsv"))
    assert [e.fields["premise"] for e in load_examples(suite_in(tmp_path), odd)] == expected
    with pytest.raises(DataError, match='say what it is with format = "tsv"'):
        load_examples(suite_in(tmp_path), with_(NAMED, source=Source(file="t.data")))
    with zipfile.ZipFile(tmp_path / "t.zip", "w") as archive:
        archive.writestr("../../t.tsv", ROW)
    packed = with_(NAMED, source=Source(file="t.zip"))
    assert [e.fields["premise"] for e in load_examples(suite_in(tmp_path), packed)] == expected
    assert not list(tmp_path.parent.parent.glob("t.tsv"))  # read in memory, written nowhere
    for part, name in enumerate("CD"):
        (tmp_path / f"part-{part}.csv").write_text(f"premise,label,kind\n{name}.,yes,u\n")
    several = with_(NAMED, source=Source(file="part-*.csv"))
    assert [(e.id, e.fields["premise"]) for e in load_examples(suite_in(tmp_path), several)] == [
        ("0", "C."),
        ("1", "D."),
    ]
    with pytest.raises(DataError, match="no such file"):
        load_examples(suite_in(tmp_path), with_(NAMED, source=Source(file="none-*.csv")))


def test_archives_that_are_none_or_hold_several_files(tmp_path: Path) -> None:
    data = with_(NAMED, source=Source(file="t.zip"))
    (tmp_path / "t.zip").write_bytes(b"PK")
    with pytest.raises(DataError, match="cannot be unpacked"):
        load_examples(suite_in(tmp_path), data)
    with zipfile.ZipFile(tmp_path / "t.zip", "w") as archive:
        archive.writestr("a.tsv", ROW)
        archive.writestr("b.tsv", ROW)
    with pytest.raises(DataError, match="holds 2 files, expected one"):
        load_examples(suite_in(tmp_path), data)


def test_gaps_in_slices_and_what_to_do_with_labels_and_headers(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text(
        '{"premise": "A.", "label": "yes"}\n{"premise": "B.", "label": "no", "kind": null}\n'
    )
    gaps = load_examples(suite_in(tmp_path), with_(NAMED, source=Source(file="t.jsonl")))
    assert [e.slices for e in gaps] == [{"kind": ""}] * 2
    (tmp_path / "t.txt").write_text("premise\tlabel\tkind\nA.\t0\tu\n")
    with pytest.raises(DataError, match=r'or name the numbers: label_names = \{ 0 = "yes" \}'):
        load_examples(suite_in(tmp_path), NAMED)
    (tmp_path / "t.txt").write_text("premise\tlabel\tkind\n")
    with pytest.raises(DataError, match="no rows, only a header; expected at least one example"):
        load_examples(suite_in(tmp_path), NAMED)
    (tmp_path / "t.txt").write_text(ROW)
    with pytest.raises(DataError, match=r"no column 'premis'; did you mean 'premise'. columns: premise, label, kind"):
        load_examples(suite_in(tmp_path), with_(NAMED, columns={"premise": "premis"}))


def test_a_list_of_files_and_stars_in_folders(tmp_path: Path) -> None:
    """In the order of the list; a file that is named twice would count twice."""
    for name, text in (("b/x.csv", "B."), ("a/x.csv", "A."), ("last.tsv", "L.")):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        mark = "\t" if path.suffix == ".tsv" else ","
        path.write_text(f"premise{mark}label{mark}kind\n{text}{mark}yes{mark}u\n")

    def texts(*names: str) -> list[str]:
        data = with_(NAMED, source=Source(file=names))
        return [example.fields["premise"] for example in load_examples(suite_in(tmp_path), data)]

    assert texts("last.tsv", "b/x.csv") == ["L.", "B."]
    assert texts("*/x.csv", "last.tsv") == ["A.", "B.", "L."]
    assert texts(f"{tmp_path}/*/x.csv") == ["A.", "B."]
    with pytest.raises(DataError, match=r"none-\*\.csv: no such file; files are looked up beside"):
        texts("last.tsv", "none-*.csv")
    with pytest.raises(DataError, match=r"gone\.csv: no such file"):
        texts("last.tsv", "gone.csv")
    with pytest.raises(DataError, match=r"x\.csv is named twice, and its rows would count twice"):
        texts("*/x.csv", "b/x.csv")
    (tmp_path / "last.tsv").write_text("premise\tlabel\tkind\nM.\tyes\tu\n")
    assert texts("last.tsv", "b/x.csv") == ["M.", "B."]  # not what was kept in memory


def test_a_list_of_files_in_toml(tmp_path: Path) -> None:
    for number in range(2):
        (tmp_path / f"t{number}.csv").write_text(f"premise,label\nText {number}.,yes\n")
    text = """
schema = 1
name = "toy"
[patterns.q]
text = "{premise}"
answers = [" Yes", " No"]
[[test_sets]]
name = "t"
source = { file = FILES }
labels = { yes = 0, no = 1 }
"""
    path = tmp_path / "toy.toml"
    path.write_text(text.replace("FILES", '["t0.csv", "t1.csv"]'))
    suite = load_suite(path)
    assert [e.fields["premise"] for e in load_examples(suite, suite.test_sets["t"])] == ["Text 0.", "Text 1."]
    for wrong in ("[]", '["t0.csv", ""]', '""'):
        path.write_text(text.replace("FILES", wrong))
        with pytest.raises(ConfigError, match="expected the name of a file, or a list of them"):
            load_suite(path)
    path.write_text(text.replace("FILES", "[3]"))
    with pytest.raises(ConfigError, match="file is"):
        load_suite(path)
