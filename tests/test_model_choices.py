"""Choices are scored like the model's own logits say, packed or not; forms of the score by hand; runs train on them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import oodles as oo
from conftest import oodles as command
from oodles.contracts import Choice, Prompt, PromptSet, Recipe
from oodles.model.embedded import tiny_tokenizer
from oodles.model.load import load_model, load_tokenizer, resolve_model
from oodles.model.scoring import predict, prepare
from oodles.runs.ranks import ALONE
from oodles.runs.train import encode_shots
from oodles.store.records import write_records
from oodles.suite.choices import label_names
from test_callback import losses, their_trainer
from test_resume import campaign

CONTEXTS = [
    "Question: What is wet?\nAnswer:",
    "Question: What is dry?\nAnswer:",
    "Birds",
    "Stones fell. " * 60 + "They fell",
]
OWN = [
    [" water", " water and ice", " sand"],
    [" sand", " rain"],
    [" fly", " swim", " sing – often", " read"],
    [" down", " up"],
]


@pytest.fixture(scope="module")
def loaded(tiny_model: Path) -> tuple[Any, Any]:
    spec = resolve_model("tiny-llama-untrained")
    return load_model(spec).eval(), load_tokenizer(spec)


def a_set(**more: Any) -> PromptSet:
    prompts = tuple(
        Prompt(
            id=str(n),
            text=context,
            gold=1,
            choices=tuple(Choice(context=context, continuation=text, text=text.strip()) for text in own),
        )
        for n, (context, own) in enumerate(zip(CONTEXTS, OWN, strict=True))
    )
    return PromptSet(name="toy", answers=(), prompts=prompts, **more)


def plainly(model: Any, tokenizer: Any, context: str, continuation: str) -> float:
    """The log-probability of a continuation by the model's own logits, one text at a time."""
    whole, before = tokenizer(context + continuation)["input_ids"], tokenizer(context)["input_ids"]
    with torch.no_grad():
        logs = model(torch.tensor([whole])).logits[0].double().log_softmax(-1)
    return float(sum(logs[at - 1, whole[at]] for at in range(len(before), len(whole))))


def test_scores_equal_the_models_own_logits(loaded: tuple[Any, Any]) -> None:
    model, tokenizer = loaded
    found = oo.score(model, tokenizer, CONTEXTS, OWN)
    assert found.shape == (4, 4)
    for n, (context, own) in enumerate(zip(CONTEXTS, OWN, strict=True)):
        told = [plainly(model, tokenizer, context, text) for text in own]
        assert found[n, : len(own)] == pytest.approx(told, abs=1e-5)
        assert np.isnan(found[n, len(own) :]).all()


def test_what_choices_share_is_computed_once(loaded: tuple[Any, Any]) -> None:
    """Tokens that go through the model, counted at its input: every distinct beginning once, and padding."""
    model, tokenizer = loaded
    prompts = a_set()
    plan = prepare(model, tokenizer, prompts)
    assert plan.way == "rows of head"
    texts = [(c.context, c.context + c.continuation) for prompt in prompts.prompts for c in prompt.choices]
    wholes = [tokenizer(text)["input_ids"][:-1] for _, text in texts]  # nothing is read after the last token
    distinct = {tuple(ids[:end]) for ids in wholes for end in range(1, len(ids) + 1)}
    assert len(distinct) < sum(map(len, wholes)) / 1.5  # or there was nothing to share
    # contexts of different examples, in different rows, share their first tokens at most
    repeated = plan.tokens - len(distinct)
    assert 0 <= repeated <= len(prompts) - 1
    seen: list[int] = []
    hook = model.get_input_embeddings().register_forward_hook(lambda _, inputs, __: seen.append(inputs[0].numel()))
    try:
        predict(model, plan, prompts)
    finally:
        hook.remove()
    padding = sum(max(row.length for row in batch) - row.length for batch in plan.packing.batches for row in batch)
    assert sum(seen) == plan.tokens + padding
    rows = [row for batch in plan.packing.batches for row in batch]
    assert max(row.length for row in rows) >= len(tokenizer(CONTEXTS[3])["input_ids"]) > 120  # longer than other rows


