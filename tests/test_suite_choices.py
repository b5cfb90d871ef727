"""Answers per example: how a suite declares them, how they are rendered, and that fixed answers stay as they were."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from conftest import oodles
from oodles.contracts import Evaluation, Lora, ModelSpec, Pattern, PromptSet, Recipe, RunSpec, Suite, content_hash
from oodles.errors import ConfigError, DataError
from oodles.store.spec import StoredSpec
from oodles.suite.choices import chance_of
from oodles.suite.draw import draw
from oodles.suite.load import load_suite, pattern_for, pattern_of
from oodles.suite.patterns import render
from oodles.suite.render import render_sets
from oodles.suite.sources import load_examples, load_origin, set_hash

HEAD = 'schema = 1\nname = "own"\n'
LISTED = """
[patterns.goal]
text = "Question: {goal}\\nAnswer:"

[[test_sets]]
name = "howto"
source = { file = "howto.jsonl" }
choices = ["sol1", "sol2", "sol3"]
columns = { goal = "goal", label = "label" }
"""
ROWS = [
    {"goal": "cool soup", "sol1": "Blow on it.", "sol2": "Boil it.", "sol3": "", "label": 0},
    {"goal": "dry shoes", "sol1": "Wash them.", "sol2": "Drown them.", "sol3": "Wait – a bit.", "label": 2},
]


def own_suite(folder: Path, text: str, **files: list[dict[str, Any]]) -> Suite:
    for name, rows in files.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "own.toml").write_text(HEAD + text)
    return load_suite(folder / "own.toml")


def rendered(suite: Suite, name: str) -> PromptSet:
    data = suite.test_sets[name]
    pattern = pattern_for(suite, data, pattern_of(suite, ""))
    return render(pattern, load_examples(suite, data), name)


def pairs(prompts: PromptSet, number: int) -> list[tuple[str, str]]:
    return [(choice.context, choice.continuation) for choice in prompts.prompts[number].choices]


# what a suite may declare


def test_columns_of_choices_any_number_of_them(tmp_path: Path) -> None:
    suite = own_suite(tmp_path, LISTED, howto=ROWS)
    prompts = rendered(suite, "howto")
    assert pairs(prompts, 0) == [
        ("Question: cool soup\nAnswer:", " Blow on it."),
        ("Question: cool soup\nAnswer:", " Boil it."),
    ]
    assert [c.text for c in prompts.prompts[1].choices] == ["Wash them.", "Drown them.", "Wait – a bit."]
    assert [p.gold for p in prompts.prompts] == [0, 2]
    assert prompts.prompts[0].text == "Question: cool soup\nAnswer:"
    assert not prompts.common_answers
    assert [e.label for e in load_examples(suite, suite.test_sets["howto"])] == ["1", "3"]
    assert load_origin(suite, suite.test_sets["howto"]).counts == {"rows": 2}


def test_a_list_of_choices_and_names_of_them(tmp_path: Path) -> None:
    """The layout of ARC: letters in some rows, numbers in others, and 3 to 5 choices."""
    rows = [
        {"question": "Which is a metal?", "choices": {"text": ["iron", "wood"], "label": ["A", "B"]}, "key": "A"},
        {"question": "Who barks?", "choices": {"text": ["cats", "cows", "dogs"], "label": ["1", "2", "3"]}, "key": "3"},
    ]
    text = """
[patterns.plain]
text = "{question}"
[[test_sets]]
name = "arc"
source = { file = "arc.jsonl" }
columns = { question = "question", label = "key" }
choices = "choices.text"
gold = "choices.label"
"""
    prompts = rendered(own_suite(tmp_path, text, arc=rows), "arc")
    assert [p.gold for p in prompts.prompts] == [0, 2]
    assert pairs(prompts, 1)[2] == ("Who barks?", " dogs")


def test_the_text_of_the_right_choice_and_the_same_choices_everywhere(tmp_path: Path) -> None:
    rows = [
        {"q": "Is it wet?", "options": ["no", "yes"], "label": "yes"},
        {"q": "Dry?", "options": ["no", "yes"], "label": "no"},
    ]
    text = """
[patterns.plain]
text = "{q}"
[[test_sets]]
name = "wet"
source = { file = "wet.jsonl" }
columns = { q = "q", label = "label" }
choices = "options"
gold = "text"
"""
    suite = own_suite(tmp_path, text, wet=rows)
    prompts = rendered(suite, "wet")
    assert [p.gold for p in prompts.prompts] == [1, 0]
    assert prompts.common_answers == ("no", "yes")
    assert [e.label for e in load_examples(suite, suite.test_sets["wet"])] == ["yes", "no"]


GAP = """
[patterns.gap]
text = "{sentence}"
blank = "_"

