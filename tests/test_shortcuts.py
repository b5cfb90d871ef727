"""Shortcuts of scoring are left out where they do not hold, in every precision, and cost little to check."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from oodles.contracts import Prompt, PromptSet
from oodles.model import scoring
from oodles.model.embedded import tiny_tokenizer
from oodles.model.forward import Plan
from oodles.model.shortcuts import signature
from oodles.suite.load import load_suite
from oodles.suite.patterns import render, sample
from oodles.suite.sources import load_examples
from test_scoring import MORE, SMALL, centred, reference, tiny

PRECISIONS = (torch.float32, torch.bfloat16, torch.float16)


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return tiny_tokenizer()


def mini(*names: str, limit: int = 14) -> list[PromptSet]:
    suite = load_suite("mini")
    return [
        render(suite.patterns["question"], sample(load_examples(suite, suite.test_sets[name]), limit, "premise"), name)
        for name in names
    ]


def texts(some: list[str]) -> tuple[Prompt, ...]:
    return tuple(Prompt(id=str(i), text=text, gold=-1) for i, text in enumerate(some))


def shares(plan: Plan) -> bool:
    return plan.tokens < len(plan.sequences.tokens)


def withhold(model: Any, name: str) -> Any:
    """A model that takes an input and makes nothing of it."""
    given = model.model.forward
    model.model.forward = lambda *args, **inputs: given(*args, **{**inputs, name: None})
    return model


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("architecture", ["llama", "qwen2", "opt", "gemma2"])
def test_beginnings_are_shared_where_positions_and_masks_are_heeded(
    architecture: str, dtype: torch.dtype, tokenizer: Any
) -> None:
    (prompts,) = mini("news")
    assert shares(scoring.prepare(tiny(architecture).to(dtype), tokenizer, prompts))


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("architecture", ["llama", "gemma2"])
@pytest.mark.parametrize("ignored", ["position_ids", "attention_mask"])
def test_a_model_that_ignores_positions_or_masks_is_seen(
    ignored: str, architecture: str, dtype: torch.dtype, tokenizer: Any
) -> None:
    """Gemma's positions matter little here: .003 to .04 of a hidden state, what bf16 rounds away in a deep model."""
    (prompts,) = mini("news")
    model = withhold(tiny(architecture).to(dtype), ignored)
    plan = scoring.prepare(model, tokenizer, prompts)
    assert not shares(plan)
    if dtype == torch.float32:
        wanted = reference(model, tokenizer, prompts)
        assert np.abs(centred(scoring.execute(model, plan)) - centred(wanted)).max() < 1e-4


WINDOWS = {
    "mistral": lambda size: transformers.MistralConfig(**SMALL, **MORE, sliding_window=size),
    "gemma2": lambda size: transformers.Gemma2Config(**SMALL, **MORE, head_dim=8, sliding_window=size),
    "gemma3": lambda size: transformers.Gemma3TextConfig(
        **SMALL, **MORE, head_dim=8, sliding_window=size, layer_types=["sliding_attention", "full_attention"]
    ),
    "gpt_neo": lambda size: transformers.GPTNeoConfig(
        hidden_size=32, num_layers=2, num_heads=4, vocab_size=1024, attention_types=[[["global", "local"], 1]],
        window_size=size, max_position_embeddings=256,
    ),
}  # fmt: skip


def windowed(architecture: str, size: int) -> Any:
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(WINDOWS[architecture](size)).eval()
    for parameter in model.parameters():
        parameter.data.mul_(3.0)
    return model


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("architecture", ["mistral", "gemma2", "gemma3"])
def test_packed_rows_keep_the_window_of_their_layers(architecture: str, dtype: torch.dtype, tokenizer: Any) -> None:
    """The mask of a packed row replaces the window's, so it holds the window, counted in positions."""
    (prompts,) = mini("news")
    scores = []
    for size in (16, 4096):
        model = windowed(architecture, size).to(dtype)
        plan = scoring.prepare(model, tokenizer, prompts)
        assert shares(plan)
        scores.append(scoring.execute(model, plan))
        if dtype == torch.float32:
            assert np.abs(centred(scores[-1]) - centred(reference(model, tokenizer, prompts))).max() < 1e-4
    assert np.abs(centred(scores[0]) - centred(scores[1])).max() > 1e-2  # the window matters


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_a_window_that_no_mask_can_state_is_seen(dtype: torch.dtype, tokenizer: Any) -> None:
    """GPT-Neo's layers apply a window of their own to columns, not to positions."""
    (prompts,) = mini("news")
    for size, shared in ((16, False), (256, True)):
        assert shares(scoring.prepare(windowed("gpt_neo", size).to(dtype), tokenizer, prompts)) == shared


