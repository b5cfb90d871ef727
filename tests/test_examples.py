"""The studies in examples/ run, and docs/your-own-test-set.md does what it says: every block of it is used."""

from __future__ import annotations

import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pytest
from typer.testing import CliRunner

from conftest import missing, oodles
from oodles.audit.checks import CODES
from oodles.cli import app
from oodles.contracts import Pattern, Suite
from oodles.errors import ModelError
from oodles.model.load import load_tokenizer, resolve_model
from oodles.model.tokens import encode
from oodles.store.table import read_records, read_runs
from oodles.suite.load import load_suite
from oodles.suite.patterns import render
from oodles.suite.sources import load_examples

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
NAMES = ("sentiment", "multiple_choice", "nli3")
PAGE = (ROOT / "docs" / "your-own-test-set.md").read_text()
CHAT_TEMPLATE = "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '\n' }}{% endfor %}{{ 'assistant:\n' }}"

LABELS = {
    "sentiment": {
        "train films": {"positive": 20, "negative": 20},
        "test films": {"positive": 12, "negative": 12},
        "test restaurants": {"positive": 12, "negative": 12},
        "test gadgets": {"pos": 12, "neg": 12},
        "test contrast": {"positive": 12, "negative": 12},
    },
    "multiple_choice": {
        "train science": dict.fromkeys("ABCD", 10),
        "test science": dict.fromkeys("ABCD", 6),
        "test geography": dict.fromkeys("0123", 6),
        "test household": dict.fromkeys("ABCD", 6),
    },
    "nli3": {
        "train daily": dict.fromkeys(("entailment", "neutral", "contradiction"), 14),
        "test daily": dict.fromkeys(("entailment", "neutral", "contradiction"), 8),
        "test workplace": dict.fromkeys(("entailment", "neutral", "contradiction"), 8),
        "test numbers": {"entailment": 12, "not_entailment": 12},
    },
}


# the examples


@pytest.mark.parametrize("name", NAMES)
def test_an_example_passes_its_audit(name: str, tiny_model: Path) -> None:
    done = oodles("check", EXAMPLES / name / "study.toml", "--json")
    assert done.returncode == 0, done.stderr
    audit = json.loads(done.stdout)
    assert audit["counts"]["error"] == 0
    assert {f["code"] for f in audit["findings"] if f["severity"] == "warning"} == {"answer-tokens"}
    assert "answer-tokens" in (EXAMPLES / name / "study.toml").read_text(), "a comment says why"
    assert {f"{s['kind']} {s['set']}": s["labels"] for s in audit["sets"]} == LABELS[name]


