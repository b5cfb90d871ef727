"""A headless Chromium, spoken to over its debugging pipe: no driver, no package.

>>> with Browser() as browser:  # doctest: +SKIP
...     page = browser.open(path)
...     page.evaluate("document.title")
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PATIENCE = 60.0  # seconds


class Browser:
    """One browser process; pages are opened one after the other."""

    def __init__(self) -> None:
        assert CHROMIUM, "no chromium: apt-get install chromium"
        self.profile = tempfile.TemporaryDirectory(prefix="oodles-chromium-")
        read_theirs, self._write = os.pipe()
        self._read, write_theirs = os.pipe()

        def pipes() -> None:  # Chromium reads from 3 and writes to 4
            os.dup2(read_theirs, 63)
            os.dup2(write_theirs, 64)
            os.dup2(63, 3)
            os.dup2(64, 4)

        switches = ["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--hide-scrollbars"]
        switches += ["--disable-dev-shm-usage", "--no-first-run", "--disable-extensions", "--force-color-profile=srgb"]
        self.process = subprocess.Popen(
            [CHROMIUM, *switches, f"--user-data-dir={self.profile.name}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            close_fds=False,
            preexec_fn=pipes,
        )
        os.close(read_theirs)
        os.close(write_theirs)
        self.events: list[dict[str, Any]] = []
        self._number, self._rest = 0, b""

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.terminate()
        self.process.wait(20)
        os.close(self._write)
        os.close(self._read)
        self.profile.cleanup()

    def send(self, method: str, session: str | None = None, **params: Any) -> Any:
        """A command and its result; events that arrive meanwhile are kept."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        message |= {"sessionId": session} if session else {}
        os.write(self._write, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + PATIENCE
        for answer in self._messages(until):
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]
            self.events.append(answer)
        raise TimeoutError(method)

    def wait(self, method: str) -> dict[str, Any]:
        """The next event of this name."""
        for i, event in enumerate(self.events):
            if event.get("method") == method:
                return self.events.pop(i)
        for event in self._messages(time.monotonic() + PATIENCE):
            if event.get("method") == method:
                return event
            self.events.append(event)
        raise TimeoutError(method)

    def _messages(self, until: float) -> Iterator[dict[str, Any]]:
        while time.monotonic() < until:
            while b"\0" in self._rest:
                line, self._rest = self._rest.split(b"\0", 1)
                yield json.loads(line)
            if select.select([self._read], [], [], 0.2)[0]:
                self._rest += os.read(self._read, 1 << 20)

    def open(
        self,
        path: Path,
        *,
        width: int = 1280,
        height: int = 800,
        dark: bool = False,
        fragment: str = "",
        script: bool = True,
    ) -> Page:
        """A page of this size from the disk, loaded."""
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session, target)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.send(f"{domain}.enable")
        page.resize(width, height)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        page.send("Emulation.setEmulatedMedia", features=scheme)
        page.send("Emulation.setScriptExecutionDisabled", value=not script)
        self.events.clear()
        page.send("Page.navigate", url=path.resolve().as_uri() + (f"#{fragment}" if fragment else ""))
        self.wait("Page.loadEventFired")
        return page


class Page:
    """A tab."""

    def __init__(self, browser: Browser, session: str, target: str) -> None:
        self.browser, self.session, self.target = browser, session, target

    def send(self, method: str, **params: Any) -> Any:
        return self.browser.send(method, self.session, **params)

    def resize(self, width: int, height: int) -> None:
        self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    def evaluate(self, expression: str) -> Any:
        found = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def hover(self, selector: str, *, x: float = 0.5, y: float = 0.5) -> None:
        """The pointer over an element, after scrolling to it."""
        place = self.evaluate(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            " e.scrollIntoView({block: 'center', behavior: 'instant'});"
            " const b = e.getBoundingClientRect(); return [b.x, b.y, b.width, b.height]; })()"
        )
        at = {"x": place[0] + x * place[2], "y": place[1] + y * place[3]}
        for shift in (-1, 0):
            self.send("Input.dispatchMouseEvent", type="mouseMoved", x=at["x"] + shift, y=at["y"], pointerType="mouse")

    def screenshot(self, path: Path, *, whole: bool = True) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        shot = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole, **self._clip(whole))
        path.write_bytes(base64.b64decode(shot["data"]))
        return path

    def _clip(self, whole: bool) -> dict[str, Any]:
        if not whole:
            return {}
        size = self.send("Page.getLayoutMetrics")["cssContentSize"]
        return {"clip": {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], 12000), "scale": 1}}

    def pdf(self) -> bytes:
        return base64.b64decode(self.send("Page.printToPDF", printBackground=True)["data"])

    @property
    def troubles(self) -> list[str]:
        """Errors and warnings of the console, and exceptions."""
        self.evaluate("1")  # all events that came before
        found = []
        for event in self.browser.events:
            if event["method"] == "Runtime.exceptionThrown":
                found.append(str(event["params"]["exceptionDetails"]))
            if event["method"] == "Runtime.consoleAPICalled" and event["params"]["type"] in ("error", "warning"):
                found.append(str(event["params"]["args"]))
            if event["method"] == "Log.entryAdded" and event["params"]["entry"]["level"] in ("error", "warning"):
                found.append(event["params"]["entry"]["text"])
        return found

    @property
    def requests(self) -> list[str]:
        """What was asked for, beside the file itself."""
        self.evaluate("1")
        asked = [
            e["params"]["request"]["url"] for e in self.browser.events if e["method"] == "Network.requestWillBeSent"
        ]
        return [url for url in asked if not url.startswith(("file:", "data:", "blob:"))]

    def close(self) -> None:
        self.browser.send("Target.closeTarget", targetId=self.target)


@contextmanager
def opened(path: Path, **options: Any) -> Iterator[Page]:
    """One page in a browser of its own."""
    with Browser() as browser:
        yield browser.open(path, **options)