def test_choices_after_a_context_longer_than_the_window(tokenizer: Any) -> None:
    """Rows of choices are stretched: the shared context alone is longer than the window."""
    (prompts,) = mini("news", limit=4)
    context = " ".join(prompt.text for prompt in prompts.prompts[:2])
    answers = [" Yes of course", " No", " Nothing was said"]
    model = windowed("gemma3", 16)
    several = PromptSet(name="long", answers=tuple(answers), prompts=texts([context]))
    assert 2 * 16 < len(tokenizer(context)["input_ids"]) < 240
    found = scoring.score(model, tokenizer, [context], [answers])
    assert np.abs(found - reference(model, tokenizer, several)).max() < 1e-4


def test_an_adapter_on_the_head_counts_once_it_is_trained(tokenizer: Any) -> None:
    """A fresh one adds nothing, so that no comparison at step 0 can see it."""
    from peft import LoraConfig, get_peft_model

    (prompts,) = mini("daily")
    for options in ({"target_modules": ["lm_head"]}, {"target_modules": ["q_proj"], "modules_to_save": ["lm_head"]}):
        model = get_peft_model(tiny("llama"), LoraConfig(r=4, **options)).eval()
        plan = scoring.prepare(model, tokenizer, prompts)
        before = scoring.execute(model, plan)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if "lora_B" in name or "modules_to_save" in name:
                    parameter.add_(torch.randn_like(parameter))
        found, wanted = scoring.execute(model, plan), reference(model, tokenizer, prompts)
        assert np.abs(centred(found) - centred(wanted)).max() < 1e-4
        assert np.abs(centred(found) - centred(before)).max() > 0.1


def test_one_check_serves_all_sets_and_costs_little(tokenizer: Any) -> None:
    """In tokens, which is exact; the benchmark has the time."""
    model = tiny("llama")
    seen: list[int] = []
    model.model.register_forward_pre_hook(
        lambda _module, _args, inputs: seen.append(inputs["input_ids"].numel()), with_kwargs=True
    )
    sets = mini(*load_suite("mini").test_sets, limit=75)
    plans = scoring.prepare_all(model, tokenizer, sets)
    assert len(plans) == 8
    assert {plan.way for plan in plans} == {"rows of head"}
    assert 0 < sum(seen) <= 0.04 * sum(plan.tokens for plan in plans)


def test_models_are_told_apart_by_what_decides_the_shortcuts() -> None:
    from peft import LoraConfig, get_peft_model

    first = signature(tiny("llama"))
    assert signature(tiny("llama")) == first
    capped = tiny("gemma2")
    capped.config.final_logit_softcapping = None
    adapted = get_peft_model(tiny("llama"), LoraConfig(r=4, target_modules=["lm_head"]))
    others = [tiny("llama").to(torch.bfloat16), tiny("qwen2"), tiny("gemma2"), capped, adapted]
    assert len({first, *map(signature, others)}) == 6


