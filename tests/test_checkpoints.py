"""`oodles score`: one model, a folder of checkpoints, further sets for finished runs."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import transformers

from conftest import oodles
from oodles.disk import write_json
from oodles.errors import ModelError
from oodles.model import scoring
from oodles.model.load import load_model, load_tokenizer, resolve_model
from oodles.runs import checkpoints as scorer
from oodles.runs.checkpoints import find_checkpoints
from oodles.store.facts import describe_runs
from oodles.store.folder import RunFolder
from oodles.store.scores import read_scores
from oodles.store.sidecars import read_json
from oodles.store.table import read_records, read_runs
from oodles.suite.load import load_suite

TINY = "tiny-llama-untrained"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Path:
    """A folder with a suite, a finished study on three of its four test sets, and one on all four."""
    folder = tmp_path_factory.mktemp("trained")
    text = 'schema = 1\nname = "toy"\n[patterns.question]\ntext = "{premise} Question: {hypothesis} Yes or No?"\n'
    text += 'answers = [" Yes", " No"]\ntruncate = "premise"\n'
    for kind, name in (("train", "home"), ("test", "home"), ("test", "away"), ("test", "far"), ("test", "late")):
        text += f'\n[[{kind}_sets]]\nname = "{name}"\nsource = {{ file = "{name}_{kind}.csv" }}\n'
        text += 'labels = { e = 0, c = 1 }\nslices = ["kind"]\n'
        lines = ["premise,hypothesis,label,kind"]
        lines += [f"A {name} {kind} text {i // 2}.,It is {i}.,{'ec'[i % 2]},{'uv'[i % 3 == 0]}" for i in range(24)]
        (folder / f"{name}_{kind}.csv").write_text("\n".join(lines))
    (folder / "suite.toml").write_text(text)
    study = 'schema = 1\nname = "toy"\nsuite = "suite.toml"\n[grid]\nmodels = ["tiny-llama-untrained"]\n'
    study += 'train_sets = ["home"]\nshots = [8]\nseeds = [0, 1]\n[train]\nepochs = 2\nbatch_size = 4\n'
    (folder / "study.toml").write_text(study + "learning_rate = 1e-2\n")
    for out, sets in (("three", '["home", "away", "far"]'), ("four", '["home", "away", "far", "late"]')):
        done = oodles("run", folder / "study.toml", "--set", f"eval.test_sets={sets}", "--out", folder / out)
        assert done.returncode == 0, done.stderr
    return folder


def values(table: pd.DataFrame, run: str, test_set: str) -> dict[tuple[int, str], float]:
    rows = table[(table["run"] == run) & (table["test_set"] == test_set)]
    return {(r.step, r.metric): r.value for r in rows.itertuples()}


def same_records(a: Path, b: Path, run: str, test_set: str) -> bool:
    """Whether two folders hold the same bits for a run's test set."""
    first, second = (
        f[(f["run"] == run) & (f["test_set"] == test_set)].sort_values("step", kind="stable").reset_index(drop=True)
        for f in (read_records(a), read_records(b))
    )
    return len(first) > 0 and first.equals(second)


