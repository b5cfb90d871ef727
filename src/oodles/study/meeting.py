"""How the processes of a run find each other, get their orders, and notice that one of them is gone.

The first process listens and writes its address, with a key, to a file that only its user can read. Each of the others
connects and keeps the connection open: orders come through it, and its end means that the process at the other end is
gone, however it ended. Nobody waits for a dead process: if the first is gone, the others end; if another is gone, the
first says so in the run's folder and ends.
"""

from __future__ import annotations

import hmac
import json
import os
import queue
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from oodles.errors import ConfigError

TOGETHER = 600.0  # seconds in which all processes must be there
LOOK = 0.1  # seconds between two looks for the address
GRACE = 20.0  # seconds that a process is given to leave a common operation by itself, when another is gone
GONE = 70  # exit code of a process that ends because another is gone


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """The place of a process among those that make runs together."""

    rank: int
    size: int
    local: int  # its number on its machine
    meeting: Path  # the file with the address
    host: str = "127.0.0.1"  # of the first process; empty: its own name

    def __str__(self) -> str:
        return f"process {self.rank + 1} of {self.size}"


class Leader:
    """The first process: it gives orders, and notices when another is gone."""

    def __init__(self, seat: Seat, store_port: int) -> None:
        self._seat = seat
        self._said = threading.Condition()
        self._trouble: str | None = None
        self._closing = False
        self._streams: list[IO[str]] = []
        self._give_up: Callable[[str], None] | None = None
        self._key = secrets.token_hex(16)
        with socket.create_server((seat.host, 0)) as server:
            host = seat.host or socket.gethostname()
            told = {"host": host, "port": server.getsockname()[1], "key": self._key, "store": store_port}
            _write(seat.meeting, json.dumps(told))
            try:
                self._accept(server)
            finally:
                seat.meeting.unlink(missing_ok=True)

    def _accept(self, server: socket.socket) -> None:
        deadline = time.monotonic() + TOGETHER
        here: set[int] = set()
        while len(here) < self._seat.size - 1:
            server.settimeout(max(0.1, deadline - time.monotonic()))
            try:
                connection, _ = server.accept()
            except TimeoutError:
                missing = sorted({*range(1, self._seat.size)} - here)
                raise ConfigError(
                    f"engine: process {missing[0] + 1} of {self._seat.size} has not come within {TOGETHER:.0f} s; start"
                    " as many as the study's engine has (srun --ntasks)"
                ) from None
            rank = self._welcome(connection)
            if rank is not None:
                here.add(rank)

    def _welcome(self, connection: socket.socket) -> int | None:
        """Admit one of the others, which must know the key; watch it from now on."""
        connection.settimeout(10)
        stream = connection.makefile("rw", encoding="utf-8")
        try:
            told = json.loads(stream.readline() or "{}")
        except (OSError, ValueError):
            told = {}
        if not hmac.compare_digest(str(told.get("key", "")), self._key):
            connection.close()
            return None
        connection.settimeout(None)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # of a machine that is gone
        self._streams.append(stream)
        rank = int(told["rank"])
        threading.Thread(target=self._watch, args=(rank, stream), daemon=True).start()
        return rank

    def order(self, run: str, give_up: Callable[[str], None]) -> None:
        """Let the others make a run; `give_up` is called with a reason if that becomes impossible."""
        self._give_up = give_up
        self._send({"run": run})

    def settled(self) -> None:
        """The run has ended; nothing must be given up any more."""
        self._give_up = None

    def end(self) -> None:
        """Send the others home."""
        self._closing = True
        self._send({})

    def trouble(self, patience: float = 3.0) -> str | None:
        """Return what another process reported, or that it is gone; it may take a moment until this is known."""
        with self._said:
            self._said.wait_for(lambda: self._trouble is not None, patience)
            return self._trouble

    def _send(self, message: dict[str, Any]) -> None:
        for stream in self._streams:
            try:
                stream.write(json.dumps(message) + "\n")
                stream.flush()
            except (OSError, ValueError):
                pass  # it is gone, which _watch notices

    def _watch(self, rank: int, stream: IO[str]) -> None:
        who, reason = f"process {rank + 1} of {self._seat.size}", ""
        try:
            for line in stream:
                reason = str(json.loads(line).get("failed", ""))
        except (OSError, ValueError):
            pass
        if self._closing:
            return
        with self._said:
            self._trouble = self._trouble or (f"{who}: {reason}" if reason else f"{who} ended unexpectedly")
            self._said.notify_all()
        time.sleep(GRACE)
        if self._give_up is not None and not self._closing:  # the run still waits for a process that is gone
            self._give_up(self._trouble)
            os._exit(GONE)


class Member:
    """Another process: it gets its orders from the first, and ends when that is gone."""

    def __init__(self, seat: Seat) -> None:
        told = _read(seat)
        self.host, self.store_port = str(told["host"]), int(told["store"])
        connection = socket.create_connection((self.host, told["port"]), timeout=60)
        connection.settimeout(None)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._stream = connection.makefile("rw", encoding="utf-8")
        self._send({"key": told["key"], "rank": seat.rank})
        self._orders: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()

    def order(self) -> str | None:
        """Wait for the next run; None: there is none."""
        return self._orders.get()

    def report(self, reason: str) -> None:
        """Tell the first process why this one fails."""
        self._send({"failed": reason})

    def _send(self, message: dict[str, Any]) -> None:
        self._stream.write(json.dumps(message) + "\n")
        self._stream.flush()

    def _listen(self) -> None:
        try:
            for line in self._stream:
                run = json.loads(line).get("run")
                self._orders.put(run)
                if run is None:
                    return
        except (OSError, ValueError):
            pass
        sys.stderr.flush()
        os._exit(GONE)  # the first process is gone: nothing can be finished, and nothing is lost


def _write(path: Path, text: str) -> None:
    """Write a file that only its user can read; it appears whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
    aside.replace(path)


def _read(seat: Seat) -> dict[str, Any]:
    deadline = time.monotonic() + TOGETHER
    while time.monotonic() < deadline:
        try:
            told: dict[str, Any] = json.loads(seat.meeting.read_text())
            return told
        except (OSError, ValueError):
            time.sleep(LOOK)
    raise ConfigError(f"engine: {seat} has waited {TOGETHER:.0f} s for the first one, which did not come")
