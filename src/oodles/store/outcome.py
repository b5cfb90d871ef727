"""done.json and failed.json: how a run ended."""

from __future__ import annotations

from typing import Any

from oodles.disk import write_json
from oodles.errors import masked
from oodles.store.folder import STORE_SCHEMA, RunFolder


def finish_run(folder: RunFolder, last_step: int, **more: Any) -> None:
    """The run is done: its last step is committed."""
    write_json(folder.done, {"schema": STORE_SCHEMA, "last_step": last_step, **more})


def fail_run(folder: RunFolder, reason: str) -> str:
    """The run has failed; the reason as it is kept."""
    safe = masked(reason)
    write_json(folder.failed, {"reason": safe, "log": folder.log.name})
    return safe
