"""A run's test sets at one step after the other: each is scored once and committed at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from oodles.contracts import Evaluation, Lora
from oodles.errors import ModelError
from oodles.model.embedded import tiny_tokenizer
from oodles.model.load import attach_lora
from oodles.runs.evaluate import StepEvaluator, own_precision
from oodles.runs.events import Event
from oodles.store.claim import claim_folder
from oodles.store.folder import StudyFolder
from oodles.store.scores import read_scores
from oodles.suite.load import load_suite, pattern_of
from oodles.suite.render import Rendered, render_sets
from test_scoring import tiny


@pytest.fixture
def rendered(toy_suite: Path) -> tuple[Rendered, ...]:
    suite = load_suite(toy_suite)
    return render_sets(suite, pattern_of(suite, ""), "home", Evaluation(limit=4))


def evaluator(root: Path, rendered: tuple[Rendered, ...], name: str = "r", **more: Any) -> StepEvaluator:
    study = StudyFolder(root / "out")
    claim_folder(study, "toy", "toy")
    folder = study.run(name)
    folder.path.mkdir(parents=True, exist_ok=True)
    return StepEvaluator(
        folder,
        rendered,
        in_domain="home",
        **{"evaluation": Evaluation(), "tokenizer": tiny_tokenizer(), **more},
    )


def test_what_is_committed_is_not_scored_again(rendered: tuple[Rendered, ...], tmp_path: Path) -> None:
    events: list[Event] = []
    scoring = evaluator(tmp_path, rendered, listener=events.append)
    model = tiny("llama")
    values = scoring.at(model, 0, last=4)
    assert set(values) == {"home", "away", "far"}
    assert (scoring.scored, scoring.is_complete(0), scoring.is_complete(4)) == (3, True, False)
    assert scoring.at(model, 0, last=4) == values
    again = evaluator(tmp_path, rendered)
    assert again.recall() == {0}
    assert again.at(model, 0) == values
    assert (scoring.scored, again.scored) == (3, 0)
    assert [score.role for score in read_scores(scoring.folder)] == ["in_domain", "ood", "ood"]
    assert sum(event.work for event in events) == sum(len(p.text) for r in rendered for p in r.prompts.prompts)
    again.forget(0)
    again.at(model, 0)
    assert again.scored == 3


def test_step_0_is_taken_over_from_a_run_that_starts_alike(rendered: tuple[Rendered, ...], tmp_path: Path) -> None:
    donor = evaluator(tmp_path, rendered)
    donor.at(tiny("llama"), 0)
    heir = evaluator(tmp_path, rendered, "s", baseline=donor.folder)
    assert heir.at(tiny("llama"), 0) == donor.at(tiny("llama"), 0)
    assert heir.scored == 0
    heir.at(tiny("llama"), 4)
    assert heir.scored == 3
    donor.folder.records(0, "away").write_bytes(b"damaged")
    wary = evaluator(tmp_path, rendered, "t", baseline=donor.folder)
    wary.at(tiny("llama"), 0)
    assert wary.scored == 1


def test_another_training_is_told_by_its_scores_and_by_its_adapter(
    rendered: tuple[Rendered, ...], tmp_path: Path
) -> None:
    model = attach_lora(tiny("llama"), Lora(rank=2), seed=0)
    for keeps in (False, True):
        scoring = evaluator(tmp_path, rendered, f"r{keeps}", evaluation=Evaluation(keep_adapters=keeps))
        assert not scoring.repeats(model, 4)  # nothing to compare with
        scoring.keep_adapter(model, 4)
        scoring.at(model, 4)
        assert scoring.folder.adapter(4).is_dir() is keeps
        assert scoring.repeats(model, 4)
        with torch.no_grad():
            changed = [p for n, p in model.named_parameters() if "lora_B" in n]
            for weight in changed:
                weight.add_(0.5)
        assert not scoring.repeats(model, 4)


def test_a_process_that_does_not_write_leaves_nothing(rendered: tuple[Rendered, ...], tmp_path: Path) -> None:
    scoring = evaluator(tmp_path, rendered)
    scoring.writes = False
    scoring.at(tiny("llama"), 0)
    assert scoring.scored == 3
    assert not scoring.folder.scores.exists()


def test_without_a_tokenizer_it_says_so(rendered: tuple[Rendered, ...], tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no tokenizer is known; pass tokenizer="):
        evaluator(tmp_path, rendered, tokenizer=None).at(tiny("llama"), 0)


def test_mixed_precision_around_a_model_is_left_out_and_put_back() -> None:
    model: Any = torch.nn.Linear(2, 2)
    with own_precision(model):
        assert "forward" not in vars(model)
    model._original_forward, model.forward = model.forward, lambda x: x
    wrapped = model.forward
    with pytest.raises(KeyError), own_precision(model):  # noqa: PT012
        assert model.forward is model._original_forward
        raise KeyError
    assert model.forward is wrapped
