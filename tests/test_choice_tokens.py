"""Contexts and continuations as the harness splits them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oodles.contracts import Choice, Prompt, PromptSet
from oodles.errors import DataError
from oodles.model.choice_tokens import encode_choices, encode_sets, split_pairs
from oodles.model.load import load_tokenizer, resolve_model


@pytest.fixture
def tokenizer(tiny_model: Path) -> Any:
    return load_tokenizer(resolve_model("tiny-llama-untrained"))


def a_set(*contexts: str, continuations: tuple[str, ...] = (" cats", " dogs and cats")) -> PromptSet:
    prompts = tuple(
        Prompt(
            id=str(n),
            text=context,
            gold=0,
            choices=tuple(Choice(context=context, continuation=text, text=text.strip()) for text in continuations),
        )
        for n, context in enumerate(contexts)
    )
    return PromptSet(name="toy", answers=(), prompts=prompts)


def test_spaces_belong_to_the_continuation(tokenizer: Any) -> None:
    assert split_pairs(tokenizer, [("We like ", "cats")]) == split_pairs(tokenizer, [("We like", " cats")])


def test_an_empty_context_is_the_start_token(tokenizer: Any) -> None:
    ((context, continuation),) = split_pairs(tokenizer, [("", "We like cats")])
    start = tokenizer.bos_token_id if tokenizer.bos_token_id is not None else tokenizer.eos_token_id
    assert context == [start]
    assert tokenizer.decode(continuation) == "We like cats"


def test_sequences_reads_and_baseline(tokenizer: Any) -> None:
    encoded = encode_choices(tokenizer, replace(a_set("We like", "They like"), baseline=""))
    assert encoded.counts.tolist() == [2, 2]
    assert encoded.base.tolist() == [4, 5, 4, 5]  # both prompts share the baselines of their choices
    assert len(encoded.targets) == 6
    assert encoded.targets[0] == encoded.targets[4]
    sequences = encoded.sequences
    for index, (ids, target) in enumerate(zip(encoded.texts, encoded.targets, strict=True)):
        assert sequences[index].tolist() == ids.tolist()[:-1]
        assert ids.tolist()[-len(target) :] == list(target)
        assert sequences.reads_of(index) == len(target)


def test_long_contexts_lose_their_beginning(tokenizer: Any) -> None:
    long = a_set("word " * 100)
    encoded = encode_choices(tokenizer, long, 32)
    assert encoded.lengths.tolist() == [33, 33]
    assert encoded.shortened == ("0",)
    whole = encode_choices(tokenizer, long)
    assert encoded.texts[1].tolist() == whole.texts[1].tolist()[-33:]
    with pytest.raises(DataError, match=r"a choice has .* tokens, the limit is 1"):
        encode_choices(tokenizer, long, 1)


def test_the_cache_holds_the_same(tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OODLES_CACHE", str(tmp_path))
    prompts = replace(a_set("We like", "word " * 60), baseline="So:")
    first, again = (encode_sets(tokenizer, [prompts], 48)[0] for _ in range(2))
    assert len(list((tmp_path / "tokens").iterdir())) == 1
    for name in ("tokens", "starts", "reads", "counts", "base"):
        assert getattr(first, name).tolist() == getattr(again, name).tolist()
    assert first.shortened == again.shortened == ("1",)


def test_the_cache_is_of_one_start_token_and_of_this_code(
    tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Texts without a context begin with the start token, which is no part of what a tokenizer's file says."""
    from oodles.model import tokens

    monkeypatch.setenv("OODLES_CACHE", str(tmp_path))
    (first,) = encode_sets(tokenizer, [a_set("")], None)
    tokenizer.bos_token = tokenizer.eos_token
    (other,) = encode_sets(tokenizer, [a_set("")], None)
    assert other.tokens[0] == tokenizer.bos_token_id != first.tokens[0]
    monkeypatch.setattr(tokens, "_code", lambda: "another version")
    encode_sets(tokenizer, [a_set("")], None)
    assert len(list((tmp_path / "tokens").iterdir())) == 3
