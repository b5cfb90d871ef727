"""What a long job tells while it runs, on stderr: a live bar with the time left in a terminal, else plain lines."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Self

from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from oodles.errors import plain
from oodles.terminal import PlainConsole


class Progress:
    """Counts work in any unit; `total` is the whole of it."""

    def __init__(self, total: float, label: str = "") -> None:
        self._total, self._done, self._label = max(total, 1e-9), 0.0, label
        self._start = time.monotonic()
        self._bar: Bar | None = None
        if sys.stderr.isatty():
            columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
            left = (TextColumn("left"), TimeRemainingColumn(compact=True))
            self._bar = Bar(*columns, *left, console=PlainConsole(stderr=True), speed_estimate_period=300)
            self._task = self._bar.add_task(label, total=self._total)

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

    def label(self, text: str) -> None:
        """What is being done now."""
        self._label = text
        if self._bar is not None:
            self._bar.update(self._task, description=text)

    def say(self, text: str) -> None:
        """A line that stays."""
        if self._bar is not None:
            self._bar.console.print(text, highlight=False, markup=False)
        else:
            text = plain(text)
            print(f"[{self._done / self._total:4.0%}{self._left()}] {text}", file=sys.stderr, flush=True)

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
