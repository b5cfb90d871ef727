"""run_one(): draw, train, score everywhere, save."""

from __future__ import annotations

import shutil
from pathlib import Path

from oodles.callback import Listener, OODCallback, characters, render_sets
from oodles.environment import environment
from oodles.errors import ModelError
from oodles.grid import Job, schedule_of
from oodles.locks import held_briefly
from oodles.models import attach_lora, load_model, load_tokenizer, slow_here, targets_of
from oodles.patterns import render
from oodles.records import RunSpec, Suite
from oodles.scorer import Checkpoint, score_missing
from oodles.stopping import Stop
from oodles.store import RunFolder, begin_run, keep_members, log_line, read_json, sidecar
from oodles.train import fine_tune, last_checkpoint

TRAINING_COST = 3.5  # per character, against scoring: measured on the embedded model and suite


def run_one(
    job: Job, suite: Suite, folder: RunFolder, listener: Listener, earlier: list[RunFolder], stop: Stop
) -> None:
    """One run from its spec to its finished folder; what a finished one lacks is scored from its adapters, if kept."""
    spec = job.spec
    if folder.status == "done" and _completed(job, suite, folder, listener):
        return
    tokenizer = load_tokenizer(spec.model)
    model = load_model(spec.model, spec.recipe.precision)
    adapted, at = list(targets_of(model, spec.lora, spec.model)), last_checkpoint(folder)
    model = attach_lora(model, spec.lora, spec.seeds.adapter, spec.model)
    begin_run(folder, spec, job.draw, environment(), adapted=adapted)
    how = f"goes on from step {Path(at).name}" if at else f"begins: LoRA on {', '.join(adapted)}"
    log_line(folder, how)
    slow = slow_here(spec.model, spec.recipe.precision)
    if slow:
        log_line(folder, slow)
    callback = OODCallback(
        suite=suite,
        in_domain=spec.train_set,
        run=folder,
        pattern=spec.pattern,
        evaluation=spec.evaluation,
        tokenizer=tokenizer,
        listener=listener,
        baseline=same_before_training(spec, earlier),
        examples=job.draw.examples,
        step_work=training_work(job) / schedule_of(spec)[-1],
    )
    shots = render(spec.pattern, job.draw.examples, spec.train_set)
    fine_tune(
        model,
        tokenizer,
        shots,
        spec.recipe,
        spec.seeds,
        [callback],
        folder=folder,
        keep_at=lambda step: callback.evaluates_at(step) or bool(stop),
    )
    if not spec.evaluation.keep_checkpoints:
        shutil.rmtree(folder.checkpoints, ignore_errors=True)


def _completed(job: Job, suite: Suite, folder: RunFolder, listener: Listener) -> bool:
    """Score the test sets that a finished run lacks; False if it must be trained again for steps nobody kept."""
    spec = job.spec
    steps = schedule_of(spec)
    if not all(folder.adapter(step).is_dir() for step in steps):
        log_line(folder, "trained again: the study asks for steps whose adapters were not kept")
        return False
    rendered = render_sets(suite, spec.pattern, spec.train_set, spec.evaluation, job.draw.examples)
    begin_run(folder, spec, job.draw, environment(), adapted=read_json(folder.spec).get("adapted"))
    with held_briefly(folder.root / ".study.lock"):
        keep_members(folder, [r.members for r in rendered], spec.evaluation.test_sets)
    checkpoints = [Checkpoint(step=step, path=folder.adapter(step)) for step in steps]
    found = score_missing(
        folder, spec.model, checkpoints, rendered, spec.train_set, spec.evaluation, spec.recipe.precision, listener
    )
    if found.broken:
        raise ModelError(f"step {found.broken[0][0]}: {found.broken[0][1]}")
    return True


def training_work(job: Job) -> float:
    """The work of training, as if it were scoring: a step goes forward and back, and shares no prefixes."""
    shots = render(job.spec.pattern, job.draw.examples, job.spec.train_set)
    return TRAINING_COST * job.spec.recipe.epochs * characters(shots)


def same_before_training(spec: RunSpec, earlier: list[RunFolder]) -> RunFolder | None:
    """A finished run that starts from the same model on the same kind of machine.

    A fresh LoRA adapter adds exactly zero, so their scores at step 0 are equal to the bit and are computed once.
    """
    here = environment()
    for folder in earlier:
        held = sidecar(folder.spec)
        if not folder.done.is_file() or held is None or sidecar(folder.env) != here:
            continue
        model = {"label": spec.model.label, "source": spec.model.source, "revision": spec.model.revision}
        same_batches = held["evaluation"]["batch_tokens"] == spec.evaluation.batch_tokens
        if held["model"] == model and held["recipe"]["precision"] == spec.recipe.precision and same_batches:
            return folder
    return None
