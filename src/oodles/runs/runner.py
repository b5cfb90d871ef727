"""run_one(): load, attach, begin, evaluate, train, finish."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

from oodles.disk import damage_of
from oodles.errors import ModelError, StoreError
from oodles.model.load import attach_lora, free_memory, load_model, load_tokenizer, slow_here, targets_of
from oodles.runs.callback import EvaluationHook, TrackerHook
from oodles.runs.checkpoints import Checkpoint, ScoringJob, score_missing
from oodles.runs.evaluate import StepEvaluator
from oodles.runs.events import Event
from oodles.runs.ranks import Ranks
from oodles.runs.schedule import schedule_of
from oodles.runs.todo import RunTask, environment_of, same_before_training, training_work, untrained_of
from oodles.runs.trackers import About, RunTrackers
from oodles.runs.train import checkpoints, fine_tune, last_checkpoint
from oodles.store.damage import check_adapter
from oodles.store.folder import RunFolder, log_line
from oodles.store.members import keep_members
from oodles.store.sidecars import read_json
from oodles.store.spec import begin_run, read_spec
from oodles.suite.patterns import render


def run_one(task: RunTask) -> None:
    """Complete a run, from its spec to its finished folder; existing results are neither trained nor scored again.

    Several processes call this together (`task.ranks`); the first one decides and writes.
    """
    ranks = task.ranks
    if ranks.from_first(lambda: _rewind(task)):
        tokenizer, model = _load(task)
        model, adapted = _attach(task, model)
        checkpoint = ranks.from_first(lambda: _begin(task, adapted))
        _share(task, model, checkpoint)
        hook = _evaluate(task, tokenizer)
        _train(task, model, tokenizer, hook, checkpoint)
        _leave(task, model)
        del model, hook
        free_memory()
    _complete(task)
    if ranks.is_first:
        _check_finished(task)


def _rewind(task: RunTask) -> bool:
    """Whether anything must be trained; if so, drop checkpoints after the first step that must be trained.

    Training must not skip any of these steps.
    """
    folder, untrained = task.folder, untrained_of(task.missing(), task.folder)
    if folder.status == "done" and untrained:
        log_line(folder, f"training again: step {untrained[0]} is needed, but its adapter was not kept")
    for path in checkpoints(folder):
        if untrained and int(path.name) > untrained[0]:
            log_line(folder, f"checkpoint {path.name} is dropped: step {untrained[0]} comes before it")
            shutil.rmtree(path)
    return bool(untrained) or folder.status != "done"


def start_of(folder: RunFolder, untrained: list[int]) -> int:
    """Return the step from which training would resume, without changing anything."""
    usable = [path for path in checkpoints(folder) if not untrained or int(path.name) <= untrained[0]]
    return next((int(path.name) for path in reversed(usable) if not damage_of(path)), 0)


def _load(task: RunTask) -> tuple[Any, Any]:
    """Load the tokenizer and the base model."""
    model, precision = task.spec.model, task.spec.recipe.precision
    held = task.base.take((model, precision))
    if held is not None:
        return load_tokenizer(model), held
    free_memory()  # of another model that was left
    if task.ranks.is_first:
        task.listener(Event(text=f"{task.folder.name}  loading {model.label}"))
    return load_tokenizer(model), load_model(model, precision, _where(task.ranks))


def _where(ranks: Ranks) -> Literal["cpu", "meta"] | None:
    """Return the device to load to: a model to be sharded is loaded by the first process, outside the GPUs."""
    if not ranks.splits_weights:
        return None
    return "cpu" if ranks.is_first else "meta"


def _share(task: RunTask, model: Any, checkpoint: Path | None) -> None:
    """Share the model among the processes of the run; its log says what each of them holds."""
    if task.ranks.alone:
        return
    from oodles.runs.engines import share_model

    shared = share_model(model, task.ranks, checkpoint, trains=True)
    if task.ranks.is_first and shared:
        log_line(task.folder, shared)


def _leave(task: RunTask, model: Any) -> None:
    """Leave the base model to the next run, where training has changed nothing of it but the adapter."""
    spec = task.spec
    if not task.ranks.alone:
        from oodles.runs.engines import release_model

        release_model(model)
    if task.ranks.alone and spec.lora.bias == "none" and not spec.recipe.gradient_checkpointing:
        task.base.leave((spec.model, spec.recipe.precision), model.unload().eval())


def _attach(task: RunTask, model: Any) -> tuple[Any, Sequence[str]]:
    """Attach a fresh adapter; return the model and the adapted layers."""
    spec = task.spec
    adapted = list(targets_of(model, spec.lora, spec.model))
    return attach_lora(model, spec.lora, spec.seeds.adapter, spec.model), adapted


def _begin(task: RunTask, adapted: Sequence[str]) -> Path | None:
    """Create the run's folder; return the checkpoint to resume from, if there is one."""
    spec, folder = task.spec, task.folder
    begin_run(folder, spec, task.job.draw, environment_of(task.ranks), adapted)
    checkpoint = last_checkpoint(folder)
    how = f"resumes from step {checkpoint.name}" if checkpoint else f"begins: LoRA on {', '.join(adapted)}"
    log_line(folder, how)
    if slow := slow_here(spec.model, spec.recipe.precision):
        log_line(folder, slow)
    return checkpoint


