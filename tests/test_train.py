from __future__ import annotations

import math
import typing
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from oodles.contracts import Lora, Prompt, PromptSet, Recipe, Seeds
from oodles.errors import ModelError
from oodles.model import scoring
from oodles.model.embedded import tiny_tokenizer
from oodles.model.forward import causal_lm, head_is_plain
from oodles.model.load import attach_lora
from oodles.runs.ranks import Ranks
from oodles.runs.train import Candidates, fine_tune
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
    fine_tune(model, tokenizer, shots, Recipe(epochs=40, batch_size=8, learning_rate=3e-3, loss=loss), Seeds.all(0), [])
    after = scoring.score(model, tokenizer, shots)
    gold = np.arange(32) % 2
    assert (before.argmax(1) == gold).mean() < 0.9
    assert (after.argmax(1) == gold).mean() == 1.0


@pytest.mark.parametrize("loss", ["vocab", "answers"])
def test_answers_of_several_tokens_are_trained(loss: Any, tokenizer: Any) -> None:
    model = attach_lora(tiny("llama"), Lora(), seed=0)
    shots = planted(32, (" Yes of course", " No not"))
    fine_tune(model, tokenizer, shots, replace(RECIPE, loss=loss), Seeds.all(0), [])
    assert (scoring.score(model, tokenizer, shots).argmax(1) == np.arange(32) % 2).all()


SCHEDULES = typing.get_args(typing.get_type_hints(Recipe)["schedule"])


class Rates(transformers.TrainerCallback):
    """The learning rate that each optimiser step was made with."""

    def __init__(self) -> None:
        self.rates: list[float] = []

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, optimizer: Any = None, **_: Any) -> None:
        self.rates.append(optimizer.param_groups[0]["lr"])


def rates_of(tokenizer: Any, recipe: Recipe) -> list[float]:
    seen = Rates()
    fine_tune(attach_lora(tiny("llama"), Lora(), seed=0), tokenizer, planted(4), recipe, Seeds.all(0), [seen])
    return seen.rates


