"""Asked to stop: SIGTERM, and SIGUSR2 which SLURM sends before a job's time is over.

A run then ends at its next safe moment.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGUSR2)


class Stopped(BaseException):
    """Not a failure: what is committed stays, and the same command resumes from there."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.number = number


@dataclass(slots=True)
class Stop:
    """Whether somebody asked to stop, and by which signal."""

    number: int = 0

    def __bool__(self) -> bool:
        return self.number != 0

    def obey(self) -> None:
        """Called where nothing is half done."""
        if self.number:
            raise Stopped(self.number)


@contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """Signals are noted instead of ending the process; only the main thread can do so."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def note(number: int, _frame: FrameType | None) -> None:
        stop.number = number

    before = {s: signal.signal(s, note) for s in SIGNALS}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
