"""Workers that share the runs of a study on this machine, each with its own cores and GPU."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, cast

from oodles.contracts import Study
from oodles.errors import OodlesError, StoreError
from oodles.runs.progress import Progress, settle_streams
from oodles.runs.stopping import Stop, stop_on_signals
from oodles.study.grid import Grid, expand, select
from oodles.study.worker import Outcome, Policy, run_missing
from oodles.terminal import keep_results_apart


@dataclass(frozen=True, slots=True)
class Share:
    """The resources of one worker."""

    threads: int
    device: str | None  # for CUDA_VISIBLE_DEVICES

    @property
    def environment(self) -> dict[str, str]:
        variables = {"OMP_NUM_THREADS": str(self.threads), "TOKENIZERS_PARALLELISM": "false"}
        return variables if self.device is None else {**variables, "CUDA_VISIBLE_DEVICES": self.device}


def shares(workers: int, cores: int, devices: Sequence[str]) -> tuple[Share, ...]:
    """Distribute cores and devices evenly; if there are more workers than devices, workers share devices.

    >>> shares(3, 8, ("0", "1"))
    (Share(threads=2, device='0'), Share(threads=2, device='1'), Share(threads=2, device='0'))
    """
    threads = max(1, cores // workers)
    return tuple(Share(threads, devices[i % len(devices)] if devices else None) for i in range(workers))


def cores_here() -> int:
    """Cores this process may use; macOS has no affinity, and counts all."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def visible_devices() -> tuple[str, ...]:
    """Return the ids of the GPUs that this process may use, as CUDA_VISIBLE_DEVICES spells them."""
    setting = os.environ.get("CUDA_VISIBLE_DEVICES")
    if setting is not None:
        return tuple(d for d in setting.split(",") if d.strip())
    import torch

    return tuple(map(str, range(torch.cuda.device_count())))


@dataclass(slots=True)
class Worker:
    """A process and its pipe. Only the two ends hold the pipe, so each notices when the other has ended."""

    process: BaseProcess
    receiver: Connection
    outcome: Outcome | None = None


def run_in_workers(grid: Grid, root: Path, workers: int, how: Policy) -> Outcome:
    """Execute the missing runs with several processes, which coordinate only through the runs' locks."""
    from oodles.study.preview import work_of

    work = work_of(grid, root)  # before the first lock is taken
    context = multiprocessing.get_context("spawn")
    names = tuple(job.spec.name for job in grid.jobs)
    pool: list[Worker] = []
    for share in shares(min(workers, len(grid.jobs)), cores_here(), visible_devices()):
        receiver, sender = context.Pipe(duplex=False)
        with setting(share.environment):
            process = context.Process(target=_work, args=(grid.study, names, root, how, sender))
            process.start()
        sender.close()
        pool.append(Worker(process, receiver))
    with Progress(work, grid.study.name) as progress, stop_on_signals() as stop:
        try:
            listen(pool, progress, stop)
            ended = [worker.outcome for worker in pool if worker.outcome is not None]
            if len(ended) == len(pool) and together(ended, root, stop.number).is_whole:
                progress.finish(f"study {grid.study.name}: all runs are done")
        finally:
            for worker in pool:
                worker.receiver.close()  # a worker that still sends notices the closed pipe and stops
            for worker in pool:
                if worker.outcome is None and worker.process.is_alive():
                    worker.process.terminate()
                worker.process.join()
    if not stop:
        _check_ends(pool, root)
    outcomes = [w.outcome for w in pool if w.outcome is not None]
    return together(outcomes, root, stop.number or max((o.stopped for o in outcomes), default=0))


def listen(pool: Sequence[Worker], progress: Progress, stop: Stop) -> None:
    """Process messages until every worker has ended."""
    open_ends = {worker.receiver: worker for worker in pool}
    stopping = False
    while open_ends:
        if stop and not stopping:
            stopping = True
            for worker in pool:
                worker.process.terminate()  # SIGTERM: a worker stops at its next safe point
        for end in wait(list(open_ends), timeout=0.2):
            receiver = cast(Connection, end)
            try:
                heard = receiver.recv()
            except (EOFError, OSError):
                del open_ends[receiver]
                continue
            if isinstance(heard, OodlesError):
                raise heard
            if isinstance(heard, Outcome):
                open_ends[receiver].outcome = heard
                continue
            progress.advance(heard.work)
            if heard.text:
                progress.say(heard.text)


def _check_ends(pool: Sequence[Worker], root: Path) -> None:
    """Raise an error for a worker that crashed or ended without an outcome."""
    for number, worker in enumerate(pool, start=1):
        code = worker.process.exitcode or 0
        if code == 0 and worker.outcome is not None:
            continue
        how = f"ended with exit code {code}"
        if code < 0:
            why = " (possibly out of memory)" if -code == signal.SIGKILL else ""
            how = f"was killed by {signal.Signals(-code).name}{why}"
        raise StoreError(
            f"{root}: worker {number} of {len(pool)} {how}; committed scores are safe. Run the same command again,"
            " perhaps with fewer --workers"
        )


def together(outcomes: Sequence[Outcome], root: Path, stopped: int) -> Outcome:
    """Merge the outcomes: a run that one worker finished is not missing, held or skipped for the others."""
    done = [name for o in outcomes for name in o.done]
    failed = dict(pair for o in outcomes for pair in o.failed)
    settled = {*done, *failed}
    before = dict(pair for o in outcomes for pair in o.failed_before)
    holders = dict(pair for o in outcomes for pair in o.held)
    refused = dict(pair for o in outcomes for pair in o.refused)
    return Outcome(
        out=root,
        done=tuple(done),
        skipped=tuple(sorted({name for o in outcomes for name in o.skipped} - settled)),
        failed=tuple(failed.items()),
        failed_before=tuple((n, r) for n, r in before.items() if n not in settled),
        held=tuple((n, who) for n, who in holders.items() if n not in settled),
        refused=tuple((n, r) for n, r in refused.items() if n not in settled),
        stopped=stopped,
    )


def _work(study: Study, names: Sequence[str], root: Path, how: Policy, pipe: Connection) -> None:
    """Run one worker process; its cores and device come from the environment."""
    keep_results_apart()
    try:
        with stop_on_signals() as stop:

            def tell(heard: Any) -> None:
                if not sent(pipe, heard):
                    stop.number = stop.number or signal.SIGHUP  # the parent process is gone

            grid = select(expand(study), names)
            sent(pipe, run_missing(grid, root, how, tell, stop))
    except OodlesError as error:
        sent(pipe, error)
    except KeyboardInterrupt:
        pass  # the parent process reports it
    finally:
        pipe.close()
        settle_streams()


def sent(pipe: Connection, what: Any) -> bool:
    """Send a message; return whether the parent still listens."""
    try:
        pipe.send(what)
    except OSError:
        return False
    return True


@contextmanager
def setting(variables: dict[str, str]) -> Iterator[None]:
    """Set environment variables for processes started in this context."""
    before = {key: os.environ.get(key) for key in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                del os.environ[key]
            else:
                os.environ[key] = value
