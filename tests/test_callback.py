"""Our callback in somebody else's Trainer."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import SaveStrategy

from oodles.errors import ConfigError, ModelError, StoreError
from oodles.model.embedded import tiny_tokenizer
from oodles.runs.callback import OODCallback
from oodles.store.claim import claim_folder
from oodles.store.folder import StudyFolder, run_folders
from oodles.store.table import read_records, read_runs
from test_scoring import tiny


def their_trainer(out: Path, callbacks: list[Any], tokenizer: Any) -> Trainer:
    """A plain language-modelling Trainer with dropout, as a user may have it."""
    torch.manual_seed(0)
    model = tiny("llama").train()
    model.config.attention_dropout = 0.1
    texts = [f"A man is number {i} in the long queue." for i in range(16)]
    data = [{"input_ids": (ids := tokenizer(t)["input_ids"][:10]), "labels": ids} for t in texts]
    arguments = TrainingArguments(
        output_dir=str(out), max_steps=6, per_device_train_batch_size=4, logging_steps=1, report_to="none",
        disable_tqdm=True, use_cpu=True, save_strategy="no", seed=3,
    )  # fmt: skip
    return Trainer(model, arguments, train_dataset=data, processing_class=tokenizer, callbacks=callbacks)


def losses(trainer: Trainer) -> list[float]:
    trainer.train()
    return [row["loss"] for row in trainer.state.log_history if "loss" in row]


def test_their_training_is_not_changed_and_ours_is_recorded(tmp_path: Path, toy_suite: Path) -> None:
    tokenizer = tiny_tokenizer()
    without = losses(their_trainer(tmp_path / "a", [], tokenizer))
    callback = OODCallback(
        suite=toy_suite, in_domain="home", run="mine", out=tmp_path / "study", steps=(2,), model="their-model", seed=3
    )
    with_it = losses(their_trainer(tmp_path / "b", [callback], tokenizer))
    assert with_it == without  # to the bit
    table = read_runs(tmp_path / "study")
    assert sorted(table.step.unique()) == [0, 2, 6]
    assert set(table.test_set) == {"home", "away", "far"}
    assert set(table.model) == {"their-model"}
    assert set(table[table.test_set == "home"].role) == {"in_domain"}
    assert len(read_records(tmp_path / "study")) == 3 * (16 + 11 + 14)
    (folder,) = run_folders(tmp_path / "study")
    assert folder.status == "done"
    said = re.findall(r"step (\d)/6  loss (\S+)", folder.log.read_text())
    assert said == [("0", "-"), ("2", "-"), ("6", "-")]  # the Trainer logs the loss of a step after its evaluation


class Fails(TrainerCallback):
    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == 4:
            raise RuntimeError("on purpose")


def test_a_resumed_training_goes_on_after_a_torn_line(tmp_path: Path, toy_suite: Path) -> None:
    """A kill in the middle of a line must not spoil the next one, too."""
    tokenizer, options = tiny_tokenizer(), {"suite": toy_suite, "in_domain": "home", "out": tmp_path / "study"}
    for name in ("whole", "torn"):
        trainer = their_trainer(tmp_path / name, [OODCallback(run=name, steps=(4,), **options), Fails()], tokenizer)
        trainer.args.save_strategy, trainer.args.save_steps = SaveStrategy.STEPS, 4
        with pytest.raises(RuntimeError, match="on purpose"):
            trainer.train()
    scores = tmp_path / "study" / "runs" / "torn" / "scores.jsonl"
    scores.write_bytes(scores.read_bytes()[:-30])
    for name in ("whole", "torn"):
        trainer = their_trainer(tmp_path / name, [OODCallback(run=name, steps=(4,), **options)], tokenizer)
        trainer.train(resume_from_checkpoint=str(tmp_path / name / "checkpoint-4"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a line that was lost would be told
        table = read_runs(tmp_path / "study").sort_values(["step", "test_set", "metric"])
    whole, torn = (table[table.run == name].drop(columns="run").reset_index(drop=True) for name in ("whole", "torn"))
    assert sorted(torn.step.unique()) == [0, 4, 6]
    assert torn.equals(whole)


def test_bad_callbacks(tmp_path: Path, toy_suite: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean 'home'"):
        OODCallback(suite=toy_suite, in_domain="hom", run="r", out=tmp_path / "s")
    with pytest.raises(ConfigError, match="OODCallback: unknown key 'stpes'; did you mean 'steps'"):
        OODCallback(suite=toy_suite, in_domain="home", run="r", out=tmp_path / "s", stpes=[1])
    with pytest.raises(ConfigError, match=r"run is '\.\./b'"):
        OODCallback(suite=toy_suite, in_domain="home", run="../b", out=tmp_path / "s")
    callback = OODCallback(suite=toy_suite, in_domain="home", run="r", out=tmp_path / "s")
    with pytest.raises(ModelError, match="pass tokenizer="):
        callback.on_train_begin(None, None, None, model=None, processing_class=None)
    assert not (tmp_path / "s").exists()  # a start that failed does not block its name


def test_runs_and_studies_of_others_are_not_touched(tmp_path: Path, toy_suite: Path) -> None:
    tokenizer = tiny_tokenizer()
    callback = OODCallback(suite=toy_suite, in_domain="home", run="r", out=tmp_path / "s", steps=[6])
    their_trainer(tmp_path / "a", [callback], tokenizer).train()
    with pytest.raises(StoreError, match="a run of this name is done"):
        OODCallback(suite=toy_suite, in_domain="home", run="r", out=tmp_path / "s")
    claim_folder(StudyFolder(tmp_path / "study"), "study", "toy")
    with pytest.raises(StoreError, match="holds study 'study'"):
        OODCallback(suite=toy_suite, in_domain="home", run="r", out=tmp_path / "study")


class Tracker(TrainerCallback):
    """Stands for wandb or TensorBoard: hears what the Trainer logs."""

    def __init__(self) -> None:
        self.heard: list[dict[str, float]] = []

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        self.heard.append(dict(logs))


def test_scores_reach_the_trainers_log_and_its_trackers_if_asked(tmp_path: Path, toy_suite: Path) -> None:
    options: dict[str, Any] = {"suite": toy_suite, "in_domain": "home", "out": tmp_path / "s", "steps": (2,)}
    plain = their_trainer(tmp_path / "a", [OODCallback(run="a", **options)], tiny_tokenizer())
    plain.train()
    assert not any("eval_home_accuracy" in row for row in plain.state.log_history)
    callback, tracker = OODCallback(run="b", **options), Tracker()
    trainer = their_trainer(tmp_path / "b", [tracker, callback], tiny_tokenizer())
    callback.log_to(trainer)
    trainer.train()
    rows = [row for row in trainer.state.log_history if "eval_home_accuracy" in row]
    assert [row["step"] for row in rows] == [0, 2, 6]
    heard = [row["eval_away_accuracy"] for row in tracker.heard if "eval_away_accuracy" in row]
    kept = read_runs(tmp_path / "s")
    kept = kept[(kept.run == "b") & (kept.test_set == "away") & (kept.metric == "accuracy")].sort_values("step")
    assert heard == list(kept.value)