def test_forms_of_the_score(loaded: tuple[Any, Any]) -> None:
    model, tokenizer = loaded
    for form, metric in (
        ("sum", "acc"),
        ("per_character", "acc_norm"),
        ("per_byte", "acc_bytes"),
        ("per_token", "acc_token"),
    ):
        prompts = a_set(score=form)
        plan = prepare(model, tokenizer, prompts)
        found = predict(model, plan, prompts)
        targets = iter(plan.targets)
        for n, own in enumerate(OWN):
            lengths = {"sum": [1] * len(own), "per_character": [len(t.strip()) for t in own]}
            lengths["per_byte"] = [len(t.strip().encode()) for t in own]
            lengths["per_token"] = [len(next(targets)) for _ in own]
            values = found.scores[n, : len(own)] / lengths[form]
            assert found.choice[n] == values.argmax()
        assert (found.right[metric] == found.correct).all()
        assert list(found.right) == ["acc", "acc_norm", "acc_bytes", "acc_token"]


def test_a_baseline_is_what_continuations_have_without_their_context(loaded: tuple[Any, Any]) -> None:
    model, tokenizer = loaded
    prompts = a_set(score="minus_baseline", baseline="Answer:")
    found = predict(model, prepare(model, tokenizer, prompts), prompts)
    assert found.base is not None
    for n, own in enumerate(OWN):
        told = [plainly(model, tokenizer, "Answer:", text) for text in own]
        assert found.base[n, : len(own)] == pytest.approx(told, abs=1e-5)
        assert found.choice[n] == (found.scores[n, : len(own)] - told).argmax()
    assert "acc_mutual_info" in found.right


def test_ties_and_equal_choices(loaded: tuple[Any, Any]) -> None:
    model, tokenizer = loaded
    choices = tuple(Choice(context="We like", continuation=" cats", text="cats") for _ in range(2))
    prompts = PromptSet(name="t", answers=(), prompts=(Prompt(id="1", text="", gold=0, choices=choices),))
    found = predict(model, prepare(model, tokenizer, prompts), prompts)
    assert (found.ties, found.choice.tolist()) == (1, [0])
    assert not found.answers  # two columns of records cannot have one name


def test_equal_choices_of_all_examples_have_columns_of_their_own(loaded: tuple[Any, Any], tmp_path: Path) -> None:
    model, tokenizer = loaded
    texts = ("red", "blue", "red", "red ")
    choices = tuple(Choice(context="It is", continuation=f" {text}", text=text) for text in texts)
    prompts = PromptSet(name="t", answers=(), prompts=(Prompt(id="1", text="", gold=0, choices=choices),))
    found = predict(model, prepare(model, tokenizer, prompts), prompts)
    write_records(tmp_path / "t.parquet", found)
    stored = pd.read_parquet(tmp_path / "t.parquet")
    names = [f"choice:{place}" for place in (1, 2, 3, 4)]
    assert stored[names].iloc[0].tolist() == pytest.approx(found.scores[0].tolist(), rel=1e-6)
    assert label_names([texts], [2]) == ["3"]


@pytest.mark.parametrize("form", ["sum", "per_token", "per_character"])
def test_the_loss_over_choices_is_that_of_their_scores(loaded: tuple[Any, Any], form: str) -> None:
    model, tokenizer = loaded
    prompts = a_set(score=form)
    found = predict(model, prepare(model, tokenizer, prompts), prompts)
    shots = encode_shots(tokenizer, prompts, Recipe(loss="answers"), 512)
    batch = shots.collate(shots.examples)
    with torch.no_grad():
        hidden = model(batch["tokens"]).logits[batch["row"], batch["column"]]
        loss = float(shots.loss(hidden, batch))
    told = []
    for n, own in enumerate(OWN):
        tokens = [len(s[1]) for s in shots.examples[n]["sequences"]]
        lengths = {"sum": [1] * len(own), "per_character": [len(t.strip()) for t in own], "per_token": tokens}[form]
        values = found.scores[n, : len(own)] / lengths
        told.append(np.log(np.exp(values).sum()) - values[1])
    assert loss == pytest.approx(np.mean(told), abs=1e-4)
    at_answer = encode_shots(tokenizer, prompts, Recipe(), 512)
    assert [len(e["sequences"]) for e in at_answer.examples] == [1] * 4
    batch = at_answer.collate(at_answer.examples)
    with torch.no_grad():
        loss = float(at_answer.loss(model(batch["tokens"]).logits[batch["row"], batch["column"]], batch))
    count = sum(len(e["sequences"][0][1]) for e in at_answer.examples)
    assert loss == pytest.approx(-found.scores[:, 1].sum() / count, abs=1e-4)


