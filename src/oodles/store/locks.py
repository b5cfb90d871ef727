"""Who writes a run: a lock with host, process and start, whose holder can be checked. No clock is trusted.

A lock is a file that appears whole or not at all: it is written under a name of its own and linked to the lock's name,
which fails if that exists. Its holder is gone if it was a process of this very machine that runs no more; a holder on
another machine cannot be seen from here, so its lock is respected until somebody removes it. If it was a job of SLURM,
SLURM knows: the lock of a job that is no longer in the queue, or was started again since, is a dead one.

A dead lock is taken over on the study's own disk, which all takers share, whatever else they do not (machine, temporary
folder, container). Only the holder of its *succession*, a lock named by the dead holder, may replace it, and only while
it still is that holder's. The dead holder never comes back, so whoever gets the succession later sees another lock
there and lets it be; a taker that died during its takeover left a dead succession, which is taken over in the same way.
Renaming the dead lock aside would not do: of three takers the slowest may move the living lock of the first, and the
third finds the name free before it is put back.

On NFS, link and rename are atomic on the server, but a reply may be lost and the repeated request fail although the
first succeeded. So errors do not decide, what is there afterwards does: the link count of the linked file, the content
of the renamed one. Advisory locks (flock, fcntl) are not used: some shared disks ignore them.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import stat
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from oodles.disk import sealed, unsealed, write_text
from oodles.errors import StoreError
from oodles.scheduler import JobHere, has_ended, job_here
from oodles.trouble import disk_errors

State = Literal["alive", "gone", "elsewhere"]
PATIENCE, LOOKS = 0.05, 600  # seconds between two looks at a lock that is held for moments only, and how many
TRIES = 100  # at a lock that is there when it is to be made and not when it is read
LONGEST = 4096  # bytes of a lock


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A process, known so well that no other can be taken for it."""

    host: str
    boot: str  # of the machine's present start: what ran before it is gone
    space: str  # of process numbers: a container has its own
    process: int
    start: str  # of the process: its number may be given again
    clock: str = ""  # in whose ticks `start` is told: a time namespace shifts them
    job: str = ""  # of SLURM: cluster, job and how often it was restarted

    @classmethod
    def me(cls) -> Holder:
        process = os.getpid()
        start, _ = _seen(process)
        job = job_here()
        return cls(
            host=platform.node(),
            boot=_boot(),
            space=_namespace("pid"),
            process=process,
            start=start or "",
            clock=_namespace("time"),
            job="" if job is None else str(job),
        )

    @property
    def state(self) -> State:
        """Whether it still runs, as far as can be seen from here; in doubt it does."""
        if (self.host, self.space) != (platform.node(), _namespace("pid")):
            return "gone" if self.job and has_ended(JobHere.read(self.job)) else "elsewhere"
        if self.boot != _boot() or not _exists(self.process):
            return "gone"
        start, ended = _seen(self.process)
        given_again = bool(start and self.start) and start != self.start and self.clock == _namespace("time")
        return "gone" if ended or given_again else "alive"

    @property
    def told(self) -> dict[str, Any]:
        """As it is kept; where there is no job, nothing is said of it."""
        return {name: value for name, value in asdict(self).items() if name != "job" or value}

    def __str__(self) -> str:
        job = f", job {self.job}" if self.job else ""
        return f"process {self.process} on {self.host}{job}"


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return _told("sysctl", "-n", "kern.boottime")


def _namespace(kind: str) -> str:
    try:
        return str(Path(f"/proc/self/ns/{kind}").readlink())
    except OSError:
        return ""


def _exists(process: int) -> bool:
    """Whether a process has this number; somebody else's may be hidden from /proc, but not from kill."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _seen(process: int) -> tuple[str | None, bool]:
    """When a process began, if that can be seen, and whether it has ended and only waits for its parent to notice."""
    try:
        if str(Path("/proc/self").readlink()) != str(os.getpid()):
            return None, False  # the /proc of other process numbers
        fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
        return fields[19], fields[0] in "ZX"
    except (OSError, IndexError):
        if Path("/proc/self/stat").is_file():
            return None, False
    return _told("ps", "-o", "lstart=", "-p", str(process)) or None, False


def _told(*command: str) -> str:
    """What a system without /proc answers."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""


def read_lock(path: Path) -> Holder | None:
    """Who holds a lock, if anybody."""
    try:
        return _as_holder(unsealed(json.loads(_read_file(path))))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error).splitlines()[0]
        raise StoreError(f"{path}: cannot be read as a lock ({reason}); if nobody writes here, remove it") from None


def _read_file(path: Path) -> bytes:
    """The text of a lock; nothing is waited for or followed, whatever lies there under its name."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ValueError("not a regular file")
        return os.read(handle, LONGEST)
    finally:
        os.close(handle)


def _as_holder(held: Any) -> Holder:
    holder = Holder(**held)
    texts = (value for name, value in asdict(holder).items() if name != "process")
    if (
        type(holder.process) is not int
        or not 0 < holder.process < 1 << 31
        or not all(isinstance(t, str) for t in texts)
    ):
        raise ValueError("it names no process")
    if holder.job:
        JobHere.read(holder.job)  # or a ValueError
    return holder


def is_held(path: Path) -> bool:
    """Whether somebody has a lock who is not known to be gone."""
    try:
        held = read_lock(path)
    except StoreError:
        return False
    return held is not None and held.state != "gone"


def take(path: Path) -> Holder | None:
    """Take a lock; whoever holds it, if that is somebody else."""
    held = read_lock(path)
    if held is not None and held.state != "gone":
        return held
    me = Holder.me()
    aside = path.with_name(f".{uuid.uuid4().hex}.lock")
    write_text(aside, json.dumps(sealed(me.told)))
    try:
        with disk_errors(path):
            for _ in range(TRIES):
                if _linked(aside, path):
                    return None
                held = read_lock(path)
                if held is None:  # given back since
                    continue
                if held.state != "gone":
                    return held
                rival = _succeed(held, path, aside, me)
                if rival is not held:  # else another succeeded it: look again
                    return rival
        raise StoreError(f"{path}: cannot be taken, it changes all the time; remove it if nobody writes here")
    finally:
        with contextlib.suppress(OSError):
            aside.unlink()


def _linked(aside: Path, path: Path) -> bool:
    """Whether the lock is ours now; it is not if it was there already."""
    try:
        os.link(aside, path)
    except FileExistsError:
        return aside.stat().st_nlink == 2  # of a repeated request: the first had made it
    return True


def _succeed(gone: Holder, path: Path, aside: Path, me: Holder) -> Holder | None:
    """Take over from a holder that is gone: None if we did, a rival that holds it, `gone` if another has done so."""
    succession = path.with_name(f".{_short(path.name, json.dumps(gone.told))}.lock")
    rival = take(succession)
    if rival is not None:
        return rival
    try:
        if read_lock(path) != gone:
            return gone
        with contextlib.suppress(FileNotFoundError):  # of a repeated request
            aside.replace(path)
        return None if read_lock(path) == me else gone
    finally:
        release(succession)


def _short(*parts: str) -> str:
    """A file name of one length, however long its parts."""
    return hashlib.sha256("\n".join(parts).encode(errors="surrogateescape")).hexdigest()[:24]


def release(path: Path) -> None:
    """Give back what this process holds; where the disk forbids it, the lock ends with the process."""
    with contextlib.suppress(OSError, StoreError):
        if read_lock(path) == Holder.me():
            path.unlink()


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
