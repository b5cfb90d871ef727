"""What the suite `opinions` promises: twins that differ only at the end, no leaks, words that decide or mislead."""

import csv
import json
import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from functools import cache
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

from oodles.suite import opinions
from oodles.suite.generated import normalise
from oodles.suite.load import load_suite
from oodles.suite.opinions.templates import BAD, GOOD, polarity

SEEDS = (0, 1, 2)
PARTS = tuple((name, split) for name, spec in opinions.SETS.items() for split in spec.splits)
HELPS = ("restaurants", "gadgets")
MISLEADS = ("rival_restaurants", "rival_gadgets", "negation", "concession")
RIVALS = ("rivals", "others")  # the templates of `films` in which the words are about other films
GOLDEN = Path(__file__).parent / "golden"
PAGE = Path(__file__).parents[1] / "docs" / "opinions.md"

Rows = list[dict[str, str]]


@cache
def _rows(name: str, split: str, seed: int) -> Rows:
    return opinions.generate(name, split, seed)


def _text(row: dict[str, str]) -> str:
    return f"{row['opening']} {row['ending']}"


def test_names_and_labels_are_fixed() -> None:
    assert tuple(opinions.SETS) == ("films", *HELPS, *MISLEADS)
    assert opinions.SETS["films"].splits == ("train", "test")
    assert {spec.labels for spec in opinions.SETS.values()} == {("liked", "disliked")}
    assert list(load_suite("opinions").test_sets) == list(opinions.SETS)


def test_the_sets_are_listed_in_columns() -> None:
    done = subprocess.run([sys.executable, "-m", "oodles.suite.opinions"], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    starts = {line.index(spec.shift) for line, spec in zip(lines, opinions.SETS.values(), strict=True)}
    assert len(starts) == 1


@pytest.mark.parametrize(("name", "split"), PARTS)
@pytest.mark.parametrize("seed", SEEDS)
def test_every_opening_has_one_ending_per_label(name: str, split: str, seed: int) -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for row in _rows(name, split, seed):
        found[normalise(row["opening"])].append(row["label"])
    assert len(found) == opinions.OPENINGS[split]
    assert all(sorted(labels) == ["disliked", "liked"] for labels in found.values())


@pytest.mark.parametrize(("name", "split"), PARTS)
@pytest.mark.parametrize("seed", SEEDS)
def test_rows_are_complete_and_distinct(name: str, split: str, seed: int) -> None:
    rows = _rows(name, split, seed)
    assert len({normalise(_text(row)) for row in rows}) == len(rows)
    assert [row["id"] for row in rows] == [f"{name}-{split}-{i:05d}" for i in range(len(rows))]
    assert all(list(row) == ["id", "opening", "ending", "label", "template"] for row in rows)
    assert {row["template"] for row in rows} == set(opinions.SETS[name].templates)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_text_is_shared_between_sets(seed: int) -> None:
    parts = [{normalise(_text(row)) for row in _rows(name, split, seed)} for name, split in PARTS]
    assert len(set().union(*parts)) == sum(len(part) for part in parts)


@pytest.mark.parametrize("train_seed", SEEDS)
@pytest.mark.parametrize("test_seed", SEEDS)
def test_no_opening_is_shared_between_train_and_test(train_seed: int, test_seed: int) -> None:
    train, test = _rows("films", "train", train_seed), _rows("films", "test", test_seed)
    assert not {normalise(row["opening"]) for row in train} & {normalise(row["opening"]) for row in test}


@pytest.mark.parametrize(("name", "split"), PARTS)
def test_seeds_decide_the_rows(name: str, split: str) -> None:
    assert opinions.generate(name, split, 0) == _rows(name, split, 0)
    assert _rows(name, split, 0) != _rows(name, split, 1)


def test_rows_do_not_depend_on_the_hash_seed() -> None:
    code = "import json; from oodles.suite import opinions as o; print(json.dumps({n: o.generate(n) for n in o.SETS}))"
    paths = os.pathsep.join(path for path in sys.path if path)
    environment = {**os.environ, "PYTHONHASHSEED": "77", "PYTHONPATH": paths}
    output = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert json.loads(output.stdout) == {name: _rows(name, "test", 0) for name in opinions.SETS}


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"opinions: unknown set 'film'; known: films, .*concession$"):
        opinions.generate("film")
    with pytest.raises(ValueError, match=r"set 'negation' has no split 'train'; known: test$"):
        opinions.generate("negation", "train")


