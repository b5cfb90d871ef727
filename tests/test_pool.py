"""Workers that share the runs of a study."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from oodles.study.pool import Share, cores_here, setting, shares, together, visible_devices
from oodles.study.worker import Outcome


def test_cores_and_devices_are_handed_out() -> None:
    assert shares(2, 8, ()) == (Share(4, None), Share(4, None))
    assert [s.device for s in shares(4, 8, ("2", "5"))] == ["2", "5", "2", "5"]
    assert shares(8, 2, ())[0].environment["OMP_NUM_THREADS"] == "1"
    assert shares(1, 2, ("3",))[0].environment["CUDA_VISIBLE_DEVICES"] == "3"


@pytest.mark.parametrize(
    ("setting", "devices"), [("", ()), ("0,2", ("0", "2")), ("GPU-ab12, ", ("GPU-ab12",)), (None, ())]
)
def test_devices_are_those_that_cuda_may_use(
    setting: str | None, devices: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if setting is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", setting)
    else:
        monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    assert visible_devices() == devices


def test_a_machine_without_affinity_counts_its_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulated: macOS has no sched_getaffinity."""
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 10)
    assert cores_here() == 10


def test_a_worker_ssetting_is_handed_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with pytest.raises(KeyError), setting(Share(2, "1").environment):  # noqa: PT012
        assert (os.environ["OMP_NUM_THREADS"], os.environ["CUDA_VISIBLE_DEVICES"]) == ("2", "1")
        raise KeyError
    assert os.environ["OMP_NUM_THREADS"] == "7"
    assert "CUDA_VISIBLE_DEVICES" not in os.environ


def test_what_one_worker_did_is_no_longer_open_for_the_others(tmp_path: Path) -> None:
    first = Outcome(out=tmp_path, done=("a",), failed=(("b", "why"),), skipped=("d",))
    second = Outcome(
        out=tmp_path,
        skipped=("a", "c", "d"),
        held=(("a", "process 1"), ("e", "process 2")),
        failed_before=(("b", "old"), ("f", "old")),
        refused=(("a", "x"),),
    )
    whole = together([first, second], tmp_path, 0)
    assert whole == Outcome(
        out=tmp_path,
        done=("a",),
        skipped=("c", "d"),
        failed=(("b", "why"),),
        failed_before=(("f", "old"),),
        held=(("e", "process 2"),),
    )
    assert not whole.is_whole
    assert together([Outcome(out=tmp_path, done=("a",))], tmp_path, 0).is_whole
    assert not together([Outcome(out=tmp_path, done=("a",))], tmp_path, 15).is_whole
