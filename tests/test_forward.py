"""One forward pass: inputs, masks, heads and modes. `test_scoring.py` compares whole scores with a plain reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import transformers

from oodles.contracts import Lora
from oodles.model import forward
from oodles.model.forward import (
    Plan,
    answer_logits,
    causal_lm,
    evaluating,
    head_is_matrix,
    head_is_plain,
    head_of,
    hidden_at,
    is_out_of_memory,
    plain_logits,
    run_batch,
    tensors,
)
from oodles.model.load import attach_lora
from oodles.model.prefix_trees import Sequences, pack_rows
from test_scoring import ARCHITECTURES, tiny

LISTS = [[5, 6, 7, 8, 9, 10], [5, 6, 7, 8, 9, 11], [5, 6, 7, 8, 12]]


def plan(share: bool = True, **more: Any) -> Plan:
    sequences = Sequences(
        tokens=np.concatenate(LISTS).astype(np.int32), starts=np.cumsum([0, *map(len, LISTS)]), reads=1
    )
    packing = pack_rows(sequences, 64, share=share)
    return Plan(
        **{
            "name": "t",
            "sequences": sequences,
            "targets": ((1,), (2,)),
            "packing": packing,
            "batch_tokens": 64,
            **more,
        }
    )


def test_only_answers_of_one_token_are_read_from_their_rows_of_the_head() -> None:
    assert plan().answer_tokens == [1, 2]
    assert plan(normalise=True).answer_tokens is None
    several = plan(targets=((1, 3), (2,)))
    assert (several.one_token, several.answer_tokens) == (False, None)


def test_a_packed_token_sees_its_own_beginning_and_nothing_else() -> None:
    packed = plan()
    (batch,) = packed.packing.batches
    inputs, places = tensors(tiny("llama"), packed, batch)
    ids, mask = inputs["input_ids"], inputs["attention_mask"][:, 0] == 0
    assert ids.numel() < sum(map(len, LISTS))
    for item, row, (column,) in places:
        seen = mask[row, column]
        assert ids[row][seen].tolist() == LISTS[item]
        assert inputs["position_ids"][row][seen].tolist() == list(range(len(LISTS[item])))
    causal, _ = tensors(tiny("llama"), packed, batch, "mask")
    assert (causal["attention_mask"] == 0).sum() > mask.sum()
    spoilt = tensors(tiny("llama"), packed, batch, "positions")[0]["position_ids"]  # wrong, but within any table
    assert spoilt.tolist() == [[5, 4, 3, 2, 1, 0, 0, 1]]


@pytest.mark.parametrize("way", ["rows of head", "model's logits", "one by one"])
@pytest.mark.parametrize("normalise", [False, True])
def test_every_way_says_the_same(way: Any, normalise: bool) -> None:
    model, packed = tiny("llama"), plan(way=way, normalise=normalise)
    with evaluating(model), torch.inference_mode():
        values = {i: v for batch in packed.packing.batches for i, v in run_batch(model, packed, batch)}
        for index, tokens in enumerate(LISTS):
            logits = model(torch.tensor([tokens])).logits[0, -1].double()
            expected = (logits.log_softmax(-1) if normalise else logits)[[1, 2]].numpy()
            assert values[index] == pytest.approx(expected, abs=1e-4)


def test_hidden_states_are_those_of_the_plain_prompts() -> None:
    model, packed = tiny("llama"), plan()
    with evaluating(model), torch.inference_mode():
        for batch in packed.packing.batches:
            sizes, hidden = hidden_at(model, packed, batch)
            assert [size for _, size in sizes] == [1] * len(hidden)
            plain = dict(plain_logits(model, packed, batch))
            for (index, _), state in zip(sizes, hidden, strict=True):
                assert head_of(model)(state).tolist() == pytest.approx(plain[index][-1].tolist(), abs=1e-4)


def test_heads_that_are_more_than_a_matrix_are_seen() -> None:
    tokens = torch.tensor([LISTS[0]])
    assert head_is_plain(tiny("llama"), tokens)
    assert not head_is_plain(tiny("gemma2"), tokens)  # it caps its logits
    assert head_is_matrix(tiny("llama"))
    adapted = attach_lora(tiny("llama"), Lora(rank=2, targets=("lm_head",)), seed=0)
    assert not head_is_matrix(adapted)
    assert causal_lm(adapted) is not adapted
    assert causal_lm(causal_lm(adapted)) is causal_lm(adapted)


def test_half_precision_logits_are_not_rounded_inside_and_all_is_put_back() -> None:
    model = tiny("llama").to(torch.bfloat16).train()
    model.model.layers[0].eval()
    before = [module.training for module in model.modules()]
    hidden = torch.randn(1, 32, dtype=torch.bfloat16)
    with evaluating(model, [1, 2]):
        assert not model.training
        assert head_of(model)(hidden).dtype == torch.float32
    assert head_of(model)(hidden).dtype == torch.bfloat16
    assert [module.training for module in model.modules()] == before


def test_which_errors_are_a_shortage_of_memory() -> None:
    assert is_out_of_memory(MemoryError())
    assert is_out_of_memory(RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"))
    assert is_out_of_memory(RuntimeError("DefaultCPUAllocator: can't allocate memory"))
    assert not is_out_of_memory(RuntimeError("shapes do not match"))


def on_another_device(architecture: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Simulated: a GPU, by the meta device. It computes no values, but shapes and types, and no tensor of the CPU fits.

    Our own code takes it for weights that are offloaded.
    """
    monkeypatch.setattr(forward, "device_of", lambda _: torch.device("meta"))
    with torch.device("meta"):
        return transformers.AutoModelForCausalLM.from_config(ARCHITECTURES[architecture]()).to(dtype).eval()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("architecture", ["llama", "olmo2", "smollm3", "opt", "gemma2"])
def test_everything_is_on_the_device_of_the_model_and_in_its_precision(
    architecture: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = plan()
    (batch,) = packed.packing.batches
    model = on_another_device(architecture, dtype, monkeypatch)
    inputs, _ = tensors(model, packed, batch)
    assert {tensor.device.type for tensor in inputs.values()} == {"meta"}
    assert inputs["attention_mask"].dtype == dtype
    _, hidden = hidden_at(model, packed, batch)
    assert (hidden.device.type, hidden.dtype) == ("meta", dtype)
    logits = answer_logits(head_of(model), hidden, [1, 2])
    assert (logits.device.type, logits.dtype, logits.shape) == ("meta", torch.float32, (3, 2))


@pytest.mark.parametrize("left", ["position_ids", "attention_mask"])
def test_an_input_that_stays_on_the_cpu_is_seen(left: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above can fail."""
    packed = plan()
    (batch,) = packed.packing.batches
    model = on_another_device("llama", torch.float32, monkeypatch)
    made = tensors(model, packed, batch)
    made[0][left] = torch.empty_like(made[0][left], device="cpu")
    monkeypatch.setattr(forward, "tensors", lambda *_: made)
    with pytest.raises(RuntimeError, match="device"):
        hidden_at(model, packed, batch)


def test_sums_are_computed_elsewhere_where_there_is_no_float64() -> None:
    """Simulated: Apple's MPS has no float64, so a tensor is first moved to the CPU."""
    moved: list[str] = []

    class OnMps:
        device = torch.device("mps")

        def cpu(self) -> torch.Tensor:
            moved.append("cpu")
            return torch.ones(2)

        def double(self) -> torch.Tensor:
            raise TypeError("MPS has no float64")

    assert forward._double(OnMps()).dtype == torch.float64  # type: ignore[arg-type]
    assert moved == ["cpu"]
