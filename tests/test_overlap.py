"""Duplicates and overlaps: planted ones are all found, others are not, and the search equals comparing all pairs."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oodles.audit import overlap
from oodles.audit.overlap import Duplicate, Overlap, duplicates, normalise, overlaps, words
from oodles.contracts import Example
from oodles.errors import ConfigError
from oodles.suite import mini

CONSONANTS, VOWELS = "bdfgklmnprstv", "aeiou"


def examples(*texts: Sequence[str] | str, answer: int = 0, prefix: str = "") -> list[Example]:
    rows = [(text,) if isinstance(text, str) else text for text in texts]
    fields = ("premise", "hypothesis", "third")
    return [
        Example(id=f"{prefix}{i}", fields=dict(zip(fields, row, strict=False)), label=str(answer), answer=answer)
        for i, row in enumerate(rows)
    ]


def sentence(rng: Random, length: int) -> list[str]:
    return ["".join(rng.choice(CONSONANTS) + rng.choice(VOWELS) for _ in range(3)) for _ in range(length)]


def pairs(rng: Random, count: int, length: int = 20) -> list[tuple[str, str]]:
    """Unrelated sentence pairs: words are drawn from 274,625."""
    return [(" ".join(sentence(rng, length)), " ".join(sentence(rng, length // 2))) for _ in range(count)]


# normalise


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("  It’s\tFINE,\nreally... ", "it s fine really"),
        ("snake_case", "snake case"),
        ("ﬁne ＡＢＣ ① x²", "fine abc 1 x2"),
        ("Straße STRASSE", "strasse strasse"),
        ("İstanbul", "i̇stanbul"),
        ("cafe\u0301", "café"),
        ("हिन्दी, भाषा।", "हिन्दी भाषा"),
        ("שָׁלוֹם, עולם!", "שָׁלוֹם עולם"),
        ("\u202bمرحبا\u202c بالعالم؟", "مرحبا بالعالم"),
        ("日本語、テスト。", "日本語 テスト"),
        ("٣ 3", "٣ 3"),
        ("a\0b", "a b"),
        ("co\u00adoperate zero\u200bwidth", "cooperate zerowidth"),
        ("e\u200d\u0301", "é"),
        ("👍🏽 ok ❤️", "ok"),
        ("1\ufe0f\ufe0f 葛\U000e0100", "1 葛"),
        ("!!! — ??? \0 \ud800", ""),
        ("\u0301!", ""),
        ("", ""),
    ],
)
def test_normalise(text: str, expected: str) -> None:
    assert normalise(text) == unicodedata.normalize("NFKC", expected)


def test_every_character_is_kept_or_dropped_for_good() -> None:
    for code in range(sys.maxunicode + 1):
        character = chr(code)
        once = normalise(f"a {character} b")
        assert normalise(once) == once, hex(code)
        kept = any(unicodedata.category(c)[0] in "LN" for c in unicodedata.normalize("NFKC", character).casefold())
        assert (once != "a b") == kept, hex(code)


@given(st.text(max_size=12))
def test_normalise_is_stable(text: str) -> None:
    once = normalise(text)
    assert normalise(once) == once
    assert once == " ".join(once.split())
    assert all(unicodedata.category(character)[0] in "LNM" for character in once.replace(" ", ""))
    assert normalise(unicodedata.normalize("NFD", text)) == once
    assert normalise(f"  {text}! ") == once


def test_words_keep_what_is_asked_for() -> None:
    assert words("Don't, (stop)") == ["Don", "t", "stop"]
    assert words("Don't, (stop)", keep="'") == ["Don't", "stop"]


# duplicates


def test_duplicates_are_grouped_with_kind_and_conflict() -> None:
    rows = [
        *examples(("A dog.", "It barks."), ("a  DOG", "it barks!"), ("A dog.", "It sleeps."), prefix="x"),
        *examples(("A dog.", "It barks."), ("A cat.", "It purrs."), ("A cat.", "It purrs."), answer=1, prefix="y"),
    ]
    assert duplicates(rows) == (
        Duplicate(ids=("x0", "x1", "y0"), kind="normalised", conflict=True),
        Duplicate(ids=("y1", "y2"), kind="exact", conflict=False),
    )


def test_texts_without_words_are_compared_as_they_are() -> None:
    texts = ["!!!", "???", "", " ", "🙂", "🙃", "❤️", "💔️", "\0", "\0\0", "...", "…"]
    assert duplicates(examples(*texts)) == ()
    assert [d.ids for d in duplicates(examples(*texts, *texts))] == [(str(i), str(i + 12)) for i in range(12)]
    same = [
        *examples(("A dog.", "!!!")),
        *examples(("a dog", "!!!"), prefix="n"),
        *examples(("a dog", "?"), prefix="o"),
    ]
    assert duplicates(same) == (Duplicate(ids=("0", "n0"), kind="normalised", conflict=False),)


def test_fields_do_not_run_into_each_other() -> None:
    assert duplicates(examples(("a b", "c"), ("a", "b c"), ("a", "b", "c"), "a b c")) == ()


def test_field_names_do_not_matter_but_their_order_does() -> None:
    first = Example(id="1", fields={"premise": "one", "hypothesis": "two"}, label="e", answer=0)
    second = Example(id="2", fields={"sentence2": "one", "sentence1": "two"}, label="e", answer=0)
    third = Example(id="3", fields={"sentence1": "one", "sentence2": "two"}, label="e", answer=0)
    assert [d.ids for d in duplicates([first, second, third])] == [("1", "2")]
    assert [o.test_id for o in overlaps([first], {"t": [second, third]}, each_field=0.9)] == ["2"]


def test_the_mini_suite_has_no_duplicates_and_no_overlap() -> None:
    rows = {name: mini.generate(name) for name in mini.SETS}
    tests = {
        name: [
            Example(id=r["id"], fields={"p": r["premise"], "h": r["hypothesis"]}, label=r["label"], answer=0)
            for r in rows[name]
        ]
        for name in rows
    }
    train = [
        Example(id=r["id"], fields={"p": r["premise"], "h": r["hypothesis"]}, label=r["label"], answer=0)
        for r in mini.generate("daily", "train")
    ]
    assert [duplicates(test) for test in tests.values()] == [()] * len(tests)
    assert [o for o in overlaps(train, tests) if o.kind != "near"] == []


# overlaps


def test_twenty_planted_copies_are_all_found() -> None:
    rng = Random(0)
    test, train = examples(*pairs(rng, 500)), examples(*pairs(rng, 2000), prefix="train")
    for k in range(20):
        premise, hypothesis = test[25 * k].fields["premise"], test[25 * k].fields["hypothesis"]
        changed = {"premise": f"  {premise.title()}!", "hypothesis": hypothesis.upper().replace(" ", ",  ")}
        train[97 * k] = Example(id=f"copy{k}", fields=changed, label="1", answer=k % 2)
    assert overlaps(train, {"t": test}) == tuple(
        Overlap(
            test_set="t",
            train_id=f"copy{k}",
            test_id=str(25 * k),
            kind="normalised",
            similarity=1.0,
            conflict=k % 2 == 1,
        )
        for k in range(20)
    )


@pytest.mark.parametrize("place", [0, 20, 39])
def test_one_changed_word_in_a_long_text_is_near(place: int) -> None:
    rng = Random(1)
    long = sentence(rng, 40)
    changed = [*long[:place], "different", *long[place + 1 :]]
    (found,) = overlaps(examples(" ".join(long)), {"t": examples(*pairs(rng, 50), " ".join(changed), prefix="t")})
    lost = min(place, 2, 39 - place) + 1  # 3-grams with the changed word
    assert (found.kind, found.test_id) == ("near", "t50")
    assert found.similarity == (38 - lost) / (38 + lost)
    (copied,) = overlaps(examples(" ".join(long)), {"t": examples(" ".join(long))})
    assert (copied.kind, copied.similarity) == ("exact", 1.0)


def test_unrelated_texts_are_not_found() -> None:
    rng = Random(2)
    train, test = examples(*pairs(rng, 1000, 8)), examples(*pairs(rng, 1000, 8))
    assert overlaps(train, {"t": test}) == ()
    assert overlaps(train, {"t": test}, near=0.05, each_field=0.0) == ()
    assert overlaps([], {"t": test}) == overlaps(train, {"t": []}) == overlaps(train, {}) == ()


def test_a_shared_premise_alone_is_not_near() -> None:
    """From RTE, where the two have different answers: all 3-grams of both hypotheses are in the premise."""
    premise = "A male rabbit is called a buck and a female rabbit is called a doe, just like deer."
    buck = examples((premise, "A female rabbit is called a buck."), answer=1)
    doe = examples((premise, "A female rabbit is called a doe."))
    (found,) = overlaps(buck, {"rte": doe}, each_field=0.0)
    assert (found.kind, found.similarity, found.conflict) == ("near", 1.0, True)
    assert overlaps(buck, {"rte": doe}) == ()
    swapped = examples(("The judge saw the actor.", "The actor saw the judge."))
    back = examples(("The actor saw the judge.", "The judge saw the actor."))
    assert overlaps(swapped, {"hans": back}, each_field=0.0)[0].similarity == 1.0
    assert overlaps(swapped, {"hans": back}) == ()


@pytest.mark.parametrize("chunk", [10_000, 2])
def test_the_best_kind_then_the_most_similar_then_the_first_is_told(
    chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overlap, "CHUNK", chunk)
    base = "the quick brown fox jumps over the lazy dog near the old mill today"
    train = examples(
        base + " and now", base + " again", base + " again", base.upper(), base.title(), base, base, "other words"
    )
    test = {"one": examples(base, base + " again!", base + " once", prefix="a"), "two": examples(base, prefix="b")}
    assert [(o.test_set, o.test_id, o.train_id, o.kind) for o in overlaps(train, test)] == [
        ("one", "a0", "5", "exact"),
        ("one", "a1", "1", "normalised"),
        ("one", "a2", "3", "near"),
        ("two", "b0", "5", "exact"),
    ]


def test_strange_texts() -> None:
    strange = [
        "",
        " ",
        "!!!",
        "???",
        "🙂",
        "🙃🙃 🙃🙃",
        "\0",
        "\ud800",
        "שלום עולם",
        "\u202eabc",
        "हिन्दी",
        "a\0b",
        "x" * 70_000,
    ]
    found = overlaps(examples(*strange), {"t": examples(*strange)})
    assert [(o.train_id, o.test_id, o.kind) for o in found] == [(str(i), str(i), "exact") for i in range(len(strange))]
    others = ["  ", "!!", "?", "😀", "🙃🙃🙃 🙃", "\0\0", "\udfff", "שלום", "cba", "हिन्दि", "b\0a", "x" * 69_999]
    assert overlaps(examples(*strange), {"t": examples(*others)}, near=0.01, each_field=0.0) == ()
    (hebrew,) = overlaps(examples("שלום, עולם!"), {"t": examples("שלום עולם")})
    assert hebrew.kind == "normalised"
    assert overlaps(examples(()), {"t": examples(())})[0].kind == "exact"  # no fields at all
    assert overlaps(examples(("", "a b c d")), {"t": examples(("", "x y z"))}, near=0.01, each_field=0.0) == ()


@pytest.mark.parametrize(
    "wrong", [{"near": 0.0}, {"near": 1.1}, {"near": float("nan")}, {"ngram": 0}, {"each_field": 2}]
)
def test_senseless_thresholds_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=f"{next(iter(wrong))} is .*, expected"):
        overlaps([], {}, **wrong)  # type: ignore[arg-type]


def all_pairs(
    train: list[Example], tests: dict[str, list[Example]], near: float, ngram: int, each_field: float
) -> list[Overlap]:
    """Compare everything with everything, as one would write it down."""

    def grams(text: str) -> set[str]:
        found = normalise(text).split()
        if len(found) < ngram:
            return {normalise(text) or text} - {""}
        return {" ".join(found[k : k + ngram]) for k in range(len(found) - ngram + 1)}

    def jaccard(a: set[str], b: set[str]) -> float:
        return len(a & b) / len(a | b) if a | b else 1.0

    def compare(x: Example, y: Example) -> tuple[str, float] | None:
        a, b = ([e.fields[name] for name in sorted(e.fields)] for e in (x, y))
        if a == b:
            return "exact", 1.0
        if [normalise(text) or text for text in a] == [normalise(text) or text for text in b]:
            return "normalised", 1.0
        similarity = jaccard(set().union(*map(grams, a)), set().union(*map(grams, b))) if any(a) or any(b) else 0.0
        alike = len(a) == len(b) and all(jaccard(grams(s), grams(t)) >= each_field for s, t in zip(a, b, strict=True))
        return ("near", similarity) if similarity >= near and (alike or each_field == 0) else None

    found = []
    for name, rows in tests.items():
        for y in rows:
            matches = [(compare(x, y), x) for x in train]
            ranked = [(["exact", "normalised", "near"].index(m[0]), -m[1], m, x) for m, x in matches if m is not None]
            if ranked:
                _, _, (kind, similarity), x = min(ranked, key=lambda r: r[:2])  # the first among equals
                conflict = x.answer != y.answer
                found.append(
                    Overlap(
                        test_set=name,
                        train_id=x.id,
                        test_id=y.id,
                        kind=kind,  # type: ignore[arg-type]
                        similarity=similarity,
                        conflict=conflict,
                    )
                )
    return found


text = st.one_of(
    st.lists(st.sampled_from(["a", "b", "c", "d", "A", "d!", "ü"]), max_size=9).map(" ".join),
    st.sampled_from(["", "!", "?", "🙂"]),
)
corpus = st.lists(st.tuples(st.lists(text, max_size=3), st.integers(0, 1)), max_size=14).map(
    lambda rows: [examples(tuple(fields), answer=answer, prefix=f"{i}-")[0] for i, (fields, answer) in enumerate(rows)]
)
threshold = st.one_of(st.sampled_from([0.07, 0.2, 0.25, 1 / 3, 0.5, 0.6, 2 / 3, 0.7, 0.8, 1.0]), st.floats(0.01, 1.0))


@settings(max_examples=400, deadline=None)
@given(corpus, corpus, corpus, threshold, st.integers(1, 4), st.one_of(st.just(0.0), threshold))
def test_the_search_equals_comparing_all_pairs(
    train: list[Example], one: list[Example], two: list[Example], near: float, ngram: int, each_field: float
) -> None:
    tests = {"one": one, "two": two}
    expected = all_pairs(train, tests, near, ngram, each_field)
    with pytest.MonkeyPatch.context() as patch:
        for chunk, budget in ((overlap.CHUNK, overlap.BUDGET), (3, 5)):  # the same in many small portions
            patch.setattr(overlap, "CHUNK", chunk)
            patch.setattr(overlap, "BUDGET", budget)
            assert list(overlaps(train, tests, near=near, ngram=ngram, each_field=each_field)) == expected


@pytest.mark.parametrize("near", [0.3, 0.5, 0.8])
def test_the_search_equals_comparing_all_pairs_of_templates(near: float) -> None:
    """Many pairs at every similarity: sentences of one template with few fillers."""
    rng = Random(3)
    people = ["judge", "actor", "doctor", "author"]

    def row() -> tuple[str, str]:
        a, b, c = rng.choices(people, k=3)
        return f"The {a} near the {b} saw the {c} who slept.", f"The {rng.choice([a, b])} saw the {rng.choice([b, c])}."

    train, tests = examples(*(row() for _ in range(120))), {"t": examples(*(row() for _ in range(120)))}
    for each_field in (0.0, 0.7):
        expected = all_pairs(train, tests, near, 3, each_field)
        assert list(overlaps(train, tests, near=near, each_field=each_field)) == expected
        assert near > 0.5 or each_field > 0 or {o.kind for o in expected} == {"exact", "near"}
