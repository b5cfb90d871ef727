"""Progress output on stderr: a live bar with the time left in a terminal, else plain lines.

A log that is full, closed or no longer read causes no failure: output that cannot be written is dropped.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from types import TracebackType
from typing import IO, Any, Self, cast

from rich.progress import (
    BarColumn,
    ProgressColumn,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as Bar

from oodles.errors import plain
from oodles.terminal import PlainConsole


class _BestEffort:
    """A stream whose errors are ignored."""

    def __init__(self, stream: Any) -> None:
        self._stream = getattr(stream, "rich_proxied_file", stream)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except BrokenPipeError:
            to_nowhere(self._stream)
        except (OSError, ValueError):
            pass


def log_stream() -> IO[str]:
    """Return stderr as a stream that ignores errors."""
    return cast(IO[str], _BestEffort(sys.stderr))


def say(text: str) -> None:
    """Print a line on stderr, if that is writable."""
    print(plain(text), file=log_stream(), flush=True)


def to_nowhere(stream: Any) -> None:
    """Redirect a stream to /dev/null, and drop its unwritten output."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
        stream.flush()


def open_streams() -> None:
    """Reopen closed standard streams to /dev/null; otherwise the next opened file would take their number."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115, PTH123


def settle_streams() -> None:
    """Drop unwritten stderr output before the process ends, so that it does not change the exit code."""
    try:
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        to_nowhere(sys.stderr)


def columns() -> tuple[ProgressColumn, ...]:
    """Return what a bar shows, in order."""
    activity = TextColumn("{task.description}", markup=False)
    left = (TextColumn("left"), TimeRemainingColumn(compact=True))
    return (activity, BarColumn(), TaskProgressColumn(), TimeElapsedColumn(), *left)


class Progress:
    """Counts work in any unit; `total` is the whole work, 0 if unknown."""

    def __init__(self, total: float, label: str = "") -> None:
        self._total, self._done = total, 0.0
        self._start = time.monotonic()
        self._bar: Bar | None = None
        if sys.stderr.isatty():
            self._bar = Bar(*columns(), console=PlainConsole(file=log_stream()), speed_estimate_period=300)
            self._task = self._bar.add_task(label, total=self._total or None)

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def advance(self, units: float) -> None:
        self._done = min(self._done + units, self._total)
        if self._bar is not None:
            self._bar.update(self._task, completed=self._done)

    def finish(self, text: str) -> None:
        """Set the progress to 100 %; print the text if the last line did not say 100 %."""
        uncounted = self._total - self._done
        self.advance(uncounted)
        if self._bar is None and uncounted > 0.005 * self._total:
            self.say(text)

    def label(self, text: str) -> None:
        """Set the current activity."""
        if self._bar is not None:
            self._bar.update(self._task, description=text)

    def say(self, text: str) -> None:
        """Print a permanent line."""
        if self._bar is not None:
            self._bar.console.print(text)
        else:
            say(f"[{self._done / self._total:4.0%}{self._left()}] {text}" if self._total else text)

    def _left(self) -> str:
        elapsed = time.monotonic() - self._start
        if self._done < 0.01 * self._total:
            return ""
        return f", {duration(elapsed / self._done * (self._total - self._done))} left"


def duration(seconds: float) -> str:
    """Format seconds for readers.

    >>> duration(372)
    '6m12s'
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