def test_several_processes_share_a_batch_of_choices(loaded: tuple[Any, Any]) -> None:
    """The weighted losses of the parts are the loss of the whole (ranks are made up here)."""
    model, tokenizer = loaded
    shots = encode_shots(tokenizer, a_set(), Recipe(loss="answers"), 512)
    batch = shots.collate(shots.examples)

    def loss(part: dict[str, torch.Tensor]) -> float:
        with torch.no_grad():
            return float(shots.loss(model(part["tokens"]).logits[part["row"], part["column"]], part))

    parts = [shots.share(batch, replace(ALONE, rank=rank, size=3)) for rank in range(3)]
    assert sum(weight for _, weight in parts) == pytest.approx(1)
    assert sum(weight * loss(part) for part, weight in parts) == pytest.approx(loss(batch), abs=1e-5)


# runs

SUITE = """
schema = 1
name = "own"
[patterns.goal]
text = "Question: {goal}\\nAnswer:"
"""
SET = """
[[KIND]]
name = "NAME"
source = { file = "FILE.jsonl" }
columns = { goal = "goal", label = "label", id = "id" }
choices = "solutions"
"""
STUDY = """
schema = 1
name = "own"
suite = "own.toml"
[grid]
models = ["tiny-llama-untrained"]
train_sets = ["home"]
shots = [6]
seeds = [0, 1]
[train]
steps = 3
batch_size = 4
learning_rate = 1e-2
loss = "LOSS"
[eval]
test_sets = ["home", "away", "far", "away/topic=b"]
"""


@pytest.fixture
def own_study(tmp_path: Path, tiny_model: Path) -> Path:
    text = SUITE + SET.replace("KIND", "train_sets").replace("NAME", "home").replace("FILE", "train")
    for name, more in (("home", ""), ("away", 'slices = ["topic"]\n'), ("far", 'score = "per_character"\n')):
        text += SET.replace("KIND", "test_sets").replace("NAME", name).replace("FILE", name) + more
    (tmp_path / "own.toml").write_text(text)
    for k, name in enumerate(("train", "home", "away", "far")):
        rows = [
            {
                "id": f"{n}",
                "goal": f"{name} {n}",
                "solutions": [f"do {k} {m} {n}" for m in range(2 + (n + k) % 3)],
                "label": n % 2,
                "topic": "ab"[n % 2],
            }
            for n in range(14)
        ]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "study.toml").write_text(STUDY.replace("LOSS", "answers"))
    return tmp_path / "study.toml"


def test_a_study_of_choices(own_study: Path) -> None:
    """Trained over the choices, evaluated, sliced, audited, resumed, analysed; and with the loss at the answer."""
    folder = own_study.parent
    done = command("run", own_study, "--out", folder / "runs")
    assert done.returncode == 0, done.stderr
    table = oo.read_runs(folder / "runs")
    assert set(table["metric"]) == {"accuracy", "acc", "acc_norm", "acc_bytes", "acc_token"}
    assert set(table["test_set"]) == {"home", "away", "far", "away/topic=b"}
    wide = table.pivot_table(index=["run", "step", "test_set"], columns="metric", values="value").reset_index()
    assert (wide["accuracy"] == wide["acc_norm"].where(wide["test_set"] == "far", wide["acc"])).all()
    chance = table[table["metric"] == "accuracy"].groupby("test_set")["chance"].first()
    assert chance["home"] == 0.5
    records = oo.read_records(folder / "runs", ["away"])
    away = records[(records["test_set"] == "away") & (records["step"] == 3)]
    means = away.groupby("run")["correct"].mean()
    told = wide[(wide["test_set"] == "away") & (wide["step"] == 3)].set_index("run")["accuracy"]
    pd.testing.assert_series_equal(means, told, check_names=False)
    assert {"choice:1", "choice:4", "chosen", "correct:acc_norm"} <= set(records.columns)
    before = (folder / "runs" / "runs" / "tiny-llama-untrained_home_0_6" / "scores.jsonl").read_bytes()
    again = command("run", own_study, "--out", folder / "runs")
    assert again.returncode == 0, again.stderr
    assert (folder / "runs" / "runs" / "tiny-llama-untrained_home_0_6" / "scores.jsonl").read_bytes() == before
    assert command("analyse", folder / "runs").returncode == 0
    assert command("report", folder / "runs", "--out", folder / "r.html").returncode == 0
    dry = command("run", own_study, "--out", folder / "runs", "--dry-run")
    assert dry.returncode == 0, dry.stderr
    checked = command("check", own_study, "--json")
    assert checked.returncode == 0, checked.stderr
    own_study.write_text(STUDY.replace("LOSS", "vocab"))
    other = command("run", own_study, "--out", folder / "other")
    assert other.returncode == 0, other.stderr