@pytest.fixture(scope="module", params=NAMES)
def finished(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Path:
    """An example that was run; the folder has its name."""
    out: Path = tmp_path_factory.mktemp("examples") / request.param
    done = oodles("run", EXAMPLES / request.param / "study.toml", "--out", out)
    assert done.returncode == 0, done.stderr
    return out


def test_an_example_runs_and_is_analysed(finished: Path) -> None:
    table = read_runs(finished)
    assert table["value"].notna().all()
    assert table.groupby("run")["step"].min().eq(0).all()
    assert table["seed"].nunique() == 2
    done = oodles("analyse", finished, "--json")
    assert done.returncode == 0, done.stderr
    analysed = {row[side] for row in json.loads(done.stdout)["pairs"] for side in ("a", "b")}
    assert analysed == set(table.loc[table["role"] == "ood", "test_set"])
    check_example[finished.name](finished)


def check_sentiment(folder: Path) -> None:
    table = read_runs(folder)
    part = table[(table["test_set"] == "contrast/negation") & (table["metric"] == "accuracy")]
    assert len(part) == 2 * table["step"].nunique()
    assert set(part["n"]) == {12}
    assert set(part["slice_of"]) == {"contrast"}
    assert "contrast/negation" in oodles("analyse", folder).stdout


def check_multiple_choice(folder: Path) -> None:
    table = read_runs(folder)
    assert set(table["pattern"]) == {"letters", "sentence"}
    assert {m for m in table["metric"] if m.startswith("share:")} == {f"share:{a}" for a in "ABCD"}
    done = oodles("analyse", folder, "--by", "model", "--by", "train_set", "--by", "pattern", "--json")
    assert {row["pattern"] for row in json.loads(done.stdout)["pairs"]} == {"letters", "sentence"}


def check_nli3(folder: Path) -> None:
    records = read_records(folder).set_index("test_set")
    three = ["score:it follows", "score:it may be", "score:it cannot be"]
    binary = ["score:it follows", "score:it does not follow"]
    for name, used in (("daily", three), ("workplace", three), ("numbers", binary)):
        scores = records.loc[name].filter(like="score:").dropna(axis="columns", how="all")
        assert sorted(scores.columns) == sorted(used)
        assert scores.notna().to_numpy().all()
    suite = load_suite(EXAMPLES / "nli3" / "suite.toml")
    step_0 = read_records(folder).query("step == 0 and run.str.contains('_0_')", engine="python")
    for number, name in ((1, "workplace"), (2, "numbers")):
        prompts = rendered(suite, suite.test_sets[name].pattern or "phrases", number)
        expected = [log_probability(prompts.prompts[0].text, answer) for answer in prompts.answers]
        row = step_0[step_0["test_set"] == name].iloc[0]
        found = [row[f"score:{answer.strip()}"] for answer in prompts.answers]
        assert np.diff(found) == pytest.approx(np.diff(expected), abs=1e-3)


def log_probability(text: str, answer: str) -> float:
    """Of an answer's tokens after a text, by the plainest way there is."""
    import torch
    from transformers import AutoModelForCausalLM

    from oodles.model.embedded import model_folder

    tokenizer = load_tokenizer(resolve_model("tiny-llama-untrained"))
    model = AutoModelForCausalLM.from_pretrained(model_folder("tiny-llama-untrained"))
    before, after = (tokenizer(t, add_special_tokens=False)["input_ids"] for t in (text, answer))
    assert len(after) > 1
    with torch.no_grad():
        logs = model(torch.tensor([before + after])).logits[0].log_softmax(-1)
    return sum(float(logs[len(before) - 1 + i, token]) for i, token in enumerate(after))


check_example = {"sentiment": check_sentiment, "multiple_choice": check_multiple_choice, "nli3": check_nli3}


@pytest.mark.parametrize(("name", "pattern"), [("sentiment", "review"), ("multiple_choice", "letters")])
def test_answers_are_one_token_with_a_real_tokenizer(name: str, pattern: str, smollm2_tokenizer: Any) -> None:
    suite = load_suite(EXAMPLES / name / "suite.toml")
    assert {len(t) for t in encode(smollm2_tokenizer, rendered(suite, pattern, 1)).targets} == {1}


def rendered(suite: Suite, pattern: str, number: int) -> Any:
    data = list(suite.test_sets.values())[number]
    return render(suite.patterns[pattern], load_examples(suite, data), data.name)


# the page


class Block(NamedTuple):
    """A fenced block: what it is, and what is to be done with it."""

    language: str
    text: str
    action: Literal["write", "append", "top", "into", "run"]
    file: str = ""
    table: str = ""


PLACES = {  # the paragraph before a block -> what is done with it
    r"`(?P<file>[\w.]+)`:": "write",
    r"Append to `(?P<file>[\w.]+)`:": "append",
    r"At the top of `(?P<file>[\w.]+)`:": "top",
    r"In `\[(?P<table>\w+)\]` of `(?P<file>[\w.]+)`:": "into",
}


def sections() -> dict[str, list[Block]]:
    """The blocks of the page, by heading."""
    parts = re.split(r"^## (.*)\n", PAGE, flags=re.MULTILINE)
    return {title: blocks_of(text) for title, text in zip(parts[1::2], parts[2::2], strict=True)}


def blocks_of(text: str) -> list[Block]:
    return [make_block(*found) for found in re.findall(r"([^\n]*)\n+```(\w+)\n(.*?)```", text, flags=re.DOTALL)]


def make_block(before: str, language: str, text: str) -> Block:
    if language in ("bash", "python"):
        return Block(language, text, "run")
    for place, action in PLACES.items():
        match = re.fullmatch(place, before)
        if match:
            return Block(language, text, action, **match.groupdict())  # type: ignore[arg-type]
    raise AssertionError(f"the page does not say where this goes: {text}")


def follow(block: Block, folder: Path, run: Callable[[Block], str]) -> str:
    """Do what the page says; what was printed."""
    if block.action == "run":
        return run(block)
    path = folder / block.file
    held = path.read_text() if block.action != "write" else ""
    if block.action == "into":
        header = f"[{block.table}]\n"
        assert held.count(header) == 1
        path.write_text(held.replace(header, header + block.text))
    else:
        path.write_text(block.text + held if block.action == "top" else held + block.text)
    return ""


def in_a_shell(block: Block, folder: Path) -> str:
    shim = folder / "bin" / "oodles"
    shim.parent.mkdir(exist_ok=True)
    shim.write_text(f'#!/bin/sh\nexec {sys.executable} -c "from oodles.cli import main; main()" "$@"\n')
    shim.chmod(0o755)
    path = f"{shim.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PATH": path}
    done = subprocess.run(
        ["bash", "-e", "-c", block.text], cwd=folder, capture_output=True, text=True, check=False, env=env
    )
    assert done.returncode == 0, f"{block.text}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def in_this_process(block: Block, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The same without a shell where none is needed: loading torch for each command takes longer than most of them."""
    if "$(" in block.text:
        return in_a_shell(block, folder)
    monkeypatch.chdir(folder)
    if block.language == "python":
        (folder / "page.py").write_text(block.text)
        runpy.run_path("page.py")
        return ""
    printed = ""
    for name, *words in filter(None, (shlex.split(line, comments=True) for line in block.text.splitlines())):
        if name == "export":
            monkeypatch.setenv(*words[0].split("=", 1))
            continue
        assert name == "oodles"
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, f"{words}\n{done.output}\n{done.exception}"
        printed += done.stdout
    return printed


