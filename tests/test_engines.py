"""Engines: two real processes (gloo) against one. Every test says which engine really ran."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oodles as oo
from conftest import missing, oodles
from oodles.contracts import ZERO
from oodles.store.folder import RunFolder, StudyFolder
from oodles.store.scores import read_scores

ENGINES = ("ddp", "fsdp2", "zero2", "zero3")
WRAPPED = {
    "ddp": "DistributedDataParallel",
    "fsdp2": "FSDPCalls",
    "zero2": "DeepSpeedEngine",
    "zero3": "DeepSpeedEngine",
}
STATES = r" and the optimiser's state of \[(?P<one>\d+), (?P<two>\d+)\] of (?P<all>\d+)"
WHAT = {
    "ddp": r"engine ddp: DistributedDataParallel, 2 processes, which hold \[(\d+), \1\] of \1 parameters",
    "fsdp2": r"engine fsdp2: FSDPCalls, 2 processes, which hold \[(\d+), (\d+)\] of (\d+) parameters",
    "zero2": r"engine zero2: DeepSpeedEngine, 2 processes, which hold \[(\d+), \1\] of \1 parameters" + STATES,
    "zero3": r"engine zero3: DeepSpeedEngine, 2 processes, which hold \[(\d+), (\d+)\] of (\d+) parameters" + STATES,
}
# 9 shots in batches of 4: the last batch of an epoch has one example, which one of the two processes computes
STEPS = "train.steps=8"


@pytest.fixture(autouse=True)
def deepspeed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """DeepSpeed is installed aside (`make test-all`), for the processes that these tests start."""
    if "zero" in request.node.name:
        find_deepspeed(monkeypatch)


def find_deepspeed(monkeypatch: pytest.MonkeyPatch) -> None:
    if find_spec("deepspeed") is not None:
        return
    aside = os.environ.get("OODLES_DEEPSPEED", "")
    if not (Path(aside) / "deepspeed").is_dir():
        missing("no deepspeed: pip install 'oodles[deepspeed]', or set OODLES_DEEPSPEED to the folder it is in")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH", ""), aside])))


@pytest.fixture
def study(toy_study: Path) -> Path:
    text = toy_study.read_text().replace("shots = [8]", "shots = [18]").replace("seeds = [0, 1]", "seeds = [0]")
    toy_study.write_text(text.replace('suite = "toy.toml"', 'suite = "toy.toml"\nreport_to = "none"'))
    return toy_study


def options(engine: str, *more: str) -> list[str]:
    given = [STEPS, *more] if engine == "single" else [STEPS, f"engine={engine}", "processes=2", *more]
    return [word for option in given for word in ("--set", option)]


def run_of(root: Path) -> RunFolder:
    (path,) = (root / "runs").iterdir()
    return StudyFolder(root).run(path.name)


def make(study: Path, root: Path, engine: str, *more: str) -> RunFolder:
    done = oodles("run", study, "--out", root, "--json", *options(engine, *more), OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["done"], done.stdout  # nothing else is written there
    return run_of(root)


def adapters(folder: RunFolder) -> dict[tuple[str, str], Any]:
    from safetensors.torch import load_file

    files = sorted(folder.path.glob("adapters/*/adapter_model.safetensors"))
    return {(file.parent.name, name): tensor for file in files for name, tensor in load_file(file).items()}


def largest_difference(a: RunFolder, b: RunFolder) -> tuple[float, float]:
    """Of the adapters, and of the scores."""
    one, other = adapters(a), adapters(b)
    assert one.keys() == other.keys()
    assert {step for step, _ in one} == {"0", "1", "2", "4", "8"}
    weights = max(float((one[key] - other[key]).abs().max()) for key in one)
    keys = ["run", "step", "test_set", "example"]
    first, second = (oo.read_records(folder.study.path) for folder in (a, b))
    both = first.merge(second, on=keys, suffixes=("_a", "_b"))
    assert len(both) == len(first) == len(second)
    names = [name for name in first.columns if name.startswith("score:")]
    return weights, max(float(np.abs(both[f"{n}_a"] - both[f"{n}_b"]).max()) for n in names)


def check_engine(folder: RunFolder, engine: str) -> None:
    """What ran is what was asked for, by what the processes themselves said of the model they hold."""
    said = re.search(WHAT[engine], folder.log.read_text())
    assert said, folder.log.read_text()
    if engine in ("fsdp2", "zero3"):
        held, whole = [int(said[1]), int(said[2])], int(said[3])
        assert sum(held) == whole
        assert max(held) < 0.6 * whole
    if engine in ZERO:
        assert int(said["one"]) == int(said["two"]) == int(said["all"]) / 2
    env = json.loads(folder.env.read_text())
    assert (env["engine"], env["processes"]) == (engine, 2)


@pytest.fixture(scope="module")
def references() -> dict[str, RunFolder]:
    return {}


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_two_processes_train_and_score_like_one(
    engine: str, study: Path, tmp_path_factory: pytest.TempPathFactory, references: dict[str, RunFolder], tmp_path: Path
) -> None:
    if "single" not in references:
        references["single"] = make(study, tmp_path_factory.mktemp("single"), "single")
    settings = {"zero_optimization": {"stage": 3, "stage3_prefetch_bucket_size": 5000}, "train_batch_size": "auto"}
    (study.parent / "ds.json").write_text(json.dumps(settings))
    more = ["engine_config=ds.json"] if engine == "zero3" else []
    alone, together = references["single"], make(study, tmp_path / "out", engine, *more)
    check_engine(together, engine)
    taken = {"zero_optimization": {"stage3_prefetch_bucket_size": 5000}} if more else None
    assert json.loads(together.env.read_text()).get("engine_config") == taken
    weights, scores = largest_difference(alone, together)
    assert weights < 1e-5
    assert scores < 1e-4
    assert alone.spec.read_bytes() == together.spec.read_bytes()  # the engine is no part of a run's identity
    assert "engine" not in json.loads(alone.env.read_text())


def begin(study: Path, root: Path, engine: str, *more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "oodles", "run", str(study), "--out", str(root), *options(engine, *more)],
        text=True,
        stderr=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def wait_for_step(root: Path, step: int, started: subprocess.Popen[str]) -> RunFolder:
    deadline = time.monotonic() + 420
    while time.monotonic() < deadline:
        assert started.poll() is None, started.communicate()[1]
        if (root / "runs").is_dir() and any((root / "runs").iterdir()):
            folder = run_of(root)
            if any(score.step >= step for score in read_scores(folder)):
                return folder
        time.sleep(0.02)
    raise AssertionError(f"step {step} was not reached")


def first_process(folder: RunFolder) -> int:
    return int(json.loads(folder.lock.read_text())["process"])


def children(process: int) -> list[int]:
    """The processes that one has started, without those that only clean up."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            fields = (path / "stat").read_text().rsplit(")", 1)[1].split()
            command = (path / "cmdline").read_bytes()
        except OSError:
            continue
        if int(fields[1]) == process and fields[0] != "Z" and b"spawn_main" in command:
            found.append(int(path.name))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_killed_and_resumed_equals_undisturbed(engine: str, study: Path, tmp_path: Path) -> None:
    """With dropout, so that the random states of both processes count."""
    dropout = "lora.dropout=0.2"
    whole = make(study, tmp_path / "whole", engine, dropout)
    started = begin(study, tmp_path / "cut", engine, dropout)
    cut = wait_for_step(tmp_path / "cut", 2, started)
    os.kill(first_process(cut), signal.SIGKILL)
    _, errors = started.communicate(timeout=120)
    assert started.returncode == 2
    assert "process 1 of 2 was killed by SIGKILL; committed scores are safe" in errors
    assert cut.status != "done"
    make(study, tmp_path / "cut", engine, dropout)
    assert "resumes from step" in cut.log.read_text()
    check_engine(cut, engine)
    assert largest_difference(whole, cut) == (0.0, 0.0)
    assert "differs from the earlier training" not in cut.log.read_text()


