"""OODCallback: score the suite at the scheduled steps of a transformers Trainer, and store the scores.

Our own training uses the same hook. Any other Trainer can use it as well:

    callback = oo.OODCallback(suite="mini", in_domain="daily", run="my-run", out="runs/mine")
    Trainer(model, ..., processing_class=tokenizer, callbacks=[callback]).train()
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from oodles.contracts import Suite
from oodles.errors import MissingExtraError, ModelError
from oodles.runs.evaluate import Metrics, StepEvaluator
from oodles.runs.monitor import Clock
from oodles.runs.own_loop import Evaluator
from oodles.runs.progress import duration
from oodles.runs.schedule import schedule
from oodles.runs.trackers import LOSS, RunTrackers, scores_by_step
from oodles.store.commit import supersede
from oodles.store.outcome import finish_run

try:
    from transformers import TrainerCallback
except ImportError:
    raise MissingExtraError("OODCallback", "train") from None


class EvaluationHook(TrainerCallback):  # type: ignore[misc]
    """Calls an evaluator at the scheduled steps of a Trainer; `step_work` is the work of one training step."""

    def __init__(self, evaluator: StepEvaluator, step_work: float = 0.0) -> None:
        self._evaluator = evaluator
        self._step_work = step_work
        self._schedule: tuple[int, ...] = ()
        self._earlier: set[int] = set()  # steps that an earlier attempt at our own run has evaluated
        self._loss: tuple[int, Callable[[], float]] = (0, lambda: float("nan"))  # of which step
        self._clock = Clock()

    def evaluates_at(self, step: int) -> bool:
        """Whether a step is scheduled."""
        return step in self._schedule

    def committed(self, step: int) -> dict[str, float]:
        """The scores of a step that count, under the names that trackers show."""
        return scores_by_step(self._evaluator.folder).get(step, {})

    def know_loss(self, step: int, loss: Callable[[], float]) -> None:
        """Keep the loss of a step; a Trainer logs it after the step's evaluation, our own tells it before."""
        self._loss = (step, loss)

    # what transformers calls

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Prepare every set, and score the model before training."""
        evaluator, evaluation = self._evaluator, self._evaluator.evaluation
        evaluator.tokenizer = evaluator.tokenizer or kwargs.get("processing_class")
        if evaluator.tokenizer is None:
            raise ModelError("OODCallback: the Trainer has no processing_class; pass tokenizer=... to the callback")
        evaluator.writes = evaluator.writes and state.is_world_process_zero
        self._begin(state)
        self._schedule = schedule(evaluation.steps, state.max_steps, evaluation.points)
        evaluator.prepare(kwargs["model"])
        self._clock = Clock(step=state.global_step)
        self._reach(kwargs["model"], state)

    def _begin(self, state: Any) -> None:
        """Begin our own run: its folder exists, and later evaluations are compared with those of an earlier attempt."""
        if self._evaluator.writes:
            self._evaluator.keep_members()
        self._earlier = self._evaluator.recall()

    def on_log(
        self, args: Any, state: Any, control: Any, logs: Mapping[str, float] | None = None, **kwargs: Any
    ) -> None:
        if "loss" in (logs or {}) and self._loss[0] != state.global_step:
            self.know_loss(state.global_step, partial(float, (logs or {})["loss"]))
        if "train_runtime" in (logs or {}):  # last step, before the best checkpoint may replace the model
            self._evaluate(kwargs["model"], state)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Score at the scheduled steps."""
        self._evaluator.tell(work=self._step_work)
        self._reach(kwargs["model"], state)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Mark the run as done when its last scheduled step is committed."""
        if self._evaluator.writes:
            seconds = round(time.monotonic() - self._clock.begun, 1)  # duration of the last attempt
            finish_run(self._evaluator.folder, state.global_step, seconds=seconds)

    # evaluation

    def _reach(self, model: Any, state: Any) -> None:
        """Handle a step: compare it with an earlier attempt, and evaluate it if it is scheduled."""
        step, evaluator = state.global_step, self._evaluator
        if step in self._earlier and not evaluator.repeats(model, step):
            if evaluator.writes:
                supersede(evaluator.folder, step)
            evaluator.forget(step)
            self._earlier = set()
            evaluator.log(f"step {step} differs from the earlier training; evaluated again from here on")
        if step in self._schedule:
            self._evaluate(model, state)

    def _evaluate(self, model: Any, state: Any) -> None:
        """Score the sets that are not committed yet."""
        step, evaluator, started = state.global_step, self._evaluator, time.monotonic()
        evaluator.keep_adapter(model, step)
        if evaluator.is_complete(step):
            return
        left = partial(self._time_left, started, step)
        of, known = self._loss
        loss = known() if of == step and evaluator.writes else float("nan")
        self._log(evaluator.at(model, step, last=state.max_steps, loss=loss, remark=left))

    def _log(self, values: Mapping[str, Metrics]) -> None:
        """Do nothing: our own runs store their scores only in their folder."""

    def _time_left(self, started: float, step: int) -> str:
        self._clock.evaluated(time.monotonic() - started)
        left = self._clock.left(step, self._schedule)
        return f"  {duration(left)} left" if left else ""


class TrackerHook(TrainerCallback):  # type: ignore[misc]
    """Tells trackers what an `EvaluationHook` before it has committed, and the losses."""

    def __init__(self, evaluation: EvaluationHook, begin: Callable[[], RunTrackers]) -> None:
        self._evaluation, self._begin = evaluation, begin
        self._trackers: RunTrackers | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        losses = {row["step"]: row["loss"] for row in state.log_history if "loss" in row and "step" in row}
        self._trackers = self._begin()
        self._trackers.catch_up(losses, state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._trackers is not None and self._evaluation.evaluates_at(state.global_step):
            self._trackers.log(state.global_step, self._evaluation.committed(state.global_step))

    def on_log(
        self, args: Any, state: Any, control: Any, logs: Mapping[str, float] | None = None, **kwargs: Any
    ) -> None:
        if self._trackers is not None and "loss" in (logs or {}):
            self._trackers.log(state.global_step, {LOSS: (logs or {})["loss"]})

    def close(self, *, failed: bool) -> None:
        """Training has ended, one way or the other."""
        if self._trackers is not None:
            self._trackers.close(failed)


class _CallbackEvaluator(Evaluator):
    _who = "OODCallback"
    _scheduled = True


class OODCallback(EvaluationHook):
    """Evaluate all test sets of a suite during training, and store every prediction.

    Parameters
    ----------
    suite
        Name, TOML path or `Suite`.
    in_domain
        The test set that is in-domain for what is being trained.
    run
        Name of the run.
    out
        Folder of the study; the run goes to ``<out>/runs/<run>``.
    tokenizer
        Needed only if the Trainer has no ``processing_class``.
    **options
        ``steps`` ("log", "linear" or a list; step 0 and the last are always added), and all options of `Evaluator`.
    """

    def __init__(
        self,
        *,
        suite: str | Path | Suite,
        in_domain: str,
        run: str,
        out: str | Path,
        tokenizer: Any = None,
        **options: Any,
    ) -> None:
        given = {"suite": suite, "in_domain": in_domain, "run": run, "out": out, "tokenizer": tokenizer}
        self._outside = _CallbackEvaluator(**given, **options)
        self._trainer: Any = None
        super().__init__(self._outside)

    def log_to(self, trainer: Any) -> None:
        """Send the scores of every evaluation through a Trainer's own `log`, and so to its trackers.

        The names are ``eval_<test set>_<metric>``, which trackers show as ``eval/<test set>_<metric>``. Without this
        call the Trainer's logs stay as they are.
        """
        self._trainer = trainer

    def _log(self, values: Mapping[str, Metrics]) -> None:
        scores = {f"eval_{name}_{metric}": v for name, held in values.items() for metric, v in held.items()}
        if self._trainer is not None:
            self._trainer.log({name: value for name, value in scores.items() if value is not None})

    def _begin(self, state: Any) -> None:
        """Create the folder of a user's training, or resume the run at the Trainer's step."""
        self._outside.begin(state.global_step)
        self._outside.recall(state.global_step)  # a process that does not write may have read too early
