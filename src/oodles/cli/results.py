"""The standard output is for results: what libraries and their processes print there goes to stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO, Any

from oodles.runs.progress import log_stream

OUT, ERROR = 1, 2  # numbers of the streams, which other processes inherit


@dataclass(frozen=True, slots=True)
class _Aside:
    """The standard output, while it is put aside."""

    stream: IO[str]
    number: int


_aside: list[_Aside] = []  # at most one


@contextmanager
def results_only() -> Iterator[None]:
    """While a verb works, let only what it prints by `answering` reach the standard output."""
    _put_aside()
    try:
        yield
    finally:
        if _aside:
            with suppress(OSError, ValueError):
                _aside[0].stream.flush()  # of a library that has kept the stream
            _bring_back()


@contextmanager
def answering() -> Iterator[None]:
    """Print results."""
    if not _aside:
        yield
        return
    with suppress(OSError, ValueError):
        _aside[0].stream.flush()
    _bring_back()
    yield
    sys.stdout.flush()
    _put_aside()  # unless the results could not be written: then the rest of them must not go elsewhere


def _put_aside() -> None:
    with suppress(OSError, ValueError):
        sys.stdout.flush()
    _aside.append(_Aside(sys.stdout, os.dup(OUT)))
    os.dup2(ERROR, OUT)
    stream: Any = log_stream()
    sys.stdout = stream


def _bring_back() -> None:
    kept = _aside.pop()
    os.dup2(kept.number, OUT)
    os.close(kept.number)
    sys.stdout = kept.stream
