"""Locks on runs: a file that names host, process and start, so that its holder can be checked. No clock is trusted.

A lock is a file that appears whole or not at all: it is written under a name of its own and linked to the lock's name,
which fails if that exists. Its holder is gone if it was a process of this very machine that runs no more; a holder on
another machine cannot be seen from here, so its lock is respected until somebody removes it. If it was a job of SLURM,
SLURM knows: the lock of a job that is no longer in the queue, or was started again since, is a dead one.

A dead lock is taken over on the study's own disk, which all takers share even if they share nothing else (machine,
temporary folder, container). Only the holder of its *succession*, a lock named after the dead holder, may replace the
dead lock, and only while the dead holder still owns it. A dead holder never comes back, so a later successor sees
another lock and leaves it alone. A taker that dies during its takeover leaves a dead succession, which is taken over in
the same way. Renaming the dead lock aside would not be safe: the slowest of three takers may move the live lock of the
first, and the third finds the name free before it is restored.

On NFS, link and rename are atomic on the server, but a reply may be lost, and the repeated request then fails although
the first succeeded. Therefore the result is checked instead of the error: the link count of the linked file, and the
content of the renamed one. Advisory locks (flock, fcntl) are not used, because some shared disks ignore them.
"""

from __future__ import annotations

import contextlib
import errno
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
GLANCE, GLANCES = 0.02, 50  # seconds between two looks at an empty lock, and how many
NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A process, identified so that no other process can be mistaken for it."""

    host: str
    boot: str  # the machine's current boot: earlier processes are gone
    space: str  # PID namespace: a container has its own
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
        """Whether the holder still runs, as far as this process can see; in doubt, it does."""
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
    """Whether a process with this number exists; another user's may be hidden from /proc, but not from kill."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _seen(process: int) -> tuple[str | None, bool]:
    """Return the start of a process, if visible, and whether it is a zombie."""
    try:
        if str(Path("/proc/self").readlink()) != str(os.getpid()):
            return None, False  # this /proc belongs to another PID namespace
        fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
        return fields[19], fields[0] in "ZX"
    except (OSError, IndexError):
        if Path("/proc/self/stat").is_file():
            return None, False
    return _told("ps", "-o", "lstart=", "-p", str(process)) or None, False


def _told(*command: str) -> str:
    """Run a command on a system without /proc; return its output."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""


def read_lock(path: Path) -> Holder | None:
    """Return the holder of a lock, if there is one."""
    try:
        return _as_holder(unsealed(json.loads(_read_file(path))))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error).splitlines()[0]
        raise StoreError(
            f"{path}: cannot be read as a lock ({reason}); remove the file if no process writes here"
        ) from None


def _read_file(path: Path) -> bytes:
    """Read a lock file without blocking or following links, whatever exists under its name."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ValueError("not a regular file")
        for _ in range(GLANCES):  # without hard links, a lock is empty for a moment
            if text := os.read(handle, LONGEST):
                return text
            time.sleep(GLANCE)
        return b""
    finally:
        os.close(handle)


def _as_holder(fields: Any) -> Holder:
    holder = Holder(**fields)
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
    """Whether a lock has a holder that is not known to be gone."""
    try:
        holder = read_lock(path)
    except StoreError:
        return False
    return holder is not None and holder.state != "gone"


def take(path: Path) -> Holder | None:
    """Take a lock; return None, or the other process that holds it."""
    holder = read_lock(path)
    if holder is not None and holder.state != "gone":
        return holder
    me = Holder.me()
    aside = path.with_name(f".{uuid.uuid4().hex}.lock")
    write_text(aside, json.dumps(sealed(me.told)))
    try:
        with disk_errors(path):
            for _ in range(TRIES):
                if _linked(aside, path):
                    return None
                holder = read_lock(path)
                if holder is None:  # released in the meantime
                    continue
                if holder.state != "gone":
                    return holder
                rival = _succeed(holder, path, aside, me)
                if rival is not holder:  # otherwise another process took over: try again
                    return rival
        raise StoreError(
            f"{path}: cannot take this lock, because it keeps changing; remove the file if no process writes here"
        )
    finally:
        with contextlib.suppress(OSError):
            aside.unlink()


def _linked(aside: Path, path: Path) -> bool:
    """Link the lock file to its name; return whether the lock is ours."""
    try:
        os.link(aside, path)
    except FileExistsError:
        return aside.stat().st_nlink == 2  # of a repeated request: the first had made it
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        return _written(path, aside.read_bytes())
    return True


def _written(path: Path, text: bytes) -> bool:
    """As `_linked`, on a file system without hard links, such as exFAT and some network disks."""
    try:
        handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o644)
    except FileExistsError:
        return False
    try:
        os.write(handle, text)
        os.fsync(handle)
    finally:
        os.close(handle)
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
        with contextlib.suppress(FileNotFoundError):  # a repeated request on NFS
            aside.replace(path)
        return None if read_lock(path) == me else gone
    finally:
        release(succession)


def _short(*parts: str) -> str:
    """Return a file name of fixed length for parts of any length."""
    return hashlib.sha256("\n".join(parts).encode(errors="surrogateescape")).hexdigest()[:24]


def release(path: Path) -> None:
    """Release a lock of this process; if the disk prevents it, the lock ends with the process."""
    with contextlib.suppress(OSError, StoreError):
        if read_lock(path) == Holder.me():
            path.unlink()


@contextmanager
def holding(path: Path) -> Iterator[None]:
    """Hold a lock, or raise an error that names its holder."""
    holder = take(path)
    if holder is not None:
        raise StoreError(f"{path}: locked by {holder}; wait for it, or remove this file if that process is gone")
    try:
        yield
    finally:
        release(path)


@contextmanager
def held_briefly(path: Path) -> Iterator[None]:
    """Wait for a lock that every process holds only briefly."""
    for _ in range(LOOKS):
        holder = take(path)
        if holder is None:
            break
        time.sleep(PATIENCE)
    else:
        raise StoreError(f"{path}: locked by {holder} for too long; remove the file if that process is gone")
    try:
        yield
    finally:
        release(path)
