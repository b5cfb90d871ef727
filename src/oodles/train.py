"""Pattern-based fine-tuning through the language-model head: a transformers Trainer with LoRA and our own callback.

The loss is taken at the answer's positions only, so no (batch, length, vocabulary) tensor is built.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from typing import Any

import torch
from torch.nn.functional import cross_entropy
from transformers import Trainer, TrainingArguments
from transformers.trainer_callback import PrinterCallback

from oodles.errors import ConfigError, ModelError
from oodles.records import PromptSet, Recipe
from oodles.scoring import causal_lm, head_is_plain, hidden_states
from oodles.tokens import context_limit, encode


def fine_tune(
    model: torch.nn.Module, tokenizer: Any, shots: PromptSet, recipe: Recipe, seed: int, callbacks: Sequence[Any]
) -> None:
    """Train the adapters of `model` on the shots; the callbacks evaluate on the way."""
    encoded = encode(tokenizer, shots, context_limit(causal_lm(model).config))
    targets = encoded.targets
    if recipe.loss == "answers" and any(len(t) > 1 for t in targets):
        raise ConfigError('[train] loss = "answers" takes answers of one token; use loss = "vocab"')
    if not any(p.requires_grad for p in model.parameters()):
        raise ModelError("nothing to train: no parameter of the model requires a gradient; check [lora] targets")
    data = [
        {"tokens": [*ids, *targets[p.gold][:-1]], "target": list(targets[p.gold])}
        for ids, p in zip(encoded.prompts, shots.prompts, strict=True)
    ]
    with tempfile.TemporaryDirectory() as scratch:  # the Trainer wants a folder, though nothing is saved there
        trainer = AnswerTrainer(
            model=model,
            args=_arguments(recipe, seed, scratch),
            train_dataset=data,
            data_collator=collate,
            processing_class=tokenizer,
            callbacks=list(callbacks),
        )
        trainer.answer_tokens = [t[0] for t in targets] if recipe.loss == "answers" else None
        trainer.remove_callback(PrinterCallback)
        trainer.train()


def _arguments(recipe: Recipe, seed: int, scratch: str) -> TrainingArguments:
    return TrainingArguments(
        output_dir=scratch,
        num_train_epochs=recipe.epochs,
        per_device_train_batch_size=recipe.batch_size,
        learning_rate=recipe.learning_rate,
        lr_scheduler_type=recipe.schedule,
        warmup_steps=recipe.warmup,  # below 1: a share of the steps
        weight_decay=recipe.weight_decay,
        max_grad_norm=recipe.max_grad_norm,
        optim="adamw_torch",
        seed=seed,
        data_seed=seed,
        bf16=recipe.precision == "bf16" and torch.cuda.is_available(),
        use_cpu=not torch.cuda.is_available(),
        save_strategy="no",
        logging_steps=1,
        report_to="none",
        disable_tqdm=True,
        remove_unused_columns=False,
        dataloader_pin_memory=False,
    )


def collate(rows: Sequence[dict[str, list[int]]]) -> dict[str, torch.Tensor]:
    """Right-padded tokens, and where each answer token is predicted. Padding comes last, so causality hides it."""
    width = max(len(r["tokens"]) for r in rows)
    tokens = torch.tensor([r["tokens"] + [0] * (width - len(r["tokens"])) for r in rows])
    reads = [
        (n, len(r["tokens"]) - len(r["target"]) + k, token)
        for n, r in enumerate(rows)
        for k, token in enumerate(r["target"])
    ]
    row, column, target = (torch.tensor(values) for values in zip(*reads, strict=True))
    return {"tokens": tokens, "row": row, "column": column, "target": target}


class AnswerTrainer(Trainer):  # type: ignore[misc]
    """The Trainer with the loss at the answer's positions."""

    loss_is_scaled_for_ga = False  # a per-batch mean
    answer_tokens: list[int] | None = None  # set: the loss chooses among the answers only
    _plain_head: bool | None = None

    def compute_loss(self, model: Any, inputs: dict[str, torch.Tensor], return_outputs: bool = False, **_: Any) -> Any:
        logits = self._answer_logits(model, inputs).float()
        target = inputs["target"]
        if self.answer_tokens is not None:
            target = torch.tensor([self.answer_tokens.index(int(t)) for t in target], device=logits.device)
            logits = logits[:, self.answer_tokens]
        loss = cross_entropy(logits, target)
        if not torch.isfinite(loss):
            raise ModelError(
                f"the loss is {loss.item()} at step {self.state.global_step + 1}; lower [train] learning_rate"
            )
        return (loss, {"logits": logits}) if return_outputs else loss

    def _answer_logits(self, model: Any, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        """(answer tokens, vocabulary): a head that is a plain matrix is applied to the answer's positions only."""
        if self._plain_head is None:
            self._plain_head = head_is_plain(model, inputs["tokens"][:1])
        if not self._plain_head:
            return model(input_ids=inputs["tokens"]).logits[inputs["row"], inputs["column"]]
        hidden = hidden_states(model, input_ids=inputs["tokens"])
        return causal_lm(model).get_output_embeddings()(hidden[inputs["row"], inputs["column"]])
