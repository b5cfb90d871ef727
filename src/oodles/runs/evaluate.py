"""Score a run's test sets with a model at a step; committed evaluations are not repeated."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from oodles.contracts import Evaluation, PromptSet, role_of
from oodles.errors import ModelError
from oodles.model.forward import Plan
from oodles.model.scoring import predict, prepare_all
from oodles.model.shortcuts import signature
from oodles.runs.adapters import is_adapter_of, save_adapter
from oodles.runs.events import Event, Listener, ignore
from oodles.runs.monitor import evaluation_line, memory_gigabytes
from oodles.runs.ranks import ALONE, Ranks
from oodles.store.commit import commit, copy_score, score_of
from oodles.store.damage import check_adapter
from oodles.store.folder import RunFolder, log_line
from oodles.store.members import keep_members
from oodles.store.records import records_are_whole, same_scores
from oodles.store.scores import Score, read_scores
from oodles.suite.render import Rendered, characters

Key = tuple[int, str, str]  # step, test set, hash of its prompts
Metrics = Mapping[str, float | None]


class StepEvaluator:
    """Scores the test sets of a run step by step, and commits each set as soon as it is scored.

    Parameters
    ----------
    folder
        The run's folder.
    rendered
        The test sets as the run evaluates them.
    in_domain
        The test set that is in-domain for this run.
    evaluation
        The evaluation settings: batches, kept adapters.
    tokenizer
        The model's tokenizer.
    listener
        Receives progress events.
    baseline
        A run that starts from the same model; its scores at step 0 are reused.
    ranks
        The processes of our own run: all score, the first one decides and writes.
    """

    def __init__(
        self,
        folder: RunFolder,
        rendered: Sequence[Rendered],
        *,
        in_domain: str,
        evaluation: Evaluation,
        tokenizer: Any = None,
        listener: Listener = ignore,
        baseline: RunFolder | None = None,
        ranks: Ranks = ALONE,
    ) -> None:
        self.folder = folder
        self.evaluation = evaluation
        self.tokenizer = tokenizer
        self.writes = ranks.is_first  # in a job of several processes all score, and one writes
        self._ranks = ranks
        self.scored = 0  # evaluations computed by this object
        self._sets = tuple(r.prompts for r in rendered)
        self._members = tuple(r.members for r in rendered)
        self._hashes = {r.prompts.name: r.hash for r in rendered}
        self._in_domain = in_domain
        self._listener = listener
        self._baseline = baseline
        self._committed: dict[Key, Score] = {}
        self._plans: dict[str, Plan] = {}
        self._planned_for = ""

    def keep_members(self) -> None:
        """Store the members of each set, once per study."""
        with self.folder.study.locked():
            keep_members(self.folder.study, self._members, self.evaluation.test_sets)

    def recall(self, last: int | None = None) -> set[int]:
        """Load the committed scores up to a step; return their steps."""
        stored = self._ranks.from_first(lambda: read_scores(self.folder))
        scores = [score for score in stored if last is None or score.step <= last]
        self._committed = {score.key: score for score in scores}
        return {score.step for score in scores}

    def forget(self, first: int) -> None:
        """Score again from a step on."""
        self._committed = {key: score for key, score in self._committed.items() if score.step < first}

    def held(self, step: int) -> list[PromptSet]:
        """Return the sets that are committed at a step."""
        return [prompts for prompts in self._sets if self._key(step, prompts) in self._committed]

    def is_complete(self, step: int) -> bool:
        return len(self.held(step)) == len(self._sets)

    def prepare(self, model: Any) -> None:
        """Tokenise and pack every set; models with the same signature share the plans."""
        if self.tokenizer is None:
            raise ModelError("Evaluator: no tokenizer is known; pass tokenizer=...")
        kind = signature(model)
        if kind == self._planned_for:
            return
        with own_precision(model):
            plans = prepare_all(model, self.tokenizer, self._sets, batch_tokens=self.evaluation.batch_tokens)
        self._plans, self._planned_for = {plan.name: plan for plan in plans}, kind

    def at(
        self,
        model: Any,
        step: int,
        *,
        last: int | None = None,
        loss: float = float("nan"),
        remark: Callable[[], str] = str,
    ) -> dict[str, Metrics]:
        """Score the sets that are not committed at a step; return the metrics of all sets.

        Parameters
        ----------
        model
            The model in its current state; its mode and all random states stay unchanged.
        step
            The current optimiser step.
        last
            The last step of the run, for the log.
        loss
            The training loss, for the log.
        remark
            Returns the end of the log line; called when all sets are scored.
        """
        started = time.monotonic()
        if not self._plans:
            self.prepare(model)
        values = {prompts.name: self._score(model, step, prompts) for prompts in self._sets}
        if self.writes:
            text = evaluation_line(step, last, loss, values, self._in_domain)
            self.log(f"{text}  {time.monotonic() - started:.1f} s  {memory_gigabytes():.1f} GB{remark()}")
        return values

    def _score(self, model: Any, step: int, prompts: PromptSet) -> Metrics:
        key = self._key(step, prompts)
        if key not in self._committed:
            self.tell(doing=f"{self.folder.name} step {step} {prompts.name}")
            taken_over = self._ranks.from_first(lambda: self._taken_over(step, prompts))
            self._committed[key] = taken_over or self._predicted(model, step, prompts)
        return self._committed[key].metrics

    def _key(self, step: int, prompts: PromptSet) -> Key:
        return step, prompts.name, self._hashes[prompts.name]

    def _predicted(self, model: Any, step: int, prompts: PromptSet) -> Score:
        plan, role = self._plans[prompts.name], role_of(prompts.name, self._in_domain)
        with own_precision(model):
            predictions = predict(model, plan, prompts)
        if self.writes:
            score = commit(self.folder, step, prompts, predictions, role, shortened=plan.shortened)
        else:
            score = score_of(step, prompts, predictions, role, shortened=plan.shortened)
        self.scored += 1
        self.tell(work=characters(prompts))
        return score

    def _taken_over(self, step: int, prompts: PromptSet) -> Score | None:
        """Copy the evaluation of the untrained model from another run, if it has one."""
        if step or self._baseline is None:
            return None
        for score in read_scores(self._baseline):
            if score.key == self._key(0, prompts) and records_are_whole(self._baseline, score):
                return copy_score(self._baseline, self.folder, score, role_of(prompts.name, self._in_domain))
        return None

    def keep_adapter(self, model: Any, step: int) -> None:
        """Keep the adapter of a step if requested; before its scores, because these mark the step as complete."""
        path, ranks = self.folder.adapter(step), self._ranks
        if not self.evaluation.keep_adapters or (ranks.alone and not self.writes):
            return
        if not ranks.from_first(lambda: self.is_complete(step) and path.is_dir()):
            save_adapter(model, path, ranks)

    def repeats(self, model: Any, step: int) -> bool:
        """Whether training reproduced the weights, or else the scores, of an earlier attempt at this step.

        Results of two trainings must not mix in one run, and on a GPU they may differ.
        """
        adapter = self.folder.adapter(step)
        if self._ranks.from_first(adapter.is_dir):
            if self.writes:
                check_adapter(adapter)
            return is_adapter_of(model, adapter, self._ranks)
        if step == 0:
            return True  # untrained
        return self.scores_repeat(model, step)

    def scores_repeat(self, model: Any, step: int) -> bool:
        """Whether a model reproduces the scores committed at a step, on the smallest of its sets."""
        committed = self.held(step)
        if not committed:
            return False  # nothing to compare with
        if not self._plans:
            self.prepare(model)
        prompts = min(committed, key=characters)
        score = self._committed[self._key(step, prompts)]
        with own_precision(model):
            predictions = predict(model, self._plans[prompts.name], prompts)
        return self._ranks.from_first(lambda: same_scores(self.folder, score, predictions))

    def log(self, text: str) -> None:
        """Write a line to the run's log and send it to the listener."""
        if not self.writes:
            return
        log_line(self.folder, text)
        self.tell(text=f"{self.folder.name}  {text}")

    def tell(self, *, text: str = "", doing: str = "", work: float = 0.0) -> None:
        self._listener(Event(text=text, doing=doing, work=work))


@contextmanager
def own_precision(model: Any) -> Iterator[None]:
    """Disable mixed precision, both the caller's and the one that accelerate wraps around a forward pass.

    Scores are computed in the precision of the weights. Accelerate wraps only the outermost module, so the ways of
    scoring would otherwise disagree.
    """
    import torch

    plain, wrapped = vars(model).get("_original_forward"), vars(model).get("forward")
    with ExitStack() as outside:
        for device in ("cpu", "cuda"):
            outside.enter_context(torch.autocast(device, enabled=False))
        if plain is not None:
            model.forward = plain
            outside.callback(setattr, model, "forward", wrapped)
        yield