@pytest.mark.long
@pytest.mark.parametrize("engines", [("single", "fsdp2", "ddp"), ("zero2", "zero3", "single")], ids=["torch", "zero"])
def test_a_run_may_go_on_with_another_engine(engines: tuple[str, ...], study: Path, tmp_path: Path) -> None:
    """Killed twice, and resumed with another engine each time: what one process computes, without dropout."""
    root = tmp_path / "cut"
    for step, engine in enumerate(engines[:-1], start=1):
        started = begin(study, root, engine)
        os.kill(first_process(wait_for_step(root, step, started)), signal.SIGKILL)
        started.communicate(timeout=120)
        assert run_of(root).status == "started"
    cut = make(study, root, engines[-1])
    log = cut.log.read_text()
    assert log.count("resumes from step") == 2
    assert [name for name in WHAT if re.search(WHAT[name], log)] == sorted(
        set(engines) - {"single"}, key=list(WHAT).index
    )
    weights, scores = largest_difference(make(study, tmp_path / "whole", "single"), cut)
    assert weights < 1e-5
    assert scores < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_a_process_killed_in_a_step_ends_the_run_with_a_reason(engine: str, study: Path, tmp_path: Path) -> None:
    root = tmp_path / "out"
    started = begin(study, root, engine, "train.steps=4000", "eval.steps=[1,2,4,8]")
    folder = wait_for_step(root, 8, started)
    (other,) = set(children(started.pid)) - {first_process(folder)}
    killed = time.monotonic()
    os.kill(other, signal.SIGKILL)
    _, errors = started.communicate(timeout=90)
    assert time.monotonic() - killed < 60
    assert started.returncode == 1, errors
    assert json.loads(folder.failed.read_text())["reason"] == "process 2 of 2 ended unexpectedly"
    assert "failed: " in errors
    assert "process 2 of 2 ended unexpectedly" in errors
    assert "Traceback" not in errors


