"""run_one(): draw, train, score everywhere, save."""

from __future__ import annotations

from oodles.callback import Listener, OODCallback, characters
from oodles.environment import environment
from oodles.grid import Job, schedule_of
from oodles.models import attach_lora, load_model, load_tokenizer
from oodles.patterns import render
from oodles.records import RunSpec, Suite
from oodles.store import RunFolder, begin_run, read_json
from oodles.train import fine_tune

TRAINING_COST = 3.5  # per character, against scoring: measured on the embedded model and suite


def run_one(job: Job, suite: Suite, folder: RunFolder, listener: Listener, earlier: list[RunFolder]) -> None:
    """One run from its spec to its finished folder."""
    spec = job.spec
    tokenizer = load_tokenizer(spec.model)
    model = attach_lora(load_model(spec.model, spec.recipe.precision), spec.lora, spec.seed)
    begin_run(folder, spec, job.draw, environment())
    callback = OODCallback(
        suite=suite,
        in_domain=spec.train_set,
        run=folder,
        pattern=spec.pattern,
        evaluation=spec.evaluation,
        listener=listener,
        baseline=same_before_training(spec, earlier),
        examples=job.draw.examples,
        step_work=training_work(job) / schedule_of(spec)[-1],
    )
    shots = render(spec.pattern, job.draw.examples, spec.train_set)
    fine_tune(model, tokenizer, shots, spec.recipe, spec.seed, [callback])


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
        if not folder.done.is_file() or read_json(folder.env) != here:
            continue
        held = read_json(folder.spec)
        model = {"label": spec.model.label, "source": spec.model.source, "revision": spec.model.revision}
        same_batches = held["evaluation"]["batch_tokens"] == spec.evaluation.batch_tokens
        if held["model"] == model and held["recipe"]["precision"] == spec.recipe.precision and same_batches:
            return folder
    return None
