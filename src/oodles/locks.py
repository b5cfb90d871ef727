"""Who writes a run: a lock with host, process and start, whose holder can be checked. No clock is trusted.

A lock is a file that is made whole or not at all. Its holder is gone if it was a process on this very machine that
runs no more; a holder on another machine cannot be seen from here, so its lock is respected until somebody removes it.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from oodles.errors import StoreError
from oodles.store import disk_errors, write_text

State = Literal["alive", "gone", "elsewhere"]
PATIENCE, LOOKS = 0.05, 1200  # seconds between two looks at a lock that is held for moments only, and how many


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A process, known so well that no other can be taken for it."""

    host: str
    boot: str  # of the machine's present start: what ran before it is gone
    space: str  # of process numbers: a container has its own
    process: int
    start: str  # of the process: its number may be given again

    @classmethod
    def me(cls) -> Holder:
        process = os.getpid()
        return cls(host=platform.node(), boot=_boot(), space=_space(), process=process, start=_start(process) or "")

    @property
    def state(self) -> State:
        """Whether it still runs, as far as can be seen from here."""
        if (self.host, self.space) != (platform.node(), _space()):
            return "elsewhere"
        if self.boot != _boot():
            return "gone"
        return "alive" if _start(self.process) == self.start else "gone"

    def __str__(self) -> str:
        return f"process {self.process} on {self.host}"


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return subprocess.run(["sysctl", "-n", "kern.boottime"], capture_output=True, text=True, check=False).stdout


def _space() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def _start(process: int) -> str | None:
    """When a process began, in ticks since the machine did; None if there is no such process."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[19]
    except FileNotFoundError:
        if Path("/proc/self/stat").is_file():
            return None
    except (OSError, IndexError):
        return None
    told = subprocess.run(["ps", "-o", "lstart=", "-p", str(process)], capture_output=True, text=True, check=False)
    return told.stdout.strip() or None


def read_lock(path: Path) -> Holder | None:
    """Who holds a lock, if anybody."""
    try:
        return Holder(**json.loads(path.read_text()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        raise StoreError(f"{path}: cannot be read as a lock ({error}); if nobody writes here, remove it") from None


def is_held(path: Path) -> bool:
    """Whether somebody has a lock who is not known to be gone."""
    try:
        held = read_lock(path)
    except StoreError:
        return False
    return held is not None and held.state != "gone"


def take(path: Path) -> Holder | None:
    """Take a lock; whoever holds it, if that is somebody else."""
    me = Holder.me()
    with _one_at_a_time(path):  # only this machine may judge that a holder here is gone: one of us at a time
        held = read_lock(path)
        if held is not None and held.state != "gone":
            return held
        aside = path.with_name(f".{path.name}.{me.host}.{me.process}")
        write_text(aside, json.dumps(asdict(me)))
        with disk_errors(path):
            try:
                if held is not None:
                    path.unlink()
                os.link(aside, path)
            except FileExistsError:  # another machine was quicker
                return read_lock(path)
            finally:
                aside.unlink(missing_ok=True)
    return None


def release(path: Path) -> None:
    """Give back what this process holds."""
    if read_lock(path) == Holder.me():
        path.unlink(missing_ok=True)


@contextmanager
def holding(path: Path) -> Iterator[None]:
    """Hold a lock, or say who does."""
    holder = take(path)
    if holder is not None:
        raise StoreError(f"{path}: {holder} is writing there; wait for it, or remove this file if it is gone")
    try:
        yield
    finally:
        release(path)


@contextmanager
def held_briefly(path: Path) -> Iterator[None]:
    """Wait for a lock that everybody holds for moments only."""
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    for _ in range(LOOKS):
        holder = take(path)
        if holder is None:
            break
        time.sleep(PATIENCE)
    else:
        raise StoreError(f"{path}: {holder} holds it for more than a moment; remove the file if that is gone")
    try:
        yield
    finally:
        release(path)


@contextmanager
def _one_at_a_time(path: Path) -> Iterator[None]:
    """Among the processes of this machine; its own disk knows how to lock, whatever the shared one does."""
    name = hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:24]
    with (Path(tempfile.gettempdir()) / f"oodles-{os.getuid()}-{name}.lock").open("a") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        yield