[patterns.whole]
text = ""
choice = "{sentence}"
blank = "_"

[[test_sets]]
name = "gap"
source = { file = "gap.jsonl" }
columns = { sentence = "sentence", label = "answer" }
choices = ["option1", "option2"]
labels = { "1" = 0, "2" = 1 }
pattern = "PATTERN"
"""
GAPS = [{"sentence": "The cup fell, so the _ broke.", "option1": "cup", "option2": "floor", "answer": "1"}]


def test_a_gap_is_filled_and_what_follows_is_scored(tmp_path: Path) -> None:
    prompts = rendered(own_suite(tmp_path, GAP.replace("PATTERN", "gap"), gap=GAPS), "gap")
    assert pairs(prompts, 0) == [
        ("The cup fell, so the cup", " broke."),
        ("The cup fell, so the floor", " broke."),
    ]
    assert prompts.prompts[0].text == "The cup fell, so the "
    assert prompts.prompts[0].gold == 0


def test_a_whole_sentence_is_scored(tmp_path: Path) -> None:
    prompts = rendered(own_suite(tmp_path, GAP.replace("PATTERN", "whole"), gap=GAPS), "gap")
    assert pairs(prompts, 0)[1] == ("", "The cup fell, so the floor broke.")


def test_the_form_of_the_score_is_part_of_the_set(tmp_path: Path) -> None:
    suite = own_suite(tmp_path, LISTED, howto=ROWS)
    other = own_suite(tmp_path, LISTED + 'score = "per_byte"\n', howto=ROWS)
    plain, bytewise = rendered(suite, "howto"), rendered(other, "howto")
    assert (plain.score, bytewise.score) == ("sum", "per_byte")
    assert plain.hash != bytewise.hash
    based = own_suite(tmp_path, LISTED + 'score = "minus_baseline"\n', howto=ROWS)
    assert rendered(based, "howto").baseline == ""


def test_a_sample_and_members(tmp_path: Path) -> None:
    rows = [dict(ROWS[n % 2], goal=f"goal {n}") for n in range(20)]
    suite = own_suite(tmp_path, LISTED, howto=rows)
    (sampled,) = render_sets(suite, pattern_of(suite, ""), "other", Evaluation(limit=10))
    assert len(sampled.prompts) == 10
    assert sampled.members.choices == tuple(len(p.choices) for p in sampled.prompts.prompts)
    assert sampled.members.columns["label"].count("1") == 5


def test_draws_need_no_balance_of_positions(tmp_path: Path) -> None:
    rows = [dict(ROWS[n % 2], goal=f"goal {n}") for n in range(21)]
    suite = own_suite(tmp_path, LISTED, howto=rows)
    examples = load_examples(suite, suite.test_sets["howto"])
    drawn = draw(examples, "howto", 7, 0)
    assert len(drawn.examples) == 7
    changed = [e for e in examples if e.id != drawn.examples[0].id]
    assert draw(changed, "howto", 7, 0).hash != drawn.hash


def test_chance() -> None:
    assert chance_of([0, 1, 1, 0]) == 0.5
    assert chance_of([0, 1, 2, 3], [4] * 4) == 0.25
    assert chance_of([0, 0, 0, 1], [4] * 4) == 0.75


GAP_OF_HOWTO = GAP.replace("PATTERN", "gap").replace("gap.jsonl", "howto.jsonl")
TEXT = 'text = "Question: {goal}\\nAnswer:"'
FILE = 'source = { file = "howto.jsonl" }'


@pytest.mark.parametrize(
    ("text", "rows", "message"),
    [
        (LISTED, [dict(ROWS[0], label=3)], "row 1: label '3' is none of 2 choices"),
        (LISTED, [dict(ROWS[0], label="²")], "row 1: label '²' is none of 2 choices"),
        (LISTED, [dict(ROWS[0], sol2="")], "expected at least two"),
        (LISTED, [dict(ROWS[1], sol2="")], "row 1: a choice is empty and a later one is not"),
        (LISTED + 'gold = "text"\n', ROWS, "label '0' is none of 2 choices"),
        (GAP_OF_HOWTO, [dict(GAPS[0], sentence="No gap.")], "has no blank '_'"),
        (GAP_OF_HOWTO, [dict(GAPS[0], sentence="At the _")], "nothing is left"),
    ],
)  # fmt: skip
def test_rows_that_cannot_be_scored(tmp_path: Path, text: str, rows: list[dict[str, Any]], message: str) -> None:
    suite = own_suite(tmp_path, text, howto=rows)
    with pytest.raises(DataError) as caught:
        rendered(suite, next(iter(suite.test_sets)))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (TEXT, 'text = "{goal}"\nanswers = [" Yes", " No"]', "has answers of its own"),
        (TEXT, 'text = "{goal}"\ntruncate = "goal"', "the beginning is cut"),
        (TEXT, 'text = "{goal}"\nchoice = "x"', "neither text nor choice has {choice}"),
        ('choices = ["sol1", "sol2", "sol3"]', "", "missing key 'labels'"),
        ('choices = ["sol1", "sol2", "sol3"]', 'choices = "sol1"\nexpect = { "1" = 3 }', "expected a number of rows"),
        ('choices = ["sol1", "sol2", "sol3"]', 'labels = { a = 0, b = 1 }\nscore = "sum"', "are for sets with choices"),
        (FILE, 'source = { file = "howto.jsonl", fewshot = 5 }', "fewshot is for lm_eval"),
    ],
)  # fmt: skip
def test_suites_that_make_no_sense(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in LISTED
    with pytest.raises(ConfigError) as caught:
        own_suite(tmp_path, LISTED.replace(old, new), howto=ROWS)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


# fixed answers


def test_sets_with_fixed_answers_have_the_hashes_they_had() -> None:
    """Made before there were choices; a study of then can grow."""
    suite = load_suite("mini")
    pattern = suite.patterns["question"]
    examples = load_examples(suite, suite.test_sets["overlap"])
    shots = load_examples(suite, suite.train_sets["daily"])
    drawn = draw(shots, "daily", 8, 0)
    assert set_hash(examples) == "0839c05ef2f224f8"
    assert render(pattern, examples, "overlap").hash == "6f1c1995753947bc"
    assert render(pattern, examples, "overlap", 50).hash == "1b54bbac943ccb77"
    assert drawn.hash == "39277c9569bbd664"
    chat = Pattern(name="c", text="{premise}", answers=(" A", " B"), chat=True, max_tokens=64)
    assert content_hash(pattern.identity) == "6b5240562e5d3a5c"
    assert content_hash(chat.identity) == "7b1c962bb28972e9"
    assert render(chat, examples[:9], "x").hash == "d5ef5821e2c4d07f"
    spec = RunSpec(
        name="r",
        model=ModelSpec(label="m", source="s"),
        suite="mini",
        train_set="daily",
        train_hash=set_hash(shots),
        draw_hash=drawn.hash,
        pattern=pattern,
        shots=8,
        seed=0,
        data_seed=0,
        lora=Lora(),
        recipe=Recipe(),
        evaluation=Evaluation(),
    )
    assert spec.run_id == "3-54b32cb763f988b4"
    assert content_hash(StoredSpec.of_run(spec, ["q_proj"]).as_json()) == "f14c5e7e2c3b2f49"


def test_sets_with_fixed_answers_have_the_scores_and_records_they_had(tiny_model: Path, tmp_path: Path) -> None:
    """The file was made before there were choices. Scores are equal but for rounding, all else is equal."""
    sets = ("--test-set", "overlap", "--test-set", "news")
    done = oodles(
        *("score", "--model", "tiny-llama-untrained", "--suite", "mini", "--limit", "6", *sets, "--out", tmp_path)
    )
    assert done.returncode == 0, done.stderr
    run = tmp_path / "runs" / "tiny-llama-untrained"
    lines = [json.loads(line) for line in (run / "scores.jsonl").read_text().splitlines()]
    golden = json.loads((Path(__file__).parent / "golden" / "fixed_answers.json").read_text())
    for line, wanted in zip(lines, golden, strict=True):
        assert {key: line[key] for key in line if not key.endswith("crc")} == wanted["score"]
        (file,) = run.rglob(f"records/**/{line['records']}")
        records = pd.read_parquet(file)
        assert {name: str(kind) for name, kind in records.dtypes.items()} == wanted["types"]
        for name, values in wanted["records"].items():
            told = records[name].tolist()
            assert told == (pytest.approx(values, abs=1e-4) if name.startswith("score:") else values)
