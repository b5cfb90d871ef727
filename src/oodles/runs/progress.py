"""What a long job tells while it runs, on stderr: a live bar with the time left in a terminal, else plain lines.

A log that is full, closed or no longer read fails nothing: what cannot be written is dropped.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from types import TracebackType
from typing import IO, Any, Self, cast

from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from oodles.errors import plain
from oodles.terminal import PlainConsole


class _BestEffort:
    """A stream whose errors are nobody's business."""

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
    """stderr, as far as it can be written."""
    return cast(IO[str], _BestEffort(sys.stderr))


def say(text: str) -> None:
    """A line on stderr, if it can be written."""
    print(plain(text), file=log_stream(), flush=True)


def to_nowhere(stream: Any) -> None:
    """What is written to a stream from now on is dropped, with what it could not write before."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
        stream.flush()


def open_streams() -> None:
    """Standard streams that the caller has closed lead nowhere; else the next file that is opened takes their place."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115, PTH123


def settle_streams() -> None:
    """Before a process ends: what stderr cannot write is dropped, so that it does not decide the exit code."""
    try:
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        to_nowhere(sys.stderr)


class Progress:
    """Counts work in any unit; `total` is the whole of it, 0 if that is not known."""

    def __init__(self, total: float, label: str = "") -> None:
        self._total, self._done = total, 0.0
        self._start = time.monotonic()
        self._bar: Bar | None = None
        if sys.stderr.isatty():
            columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
            left = (TextColumn("left"), TimeRemainingColumn(compact=True))
            console = PlainConsole(file=log_stream())
            self._bar = Bar(*columns, *left, console=console, speed_estimate_period=300)
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
        """All is done, whatever was counted on the way; the text is printed if the last line did not show 100 %."""
        uncounted = self._total - self._done
        self.advance(uncounted)
        if self._bar is None and uncounted > 0.005 * self._total:
            self.say(text)

    def label(self, text: str) -> None:
        """What is being done now."""
        if self._bar is not None:
            self._bar.update(self._task, description=text)

    def say(self, text: str) -> None:
        """A line that stays."""
        if self._bar is not None:
            self._bar.console.print(text, highlight=False, markup=False)
        else:
            say(f"[{self._done / self._total:4.0%}{self._left()}] {text}" if self._total else text)

    def _left(self) -> str:
        elapsed = time.monotonic() - self._start
        if self._done < 0.01 * self._total:
            return ""
        return f", {duration(elapsed / self._done * (self._total - self._done))} left"


def duration(seconds: float) -> str:
    """
    >>> duration(372)
    '6m12s'
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
