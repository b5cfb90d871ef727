"""The single checks of the audit; `test_audit.py` plants faults in whole suites."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from oodles.audit.checks import (
    CODES,
    Finding,
    check_answers,
    check_labels,
    check_overlap,
    check_padding,
    check_pins,
    check_sets,
    check_spaces,
    check_texts,
)
from oodles.audit.pins import pins_of
from oodles.contracts import DataSet, Draw, Example, Prompt, PromptSet, Source
from oodles.model.embedded import tiny_tokenizer
from oodles.suite.sources import Origin

DATA = DataSet(name="away", source=Source(file="away.csv"), labels={"e": 0, "c": 1})
ROWS = [
    Example(
        id=str(i), fields={"premise": f"Somebody sits on chair {i} now.", "hypothesis": "A chair."}, label=x, answer=a
    )
    for i, (x, a) in enumerate([("e", 0), ("c", 1)] * 3)
]
ORIGIN = Origin(origin="away.csv", revision=None, counts={"e": 3, "c": 3}, class_names=())


def codes(findings: Iterable[Finding]) -> list[str]:
    return [finding.code for finding in findings if CODES[finding.code].severity != "note"]


def texts(findings: Iterable[Finding]) -> str:
    return "\n".join(finding.text for finding in findings)


def test_labels_that_are_as_declared_have_only_a_balance() -> None:
    (balance,) = check_labels(replace(DATA, expect={"e": 3, "c": 3}, chance=0.5), "test", ORIGIN, ROWS)
    assert (balance.code, balance.text) == ("balance", "e 50.0%, c 50.0%; chance 0.500")


def test_labels_that_differ_from_the_suite_are_named() -> None:
    data = replace(DATA, labels={"e": 0, "c": 1, "x": 1}, expect={"e": 4}, chance=0.6)
    assert codes(check_labels(data, "test", ORIGIN, ROWS)) == ["label-absent", "count-differs", "chance-differs"]
    assert codes(check_labels(data, "train", ORIGIN, ROWS)) == ["label-absent", "train-differs"]  # perhaps a sample
    assert "e: 3 rows, expected 4" in texts(check_labels(data, "test", ORIGIN, ROWS))
    same = [replace(row, answer=1) for row in ROWS]
    assert codes(check_labels(DATA, "test", ORIGIN, same)) == ["one-answer"]


def test_class_names_of_the_file_are_compared_by_their_words() -> None:
    data = replace(DATA, label_names={"0": "e", "1": "c"})
    agrees = replace(ORIGIN, class_names=("E.", "c"))
    assert "label-names" not in codes(check_labels(data, "test", agrees, ROWS))
    swapped = replace(ORIGIN, class_names=("c", "e"))
    assert "label 0 is 'c' in the file, 'e' in the suite" in texts(check_labels(data, "test", swapped, ROWS))
    numbers = replace(ORIGIN, class_names=("0", "1"))
    assert "label-names" not in codes(check_labels(data, "test", numbers, ROWS))


def test_rows_that_differ_from_their_pins() -> None:
    assert codes(check_pins(DATA, ROWS, pins_of(ROWS))) == []
    other = [replace(ROWS[0], answer=1), *ROWS[1:]]
    assert codes(check_pins(DATA, other, pins_of(ROWS))) == ["label-differs"]
    assert "rows-differ" in codes(check_pins(DATA, ROWS[1:], pins_of(ROWS)))


def test_empty_damaged_and_repeated_texts() -> None:
    assert codes(check_texts(DATA, "test", ROWS)) == []
    empty = replace(ROWS[0], fields={"premise": " ", "hypothesis": "h"})
    damaged = replace(ROWS[1], fields={"premise": "caf\ufffd", "hypothesis": "h"})
    twice = replace(ROWS[2], id="twice", answer=1)
    findings = list(check_texts(DATA, "test", [empty, damaged, *ROWS[2:], twice]))
    assert codes(findings) == ["field-empty", "text-damaged", "duplicate", "duplicate-conflict"]
    assert findings[0].items == ("id 0: premise",)
    assert findings[2].text.startswith("1 example occurs more than once (1 exactly, 0 up to case")


def test_sets_that_share_rows() -> None:
    other = [replace(row, fields={"premise": f"far {row.id}", "hypothesis": "h"}) for row in ROWS]
    assert codes(check_sets({"a": ROWS, "b": other})) == []
    assert codes(check_sets({"a": ROWS, "b": ROWS})) == ["same-rows"]
    assert codes(check_sets({"a": ROWS, "b": [*other, ROWS[0]]})) == ["rows-shared"]


def test_a_drawn_shot_in_a_test_set_is_worse_than_its_split() -> None:
    train = [
        replace(ROWS[0], id="t0"),
        Example(id="t1", fields={"premise": "else", "hypothesis": "x"}, label="e", answer=0),
    ]
    tests = {"away": ROWS}
    clean = Draw(train_set="home", shots=1, data_seed=3, examples=(train[1],))
    assert codes(check_overlap("home", train, tests, [clean])) == ["train-in-test"]
    leak = Draw(train_set="home", shots=1, data_seed=4, examples=(train[0],))
    findings = list(check_overlap("home", train, tests, [clean, leak]))
    assert codes(findings) == ["train-in-test", "shots-in-test"]
    assert findings[1].text.endswith("(1 shots, data seed 4)")


def prompts(end: str, *answers: str, chat: bool = False) -> PromptSet:
    return PromptSet(name="t", answers=answers, prompts=(Prompt(id="0", text=f"A question{end}", gold=0),), chat=chat)


def test_one_space_stands_between_prompt_and_answer() -> None:
    assert codes(check_spaces(prompts("?", " Yes", " No"), "t")) == []
    assert codes(check_spaces(prompts("? ", "Yes", "No"), "t")) == []
    assert codes(check_spaces(prompts("?", "Yes", " No"), "t")) == ["answer-space"]
    assert codes(check_spaces(prompts("? ", " Yes", "No"), "t")) == ["answer-space"]
    assert codes(check_spaces(prompts("?", "Yes", " No", chat=True), "t")) == ["answer-space"]


def test_answers_as_the_tokenizer_has_them() -> None:
    tokenizer = tiny_tokenizer()
    assert codes(check_answers(tokenizer, prompts("?", " Yes", " No"), "t")) == []
    several = list(check_answers(tokenizer, prompts("?", " Zyzzyva", " No"), "t"))
    assert codes(several) == ["answer-tokens"]
    assert "answer-same" in codes(check_answers(tokenizer, prompts("?", " Yes", " Yes"), "t"))


def test_the_note_on_padding_says_what_comes_before_a_prompt() -> None:
    tokenizer = tiny_tokenizer()
    assert "nothing is put before a prompt" in check_padding(tokenizer, False, "t").text
    tokenizer.padding_side = "left"
    assert "the tokenizer pads on the left, oodles on the right" in check_padding(tokenizer, True, "t").text