def test_a_single_model_gives_an_ordinary_run(trained: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = oodles("score", "--model", TINY, "--suite", trained / "suite.toml", "--in-domain", "home", "--out", out)
    assert done.returncode == 0, done.stderr
    assert "4 evaluations scored, 0 scored earlier" in done.stdout
    run = f"{TINY}_home"
    table = read_runs(out)
    assert set(table["run"]) == {run}
    assert set(table["step"]) == {0}
    # the untrained model is every run's step 0: the same bits as in a study
    study = read_runs(trained / "four")
    first = sorted(study["run"].unique())[0]
    for name in ("home", "away", "far", "late"):
        wanted = {k: v for k, v in values(study, first, name).items() if k[0] == 0}
        assert values(table, run, name) == pytest.approx(wanted, nan_ok=True)
    again = oodles("score", "--model", TINY, "--suite", trained / "suite.toml", "--in-domain", "home", "--out", out)
    assert "0 evaluations scored, 4 scored earlier" in again.stdout


def test_a_device_map_changes_no_score(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine without GPUs, accelerate places the model on the CPU; `make test-gpu` spreads it."""
    arguments = ["score", "--model", TINY, "--suite", trained / "suite.toml", "--in-domain", "home", "--out"]
    plain, spread = tmp_path / "plain", tmp_path / "spread"
    assert oodles(*arguments, plain).returncode == 0
    asked: list[Any] = []
    load = transformers.AutoModelForCausalLM.from_pretrained

    def watched(*given: Any, **more: Any) -> Any:
        asked.append(more.get("device_map"))
        return load(*given, **more)

    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", watched)
    done = oodles(*arguments, spread, "--device-map", "auto")
    assert done.returncode == 0, done.stderr
    assert asked == ["auto"]
    run = f"{TINY}_home"
    assert all(same_records(plain, spread, run, name) for name in ("home", "away", "far", "late"))
    wrong = oodles(*arguments, spread, "--device-map", "balanced")
    assert (wrong.returncode, wrong.stderr.strip().splitlines()[-1:]) == (
        2,
        ["ConfigError: oodles score: --device-map is 'balanced', expected auto"],
    )


def test_checkpoints_become_a_trajectory(trained: Path, tmp_path: Path) -> None:
    """The kept adapters of a run as checkpoint folders: the trajectory is the run's own, to the bit."""
    name = f"{TINY}_home_0_8"
    source = RunFolder(trained / "four" / "runs" / name)
    training = tmp_path / "training"
    for step in sorted({line.step for line in read_scores(source)}):
        shutil.copytree(source.adapter(step), training / f"checkpoint-{step}")
    out = tmp_path / "out"
    arguments = ["score", "--model", TINY, "--checkpoints", training, "--suite", trained / "suite.toml"]
    done = oodles(*arguments, "--in-domain", "home", "--run", name, "--out", out)
    assert done.returncode == 0, done.stderr
    for test_set in ("home", "away", "late"):
        assert same_records(out, trained / "four", name, test_set)
    shutil.copytree(training, tmp_path / "other" / "training")
    assert oodles(*arguments, "--in-domain", "home", "--run", "second", "--out", out).returncode == 0
    analysed = oodles("analyse", out, "--json")
    assert analysed.returncode == 0, analysed.stderr
    assert {r["n_runs"] for r in json.loads(analysed.stdout)["pairs"]} == {2}


def test_a_broken_adapter_among_good_ones_is_named_and_the_others_are_scored(trained: Path, tmp_path: Path) -> None:
    source = RunFolder(trained / "four" / "runs" / f"{TINY}_home_0_8")
    training, steps = tmp_path / "training", sorted({line.step for line in read_scores(source)})
    for step in steps:
        shutil.copytree(source.adapter(step), training / f"checkpoint-{step}")
    torn = training / f"checkpoint-{steps[0]}" / "adapter_model.safetensors"
    torn.write_bytes(torn.read_bytes()[:100])
    arguments = ["score", "--model", TINY, "--checkpoints", training, "--suite", trained / "suite.toml"]
    arguments += ["--in-domain", "home", "--run", source.name, "--out", tmp_path / "out"]
    done = oodles(*arguments)
    assert done.returncode == 1, done.stderr
    told = [line for line in done.stderr.splitlines() if line.startswith("failed: ")]
    assert len(told) == 1
    assert (
        f"step {steps[0]}: {torn.parent}: the adapter is damaged: {torn.name} has changed since it was written"
        in told[0]
    )
    assert set(read_runs(tmp_path / "out").step) == set(steps[1:])
    shutil.copyfile(source.adapter(steps[0]) / torn.name, torn)
    assert oodles(*arguments).returncode == 0  # mended: only that one is scored now
    for test_set in ("home", "away", "late"):
        assert same_records(tmp_path / "out", trained / "four", source.name, test_set)


def test_one_adapter_by_its_folder(trained: Path, tmp_path: Path) -> None:
    name = f"{TINY}_home_0_8"
    source = RunFolder(trained / "four" / "runs" / name)
    last = max(line.step for line in read_scores(source))
    out = tmp_path / "out"
    arguments = ["--adapter", source.adapter(last), "--suite", trained / "suite.toml", "--test-set", "away/u"]
    done = oodles("score", "--model", TINY, *arguments, "--test-set", "far", "--out", out, "--json")
    assert done.returncode == 0, done.stderr
    table = read_runs(out)
    assert set(table["step"]) == {last}
    assert set(table["test_set"]) == {"away", "away/u", "far"}
    found = values(table, json.loads(done.stdout)[0]["run"], "far")
    assert found == pytest.approx(
        {k: v for k, v in values(read_runs(trained / "four"), name, "far").items() if k[0] == last}, nan_ok=True
    )


def test_a_set_added_later_equals_one_that_was_there_from_the_start(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained / "three", tmp_path / "three")
    arguments = ["score", "--runs", tmp_path / "three", "--suite", trained / "suite.toml", "--add-test-set", "late"]
    done = oodles(*arguments)
    assert done.returncode == 0, done.stderr
    for seed in (0, 1):
        assert same_records(tmp_path / "three", trained / "four", f"{TINY}_home_{seed}_8", "late")
    table, wanted = read_runs(tmp_path / "three"), read_runs(trained / "four")
    assert len(table) == len(wanted)
    assert "0 evaluations scored" in oodles(*arguments).stdout
    assert "late/kind=u" not in set(table["test_set"])
    more = oodles("analyse", tmp_path / "three", "--test-set", "late/u", "--test-set", "far", "--json")
    assert {(r["a"], r["b"]) for r in json.loads(more.stdout)["pairs"]} == {("far", "late/u")}


def test_a_study_remembers_where_its_suite_is(trained: Path, tmp_path: Path) -> None:
    """Seen from its folder, so that both may move; a folder of an older version, or a suite that is gone, asks."""
    moved = tmp_path / "moved"
    shutil.copytree(trained, moved)
    study = moved / "three" / "study.json"
    assert read_json(study)["suite_file"] == "../suite.toml"
    command = ("score", "--runs", moved / "three", "--add-test-set", "late")
    done = oodles(*command, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert same_records(moved / "three", trained / "four", f"{TINY}_home_0_8", "late")
    (moved / "suite.toml").unlink()
    gone = oodles(*command, cwd=tmp_path)
    assert (gone.returncode, gone.stderr.count("\n")) == (2, 1)
    place = moved / "three" / "../suite.toml"
    assert f"its suite 'toy' was read from {place}, which is not there; say where its TOML is" in gone.stderr
    write_json(study, {key: value for key, value in read_json(study).items() if key != "suite_file"})
    older = oodles(*command, cwd=tmp_path)
    assert (older.returncode, older.stderr.count("\n")) == (2, 1)
    assert "its suite 'toy' is not built in; say where its TOML is with --suite" in older.stderr
    assert oodles(*command, "--suite", trained / "suite.toml").returncode == 0


def test_a_built_in_suite_has_no_file() -> None:
    assert load_suite("mini").file == ""


def test_run_scores_the_sets_that_finished_runs_lack(trained: Path, tmp_path: Path) -> None:
    """The study has grown by a test set: it is scored from the kept adapters, nothing is trained."""
    shutil.copytree(trained / "three", tmp_path / "three")
    done = oodles("run", trained / "study.toml", "--out", tmp_path / "three", "--json")
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["done"]) == 2
    for seed in (0, 1):
        assert same_records(tmp_path / "three", trained / "four", f"{TINY}_home_{seed}_8", "late")


def test_a_killed_scorer_goes_on_and_gives_the_same(trained: Path, tmp_path: Path) -> None:
    name = f"{TINY}_home_0_8"
    source = RunFolder(trained / "four" / "runs" / name)
    training, out = tmp_path / "training", tmp_path / "out"
    for step in sorted({line.step for line in read_scores(source)}):
        shutil.copytree(source.adapter(step), training / f"step-{step}")
    arguments = ["score", "--model", TINY, "--checkpoints", str(training), "--suite", str(trained / "suite.toml")]
    arguments += ["--in-domain", "home", "--run", name, "--out", str(out)]
    code = "from oodles.cli import main; main()"
    scorer = subprocess.Popen([sys.executable, "-c", code, *arguments], stderr=subprocess.DEVNULL)
    scores = RunFolder(out / "runs" / name)
    deadline = time.monotonic() + 120
    while len(read_scores(scores)) < 2 and time.monotonic() < deadline and scorer.poll() is None:
        time.sleep(0.005)
    os.kill(scorer.pid, signal.SIGKILL)
    scorer.wait()
    before = scores.scores.read_bytes()
    held = len(read_scores(scores))
    assert held >= 2
    done = oodles(*arguments)
    assert done.returncode == 0, done.stderr
    assert f"{held} scored earlier" in done.stdout
    assert scores.scores.read_bytes().startswith(before)
    for test_set in ("home", "away", "far", "late"):
        assert same_records(out, trained / "four", name, test_set)


def test_whole_models_as_checkpoints(trained: Path, tmp_path: Path, tiny_model: Path) -> None:
    for step in (1, 2):
        shutil.copytree(tiny_model, tmp_path / "training" / f"checkpoint-{step}")
    done = oodles(
        *("score", "--model", TINY, "--checkpoints", tmp_path / "training", "--suite", trained / "suite.toml"),
        *("--out", tmp_path / "out", "--limit", 8),
    )
    assert done.returncode == 0, done.stderr
    table = read_runs(tmp_path / "out")
    assert set(table["step"]) == {1, 2}
    assert set(table["n"]) == {8}


def as_checkpoint(tiny_model: Path, folder: Path, step: int, network: Any = None) -> Path:
    """A whole model as a checkpoint: the tiny one, or another with its tokenizer."""
    path = folder / f"checkpoint-{step}"
    shutil.copytree(tiny_model, path)
    if network is not None:
        network.save_pretrained(path)
    return path


def test_one_whole_model_is_in_memory_at_a_time(
    trained: Path, tmp_path: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after one that cannot be loaded, and after one that fails while it is scored."""
    import transformers

    training = tmp_path / "training"
    for step in (1, 4, 5):
        as_checkpoint(tiny_model, training, step)
    torn = as_checkpoint(tiny_model, training, 2) / "model.safetensors"
    torn.write_bytes(torn.read_bytes()[:1000])
    blind = transformers.AutoModelForCausalLM.from_pretrained(tiny_model)
    blind.get_output_embeddings().weight.data.fill_(float("nan"))
    as_checkpoint(tiny_model, training, 3, blind)
    loaded: list[weakref.ref[Any]] = []
    alive: list[int] = []

    def load(*arguments: Any) -> Any:
        alive.append(sum(model() is not None for model in loaded))
        model = load_model(*arguments)
        loaded.append(weakref.ref(model))
        return model

    monkeypatch.setattr(scorer, "load_model", load)
    checkpoints = (scorer.Checkpoint(step=0), *find_checkpoints(training))
    suite = load_suite(trained / "suite.toml")
    found = scorer.score_model(suite, tmp_path / "out", model=TINY, checkpoints=checkpoints)
    assert [step for step, _ in found.broken] == [2, 3]
    assert "the model gave [nan nan]" in found.broken[1][1]
    assert (found.done, len(loaded)) == (16, 5)
    assert alive == [0] * 6
    assert RunFolder(tmp_path / "out" / "runs" / found.run).status == "done"


def test_a_checkpoint_of_another_kind_is_not_scored_with_the_first_ones_shortcuts(
    trained: Path, tmp_path: Path, tiny_model: Path
) -> None:
    """Gemma 2 squashes its logits after the head: the rows of the head, which serve a Llama, are not its answer."""
    import torch
    import transformers

    from oodles.suite.patterns import render
    from oodles.suite.sources import load_examples

    torch.manual_seed(0)
    small = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    vocabulary = transformers.AutoConfig.from_pretrained(tiny_model).vocab_size
    config = transformers.Gemma2Config(
        **small, intermediate_size=64, head_dim=8, vocab_size=vocabulary, final_logit_softcapping=0.02, pad_token_id=0
    )
    gemma = transformers.Gemma2ForCausalLM(config).eval()
    as_checkpoint(tiny_model, tmp_path / "training", 1)
    as_checkpoint(tiny_model, tmp_path / "training", 2, gemma)
    suite = load_suite(trained / "suite.toml")
    checkpoints = find_checkpoints(tmp_path / "training")
    scorer.score_model(suite, tmp_path / "out", model=TINY, checkpoints=checkpoints)
    records = read_records(tmp_path / "out")
    prompts = render(suite.patterns["question"], load_examples(suite, suite.test_sets["away"]), "away")
    wanted = scoring.score(gemma, load_tokenizer(resolve_model(TINY)), prompts)
    found = records[(records.step == 2) & (records.test_set == "away")][["score:Yes", "score:No"]].to_numpy()
    assert np.abs(found - wanted).max() < 1e-6
    assert np.abs(found).max() < 0.02  # squashed, as the model does it


def test_without_a_single_checkpoint_that_can_be_scored_a_run_is_not_done(trained: Path, tmp_path: Path) -> None:
    source, training = RunFolder(trained / "four" / "runs" / f"{TINY}_home_0_8"), tmp_path / "training"
    for step in (1, 2):
        shutil.copytree(source.adapter(step), training / f"checkpoint-{step}")
        torn = training / f"checkpoint-{step}" / "adapter_model.safetensors"
        torn.write_bytes(torn.read_bytes()[:100])
    arguments = ["score", "--model", TINY, "--checkpoints", training, "--suite", trained / "suite.toml"]
    arguments += ["--run", "r", "--out", tmp_path / "out"]
    assert oodles(*arguments).returncode == 1
    folder = RunFolder(tmp_path / "out" / "runs" / "r")
    assert not folder.done.exists()
    assert folder.status == "failed"
    assert "checkpoint-2: the adapter is damaged" in json.loads(folder.failed.read_text())["reason"]
    shutil.copyfile(source.adapter(2) / torn.name, torn)
    assert oodles(*arguments).returncode == 1  # one of two, now
    assert folder.status == "done"
    assert json.loads(folder.done.read_text())["last_step"] == 2
    assert not folder.failed.exists()


def test_ties_are_told(trained: Path, tmp_path: Path, tiny_model: Path) -> None:
    """A head of zeros cannot decide anything."""
    import transformers

    flat = transformers.AutoModelForCausalLM.from_pretrained(tiny_model)
    flat.get_output_embeddings().weight.data.fill_(0.0)
    folder = as_checkpoint(tiny_model, tmp_path, 1, flat)
    arguments = ["score", "--suite", trained / "suite.toml", "--test-set", "away", "--out", tmp_path / "out"]
    for model in (folder, TINY):
        assert oodles(*arguments, "--model", model, "--run", model.name if model == folder else "sound").returncode == 0
    told = {run["name"]: run["caveats"] for run in describe_runs(tmp_path / "out")}
    tied = "away: 24 of 24 decisions at step 0 are ties, which go to the first answer"
    assert told == {"checkpoint-1": [tied], "sound": []}


def test_the_in_domain_set_is_scored_whatever_else_is_chosen(trained: Path, tmp_path: Path) -> None:
    arguments = ["score", "--model", TINY, "--suite", trained / "suite.toml", "--out", tmp_path / "out"]
    done = oodles(*arguments, "--in-domain", "home", "--test-set", "away")
    assert done.returncode == 0, done.stderr
    table = read_runs(tmp_path / "out")
    assert dict(zip(table.test_set, table.role, strict=True)) == {"home": "in_domain", "away": "ood"}


def test_checkpoints_are_found_by_their_step(tmp_path: Path) -> None:
    for name in ("checkpoint-10", "checkpoint-9", "step_200", "7", "runs", "checkpoint-x", "checkpoint-3"):
        (tmp_path / name).mkdir()
        if name != "checkpoint-3":
            (tmp_path / name / "adapter_config.json").write_text("{}")
    told: list[str] = []
    assert [c.step for c in find_checkpoints(tmp_path, told.append)] == [7, 9, 10, 200]
    assert told == [f"note: {tmp_path}/checkpoint-3: left out, it has no adapter_config.json and no config.json"]
    (tmp_path / "step-9").mkdir()
    (tmp_path / "step-9" / "config.json").write_text("{}")
    with pytest.raises(ModelError, match="are both step 9"):
        find_checkpoints(tmp_path)


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ('{"r": 8, "base_model_name_or_path": "x"}', "has no peft_type; expected the kind of adapter, such as LORA"),
        ('{"peft_type": "LORRA"}', "peft_type is LORRA; expected the kind of adapter, such as LORA"),
        ("{", "cannot be read (Expecting property name"),
    ],
)
def test_an_adapter_of_no_kind_is_refused_and_leaves_nothing(
    config: str, problem: str, trained: Path, tmp_path: Path
) -> None:
    source = RunFolder(trained / "four" / "runs" / f"{TINY}_home_0_8")
    (tmp_path / "t" / "checkpoint-5").mkdir(parents=True)
    shutil.copyfile(
        source.adapter(2) / "adapter_model.safetensors", tmp_path / "t/checkpoint-5/adapter_model.safetensors"
    )
    (tmp_path / "t" / "checkpoint-5" / "adapter_config.json").write_text(config)
    (tmp_path / "t" / "checkpoint-6").mkdir()
    arguments = ["score", "--model", TINY, "--checkpoints", tmp_path / "t", "--suite", trained / "suite.toml"]
    done = oodles(*arguments, "--out", tmp_path / "deep" / "sc")
    assert done.returncode == 2, done.stderr
    note, line = done.stderr.strip().splitlines()
    assert note.startswith(f"note: {tmp_path}/t/checkpoint-6: left out, it has no adapter_config.json")
    assert f"{tmp_path}/t/checkpoint-5/adapter_config.json: {problem}" in line
    assert line.endswith("restore the file, or remove the adapter's folder")
    assert {path.name for path in tmp_path.iterdir()} == {"t"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--suite", "SUITE"], "which model? give --model"),
        (["--model", TINY, "--suite", "SUITE", "--checkpoints", "none"], "--checkpoints needs a folder to write to"),
        (["--model", TINY, "--suite", "SUITE", "--run", "mine"], "--run needs a folder to write to; e.g. --out"),
        (["--model", TINY, "--out", "OUT"], "--suite is missing"),
        (["--suite", "SUITE", "--out", "OUT"], "which model? give --model"),
        (["--model", "smolm2-135m-q4", "--suite", "SUITE", "--out", "OUT"], "did you mean 'smollm2-135m-q4'"),
        (["--model", TINY, "--suite", "SUITE", "--out", "OUT", "--in-domain", "hom"], "did you mean 'home'"),
        (["--model", TINY, "--suite", "SUITE", "--out", "OUT", "--test-set", "away/w"], "no such slice of 'away'"),
        (
            ["--model", TINY, "--suite", "SUITE", "--out", "OUT", "--precision", "fp8"],
            "expected auto, fp32, bf16 or fp16",
        ),
        (["--model", TINY, "--suite", "SUITE", "--out", "OUT", "--adapter", "none"], "no adapter_config.json"),
        (["--model", TINY, "--suite", "SUITE", "--out", "OUT", "--checkpoints", "none"], "none: no such folder"),
        (["--runs", "RUNS"], "which test set? give --add-test-set"),
        (["--runs", "RUNS", "--suite", "mini", "--add-test-set", "news"], "holds runs on suite 'toy', not 'mini'"),
        (["--runs", "RUNS", "--suite", "SUITE", "--add-test-set", "laet"], "did you mean 'late'"),
        (["--runs", "RUNS", "--model", TINY, "--add-test-set", "late"], "--model does not go with --runs"),
        (["--model", TINY, "--suite", "SUITE", "--out", "OUT", "--add-test-set", "late"], "goes with --runs"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(arguments: list[str], message: str, trained: Path, tmp_path: Path) -> None:
    places = {"SUITE": trained / "suite.toml", "OUT": tmp_path / "out", "RUNS": trained / "three"}
    done = oodles("score", *[places.get(a, a) for a in arguments], cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert message in done.stderr
    assert not (tmp_path / "out").exists()


def test_records_are_small(trained: Path, tmp_path: Path) -> None:
    """Bytes per example and step: an id by its difference, two scores, one bit."""
    from oodles.contracts import Predictions, Prompt, PromptSet
    from oodles.store.commit import commit

    n = 30_000
    scores = np.random.default_rng(0).normal(size=(n, 2)).astype(np.float32).astype(np.float64)
    prompts = PromptSet(
        name="hans",
        answers=(" Yes", " No"),
        prompts=tuple(Prompt(id=str(i), text="x", gold=i % 2) for i in range(n)),
    )
    found = Predictions(
        test_set="hans",
        answers=prompts.answers,
        ids=tuple(p.id for p in prompts.prompts),
        scores=scores,
        gold=np.arange(n) % 2,
    )
    folder = RunFolder(tmp_path / "runs" / "r")
    folder.path.mkdir(parents=True)
    commit(folder, 0, prompts, found, "ood")
    assert folder.records(0, "hans").stat().st_size / n < 9.5
    frame = pd.read_parquet(folder.records(0, "hans"))
    assert frame["example"].tolist() == list(found.ids)
    assert np.array_equal(frame["score:Yes"].to_numpy(np.float64), scores[:, 0])