@pytest.mark.slow
def test_a_polite_stop_keeps_a_checkpoint_and_leaves_nobody(study: Path, tmp_path: Path) -> None:
    root = tmp_path / "out"
    started = begin(study, root, "fsdp2", "train.steps=4000", "eval.steps=[1,2]")
    folder = wait_for_step(root, 2, started)
    there = children(started.pid)
    assert len(there) == 2
    started.send_signal(signal.SIGTERM)
    started.communicate(timeout=240)  # two processes on busy cores
    assert started.returncode == 128 + signal.SIGTERM
    assert folder.status == "started"
    assert [path.name for path in folder.checkpoints.iterdir() if path.name.isdigit()]
    assert not any(Path(f"/proc/{process}").exists() for process in there)


EVERY = r"""
import sys, time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch.distributed import TCPStore

tests, scratch, rank = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
sys.path.insert(0, tests)
from oodles.contracts import Lora, Recipe, Seeds
from oodles.model import scoring
from oodles.model.embedded import tiny_tokenizer
from oodles.model.load import attach_lora
from oodles.runs.engines import release_model, share_model, whole_adapter
from oodles.runs.ranks import Ranks, join, part
from oodles.runs.train import fine_tune
from test_scoring import tiny
from test_train import planted

torch.set_num_threads(1)
if rank == 0:
    store = TCPStore("127.0.0.1", 0, 2, is_master=True, wait_for_workers=False)
    (scratch / "part").write_text(str(store.port))
    (scratch / "part").rename(scratch / "port")
else:
    while not (scratch / "port").exists():
        time.sleep(0.05)
    store = TCPStore("127.0.0.1", int((scratch / "port").read_text()), 2, is_master=False)
join(Ranks(engine="ddp", rank=rank, size=2), store)
tokenizer, shots = tiny_tokenizer(), planted(10)
usual = Recipe(steps=3, batch_size=4, learning_rate=1e-3)
recipes = {
    "usual": usual,
    "accumulate": replace(usual, accumulate=2),
    "answers": replace(usual, loss="answers"),
    "checkpointing": replace(usual, gradient_checkpointing=True),
    "sgd": replace(usual, optimiser="sgd", learning_rate=1e-2),
    "bf16": usual,
    "dropout": usual,
}


def made(architecture, recipe):
    model = tiny(architecture)
    if recipe != "dropout":  # of their own, OPT and GPT-2 have some
        for module in model.modules():
            for name in ("p", "dropout", "attention_dropout", "hidden_dropout"):
                if isinstance(getattr(module, name, None), float):
                    setattr(module, name, 0.0)
    if recipe == "bf16":
        model.to(torch.bfloat16)
    return attach_lora(model, Lora(rank=2), 0)


for engine, architecture, recipe in (case.split() for case in sys.argv[4:]):
    alone, shared = made(architecture, recipe), made(architecture, recipe)
    ranks = Ranks(engine=engine, rank=rank, size=2)
    share_model(shared, ranks, trains=True)
    fine_tune(alone, tokenizer, shots, recipes[recipe], Seeds.all(0), [])
    fine_tune(shared, tokenizer, shots, recipes[recipe], Seeds.all(0), [], ranks=ranks)
    whole = whole_adapter(shared) or dict(shared.named_parameters())
    trained = {name: p.detach() for name, p in alone.named_parameters() if p.requires_grad}
    moved = max(float(p.abs().max()) for name, p in trained.items() if "lora_B" in name)
    weights = max(float((p - whole[name].detach()).abs().max()) for name, p in trained.items())
    one = scoring.score(alone, tokenizer, shots, distributed=False)
    both = scoring.score(shared, tokenizer, shots)
    scores = float(np.abs(one - both).max() / np.abs(one).max())
    name = type(vars(shared)["_oodles_entry"]).__name__
    release_model(shared)
    if rank == 0:
        print(f"case {engine} {architecture} {recipe} {name} {moved:.1e} {weights:.1e} {scores:.1e}", flush=True)
part()
"""
# of the adapters, and of the scores relative to their size
CLOSE = {"bf16": (1e-3, 1e-2), "usual": (1e-5, 1e-4)}
RECIPES = ("accumulate", "answers", "checkpointing", "sgd", "bf16")
CASES = [
    *(
        f"{engine} {name} usual"
        for engine in ("ddp", "fsdp2")
        for name in ("llama", "olmo2", "smollm3", "qwen2", "opt")
    ),
    *(f"{engine} llama {recipe}" for engine in ("ddp", "fsdp2") for recipe in RECIPES),
]
ZERO_CASES = [
    *(f"{engine} {name} usual" for engine in ZERO for name in ("llama", "olmo2", "opt")),
    *(f"{engine} llama {recipe}" for engine in ZERO for recipe in RECIPES),
]


