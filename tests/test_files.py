"""Files of every kind, whole, strange and damaged: the very cells, or one line that names the file and the row."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oodles.errors import DataError
from oodles.files import ABSENT, SUFFIXES, Rows, read_file

STRANGE = [
    "{premise} }{ {{}} {0}",
    '"double" \'single\' “curly” "',
    "a\nb\r\nc\rd",
    "nul \x00 inside",
    "עברית ואז English",
    "👩‍👩‍👧 emoji 🇺🇳",
    "x" * 100_000,
    "",
    " leading and trailing ",
    "tab\tinside",
    "line\u2028separator \x85 \x1c \x0b",
    "\ufeffbyte order mark",
    "comma, semicolon; pipe|",
]
strange_text = st.one_of(st.sampled_from(STRANGE), st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
slow_ok = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def write(path: Path, rows: list[dict[str, str]]) -> Path:
    """The rows as a well-formed file of the path's kind."""
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".jsonl":
        path.write_bytes("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in rows).encode())
    elif path.suffix == ".csv":
        out = io.StringIO()
        writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n", quoting=csv.QUOTE_ALL)
        writer.writeheader()
        writer.writerows(rows)
        path.write_bytes(out.getvalue().encode())
    else:
        lines = ["\t".join(rows[0]), *("\t".join(r.values()) for r in rows)]
        path.write_bytes(("\n".join(lines) + "\n").encode())
    return path


def tried(path: Path) -> tuple[Rows | None, str]:
    """What was read, or why not."""
    try:
        return read_file(path, "s/t"), ""
    except DataError as error:
        return None, str(error)


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl"])
@slow_ok
@given(st.lists(st.tuples(strange_text, strange_text), min_size=1, max_size=5))
def test_any_text_comes_back_as_it_was(tmp_path: Path, suffix: str, cells: list[tuple[str, str]]) -> None:
    rows = [{"premise": p, "hypothesis": h} for p, h in cells]
    found = read_file(write(tmp_path / f"t{suffix}", rows), "s/t")
    assert found.size == len(rows)
    assert list(found.columns["premise"]) == [r["premise"] for r in rows]
    assert list(found.columns["hypothesis"]) == [r["hypothesis"] for r in rows]


@slow_ok
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\t\n\r"), min_size=1), min_size=1))
def test_tab_separated_texts_come_back_as_they_were(tmp_path: Path, cells: list[str]) -> None:
    rows = [{"premise": c, "label": "e"} for c in cells]
    assert list(read_file(write(tmp_path / "t.tsv", rows), "s/t").columns["premise"]) == cells


@pytest.mark.parametrize("suffix", SUFFIXES)
@slow_ok
@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused_in_one_line(tmp_path: Path, suffix: str, data: bytes) -> None:
    path = tmp_path / f"t{suffix}"
    path.write_bytes(data)
    _, refusal = tried(path)
    assert str(path) in refusal or not refusal
    assert "\n" not in refusal


@pytest.mark.parametrize("suffix", SUFFIXES)
@slow_ok
@given(st.integers(0, 2**16), st.integers(0, 255))
def test_a_damaged_byte_gives_rows_or_one_line(tmp_path: Path, suffix: str, place: int, value: int) -> None:
    rows = [{"premise": f"Text {i}.", "label": "ec"[i % 2]} for i in range(20)]
    path = write(tmp_path / f"t{suffix}", rows)
    data = bytearray(path.read_bytes())
    data[place % len(data)] = value
    path.write_bytes(bytes(data))
    found, refusal = tried(path)
    assert str(path) in refusal or found is not None
    assert found is None or all(len(column) == found.size for column in found.columns.values())


def test_a_column_missing_in_row_7001_leaves_a_gap_there(tmp_path: Path) -> None:
    lines = [json.dumps({"premise": "P.", "label": 0}) for _ in range(8000)]
    lines[7000] = json.dumps({"label": 0})
    (tmp_path / "t.jsonl").write_text("\n".join(lines))
    column = read_file(tmp_path / "t.jsonl", "s/t").columns["premise"]
    assert [i for i, cell in enumerate(column) if cell is ABSENT] == [7000]


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("t.csv", b"a,b\n1,2\n3\n", r"t\.csv row 2: 1 cells, the header has 2"),
        ("t.csv", b"a,b\n1,2,3\n", r"t\.csv row 1: 3 cells, the header has 2"),
        ("t.tsv", b"a\tb\n1\t2\n3\n", r"t\.tsv row 2: 1 cells, the header has 2"),
        ("t.csv", b'a,b\n1,"open\n3,4\n', r"t\.csv row \d: unexpected end of data; check its quotation marks"),
        ("t.csv", b"a,a\n1,2\n", r"two columns are named 'a'"),
        ("t.csv", b"", r"t\.csv is empty"),
        ("t.csv", "a,b\n1,2\ncafé,4\n".encode("latin-1"), r"t\.csv line 3: byte 0xe9 is not UTF-8"),
        ("t.jsonl", b'{"a": 1}\n\n[1]\n', r"t\.jsonl line 3: expected a JSON object"),
        ("t.jsonl", b'{"a": 1}\n{"a": \n', r"t\.jsonl line 2: not JSON"),
        ("t.jsonl", b'{"a": "\\ud83d"}\n', r"t\.jsonl line 1: half a surrogate pair"),
        ("t.jsonl", b"[" * 100_000, r"t\.jsonl line 1: not JSON"),
        ("t.parquet", b"PAR1 not really", r"t\.parquet cannot be read"),
        ("t.xlsx", b"", r"not a \.parquet, \.csv, \.tsv or \.jsonl file"),
    ],
)
def test_what_cannot_be_read_names_file_and_row(tmp_path: Path, name: str, data: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(DataError, match=message) as caught:
        read_file(tmp_path / name, "s/t")
    assert "\n" not in str(caught.value)


def test_a_byte_order_mark_is_not_part_of_the_first_column(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes("\ufeffpremise,label\nP,0\n".encode())
    assert list(read_file(tmp_path / "t.csv", "s/t").columns) == ["premise", "label"]


def test_only_wanted_columns_of_a_parquet_file_are_read(tmp_path: Path) -> None:
    write(tmp_path / "t.parquet", [{"premise": "P", "parse": "(P)", "label": "0"}])
    found = read_file(tmp_path / "t.parquet", "s/t", ["premise", "label", "nothing"])
    assert sorted(found.columns) == ["label", "premise"]
    assert found.unread == ("parse",)
