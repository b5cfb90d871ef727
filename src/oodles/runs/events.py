"""What a run tells whoever listens: lines that stay, what is being done now, and the work that is done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from oodles.runs.progress import Progress, say


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something to show."""

    text: str = ""  # a line that stays
    doing: str = ""  # what is being done now
    work: float = 0.0  # done since the last event, in prompt characters scored


Listener = Callable[[Event], None]


def show_on(progress: Progress) -> Listener:
    """A listener that moves a progress bar."""

    def listen(event: Event) -> None:
        progress.advance(event.work)
        if event.doing:
            progress.label(event.doing)
        if event.text:
            progress.say(event.text)

    return listen


def print_lines(event: Event) -> None:
    """A listener that prints the lines that stay."""
    if event.text:
        say(event.text)


def ignore(_: Event) -> None:
    """A listener for those who want to hear nothing."""
