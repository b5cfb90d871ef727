"""Pattern-based fine-tuning through the language-model head: a transformers Trainer with LoRA and our callback.

The loss is computed only at the answer's positions, so no (batch, length, vocabulary) tensor is built. A resumed
training equals an uninterrupted one: a checkpoint holds the adapter, the optimiser, the schedule and the state of every
random generator.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy
from torch.optim.lr_scheduler import LambdaLR
from transformers import Trainer, TrainerCallback, TrainingArguments, get_scheduler
from transformers.trainer import OPTIMIZER_NAME, SCHEDULER_NAME
from transformers.trainer_callback import PrinterCallback
from transformers.utils import logging

from oodles.contracts import ZERO, PromptSet, Recipe, Seeds
from oodles.disk import damage_of, put_folder
from oodles.errors import ModelError
from oodles.model.choice_tokens import encode_choices
from oodles.model.choices import length_of
from oodles.model.forward import causal_lm, head_is_plain, hidden_states, inside, is_out_of_memory, is_sharded
from oodles.model.tokens import context_limit, encode
from oodles.runs import zero
from oodles.runs.engines import hand_over, split_state, whole_adapter, whole_state
from oodles.runs.ranks import ALONE, Ranks
from oodles.runs.schedule import warmup_steps
from oodles.store.folder import RunFolder, log_line
from oodles.trouble import disk_errors

KEEP_EVERY = 30.0  # maximum seconds between checkpoints; another one is written before every evaluation
APART = 1_000_003  # between the dropout seeds of two processes of a run
RANDOM = "rng_state.pth"  # as the Trainer calls it
OPTIMISERS = {"adamw": "adamw_torch", "adafactor": "adafactor", "sgd": "sgd"}


def fine_tune(
    model: torch.nn.Module,
    tokenizer: Any,
    shots: PromptSet,
    recipe: Recipe,
    seeds: Seeds,
    callbacks: Sequence[Any],
    *,
    folder: RunFolder | None = None,
    resume: Path | None = None,
    keep_at: Callable[[int], bool] = lambda _: False,
    ranks: Ranks = ALONE,
    tell_loss: Callable[[int, Callable[[], float]], None] = lambda *_: None,
) -> None:
    """Train the adapters of `model` on the shots, starting from the checkpoint to resume, if there is one.

    The callbacks evaluate during training. `keep_at(step)` says whether a checkpoint must be written at a step, before
    the callbacks run. Without a folder, none is written. Several `ranks` share each batch, and the first one writes.
    `tell_loss` is told of every step and how to get its loss, before the callbacks run: the Trainer logs it after them.
    """
    if not any(p.requires_grad for p in model.parameters()):
        raise ModelError("nothing to train: no parameter of the model requires a gradient; check [lora] targets")
    candidates = encode_shots(tokenizer, shots, recipe, context_limit(causal_lm(model).config))
    trainer = AnswerTrainer(
        model=model,
        args=_arguments(recipe, seeds, ranks),
        train_dataset=candidates.examples,
        data_collator=candidates.collate,
        callbacks=list(callbacks),
    )
    trainer.answers, trainer.recipe, trainer.ranks, trainer.tell_loss = candidates, recipe, ranks, tell_loss
    trainer.remove_callback(PrinterCallback)
    if ranks.engine in ZERO:
        trainer.optimizer, said = hand_over(model, ranks, trainer.create_optimizer(), recipe)
        if folder and ranks.is_first:
            log_line(folder, said)
    if folder:
        trainer.callback_handler.callbacks.insert(0, Keeper(trainer, folder, keep_at))
    with _out_of_memory(recipe, trainer):
        trainer.train(resume_from_checkpoint=os.fspath(resume) if resume else None)


def _arguments(recipe: Recipe, seeds: Seeds, ranks: Ranks = ALONE) -> TrainingArguments:
    """Return the Trainer's arguments. It trains on one device, however many are visible.

    It knows nothing of other processes: all have the same batches, but each its own dropout.
    """
    with _unwarned(ranks):
        arguments = TrainingArguments(
            output_dir=tempfile.gettempdir(),  # nothing is written there
            num_train_epochs=recipe.epochs,
            max_steps=recipe.steps or -1,
            per_device_train_batch_size=recipe.batch_size,
            gradient_accumulation_steps=recipe.accumulate,
            gradient_checkpointing=recipe.gradient_checkpointing,
            gradient_checkpointing_kwargs={"use_reentrant": False} if recipe.gradient_checkpointing else None,
            learning_rate=recipe.learning_rate,  # for its schedule, see AnswerTrainer.create_scheduler
            weight_decay=recipe.weight_decay,
            max_grad_norm=recipe.max_grad_norm,
            optim=OPTIMISERS[recipe.optimiser],
            seed=seeds.dropout if ranks.is_first else (seeds.dropout + APART * ranks.rank) % 2**32,
            data_seed=seeds.order,
            bf16=recipe.precision == "bf16" and torch.cuda.is_available(),
            use_cpu=not torch.cuda.is_available(),
            save_strategy="no",  # Keeper saves checkpoints
            logging_steps=1,
            logging_nan_inf_filter=False,
            report_to="none",
            disable_tqdm=True,
            remove_unused_columns=False,
            dataloader_pin_memory=False,
        )
    arguments._n_gpu = min(1, arguments.n_gpu)  # with more, the Trainer wraps the model in DataParallel
    return arguments


@contextmanager
def _unwarned(ranks: Ranks) -> Iterator[None]:
    """Hide the warning that the Trainer takes no part in the processes' group: it is not meant to."""
    level = logging.get_verbosity()
    if not ranks.alone:
        logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)


