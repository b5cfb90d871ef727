from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from oodles import scoring
from oodles.errors import ConfigError, ModelError
from oodles.fetch import tiny_tokenizer
from oodles.models import attach_lora
from oodles.records import Lora, Prompt, PromptSet, Recipe
from oodles.scoring import head_is_plain
from oodles.train import collate, fine_tune
from test_scoring import tiny


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return tiny_tokenizer()


def planted(n: int, answers: tuple[str, ...] = (" Yes", " No")) -> PromptSet:
    """The rule: 'man' means Yes, 'woman' means No."""
    people = ["man", "woman"]
    prompts = tuple(
        Prompt(id=str(i), text=f"A {people[i % 2]} is number {i // 2} here. Yes or No?", gold=i % 2) for i in range(n)
    )
    return PromptSet(name="planted", answers=answers, prompts=prompts)


RECIPE = Recipe(epochs=15, batch_size=8, learning_rate=1e-2)


@pytest.mark.parametrize(
    ("architecture", "loss"),
    [
        ("llama", "vocab"),
        ("llama", "answers"),
        ("opt", "vocab"),
        ("olmo2", "vocab"),
        ("smollm3", "vocab"),
        ("gemma2", "vocab"),
    ],
)
def test_every_family_learns_a_planted_rule(architecture: str, loss: Any, tokenizer: Any) -> None:
    model = attach_lora(tiny(architecture), Lora(), seed=0)
    shots = planted(32)
    before = scoring.score(model, tokenizer, shots)
    fine_tune(model, tokenizer, shots, Recipe(epochs=40, batch_size=8, learning_rate=3e-3, loss=loss), 0, [])
    after = scoring.score(model, tokenizer, shots)
    gold = np.arange(32) % 2
    assert (before.argmax(1) == gold).mean() < 0.9
    assert (after.argmax(1) == gold).mean() == 1.0


def test_answers_of_several_tokens_are_trained(tokenizer: Any) -> None:
    model = attach_lora(tiny("llama"), Lora(), seed=0)
    shots = planted(32, (" Yes of course", " No not"))
    fine_tune(model, tokenizer, shots, RECIPE, 0, [])
    assert (scoring.score(model, tokenizer, shots).argmax(1) == np.arange(32) % 2).all()
    with pytest.raises(ConfigError, match="takes answers of one token"):
        fine_tune(model, tokenizer, shots, Recipe(loss="answers"), 0, [])


def test_the_same_seed_gives_the_same_adapter_to_the_bit(tokenizer: Any) -> None:
    def trained(seed: int) -> dict[str, torch.Tensor]:
        model = attach_lora(tiny("llama"), Lora(dropout=0.1), seed=seed)
        fine_tune(model, tokenizer, planted(16), Recipe(epochs=2, batch_size=8), seed, [])
        return {k: v for k, v in model.state_dict().items() if "lora" in k}

    first, again, other = trained(0), trained(0), trained(1)
    assert all(torch.equal(first[k], again[k]) for k in first)
    assert not all(torch.equal(first[k], other[k]) for k in first)


def test_no_full_vocabulary_tensor_is_built(tokenizer: Any) -> None:
    """The head sees one position per answer token, never (batch, length)."""
    model = attach_lora(tiny("llama"), Lora(), seed=0)
    shapes = []
    head = scoring.causal_lm(model).get_output_embeddings()
    head.register_forward_hook(
        lambda _m, _i, output: shapes.append(tuple(output.shape)) if output.requires_grad else None
    )
    fine_tune(model, tokenizer, planted(16), Recipe(epochs=1, batch_size=8), 0, [])
    assert shapes == [(8, 1024), (8, 1024)]


def test_collate_reads_where_the_answer_is_predicted() -> None:
    batch = collate([{"tokens": [5, 6, 7], "target": [9]}, {"tokens": [5, 6, 7, 8, 3], "target": [3, 4]}])
    assert batch["tokens"].tolist() == [[5, 6, 7, 0, 0], [5, 6, 7, 8, 3]]
    assert list(zip(batch["row"].tolist(), batch["column"].tolist(), batch["target"].tolist(), strict=True)) == [
        (0, 2, 9),
        (1, 3, 3),
        (1, 4, 4),
    ]


def test_heads_that_are_more_than_a_matrix_are_seen() -> None:
    tokens = torch.tensor([[5, 6, 7, 8]])
    assert head_is_plain(tiny("llama"), tokens)
    assert head_is_plain(tiny("opt"), tokens)
    assert not head_is_plain(tiny("gemma2"), tokens)


def test_nothing_to_train_and_infinite_loss(tokenizer: Any) -> None:
    frozen = tiny("llama").requires_grad_(False)
    with pytest.raises(ModelError, match="nothing to train"):
        fine_tune(frozen, tokenizer, planted(8), Recipe(), 0, [])
    model = attach_lora(tiny("llama"), Lora(), seed=0)
    scoring.causal_lm(model).get_output_embeddings().weight.data.fill_(float("inf"))
    with pytest.raises(ModelError, match=r"the loss is (nan|inf) at step 1; lower \[train\] learning_rate"):
        fine_tune(model, tokenizer, planted(8), Recipe(), 0, [])


def test_lora_targets_are_found_or_asked_for() -> None:
    from oodles.models import find_targets

    assert find_targets(tiny("llama")) == ("k_proj", "o_proj", "q_proj", "v_proj")
    assert find_targets(tiny("opt")) == ("k_proj", "out_proj", "q_proj", "v_proj")
    assert "query_key_value" in find_targets(tiny("gpt_neox"))
    with pytest.raises(ModelError, match="set \\[lora\\] targets"):
        attach_lora(tiny("llama"), Lora(targets=("qq_proj",)), seed=0)
