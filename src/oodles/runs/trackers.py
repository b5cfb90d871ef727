"""Trackers: a run's scores and losses in wandb, TensorBoard, trackio or MLflow, beside the run's own folder.

The run's folder is what counts; a tracker is a view of it. When a run begins or resumes, the tracker is made to hold
what is committed, each evaluation once, and is then told of every step. A tracker that fails is left out from there on,
with a line in the run's log: it never stops a run.

    eval/<test set>_<metric>   train/loss   train/global_step       config: spec.json       group: the study
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import netrc
import os
import shutil
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from oodles.disk import write_json
from oodles.errors import MissingExtraError, first_line
from oodles.store.folder import RunFolder, log_line
from oodles.store.scores import read_scores
from oodles.store.sidecars import sidecar

Row = Mapping[str, float]
Held = dict[tuple[int, str], float]  # step and name -> value
TRACKERS = ("wandb", "tensorboard", "trackio", "mlflow")
LOSS, STEP = "train/loss", "train/global_step"


# which


def trackers_of(report_to: Sequence[str] | None) -> tuple[str, ...]:
    """The trackers of a study: those it names; if it names none, wandb, where that is installed and set up."""
    if report_to is None:
        return ("wandb",) if _is_installed("wandb") and _wandb_is_set_up() else ()
    return tuple(name for name in TRACKERS if name in report_to and not (name == "wandb" and _wandb_is_off()))


def require_trackers(names: Sequence[str]) -> None:
    """Say which extra is missing before any work starts."""
    for name in names:
        if not _is_installed(name):
            raise MissingExtraError(f'report_to = "{name}"', "trackers")


def _is_installed(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def _wandb_is_off() -> bool:
    return os.environ.get("WANDB_MODE", "").lower() in ("disabled", "dryrun-disabled")


def _wandb_is_set_up() -> bool:
    """Whether somebody has said that wandb shall be used: a project, a mode or an account."""
    named = any(os.environ.get(name) for name in ("WANDB_PROJECT", "WANDB_MODE", "WANDB_API_KEY"))
    return not _wandb_is_off() and (named or _has_account())


def _has_account() -> bool:
    """Whether wandb knows who its user is."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    host = os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai").partition("://")[2].strip("/")
    try:
        return netrc.netrc(os.environ.get("NETRC")).authenticators(host) is not None
    except (OSError, netrc.NetrcParseError):
        return False


# one run


class Tracker(Protocol):
    """What every tracker can do. `held` is what it has already of this run."""

    def held(self) -> Held: ...
    def log(self, step: int, row: Row) -> None: ...
    def close(self, failed: bool) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What a tracker is told of a run."""

    folder: RunFolder
    study: str
    config: Mapping[str, Any]  # the resolved spec

    def key(self, tracker: str) -> str:
        """The tracker's own id of this run: made once, and kept with the run."""
        file = self.folder.path / "trackers.json"
        known = sidecar(file) or {}
        if tracker not in known:
            known = {**known, tracker: uuid.uuid4().hex[:16]}
            write_json(file, known)
        return str(known[tracker])

    def keep(self, tracker: str, key: str) -> None:
        file = self.folder.path / "trackers.json"
        write_json(file, {**(sidecar(file) or {}), tracker: key})


class RunTrackers:
    """The trackers of one run, each guarded: what fails is said in the run's log and left out."""

    def __init__(self, names: Sequence[str], about: About) -> None:
        self._about = about
        self._open: dict[str, Tracker] = {}
        self._seen: dict[str, Held] = {}
        for name in names:
            self._guard(name, lambda name=name: self._begin(name))  # type: ignore[misc]

    def _begin(self, name: str) -> None:
        opened = OPENERS[name](self._about)
        self._open[name], self._seen[name] = opened, opened.held()

    def catch_up(self, losses: Mapping[int, float], last: int) -> None:
        """Tell what is committed up to a step, and the losses so far."""
        rows: dict[int, dict[str, float]] = {step: {LOSS: loss} for step, loss in losses.items() if step <= last}
        for step, row in scores_by_step(self._about.folder).items():
            if step <= last:
                rows.setdefault(step, {}).update(row)
        for step in sorted(rows):
            self.log(step, rows[step])

    def log(self, step: int, row: Row) -> None:
        """Tell the values of a step; what a tracker has already is not told again."""
        for name in list(self._open):
            seen = self._seen[name]
            new = {key: value for key, value in {**row, STEP: step}.items() if seen.get((step, key)) != value}
            seen |= {(step, key): value for key, value in new.items()}
            if new:
                self._guard(name, lambda n=name, told=new: self._open[n].log(step, told))  # type: ignore[misc]

    def close(self, failed: bool = False) -> None:
        for name in list(self._open):
            self._guard(name, lambda n=name: self._open[n].close(failed))  # type: ignore[misc]
        self._open.clear()

    def _guard(self, name: str, act: Callable[[], None]) -> None:
        try:
            with contextlib.redirect_stdout(io.StringIO()):  # which is for results
                act()
        except Exception as error:
            self._open.pop(name, None)
            log_line(self._about.folder, f"tracker {name} failed, and is left out from here on: {_said(error)}")


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {first_line(error)}"


def scores_by_step(folder: RunFolder) -> dict[int, dict[str, float]]:
    """What is committed, under the names that trackers show."""
    rows: dict[int, dict[str, float]] = {}
    for score in read_scores(folder):
        named = {_portable(f"eval/{score.test_set}_{metric}"): value for metric, value in score.metrics.items()}
        rows.setdefault(score.step, {}).update({key: value for key, value in named.items() if value is not None})
    return rows


