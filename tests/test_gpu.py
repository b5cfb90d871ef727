"""What differs on a GPU: `make test-gpu`, for a machine with one or several. Its output is worth sending to us.

OODLES_REHEARSE=1 runs what does not need a GPU on the CPU, to test the tests.
"""

from __future__ import annotations

import json
import os
import re
import signal
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import oodles as oo
from conftest import oodles
from oodles.contracts import ZERO, PromptSet
from oodles.model import scoring
from oodles.model.embedded import tiny_tokenizer
from oodles.store.environment import environment
from test_device_map import add_late_set
from test_engines import ENGINES, WHAT, adapters, begin, first_process, largest_difference, run_of, wait_for_step
from test_scoring import ARCHITECTURES, centred, tiny

REHEARSAL = bool(os.environ.get("OODLES_REHEARSE"))
GPUS = torch.cuda.device_count()
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not GPUS and not REHEARSAL, reason="no GPU is visible (torch.cuda.device_count() is 0)"),
]
several = pytest.mark.skipif(GPUS < 2 and not REHEARSAL, reason=f"needs two GPUs, {GPUS} visible")
DEVICE = "cuda" if GPUS else "cpu"
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@pytest.fixture(scope="module")
def prompts() -> PromptSet:
    text = "A person number {} sits down today. Question: Somebody {} sits. Yes or No?"
    texts = [text.format(n // 3, "ecn"[n % 3]) for n in range(60)]
    return scoring.texts_as_set(texts, (" Yes", " No"))


@pytest.fixture
def study(toy_study: Path) -> Path:
    text = toy_study.read_text().replace("shots = [8]", "shots = [18]").replace("seeds = [0, 1]", "seeds = [0]")
    toy_study.write_text(text.replace('suite = "toy.toml"', 'suite = "toy.toml"\nreport_to = "none"'))
    return toy_study


def make(study: Path, root: Path, *settings: str) -> Any:
    given = [word for setting in ("train.steps=8", *settings) for word in ("--set", setting)]
    done = oodles("run", study, "--out", root, *given, OODLES_TEST="gpu")
    assert done.returncode == 0, done.stderr
    return run_of(root)


def test_the_machine() -> None:
    """Shown at the end of the output."""
    print(json.dumps(environment(), indent=1))
    for number in range(GPUS):
        device = torch.cuda.get_device_properties(number)
        memory = f"{device.total_memory / 2**30:.0f} GiB"
        print(f"GPU {number}: {device.name}, {memory}, capability {device.major}.{device.minor}")
    if GPUS:
        print(f"CUDA {torch.version.cuda}, NCCL {torch.cuda.nccl.version()}")


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_run(precision: str, study: Path, tmp_path: Path) -> None:
    folder = make(study, tmp_path / "out", f"train.precision={precision}")
    env = json.loads(folder.env.read_text())
    assert env["device"] == (torch.cuda.get_device_name() if GPUS else "cpu")
    assert np.isfinite(oo.read_runs(tmp_path / "out")["value"]).all()


@pytest.mark.parametrize("precision", DTYPES)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_packed_rows_equal_plain_prompts(architecture: str, precision: str, prompts: PromptSet) -> None:
    """Against the same model in fp32 on the CPU, one prompt at a time."""
    tokenizer, model = tiny_tokenizer(), tiny(architecture)
    model = model.to(DTYPES[precision])
    exact = scoring.score(tiny(architecture).to(DTYPES[precision]).float(), tokenizer, prompts, batch_tokens=1)
    found = scoring.score(model.to(DEVICE), tokenizer, prompts)
    spread = float(np.abs(centred(exact)).mean())
    error = float(np.abs(centred(found) - centred(exact)).max()) / spread
    print(f"{architecture} {precision}: largest error {error:.2g} of the scores' spread")
    assert error < (1e-3 if precision == "fp32" else 0.5)


@pytest.mark.skipif(not GPUS, reason="needs a GPU's memory limit")
def test_out_of_memory_halves_the_batch(prompts: PromptSet) -> None:
    tokenizer, model = tiny_tokenizer(), tiny("llama").to(DEVICE)
    exact = scoring.score(model, tokenizer, prompts)
    many = scoring.texts_as_set([p.text + f" {n}" for n in range(400) for p in prompts.prompts], prompts.answers)
    plain = scoring.score(model, tokenizer, many)
    torch.cuda.empty_cache()
    used = torch.cuda.memory_allocated() / torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, used + 0.004))
    try:
        tight = scoring.score(model, tokenizer, many, batch_tokens=2**20)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert np.abs(tight - plain).max() < 1e-3
    assert np.isfinite(exact).all()


def test_killed_and_resumed(study: Path, tmp_path: Path) -> None:
    """Equal to the bit on a CPU; on a GPU, the difference is shown, and an evaluation that differs is made again."""
    whole = make(study, tmp_path / "whole")
    started = begin(study, tmp_path / "cut", "single")
    cut = wait_for_step(tmp_path / "cut", 2, started)
    os.kill(first_process(cut), signal.SIGKILL)
    started.communicate(timeout=60)
    make(study, tmp_path / "cut")
    weights, scores = largest_difference(whole, cut)
    print(f"resumed: adapters differ by {weights:.2g}, scores by {scores:.2g}")
    assert weights < 1e-4


@several
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_engines_equal_one_process(engine: str, precision: str, study: Path, tmp_path: Path) -> None:
    if engine in ZERO and find_spec("deepspeed") is None:
        pytest.skip("no deepspeed: pip install 'oodles[deepspeed]'")
    alone = make(study, tmp_path / "alone", f"train.precision={precision}")
    together = make(study, tmp_path / "out", f"engine={engine}", "processes=2", f"train.precision={precision}")
    assert re.search(WHAT[engine], together.log.read_text()), together.log.read_text()
    assert adapters(together).keys() == adapters(alone).keys()
    weights, scores = largest_difference(alone, together)
    print(f"{engine} {precision}: adapters differ by {weights:.2g}, scores by {scores:.2g}")
    assert weights < (1e-4 if precision == "fp32" else 0.05)


@several
def test_a_study_scores_kept_adapters_over_all_devices(study: Path, tmp_path: Path) -> None:
    """The device map is in the run's log; with one device, as in a rehearsal, everything is there."""
    add_late_set(study)
    alone = make(study, tmp_path / "alone")
    spread = make(study, tmp_path / "out", 'eval.test_sets=["home", "away", "far"]')
    make(study, tmp_path / "out", "device_map=auto")
    (said,) = re.findall("device_map auto: .*", spread.log.read_text())
    assert f" on {GPUS - 1}" in said or not GPUS, said
    weights, scores = largest_difference(alone, spread)
    print(f"{said}; scores differ by {scores:.2g}")
    assert weights < 1e-4
    assert scores < 1e-3


@pytest.mark.skipif(GPUS < 2, reason=f"needs two GPUs, {GPUS} visible")
def test_a_model_spread_over_devices_scores_like_one(prompts: PromptSet, tiny_model: Path) -> None:
    from oodles.model.load import load_model, load_tokenizer, resolve_model

    spec = resolve_model(str(tiny_model))
    spread = load_model(spec, "fp32", "auto")
    print(f"device map: {getattr(spread, 'hf_device_map', None)}")
    found = [scoring.score(model, load_tokenizer(spec), prompts) for model in (spread, load_model(spec, "fp32"))]
    assert np.abs(found[0] - found[1]).max() < 1e-3