def _evaluate(task: RunTask, tokenizer: Any) -> EvaluationHook:
    """Return the hook that scores the model at the scheduled steps, before and during training."""
    spec = task.spec
    evaluator = StepEvaluator(
        task.folder,
        task.rendered,
        in_domain=spec.train_set,
        evaluation=spec.evaluation,
        tokenizer=tokenizer,
        listener=task.listener,
        baseline=same_before_training(spec, task.earlier, task.ranks) if task.ranks.is_first else None,
        ranks=task.ranks,
    )
    return EvaluationHook(evaluator, step_work=training_work(task.job, 1))


def _train(task: RunTask, model: Any, tokenizer: Any, hook: EvaluationHook, checkpoint: Path | None) -> None:
    """Train from the checkpoint, or from the beginning; the hook evaluates on the way, and says when it is done."""
    spec, told = task.spec, TrackerHook(hook, partial(_trackers, task))
    whole = False
    try:
        fine_tune(
            model,
            tokenizer,
            render(spec.pattern, task.job.draw.examples, spec.train_set),
            spec.recipe,
            spec.seeds,
            [hook, told] if task.trackers and task.ranks.is_first else [hook],
            folder=task.folder,
            resume=checkpoint,
            keep_at=lambda step: hook.evaluates_at(step) or bool(task.stop),
            ranks=task.ranks,
            tell_loss=hook.know_loss,
        )
        whole = True
    finally:
        told.close(failed=not whole)
    if task.ranks.is_first and not spec.evaluation.keep_checkpoints:
        shutil.rmtree(task.folder.checkpoints, ignore_errors=True)


def _trackers(task: RunTask) -> RunTrackers:
    folder = task.folder
    return RunTrackers(task.trackers, About(folder=folder, study=task.study, config=read_json(folder.spec)))


def _complete(task: RunTask) -> None:
    """Score the missing evaluations of a run from its kept adapters."""
    if not task.ranks.from_first(task.missing):
        return
    task.base.take(None)
    free_memory()  # before the base model is loaded for kept adapters
    spec, folder = task.spec, task.folder
    if task.ranks.is_first:
        _begin_again(task)
    steps = task.ranks.from_first(lambda: [s for s in schedule_of(spec) if folder.adapter(s).is_dir()])
    scoring = ScoringJob(
        folder=folder,
        model=spec.model,
        precision=spec.recipe.precision,
        checkpoints=[Checkpoint(step=step, path=folder.adapter(step)) for step in steps],
        rendered=task.rendered,
        in_domain=spec.train_set,
        evaluation=spec.evaluation,
        spread=task.spread,
    )
    scored = score_missing(scoring, task.listener, task.ranks, spec.lora)
    if scored.broken:
        raise ModelError(f"step {scored.broken[0][0]}: {scored.broken[0][1]}")


def _begin_again(task: RunTask) -> None:
    """Prepare the run's folder for further evaluations of its kept adapters, which must be intact."""
    spec, folder = task.spec, task.folder
    begin_run(folder, spec, task.job.draw, environment_of(task.ranks), adapted=read_spec(folder).adapted)
    with folder.study.locked():
        keep_members(folder.study, [test_set.members for test_set in task.rendered], spec.evaluation.test_sets)
    for step in schedule_of(spec):
        if folder.adapter(step).is_dir():
            check_adapter(folder.adapter(step))


def _check_finished(task: RunTask) -> None:
    """Raise an error if the run lacks any evaluation."""
    left = sorted(task.missing())
    if left:
        step, test_set = left[0]
        raise StoreError(
            f"{task.folder.path}: still lacks {len(left)} of its evaluations, the first at step {step} on test set"
            f" '{test_set}'; remove this run's folder and run the study again"
        )