# half precision


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("architecture", ["llama", "opt", "gemma2"])
def test_logits_are_not_rounded_to_half_precision(architecture: str, dtype: torch.dtype, tokenizer: Any) -> None:
    """Equal to the head's product in double precision, of the hidden states as the model gives them."""
    model = tiny(architecture).to(dtype)
    cap = 30.0 if architecture == "gemma2" else None
    if cap:
        model.config.final_logit_softcapping = cap
    head = model.get_output_embeddings()
    head.weight = torch.nn.Parameter(head.weight.detach().clone())  # no longer the embeddings
    texts = [f"{chr(97 + i) * 3} man {i} sits on a bench. Question: He sits. Yes or No?" for i in range(24)]
    answers = [tokenizer(answer)["input_ids"][0] for answer in (" Yes", " No")]
    with torch.no_grad():  # near 20, and close to each other
        rows = head.weight[answers].double()
        hidden = [model.base_model(torch.tensor([tokenizer(text)["input_ids"]])).last_hidden_state for text in texts]
        hidden = torch.stack([one[0, -1] for one in hidden]).double()
        middle = hidden.mean(0) / hidden.mean(0).square().sum() * 20
        head.weight[answers] = (middle + rows * 0.1 / rows.norm(dim=1, keepdim=True)).to(dtype)
        exact = hidden @ head.weight[answers].double().T
    wanted = (exact if cap is None else cap * torch.tanh(exact / cap)).numpy()
    rounded = torch.tensor(wanted).to(dtype)
    assert dtype != torch.bfloat16 or (rounded[:, 0] == rounded[:, 1]).sum() > 3  # it could fail
    found = scoring.score(model, tokenizer, texts, [" Yes", " No"], batch_tokens=1)
    assert np.abs(found - wanted).max() < 1e-4
    assert (found[:, 0] == found[:, 1]).sum() == 0
    logs = scoring.score(model, tokenizer, texts, [" Yes", " No"], batch_tokens=1, normalise=True)
    assert np.abs(centred(logs) - centred(wanted)).max() < 1e-4
    assert "forward" not in vars(head)  # as it was


def test_the_real_model_shares_in_half_precision(smollm2: Path, smollm2_tokenizer: Any) -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(smollm2, dtype=torch.bfloat16).eval()
    (prompts,) = mini("daily")
    plan = scoring.prepare(model, smollm2_tokenizer, prompts)
    assert plan.way == "rows of head"
    assert shares(plan)
    found = scoring.execute(model, plan)
    assert np.unique(found).size > 0.9 * found.size  # of 28 logits rounded to .0625, many are equal


def test_flash_attention_gets_no_packed_rows(tokenizer: Any) -> None:
    """Simulated: a kernel that cannot read a mask per row, as FlashAttention's cannot; it fails with an IndexError."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.masking_utils import sdpa_mask

    def attend(module: Any, query: Any, key: Any, value: Any, attention_mask: Any, **rest: Any) -> Any:
        if attention_mask is not None and attention_mask.ndim == 4 and attention_mask.dtype != torch.bool:
            raise IndexError("too many indices for a mask")
        return sdpa_attention_forward(module, query, key, value, attention_mask, **rest)

    AttentionInterface.register("flash_simulated", attend)
    AttentionMaskInterface.register("flash_simulated", sdpa_mask)
    (prompts,) = mini("news")
    plain = scoring.score(tiny("llama"), tokenizer, prompts)
    model = tiny("llama")
    model.config._attn_implementation_internal = "flash_simulated"  # its setter would ask for the kernel
    assert not shares(scoring.prepare(model, tokenizer, prompts))
    assert np.allclose(scoring.score(model, tokenizer, prompts), plain, atol=1e-4)


@pytest.mark.parametrize("where", ["cpu", "disk"])
def test_offloaded_weights_are_scored_alike(where: str, tokenizer: Any, tmp_path: Path) -> None:
    """Between two uses such weights are on the meta device, the head's among them."""
    import accelerate

    (prompts,) = mini("news")
    plain = scoring.score(tiny("llama"), tokenizer, prompts)
    model = tiny("llama")
    if where == "cpu":
        accelerate.cpu_offload(model, execution_device=torch.device("cpu"))
    else:
        accelerate.disk_offload(model, tmp_path, execution_device=torch.device("cpu"))
    assert all(p.is_meta for p in model.parameters())
    assert np.allclose(scoring.score(model, tokenizer, prompts), plain, atol=1e-4)
