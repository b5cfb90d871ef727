"""Workers that share the runs of a study on this machine: each has cores, and a GPU, of its own."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import Empty
from typing import Any

from oodles.errors import OodlesError, StoreError
from oodles.grid import Grid, expand, select
from oodles.progress import Progress
from oodles.records import Study
from oodles.stopping import stop_on_signals
from oodles.worker import How, Outcome, run_missing, work_of


@dataclass(frozen=True, slots=True)
class Share:
    """What a worker has to itself."""

    threads: int
    device: str | None  # for CUDA_VISIBLE_DEVICES

    @property
    def environment(self) -> dict[str, str]:
        told = {"OMP_NUM_THREADS": str(self.threads), "TOKENIZERS_PARALLELISM": "false"}
        return told if self.device is None else {**told, "CUDA_VISIBLE_DEVICES": self.device}


def shares(workers: int, cores: int, devices: Sequence[str]) -> tuple[Share, ...]:
    """Cores and devices, handed out evenly; more workers than devices take turns on them.

    >>> shares(3, 8, ("0", "1"))
    (Share(threads=2, device='0'), Share(threads=2, device='1'), Share(threads=2, device='0'))
    """
    threads = max(1, cores // workers)
    return tuple(Share(threads, devices[i % len(devices)] if devices else None) for i in range(workers))


def visible_devices() -> tuple[str, ...]:
    """Ids of the GPUs that this process may use, as CUDA_VISIBLE_DEVICES spells them."""
    told = os.environ.get("CUDA_VISIBLE_DEVICES")
    if told is not None:
        return tuple(d for d in told.split(",") if d.strip())
    import torch

    return tuple(map(str, range(torch.cuda.device_count())))


def run_in_workers(grid: Grid, root: Path, workers: int, how: How) -> Outcome:
    """All that is missing, by several processes; they find their work by its locks, as strangers would."""
    context = multiprocessing.get_context("spawn")
    messages: Any = context.Queue()
    names = tuple(job.spec.name for job in grid.jobs)
    pool = []
    for share in shares(min(workers, len(grid.jobs)), len(os.sched_getaffinity(0)), visible_devices()):
        with _environment(share.environment):
            worker = context.Process(target=_work, args=(grid.study, names, root, how, messages))
            worker.start()
            pool.append(worker)
    outcomes: list[Outcome] = []
    with Progress(work_of(grid, root), grid.study.name) as progress, stop_on_signals() as stop:
        told = False
        try:
            while any(worker.is_alive() for worker in pool) or not messages.empty():
                if stop and not told:
                    told = True
                    for worker in pool:
                        worker.terminate()  # politely: a worker ends at its next safe moment
                try:
                    heard = messages.get(timeout=0.2)
                except Empty:
                    continue
                if isinstance(heard, (Outcome, OodlesError)):
                    if isinstance(heard, OodlesError):
                        raise heard
                    outcomes.append(heard)
                    continue
                progress.advance(heard.work)
                if heard.text:
                    progress.say(heard.text)
        finally:
            for worker in pool:
                if worker.is_alive():
                    worker.terminate()
                worker.join()
    killed = [-worker.exitcode for worker in pool if worker.exitcode and worker.exitcode < 0]
    if killed and not stop:
        raise StoreError(
            f"{root}: a worker was ended by {signal.Signals(killed[0]).name} (often: no memory left); what is"
            " committed is safe, run the same command again, perhaps with fewer --workers"
        )
    return _together(outcomes, root, stop.number)


def _together(outcomes: Sequence[Outcome], root: Path, stopped: int) -> Outcome:
    """What one worker did is no longer missing, held or skipped for the others."""
    done = [name for o in outcomes for name in o.done]
    failed = dict(pair for o in outcomes for pair in o.failed)
    settled = {*done, *failed}
    before = dict(pair for o in outcomes for pair in o.failed_before)
    held = dict(pair for o in outcomes for pair in o.held)
    return Outcome(
        out=root,
        done=tuple(done),
        skipped=tuple(sorted({name for o in outcomes for name in o.skipped} - settled)),
        failed=tuple(failed.items()),
        failed_before=tuple((n, r) for n, r in before.items() if n not in settled),
        held=tuple((n, who) for n, who in held.items() if n not in settled),
        stopped=stopped,
    )


def _work(study: Study, names: Sequence[str], root: Path, how: How, messages: Any) -> None:
    """One worker: a process of its own, which knows its cores and device from the environment."""
    try:
        with stop_on_signals() as stop:
            grid = select(expand(study), names)
            messages.put(run_missing(grid, root, how, messages.put, stop))
    except OodlesError as error:
        messages.put(error)
    except KeyboardInterrupt:
        pass  # the parent says it
    messages.close()
    messages.join_thread()


@contextmanager
def _environment(told: dict[str, str]) -> Iterator[None]:
    """For the processes that are started inside."""
    before = {key: os.environ.get(key) for key in told}
    os.environ.update(told)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                del os.environ[key]
            else:
                os.environ[key] = value
