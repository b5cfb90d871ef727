"""What the audit says of sets whose examples have their own choices."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from oodles.audit.choice_checks import check_choice_tokens, check_choices
from oodles.contracts import Choice, Example, Prompt, PromptSet
from oodles.model.load import load_tokenizer, resolve_model


def examples(count: int = 200) -> list[Example]:
    """Four choices of equal length, the right one at every position in turn."""
    return [
        Example(
            id=str(n),
            fields={"q": f"q {n}"},
            label="",
            answer=n % 4,
            choices=tuple(f"word {n:03} {k}" for k in range(4)),
        )
        for n in range(count)
    ]


def codes(rows: list[Example]) -> dict[str, str]:
    return {finding.code: finding.text for finding in check_choices("toy", rows)}


def test_nothing_is_said_of_balanced_choices() -> None:
    assert codes(examples()) == {}


def test_lengths_that_give_the_answer_away() -> None:
    longer = [
        replace(e, choices=tuple(c + " and more" * (k == e.answer and n % 2) for k, c in enumerate(e.choices)))
        for n, e in enumerate(examples())
    ]
    assert codes(longer) == {"choice-length": "the longest choice is right in 62.5%, guessing in 25.0%"}


def test_a_position_that_is_right_too_often() -> None:
    first = [replace(e, answer=0 if n % 2 else e.answer) for n, e in enumerate(examples())]
    assert codes(first) == {"choice-position": "choice 1 is right in 75.0%, by chance 25.0%"}


def test_a_prompt_that_holds_its_own_answer() -> None:
    rows = []
    for n, e in enumerate(examples()):
        shown = "q 7 word 007 3\n\n" if n < 20 else ""  # 7 is its own example, the others' examples are not theirs
        parts = [Choice(context=f"{shown}q {n}", continuation=f" {text}", text=text) for text in e.choices]
        rows.append(replace(e, fields={"question": f"q {n}"}, rendered=tuple(parts)))
    assert codes(rows) == {"choice-told": "1 of 200 prompts hold their own question with its answer, as an example"}
    gap = [Choice(context=f"The {t} was hot. So the {t}", continuation=" was hot.", text="") for t in ("cup", "tea")]
    filled = replace(rows[0], answer=1, choices=("So the cup", "The tea"), rendered=tuple(gap))
    assert "choice-told" in codes([filled])


def test_equal_choices() -> None:
    rows = examples()
    rows[0] = replace(rows[0], choices=("Same.", "same", "b", "c"))
    rows[1] = replace(rows[1], choices=("same", "right", "SAME", "c"))
    assert codes(rows) == {"choice-same": "2 of 200 examples have equal choices; in 1 one of them is right"}


def test_tokens_that_change_where_context_and_choice_meet(tiny_model: Path) -> None:
    tokenizer: Any = load_tokenizer(resolve_model("tiny-llama-untrained"))

    def found(context: str, *texts: str) -> list[str]:
        choices = tuple(Choice(context=context, continuation=text, text=text) for text in texts)
        prompts = PromptSet(name="toy", answers=(), prompts=(Prompt(id="1", text=context, gold=0, choices=choices),))
        return [finding.code for finding in check_choice_tokens(tokenizer, prompts, None, "toy")[1]]

    assert found("The answer is", " yes", " no") == []
    assert found("The answer i", "s it, and so it was", "s that, and so it was") == ["choice-joins"]
    assert found("The answer is " * 80, " yes", " no") == []
    long = "The answer is " * 80
    choices = (Choice(context=long, continuation="yes", text="yes"), Choice(context=long, continuation="no", text="no"))
    prompts = PromptSet(name="toy", answers=(), prompts=(Prompt(id="1", text=long, gold=0, choices=choices),))
    facts, findings = check_choice_tokens(tokenizer, prompts, 64, "toy")
    assert [f.code for f in findings] == ["prompt-shortened"]
    assert facts is not None
    assert (facts.max_tokens, facts.shortened) == (65, 1)
