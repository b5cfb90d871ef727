"""Hashes of large files, computed once: kept in the cache under the file's size, times and inode.

Reading a file whole costs one to two seconds per GB, once; after that, a glance at what the file system says of it. A
file that was written since has another time of change, which no program can set back. What rots on the disk beneath the
file system changes no time: remove the folder `hashes` of the cache, and everything is read again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from pathlib import Path

from oodles.disk import put
from oodles.errors import StoreError

SETTLED = 2.0  # seconds: a file changed later than that may change again within the same tick of its clock


def file_hash(path: Path, folder: Path) -> str:
    """The SHA-256 of a file; `folder` is where hashes are kept."""
    about = _about(path)
    entry = folder / f"{hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:32]}.json"
    cached = _read(entry)
    if cached.get("about") == about and isinstance(cached.get("sha256"), str):
        return str(cached["sha256"])
    with path.open("rb") as handle:
        digest = hashlib.file_digest(handle, "sha256").hexdigest()
    if _about(path) == about and time.time() - path.stat().st_ctime > SETTLED:
        _keep(entry, {"file": str(path), "about": about, "sha256": digest})
    return digest


def _about(path: Path) -> list[int]:
    """What changes when a file is written."""
    status = path.stat()
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]


def _read(path: Path) -> dict[str, object]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _keep(path: Path, value: dict[str, object]) -> None:
    """Where the cache cannot be written, the file is read again the next time."""
    with contextlib.suppress(StoreError), put(path, durable=False) as aside:
        aside.write_text(json.dumps(value), encoding="utf-8")
