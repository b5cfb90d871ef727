"""Scores equal the plainest reference, for the architectures people use."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from oodles.contracts import PromptSet
from oodles.errors import DataError, ModelError
from oodles.model import scoring, tokens
from oodles.model.embedded import tiny_tokenizer
from oodles.model.forward import Plan, tensors
from oodles.model.prefix_trees import Sequences, pack_rows
from oodles.suite.load import load_suite
from oodles.suite.patterns import render, sample
from oodles.suite.sources import load_examples

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
    "gemma3": lambda: transformers.Gemma3TextConfig(
        **SMALL, **MORE, head_dim=8, sliding_window=16, layer_types=["sliding_attention", "full_attention"]
    ),
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
    assert packed.way == "rows of head"
    assert packed.tokens < 0.8 * len(packed.sequences.tokens)
    # Gemma 2 squashes its logits after the head: the rows of the head are not the answer, beginnings are still shared
    capped = scoring.prepare(tiny("gemma2"), tokenizer, prompts)
    assert capped.way == "model's logits"
    assert capped.tokens == packed.tokens


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
    assert len(plan.packing.batches) > 3
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
    scored = [i for batch in plan.packing.batches for row in batch for i in row.items]
    assert sorted(scored) == list(range(len(prompts)))
    for batch in plan.packing.batches:
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
    with pytest.raises(ModelError, match=r"prompts: the model gave .* for example 0, and for"):
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


def test_padding_is_on_the_right_and_never_read() -> None:
    """Also for the shorter of two in a batch."""
    sequences = Sequences(
        tokens=np.array([5, 6, 7, 5, 8], dtype=np.int32), starts=np.array([0, 3, 5], dtype=np.int64), reads=1
    )
    plan = Plan(
        name="t",
        sequences=sequences,
        targets=((1,), (2,)),
        packing=pack_rows(sequences, 64, share=False),
        batch_tokens=64,
    )
    (batch,) = plan.packing.batches
    inputs, places = tensors(torch.nn.Linear(1, 1), plan, batch)
    assert inputs["input_ids"].tolist() == [[5, 6, 7], [5, 8, 0]]
    assert [(i, r, list(c)) for i, r, c in places] == [(0, 0, [2]), (1, 1, [1])]
    assert "attention_mask" not in inputs  # causality hides what comes after


def test_modules_get_back_their_own_mode(tokenizer: Any, prompts: PromptSet) -> None:
    model = tiny("llama").train()
    model.model.layers[0].eval()  # as people do with frozen parts
    before = [module.training for module in model.modules()]
    scoring.score(model, tokenizer, prompts)
    assert [module.training for module in model.modules()] == before


def test_normalised_scores_are_log_probabilities(tokenizer: Any, prompts: PromptSet) -> None:
    for architecture in ("llama", "opt", "gemma2"):
        model = tiny(architecture)
        found = scoring.score(model, tokenizer, prompts, normalise=True)
        assert np.abs(found - reference(model, tokenizer, prompts)).max() < 1e-4
        assert (found < 0).all()


def test_adapters_can_be_left_out(tokenizer: Any, prompts: PromptSet) -> None:
    from peft import LoraConfig, get_peft_model

    plain = scoring.score(tiny("llama"), tokenizer, prompts)
    adapted = get_peft_model(tiny("llama"), LoraConfig(r=4, target_modules=["q_proj"], init_lora_weights=False))
    assert np.abs(scoring.score(adapted, tokenizer, prompts) - plain).max() > 1e-3
    assert np.abs(scoring.score(adapted, tokenizer, prompts, adapters=False) - plain).max() < 1e-6


def test_the_same_winner_wherever_the_margin_is_clear(tokenizer: Any, prompts: PromptSet) -> None:
    for architecture in ARCHITECTURES:
        model = tiny(architecture)
        wanted, found = reference(model, tokenizer, prompts), scoring.score(model, tokenizer, prompts)
        clear = np.abs(wanted[:, 0] - wanted[:, 1]) > 2e-4
        assert clear.any()
        assert (wanted.argmax(1) == found.argmax(1))[clear].all()


# out of memory


class Forgetful(torch.nn.Module):
    """A model whose memory ends at so many tokens a call."""

    def __init__(self, model: Any, most: int) -> None:
        super().__init__()
        self.model, self.most, self.config, self.calls = model, most, model.config, []
        self.failures = 0

    def allocate(self, inputs: dict[str, Any]) -> None:
        size = inputs["input_ids"].numel()
        if size > self.most:
            self.failures += 1
            raise torch.OutOfMemoryError(f"CUDA out of memory: {size} tokens")
        self.calls.append(size)

    @property
    def base_model(self) -> Any:
        def forward(**inputs: Any) -> Any:
            self.allocate(inputs)
            return self.model.base_model(**inputs)

        return forward

    def get_output_embeddings(self) -> Any:
        return self.model.get_output_embeddings()

    def forward(self, **inputs: Any) -> Any:
        self.allocate(inputs)
        return self.model(**inputs)


def test_out_of_memory_halves_and_goes_on(tokenizer: Any, prompts: PromptSet) -> None:
    model = tiny("llama")
    wanted = scoring.score(model, tokenizer, prompts, batch_tokens=1024)
    tight = Forgetful(model, 150)
    found = scoring.score(tight, tokenizer, prompts, batch_tokens=1024)
    assert np.abs(found - wanted).max() < 1e-4
    assert max(tight.calls) <= 150
    with pytest.raises(ModelError, match=r"out of memory on one prompt of \d+ tokens; use a smaller model"):
        scoring.score(Forgetful(model, 40), tokenizer, prompts)


def test_what_did_not_fit_is_not_tried_again(tokenizer: Any) -> None:
    """The budget for that length stays halved: a few failures in all, not one per batch."""
    texts = [f"Number {i} is a text of its own, and it goes on." for i in range(100, 400)]
    tight = Forgetful(tiny("llama"), 150)
    plan = scoring.prepare(tight, tokenizer, scoring.texts_as_set(texts, [" Yes", " No"]), batch_tokens=1000)
    assert len(plan.packing.batches) > 6
    tight.failures = 0
    scoring.execute(tight, plan)
    assert 0 < tight.failures <= 6  # two cores may fail at the same time
    assert max(tight.calls) <= 150 < 1000 // 2


def test_memory_does_not_grow_with_the_set(real_data: Path, smollm2: Path) -> None:
    """All 30,000 prompts of HANS at the true width of SmolLM2 (fewer layers: activations do not add up over them)."""
    code = """
