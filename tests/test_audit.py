"""The audit on small suites of our own: every code can be found, errors stop a run, --allow lets it go on."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

import oodles as oo
from conftest import oodles
from oodles.audit.audit import audit_suite
from oodles.audit.checks import CODES
from oodles.suite.load import load_suite

SUITE = """
schema = 1
name = "toy"
[patterns.question]
text = "{premise} Question: {hypothesis} Yes or No?"
answers = [" Yes", " No"]
truncate = "premise"
[[train_sets]]
name = "home"
source = { file = "train.csv" }
labels = { e = 0, c = 1 }
[[test_sets]]
name = "home"
source = { file = "home.csv" }
labels = { e = 0, c = 1 }
[[test_sets]]
name = "away"
source = { file = "away.csv" }
labels = { e = 0, c = 1 }
[[test_sets]]
name = "far"
source = { file = "far.csv" }
labels = { e = 0, c = 1 }
"""
PLACES = {"train": "kitchen", "home": "garden", "away": "harbour", "far": "mountain"}
DEEDS = ["painted a wall", "sang to nobody", "lost two keys", "cooked some rice", "read old letters", "fixed one door"]
STUDY = """
schema = 1
name = "toy"
suite = "suite.toml"
[grid]
models = ["tiny-llama-untrained"]
train_sets = ["home"]
shots = [8]
seeds = [0]
[train]
epochs = 1
batch_size = 8
"""


def rows(name: str) -> list[str]:
    """Twelve pairs that no other set has."""
    people = {"train": "Anna", "home": "Bela", "away": "Cem", "far": "Dora"}[name]
    return [
        f"{people} was near the {PLACES[name]} at {i} o'clock and {DEEDS[i % 6]} there.,{people} {DEEDS[i % 6]} {i}.,"
        + "ec"[i % 2]
        for i in range(12)
    ]


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    for name in PLACES:
        (tmp_path / f"{name}.csv").write_text("\n".join(["premise,hypothesis,label", *rows(name)]) + "\n")
    (tmp_path / "suite.toml").write_text(SUITE)
    (tmp_path / "study.toml").write_text(STUDY)
    return tmp_path / "suite.toml"


def found(suite: Path, model: str = "") -> dict[str, str]:
    """Codes of errors and warnings with their texts."""
    findings = audit_suite(load_suite(suite), model).findings
    return {f.code: f"{f.where}: {f.text}" for f in findings if f.severity != "note"}


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_a_further_column_does_not_hide_a_leak(suite: Path, tiny_model: Path) -> None:
    """Only the fields of the pattern are compared."""
    copied = (suite.parent / "train.csv").read_text().splitlines()
    lines = [f"{line},{'annotator' if i == 0 else f'worker {i}'}" for i, line in enumerate(copied)]
    (suite.parent / "far.csv").write_text("\n".join(lines))
    done = oodles("check", suite.parent / "study.toml", "--json")
    assert "shots-in-test" in json.loads(done.stdout)["stops"]


def test_a_set_with_its_own_pattern_is_checked_with_it_alone(suite: Path, tiny_model: Path) -> None:
    own = '[patterns.own]\ntext = "{premise} True or False? "\nanswers = [" True", " False"]\n[[train_sets]]'
    edit(suite, "[[train_sets]]", own)
    edit(suite, 'name = "away"', 'name = "away"\npattern = "own"')
    told = found(suite, "tiny-llama-untrained")
    assert "answer ' True' follows" in told["answer-space"] or "answer ' False' follows" in told["answer-space"]
    assert "two spaces" in told["answer-space"]
    edit(suite, "True or False? ", "True or False?")
    audit = audit_suite(load_suite(suite), "tiny-llama-untrained")
    assert [f for f in audit.findings if f.severity == "error"] == []
    rendered = {facts.name: list(facts.rendered) for facts in audit.sets if facts.kind == "test"}
    assert rendered == {"home": ["question"], "away": ["own"], "far": ["question"]}
    done = oodles("run", suite.parent / "study.toml", "--out", suite.parent / "out", cwd=suite.parent)
    assert done.returncode == 0, done.stderr
    assert re.search(r"  Yes \d\.\d\d  True \d\.\d\d", done.stderr)  # the share of each set's own first answer


def test_the_train_set_is_rendered_too(suite: Path, tiny_model: Path) -> None:
    edit(suite.parent / "train.csv", "hypothesis", "claim")
    done = oodles("check", suite.parent / "study.toml", "--json")
    finding = next(f for f in json.loads(done.stdout)["findings"] if f["code"] == "prompt-failed")
    assert finding["where"] == "home (train), pattern question"
    assert "no field 'hypothesis'" in finding["text"]


def test_clean_data_have_nothing_to_say(suite: Path, tiny_model: Path) -> None:
    assert found(suite, "tiny-llama-untrained") == {}


@pytest.mark.parametrize(
    ("file", "old", "new", "code", "text"),
    [
        ("away.csv", ",c\n", ",x\n", "data-unreadable", "label 'x' has no mapping"),
        ("away.csv", ",c\n", ",e\n", "label-absent", "away: no row is labelled 'c'"),
        ("away.csv", ",c\n", ",e\n", "one-answer", "answer 0 is right for every example"),
        ("away.csv", "Cem painted a wall 0.", "", "field-empty", "away: 1 empty fields"),
        ("away.csv", "Cem painted a wall 0.", "Cem pa\ufffdnted", "text-damaged", "away: 1 texts hold U+FFFD or NUL"),
        ("away.csv", ",c\n", ",c\n" + rows("away")[0] + "\n", "duplicate", "1 example occurs more than once"),
        (
            "away.csv",
            "Cem was near the harbour at 1 o'clock and sang to nobody there.,Cem sang to nobody 1.",
            rows("away")[0].rsplit(",", 1)[0].upper(),
            "duplicate-conflict",
            "1 example occurs with different right answers",
        ),
        (
            "train.csv",
            rows("train")[3],
            rows("far")[3].upper().replace(",C", ",c"),
            "train-in-test",
            "1 example of far",
        ),
        (
            "suite.toml",
            'answers = [" Yes", " No"]',
            'answers = ["Yes", "No"]',
            "answer-space",
            "without a space; write",
        ),
        (
            "suite.toml",
            'Yes or No?"\nanswers = [" Yes", " No"]',
            'Yes or No? "\nanswers = ["Yes", "No"]',
            "answer-joins",
            "changes the prompt's tokens",
        ),
        (
            "suite.toml",
            'answers = [" Yes", " No"]',
            'answers = [" absolutely not so", " No"]',
            "answer-tokens",
            "answer ' absolutely not so' has",
        ),
        ("suite.toml", 'truncate = "premise"', "max_tokens = 20", "prompt-long", "prompts have more than 20 tokens"),
        (
            "suite.toml",
            'truncate = "premise"',
            'truncate = "premise"\nmax_tokens = 45',
            "prompt-shortened",
            "prompts have more than 45 tokens and are shortened",
        ),
        (
            "suite.toml",
            'name = "away"',
            'name = "away"\nexpect = { e = 9, c = 6 }',
            "count-differs",
            "e: 6 rows, expect",
        ),
        ("suite.toml", 'name = "away"', 'name = "away"\nchance = 0.7', "chance-differs", "best constant answer"),
        (
            "suite.toml",
            '[[train_sets]]\nname = "home"',
            '[[train_sets]]\nname = "home"\nexpect = { e = 9 }',
            "train-differs",
            "home (train): e: 6 rows, expected 9",
        ),
    ],
)
def test_planted_faults_are_found(
    suite: Path, tiny_model: Path, file: str, old: str, new: str, code: str, text: str
) -> None:
    edit(suite.parent / file, old, new)
    told = found(suite, "tiny-llama-untrained")
    assert code in told
    assert text in told[code]


def test_near_copies_of_test_examples_are_found(suite: Path) -> None:
    long_text = " ".join(f"word{i}" for i in range(40))
    edit(suite.parent / "far.csv", rows("far")[0], f"{long_text} end,It is so.,e")
    edit(suite.parent / "train.csv", rows("train")[0], f"{long_text} stop,It is so.,e")
    assert "train-near-test" in found(suite)


def assert_refused(done: subprocess.CompletedProcess[str], message: str) -> None:
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1
    assert message in done.stderr


def test_pins_tell_relabelled_rows_from_new_ones(suite: Path) -> None:
    pin = suite.parent / "toy.rows"
    assert oodles("check", "--suite", suite, "--pin", pin).returncode == 0
    edit(suite, 'name = "toy"', 'name = "toy"\nrows = "toy.rows"')
    assert found(suite) == {}
    edit(suite.parent / "away.csv", rows("away")[0], rows("away")[0][:-1] + "c")
    assert "1 of 12 rows have the pinned text but another answer" in found(suite)["label-differs"]
    edit(suite.parent / "far.csv", rows("far")[0], rows("far")[0].replace("Dora", "Dorothea"))
    assert "1 row is not in the suite's copy, 1 of its rows is missing" in found(suite)["rows-differ"]
    for damage in (pin.read_bytes()[:100], b"", b"no rows at all"):
        pin.write_bytes(damage)
        assert_refused(oodles("check", "--suite", suite), "rows = 'toy.rows' cannot be read")
    pin.unlink()
    assert_refused(oodles("check", "--suite", suite), "write it with oodles check --pin")


def test_a_missing_tokenizer_is_a_warning(suite: Path, tmp_path: Path) -> None:
    done = oodles(
        "check", "--suite", suite, "--model", "smollm2-135m-q4", "--json", OODLES_CACHE=str(tmp_path / "none")
    )
    assert done.returncode == 0
    codes = [f["code"] for f in json.loads(done.stdout)["findings"]]
    assert "tokenizer-missing" in codes


def test_errors_stop_a_run_and_can_be_allowed(suite: Path, tiny_model: Path) -> None:
    edit(suite, 'name = "away"', 'name = "away"\nexpect = { e = 9 }\ntags = ["domain", "style"]')
    study, out = suite.parent / "study.toml", suite.parent / "out"
    done = oodles("run", study, "--out", out, cwd=suite.parent)
    assert done.returncode == 2
    assert [line for line in done.stderr.splitlines() if not line.startswith("study ")] == done.stderr.splitlines()[-1:]
    assert "audit: away: e: 6 rows, expected 9 [count-differs]" in done.stderr
    assert "--allow count-differs" in done.stderr
    assert not out.exists()
    assert oodles("check", study).returncode == 2
    allowed = oodles("check", study, "--allow", "count-differs")
    assert allowed.returncode == 0
    assert "(allowed)" in allowed.stdout
    done = oodles("run", study, "--out", out, "--allow", "count-differs", cwd=suite.parent)
    assert done.returncode == 0, done.stderr
    kept = json.loads((out / "audit.json").read_text())
    assert "count-differs" in [f["code"] for f in kept["findings"]]
    assert kept["allowed"] == ["count-differs"]
    assert oodles("report", out).returncode == 0
    assert "audit error allowed: away: e: 6 rows, expected 9" in (out / "report.html").read_text()
    table = oo.analyse(out).long_table  # with the kinds of shift, which --stability compares
    assert dict(zip(table["test_set"], table["tags"], strict=True))["away"] == "domain, style"


def test_a_study_can_allow_by_itself(suite: Path, tiny_model: Path) -> None:
    edit(suite, 'name = "away"', 'name = "away"\nexpect = { e = 9 }')
    edit(suite.parent / "study.toml", 'name = "toy"', 'name = "toy"\nallow = ["count-differs"]')
    assert oodles("check", suite.parent / "study.toml").returncode == 0


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("count-difers", "did you mean 'count-differs'?"),
        ("data-unreadable", "cannot be allowed"),
        (
            "zzz",
            "known: answer-joins, answer-space, count-differs, kept-differs, label-differs, label-names, same-rows, ",
        ),
        ("prompt-lon", "--allow prompt-lon: no such code; known: answer-joins"),
    ],
)
def test_only_known_codes_are_allowed(suite: Path, tiny_model: Path, code: str, message: str) -> None:
    done = oodles("run", suite.parent / "study.toml", "--allow", code, cwd=suite.parent)
    assert done.returncode == 2
    assert message in done.stderr


def test_drawn_shots_in_a_test_set_are_an_error(suite: Path, tiny_model: Path) -> None:
    """All twelve train rows are copied, so every draw holds some."""
    (suite.parent / "far.csv").write_text((suite.parent / "train.csv").read_text().replace("Anna", "ANNA"))
    done = oodles("check", suite.parent / "study.toml", "--json")
    assert done.returncode == 2
    told = json.loads(done.stdout)
    finding = next(f for f in told["findings"] if f["code"] == "shots-in-test")
    assert finding["text"] == "8 examples of far are among the drawn shots (8 shots, data seed 0)"
    assert len(finding["items"]) == 8
    assert told["stops"] == ["shots-in-test"]


def test_check_wants_a_study_or_a_suite() -> None:
    for arguments in ([], ["demo", "--suite", "mini"], ["demo", "--model", "x"], ["--suite", "mini", "--set", "a=1"]):
        done = oodles("check", *arguments)
        assert done.returncode == 2
        assert done.stderr.startswith("ConfigError: oodles check:")


def test_severities_are_what_scripts_rely_on() -> None:
    errors = {code for code, meaning in CODES.items() if meaning.severity == "error"}
    assert errors == {
        "data-unreadable",
        "label-names",
        "label-differs",
        "count-differs",
        "kept-differs",
        "shots-in-test",
        "same-rows",
        "answer-space",
        "answer-joins",
        "answer-same",
        "prompt-long",
        "prompt-failed",
    }


def test_how_many_prompts_were_shortened_is_recorded_and_shown(suite: Path, tiny_model: Path) -> None:
    edit(suite, 'truncate = "premise"', 'truncate = "premise"\nmax_tokens = 45')
    out = suite.parent / "out"
    done = oodles("run", suite.parent / "study.toml", "--out", out, cwd=suite.parent)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in (next((out / "runs").iterdir()) / "scores.jsonl").read_text().splitlines()]
    shortened = {line["test_set"]: line["shortened"] for line in lines}
    findings = audit_suite(load_suite(suite), "tiny-llama-untrained").findings
    told = {f.where.split(",")[0]: len(f.items) for f in findings if f.code == "prompt-shortened"}
    assert told.pop("home (train)") > 0
    assert told == {name: count for name, count in shortened.items() if count}
    assert oodles("report", out).returncode == 0
    name, count = next((n, c) for n, c in shortened.items() if c)
    assert f"{name}: {count} of 12 prompts were shortened to fit" in (out / "report.html").read_text()


def test_two_test_sets_with_the_same_rows_stop_a_study(suite: Path, tiny_model: Path) -> None:
    lines = (suite.parent / "away.csv").read_text().splitlines()
    (suite.parent / "far.csv").write_text(
        "\n".join([lines[0], *(line.upper().replace(",C", ",c").replace(",E", ",e") for line in reversed(lines[1:]))])
    )
    told = found(suite)
    assert told["same-rows"] == "away, far: the 12 examples of away are those of far, with the same answers"
    done = oodles("check", suite.parent / "study.toml", "--json")
    assert "same-rows" in json.loads(done.stdout)["stops"]
    (suite.parent / "far.csv").write_text("\n".join(lines[:4]))
    told = found(suite)
    assert "same-rows" not in told
    assert told["rows-shared"] == "away, far: 3 examples are in both: 12 different ones in away, 3 in far"
