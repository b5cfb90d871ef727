from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oodles.contracts import Example, Pattern
from oodles.errors import DataError, OodlesError
from oodles.suite.patterns import render, sample

PATTERN = Pattern(
    name="q", text="{premise} Question: {hypothesis} Yes or No?", answers=(" Yes", " No"), truncate="premise"
)


def example(index: int, label: str = "e", kind: str = "k", premise: str = "P.") -> Example:
    fields = {"premise": premise, "hypothesis": f"H{index}."}
    return Example(id=str(index), fields=fields, label=label, answer=int(label != "e"), slices={"kind": kind})


@given(st.text(), st.text())
def test_texts_are_rendered_verbatim(premise: str, hypothesis: str) -> None:
    one = Example(id="1", fields={"premise": premise, "hypothesis": hypothesis}, label="e", answer=0)
    assert render(PATTERN, [one], "t").prompts[0].text == f"{premise} Question: {hypothesis} Yes or No?"


def test_a_missing_field_names_the_example() -> None:
    one = Example(id="7", fields={"premise": "P.", "hypotesis": "H."}, label="e", answer=0)
    with pytest.raises(DataError, match=r"example 7 has no field 'hypothesis'.*did you mean 'hypotesis'"):
        render(PATTERN, [one], "t")


def rows(n: int = 120) -> list[Example]:
    """Three quarters e, slices in proportion 2:1, two examples per premise."""
    return [example(i, "e" if i % 4 else "c", "k" if i % 3 else "l", f"Premise {i // 2}.") for i in range(n)]


def test_a_sample_keeps_the_proportions_and_the_order() -> None:
    chosen = sample(rows(), 40, "premise")
    assert len(chosen) == 40
    assert Counter(e.label for e in chosen) == {"e": 30, "c": 10}
    assert abs(Counter(e.slices["kind"] for e in chosen)["k"] - 40 * 2 / 3) <= 1
    ids = [int(e.id) for e in chosen]
    assert ids == sorted(ids)


def test_a_larger_sample_contains_the_smaller() -> None:
    previous: set[str] = set()
    for limit in range(1, 121):
        chosen = {e.id for e in sample(rows(), limit, "premise")}
        assert len(chosen) == limit
        assert previous <= chosen
        previous = chosen


def test_a_sample_does_not_depend_on_the_order_of_the_rows() -> None:
    assert {e.id for e in sample(rows()[::-1], 30, "premise")} == {e.id for e in sample(rows(), 30, "premise")}


def test_examples_of_one_premise_are_drawn_together() -> None:
    pairs = [example(2 * i + k, "ec"[k], "k", f"Premise {i}.") for i in range(100) for k in (0, 1)]
    counts = Counter(e.fields["premise"] for e in sample(pairs, 40, "premise"))
    assert set(counts.values()) == {2}


def test_a_limit_above_the_size_keeps_all() -> None:
    assert len(sample(rows(10), 50, "premise")) == 10
    assert render(PATTERN, rows(10), "t", limit=4).limit == 4


# a function in place of a pattern, and what may be shortened


def shout(fields: Mapping[str, str]) -> str:
    return f"{fields['premise']}!! {fields['hypothesis'].upper()} True or False?"


def test_a_function_writes_the_prompt_and_its_field_is_found() -> None:
    pattern = Pattern(name="f", text=shout, answers=(" True", " False"), truncate="premise")
    prompt = render(pattern, [example(1)], "t").prompts[0]
    assert prompt.text == "P.!! H1. True or False?"
    assert prompt.cut == (0, 2)
    changed = replace(pattern, truncate="hypothesis")  # the function changes this field, so it cannot be shortened
    assert render(changed, [example(1)], "t").prompts[0].cut is None


def test_a_function_that_fails_names_the_example() -> None:
    broken = Pattern(name="f", text=lambda fields: fields["premis"], answers=(" a", " b"))
    with pytest.raises(DataError, match=r"t: pattern 'f' failed on example 1 \(KeyError: 'premis'\)"):
        render(broken, [example(1)], "t")
    silent = Pattern(name="f", text=lambda _: None, answers=(" a", " b"))  # type: ignore[arg-type,return-value]
    with pytest.raises(DataError, match="gave NoneType on example 1, expected a text"):
        render(silent, [example(1)], "t")


def test_functions_are_known_by_name_and_source() -> None:
    one = Pattern(name="f", text=shout, answers=(" a", " b"))
    assert one.identity[0].startswith(f"function {__name__}.shout ")
    other = Pattern(name="f", text=lambda _: "x", answers=(" a", " b"))
    assert one.identity != other.identity


def test_a_label_without_an_answer_is_refused() -> None:
    three = Example(id="1", fields={"premise": "P.", "hypothesis": "H."}, label="n", answer=2)
    with pytest.raises(DataError, match="label 'n' is answer number 2, pattern 'q' has 2"):
        render(PATTERN, [three], "t")


@given(st.text(), st.text())
def test_the_cut_is_the_field(premise: str, hypothesis: str) -> None:
    one = Example(id="1", fields={"premise": premise, "hypothesis": hypothesis}, label="e", answer=0)
    prompt = render(PATTERN, [one], "t").prompts[0]
    assert prompt.cut is not None
    assert prompt.text[slice(*prompt.cut)] == premise


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_braces_in_a_pattern_are_written_twice(text: str) -> None:
    written = text.replace("{", "{{").replace("}", "}}")
    pattern = Pattern(name="q", text=written + "{premise}", answers=(" Yes", " No"))
    assert render(pattern, [example(1)], "t").prompts[0].text == text + "P."


@given(st.text(st.sampled_from("{}ab!:0. "), max_size=12))
def test_any_pattern_renders_or_is_refused_in_one_line(text: str) -> None:
    refusal = ""
    try:
        render(Pattern(name="q", text=text, answers=(" Yes", " No")), [example(1)], "t")
    except OodlesError as error:
        refusal = str(error)
    assert "\n" not in refusal
