"""Prompts in tokens: what is shortened, what never is, chat templates, answers."""

from __future__ import annotations

import gc
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oodles.audit.checks import check_prompts
from oodles.contracts import Example, Pattern, PromptSet
from oodles.errors import DataError, ModelError
from oodles.model import tokens
from oodles.model.embedded import tiny_tokenizer
from oodles.model.tokens import bare_tokens, context_limit, encode, encode_once, wrap
from oodles.suite.patterns import render

QUESTION = Pattern(
    name="q", text="{premise} Question: {hypothesis} Yes or No?", answers=(" Yes", " No"), truncate="premise"
)
TOKENIZER = tiny_tokenizer()


def prompts(premise: str, hypothesis: str = "It rains.", pattern: Pattern = QUESTION) -> PromptSet:
    one = Example(id="7", fields={"premise": premise, "hypothesis": hypothesis}, label="e", answer=0)
    return render(pattern, [one], "t")


def text_of(ids: list[int]) -> str:
    return str(TOKENIZER.decode(list(ids)))


@settings(max_examples=60, deadline=None)
@given(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=400),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    st.integers(40, 120),
)
def test_the_question_stays_whole_and_the_prompt_fits(premise: str, hypothesis: str, limit: int) -> None:
    rendered = prompts(premise, hypothesis)
    tail = f" Question: {hypothesis} Yes or No?"
    try:
        found = encode(TOKENIZER, rendered, limit)
    except DataError:
        assert len(bare_tokens(TOKENIZER, [tail])[0]) > limit
        return
    assert len(found.prompts[0]) <= limit
    assert text_of(found.prompts[0]).endswith(tail)
    kept = text_of(found.prompts[0])[: -len(tail)]
    assert premise.startswith(kept)
    assert found.shortened == (() if kept == premise else ("7",))


def test_as_much_as_fits_is_kept_and_words_are_not_cut_in_two() -> None:
    premise = " ".join(f"word{i}" for i in range(200))
    found = encode(TOKENIZER, prompts(premise), 100)
    kept = text_of(found.prompts[0]).removesuffix(" Question: It rains. Yes or No?")
    assert premise.startswith(kept + " ")
    one_more = premise[: len(kept) + 1 + premise[len(kept) + 1 :].index(" ")]
    assert len(bare_tokens(TOKENIZER, [prompts(one_more).prompts[0].text])[0]) > 100
    assert len(found.prompts[0]) <= 100


def test_a_premise_without_spaces_is_cut_anywhere() -> None:
    found = encode(TOKENIZER, prompts("x" * 5000), 60)
    assert 55 <= len(found.prompts[0]) <= 60


def test_the_patterns_own_limit_holds_where_it_is_smaller() -> None:
    short = prompts("A dog runs. " * 50, pattern=replace(QUESTION, max_tokens=40))
    assert len(encode(TOKENIZER, short, 500).prompts[0]) <= 40
    assert len(encode(TOKENIZER, short).prompts[0]) <= 40
    assert encode(TOKENIZER, prompts("A dog runs. " * 5), 500).shortened == ()
    assert short.hash != prompts("A dog runs. " * 50).hash


def test_room_is_left_for_answers_of_several_tokens() -> None:
    long_answers = replace(QUESTION, answers=(" absolutely certainly", " No"))
    found = encode(TOKENIZER, prompts("A dog runs. " * 50, pattern=long_answers), 80)
    assert len(found.prompts[0]) + max(map(len, found.targets)) - 1 <= 80


def test_the_audit_counts_with_the_same_room() -> None:
    """With answers of several tokens a prompt must leave room for them: the audit says what the run will do."""
    long_answers = replace(QUESTION, answers=(" absolutely certainly", " No"))
    rendered = prompts("A dog runs. " * 5, pattern=long_answers)
    size = len(encode(TOKENIZER, rendered).prompts[0])
    tight = replace(rendered, max_tokens=size)
    assert encode(TOKENIZER, tight).shortened == ("7",)
    facts, findings = check_prompts(TOKENIZER, tight, None, "t")
    assert facts is not None
    assert facts.shortened == 1
    assert "prompt-shortened" in [f.code for f in findings]


def test_what_may_not_be_shortened_is_refused_with_the_place() -> None:
    with pytest.raises(DataError, match=r"t: prompt 7 has \d+ tokens, the limit leaves 50; name the field"):
        encode(TOKENIZER, prompts("A dog. " * 50, pattern=replace(QUESTION, truncate=None)), 50)
    with pytest.raises(DataError, match=r"t: prompt 7 has over 50 tokens even without 'A dog\."):
        encode(TOKENIZER, prompts("A dog. ", hypothesis="It rains. " * 50), 50)
    with pytest.raises(DataError, match="prompt 7 is empty"):
        encode(TOKENIZER, prompts(" ", pattern=replace(QUESTION, text="{premise}")))


def test_answers_that_change_the_prompt_are_refused() -> None:
    trailing = prompts("It rains.", pattern=replace(QUESTION, text="{premise} {hypothesis} ", answers=("Yes", "No")))
    with pytest.raises(ModelError, match=r"answer 'Yes' changes the prompt's tokens .* begin the answer with a space"):
        encode(TOKENIZER, trailing)


