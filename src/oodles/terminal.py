"""What reaches a terminal: text only. Names and texts of data may hold escape codes; they are spelt out, not obeyed."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.segment import Segment

from oodles.errors import plain


class PlainConsole(Console):
    """A console whose colours are its own: control characters in what it prints are shown as text."""

    def render(self, renderable: Any, options: Any = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield Segment(plain(segment.text), segment.style)


def accept_any_text() -> None:
    """Print what a terminal's encoding does not have as an escape such as \\u2192, rather than fail."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            with contextlib.suppress(OSError):  # a broken stream fails nothing
                stream.reconfigure(errors="backslashreplace")


def is_unicode(stream: Any) -> bool:
    """Whether a stream can show any text."""
    return (getattr(stream, "encoding", None) or "utf-8").lower().replace("-", "").startswith("utf")