def compare(cases: list[str], scratch: Path) -> dict[str, tuple[str, float, float, float]]:
    """Per case: the wrapper, how far the adapter moved, how far two processes are from one, in weights and scores."""
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", EVERY, str(Path(__file__).parent), str(scratch), str(rank), *cases],
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        for rank in range(2)
    ]
    found = {}
    for rank in ranks:
        said, errors = rank.communicate(timeout=580)
        assert rank.returncode == 0, said + errors[-3000:]
        for line in (line for line in said.splitlines() if line.startswith("case ")):
            _, engine, architecture, recipe, name, *numbers = line.split()
            moved, weights, scores = map(float, numbers)
            found[f"{engine} {architecture} {recipe}"] = (name, moved, weights, scores)
    assert list(found) == cases
    return found


@pytest.mark.long
@pytest.mark.parametrize("cases", [CASES, ZERO_CASES], ids=["torch", "zero"])
def test_architectures_and_recipes_equal_one_process(cases: list[str], tmp_path: Path) -> None:
    for case, (name, moved, weights, scores) in compare(cases, tmp_path).items():
        print(f"{case}: {name}, moved {moved:.1e}, differs by {weights:.1e}, scores by {scores:.1e}")
        engine, _, recipe = case.split()
        close = CLOSE.get(recipe, CLOSE["usual"])
        assert name == WRAPPED[engine]
        assert moved > 1e-4, case
        assert weights < close[0], case
        assert scores < close[1], case


@pytest.mark.long
def test_only_dropout_makes_opt_differ(tmp_path: Path) -> None:
    """OPT drops by itself, and each process draws for itself. Without that, OPT is among the cases above."""
    found = compare(["ddp opt dropout", "ddp opt usual"], tmp_path)
    assert found["ddp opt dropout"][2] > 1e-4
    assert found["ddp opt usual"][2] < 1e-5