FIVE_MINUTES = "Five minutes"


@pytest.fixture(scope="module")
def five_minutes(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> tuple[Path, str]:
    """The folder after the first section, and what was printed."""
    folder = tmp_path_factory.mktemp("page")
    printed = [follow(block, folder, lambda b: in_a_shell(b, folder)) for block in sections()[FIVE_MINUTES]]
    return folder, "\n".join(printed)


def test_five_minutes_lead_to_a_report(five_minutes: tuple[Path, str]) -> None:
    folder, printed = five_minutes
    assert re.findall(r"^(\d+) errors?, (\d+) warnings?", printed, flags=re.MULTILINE) == [("0", "1")] * 3
    assert "train-near-test  daily (train), daily" in printed
    assert "clinic, overlap: too little residual left" in printed
    assert (folder / "runs" / "mine" / "report.html").is_file()
    accuracy = read_runs(folder / "runs" / "mine").query("metric == 'accuracy' and step == 0")
    assert dict(zip(accuracy["test_set"], accuracy["n"], strict=True)) == {"clinic": 12, "overlap": 100, "daily": 200}


EXPECTED = {
    "Beside the eight NLI sets": r"clinic +test +12 +no 6, yes 6",
    "Other columns, other labels, dropped labels": r"triage +test +3 +contradiction 1, entailment 2 +neutral",
    "Data sets of the hub": r"radiology +test +4 ",
    "Several patterns": r"daily_1_8_true_false +missing +train: ",
    "Answers of several tokens": r"answer ' the claim is true' has \d+ tokens",
    "Chat models": r"<\|im_start\|> ass istant Ċ -> Yes",
    "A function in place of a pattern": "",
    "Nested columns": r"'What protects the brain\?\\nA. the skull\\nB. the ribs\\nAnswer:' -> ' A'",
    "Slices": r"share examples: overlap/entailment with overlap",
    "Long prompts": r"prompt-shortened  clinic, tiny-llama-untrained: 12 of 12",
    "Which examples are drawn": r"4 run, 0 finished before, 0 failed",
    "Pin the rows": r"0 errors, 1 warning",
    "All findings": r"0 errors",
}


@pytest.mark.parametrize("title", EXPECTED)
def test_a_section_of_the_page_works(
    title: str, five_minutes: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if title == "Chat models":
        needs_smollm2()
    folder = tmp_path / "page"
    shutil.copytree(five_minutes[0], folder)
    put_on_the_hub(folder)
    printed = [follow(b, folder, lambda b: in_this_process(b, folder, monkeypatch)) for b in sections()[title]]
    assert re.search(EXPECTED[title], "\n".join(printed)), printed
    if title == "Which examples are drawn":
        check_draws(folder / "runs" / "draws")
    if title == "A function in place of a pattern":
        assert set(read_runs(folder / "runs" / "as_list")["pattern"]) == {"as_list"}
    if title == "Pin the rows":
        check_pins(folder)


def needs_smollm2() -> None:
    from oodles.model.embedded import is_fetched

    if not is_fetched("smollm2-135m-q4"):
        missing("the model is not in the cache: oodles fetch smollm2-135m-q4")


def put_on_the_hub(folder: Path) -> None:
    """A folder laid out like the hub stands in for the data set that the page speaks of."""
    repository = folder / "my-org" / "radiology"
    repository.mkdir(parents=True)
    rows = ["report,claim,label", "The left lung is clear.,There is a shadow on the left.,1"]
    rows += ["The left lung is clear.,Nothing was found on the left.,0"]
    rows += ["No fracture is seen.,The bone is broken.,1", "No fracture is seen.,A fracture was not found.,0"]
    (repository / "test.csv").write_text("\n".join(rows) + "\n")


def check_draws(folder: Path) -> None:
    small, large = (json.loads(f.read_text()) for f in sorted(folder.glob("runs/*_0_[48]/draw.json")))
    assert set(small["ids"]) < set(large["ids"])
    other = json.loads(next(folder.glob("runs/*_1_8/draw.json")).read_text())
    assert other["ids"] == large["ids"]
    shots = read_runs(folder, ["shots"]).query("test_set == 'shots' and metric == 'accuracy'")
    assert set(shots["role"]) == {"other"}
    assert set(shots["n"]) == {4, 8}


def check_pins(folder: Path) -> None:
    rows = (folder / "clinic.csv").read_text()
    (folder / "clinic.csv").write_text(rows.replace("All the blood samples were sent away.,no", "All went away.,yes"))
    assert "rows-differ" in oodles("check", "--suite", "mine.toml", cwd=folder).stdout
    (folder / "clinic.csv").write_text(rows.replace("left open.,no", "left open.,yes"))
    done = oodles("check", "--suite", "mine.toml", cwd=folder)
    assert done.returncode == 2
    assert "label-differs  clinic" in done.stdout


def test_every_section_is_tried() -> None:
    assert [FIVE_MINUTES, *EXPECTED] == list(sections())


def test_the_table_of_codes_is_complete() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \| (\w+) \| (.*?) \| (yes|no|-) \| (.+) \|$", PAGE, flags=re.MULTILINE)
    told = {code: (severity, meaning, allowed) for code, severity, meaning, allowed, _ in rows}
    assert len(told) == len(rows)
    assert told == {
        code: (known.severity, known.meaning, {True: "yes", False: "no"}[known.allowed] if stops(code) else "-")
        for code, known in CODES.items()
    }
    assert list(told) == list(CODES)


def stops(code: str) -> bool:
    return CODES[code].severity == "error"


# chat templates and functions


def chat_pattern() -> Pattern:
    suite = load_suite(EXAMPLES / "sentiment" / "suite.toml")
    return replace(suite.patterns["review"], name="chat", answers=("positive", "negative"), chat=True)


def test_a_chat_model_is_trained_and_scored(tiny_model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "sentiment"
    shutil.copytree(EXAMPLES / "sentiment", folder)
    model = folder / "tiny-chat"
    shutil.copytree(tiny_model, model)
    tokenizer = load_tokenizer(resolve_model("tiny-llama-untrained"))
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.save_pretrained(model)
    text = (folder / "suite.toml").read_text()
    text = text.replace('answers = [" positive", " negative"]', 'chat = true\nanswers = ["positive", "negative"]')
    (folder / "suite.toml").write_text(text)
    study = folder / "study.toml"
    done = oodles("check", study, "--set", 'grid.models=["tiny-chat"]', "--json")
    assert done.returncode == 0, done.stdout
    (films,) = (s for s in json.loads(done.stdout)["sets"] if (s["kind"], s["set"]) == ("test", "films"))
    shown = next(iter(films["rendered"]["review"].values()))["shown"][0]["tokens"]
    assert tokenizer.decode(tokenizer.convert_tokens_to_ids(shown)).endswith("Sentiment:\nassistant:\n")
    out = tmp_path / "out"
    done = oodles("run", study, "--out", out, "--set", 'grid.models=["tiny-chat"]', "--set", "grid.seeds=[0]")
    assert done.returncode == 0, done.stderr
    assert json.loads(next(out.glob("runs/*/spec.json")).read_text())["pattern"]["chat"] is True
    assert set(read_runs(out)["test_set"]) == {*LABELS_OF_SENTIMENT, "contrast/negation"}


LABELS_OF_SENTIMENT = [name.removeprefix("test ") for name in LABELS["sentiment"] if name.startswith("test ")]


def test_a_tokenizer_without_a_chat_template_is_refused(tiny_model: Path) -> None:
    suite = load_suite(EXAMPLES / "sentiment" / "suite.toml")
    prompts = rendered(replace(suite, patterns={"chat": chat_pattern()}), "chat", 0)
    with pytest.raises(ModelError, match="chat template"):
        encode(load_tokenizer(resolve_model("tiny-llama-untrained")), prompts)


def test_a_real_chat_template(smollm2_tokenizer: Any) -> None:
    suite = load_suite(EXAMPLES / "sentiment" / "suite.toml")
    prompts = rendered(replace(suite, patterns={"chat": chat_pattern()}), "chat", 0)
    whole = encode(smollm2_tokenizer, prompts)
    text = smollm2_tokenizer.decode(whole.prompts[0])
    assert text.startswith("<|im_start|>system\n")
    assert text.count("<|im_start|>") == 3  # system, user, assistant: no start token is put before it once more
    assert text.endswith(f"{prompts.prompts[0].text}<|im_end|>\n<|im_start|>assistant\n")
    assert {len(t) for t in whole.targets} == {1}
    limit = min(map(len, whole.prompts))
    short = encode(smollm2_tokenizer, prompts, limit)
    assert len(short.shortened) == sum(len(ids) > limit for ids in whole.prompts) > 0
    for ids in short.prompts:
        assert len(ids) <= limit
        assert smollm2_tokenizer.decode(ids).endswith("Sentiment:<|im_end|>\n<|im_start|>assistant\n")


def numbered(fields: Mapping[str, str]) -> str:
    options = "\n".join(f"{number}) {fields[name]}" for number, name in enumerate("abcd", start=1))
    return f"{fields['question']}\n{options}\nThe number of the right option is"


def test_a_function_with_a_real_tokenizer(smollm2_tokenizer: Any) -> None:
    answers = (" one", " two", " three", " four")
    suite = load_suite(EXAMPLES / "multiple_choice" / "suite.toml")
    suite = suite.with_pattern("numbered", numbered, answers, truncate="question")
    prompts = rendered(suite, "numbered", 1)
    assert prompts.prompts[0].text.startswith("What is the capital of France?\n1) ")
    whole = encode(smollm2_tokenizer, prompts)
    assert {len(t) for t in whole.targets} == {1}
    longest = max(map(len, whole.prompts))
    short = encode(smollm2_tokenizer, prompts, longest - 1)
    assert len(short.shortened) >= 1
    assert all(smollm2_tokenizer.decode(p).endswith("right option is") for p in short.prompts)
