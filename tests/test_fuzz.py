"""Fuzzed inputs: a short form every day, two hundred thousand in `make test-long`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

FUZZ = Path(__file__).parent / "fuzz.py"


@pytest.fixture(autouse=True)
def own_environment() -> Iterator[None]:
    """Inputs of the campaign set variables, which are not for the tests that follow."""
    with mock.patch.dict(os.environ):
        yield


def campaign(inputs: int, seed: int) -> dict[str, Any]:
    command = [sys.executable, str(FUZZ), "--inputs", str(inputs), "--seed", str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def assert_clean(found: dict[str, Any]) -> None:
    assert not found["found"], json.dumps(found["found"][:3], indent=2)[:5000]
    assert (found["hangs"], found["tracebacks_and_others"]) == (0, 0)


def test_a_short_campaign() -> None:
    found = campaign(800, seed=7)
    assert found["inputs"] == 800
    assert len(found["by_kind"]) == 25
    assert_clean(found)


def test_the_campaign_can_find_something(tmp_path: Path) -> None:
    """A reader that fails on some inputs, and one that never ends."""
    import fuzz

    case = fuzz.Case(lambda: [][0], [])
    assert "IndexError" in fuzz.judge(case, whole=False)
    held, fuzz.SECONDS = fuzz.SECONDS, 0.2
    try:
        assert fuzz.judge(fuzz.Case(_forever, []), whole=False) == "hang"
    finally:
        fuzz.SECONDS = held
    assert "characters" in fuzz.judge_message("x" * 2000)
    assert "lines" in fuzz.judge_message("x\n" * 9)


def _forever() -> None:
    while True:
        pass


def test_scores_that_are_known_come_out_as_they_went_in(tmp_path: Path) -> None:
    """Of ten formats, some of them cut off: no other number, and no silent loss."""
    import fuzz

    for number in range(150):
        wrong = fuzz.try_one("true scores", number, 3, tmp_path, tmp_path)
        assert not wrong, wrong


@pytest.mark.long
@pytest.mark.timeout(6 * 3600)
def test_ten_thousand_inputs_of_every_importer() -> None:
    import fuzz

    found = fuzz.campaign_each(fuzz.IMPORTERS, 10_000, 0, Path("build/fuzz-each.json"))
    assert not found["found"], json.dumps(found["found"][:3], indent=2)[:5000]
    assert {one["inputs"] for one in found["by_kind"].values()} == {10_000}


@pytest.mark.long
@pytest.mark.timeout(4 * 3600)
def test_two_hundred_thousand_inputs() -> None:
    found = campaign(200_000, seed=0)
    assert found["inputs"] >= 200_000
    Path("build").mkdir(exist_ok=True)
    Path("build/fuzz.json").write_text(json.dumps(found, indent=2))
    assert_clean(found)
