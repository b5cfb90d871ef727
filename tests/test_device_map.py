"""Models that accelerate spreads over several devices: scored like others, and not trained.

Here the devices are main memory and the disk; `make test-gpu` has two GPUs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oodles as oo
from conftest import oodles, write_rows
from oodles.contracts import PromptSet
from oodles.errors import ConfigError
from oodles.model import scoring
from oodles.model.load import load_model, load_tokenizer, offloaded, placed, resolve_model
from oodles.store.folder import RunFolder
from oodles.store.table import read_records
from oodles.study.load import load_study

TINY = "tiny-llama-untrained"
LESS = ("--set", 'eval.test_sets=["home", "away", "far"]')
RUN = f"{TINY}_home_0_8"


@pytest.fixture
def prompts() -> PromptSet:
    text = "A person number {} sits down today. Question: Somebody {} sits. Yes or No?"
    return scoring.texts_as_set([text.format(n // 3, "ecn"[n % 3]) for n in range(60)], (" Yes", " No"))


@pytest.fixture
def little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """What transformers takes the machine's memory for: embeddings and head fit, the layers go to the disk."""
    from transformers.integrations import accelerate

    size = sum(4 * p.numel() for p in load_model(resolve_model(TINY), "fp32").parameters())
    monkeypatch.setattr(accelerate, "get_max_memory", lambda _=None: {"cpu": int(0.9 * size)})


@pytest.fixture
def study(toy_study: Path) -> Path:
    """A study of four test sets, which begins with three."""
    add_late_set(toy_study)
    return toy_study


def add_late_set(study: Path) -> None:
    write_rows(study.with_name("late.csv"), "late", 18)
    source = 'source = { file = "late.csv" }\nlabels = { e = 0, c = 1 }\ndrop = ["n"]\n'
    with study.with_name("toy.toml").open("a") as file:
        file.write(f'\n[[test_sets]]\nname = "late"\n{source}')


@pytest.mark.usefixtures("little_memory", "tiny_model")
def test_a_model_that_is_spread_scores_like_one_that_is_not(prompts: PromptSet) -> None:
    spec = resolve_model(TINY)
    plain, spread = load_model(spec, "fp32"), load_model(spec, "fp32", "auto")
    devices = set(spread.hf_device_map.values())
    assert devices == {"cpu", "disk"}
    assert 0 < offloaded(spread) < len(spread.hf_device_map)
    assert {p.is_meta for p in spread.parameters()} == {True, False}  # the hooks bring what is on the disk
    assert placed(spread).startswith("modules per device: ")
    tokenizer = load_tokenizer(spec)
    found, wanted = (scoring.score(model, tokenizer, prompts) for model in (spread, plain))
    assert np.ptp(wanted) > 1e-3
    assert np.abs(found - wanted).max() < 1e-6


@pytest.mark.usefixtures("tiny_model")
def test_adapters_of_a_spread_model_are_scored(prompts: PromptSet, tmp_path: Path) -> None:
    """Every layer, with its adapter, is brought to where it is computed by a hook of its own."""
    import torch
    from accelerate import dispatch_model

    from oodles.contracts import Lora
    from oodles.model.load import attach_lora

    spec = resolve_model(TINY)
    tokenizer = load_tokenizer(spec)

    def adapted() -> Any:
        model = attach_lora(load_model(spec, "fp32"), Lora(), 0, spec)
        torch.manual_seed(1)
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if "lora_B" in name:
                    weight.normal_(std=0.5)
        return model.eval()

    before = scoring.score(load_model(spec, "fp32"), tokenizer, prompts)
    wanted = scoring.score(adapted(), tokenizer, prompts)
    inner = "base_model.model.model"
    where = {
        **{f"{inner}.embed_tokens": "cpu", f"{inner}.layers.0": "cpu", f"{inner}.layers.1": "disk"},
        **{f"{inner}.norm": "disk", f"{inner}.rotary_emb": "cpu", "base_model.model.lm_head": "cpu"},
    }
    spread = dispatch_model(adapted(), where, offload_dir=tmp_path, main_device="cpu")
    assert all(p.is_meta for name, p in spread.named_parameters() if "layers.1." in name)
    found = scoring.score(spread, tokenizer, prompts)
    assert np.abs(wanted - before).max() > 0.01
    assert np.abs(found - wanted).max() < 1e-5


