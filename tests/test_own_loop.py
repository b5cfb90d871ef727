"""The Evaluator in a training loop of one's own: bare PyTorch and Lightning."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import oodles as oo
from oodles.errors import ConfigError, ModelError, StoreError
from oodles.model.embedded import tiny_tokenizer
from oodles.store.folder import run_folders
from oodles.store.scores import read_scores
from test_scoring import tiny

STEPS = (0, 2, 4)


def model_and_batches() -> tuple[Any, list[torch.Tensor]]:
    """A tiny model with dropout, so that a random number drawn in between would change the loss."""
    torch.manual_seed(0)
    model = tiny("llama").train()
    model.config.attention_dropout = 0.1
    tokenizer = tiny_tokenizer()
    texts = [f"A man is number {i} in the long queue." for i in range(8)]
    return model, [torch.tensor([tokenizer(text)["input_ids"][:10]]) for text in texts[:4]]


def bare_loop(evaluate: Callable[[Any, int], object] = lambda _model, _step: None) -> list[float]:
    model, batches = model_and_batches()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for step, ids in enumerate(batches):
        if step in STEPS:
            evaluate(model, step)
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    evaluate(model, len(batches))
    return losses


def evaluator(suite: Path, out: Path, **more: Any) -> oo.Evaluator:
    given: dict[str, Any] = {"in_domain": "home", "run": "mine", "tokenizer": tiny_tokenizer(), "quiet": True}
    return oo.Evaluator(suite=suite, out=out, **{**given, **more})


def test_a_bare_loop_is_not_changed_and_is_recorded(tmp_path: Path, toy_suite: Path) -> None:
    without = bare_loop()
    ours = evaluator(toy_suite, tmp_path / "s", model="own", seed=3)
    assert bare_loop(ours.at) == without  # to the bit
    ours.finish(4)
    table = oo.read_runs(tmp_path / "s")
    assert sorted(table.step.unique()) == [0, 2, 4]
    assert set(table.test_set) == {"home", "away", "far"}
    assert (set(table.model), set(table.seed)) == ({"own"}, {3})
    assert len(oo.read_records(tmp_path / "s")) == 3 * (16 + 11 + 14)
    assert [f.status for f in run_folders(tmp_path / "s")] == ["done"]


def test_at_returns_what_it_commits(tmp_path: Path, toy_suite: Path) -> None:
    model, _ = model_and_batches()
    ours = evaluator(toy_suite, tmp_path / "s")
    values = ours.at(model, 0)
    assert model.training
    lines = {line.test_set: line.metrics for line in read_scores(ours.folder)}
    assert values == lines
    assert ours.scored == 3
    assert ours.at(model, 0) == values
    assert ours.scored == 3  # not again


def test_adapters_are_kept_and_can_be_scored_again(tmp_path: Path, toy_suite: Path) -> None:
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(model_and_batches()[0], LoraConfig(target_modules=["q_proj"], task_type="CAUSAL_LM"))
    ours = evaluator(toy_suite, tmp_path / "s", keep_adapters=True)
    ours.at(model, 0)
    assert (ours.folder.adapter(0) / "adapter_model.safetensors").is_file()
    without = evaluator(toy_suite, tmp_path / "s", run="other", keep_adapters=False)
    without.at(model, 0)
    assert not without.folder.adapter(0).exists()


TWO = """
import sys
from datetime import timedelta
import torch
sys.path.insert(0, sys.argv[4])
from test_own_loop import evaluator, model_and_batches
from pathlib import Path
store = torch.distributed.FileStore(sys.argv[1], 2)
torch.distributed.init_process_group("gloo", store=store, rank=int(sys.argv[2]), world_size=2,
                                     timeout=timedelta(seconds=60))
