"""How a run ended."""

from __future__ import annotations

from pathlib import Path

from oodles.store.folder import RunFolder
from oodles.store.outcome import fail_run, finish_run
from oodles.store.sidecars import read_json


def test_a_finished_run_is_done_whatever_failed_before(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "runs" / "r")
    assert fail_run(folder, "https://me:secret@example.org is away") == "https://***@example.org is away"
    assert folder.status == "failed"
    assert read_json(folder.failed) == {"reason": "https://***@example.org is away", "log": "log.txt"}
    finish_run(folder, 8, seconds=1.5)
    assert folder.status == "done"
    assert read_json(folder.done) == {"schema": 1, "last_step": 8, "seconds": 1.5}
