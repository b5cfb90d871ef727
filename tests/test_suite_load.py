from __future__ import annotations

from pathlib import Path

import pytest

from oodles.errors import ConfigError
from oodles.suite.load import list_suites, load_suite, pattern_of, select_test_sets, train_set_of


def test_built_in_suites_load() -> None:
    for name in list_suites():
        suite = load_suite(name)
        assert suite.name == name
        assert load_suite(suite) is suite
    assert "mini" in list_suites()


def test_mini_has_one_in_domain_set_and_seven_shifts() -> None:
    suite = load_suite("mini")
    assert list(suite.train_sets) == ["daily"]
    assert list(suite.test_sets) == [
        "daily",
        "genre",
        "science",
        "coreference",
        "overlap",
        "word_order",
        "news",
        "negation",
    ]
    assert suite.patterns["question"].text == "{premise} Question: {hypothesis} Yes or No?"
    assert suite.patterns["question"].answers == (" Yes", " No")


def test_your_own_toml_works_like_a_name(toy_suite: Path) -> None:
    suite = load_suite(toy_suite)
    assert suite.name == "toy"
    assert load_suite("toy.toml", folder=toy_suite.parent) == suite


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('" No"', '""', r"answer 1 is empty"),
        ('" No"', '"  "', r"answer 1 is empty"),
        ('" No"', '" Yes"', r"two answers are equal"),
        ('[" Yes", " No"]', '[" Yes"]', r"1 answers, expected at least 2"),
        ("{premise} Question", "{0} Question", r"field '0'"),
        ("{premise} Question", "{premise Question", r"cannot be read"),
        ('truncate = "premise"', 'truncate = "premis"', r"did you mean 'premise'"),
        ("labels = { e = 0, c = 1 }", "labels = { e = 0, c = 2 }", r"label 'c' is mapped to 2, expected 0 to 1"),
        ('drop = ["n"]', 'drop = ["e"]', r"label 'e' is both mapped and dropped"),
        ('source = { file = "home.csv" }', 'source = { split = "test" }', r"expected one of generator, file, hub"),
        ('name = "home"', 'naem = "home"', r"unknown key 'naem'; did you mean 'name'"),
        ('name = "away"', 'name = "a/b"', r"a name in test sets is 'a/b'"),
        ('name = "away"', 'name = "shots"', r"name 'shots' in test sets is kept for a run's own shots"),
        ('name = "away"', 'name = "away"\npattern = "questin"', r"did you mean 'question'"),
        ('name = "away"', 'name = "away"\nexpect = { x = 3 }', r"expect names label 'x'"),
        ('name = "away"', 'name = "away"\nlabel_names = { "0" = "x" }', r"neither mapped nor dropped"),
        ('{ file = "away.csv" }', '{ hub = "org/away" }', r"source has no split"),
        ("{premise} Question", "{premise!r} Question", r"field 'premise!r'; expected a plain name"),
        ("{premise} Question", "{premise} {premise} Question", r"which the text uses twice"),
        ('truncate = "premise"', "max_tokens = 0", r"max_tokens is 0, expected at least 1"),
        ('name = "away"', 'name = "far"', r"two test sets are named 'far'"),
    ],
)
def test_bad_suites_get_one_clear_line(toy_suite: Path, old: str, new: str, message: str) -> None:
    assert old in toy_suite.read_text()
    toy_suite.write_text(toy_suite.read_text().replace(old, new))
    with pytest.raises(ConfigError, match=message) as caught:
        load_suite(toy_suite)
    assert "\n" not in str(caught.value)


def test_unknown_names_offer_the_nearest() -> None:
    suite = load_suite("mini")
    with pytest.raises(ConfigError, match="did you mean 'mini'"):
        load_suite("mni")
    with pytest.raises(ConfigError, match="did you mean 'science'"):
        select_test_sets(suite, ("sience",))
    with pytest.raises(ConfigError, match="did you mean 'daily'"):
        train_set_of(suite, "dayly")
    with pytest.raises(ConfigError, match="did you mean 'question'"):
        pattern_of(suite, "questions")


def test_a_folder_with_data_must_exist(toy_suite: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"--data none: no such folder"):
        load_suite(toy_suite, data="none")
    monkeypatch.setenv("OODLES_DATA", "none")
    with pytest.raises(ConfigError, match=r"OODLES_DATA none: no such folder"):
        load_suite(toy_suite)
    assert load_suite(toy_suite, data=toy_suite.parent).data == str(toy_suite.parent)


def test_a_slice_stands_for_its_set() -> None:
    suite = load_suite("mini")
    assert [s.name for s in select_test_sets(suite, ("news/x", "daily", "news"))] == ["news", "daily"]