@pytest.mark.parametrize(("name", "split"), PARTS)
@pytest.mark.parametrize("seed", SEEDS)
def test_counting_words_is_right_or_wrong_as_told(name: str, split: str, seed: int) -> None:
    """The shortcut is right of every row of a template or wrong of every row; in `films` it is right of two thirds."""
    right = []
    for row in _rows(name, split, seed):
        count = polarity(row["ending"])
        assert count != 0, row
        assert polarity(row["opening"]) == 0, row
        right.append((count > 0) == (row["label"] == "liked"))
        assert right[-1] == (name in HELPS or (name == "films" and row["template"] not in RIVALS)), row
    if name == "films":
        assert abs(sum(right) / len(right) - 2 / 3) < 0.02


@pytest.mark.parametrize("name", opinions.SETS)
def test_without_polar_words_the_endings_are_alike(name: str) -> None:
    """Apart from the polar words (and, in `concession`, what the writer did) no word leans to a label."""
    if name == "concession":
        return
    rng, counts = Random(f"balance {name}"), {True: Counter[str](), False: Counter[str]()}
    for template in opinions.SETS[name].templates.values():
        for _ in range(300):
            item = template(rng)
            for liked, ending in ((True, item.yes), (False, item.no)):
                words = re.findall(r"[a-z]+", ending.lower())
                counts[liked].update(set(words) - GOOD - BAD - {"a", "an", "of", "time"})
    assert counts[True] == counts[False]


def test_the_shortcut_counts_negated_words_too() -> None:
    assert polarity("The plot was not bad at all.") == -1
    assert polarity("It was a masterpiece, but I disagree.") == 1
    assert not GOOD & BAD


@pytest.mark.parametrize(("name", "split"), PARTS)
@pytest.mark.parametrize("seed", SEEDS)
def test_texts_look_like_sentences(name: str, split: str, seed: int) -> None:
    for text in map(_text, _rows(name, split, seed)):
        assert re.fullmatch(r"[A-Z][A-Za-z ,.-]*[a-z]\.", text), text
        assert "  " not in text
        assert not re.search(r"\b[Aa] [AEIOaeio]", text), text
        assert not re.search(r"\b[Aa]n [^AEIOaeiou]", text), text
        assert not re.search(r"\b(\w+) \1\b", text), text


@pytest.mark.parametrize(("name", "split"), PARTS)
def test_prompts_have_few_tokens(name: str, split: str, smollm2_tokenizer: Any) -> None:
    pattern = load_suite("opinions").patterns["question"]
    for row in _rows(name, split, 0):
        prompt = str(pattern.text).format(**row)
        assert 18 <= len(smollm2_tokenizer(prompt)["input_ids"]) <= 34, prompt


def test_the_page_tells_the_sizes(smollm2_tokenizer: Any) -> None:
    page, text = PAGE.read_text(), str(load_suite("opinions").patterns["question"].text)
    for name, spec in opinions.SETS.items():
        prompts = [text.format(**row) for seed in SEEDS for row in _rows(name, "test", seed)]
        lengths = [len(ids) for ids in smollm2_tokenizer(prompts)["input_ids"]]
        assert f"| `{name}` | {len(spec.templates)} | {min(lengths)}-{max(lengths)} |" in page


def test_twins_share_their_beginning(smollm2_tokenizer: Any) -> None:
    """So that scoring computes it once: at least half of each text's tokens, on average, in every set."""
    for name in opinions.SETS:
        rows = sorted(_rows(name, "test", 0), key=lambda row: row["opening"])
        opening, whole = (
            sum(len(smollm2_tokenizer(text)["input_ids"]) for text in texts)
            for texts in ([row["opening"] for row in rows], [_text(row) for row in rows])
        )
        assert opening >= whole / 2, name
        assert all(one["opening"] == other["opening"] for one, other in list(pairwise(rows))[::2])


def judgements() -> list[dict[str, str]]:
    with (GOLDEN / "opinions_judgements.csv").open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def test_the_blind_reading_is_current() -> None:
    """A reading counts only for the rows that the generator gives today."""
    found = [{key: row[key] for key in ("set", "id", "text")} for row in judgements()]
    assert found == opinions.judgement_sample(0)


@pytest.mark.parametrize("name", opinions.SETS)
def test_a_blind_reader_agrees_with_the_labels(name: str) -> None:
    labels = {row["id"]: row["label"] for row in _rows(name, "test", 0)}
    judged = [row for row in judgements() if row["set"] == name]
    agreed = [(labels[row["id"]] == "liked") == (row["answer"] == "Yes") for row in judged]
    assert len(agreed) == 50
    assert sum(agreed) / len(agreed) >= 0.98


def test_the_sample_for_blind_readers_hides_the_label() -> None:
    sample = opinions.judgement_sample(0)
    assert Counter(row["set"] for row in sample) == dict.fromkeys(opinions.SETS, 50)
    assert all(list(row) == ["set", "id", "text"] for row in sample)
    labels = {row["id"]: row["label"] for name in opinions.SETS for row in _rows(name, "test", 0)}
    assert 0.4 < sum(labels[row["id"]] == "liked" for row in sample) / len(sample) < 0.6
