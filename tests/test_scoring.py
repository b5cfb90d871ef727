"""Scores equal the plainest reference, for the architectures people use."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import transformers

from oodles import scoring, tokens
from oodles.errors import DataError, ModelError
from oodles.fetch import tiny_tokenizer
from oodles.patterns import render, sample
from oodles.records import PromptSet
from oodles.sources import load_examples
from oodles.suite import load_suite

SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 1024}
MORE = {"intermediate_size": 64, "num_key_value_heads": 2, "max_position_embeddings": 256, "pad_token_id": 0}
ARCHITECTURES = {
    "llama": lambda: transformers.LlamaConfig(**SMALL, **MORE),
    "olmo2": lambda: transformers.Olmo2Config(**SMALL, **MORE),
    "smollm3": lambda: transformers.SmolLM3Config(**SMALL, **MORE),
    "qwen2": lambda: transformers.Qwen2Config(**SMALL, **MORE),
    "opt": lambda: transformers.OPTConfig(
        **SMALL, ffn_dim=64, max_position_embeddings=256, word_embed_proj_dim=16, pad_token_id=1
    ),
    "gpt2": lambda: transformers.GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=1024, n_positions=256),
    "gpt_neox": lambda: transformers.GPTNeoXConfig(**SMALL, intermediate_size=64, max_position_embeddings=256),
    "gemma2": lambda: transformers.Gemma2Config(**SMALL, **MORE, head_dim=8, final_logit_softcapping=2.0),
}


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return tiny_tokenizer()


@pytest.fixture(scope="module")
def prompts() -> PromptSet:
    """Premises with two hypotheses each, of several lengths."""
    suite = load_suite("mini")
    both = [sample(load_examples(suite, suite.test_sets[name]), 14, "premise") for name in ("overlap", "news")]
    return render(suite.patterns["question"], [e for part in both for e in part], "mixed")


def tiny(architecture: str) -> Any:
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(ARCHITECTURES[architecture]())
    for parameter in model.parameters():  # large weights, so that differences show
        parameter.data.mul_(3.0)
    return model.eval()


def reference(model: Any, tokenizer: Any, prompts: PromptSet) -> np.ndarray:
    """One prompt at a time, no padding, all logits."""
    rows = []
    for prompt in prompts.prompts:
        ids = tokenizer(prompt.text)["input_ids"]
        row = []
        for answer in prompts.answers:
            extra = tokenizer(answer, add_special_tokens=False)["input_ids"]
            with torch.inference_mode():
                logs = model(torch.tensor([ids + extra])).logits[0].double().log_softmax(-1)
            row.append(sum(float(logs[len(ids) - 1 + k, token]) for k, token in enumerate(extra)))
        rows.append(row)
    return np.array(rows)


def centred(scores: np.ndarray) -> np.ndarray:
    return scores - scores.mean(axis=1, keepdims=True)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_scores_equal_the_reference(architecture: str, tokenizer: Any, prompts: PromptSet) -> None:
    model = tiny(architecture)
    plan = scoring.prepare(model, tokenizer, prompts)
    wanted = reference(model, tokenizer, prompts)
    found = scoring.execute(model, plan)
    assert np.abs(centred(found) - centred(wanted)).max() < 1e-4
    assert np.ptp(centred(wanted)) > 1e-2  # the comparison can fail


def test_shortcuts_are_taken_where_they_hold(tokenizer: Any, prompts: PromptSet) -> None:
    packed = scoring.prepare(tiny("llama"), tokenizer, prompts)
    assert packed.rows_of_head
    assert packed.tokens < 0.8 * sum(len(i.tokens) for i in packed.items)
    # Gemma 2 squashes its logits after the head: the rows of the head are not the answer
    assert not scoring.prepare(tiny("gemma2"), tokenizer, prompts).rows_of_head


@pytest.mark.parametrize("architecture", ["llama", "opt", "gemma2"])
def test_answers_of_several_tokens(architecture: str, tokenizer: Any, prompts: PromptSet) -> None:
    several = PromptSet(name="several", answers=(" Yes of course", " No", " Nothing"), prompts=prompts.prompts[:6])
    model = tiny(architecture)
    found = scoring.score(model, tokenizer, several)
    assert np.abs(found - reference(model, tokenizer, several)).max() < 1e-4


def test_independent_of_order_budget_and_company(tokenizer: Any, prompts: PromptSet) -> None:
    model = tiny("llama")
    whole = scoring.score(model, tokenizer, prompts)
    small = scoring.score(model, tokenizer, prompts, batch_tokens=64)
    turned = scoring.score(
        model, tokenizer, PromptSet(name="t", answers=prompts.answers, prompts=prompts.prompts[::-1])
    )
    alone = scoring.score(model, tokenizer, [prompts.prompts[3].text], prompts.answers)
    for other in (small, turned[::-1]):
        assert np.abs(whole - other).max() < 1e-4
    assert np.abs(whole[3] - alone[0]).max() < 1e-4


def test_a_batch_per_thread_changes_nothing(tokenizer: Any, prompts: PromptSet) -> None:
    """Threads share out whole batches, so their number does not touch the arithmetic: equal to the bit."""
    model = tiny("llama")
    plan = scoring.prepare(model, tokenizer, prompts, batch_tokens=100)
    before = torch.get_num_threads()
    try:
        found = []
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(scoring.execute(model, plan))
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert len(plan.batches) > 3
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])


def test_the_model_and_the_random_state_are_left_as_found(tokenizer: Any, prompts: PromptSet) -> None:
    model = tiny("llama").train()
    state = torch.get_rng_state()
    scoring.score(model, tokenizer, prompts)
    assert model.training
    assert torch.equal(state, torch.get_rng_state())


def test_every_item_is_scored_once(tokenizer: Any, prompts: PromptSet) -> None:
    plan = scoring.prepare(tiny("llama"), tokenizer, prompts, batch_tokens=100)
    scored = [i for batch in plan.batches for row in batch for i in row.items]
    assert sorted(scored) == list(range(len(prompts)))
    for batch in plan.batches:
        assert len(batch) == 1 or batch[0].length * len(batch) <= 100


def test_equal_prompts_are_scored_equally(tokenizer: Any) -> None:
    text = "A man is sleeping on a bench in the park. Question: A man is asleep. Yes or No?"
    found = scoring.score(tiny("llama"), tokenizer, [text, text, text[:20]], [" Yes", " No"])
    assert np.abs(found[0] - found[1]).max() < 1e-5


def test_bad_input(tokenizer: Any) -> None:
    model = tiny("llama")
    with pytest.raises(DataError, match="prompt 1 is empty"):
        scoring.score(model, tokenizer, ["x", "  "], [" Yes", " No"])
    with pytest.raises(DataError, match="no prompts"):
        scoring.score(model, tokenizer, [], [" Yes", " No"])
    with pytest.raises(DataError, match="answers are missing"):
        scoring.score(model, tokenizer, ["x"])
    with pytest.raises(DataError, match=r"prompt 0 has \d+ tokens, the limit leaves 256"):
        scoring.score(model, tokenizer, ["word " * 400], [" Yes", " No"])
    with pytest.raises(ModelError, match="changes the prompt's tokens"):
        scoring.score(model, tokenizer, ["It is raining. Y"], ["es", " No"])


def test_a_model_that_is_not_finite_says_where(tokenizer: Any) -> None:
    model = tiny("llama")
    model.get_output_embeddings().weight.data.fill_(float("nan"))
    with pytest.raises(ModelError, match=r"prompts: the model gave .* for example number 0"):
        scoring.score(model, tokenizer, ["A text."], [" Yes", " No"])


def test_the_embedded_model_splits_digits_and_has_one_token_answers(smollm2_tokenizer: Any) -> None:
    assert smollm2_tokenizer(" Yes")["input_ids"] == [9230]
    assert smollm2_tokenizer(" No")["input_ids"] == [2838]
    assert len(smollm2_tokenizer("1234")["input_ids"]) == 4
    assert tokens.start_tokens(smollm2_tokenizer) == []


def test_start_tokens_leave_out_what_comes_after(tokenizer: Any) -> None:
    class Adds:
        def __call__(self, text: str, add_special_tokens: bool = True) -> dict[str, list[int]]:
            return {"input_ids": [1, 7, 2] if add_special_tokens else [7]}

    assert tokens.start_tokens(Adds()) == [1]


def test_read_out_is_at_the_last_token_of_each_prompt() -> None:
    """Also for the shorter of two in a batch: padding is on the right and never read."""
    items = (scoring.Item((5, 6, 7), (2,)), scoring.Item((5, 8), (1,)))
    plan = scoring.Plan(name="t", items=items, targets=((1,), (2,)), batches=())
    rows = scoring.share_prefixes(items)
    inputs, places = scoring._tensors(torch.nn.Linear(1, 1), plan, rows)
    assert inputs["input_ids"].tolist() == [[5, 6, 7], [5, 8, 0]]
    assert places == [(0, 0, [2]), (1, 1, [1])]


def test_packed_rows_keep_items_apart() -> None:
    shared = tuple(range(10, 20))
    items = (scoring.Item((*shared, 1, 2), (11,)), scoring.Item((*shared, 3), (10,)))
    plan = scoring.Plan(name="t", items=items, targets=((1,), (2,)), batches=())
    (row,) = scoring.share_prefixes(items)
    inputs, places = scoring._tensors(torch.nn.Linear(1, 1), plan, [row])
    assert (row.prefix, row.length) == (10, 13)
    assert inputs["position_ids"][0].tolist() == [*range(10), 10, 11, 10]
    seen = inputs["attention_mask"][0, 0] == 0
    assert seen[12].tolist() == [*[True] * 10, False, False, True]  # the second item does not see the first
    assert seen[11].tolist() == [*[True] * 12, False]
    assert places == [(0, 0, [11]), (1, 0, [12])]
