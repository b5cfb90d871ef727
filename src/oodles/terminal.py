"""Safe terminal output: escape codes in names and data are shown as text, not interpreted."""

from __future__ import annotations

import contextlib
import io
import logging
import sys
from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.segment import Segment

from oodles.errors import plain


class PlainConsole(Console):
    """A console that shows text as it is: control characters, [brackets] and :names: in it have no effect."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"markup": False, "emoji": False, "highlight": False, **settings})

    def render(self, renderable: Any, options: Any = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield Segment(plain(segment.text), segment.style)


def keep_results_apart() -> None:
    """Let DeepSpeed log errors only: where it is installed, it logs to the standard output, which is for results."""
    logging.getLogger("DeepSpeed").addFilter(_is_error)


def _is_error(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.ERROR


def accept_any_text() -> None:
    """Print characters that the terminal's encoding lacks as escapes such as \\u2192, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            with contextlib.suppress(OSError):  # a broken stream must not cause a failure
                stream.reconfigure(errors="backslashreplace")


def is_unicode(stream: Any) -> bool:
    """Whether a stream can show any Unicode text."""
    return (getattr(stream, "encoding", None) or "utf-8").lower().replace("-", "").startswith("utf")
