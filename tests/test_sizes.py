"""Sets counted in tokens, or by characters."""

from __future__ import annotations

from pathlib import Path

from oodles.contracts import Prompt, PromptSet
from oodles.model.embedded import tiny_tokenizer
from oodles.model.tokens import encode
from oodles.study.grid import expand
from oodles.study.load import load_study
from oodles.study.sizes import CHARACTERS_PER_TOKEN, Reader

LONG = "A person sits down on a bench in the park and reads a newspaper of yesterday. "
TEXTS = [LONG + "Is it true?", LONG + "Is it wrong?", "Short?"]
PROMPTS = PromptSet(
    name="t", answers=(" Yes", " No"), prompts=tuple(Prompt(id=str(i), text=t, gold=0) for i, t in enumerate(TEXTS))
)


def test_tokens_are_those_of_the_tokenizer_and_beginnings_count_once() -> None:
    tokenizer = tiny_tokenizer()
    size = Reader(batch_tokens=4096, tokenizer=tokenizer).size(("t", "h"), PROMPTS)
    encoded = encode(tokenizer, PROMPTS)
    assert (size.prompts, size.answers, size.tokens) == (3, 2, len(encoded.tokens))
    shared = size.tokens - size.computed
    assert 0 < shared < len(encoded.tokens) / 2  # LONG is computed once of twice


def test_without_a_tokenizer_characters_are_counted() -> None:
    size = Reader(batch_tokens=4096).size(("t", "h"), PROMPTS)
    assert size.tokens == round(sum(map(len, TEXTS)) / CHARACTERS_PER_TOKEN)
    assert size.computed == round((sum(map(len, TEXTS)) - len(LONG + "Is it ")) / CHARACTERS_PER_TOKEN)


def test_every_set_is_measured_once() -> None:
    reader = Reader(batch_tokens=4096)
    first = reader.size(("t", "h"), PROMPTS)
    assert reader.size(("t", "h"), PromptSet(name="t", answers=(" Yes",), prompts=PROMPTS.prompts[:1])) is first
    assert reader.size(("t", "i"), PROMPTS) is not first


def test_a_small_batch_has_fewer_rows() -> None:
    many = PromptSet(
        name="t",
        answers=(" Yes", " No"),
        prompts=tuple(Prompt(id=str(i), text=f"{i} {LONG}", gold=0) for i in range(40)),
    )
    large, small = (Reader(batch_tokens=n).size(("t", "h"), many) for n in (4096, 256))
    assert large.batch[0] * large.batch[1] > small.batch[0] * small.batch[1]
    assert small.batch[0] * small.batch[1] <= 256


def test_shots_without_a_tokenizer_are_as_long_as_their_characters(toy_study: Path) -> None:
    spec = expand(load_study(toy_study)).jobs[0].spec
    shots = Reader(batch_tokens=4096).shots(PROMPTS, spec)
    assert [len(example["sequences"][0][0]) for example in shots.examples] == [
        -(-len(text) * 10 // 43) for text in TEXTS
    ]
