"""Kept adapters: whole, and compared to the bit."""

from __future__ import annotations

from pathlib import Path

import torch

from oodles.contracts import Lora
from oodles.disk import damage_of
from oodles.model.load import attach_lora
from oodles.runs.adapters import ADAPTER_WEIGHTS, is_adapter_of, save_adapter
from test_scoring import tiny


def test_a_saved_adapter_is_whole_and_the_model_s_own_to_the_bit(tmp_path: Path) -> None:
    model = attach_lora(tiny("llama"), Lora(rank=2), seed=0)
    path = tmp_path / "adapters" / "4"
    save_adapter(model, path)
    assert not damage_of(path)
    assert (path / ADAPTER_WEIGHTS).is_file()
    assert not (path / "README.md").exists()
    assert is_adapter_of(model, path)
    name, weight = next((n, p) for n, p in model.named_parameters() if "lora_B" in n)
    with torch.no_grad():
        weight[0, 0] += torch.finfo(torch.float32).tiny
    assert not is_adapter_of(model, path), name


def test_adapters_of_other_layers_differ(tmp_path: Path) -> None:
    save_adapter(attach_lora(tiny("llama"), Lora(rank=2, targets=("q_proj",)), seed=0), tmp_path / "0")
    assert not is_adapter_of(attach_lora(tiny("llama"), Lora(rank=2, targets=("k_proj",)), seed=0), tmp_path / "0")


def test_a_model_without_an_adapter_is_not_kept(tmp_path: Path) -> None:
    save_adapter(tiny("llama"), tmp_path / "0")
    assert not (tmp_path / "0").exists()
