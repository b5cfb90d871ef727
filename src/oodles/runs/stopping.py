"""Stop on request: on SIGTERM, and on SIGUSR2, which SLURM sends before a job's time limit.

The run then stops at its next safe point.
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
    """The run was stopped, which is no failure: committed results stay, and the same command resumes."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.number = number


@dataclass(slots=True)
class Stop:
    """Whether a stop was requested, and by which signal."""

    number: int = 0

    def __bool__(self) -> bool:
        return self.number != 0

    def obey(self) -> None:
        """Raise `Stopped` if a stop was requested; called where no work is half done."""
        if self.number:
            raise Stopped(self.number)


@contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """Record signals instead of ending the process; only possible in the main thread."""
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