# each tracker


class _Wandb:
    """One run of wandb, by an id of its own. Rows carry their step, so that a server ignores what it has."""

    def __init__(self, about: About) -> None:
        import wandb

        key, root = about.key("wandb"), Path(os.environ.get("WANDB_DIR") or about.folder.study.path)
        mode: Any = os.environ.get("WANDB_MODE") or ("online" if _has_account() else "offline")
        if mode == "offline":
            _drop_unsynced(root, key)
        self._run = wandb.init(
            id=key,
            resume="allow",
            name=about.folder.name,
            group=about.study,
            config=dict(about.config),
            project=os.environ.get("WANDB_PROJECT") or "oodles",
            entity=os.environ.get("WANDB_ENTITY") or None,
            dir=str(root),
            mode=mode,
            reinit="create_new",
            settings=wandb.Settings(silent=True, console="off", x_disable_stats=True, init_timeout=30),
        )

    def held(self) -> Held:
        return {}

    def log(self, step: int, row: Row) -> None:
        self._run.log(dict(row), step=step)

    def close(self, failed: bool) -> None:
        self._run.finish(exit_code=int(failed))


def _drop_unsynced(root: Path, key: str) -> None:
    """An earlier attempt of this run that was never uploaded: the new one holds all that it held."""
    for path in (root / "wandb").glob(f"offline-run-*-{key}"):
        if not any(path.glob("*.synced")):
            shutil.rmtree(path)


class _TensorBoard:
    """Event files in <out>/tensorboard/<run>, written anew by each attempt."""

    def __init__(self, about: About) -> None:
        from torch.utils.tensorboard import SummaryWriter

        folder = about.folder.study.path / "tensorboard" / about.folder.name
        for file in folder.glob("events.out.tfevents.*"):
            file.unlink()
        self._writer = SummaryWriter(str(folder))
        self._writer.add_text("config", f"```json\n{json.dumps(about.config, indent=2, default=str)}\n```", 0)

    def held(self) -> Held:
        return {}

    def log(self, step: int, row: Row) -> None:
        for name, value in row.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self, failed: bool) -> None:  # noqa: ARG002
        self._writer.close()


class _Trackio:
    """A run of trackio, which keeps them by name: each attempt asks it what it has."""

    def __init__(self, about: About) -> None:
        import trackio

        project = os.environ.get("TRACKIO_PROJECT") or "oodles"
        name = f"{about.folder.name}-{about.key('trackio')[:6]}"
        self._held = _trackio_steps(project, name)
        self._run = trackio.init(
            project=project,
            name=name,
            group=about.study,
            config=_plain(about.config),
            resume="allow",
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )

    def held(self) -> Held:
        return self._held

    def log(self, step: int, row: Row) -> None:
        self._run.log(dict(row), step=step)

    def close(self, failed: bool) -> None:  # noqa: ARG002
        import trackio

        trackio.finish()


def _trackio_steps(project: str, name: str) -> Held:
    from trackio.sqlite_storage import SQLiteStorage

    if name not in SQLiteStorage.get_runs(project):
        return {}
    rows = SQLiteStorage.get_logs(project, name)
    return {(int(row["step"]), key): value for row in rows for key, value in row.items()}


class _MLflow:
    """A run of MLflow: by its id, which MLflow makes; each attempt asks it what it has."""

    def __init__(self, about: About) -> None:
        from mlflow import MlflowClient

        told = os.environ.get("MLFLOW_TRACKING_URI")
        self._client = MlflowClient(told or f"sqlite:///{(about.folder.study.path / 'mlflow.db').absolute()}")
        known = (sidecar(about.folder.path / "trackers.json") or {}).get("mlflow")
        self._id = str(known) if known else self._create(about)
        if known:
            self._client.update_run(self._id, "RUNNING")

    def _create(self, about: About) -> str:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or "oodles"
        found = self._client.get_experiment_by_name(name)
        experiment = found.experiment_id if found else self._client.create_experiment(name)
        run = self._client.create_run(experiment, run_name=about.folder.name, tags={"group": about.study})
        for key, value in _plain(about.config).items():
            self._client.log_param(run.info.run_id, key, str(value)[:500])
        about.keep("mlflow", run.info.run_id)
        return str(run.info.run_id)

    def held(self) -> Held:
        names = self._client.get_run(self._id).data.metrics
        return {(m.step, name): m.value for name in names for m in self._client.get_metric_history(self._id, name)}

    def log(self, step: int, row: Row) -> None:
        for name, value in row.items():
            self._client.log_metric(self._id, name, value, step=step)

    def close(self, failed: bool) -> None:
        self._client.set_terminated(self._id, "FAILED" if failed else "FINISHED")


def _portable(name: str) -> str:
    """What every tracker takes: MLflow has letters, digits and a few signs."""
    return "".join(c if c.isalnum() or c in "_-./: " else "_" for c in name)


def _plain(config: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Tables within tables as one table, with dots.

    >>> _plain({"lora": {"rank": 8}, "seed": 0})
    {'lora.rank': 8, 'seed': 0}
    """
    flat: dict[str, Any] = {}
    for key, value in config.items():
        inside = isinstance(value, Mapping)
        flat |= _plain(value, f"{before}{key}.") if inside else {f"{before}{key}": value}
    return flat


OPENERS: Mapping[str, Callable[[About], Tracker]] = {
    "wandb": _Wandb,
    "tensorboard": _TensorBoard,
    "trackio": _Trackio,
    "mlflow": _MLflow,
}
