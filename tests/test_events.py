"""What a run tells whoever listens."""

from __future__ import annotations

import pytest

from oodles.runs.events import Event, ignore, print_lines, show_on
from oodles.runs.progress import Progress


def test_a_progress_bar_hears_work_and_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(200.0, "study") as progress:
        listen = show_on(progress)
        listen(Event(work=100.0))
        listen(Event(doing="loading"))
        listen(Event(text="half"))
        listen(Event(work=100.0, text="all"))
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition("%")[0] for line in lines] == ["[ 50", "[100"]
    assert [line.partition("] ")[2] for line in lines] == ["half", "all"]


def test_only_lines_that_stay_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    for event in (Event(doing="loading", work=1.0), Event(text="step 0")):
        print_lines(event)
        ignore(event)
    assert capsys.readouterr().err == "step 0\n"
