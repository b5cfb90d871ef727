"""OODCallback in somebody else's training, plain Trainer or SFTTrainer: nothing of theirs changes by one bit."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from datasets import Dataset
from peft import LoraConfig, PromptTuningConfig, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    EarlyStoppingCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)
from trl import SFTConfig, SFTTrainer

import oodles as oo
from oodles.errors import ModelError
from oodles.store.folder import run_folders
from oodles.store.table import read_records, read_runs

QUESTION = "A man is number {} in the queue. Question: Is he early? Yes or No?"
ROWS = [{"prompt": QUESTION.format(i), "completion": (" Yes", " No")[i % 2]} for i in range(24)]
TIMES = ("runtime", "per_second")  # how long something took is nobody's result
COMMON: dict[str, Any] = {
    "max_steps": 6,
    "per_device_train_batch_size": 2,
    "gradient_accumulation_steps": 2,
    "learning_rate": 1e-2,
    "logging_steps": 1,
    "eval_strategy": "steps",
    "eval_steps": 2,
    "save_strategy": "no",
    "report_to": "none",
    "disable_tqdm": True,
    "use_cpu": True,
    "seed": 3,
}


def plain(model: Path, out: Path, callbacks: list[Any], **more: Any) -> Trainer:
    """A plain Trainer with dropout, accumulation and an evaluation of its own."""
    tokenizer = AutoTokenizer.from_pretrained(model)

    def encode(row: dict[str, str]) -> dict[str, list[int]]:
        before, whole = (tokenizer(text)["input_ids"] for text in (row["prompt"], row["prompt"] + row["completion"]))
        return {"input_ids": whole, "labels": [-100] * len(before) + whole[len(before) :]}

    return Trainer(
        AutoModelForCausalLM.from_pretrained(model, attention_dropout=0.2),
        TrainingArguments(output_dir=str(out), **{**COMMON, **more}),
        train_dataset=[encode(row) for row in ROWS[:16]],
        eval_dataset=[encode(row) for row in ROWS[16:]],
        data_collator=DataCollatorForSeq2Seq(tokenizer),
        processing_class=tokenizer,
        callbacks=callbacks,
    )


def sft(model: Path, out: Path, callbacks: list[Any], peft_config: Any = None, **more: Any) -> SFTTrainer:
    """TRL's trainer with its own defaults: gradient checkpointing, bf16, the loss in chunks."""
    return SFTTrainer(
        AutoModelForCausalLM.from_pretrained(model, attention_dropout=0.2),
        SFTConfig(output_dir=str(out), **{**COMMON, **more}),
        train_dataset=Dataset.from_list(ROWS[:16]),
        eval_dataset=Dataset.from_list(ROWS[16:]),
        processing_class=AutoTokenizer.from_pretrained(model),
        peft_config=peft_config,
        callbacks=callbacks,
    )


def sft_adapter(model: Path, out: Path, callbacks: list[Any], **more: Any) -> SFTTrainer:
    return sft(model, out, callbacks, LoraConfig(r=4, lora_dropout=0.2, task_type="CAUSAL_LM"), **more)


@dataclass(frozen=True, eq=False)
class Outcome:
    """All that a training leaves behind."""

    history: list[dict[str, float]]  # every logged loss, gradient norm and evaluation
    weights: dict[str, torch.Tensor]
    states: tuple[Any, ...]  # of the three random generators


def outcome(trainer: Trainer) -> Outcome:
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    trainer.train()
    history = [
        {key: value for key, value in row.items() if not key.endswith(TIMES)} for row in trainer.state.log_history
    ]
    name, keys, *rest = np.random.get_state()
    states = (torch.get_rng_state().tolist(), random.getstate(), (name, keys.tolist(), *rest))
    return Outcome(history, {k: v.clone() for k, v in trainer.model.state_dict().items()}, states)


def assert_same(found: Outcome, expected: Outcome) -> None:
    assert found.history == expected.history
    assert found.states == expected.states
    assert found.weights.keys() == expected.weights.keys()
    assert all(torch.equal(found.weights[name], expected.weights[name]) for name in expected.weights)


def callback(suite: Path, out: Path, **more: Any) -> oo.OODCallback:
    given = {"in_domain": "home", "run": "mine", "steps": [1, 3, 4], "model": "theirs", "seed": 3, "quiet": True}
    return oo.OODCallback(suite=suite, out=out, **{**given, **more})


