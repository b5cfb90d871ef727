"""Hashes of large files, computed once and cached under the file's size, times and inode.

Hashing a file takes one to two seconds per GB, once. Later calls only compare the file's metadata. A file that was
written since has another change time, which no program can set back. Bit rot below the file system changes no time: to
hash everything again, remove the folder `hashes` from the cache.
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

SETTLED = 2.0  # seconds; a file changed more recently may change again within the same clock tick


def file_hash(path: Path, folder: Path) -> str:
    """Return the SHA-256 of a file; hashes are cached in `folder`."""
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
    """Return the metadata that change when a file is written."""
    status = path.stat()
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]


def _read(path: Path) -> dict[str, object]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _keep(path: Path, value: dict[str, object]) -> None:
    """Cache a hash; if the cache cannot be written, the file is hashed again next time."""
    with contextlib.suppress(StoreError), put(path, durable=False) as aside:
        aside.write_text(json.dumps(value), encoding="utf-8")