import re, sys, torch, transformers
from oodles.model import scoring
from oodles.model.load import load_tokenizer, resolve_model
from oodles.suite.patterns import render
from oodles.suite.sources import load_examples
from oodles.suite.load import load_suite
def peak():
    return int(re.findall(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[0]) / 1e6
suite = load_suite("nli", data=sys.argv[3])
examples = load_examples(suite, suite.test_sets["hans"])
prompts = render(suite.patterns["question"], examples, "hans", int(sys.argv[1]) or None)
spec = resolve_model("smollm2-135m-q4")
config = transformers.AutoConfig.from_pretrained(sys.argv[2], num_hidden_layers=1, layer_types=None)
model = transformers.AutoModelForCausalLM.from_config(config).eval()
tokenizer = load_tokenizer(spec)
loaded = peak()
scoring.score(model, tokenizer, prompts)
print(len(prompts), peak() - loaded)
"""
    above = {}
    for limit in (1000, 0):
        done = subprocess.run(
            [sys.executable, "-c", code, str(limit), str(smollm2), str(real_data)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-2000:]
        count, gigabytes = done.stdout.split()
        above[int(count)] = float(gigabytes)
    assert above[30_000] < 1.5
    assert above[30_000] < above[1000] + 0.1  # tokens and scores of 29,000 more prompts, nothing else


def test_a_real_shortage_of_memory_is_survived() -> None:
    """The address space ends: torch's own allocator fails, the batch is halved, the scores are the same."""
    code = """
import resource, numpy as np, torch, transformers
from oodles.model import scoring
from oodles.model.embedded import tiny_tokenizer
torch.set_num_threads(1)
torch.manual_seed(0)
config = transformers.LlamaConfig(hidden_size=64, intermediate_size=16384, num_hidden_layers=1, num_attention_heads=4,
    num_key_value_heads=4, vocab_size=1024, max_position_embeddings=4096)
model, tokenizer = transformers.LlamaForCausalLM(config).eval(), tiny_tokenizer()
texts = [f"Number {i} is a text of its own, and it goes on for a while." for i in range(400)]
wanted = scoring.score(model, tokenizer, texts, [" Yes", " No"], batch_tokens=256)
import re
used = int(re.findall(r"VmSize:\\s+(\\d+)", open("/proc/self/status").read())[0]) * 1024
resource.setrlimit(resource.RLIMIT_AS, (used + 300_000_000, resource.RLIM_INFINITY))
try:
    torch.empty(12_000, 16_384).fill_(1.0)
    raise SystemExit("the limit does not bind")
except RuntimeError as error:
    assert "can't allocate memory" in str(error), error
found = scoring.score(model, tokenizer, texts, [" Yes", " No"], batch_tokens=12_000)
assert np.abs(found - wanted).max() < 1e-4
print("survived")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "survived" in done.stdout, done.stderr[-2000:]


# several processes

RANK = """
import sys, numpy as np, torch, torch.distributed as dist, transformers
from oodles.model import scoring
from oodles.model.embedded import tiny_tokenizer
rank, world, port, out = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
torch.manual_seed(0)
config = transformers.LlamaConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, vocab_size=1024, max_position_embeddings=256)
model = transformers.LlamaForCausalLM(config).eval()
calls = 0
def count(*_):
    global calls
    calls += 1
model.model.register_forward_hook(count)
texts = [f"Number {i} is a text of its own{' and more' * (i % 5)}." for i in range(37)]
plan = scoring.prepare(model, tiny_tokenizer(), scoring.texts_as_set(texts, [" Yes", " No"]), batch_tokens=64)
calls = 0
together = scoring.execute(model, plan)
shared_calls = calls
alone = scoring.execute(model, plan, distributed=False)
np.savez(f"{out}/{rank}.npz", together=together, alone=alone, calls=shared_calls, batches=len(plan.packing.batches))
dist.barrier()
dist.destroy_process_group()
"""


def test_two_processes_equal_one_and_call_equally_often(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = [
        subprocess.Popen([sys.executable, "-c", RANK, str(rank), "2", str(port), str(tmp_path)], stderr=subprocess.PIPE)
        for rank in range(2)
    ]
    for rank in ranks:
        _, errors = rank.communicate(timeout=120)
        assert rank.returncode == 0, errors.decode()[-2000:]
    first, second = (np.load(tmp_path / f"{rank}.npz") for rank in range(2))
    assert np.array_equal(first["together"], first["alone"])  # to the bit: the batches are the same
    assert np.array_equal(first["together"], second["together"])
    assert int(first["calls"]) == int(second["calls"]) == -(-int(first["batches"]) // 2)
    assert int(first["batches"]) % 2 == 1  # so that one of them has a call to make up
