"""done.json and failed.json: the outcome of a run."""

from __future__ import annotations

from typing import Any

from oodles.disk import write_json
from oodles.errors import masked
from oodles.store.folder import STORE_SCHEMA, RunFolder


def finish_run(folder: RunFolder, last_step: int, **more: Any) -> None:
    """Mark the run as done: its last step is committed."""
    write_json(folder.done, {"schema": STORE_SCHEMA, "last_step": last_step, **more})


def fail_run(folder: RunFolder, reason: str) -> str:
    """Mark the run as failed; return the reason as stored."""
    safe = masked(reason)
    write_json(folder.failed, {"reason": safe, "log": folder.log.name})
    return safe
