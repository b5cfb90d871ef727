"""Hours of GPUs."""

from __future__ import annotations

import pytest

from oodles.study.devices import ASSUMED, DEVICES, USABLE, Load, hours_on

A100 = next(device for device in DEVICES if device.name == "A100")
HOUR = 312e12 * 3600 * ASSUMED[1]  # operations of an hour at the assumed share


def test_hours_are_the_arithmetic_at_a_share_of_the_rate() -> None:
    hours = hours_on(A100, [Load(model="a", arithmetic=HOUR, memory=1), Load(model="b", arithmetic=2 * HOUR, memory=1)])
    assert hours.hours == hours.fitting == pytest.approx(3.0)
    assert (hours.low, hours.high) == (pytest.approx(3 * 0.35 / 0.5), pytest.approx(3 * 0.35 / 0.2))
    assert (hours.name, dict(hours.too_large)) == ("A100", {})


def test_what_does_not_fit_is_counted_and_named() -> None:
    room = int(USABLE * A100.memory)
    loads = [Load(model="m", arithmetic=HOUR, memory=size) for size in (room, room + 1, room + 2)]
    hours = hours_on(A100, loads)
    assert (hours.hours, hours.fitting) == (pytest.approx(3.0), pytest.approx(1.0))
    assert hours.too_large == {"m": 2}


def test_without_runs_there_are_no_hours() -> None:
    assert hours_on(A100, []).hours == hours_on(A100, []).high == 0.0