class Draws(TrainerCallback):  # type: ignore[misc]
    """One random number drawn at the wrong place."""

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        torch.rand(1)


Make = Callable[..., Trainer]
THEIRS = {"Trainer": (plain, 2), "SFTTrainer": (sft, 1), "SFTTrainer with an adapter": (sft_adapter, 1)}


@pytest.fixture
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    """With more than one, the callback scores in several threads and must leave theirs as they were."""
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    assert torch.get_num_threads() == request.param
    torch.set_num_threads(before)


@pytest.mark.parametrize(("make", "threads"), THEIRS.values(), ids=THEIRS.keys(), indirect=["threads"])
def test_nothing_of_theirs_changes(make: Make, threads: int, tiny_model: Path, toy_suite: Path, tmp_path: Path) -> None:
    without = outcome(make(tiny_model, tmp_path / "a", []))
    ours = callback(toy_suite, tmp_path / "study", batch_tokens=32)  # several batches, so that all threads score
    assert_same(outcome(make(tiny_model, tmp_path / "b", [ours])), without)
    assert sum("loss" in row for row in without.history) == 6
    assert sum("eval_loss" in row for row in without.history) == 3
    disturbed = outcome(make(tiny_model, tmp_path / "c", [Draws()]))
    assert disturbed.history != without.history, "dropout is on, so a changed random stream would be seen"
    check_folder(tmp_path / "study", adapters=make is sft_adapter)


def check_folder(out: Path, *, adapters: bool) -> None:
    """The run folder is complete, and is read like any other."""
    (folder,) = run_folders(out)
    assert folder.status == "done"
    assert {p.name for p in folder.path.iterdir()} - {"adapters"} == {
        *("spec.json", "env.json", "scores.jsonl", "records", "log.txt", "done.json")
    }
    assert sorted(p.name for p in (folder.path / "adapters").glob("*")) == ["0", "1", "3", "4", "6"] * adapters
    table = oo.read_runs(out)
    assert sorted(table.step.unique()) == [0, 1, 3, 4, 6]
    assert dict(zip(table.test_set, table.role, strict=True)) == {"home": "in_domain", "away": "ood", "far": "ood"}
    assert set(table.model) == {"theirs"}
    assert set(table.seed) == {3}
    assert len(oo.read_records(out)) == 5 * (16 + 11 + 14)
    scores = read_records(out).groupby("step")["score:Yes"].sum()
    assert scores.nunique() == 5, "the model was scored as it was at each step"


@pytest.mark.parametrize("make", [sft, sft_adapter], ids=["whole", "adapter"])
def test_mixed_precision_is_scored_in_that_of_the_weights(
    make: Make, tiny_model: Path, toy_suite: Path, tmp_path: Path
) -> None:
    """Accelerate wraps the outermost forward pass only; scores must not depend on which way of scoring meets it."""
    ours = callback(toy_suite, tmp_path / "study", steps=[])
    trainer = make(tiny_model, tmp_path / "a", [ours], max_steps=1, eval_strategy="no")
    trainer.train()
    assert trainer.args.bf16
    assert {plan.way for plan in ours._evaluator._plans.values()} == {"rows of head"}
    alone = AutoModelForCausalLM.from_pretrained(tiny_model)
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    (prompts,) = (p for p in ours._evaluator._sets if p.name == "away")
    expected = oo.score(alone, tokenizer, prompts)
    found = read_records(tmp_path / "study").query("step == 0 and test_set == 'away'")
    assert np.abs(found[["score:Yes", "score:No"]].to_numpy() - expected).max() < 1e-5


def test_the_last_step_is_scored_before_the_best_is_loaded(tiny_model: Path, toy_suite: Path, tmp_path: Path) -> None:
    """Early stopping ends with the best checkpoint loaded; its scores are not those of the last step."""
    best: dict[str, Any] = {  # the highest loss counts as best, so the first step is
        "eval_steps": 1, "save_strategy": "steps", "save_steps": 1, "load_best_model_at_end": True,
        "metric_for_best_model": "loss", "greater_is_better": True, "lr_scheduler_type": "constant",
    }  # fmt: skip
    ours = callback(toy_suite, tmp_path / "stopped", steps=[])
    stopping = EarlyStoppingCallback(early_stopping_patience=2)
    trainer = plain(tiny_model, tmp_path / "a", [stopping, ours], **best)
    trainer.train()
    last = trainer.state.global_step
    assert trainer.state.best_global_step < last < 6
    whole = callback(toy_suite, tmp_path / "whole", steps=[last])
    plain(tiny_model, tmp_path / "b", [whole], **{**best, "load_best_model_at_end": False}).train()
    found, expected = (read_records(tmp_path / name).query(f"step == {last}") for name in ("stopped", "whole"))
    assert sorted(read_runs(tmp_path / "stopped").step.unique()) == [0, last]
    pd.testing.assert_frame_equal(found.reset_index(drop=True), expected.reset_index(drop=True), check_exact=True)


