"""SLURM's own commands, and nothing else of it: the queue, this job, requeue, cancel. `sacct` is not needed.

A cluster may have its accounting switched off, so what became of a job is read from the queue and the run folders.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from oodles.errors import SchedulerError, shown

PATIENCE = 60.0  # seconds in which the scheduler must answer; a restarted controller takes some
TOLD = {"JobArrayID": 40, "State": 20, "RestartCnt": 12, "NodeList": 80, "Reason": 80, "Comment": 60}  # widths
AT_ONCE = 500  # jobs that one scancel is given
JOB = re.compile(r"\d+(_(\d+|\[.*))?")
STATE = re.compile(r"[A-Z_]+")
RUNS = ("RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedJob:
    """A job that waits or runs; an element of an array is a job."""

    id: str  # 12_3: element 3 of array 12
    state: str  # as squeue spells it
    restarts: int
    node: str
    reason: str  # why it waits
    comment: str  # what it was submitted with

    @property
    def waits(self) -> bool:
        return self.state not in RUNS


@dataclass(frozen=True, slots=True, kw_only=True)
class JobHere:
    """The job that this process is a part of."""

    cluster: str
    id: str
    restarts: int

    def __str__(self) -> str:
        return f"{self.cluster}/{self.id}/{self.restarts}"

    @classmethod
    def read(cls, text: str) -> JobHere:
        """
        >>> JobHere.read("mini/12_3/1")
        JobHere(cluster='mini', id='12_3', restarts=1)
        """
        cluster, number, restarts = text.rsplit("/", 2)
        return cls(cluster=cluster, id=number, restarts=int(restarts))


def job_here() -> JobHere | None:
    """Where this process was started by SLURM's daemon on a node; a shell of `salloc` elsewhere was not."""
    told = os.environ
    if not told.get("SLURM_JOB_ID") or not told.get("SLURMD_NODENAME"):
        return None
    array = told.get("SLURM_ARRAY_JOB_ID")
    number = f"{array}_{told.get('SLURM_ARRAY_TASK_ID', '')}" if array else told["SLURM_JOB_ID"]
    return JobHere(
        cluster=told.get("SLURM_CLUSTER_NAME", ""), id=number, restarts=_whole(told.get("SLURM_RESTART_COUNT", ""))
    )


def has_ended(job: JobHere) -> bool:
    """Whether a job, as it was started then, is known to run no more; in doubt it does."""
    here = job_here()
    if here is not None and (here.cluster, here.id) == (job.cluster, job.id):
        return here.restarts > job.restarts
    try:
        cluster = here.cluster if here is not None else settings()["ClusterName"]
        if cluster != job.cluster:
            return False
        found = _jobs(_ask("squeue", "--noheader", "--array", "--jobs", job.id, "--Format", _fields()))
    except SchedulerError as error:
        return "Invalid job id" in str(error)
    except KeyError:
        return False
    return all(one.waits or one.restarts > job.restarts for one in found)


def queue() -> dict[str, QueuedJob]:
    """Every job of this user that waits or runs, by its id: one call."""
    told = _ask("squeue", "--noheader", "--array", "--user", str(os.getuid()), "--Format", _fields())
    return {job.id: job for job in _jobs(told)}


@functools.cache
def settings() -> Mapping[str, str]:
    """How the cluster is set up: one call."""
    lines = (line.partition("=") for line in _ask("scontrol", "show", "config").splitlines())
    return {key.strip(): value.strip() for key, _, value in lines}


def submit(script: str) -> str:
    """Submit a script; the job's id."""
    answer = _ask("sbatch", "--parsable", input=script)
    return answer.strip().splitlines()[-1].partition(";")[0]


def cancel(jobs: Iterable[str]) -> None:
    """Cancel jobs; those that have ended since are let be."""
    listed = list(jobs)
    for first in range(0, len(listed), AT_ONCE):
        _ask("scancel", "--quiet", *listed[first : first + AT_ONCE])


def requeue(job: str) -> None:
    """Put a running job back into the queue; its processes are then ended by SLURM."""
    _ask("scontrol", "requeue", job)


def state_of(job: str) -> str:
    """The state of a job; empty if it is not in the queue."""
    found = _jobs(_ask("squeue", "--noheader", "--array", "--jobs", job, "--Format", _fields()))
    return found[0].state if found else ""


def is_there() -> bool:
    """Whether this machine has SLURM's commands."""
    return shutil.which("squeue") is not None


def _fields() -> str:
    return ",".join(f"{name}:{width}" for name, width in TOLD.items())


def _jobs(told: str) -> list[QueuedJob]:
    """What squeue prints in columns of fixed widths, of which any may be empty."""
    found = []
    for line in told.splitlines():
        cells, place = [], 0
        for width in TOLD.values():
            cells.append(line[place : place + width].strip())
            place += width
        number, state, restarts, node, reason, comment = cells
        if not JOB.fullmatch(number) or not STATE.fullmatch(state):
            raise SchedulerError(f"squeue printed {shown(line.strip())}; expected a job's number and state")
        found.append(
            QueuedJob(
                id=number, state=state, restarts=_whole(restarts), node=node, reason=reason, comment=_given(comment)
            )
        )
    return found


def _given(text: str) -> str:
    return "" if text in ("(null)", "None") else text


def _whole(text: str) -> int:
    return int(text) if text.isdigit() else 0


def _ask(*command: str, input: str | None = None) -> str:  # noqa: A002
    """What a command of SLURM's prints, or one line about why it fails."""
    try:
        done = subprocess.run(
            command, input=input, capture_output=True, text=True, check=False, timeout=PATIENCE, env=_without_habits()
        )
    except FileNotFoundError:
        raise SchedulerError(f"{command[0]}: no such command; run this where SLURM is, on a login node") from None
    except subprocess.TimeoutExpired:
        raise SchedulerError(f"{_words(command)}: no answer in {PATIENCE:.0f} s; is the controller up?") from None
    if done.returncode:
        reason = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
        raise SchedulerError(f"{_words(command)}: {reason}")
    return done.stdout


def _without_habits() -> dict[str, str]:
    """The environment without a user's own defaults for squeue and scancel, which hide jobs."""
    return {key: value for key, value in os.environ.items() if not key.startswith(("SQUEUE_", "SCANCEL_"))}


def _words(command: Sequence[str]) -> str:
    return " ".join(command[:2])
