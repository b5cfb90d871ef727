"""TensorBoard event files, written by the real SummaryWriter and Trainer, compared with TensorBoard's own reader."""

from __future__ import annotations

import struct
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import oodles as oo
from oodles.errors import DataError
from oodles.imports.wire import crc32c
from scores import same, same_correlations, study
from test_import_trainer import train

pytest.importorskip("torch")
pytest.importorskip("tensorboard", reason="event files are written by TensorBoard's own writer")


def float32(table: pd.DataFrame) -> pd.DataFrame:
    """As event files keep scores."""
    return table.assign(value=table["value"].astype(np.float32).astype(float))


def write(folder: Path, table: pd.DataFrame, *, new_style: bool = False) -> Path:
    from torch.utils.tensorboard import SummaryWriter

    for run, rows in table.groupby("run"):
        with SummaryWriter(str(folder / str(run))) as writer:
            for step, test_set, value in zip(rows["step"], rows["test_set"], rows["value"], strict=True):
                writer.add_scalar(f"eval/{test_set}_accuracy", value, step, new_style=new_style)
                writer.add_scalar("train/loss", 1.5, step)
            writer.add_text("notes", "some text", 3)
            writer.add_histogram("weights", np.arange(9.0), 3)
    return folder


@pytest.mark.parametrize("new_style", [False, True])
def test_round_trip(tmp_path: Path, new_style: bool) -> None:
    folder = write(tmp_path / "logs", study(), new_style=new_style)
    imported = oo.import_scores(folder)
    assert imported.format == "tensorboard"
    same(imported.table, float32(study()))
    same_correlations(folder, float32(study()))


def test_every_point_is_read_as_by_the_library(tmp_path: Path) -> None:
    """Beyond the 10,000 points that the library keeps unless it is told otherwise."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(tmp_path / "r")) as writer:
        for step in range(12_000):
            writer.add_scalar("eval/hans_accuracy", 1 / (step + 2), step)
        writer.add_scalar("eval/snli_accuracy", float("nan"), 5)
    table = oo.import_scores(tmp_path / "r").table
    reader = EventAccumulator(str(tmp_path / "r"), size_guidance={"scalars": 0, "tensors": 0})
    reader.Reload()
    events = reader.Scalars("eval/hans_accuracy")
    own = table[table["test_set"] == "hans"].sort_values("step")
    assert own["step"].tolist() == [event.step for event in events]
    assert own["value"].tolist() == [event.value for event in events]
    assert len(table) == 12_001


def test_a_trainer_that_resumed_is_one_run(tmp_path: Path) -> None:
    table = study(runs=1)
    stale = table.assign(value=table["value"].where(table["step"] != 6, 0.125))
    run = table["run"].iloc[0]
    folder = tmp_path / run
    train(folder, stale, run, until=6, report_to=["tensorboard"], seed=7, logging_strategy="no")
    time.sleep(1.1)  # the Trainer names the folder of each part by the second it began in
    train(folder, table, run, report_to=["tensorboard"], seed=7, resume=str(folder / "checkpoint-4"))
    assert len(list((folder / "runs").iterdir())) == 2
    imported = oo.import_scores(tmp_path, format="tensorboard")
    same(imported.table, float32(table))
    assert set(imported.table["seed"]) == {7}
    assert any("are one run that was resumed" in note for note in imported.notes)
    told = oo.import_scores(tmp_path)
    assert told.format == "trainer"
    assert any("tensorboard is there as well: --format tensorboard" in note for note in told.notes)


def test_what_is_cut_off_is_told_and_the_rest_is_read(tmp_path: Path) -> None:
    folder = write(tmp_path / "logs", study(runs=1))
    (file,) = (path for path in folder.rglob("*tfevents*"))
    whole = file.read_bytes()
    steps = set()
    for cut in (700, len(whole) - 3):
        file.write_bytes(whole[:cut])
        imported = oo.import_scores(folder)
        assert "cut off or damaged after" in imported.notes[0]
        expected = float32(study(runs=1)).set_index(["step", "test_set"])["value"]
        found = imported.table.set_index(["step", "test_set"])["value"]
        assert found.equals(expected[found.index].rename("value"))
        steps.add(len(found))
    assert len(steps) == 2


def test_a_changed_score_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "logs", study(runs=1))
    (file,) = (path for path in folder.rglob("*tfevents*"))
    whole = bytearray(file.read_bytes())
    first = float32(study(runs=1))["value"].iloc[0]
    at = whole.index(struct.pack("<f", first))
    whole[at] ^= 1
    file.write_bytes(whole)
    with pytest.raises(DataError, match="its checksum is wrong; the file is damaged"):
        oo.import_scores(folder)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "0 bytes; expected an event file"),
        (b"not an event file, but text", "its first checksum is wrong"),
        (bytes(16), "its first checksum is wrong"),
    ],
)
def test_what_is_no_event_file_is_one_line(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "events.out.tfevents.1.host"
    path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        oo.import_scores(path)
    assert said in str(caught.value)


def record(body: bytes) -> bytes:
    head = struct.pack("<Q", len(body))
    return head + struct.pack("<I", crc32c([head])[0]) + body + struct.pack("<I", crc32c([body])[0])


@pytest.mark.parametrize("body", [b"\x0f", b"\x2a\x7f", b"\x2a\x03\x0a\x09\x0a", b"\xff" * 12])
def test_records_that_are_no_events_are_one_line(tmp_path: Path, body: bytes) -> None:
    path = tmp_path / "events.out.tfevents.1.host"
    path.write_bytes(record(body))
    with pytest.raises(DataError, match=r"event 1: .*; expected an event of TensorBoard"):
        oo.import_scores(path)
    path.write_bytes(record(b""))
    with pytest.raises(DataError, match="nothing is logged in it"):
        oo.import_scores(path)


def test_checksums_of_long_records() -> None:
    """Chunks side by side give what byte after byte gives, and ten megabytes take no minutes."""
    from oodles.imports.wire import CRC_TABLE, LONG

    draw = np.random.default_rng(0)
    for length in (0, 1, LONG - 1, LONG, LONG + 1, 3 * LONG, 5000, 12_345):
        piece = draw.bytes(length)
        crc = 0xFFFFFFFF
        for byte in piece:
            crc = int(CRC_TABLE[(crc ^ byte) & 0xFF]) ^ (crc >> 8)
        crc ^= 0xFFFFFFFF
        assert crc32c([b"x", piece])[1] == ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    began = time.process_time()
    crc32c([draw.bytes(10_000_000)])
    assert time.process_time() - began < 10  # byte after byte: minutes
