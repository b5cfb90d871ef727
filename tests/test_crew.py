"""Which processes make a run together, and what is refused before any of them is started."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from oodles.contracts import SlurmJob, Study
from oodles.errors import ConfigError, MissingExtraError
from oodles.study import crew
from oodles.study.crew import check_engine, processes_here, seat_in_job
from oodles.study.load import load_study
from oodles.study.slurm import tasks_of


@pytest.fixture
def study(toy_study: Path) -> Study:
    return load_study(toy_study, ["engine=ddp"])


def on(monkeypatch: pytest.MonkeyPatch, gpus: int, cores: int = 4) -> None:
    """Simulated: a machine of other size."""
    monkeypatch.setattr(crew, "visible_devices", lambda: tuple(map(str, range(gpus))))
    monkeypatch.setattr(crew, "cores_here", lambda: cores)


def test_one_process_per_gpu_unless_the_study_says_how_many(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    on(monkeypatch, gpus=4)
    assert processes_here(study) == 4
    assert processes_here(replace(study, processes=2)) == 2
    on(monkeypatch, gpus=0)
    assert processes_here(replace(study, processes=3)) == 3


@pytest.mark.parametrize(
    ("gpus", "processes", "message"),
    [
        (0, None, r'engine "ddp" needs two processes or more, but 0 GPUs are visible; say how many'),
        (1, None, r"but 1 GPUs are visible"),
        (2, 3, r"processes is 3, but this machine has 2 GPUs; lower it"),
        (0, 5, r"processes is 5, but this machine has 4 cores; lower it"),
        (8, None, r"batch_size is 4, which 8 processes cannot share"),
    ],
)
def test_more_processes_than_there_are_is_refused(
    gpus: int, processes: int | None, message: str, study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(monkeypatch, gpus)
    with pytest.raises(ConfigError, match=message):
        processes_here(replace(study, processes=processes))


def test_workers_and_an_engine_contradict_each_other(study: Study) -> None:
    check_engine(study)
    with pytest.raises(ConfigError, match=r'--workers 2: with engine "ddp" all processes make one run together'):
        check_engine(study, workers=2)


def test_deepspeed_that_is_not_installed_is_asked_for(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crew, "find_spec", lambda _: None)
    check_engine(study)
    with pytest.raises(MissingExtraError, match=r'engine "zero3" needs .*; run: pip install .oodles\[deepspeed\].'):
        check_engine(replace(study, engine="zero3"))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["engine=dpp"], r"engine is 'dpp', expected one of single, ddp, fsdp2, zero2, zero3"),
        (["processes=2"], r'processes is 2, but engine "single" has one'),
        (["engine=ddp", "processes=1"], r'expected at least 2: with one, engine "ddp" would be "single"'),
        (["engine=ddp", "processes=8"], r"batch_size is 4, which 8 processes cannot share"),
        (["engine=fsdp2", "train.optimiser=adafactor"], r'optimiser is "adafactor", whose state cannot be split'),
        (["engine=zero2", "train.optimiser=adafactor"], r'choose "adamw" or "sgd" with "zero2"'),
        (["engine=fsdp2", "lora.bias=all"], r'bias is "all"; engine "fsdp2" trains adapters only'),
        (["engine=zero3", "lora.bias=all"], r'bias is "all"; engine "zero3" trains adapters only'),
    ],
)
def test_what_an_engine_cannot_do_is_refused_by_name(overrides: list[str], message: str, toy_study: Path) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        load_study(toy_study, overrides)
    assert len(str(refused.value).splitlines()) == 1


STEP = {
    "SLURM_JOB_ID": "7",
    "SLURMD_NODENAME": "n1",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "1",
    "SLURM_LOCALID": "1",
}


def test_a_task_of_slurm_knows_its_place(study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert seat_in_job(study, tmp_path) is None
    for name, value in STEP.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6")
    monkeypatch.setenv("PMI_SIZE", "2")
    seat = seat_in_job(study, tmp_path)
    assert seat is not None
    assert (seat.rank, seat.size, seat.meeting.name) == (1, 2, "meeting-7-0-0.json")
    assert seat.host == "127.0.0.1"  # on one node, nobody else is listened to
    assert crew.os.environ["CUDA_VISIBLE_DEVICES"] == "6"  # its own GPU
    assert "PMI_SIZE" not in crew.os.environ  # libraries look for it
    assert seat_in_job(replace(study, engine="single"), tmp_path) is None
    with pytest.raises(ConfigError, match="processes is 3, but the job has 2 tasks"):
        seat_in_job(replace(study, processes=3), tmp_path)
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "1")
    assert seat_in_job(study, tmp_path) is None


def test_a_job_has_a_task_per_process(study: Study) -> None:
    assert tasks_of(replace(study, engine="single"), SlurmJob(gpus=2)) == 1
    assert tasks_of(study, SlurmJob(gpus=2)) == 2
    assert tasks_of(replace(study, processes=3), SlurmJob()) == 3
    for job, message in (
        (SlurmJob(), "say .slurm. gpus = 2"),
        (SlurmJob(gpus=1), "needs two processes or more"),
        (SlurmJob(gpus=4, cpus=2), "cpus is 2, expected at least one for each of 4 processes"),
    ):
        with pytest.raises(ConfigError, match=message):
            tasks_of(study, job)
    with pytest.raises(ConfigError, match=r"processes is 2, but .slurm. gpus is 4"):
        tasks_of(replace(study, processes=2), SlurmJob(gpus=4))