def test_a_study_scores_with_it_and_does_not_train(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = ["run", study, "--set", "grid.seeds=[0]"]
    plain, spread = tmp_path / "plain", tmp_path / "spread"
    refused = oodles(*given, "--set", "device_map=auto", "--out", spread)
    assert (refused.returncode, spread.exists()) == (2, False)
    assert f'device_map = "auto" is for scoring, but run {RUN} has steps to train' in refused.stderr
    assert oodles(*given, "--out", plain).returncode == 0
    assert oodles(*given, *LESS, "--out", spread).returncode == 0

    import transformers

    asked, load = [], transformers.AutoModelForCausalLM.from_pretrained

    def watched(*paths: Any, **more: Any) -> Any:
        asked.append(more.get("device_map"))
        return load(*paths, **more)

    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", watched)
    grown = oodles(*given, "--set", "device_map=auto", "--out", spread)
    assert grown.returncode == 0, grown.stderr
    assert asked == ["auto"]
    assert "device_map auto: modules per device: 1 on cpu" in RunFolder(spread / "runs" / RUN).log.read_text()
    keys = ["run", "step", "test_set", "example"]
    one, other = (read_records(out).sort_values(keys).reset_index(drop=True) for out in (plain, spread))
    assert set(other["test_set"]) == {"home", "away", "far", "late"}
    assert one.equals(other)
    ids = [RunFolder(out / "runs" / RUN).spec.read_bytes() for out in (plain, spread)]
    assert b"device_map" not in ids[1]
    several = oodles(*given, "--set", "device_map=auto", "--out", spread, "--workers", "2")
    assert (several.returncode, "gives one process all GPUs" in several.stderr) == (2, True)


@pytest.mark.usefixtures("little_memory")
def test_adapters_do_not_follow_to_the_disk(study: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    given = ["run", study, "--set", "grid.seeds=[0]", "--out", out]
    assert oodles(*given, *LESS).returncode == 0
    grown = oodles(*given, "--set", "device_map=auto")
    assert grown.returncode == 1
    assert f"{TINY} does not fit the devices: device_map auto leaves" in grown.stderr
    assert 'use more devices, or engine = "fsdp2"' in grown.stderr


def test_an_evaluator_scores_a_spread_model(toy_study: Path, tmp_path: Path, little_memory: None) -> None:
    """OODCallback and a loop of one's own score whatever model they are given."""
    spec = resolve_model(TINY)
    found = {}
    for name, device in (("plain", None), ("spread", "auto")):
        evaluator = oo.Evaluator(
            suite=toy_study.with_name("toy.toml"),
            in_domain="home",
            run="mine",
            out=tmp_path / name,
            tokenizer=load_tokenizer(spec),
        )
        evaluator.at(load_model(spec, "fp32", device), step=0)  # type: ignore[arg-type]
        found[name] = read_records(tmp_path / name).filter(like="score:").to_numpy()
    assert np.abs(found["spread"] - found["plain"]).max() < 1e-6


@pytest.mark.parametrize("engine", ["ddp", "fsdp2", "zero2", "zero3"])
def test_engines_have_one_device_each(engine: str, toy_study: Path) -> None:
    with pytest.raises(ConfigError, match=f'device_map is "auto", but engine "{engine}" has one device for each'):
        load_study(toy_study, [f"engine={engine}", "processes=2", "device_map=auto"])


def test_other_maps_are_refused(toy_study: Path) -> None:
    with pytest.raises(ConfigError, match="device_map is 'balanced', expected \"auto\""):
        load_study(toy_study, ["device_map=balanced"])
