"""Progress events of a run: log lines, the current activity, and completed work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from oodles.runs.progress import Progress, say


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A progress event."""

    text: str = ""  # a log line
    doing: str = ""  # the current activity
    work: float = 0.0  # work since the last event, in prompt characters scored


Listener = Callable[[Event], None]


def show_on(progress: Progress) -> Listener:
    """Return a listener that updates a progress bar."""

    def listen(event: Event) -> None:
        progress.advance(event.work)
        if event.doing:
            progress.label(event.doing)
        if event.text:
            progress.say(event.text)

    return listen


def print_lines(event: Event) -> None:
    """Print the log line of an event; a listener."""
    if event.text:
        say(event.text)


def ignore(_: Event) -> None:
    """Ignore all events."""