def legacy_tokenizer(texts: list[str]) -> Any:
    """As older Llama tokenizers: the normaliser puts a space before every text."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.BPE(unk_token="<unk>"))
    made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    made.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    made.decoder = decoders.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=["<unk>", "<s>", "</s>"], show_progress=False)
    made.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=made, eos_token="</s>", unk_token="<unk>")


def test_answers_have_the_tokens_they_have_after_a_prompt() -> None:
    """Alone, " Yes" begins with two spaces for such a tokenizer; after a prompt it does not."""
    rendered = prompts("A dog runs in the rain.")
    legacy = legacy_tokenizer([p.text + answer for p in rendered.prompts for answer in rendered.answers] * 3)
    alone = [legacy(answer, add_special_tokens=False)["input_ids"] for answer in rendered.answers]
    found = encode(legacy, rendered)
    for answer, target, other in zip(rendered.answers, found.targets, alone, strict=True):
        whole = legacy(rendered.prompts[0].text + answer, add_special_tokens=False)["input_ids"]
        assert [*found.prompts[0], *target] == whole
        assert list(target) != other  # what it would have been
    assert legacy.convert_ids_to_tokens([t[0] for t in found.targets]) == ["▁Yes", "▁No"]
    facts, findings = check_prompts(legacy, rendered, None, "t")
    assert facts is not None
    assert facts.shown[0].answer_tokens == ("▁Yes",)
    assert not [f for f in findings if f.severity == "error"]


def test_an_answer_that_adds_other_tokens_to_other_prompts_is_refused() -> None:
    """ "1" after "x" and after a digit are other tokens to a tokenizer that groups digits from the right."""

    class Grouping:
        def __call__(self, texts: list[str], **_: Any) -> dict[str, list[list[int]]]:
            return {"input_ids": [[ord(c) + 1000 * (i % 2) for i, c in enumerate(text)] for text in texts]}

    assert tokens.joined_tokens(Grouping(), "y", ["ab", "cdef"]) == ((ord("y"),), None)
    assert tokens.joined_tokens(Grouping(), "y", ["ab", "cde"]) == ((ord("y"),), "cde")


CHAT = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|a|>{% endif %}"
)


def test_a_chat_template_wraps_the_prompt_and_the_premise_is_still_shortened() -> None:
    chatty = tiny_tokenizer()
    chatty.chat_template = CHAT
    pattern = replace(QUESTION, chat=True, answers=("Yes", "No"))
    rendered = prompts("A dog runs. " * 60, pattern=pattern)
    assert rendered.hash != prompts("A dog runs. " * 60, pattern=replace(pattern, chat=False)).hash
    found = encode(chatty, rendered, 90)
    text = chatty.decode(list(found.prompts[0]))
    assert text.startswith("<|user|>A dog runs.")
    assert text.endswith("Question: It rains. Yes or No?\n<|a|>")
    assert len(found.prompts[0]) <= 90
    with pytest.raises(ModelError, match="the tokenizer has none; set chat = false"):
        wrap(TOKENIZER, "x", chat=True)


def test_the_real_chat_template(smollm2_tokenizer: Any) -> None:
    pattern = replace(QUESTION, chat=True, answers=("Yes", "No"))
    found = encode(smollm2_tokenizer, prompts("It pours.", pattern=pattern))
    text = smollm2_tokenizer.decode(list(found.prompts[0]))
    assert "<|im_start|>user\nIt pours. Question: It rains. Yes or No?<|im_end|>\n<|im_start|>assistant\n" in text
    assert all(len(t) == 1 for t in found.targets)


def test_the_limit_of_a_model_comes_from_its_config() -> None:
    import transformers

    assert context_limit(transformers.GPT2Config(n_positions=77)) == 77
    assert context_limit(transformers.LlamaConfig(max_position_embeddings=99)) == 99
    assert context_limit(transformers.OPTConfig(max_position_embeddings=88)) == 88


# kept on disk


def test_tokens_are_kept_and_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OODLES_CACHE", str(tmp_path))
    rendered = prompts("A dog runs. " * 50)
    first = encode_once(TOKENIZER, rendered, 60)
    (file,) = (tmp_path / "tokens").glob("*.npz")
    monkeypatch.setattr(tokens, "encode", lambda *_: pytest.fail("tokenised twice"))
    again = encode_once(tiny_tokenizer(), rendered, 60)
    assert again.prompts == first.prompts
    assert (again.targets, again.shortened) == (first.targets, first.shortened) == (first.targets, ("7",))
    monkeypatch.undo()
    monkeypatch.setenv("OODLES_CACHE", str(tmp_path))
    file.write_bytes(file.read_bytes()[:50])  # damaged: recomputed
    assert encode_once(TOKENIZER, rendered, 60).prompts == first.prompts


def test_a_damaged_file_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OODLES_CACHE", str(tmp_path))
    encode_once(TOKENIZER, prompts("A dog runs."), 60)
    (file,) = (tmp_path / "tokens").glob("*.npz")
    file.write_bytes(file.read_bytes()[:50])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        encode_once(TOKENIZER, prompts("A dog runs."), 60)
        gc.collect()
    assert [str(w.message) for w in caught] == []


def test_other_limits_texts_cuts_and_tokenizers_are_kept_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OODLES_CACHE", str(tmp_path))
    changed = tiny_tokenizer()
    changed.add_tokens(["dog"])
    uncut = replace(QUESTION, truncate="hypothesis")
    for tokenizer, rendered, limit in (
        (TOKENIZER, prompts("A dog runs. " * 5), None),
        (TOKENIZER, prompts("A dog runs. " * 5), 60),
        (TOKENIZER, prompts("A dog ran. " * 5), None),
        (TOKENIZER, prompts("A dog runs. " * 5, pattern=uncut), None),
        (changed, prompts("A dog runs. " * 5), None),
    ):
        encode_once(tokenizer, rendered, limit)
    assert len(list((tmp_path / "tokens").glob("*.npz"))) == 5


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("OODLES_CACHE", str(tmp_path / "file"))
    assert encode_once(TOKENIZER, prompts("A dog.")).prompts == encode(TOKENIZER, prompts("A dog.")).prompts
