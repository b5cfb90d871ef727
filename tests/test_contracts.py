from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from oodles.contracts import (
    Draw,
    Evaluation,
    Example,
    Lora,
    ModelSpec,
    Pattern,
    Predictions,
    Prompt,
    PromptSet,
    Recipe,
    RunSpec,
    content_hash,
    role_of,
)

SPEC = RunSpec(
    name="m_home_0_8",
    model=ModelSpec(label="m", source="org/m", revision="abc"),
    suite="toy",
    train_set="home",
    train_hash="t",
    draw_hash="d",
    pattern=Pattern(name="q", text="{premise}?", answers=(" Yes", " No")),
    shots=8,
    seed=0,
    data_seed=0,
    lora=Lora(),
    recipe=Recipe(precision="fp32"),
    evaluation=Evaluation(),
)


def test_run_id_is_versioned_and_pinned() -> None:
    # a changed id would make every finished study look unfinished: change it only with IDENTITY_VERSION
    assert SPEC.run_id == "3-8ba37fb879dfe96f"


@pytest.mark.parametrize(
    "change",
    [
        {"model": ModelSpec(label="m2", source="org/m", revision="abc")},
        {"model": ModelSpec(label="m", source="org/n", revision="abc")},
        {"model": ModelSpec(label="m", source="org/m", revision="abd")},
        {"train_hash": "u"},
        {"draw_hash": "e"},
        {"pattern": Pattern(name="q", text="{premise}!", answers=(" Yes", " No"))},
        {"seed": 1},
        {"data_seed": 1},
        {"shots": 16},
        {"lora": Lora(rank=4)},
        {"recipe": Recipe(precision="bf16")},
    ],
)
def test_run_id_covers_what_decides_the_training(change: dict[str, object]) -> None:
    assert replace(SPEC, **change).run_id != SPEC.run_id  # type: ignore[arg-type]


def test_run_id_ignores_what_does_not_decide_the_training() -> None:
    assert replace(SPEC, evaluation=Evaluation(limit=5, test_sets=("home",))).run_id == SPEC.run_id
    assert replace(SPEC, name="other", suite="renamed").run_id == SPEC.run_id


def test_a_model_folder_is_known_by_content_not_by_place() -> None:
    here = replace(SPEC, model=ModelSpec(label="m", source="/a/m", revision="folder:1234"))
    there = replace(SPEC, model=ModelSpec(label="m", source="/b/m", revision="folder:1234"))
    changed = replace(SPEC, model=ModelSpec(label="m", source="/a/m", revision="folder:9999"))
    assert here.run_id == there.run_id != changed.run_id


def test_ties_go_to_the_lowest_index_and_are_counted() -> None:
    scores = np.array([[1.0, 1.0], [0.0, 2.0], [3.0, 1.0]])
    predictions = Predictions(
        test_set="t", answers=(" Yes", " No"), ids=("a", "b", "c"), scores=scores, gold=np.array([0, 1, 1])
    )
    assert predictions.choice.tolist() == [0, 1, 0]
    assert predictions.correct.tolist() == [True, True, False]
    assert predictions.ties == 1


def test_prompt_set_hash_sees_text_order_and_gold() -> None:
    a, b = Prompt(id="1", text="x", gold=0), Prompt(id="2", text="y", gold=1)
    base = PromptSet(name="t", answers=(" Yes", " No"), prompts=(a, b))
    others = [
        replace(base, prompts=(b, a)),
        replace(base, prompts=(a, replace(b, gold=0))),
        replace(base, answers=(" No", " Yes")),
        replace(base, prompts=(a, replace(b, text="z"))),
    ]
    assert len({base.hash, *(o.hash for o in others)}) == 5
    assert replace(base, name="renamed", limit=9).hash == base.hash


def test_role_is_per_run() -> None:
    assert role_of("mnli", "mnli") == "in_domain"
    assert role_of("mnli", "snli") == "ood"


def test_a_draw_is_known_by_the_content_of_its_examples() -> None:
    rows = tuple(Example(id=str(i), fields={"premise": f'é "{i}"', "a": "b"}, label="e", answer=i) for i in range(3))
    drawn = Draw(train_set="t", shots=3, data_seed=0, examples=rows)
    assert drawn.hash == content_hash([[e.id, dict(e.fields), e.label, e.answer] for e in rows])
    assert drawn.hash == drawn.hash != Draw(train_set="t", shots=2, data_seed=0, examples=rows[:2]).hash
