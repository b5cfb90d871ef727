"""Signals are noted, obeyed where nothing is half done, and handed back."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from oodles.runs.stopping import SIGNALS, Stop, Stopped, stop_on_signals


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_is_noted_and_obeyed_later(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with stop_on_signals() as stop:
        assert not stop
        stop.obey()
        os.kill(os.getpid(), number)
        assert stop
        with pytest.raises(Stopped, match=f"stopped by {number.name}") as caught:
            stop.obey()
        assert caught.value.number == number
    assert signal.getsignal(number) is before


def test_handlers_are_handed_back_after_an_error() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    with pytest.raises(KeyError), stop_on_signals():
        raise KeyError
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_another_thread_only_gets_the_flag() -> None:
    seen: list[object] = []

    def work() -> None:
        with stop_on_signals() as stop:
            seen.append((bool(stop), signal.getsignal(signal.SIGTERM)))

    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [(False, before)]


def test_stopping_is_no_failure() -> None:
    assert not issubclass(Stopped, Exception)  # `except Exception` must not record it as a failed run
    Stop().obey()
