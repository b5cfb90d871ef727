"""scores.jsonl: what is written is read back, and a line that is not as it was written does not count."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import pytest

from oodles.store.damage import mend_scores
from oodles.store.folder import RunFolder
from oodles.store.scores import Score, append_score, drop_scores, parse_line, read_scores
from oodles.store.table import DamageWarning, read_runs
from test_store import folder_with_scores


def test_a_torn_last_line_is_left_out(tmp_path: Path) -> None:
    folder = folder_with_scores(tmp_path)
    whole = folder.scores.read_bytes()
    folder.scores.write_bytes(whole[:-20])
    assert len(read_scores(folder)) == 3
    with pytest.warns(DamageWarning, match="the last line is torn; it was never committed"):
        assert len(read_runs(tmp_path).groupby(["step", "test_set"])) == 3
    assert "torn" in mend_scores(folder)[0]  # what follows it must not be glued to it
    assert mend_scores(folder) == []
    assert folder.scores.read_bytes().endswith(b"\n")


@pytest.mark.parametrize("place", [9, 60, 150, 300])
def test_a_flipped_bit_is_seen_and_the_rest_is_read(place: int, tmp_path: Path) -> None:
    folder = folder_with_scores(tmp_path)
    whole = bytearray(folder.scores.read_bytes())
    whole[place] ^= 1
    folder.scores.write_bytes(whole)
    with pytest.warns(DamageWarning, match=r"scores\.jsonl: line 1 is damaged; lost: one evaluation"):
        table = read_runs(tmp_path)
    assert len(table.groupby(["step", "test_set"])) == 3
    assert "line 1 is damaged" in table.attrs["notes"][0]


OLD = [  # as earlier versions wrote them: without the number of shortened prompts, ties, records and checksums
    b'{"step": 0, "test_set": "home", "role": "in_domain", "n": 3, "limit": null, "prompts": "p", "ties": 0, "metrics":'
    b' {"accuracy": 0.5}}',
    b'{"step": 0, "test_set": "away", "role": "ood", "n": 3, "limit": 3, "prompts": "p", "metrics": {"auc": null}}',
    '{"step": 1, "test_set": "höhe", "role": "ood", "n": 3, "limit": null, "prompts": "p", "shortened": 2, "ties": 1,'
    ' "metrics": {"accuracy": 0.1, "share:Yes": 1.0}, "records": "a.parquet", "records_crc": 7, "later": [1]}'.encode(),
]


def sealed_line(text: bytes) -> bytes:
    body = text.removesuffix(b"}")
    return body + b', "crc": %d}\n' % zlib.crc32(body)


def test_lines_of_every_version_are_written_back_as_they_were(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "runs" / "r")
    folder.path.mkdir(parents=True)
    whole = b"".join(map(sealed_line, OLD))
    folder.scores.write_bytes(whole + b'{"step": 2, "torn')
    assert mend_scores(folder) == [f"{folder.scores}: the last line is torn; it was never committed, and is left out"]
    assert folder.scores.read_bytes() == whole
    scores = read_scores(folder)
    assert [(s.ties, s.shortened, s.records, s.records_crc) for s in scores] == [
        (0, None, None, None),
        (None, None, None, None),
        (1, 2, "a.parquet", 7),
    ]
    assert scores[2].key == (1, "höhe", "p")


@pytest.mark.parametrize(
    "wrong", ['"ties": "many"', '"limit": "all"', '"shortened": null', '"records": "../x"', '"n": -1', '"step": 1.5']
)
def test_a_line_of_other_kinds_is_damaged(tmp_path: Path, wrong: str) -> None:
    folder = folder_with_scores(tmp_path)
    lines = folder.scores.read_text().splitlines(keepends=True)
    key, _, value = wrong.partition(": ")
    told = json.loads(lines[0])
    del told["crc"]
    told[key.strip('"')] = json.loads(value)
    folder.scores.write_text(json.dumps(told) + "\n" + "".join(lines[1:]))
    assert len(read_scores(folder)) == 3


def test_an_edited_line_is_noticed_however_it_is_spelt(tmp_path: Path) -> None:
    """Compact JSON with the stale checksum, and a line whose checksum was taken off among others that have one."""
    folder = folder_with_scores(tmp_path)
    lines = folder.scores.read_text().splitlines()
    edited = json.loads(lines[0])
    edited["metrics"]["accuracy"] = 0.99
    compact = json.dumps(edited, separators=(",", ":"))
    edited.pop("crc")
    for text in (compact, json.dumps(edited)):
        folder.scores.write_text("\n".join([text, *lines[1:]]) + "\n")
        assert len(read_scores(folder)) == len(lines) - 1


SCORE = Score(
    step=2, test_set="away", role="ood", n=3, limit=None, prompts="p", shortened=0, ties=1, metrics={"accuracy": 0.5}
)


def test_a_line_is_read_as_it_was_written() -> None:
    assert parse_line(SCORE.line.rstrip("\n").encode()) == SCORE
    assert parse_line(SCORE.line.rstrip("\n").encode().replace(b"0.5", b"0.6")) is None  # its checksum is of 0.5


def test_a_line_after_a_torn_one_takes_its_place(tmp_path: Path) -> None:
    path = tmp_path / "scores.jsonl"
    append_score(path, SCORE)
    path.write_bytes(path.read_bytes() + b'{"step": 3, "te')
    append_score(path, SCORE)
    assert path.read_bytes() == 2 * SCORE.line.encode()


def test_scores_after_a_step_are_dropped_and_the_others_stay_to_the_byte(tmp_path: Path) -> None:
    folder = folder_with_scores(tmp_path)
    whole = folder.scores.read_bytes()
    drop_scores(folder, after=4)
    assert folder.scores.read_bytes() == whole
    drop_scores(folder, after=0)
    assert folder.scores.read_bytes() == b"".join(whole.splitlines(keepends=True)[:2])
    assert {score.step for score in read_scores(folder)} == {0}
