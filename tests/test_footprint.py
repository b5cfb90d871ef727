"""A model without its weights; `test_budget.py` compares its memory and arithmetic with real tensors."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from oodles.contracts import Recipe
from oodles.study.footprint import FEW, Footprint, Shapes, find_stack, resident_bytes
from test_scoring import ARCHITECTURES, tiny


def footprint() -> Footprint:
    return Footprint(
        model=None,
        weights=4000,
        linear=1000,
        head=500,
        adapter=10,
        adapter_bytes=40,
        adapter_tensors=2,
        stack=None,
        rate=1.0,
    )


def test_arithmetic_counts_every_weight_once_per_product() -> None:
    model = footprint()
    assert model.scoring(3) == 2 * (1000 + 10) * 3
    assert model.training(3, 2, Recipe()) == 3 * (4 * 1000 + 6 * 10) + 2 * 4 * 500
    again = model.training(3, 2, Recipe(gradient_checkpointing=True))
    assert again == model.training(3, 2, Recipe()) + model.scoring(3)  # all goes forward twice


def deep(layers: int) -> torch.nn.Module:
    config = ARCHITECTURES["llama"]()
    config.num_hidden_layers = layers
    with torch.device("meta"):
        return type(tiny("llama"))(config)


def test_layers_that_are_alike_are_a_stack() -> None:
    model = deep(6)
    stack = find_stack(model)
    assert stack is not None
    assert stack.depth == len(stack.layers) == 6
    with stack.only(2):
        assert len(stack.layers) == model.config.num_hidden_layers == 2
    assert len(stack.layers) == model.config.num_hidden_layers == 6
    assert find_stack(deep(FEW[1])) is None  # few: all of them go through a step
    odd = deep(6)
    odd.model.layers[3].mlp = torch.nn.Linear(4, 4, device="meta")
    assert find_stack(odd) is None


def test_shapes_count_what_is_alive_at_once() -> None:
    model = torch.nn.Linear(10, 10)
    with Shapes(model) as live:
        first = torch.ones(100)
        second = first * 2
        del first
        third = second.reshape(10, 10)  # shares its storage
        assert live.now == 400
        model.weight.data_ptr()
    del second, third
    assert live.peak == 800


@pytest.mark.skipif(not Path("/proc/self/statm").is_file(), reason="no /proc here")
def test_resident_bytes_are_what_the_system_says() -> None:
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith("VmRSS"))
    assert resident_bytes() == pytest.approx(int(line.split()[1]) * 1024, rel=0.05)
    assert resident_bytes() % os.sysconf("SC_PAGE_SIZE") == 0