def learning_rates(optimizer: torch.optim.Optimizer, recipe: Recipe, steps: int) -> LambdaLR:
    """Return the recipe's schedule over a run's optimiser steps.

    The k-th of w warm-up steps has k/(w+1) of the learning rate. In transformers, the first step has rate 0: it trains
    nothing but would be evaluated as a step. After the warm-up, both schedules are equal.
    """
    warmup = 0 if recipe.schedule == "constant" else warmup_steps(steps, recipe.warmup)
    plain = get_scheduler(recipe.schedule, optimizer, num_warmup_steps=warmup, num_training_steps=steps)
    own = [partial(_rate, warmup=warmup, steps=steps, after=after) for after in plain.lr_lambdas]
    return LambdaLR(optimizer, own)


def _rate(done: int, *, warmup: int, steps: int, after: Callable[[int], float]) -> float:
    """Return the learning-rate factor after some steps; after the last step, the factor is not used."""
    if done < warmup:
        return (done + 1) / (warmup + 1)
    return after(done) if done < steps else 0.0


# the loss


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Candidates:
    """The shots as token sequences: each with its right answer, or with every possible answer.

    `answers` lists the token of each answer if the loss chooses among one-token answers; `each` is the number of
    sequences per example. If examples have their own choices and the loss is over them (`own`), each says how many it
    has by its `lengths`, which divide the scores.
    """

    examples: list[dict[str, Any]]
    each: int = 1
    answers: tuple[int, ...] = ()
    own: bool = False

    def collate(self, rows: Sequence[dict[str, Any]]) -> dict[str, torch.Tensor]:
        """Return right-padded tokens, and the positions that predict answer tokens. Causality hides the padding."""
        sequences = [s for row in rows for s in row["sequences"]]
        width = max(len(tokens) for tokens, _ in sequences)
        reads = [
            (n, len(tokens) - len(target) + k, token)
            for n, (tokens, target) in enumerate(sequences)
            for k, token in enumerate(target)
        ]
        row, column, target = (torch.tensor(values) for values in zip(*reads, strict=True))
        padded = torch.tensor([tokens + [0] * (width - len(tokens)) for tokens, _ in sequences])
        gold = torch.tensor([r["gold"] for r in rows])
        batch = {"tokens": padded, "row": row, "column": column, "target": target, "gold": gold}
        if self.own:
            batch["lengths"] = torch.tensor([length for r in rows for length in r["lengths"]])
            batch["counts"] = torch.tensor([len(r["lengths"]) for r in rows])
        return batch

    def share(self, inputs: dict[str, torch.Tensor], ranks: Ranks) -> tuple[dict[str, torch.Tensor], float]:
        """Return this process's part of a batch, and the weight of its mean in the mean of the whole batch.

        A process without a part computes the first example for nothing, because all must call a sharded model.
        """
        count = len(inputs["gold"])
        first, end = count * ranks.rank // ranks.size, count * (ranks.rank + 1) // ranks.size
        counts = end > first
        first, end = (first, end) if counts else (0, 1)
        ends = [0, *inputs["counts"].cumsum(0).tolist()] if self.own else range(0, (count + 1) * self.each, self.each)
        rows = slice(ends[first], ends[end])
        mine = (inputs["row"] >= rows.start) & (inputs["row"] < rows.stop)
        part = {
            "tokens": inputs["tokens"][rows],
            "row": inputs["row"][mine] - rows.start,
            **{name: inputs[name][mine] for name in ("column", "target")},
            "gold": inputs["gold"][first:end],
        }
        if self.own:
            part |= {"lengths": inputs["lengths"][rows], "counts": inputs["counts"][first:end]}
        averaged = "gold" if self.answers or self.each > 1 or self.own else "target"
        return part, len(part[averaged]) / len(inputs[averaged]) if counts else 0.0

    def loss(self, logits: torch.Tensor, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        """Compute the cross-entropy at the answer's positions, over the vocabulary or over the answers."""
        if self.answers:
            return cross_entropy(logits[:, list(self.answers)], inputs["gold"])
        if self.each == 1 and not self.own:
            return cross_entropy(logits, inputs["target"])
        logs = logits.log_softmax(dim=-1).gather(1, inputs["target"][:, None])[:, 0]
        totals = torch.zeros(len(inputs["tokens"]), device=logs.device).index_add(0, inputs["row"], logs)
        if self.own:
            parts = (totals / inputs["lengths"]).split(inputs["counts"].tolist())
            return torch.stack(list(map(_against_others, parts, inputs["gold"]))).mean()
        return cross_entropy(totals.view(-1, self.each), inputs["gold"])


def _against_others(scores: torch.Tensor, gold: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of one example over its choices."""
    return cross_entropy(scores[None], gold[None])


def encode_shots(tokenizer: Any, shots: PromptSet, recipe: Recipe, limit: int | None) -> Candidates:
    """Encode the shots as required by the recipe's loss."""
    if shots.has_choices:
        return _encode_choices(tokenizer, shots, recipe, limit)
    encoded = encode(tokenizer, shots, limit)
    targets = encoded.targets
    one_token = all(len(t) == 1 for t in targets)
    every = recipe.loss == "answers" and not one_token
    examples = [
        {
            "sequences": [
                ([*ids, *target[:-1]], list(target)) for target in (targets if every else [targets[prompt.gold]])
            ],
            "gold": prompt.gold,
        }
        for ids, prompt in zip(encoded.prompts, shots.prompts, strict=True)
    ]
    if recipe.loss == "answers" and one_token:
        return Candidates(examples=examples, answers=tuple(t[0] for t in targets))
    return Candidates(examples=examples, each=len(targets) if every else 1)


def _encode_choices(tokenizer: Any, shots: PromptSet, recipe: Recipe, limit: int | None) -> Candidates:
    """Encode shots with their own choices: the right one, or all of them."""
    over = recipe.loss == "answers"
    if over and shots.score == "minus_baseline":
        raise ModelError(
            f"{shots.name}: score is minus_baseline, which [train] loss = answers cannot train on; choose another score"
        )
    encoded = encode_choices(tokenizer, replace(shots, baseline=None), limit)
    sequences = [(ids.tolist()[:-1], ids.tolist()[-n:]) for ids, n in zip(encoded.texts, encoded.reads, strict=True)]
    examples, at = [], 0
    for prompt in shots.prompts:
        own = sequences[at : at + len(prompt.choices)]
        at += len(own)
        lengths = [
            length_of(choice.text, len(s[1]), shots.score) for choice, s in zip(prompt.choices, own, strict=True)
        ]
        example = {"sequences": own if over else [own[prompt.gold]], "gold": prompt.gold}
        examples.append({**example, "lengths": lengths} if over else example)
    return Candidates(examples=examples, own=over)


class AnswerTrainer(Trainer):  # type: ignore[misc]
    """A Trainer with the loss at the answer's positions."""

    loss_is_scaled_for_ga = False  # the loss is a per-batch mean
    answers: Candidates
    recipe: Recipe
    ranks: Ranks = ALONE
    tell_loss: Callable[[int, Callable[[], float]], None]
    lr_scheduler: LambdaLR | None
    aside = Path(tempfile.gettempdir())  # folder in which a checkpoint is written
    _plain_head: bool | None = None
    _adapter: dict[str, torch.Tensor] | None = None
    _optimiser: dict[str, Any] | None = None
    _random: Sequence[bytes] = ()
    _losses: tuple[int, list[torch.Tensor]] = (0, [])  # of the batches of a step

    def _get_output_dir(self, trial: Any = None) -> str:
        return str(self.aside)

    def create_scheduler(self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None) -> LambdaLR:
        if self.lr_scheduler is None:
            self.lr_scheduler = learning_rates(optimizer or self.optimizer, self.recipe, num_training_steps)
            self._created_lr_scheduler = True
        return self.lr_scheduler

    def compute_loss(self, model: Any, inputs: dict[str, torch.Tensor], return_outputs: bool = False, **_: Any) -> Any:
        if self._plain_head is None:
            self._plain_head = head_is_plain(model, inputs["tokens"][:1])
        loss = self._shared_loss(model, inputs)
        whole = self.ranks.mean(loss.detach())
        if not torch.isfinite(whole):
            raise ModelError(
                f"the loss is {whole.item()} at step {self.state.global_step + 1}; lower [train] learning_rate"
                f" ({self.args.learning_rate:g}) or look at the data"
            )
        return loss

    def _shared_loss(self, model: Any, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        """Compute the loss of this process's share; the mean over the processes is the loss of the batch."""
        part, weight = (inputs, 1.0) if self.ranks.alone else self.answers.share(inputs, self.ranks)
        loss = inside(model, lambda: self.answers.loss(self._answer_logits(model, part).float(), part))
        return loss if self.ranks.alone else loss * (weight * self.ranks.size)

    def training_step(self, *given: Any, **more: Any) -> torch.Tensor:
        """Train on a batch; return the loss of the whole batch, for the log."""
        engine = zero.engine_of(self.model)
        step = super().training_step if engine is None else partial(self._deepspeed_step, engine)
        loss = self.ranks.mean(step(*given, **more))
        number = self.state.global_step + 1
        before = self._losses[1] if self._losses[0] == number else []
        self._losses = (number, [*before, loss])
        self.tell_loss(number, self._loss_now)
        return loss

    def _loss_now(self) -> float:
        return float(sum(self._losses[1]))

    def _deepspeed_step(self, engine: Any, model: Any, inputs: dict[str, torch.Tensor], *_: Any) -> torch.Tensor:
        """Do what the Trainer does, with DeepSpeed's way back."""
        model.train()
        engine.set_gradient_accumulation_boundary(self.accelerator.sync_gradients)
        loss = self.compute_loss(model, self._prepare_inputs(inputs)) / self.current_gradient_accumulation_steps
        engine.backward(loss, scale_wrt_gas=False)
        return loss.detach()

    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> Any:
        """DeepSpeed clips gradients when it makes a step; before that, their norm is not known."""
        return None if zero.engine_of(self.model) is not None else super()._get_grad_norm(model, grad_norm=grad_norm)

    def _clip_grad_norm(self, model: Any) -> Any:
        if zero.engine_of(self.model) is not None:
            return None
        norm = super()._clip_grad_norm(model)
        return norm.full_tensor() if hasattr(norm, "full_tensor") else norm

    def _answer_logits(self, model: Any, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        """Return logits of shape (answer tokens, vocabulary): the head is applied only to the answer's positions."""
        where = inputs["row"], inputs["column"]
        if self._plain_head:
            hidden = hidden_states(model, input_ids=inputs["tokens"])
            return causal_lm(model).get_output_embeddings()(hidden[where])
        with _last_layer_gives(causal_lm(model).base_model, where):
            return causal_lm(model)(input_ids=inputs["tokens"], use_cache=False).logits[:, 0]

    @property
    def _deepspeed(self) -> zero.Steps | None:
        """What makes the steps, if DeepSpeed does."""
        inner = getattr(self.optimizer, "optimizer", self.optimizer)  # Accelerate wraps it
        return inner if isinstance(inner, zero.Steps) else None

    # checkpoints of several processes: what one process would write, and the random states of the others

    def gather(self) -> None:
        """Gather what a checkpoint holds; all processes call this, and the first one writes."""
        self._adapter = whole_adapter(self.model)
        if steps := self._deepspeed:
            self._optimiser = zero.whole_state(steps)
        else:
            self._optimiser = whole_state(self.optimizer.state_dict()) if is_sharded(self.model) else None
        self._random = [] if self.ranks.alone else self.ranks.gathered(self._own_random())[1:]

    def _own_random(self) -> bytes:
        with tempfile.TemporaryDirectory() as scratch:
            super()._save_rng_state(scratch)
            return (Path(scratch) / RANDOM).read_bytes()

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        super()._save(output_dir, state_dict=state_dict or self._adapter)

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        if self._optimiser is None:
            super()._save_optimizer_and_scheduler(output_dir)
            return
        torch.save(self._optimiser, Path(output_dir) / OPTIMIZER_NAME)
        torch.save(self.lr_scheduler.state_dict(), Path(output_dir) / SCHEDULER_NAME)  # type: ignore[union-attr]

    def _save_rng_state(self, output_dir: str) -> None:
        super()._save_rng_state(output_dir)
        for rank, state in enumerate(self._random, start=1):
            _random_file(Path(output_dir), rank).write_bytes(state)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        if self.ranks.alone:  # see share_model
            super()._load_from_checkpoint(resume_from_checkpoint, model)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if checkpoint is None or not (is_sharded(self.model) or self._deepspeed):
            super()._load_optimizer_and_scheduler(checkpoint)
            return
        state, schedule = (
            torch.load(Path(checkpoint) / name, map_location="cpu", weights_only=True)
            for name in (OPTIMIZER_NAME, SCHEDULER_NAME)
        )
        if steps := self._deepspeed:
            zero.put_state(state, steps, self.ranks)
        else:
            self.optimizer.load_state_dict(split_state(state, self.optimizer))
        self.lr_scheduler.load_state_dict(schedule)  # type: ignore[union-attr]

    def _load_rng_state(self, checkpoint: str | None) -> None:
        """Load the random states of this process, if it had any when the checkpoint was written."""
        own = _random_file(Path(checkpoint), self.ranks.rank) if checkpoint else None
        if own is None or self.ranks.is_first:
            super()._load_rng_state(checkpoint)
        elif own.is_file():
            with tempfile.TemporaryDirectory() as scratch:
                shutil.copy(own, Path(scratch) / RANDOM)
                super()._load_rng_state(scratch)


def _random_file(checkpoint: Path, rank: int) -> Path:
    return checkpoint / f"rng_state_{rank}.pth"


@contextmanager
def _last_layer_gives(body: torch.nn.Module, where: tuple[torch.Tensor, torch.Tensor]) -> Iterator[None]:
    """Cut the last layer's output to some positions; later operations (scaling, soft-capping) see no others."""

    def pick(_module: Any, _given: Any, output: Any) -> Any:
        output.last_hidden_state = output.last_hidden_state[where][:, None]
        return output

    handle = body.register_forward_hook(pick)
    try:
        yield
    finally:
        handle.remove()


# checkpoints


class Keeper(TrainerCallback):  # type: ignore[misc]
    """Keeps the newest checkpoint of a run: before every evaluation, and at least every half minute."""

    def __init__(self, trainer: AnswerTrainer, folder: RunFolder, keep_at: Callable[[int], bool]) -> None:
        self._trainer, self._folder, self._keep_at = trainer, folder, keep_at
        self._last = time.monotonic()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Write a checkpoint before the other callbacks handle this step."""
        wanted = self._keep_at(state.global_step) or time.monotonic() - self._last >= KEEP_EVERY
        if self._trainer.ranks.largest(int(wanted)):
            keep_checkpoint(self._trainer, self._folder)
            self._last = time.monotonic()


def keep_checkpoint(trainer: AnswerTrainer, folder: RunFolder) -> None:
    """Write a checkpoint aside, sync and rename it; then remove the earlier ones."""
    trainer.aside = scratch = folder.checkpoints / ".part"
    step = trainer.state.global_step
    final = folder.checkpoints / str(step)
    if trainer.ranks.from_first(final.is_dir):
        return
    trainer.gather()
    if not trainer.ranks.is_first:
        return
    try:
        with put_folder(final) as aside:
            shutil.rmtree(scratch, ignore_errors=True)
            trainer._save_checkpoint(trainer.model, trial=None)
            for file in (scratch / f"checkpoint-{step}").iterdir():
                if file.name not in ("README.md", "training_args.bin"):  # files that the Trainer recreates
                    file.rename(aside / file.name)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    for path in checkpoints(folder):
        if path != final:
            shutil.rmtree(path, ignore_errors=True)


def checkpoints(folder: RunFolder) -> list[Path]:
    """Return the checkpoints of a run, oldest first; a folder has its name only when it is complete."""
    if not folder.checkpoints.is_dir():
        return []
    return sorted((p for p in folder.checkpoints.iterdir() if p.name.isdigit()), key=lambda p: int(p.name))


def last_checkpoint(folder: RunFolder) -> Path | None:
    """Return the checkpoint to resume from, if there is one; damaged checkpoints are dropped."""
    for path in reversed(checkpoints(folder)):
        problem = damage_of(path)
        if not problem:
            return path
        log_line(folder, f"dropped damaged checkpoint {path.name}: {problem}")
        with disk_errors(path):
            shutil.rmtree(path)
    return None


@contextmanager
def _out_of_memory(recipe: Recipe, trainer: Trainer) -> Iterator[None]:
    """Turn out-of-memory errors into a message that says which setting to lower."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        step = trainer.state.global_step + 1
        raise ModelError(
            f"out of memory in training at step {step} with [train] batch_size {recipe.batch_size}; halve it and double"
            " accumulate (the same arithmetic), or set gradient_checkpointing = true"
        ) from None
