"""Every format with every kind of damage: read as it was written, told, or refused in one line; never another number.

The files are written as `fuzz.py` writes them, whose campaign does the same with random damage.
"""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

import fuzz
import oodles as oo
from oodles.errors import OodlesError
from oodles.imports.wire import crc32c

PLACES = [(run, step, name) for run in ("r0", "r1") for step in (10, 20, 30) for name in ("snli", "hans", "rte_x")]
TRUTH = {place: (2001 + 37 * number) / 10_000 for number, place in enumerate(PLACES)}
AT = ("r1", 20, "hans")
LONG = 10_000_000
TABLES = ("wide", "lines", "long")


@pytest.fixture(autouse=True)
def cached(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OODLES_CACHE", str(tmp_path))  # which the writer of wandb's answers sets
    monkeypatch.setenv("WANDB_MODE", "offline")


def written(kind: str, folder: Path, points: list[tuple[fuzz.Point, object]] | None = None) -> tuple[Path, fuzz.Known]:
    known = fuzz.Known(TRUTH, list(TRUTH.items()) if points is None else points)
    return fuzz.WRITERS[kind](random.Random(0), folder, known), known


def outcome(path: Path, kind: str, known: fuzz.Known, *, whole: bool = True) -> str:
    """The message of a refusal, else nothing; a wrong number or a silent loss fails here."""
    said = ""
    try:
        fuzz.check_true(path, kind, known, whole=whole)
    except OodlesError as error:
        said = str(error)
    assert "\n" not in said
    return said


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("kind", fuzz.WRITERS)
def test_nothing_wrong(tmp_path: Path, kind: str) -> None:
    path, known = written(kind, tmp_path)
    assert not outcome(path, kind, known)
    table = oo.import_scores(path).table
    assert (table["metric"].eq("accuracy").sum() if "metric" in table else len(table)) == len(TRUTH)


@pytest.mark.parametrize("kind", fuzz.WRITERS)
def test_files_are_read_without_the_network_and_stay_as_they_are(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, _ = written(kind, tmp_path)
    before = {file: file.read_bytes() for file in files(tmp_path)}

    def refuse(*given: object) -> None:
        raise AssertionError(f"asked the network: {given}")

    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    assert len(oo.import_scores(path).table) >= len(TRUTH)
    assert {file: file.read_bytes() for file in files(tmp_path)} == before


@pytest.mark.parametrize("kind", fuzz.WRITERS)
def test_cut_off(tmp_path: Path, kind: str) -> None:
    """Half a file, and all but its last bytes."""
    path, known = written(kind, tmp_path)
    for file in files(tmp_path)[:3]:
        data = file.read_bytes()
        for length in (0, len(data) // 2, len(data) - 9):
            if kind in fuzz.WHOLE and kind != "wandb" and length:
                length = data.rindex(b"\n", 0, length) + 1  # the last number of a line might be another one
            file.write_bytes(data[:length])
            said = outcome(path, kind, known, whole=False) if kind not in TABLES or not length else ""
            assert said or kind in (*TABLES, "tensorboard", "inspect"), "refused, or told by a note"
        file.write_bytes(data)


@pytest.mark.parametrize("value", ["x", True, [1], {"a": 1}], ids=str)
@pytest.mark.parametrize("kind", [kind for kind in fuzz.WRITERS if kind != "tensorboard"])  # whose values are floats
def test_a_value_of_a_wrong_type(tmp_path: Path, kind: str, value: object) -> None:
    path, known = written(kind, tmp_path, [(p, value if p == AT else v) for p, v in TRUTH.items()])
    said = outcome(path, kind, known)
    told = "" if said else " ".join(oo.import_scores(path).notes)
    assert said or "left out" in told


@pytest.mark.parametrize("kind", fuzz.WRITERS)
def test_not_a_number(tmp_path: Path, kind: str) -> None:
    """A bare NaN, as Python writes it into JSON: a gap, and the other scores are there."""
    path, known = written(kind, tmp_path, [(p, float("nan") if p == AT else v) for p, v in TRUTH.items()])
    assert not outcome(path, kind, known)
    table = oo.import_scores(path).table
    own = table[table["metric"].eq("accuracy")] if "metric" in table.columns else table
    found = own.dropna(subset="value")[["run", "step", "test_set"]].itertuples(index=False, name=None)
    assert set(found) == set(TRUTH) - {AT}


@pytest.mark.parametrize("kind", fuzz.WRITERS)
def test_a_step_twice(tmp_path: Path, kind: str) -> None:
    """Logs: the last counts, and a note tells. Tables and results of harnesses: files that contradict are refused."""
    path, known = written(kind, tmp_path, [(AT, 0.0123), *TRUTH.items()])
    said = outcome(path, kind, known)
    if kind in ("trainer", "wandb", "tensorboard", "mlflow"):
        assert not said
        assert any("more than once: the last counts" in note for note in oo.import_scores(path).notes)
    elif kind in ("long", "inspect"):
        assert "different scores" in said or "differ on run" in said


@pytest.mark.parametrize("kind", fuzz.WRITERS)
def test_sets_that_are_missing_at_some_steps(tmp_path: Path, kind: str) -> None:
    gone = {AT, ("r0", 10, "snli"), ("r0", 20, "snli"), ("r0", 30, "snli")}
    path, known = written(kind, tmp_path, [(p, v) for p, v in TRUTH.items() if p not in gone])
    assert not outcome(path, kind, known)
    table = oo.import_scores(path).table
    found = set(zip(table["run"], table["step"], table["test_set"], strict=True))
    assert found == set(TRUTH) - gone


def in_json(data: bytes) -> bytes:
    return data.replace(b"{", b'{"note": "' + b"x" * LONG + b'", ', 1)


def in_table(data: bytes) -> bytes:
    text = data.decode("utf-16" if data[:2] == b"\xff\xfe" else "utf-8-sig")
    head, first, *lines = text.rstrip("\n").split("\n")
    mark = next(one for one in ";\t," if one in head)
    rest = [f"{line}{mark}" for line in lines]
    return "\n".join([f"{head}{mark}remark", f"{first}{mark}{'x' * LONG}", *rest, ""]).encode()


def in_events(data: bytes) -> bytes:
    """A record with a text of 10 MB before the scores."""
    size, count = LONG, b""
    while size >= 0x80:
        count, size = count + bytes([size & 0x7F | 0x80]), size >> 7
    body = b"\x1a" + count + bytes([size]) + b"x" * LONG
    head = struct.pack("<Q", len(body))
    framed = head + struct.pack("<I", crc32c([head])[0]) + body + struct.pack("<I", crc32c([body])[0])
    return framed + data


LONG_LINES: dict[str, Callable[[bytes], bytes]] = {
    **dict.fromkeys(("lines", "trainer", "lm-eval", "lighteval", "inspect"), in_json),
    **dict.fromkeys(("wide", "long"), in_table),
    "tensorboard": in_events,
    "mlflow": lambda data: data.replace(b"lifecycle_stage", b"note: " + b"x" * LONG + b"\nlifecycle_stage"),
}


@pytest.mark.parametrize("kind", LONG_LINES)
def test_a_line_of_ten_megabytes(tmp_path: Path, kind: str) -> None:
    path, known = written(kind, tmp_path)
    file = files(tmp_path)[0] if kind != "mlflow" else next(tmp_path.rglob("meta.yaml"))
    file.write_bytes(LONG_LINES[kind](file.read_bytes()))
    if kind == "inspect":  # which is recognised by its first bytes: left out, and told
        assert any("does not begin as a log" in note for note in oo.import_scores(path).notes)
    assert not outcome(path, kind, known)


@pytest.mark.parametrize("content", [b"\x89PNG\r\n\x1a\n\0\0", b"hello\n", b"", b"[1, 2]", b"\xff" * 99], ids=repr)
@pytest.mark.parametrize("kind", fuzz.WRITERS)
def test_not_the_format_at_all(tmp_path: Path, kind: str, content: bytes) -> None:
    path, _ = written(kind, tmp_path)
    for file in files(tmp_path):
        file.write_bytes(content)
    name = {"wide": "table", "lines": "table", "long": "table", "wandb": "wandb-api"}.get(kind, kind)
    with pytest.raises(OodlesError) as caught:
        oo.import_scores(path, format=name)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < fuzz.LONGEST


def test_metrics_that_are_mixed(tmp_path: Path) -> None:
    """Sets with different metrics: each under its own, and what has no other set is told by `--inspect`."""
    rows = [{"step": s, "eval_snli_accuracy": 0.5, "eval_hans_f1": 0.4, "eval_rte_mcc": -0.1} for s in (1, 2)]
    (tmp_path / "trainer_state.json").write_text(fuzz.json.dumps({"global_step": 2, "log_history": rows}))
    found = oo.import_scores(tmp_path).table
    assert set(zip(found["test_set"], found["metric"], found["value"], strict=True)) == {
        ("snli", "accuracy", 0.5),
        ("hans", "f1", 0.4),
        ("rte", "mcc", -0.1),
    }
    with pytest.raises(OodlesError) as caught:
        oo.analyse(tmp_path, in_domain="snli")
    assert "\n" not in str(caught.value)