ours = evaluator(Path(sys.argv[3]), Path(sys.argv[1] + "-out"))
values = ours.at(model_and_batches()[0], 0)
print(ours.writes, values["home"]["accuracy"], values["far"]["auc"])
torch.distributed.barrier()
"""


def test_of_two_processes_one_writes(tmp_path: Path, toy_suite: Path) -> None:
    here = Path(__file__).parent
    command = [sys.executable, "-c", TWO, str(tmp_path / "store")]
    jobs = [
        subprocess.Popen([*command, str(rank), str(toy_suite), str(here)], stdout=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    first, second = (job.communicate(timeout=240)[0].split() for job in jobs)
    assert (first[0], second[0]) == ("True", "False")
    assert first[1:] == second[1:]  # every process knows the scores
    (run,) = run_folders(Path(f"{tmp_path / 'store'}-out"))
    assert len(run.scores.read_text().splitlines()) == 3


def test_an_interrupted_loop_resumes_and_its_old_branch_is_set_aside(tmp_path: Path, toy_suite: Path) -> None:
    model, _ = model_and_batches()
    first = evaluator(toy_suite, tmp_path / "s")
    for step in (0, 2, 4):
        first.at(model, step)
    with pytest.raises(StoreError, match="an unfinished run with this name exists"):
        evaluator(toy_suite, tmp_path / "s").at(model, 0)
    again = evaluator(toy_suite, tmp_path / "s")
    again.at(model, 2)
    assert {line.step for line in read_scores(again.folder)} == {0, 2}
    assert again.scored == 3  # step 2 itself belongs to the branch that is trained again
    assert again.folder.superseded.read_text().count("\n") == 6


@pytest.mark.parametrize("step", [6.0, -3, True, "2", None])
def test_a_step_that_is_no_whole_number_is_refused(step: Any, tmp_path: Path, toy_suite: Path) -> None:
    ours = evaluator(toy_suite, tmp_path / "s")
    with pytest.raises(ConfigError, match=r"Evaluator: step is .*, expected a whole number, 0 or more"):
        ours.at(model_and_batches()[0], step)
    assert not (tmp_path / "s").exists()
    ours.at(model_and_batches()[0], torch.tensor(2))  # a whole number, if of another library
    assert {score.step for score in read_scores(ours.folder)} == {2}


def test_two_trainings_do_not_mix_in_one_run(tmp_path: Path, toy_suite: Path) -> None:
    model, _ = model_and_batches()
    ours = evaluator(toy_suite, tmp_path / "s")
    ours.at(model, 0)
    ours.at(model, 2)
    with torch.no_grad():
        for weights in model.parameters():
            weights.mul_(1.5)
    with pytest.raises(StoreError, match="step 2 was already scored with other weights"):
        ours.at(model, 2)
    second = evaluator(toy_suite, tmp_path / "s")
    second.at(model, 4)
    with pytest.raises(StoreError, match="another Evaluator scored step 4 in the meantime"):
        ours.at(model, 6)


def test_steps_do_not_go_back(tmp_path: Path, toy_suite: Path) -> None:
    model, _ = model_and_batches()
    ours = evaluator(toy_suite, tmp_path / "s")
    ours.at(model, 4)
    with pytest.raises(ConfigError, match="Evaluator: step is 2, but step 4 was scored before"):
        ours.at(model, 2)
    with pytest.raises(ConfigError, match="Evaluator: last_step is 3, but step 4 was scored"):
        ours.finish(3)
    assert {score.step for score in read_scores(ours.folder)} == {4}
    ours.finish(4)


def test_mixed_precision_around_it_does_not_change_scores(tmp_path: Path, toy_suite: Path) -> None:
    model, _ = model_and_batches()
    plain = evaluator(toy_suite, tmp_path / "s").at(model, 0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = evaluator(toy_suite, tmp_path / "s", run="mixed").at(model, 0)
        assert model(input_ids=torch.tensor([[1, 2]])).logits.dtype is torch.bfloat16  # it is on again
    assert mixed == plain
    scores = oo.read_records(tmp_path / "s").set_index("run")
    columns = [name for name in scores if name.startswith("score:")]
    assert (scores.loc["mine", columns].to_numpy() == scores.loc["mixed", columns].to_numpy()).all()


def test_nothing_scored_is_not_finished(tmp_path: Path, toy_suite: Path) -> None:
    with pytest.raises(StoreError, match="nothing was scored"):
        evaluator(toy_suite, tmp_path / "s").finish(4)


def test_what_cannot_be_is_refused_in_one_line(tmp_path: Path, toy_suite: Path) -> None:
    with pytest.raises(ConfigError, match=r"Evaluator: in_domain is 'hom'.*'home'"):
        evaluator(toy_suite, tmp_path / "s", in_domain="hom")
    with pytest.raises(ConfigError, match=r"Evaluator: steps is for a Trainer; in your own loop call at"):
        evaluator(toy_suite, tmp_path / "s", steps=[1])
    with pytest.raises(ConfigError, match="Evaluator: unknown key 'limt'"):
        evaluator(toy_suite, tmp_path / "s", limt=3)
    model, _ = model_and_batches()
    with pytest.raises(ModelError, match="no tokenizer is known"):
        evaluator(toy_suite, tmp_path / "s", tokenizer=None).at(model, 0)
    ours = evaluator(toy_suite, tmp_path / "t")
    ours.at(model, 0)
    ours.finish(0)
    with pytest.raises(StoreError, match="a run of this name is done"):
        evaluator(toy_suite, tmp_path / "t")


def fit(lightning: Any, callbacks: list[Any], folder: Path) -> list[float]:
    """Train in Lightning; the losses."""
    losses: list[float] = []

    class Module(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self, model: Any) -> None:
            super().__init__()
            self.model = model

        def training_step(self, batch: Any, _index: int) -> Any:
            loss = self.model(input_ids=batch, labels=batch).loss
            losses.append(loss.item())
            return loss

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    model, batches = model_and_batches()
    trainer = lightning.Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, callbacks=callbacks, default_root_dir=folder,
    )  # fmt: skip
    trainer.fit(Module(model), torch.utils.data.DataLoader([b[0] for b in batches], batch_size=1))
    return losses


def lightning_losses(evaluate: Callable[[Any, int], object] | None, folder: Path) -> list[float]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # theirs
        lightning = pytest.importorskip("pytorch_lightning")

        class Evaluates(lightning.Callback):  # type: ignore[misc, name-defined]
            def on_train_start(self, trainer: Any, module: Any) -> None:
                if evaluate:
                    evaluate(module.model, trainer.global_step)

            def on_train_batch_end(self, trainer: Any, module: Any, *_: Any) -> None:
                if evaluate and trainer.global_step in STEPS:
                    evaluate(module.model, trainer.global_step)

        return fit(lightning, [Evaluates()], folder)


def test_lightning_is_not_changed_and_is_recorded(tmp_path: Path, toy_suite: Path) -> None:
    without = lightning_losses(None, tmp_path)
    assert len(without) == 4
    ours = evaluator(toy_suite, tmp_path / "s")
    assert lightning_losses(ours.at, tmp_path) == without  # to the bit
    ours.finish(4)
    assert sorted(oo.read_runs(tmp_path / "s").step.unique()) == [0, 2, 4]
