"""What the command line prints: answers on stdout as text, tables or JSON; all else on stderr."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import typer
from rich.table import Table
from rich.text import Text

from oodles.cli.results import answering
from oodles.errors import plain
from oodles.runs.progress import say, to_nowhere
from oodles.terminal import PlainConsole, is_unicode

NOT_IN_JSON = re.compile("[\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")  # spelt out
NOTED = 8  # notes that are printed


def as_text(value: Any) -> str:
    with answering():
        ascii_only = not is_unicode(sys.stdout)
    text = json.dumps(value, indent=2, ensure_ascii=ascii_only, default=str)
    return NOT_IN_JSON.sub(lambda found: json.dumps(found[0])[1:-1], text)


def print_json(value: Any) -> None:
    with answering():
        print(as_text(value))


def print_table(title: str, columns: list[str], rows: list[list[str]]) -> None:
    table = Table(title=title or None, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*row)
    with answers(160) as console:
        console.print(table)


@contextmanager
def answers(width: int = 80) -> Iterator[PlainConsole]:
    """A console for results: as wide as the terminal; so many columns where there is none."""
    with answering():
        yield PlainConsole(width=None if sys.stdout.isatty() else width)


def tell(text: str) -> None:
    """A line of the answer, on stdout."""
    with answering():
        print(plain(text))


def clear_screen() -> None:
    """Where there is one."""
    with answering():
        if sys.stdout.isatty():
            print("\033[2J\033[H", end="")


def print_if_read(text: str, *, needed: bool = False) -> None:
    """What was run is in its folder: a reader that has gone fails nothing, and only JSON must be written whole."""
    with answering():
        try:
            print(plain(text), flush=True)
        except OSError as error:
            if needed and not isinstance(error, BrokenPipeError):
                raise
            to_nowhere(sys.stdout)


def note(notes: Iterable[str]) -> None:
    """A few notes; of many only how many there are."""
    told = list(dict.fromkeys(notes))
    for note in told[:NOTED]:
        say(f"note: {note}")
    if len(told) > NOTED:
        say(f"note: and {len(told) - NOTED} more like this")


@contextmanager
def waiting() -> Iterator[Callable[[str], None]]:
    """What is being looked at, on one line of a terminal; nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    with PlainConsole(stderr=True).status("reading the data") as status:
        yield lambda text: status.update(Text(text))


@contextmanager
def interruptible(text: str) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        say(text)
        raise typer.Exit(130) from None


Named = tuple[tuple[str, str], ...]  # a run, and the reason or holder


class LeftOut(Protocol):
    """Runs that nobody makes now: of a study that was run, or of one that was submitted."""

    @property
    def failed_before(self) -> Named: ...
    @property
    def held(self) -> Named: ...
    @property
    def refused(self) -> Named: ...


def say_left_out(runs: LeftOut) -> None:
    """One line for each run that nobody makes now."""
    for name, reason in runs.failed_before:
        say(f"failed before: {name}: {reason}; try it again with --retry-failed")
    for name, holder in runs.held:
        say(f"skipped {name}: locked by {holder}")
    for name, reason in runs.refused:
        say(f"left out: {name}: {reason}")


def left_out(runs: LeftOut) -> dict[str, list[dict[str, str]]]:
    """The same for --json."""
    return {
        "failed_before": [{"run": name, "reason": reason} for name, reason in runs.failed_before],
        "held": [{"run": name, "by": holder} for name, holder in runs.held],
        "refused": [{"run": name, "reason": reason} for name, reason in runs.refused],
    }
