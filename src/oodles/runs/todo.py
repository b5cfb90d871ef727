"""The remaining work of a run: missing evaluations, and the steps that must be trained for them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from oodles.contracts import PlannedRun, RunSpec
from oodles.errors import StoreError
from oodles.runs.events import Listener
from oodles.runs.ranks import ALONE, Ranks
from oodles.runs.schedule import passes, schedule_of
from oodles.runs.stopping import Stop
from oodles.store.environment import environment
from oodles.store.folder import RunFolder
from oodles.store.scores import read_scores
from oodles.store.sidecars import sidecar
from oodles.store.spec import read_spec
from oodles.suite.patterns import render
from oodles.suite.render import Rendered, characters

TRAINING_COST = 3.5  # cost per character relative to scoring, measured on the embedded model and suite
Missing = set[tuple[int, str]]  # step and test set


@dataclass(slots=True)
class Base:
    """A base model that one run leaves to the next of the same kind, so that its weights are loaded once."""

    kind: object = None  # what decides its weights
    model: Any = None

    def take(self, kind: object) -> Any:
        """The model, if it is of this kind; nobody holds it here any longer, whatever it is."""
        held, self.model = (self.model if kind == self.kind else None), None
        return held

    def leave(self, kind: object, model: Any) -> None:
        self.kind, self.model = kind, model


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTask:
    """A run to be executed: its training, its test sets and its folder."""

    job: PlannedRun
    rendered: Sequence[Rendered]  # the run's test sets
    folder: RunFolder
    earlier: Sequence[RunFolder]  # runs whose scores of the untrained model may be reused
    listener: Listener
    stop: Stop
    study: str = ""  # the name of its study
    trackers: tuple[str, ...] = ()  # that are told of it
    base: Base = field(default_factory=Base)
    ranks: Ranks = ALONE  # the processes that make it together
    spread: bool = False  # over all devices of this process; for scoring only

    @property
    def spec(self) -> RunSpec:
        return self.job.spec

    def missing(self) -> Missing:
        """Return the evaluations that are not committed."""
        return missing_of(self.spec, self.rendered, self.folder)


def missing_of(spec: RunSpec, rendered: Sequence[Rendered], folder: RunFolder) -> Missing:
    """Return the evaluations of a run that are not committed: step and test set."""
    committed = {score.key for score in read_scores(folder)}
    return {
        (step, test_set.prompts.name)
        for step in schedule_of(spec)
        for test_set in rendered
        if (step, test_set.prompts.name, test_set.hash) not in committed
    }


def untrained_of(missing: Missing, folder: RunFolder) -> list[int]:
    """Return the steps that must be trained for the missing evaluations, because their adapters were not kept."""
    return sorted({step for step, _ in missing if not folder.adapter(step).is_dir()})


def training_work(job: PlannedRun, steps: int) -> float:
    """Return the work of training steps in units of scoring: forward and backward passes, no shared prefixes."""
    spec = job.spec
    shots = render(spec.pattern, job.draw.examples, spec.train_set)
    return TRAINING_COST * passes(spec.shots, spec.recipe, steps) * characters(shots)


def same_before_training(spec: RunSpec, earlier: Sequence[RunFolder], ranks: Ranks = ALONE) -> RunFolder | None:
    """Return a finished run that starts from the same model on the same kind of machine.

    A fresh LoRA adapter adds exactly zero, so the scores at step 0 are equal to the bit and are computed once.
    """
    wanted = (spec.model, spec.recipe.precision, spec.evaluation.batch_tokens, environment_of(ranks))
    return next((folder for folder in earlier if folder.done.is_file() and _before_training(folder) == wanted), None)


def environment_of(ranks: Ranks) -> dict[str, Any]:
    """Return the environment of a run, with its engine unless that is a single process."""
    if ranks.alone:
        return environment()
    settings = {"engine_config": json.loads(ranks.settings)} if ranks.settings else {}
    return {**environment(), "engine": ranks.engine, "processes": ranks.size, **settings}


def _before_training(folder: RunFolder) -> tuple[Any, ...] | None:
    """Return the settings that determine a run's scores at step 0; None if they cannot be read."""
    try:
        return *read_spec(folder).before_training, sidecar(folder.env)
    except StoreError:
        return None
