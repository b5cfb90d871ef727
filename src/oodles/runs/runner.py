"""run_one(): draw, train, score everywhere, save."""

from __future__ import annotations

import shutil
from typing import Any

from oodles.contracts import PlannedRun, RunSpec, Suite
from oodles.disk import damage_of
from oodles.errors import ModelError, StoreError
from oodles.model.load import attach_lora, free_memory, load_model, load_tokenizer, slow_here, targets_of
from oodles.runs.callback import EvaluationHook
from oodles.runs.checkpoints import Checkpoint, ScoringJob, score_missing
from oodles.runs.evaluate import StepEvaluator
from oodles.runs.events import Listener
from oodles.runs.schedule import schedule_of
from oodles.runs.stopping import Stop
from oodles.runs.train import checkpoints, fine_tune, last_checkpoint
from oodles.store.damage import check_adapter
from oodles.store.environment import environment
from oodles.store.folder import RunFolder, log_line
from oodles.store.members import keep_members
from oodles.store.scores import read_scores
from oodles.store.sidecars import sidecar
from oodles.store.spec import begin_run, read_spec
from oodles.suite.patterns import render
from oodles.suite.render import characters, render_sets, rendered_hashes

TRAINING_COST = 3.5  # per character, against scoring: measured on the embedded model and suite


def run_one(
    job: PlannedRun, suite: Suite, folder: RunFolder, listener: Listener, earlier: list[RunFolder], stop: Stop
) -> None:
    """One run from its spec to its finished folder; what is there already is neither trained nor scored again."""
    untrained = untrained_of(lacking(job, suite, folder), folder)
    if untrained or folder.status != "done":
        _begin_before(folder, untrained)
        _train(job, suite, folder, listener, earlier, stop)
        free_memory()
    if lacking(job, suite, folder):
        _score_adapters(job, suite, folder, listener)
    left = sorted(lacking(job, suite, folder))
    if left:
        raise StoreError(
            f"{folder.path}: step {left[0][0]}, test set '{left[0][1]}' is still not evaluated, of {len(left)} that are"
            " missing; remove this run's folder, and run the study again"
        )


def lacking(job: PlannedRun, suite: Suite, folder: RunFolder) -> set[tuple[int, str]]:
    """What of a run's evaluations is not committed: step and test set."""
    wanted = rendered_hashes(suite, job.spec, job.draw.examples)
    held = {score.key for score in read_scores(folder)}
    return {
        (step, name)
        for step in schedule_of(job.spec)
        for name, prompts in wanted.items()
        if (step, name, prompts) not in held
    }


def untrained_of(missing: set[tuple[int, str]], folder: RunFolder) -> list[int]:
    """The steps that must be trained for what is missing: no adapter of theirs was kept."""
    return sorted({step for step, _ in missing if not folder.adapter(step).is_dir()})


def start_of(folder: RunFolder, untrained: list[int]) -> int:
    """The step from which training would go on; reads only."""
    usable = [path for path in checkpoints(folder) if not untrained or int(path.name) <= untrained[0]]
    return next((int(path.name) for path in reversed(usable) if not damage_of(path)), 0)


def _begin_before(folder: RunFolder, untrained: list[int]) -> None:
    """Drop checkpoints of later steps than the first that must be trained: none may be passed by."""
    if folder.status == "done":
        log_line(folder, f"trained again: the study asks for step {untrained[0]}, whose adapter was not kept")
    for path in checkpoints(folder):
        if untrained and int(path.name) > untrained[0]:
            log_line(folder, f"checkpoint {path.name} is dropped: step {untrained[0]} comes before it")
            shutil.rmtree(path)


def _train(
    job: PlannedRun, suite: Suite, folder: RunFolder, listener: Listener, earlier: list[RunFolder], stop: Stop
) -> None:
    """Train from the last checkpoint, and evaluate on the way."""
    spec = job.spec
    tokenizer = load_tokenizer(spec.model)
    model = load_model(spec.model, spec.recipe.precision)
    adapted = list(targets_of(model, spec.lora, spec.model))
    model = attach_lora(model, spec.lora, spec.seeds.adapter, spec.model)
    begin_run(folder, spec, job.draw, environment(), adapted=adapted)
    at = last_checkpoint(folder)
    how = f"goes on from step {at.name}" if at else f"begins: LoRA on {', '.join(adapted)}"
    log_line(folder, how)
    slow = slow_here(spec.model, spec.recipe.precision)
    if slow:
        log_line(folder, slow)
    evaluator = StepEvaluator(
        folder,
        render_sets(suite, spec.pattern, spec.train_set, spec.evaluation, job.draw.examples),
        in_domain=spec.train_set,
        evaluation=spec.evaluation,
        tokenizer=tokenizer,
        listener=listener,
        baseline=same_before_training(spec, earlier),
    )
    hook = EvaluationHook(evaluator, step_work=training_work(job) / schedule_of(spec)[-1])
    shots = render(spec.pattern, job.draw.examples, spec.train_set)
    fine_tune(
        model,
        tokenizer,
        shots,
        spec.recipe,
        spec.seeds,
        [hook],
        folder=folder,
        resume=at,
        keep_at=lambda step: hook.evaluates_at(step) or bool(stop),
    )
    if not spec.evaluation.keep_checkpoints:
        shutil.rmtree(folder.checkpoints, ignore_errors=True)


def _score_adapters(job: PlannedRun, suite: Suite, folder: RunFolder, listener: Listener) -> None:
    """Score what a run lacks from the adapters that it kept."""
    spec = job.spec
    rendered = render_sets(suite, spec.pattern, spec.train_set, spec.evaluation, job.draw.examples)
    begin_run(folder, spec, job.draw, environment(), adapted=read_spec(folder).adapted)
    with folder.study.locked():
        keep_members(folder.study, [r.members for r in rendered], spec.evaluation.test_sets)
    kept = [step for step in schedule_of(spec) if folder.adapter(step).is_dir()]
    for step in kept:
        check_adapter(folder.adapter(step))
    adapters = [Checkpoint(step=step, path=folder.adapter(step)) for step in kept]
    scoring = ScoringJob(
        folder=folder,
        model=spec.model,
        precision=spec.recipe.precision,
        checkpoints=adapters,
        rendered=rendered,
        in_domain=spec.train_set,
        evaluation=spec.evaluation,
    )
    found = score_missing(scoring, listener)
    if found.broken:
        raise ModelError(f"step {found.broken[0][0]}: {found.broken[0][1]}")


def training_work(job: PlannedRun) -> float:
    """The work of training, as if it were scoring: a step goes forward and back, and shares no prefixes."""
    shots = render(job.spec.pattern, job.draw.examples, job.spec.train_set)
    return TRAINING_COST * job.spec.recipe.epochs * characters(shots)


def same_before_training(spec: RunSpec, earlier: list[RunFolder]) -> RunFolder | None:
    """A finished run that starts from the same model on the same kind of machine.

    A fresh LoRA adapter adds exactly zero, so their scores at step 0 are equal to the bit and are computed once.
    """
    wanted = (spec.model, spec.recipe.precision, spec.evaluation.batch_tokens, environment())
    return next((folder for folder in earlier if folder.done.is_file() and _before_training(folder) == wanted), None)


def _before_training(folder: RunFolder) -> tuple[Any, ...] | None:
    """What decides a run's scores at step 0; None if that cannot be read."""
    try:
        return *read_spec(folder).before_training, sidecar(folder.env)
    except StoreError:
        return None