def test_the_loss_of_a_step_is_known_before_its_evaluation(tokenizer: Any) -> None:
    """The Trainer logs it afterwards, rounded."""
    told: dict[int, Callable[[], float]] = {}
    shown: dict[int, float] = {}
    logged: dict[int, float] = {}

    class Watch(transformers.TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            shown[state.global_step] = told[state.global_step]()

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            logged.update({state.global_step: logs["loss"]} if "loss" in logs else {})

    model = attach_lora(tiny("llama"), Lora(), seed=0)
    recipe = Recipe(steps=4, batch_size=4, accumulate=2)
    fine_tune(model, tokenizer, planted(16), recipe, Seeds.all(0), [Watch()], tell_loss=told.__setitem__)
    assert sorted(shown) == sorted(logged) == [1, 2, 3, 4]
    assert len(set(logged.values())) == 4
    assert [shown[step] for step in logged] == pytest.approx(list(logged.values()), abs=1e-4)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_step_moves_the_weights(schedule: Any, tokenizer: Any) -> None:
    """The warm-up rises in equal parts from the first step on; after it, the schedule is that of transformers."""
    recipe = Recipe(steps=10, batch_size=4, learning_rate=1.0, schedule=schedule, warmup=0.3)
    rates = rates_of(tokenizer, recipe)
    assert len(rates) == 10
    assert min(rates) > 0
    warm = 0 if schedule == "constant" else 3
    assert rates[:warm] == [(k + 1) / 4 for k in range(warm)]
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    theirs = transformers.get_scheduler(schedule, optimizer, num_warmup_steps=warm, num_training_steps=10)
    for step, rate in enumerate(rates):
        if step >= warm:
            assert rate == optimizer.param_groups[0]["lr"]
        optimizer.step()
        theirs.step()


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("warmup", [0.1, 1.0])
def test_a_single_step_trains(schedule: Any, warmup: float, tokenizer: Any) -> None:
    model = attach_lora(tiny("llama"), Lora(), seed=0)
    before = scoring.score(model, tokenizer, planted(4))
    recipe = Recipe(steps=1, batch_size=4, schedule=schedule, warmup=warmup)
    fine_tune(model, tokenizer, planted(4), recipe, Seeds.all(0), [])
    assert (scoring.score(model, tokenizer, planted(4)) != before).all()


def test_a_warm_up_of_all_steps_is_not_one_of_a_step(tokenizer: Any) -> None:
    rates = rates_of(tokenizer, Recipe(steps=9, batch_size=4, learning_rate=1.0, warmup=1.0))
    assert rates == [(k + 1) / 10 for k in range(9)]


def test_the_same_seed_gives_the_same_adapter_to_the_bit(tokenizer: Any) -> None:
    def trained(seed: int) -> dict[str, torch.Tensor]:
        model = attach_lora(tiny("llama"), Lora(dropout=0.1), seed=seed)
        fine_tune(model, tokenizer, planted(16), Recipe(epochs=2, batch_size=8), Seeds.all(seed), [])
        return {k: v for k, v in model.state_dict().items() if "lora" in k}

    first, again, other = trained(0), trained(0), trained(1)
    assert all(torch.equal(first[k], again[k]) for k in first)
    assert not all(torch.equal(first[k], other[k]) for k in first)


def test_the_largest_seed_that_a_study_may_name_trains(tokenizer: Any) -> None:
    model = attach_lora(tiny("llama"), Lora(), seed=2**32 - 1)
    fine_tune(model, tokenizer, planted(4), Recipe(steps=1, batch_size=4), Seeds.all(2**32 - 1), [])
    with pytest.raises(ValueError, match="Seed must be between"):
        fine_tune(model, tokenizer, planted(4), Recipe(steps=1, batch_size=4), Seeds.all(2**32), [])


def test_the_loss_over_answers_is_the_choice_that_is_scored(tokenizer: Any) -> None:
    """Cross-entropy over the scores of the answers, whether they have one token or several."""
    for answers in ((" Yes", " No"), (" Yes of course", " No not")):
        model, shots = attach_lora(tiny("llama"), Lora(), seed=0), planted(8, answers)
        losses: list[float] = []
        recipe = Recipe(epochs=1, batch_size=8, loss="answers")
        fine_tune(model, tokenizer, shots, recipe, Seeds.all(0), [Losses(losses)])
        fresh = scoring.score(attach_lora(tiny("llama"), Lora(), seed=0), tokenizer, shots)
        wanted = torch.nn.functional.cross_entropy(torch.tensor(fresh), torch.arange(8) % 2)
        assert losses[0] == pytest.approx(float(wanted), abs=1e-4)


class Losses(transformers.TrainerCallback):
    def __init__(self, losses: list[float]) -> None:
        self.losses = losses

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        self.losses += [logs["loss"]] if "loss" in logs else []


@pytest.mark.parametrize("architecture", ["llama", "gemma2"])
def test_no_full_vocabulary_tensor_is_built(architecture: str, tokenizer: Any) -> None:
    """The head sees one position per answer token, never (batch, length)."""
    model = attach_lora(tiny(architecture), Lora(), seed=0)
    shapes = []
    head = causal_lm(model).get_output_embeddings()
    head.register_forward_hook(
        lambda _m, _i, output: shapes.append(tuple(output.shape)) if output.requires_grad else None
    )
    fine_tune(model, tokenizer, planted(16), Recipe(epochs=1, batch_size=8), Seeds.all(0), [])
    assert len(shapes) == 2
    assert all(math.prod(shape) == 8 * 1024 for shape in shapes)


def test_collate_reads_where_the_answer_is_predicted() -> None:
    rows = [([5, 6, 7], [9]), ([5, 6, 7, 8, 3], [3, 4])]
    batch = Candidates(examples=[]).collate([{"sequences": [row], "gold": 0} for row in rows])
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
        fine_tune(frozen, tokenizer, planted(8), Recipe(), Seeds.all(0), [])
    model = attach_lora(tiny("llama"), Lora(), seed=0)
    causal_lm(model).get_output_embeddings().weight.data.fill_(float("inf"))
    with pytest.raises(ModelError, match=r"the loss is (nan|inf) at step 1; lower \[train\] learning_rate"):
        fine_tune(model, tokenizer, planted(8), Recipe(), Seeds.all(0), [])


def test_lora_targets_are_found_or_asked_for() -> None:
    from oodles.model.load import find_targets

    assert find_targets(tiny("llama")) == ("k_proj", "o_proj", "q_proj", "v_proj")
    assert find_targets(tiny("opt")) == ("k_proj", "out_proj", "q_proj", "v_proj")
    assert "query_key_value" in find_targets(tiny("gpt_neox"))
    with pytest.raises(ModelError, match="set \\[lora\\] targets"):
        attach_lora(tiny("llama"), Lora(targets=("qq_proj",)), seed=0)


def test_several_visible_gpus_train_on_one(tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """SIMULATED: the arguments count two GPUs; the Trainer would wrap the model in DataParallel."""
    real = transformers.TrainingArguments._setup_devices.func

    def two(arguments: Any) -> torch.device:
        device = real(arguments)
        arguments._n_gpu = 2
        return device

    counted = cached_property(two)
    counted.__set_name__(transformers.TrainingArguments, "_setup_devices")
    monkeypatch.setattr(transformers.TrainingArguments, "_setup_devices", counted)
    assert transformers.TrainingArguments(output_dir="unused", use_cpu=True).n_gpu == 2
    recipe = Recipe(steps=3, batch_size=4)
    adapted, alone = (attach_lora(tiny("llama"), Lora(), seed=0) for _ in "ab")
    fine_tune(adapted, tokenizer, planted(8), recipe, Seeds.all(0), [])
    monkeypatch.undo()
    fine_tune(alone, tokenizer, planted(8), recipe, Seeds.all(0), [])
    both = zip(adapted.state_dict().values(), alone.state_dict().values(), strict=True)
    assert all(torch.equal(a, b) for a, b in both)


@pytest.mark.parametrize("kind", ["vocabulary", "one token of several", "several tokens of several"])
@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_the_shares_of_a_batch_make_up_its_loss(kind: str, size: int, count: int) -> None:
    """Whatever the number of examples and tokens of each process, and if one has none."""
    generator = torch.Generator().manual_seed(count)
    each = 2 if kind.startswith("several") else 1
    targets = [[3], [4, 5]] if each == 2 else [[3]]
    rows = [{"sequences": [([1] * (4 + n) + t[:-1], t) for t in targets], "gold": n % 2} for n in range(count)]
    if kind == "vocabulary":  # answers of one and of two tokens
        rows = [{"sequences": [([1, 2, *t[:-1]], t)], "gold": 0} for t in ([[3], [4, 5]] * 3)[:count]]
    candidates = Candidates(examples=rows, each=each, answers=(3, 4) if kind.startswith("one") else ())
    inputs = candidates.collate(rows)
    table = torch.randn(*inputs["tokens"].shape, 8, generator=generator)
    whole = candidates.loss(table[inputs["row"], inputs["column"]], inputs)
    total, first = torch.tensor(0.0), 0
    for rank in range(size):
        part, weight = candidates.share(inputs, Ranks(engine="ddp", rank=rank, size=size))
        own = table[first : first + len(part["tokens"])] if weight else table[:each]
        first += len(part["tokens"]) if weight else 0
        total = total + weight * candidates.loss(own[part["row"], part["column"]], part)
    assert first == len(inputs["tokens"])
    assert float(total) == pytest.approx(float(whole), abs=1e-6)