def test_a_baseline_cannot_be_trained_on_and_no_run_is_started(own_study: Path) -> None:
    suite = own_study.parent / "own.toml"
    suite.write_text(
        suite.read_text().replace('choices = "solutions"', 'choices = "solutions"\nscore = "minus_baseline"', 1)
    )
    done = command("run", own_study, "--out", own_study.parent / "runs")
    assert done.returncode == 2
    assert "score of train set 'home' is minus_baseline, which [train] loss = answers cannot train on" in done.stderr
    assert not (own_study.parent / "runs").exists()


def test_an_evaluator_of_choices(own_study: Path, loaded: tuple[Any, Any]) -> None:
    model, tokenizer = loaded
    out = own_study.parent / "loop"
    evaluator = oo.Evaluator(
        suite=own_study.parent / "own.toml",
        in_domain="home",
        run="mine",
        out=out,
        tokenizer=tokenizer,
        limit=6,
        quiet=True,
    )
    values = evaluator.at(model, 0)
    evaluator.finish(0)
    assert set(values["away"]) == {"accuracy", "acc", "acc_norm", "acc_bytes", "acc_token"}
    table = oo.read_runs(out)
    assert table.set_index(["test_set", "metric"])["n"].to_dict()["away", "accuracy"] == 6


@pytest.mark.slow
def test_a_killed_run_on_choices_ends_as_if_undisturbed(own_study: Path, tmp_path: Path) -> None:
    """Killed by SIGKILL at random moments: scores, records and adapters are equal to the bit."""
    text = own_study.read_text().replace("steps = 3", "steps = 60\nschedule = 'cosine'").replace("[0, 1]", "[0]")
    own_study.write_text(text + "steps = 'linear'\npoints = 8\n\n[lora]\ndropout = 0.2\n")
    campaign(own_study, tmp_path / "out", "KILL", 3)


def test_the_callback_scores_choices_in_somebody_elses_trainer(own_study: Path, tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer()
    without = losses(their_trainer(tmp_path / "a", [], tokenizer))
    out, suite = tmp_path / "study", own_study.parent / "own.toml"
    callback = oo.OODCallback(suite=suite, in_domain="home", run="mine", out=out, steps=(2,), model="theirs")
    trainer = their_trainer(tmp_path / "b", [callback], tokenizer)
    assert losses(trainer) == without  # to the bit
    table = oo.read_runs(out)
    assert sorted(table["step"].unique()) == [0, 2, 6]
    assert set(table["metric"]) == {"accuracy", "acc", "acc_norm", "acc_bytes", "acc_token"}
    records = oo.read_records(out, ["far"])
    far = records[(records["test_set"] == "far") & (records["step"] == 6)]
    rows = [json.loads(line) for line in (own_study.parent / "far.jsonl").read_text().splitlines()]
    texts = [f"Question: {row['goal']}\nAnswer:" for row in rows]
    told = oo.score(trainer.model, tokenizer, texts, [[f" {choice}" for choice in row["solutions"]] for row in rows])
    stored = far.set_index("example").loc[
        [row["id"] for row in rows], [f"choice:{k + 1}" for k in range(told.shape[1])]
    ]
    np.testing.assert_allclose(stored.to_numpy(), told, rtol=1e-5)
    lengths = np.array(
        [[len(c) for c in row["solutions"]] + [1] * (told.shape[1] - len(row["solutions"])) for row in rows]
    )
    right = np.nanargmax(told / lengths, axis=1) == [row["label"] for row in rows]
    final = table[(table["test_set"] == "far") & (table["step"] == 6) & (table["metric"] == "accuracy")]
    assert final["value"].item() == right.mean()  # per character, as the set says
