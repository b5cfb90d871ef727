"""DeepSpeed's configuration and its parts of a weight; what DeepSpeed does with them is in test_engines.py."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from oodles.contracts import Recipe
from oodles.runs.ranks import Ranks
from oodles.runs.zero import _own_part, config_of, engine_of, held_states


@pytest.mark.parametrize(("engine", "stage"), [("zero2", 2), ("zero3", 3)])
def test_the_study_decides_what_is_computed(engine: str, stage: int) -> None:
    told = '{"wall_clock_breakdown": true, "zero_optimization": {"reduce_bucket_size": 7}}'
    ranks = Ranks(engine=engine, rank=0, size=2, settings=told)  # type: ignore[arg-type]
    config = config_of(ranks, Recipe(accumulate=4, max_grad_norm=0.5))
    assert (config["gradient_accumulation_steps"], config["gradient_clipping"]) == (4, 0.5)
    assert config["wall_clock_breakdown"]
    assert config["zero_optimization"]["stage"] == stage
    assert config["zero_optimization"]["reduce_bucket_size"] == 7


def test_parts_of_a_weight_are_equal_and_the_last_is_padded() -> None:
    weight, value = SimpleNamespace(ds_tensor=torch.empty(4)), torch.arange(1.0, 11.0).reshape(2, 5)
    parts = [_own_part(value, weight, Ranks(engine="zero3", rank=rank, size=3)).tolist() for rank in range(3)]
    assert parts == [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 0, 0]]


def test_a_model_without_deepspeed_has_no_engine() -> None:
    model = torch.nn.Linear(2, 2)
    assert engine_of(model) is None
    assert held_states(model) == 0
