from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oodles.errors import DataError
from oodles.patterns import render, sample
from oodles.records import Example, Pattern

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