def test_a_run_may_begin_in_the_same_moment_as_another(toy_suite: Path, tmp_path: Path) -> None:
    (tmp_path / "study").mkdir()
    (tmp_path / "study" / ".study.json.77.part").touch()  # the other one is about to claim the folder
    callback(toy_suite, tmp_path / "study")


class Killed(Exception):  # noqa: N818
    pass


class Kill(TrainerCallback):  # type: ignore[misc]
    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == self.step:
            raise Killed


@pytest.mark.parametrize("make", [plain, sft_adapter], ids=["Trainer", "SFTTrainer with an adapter"])
def test_their_resumed_training_continues_the_run(
    make: Make, tiny_model: Path, toy_suite: Path, tmp_path: Path
) -> None:
    saving: dict[str, Any] = {"save_strategy": "steps", "save_steps": 2}
    make(tiny_model, tmp_path / "whole", [callback(toy_suite, tmp_path / "a")], **saving).train()
    with pytest.raises(Killed):  # after the evaluations of steps 3 and 4, before the checkpoint of step 4
        make(tiny_model, tmp_path / "cut", [callback(toy_suite, tmp_path / "b"), Kill(4)], **saving).train()
    assert [f.status for f in run_folders(tmp_path / "b")] == ["started"]
    again = make(tiny_model, tmp_path / "cut", [callback(toy_suite, tmp_path / "b")], **saving)
    again.train(resume_from_checkpoint=True)
    pd.testing.assert_frame_equal(read_runs(tmp_path / "a"), read_runs(tmp_path / "b"), check_exact=True)
    pd.testing.assert_frame_equal(read_records(tmp_path / "a"), read_records(tmp_path / "b"), check_exact=True)
    assert [f.status for f in run_folders(tmp_path / "b")] == ["done"]


def test_a_training_that_had_no_callback_before_is_recorded_from_there(
    tiny_model: Path, toy_suite: Path, tmp_path: Path
) -> None:
    saving: dict[str, Any] = {"save_strategy": "steps", "save_steps": 2}
    with pytest.raises(Killed):
        plain(tiny_model, tmp_path / "theirs", [Kill(3)], **saving).train()
    ours = callback(toy_suite, tmp_path / "study")
    plain(tiny_model, tmp_path / "theirs", [ours], **saving).train(resume_from_checkpoint=True)
    assert sorted(read_runs(tmp_path / "study").step.unique()) == [3, 4, 6]
    assert [f.status for f in run_folders(tmp_path / "study")] == ["done"]


def test_a_learnt_prompt_is_refused(tiny_model: Path) -> None:
    config = PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=4)
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(tiny_model), config)
    with pytest.raises(ModelError, match="prompt-learning adapters are not supported"):
        oo.score(model, AutoTokenizer.from_pretrained(tiny_model), ["Is it?"], [" Yes", " No"])


SEVERAL = """
import sys
from pathlib import Path

import torch.distributed

sys.path.insert(0, sys.argv[1])
from test_trl import callback, outcome, plain

model, suite, out = map(Path, sys.argv[2:])
more = {"ddp_backend": "gloo", "ddp_find_unused_parameters": False}
without = outcome(plain(model, out / "a", [], **more))
found = outcome(plain(model, out / "b", [callback(suite, out / "study")], **more))
assert torch.distributed.get_world_size() == 2
assert found.history == without.history and found.states == without.states
"""


def test_two_processes_score_and_one_writes(tiny_model: Path, toy_suite: Path, tmp_path: Path) -> None:
    script = tmp_path / "several.py"
    script.write_text(SEVERAL)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", str(script)]
    done = subprocess.run(
        [*command, str(Path(__file__).parent), str(tiny_model), str(toy_suite), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    check_folder(tmp_path / "study", adapters=False)
