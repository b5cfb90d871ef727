from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from oodles.contracts import ModelSpec
from oodles.errors import ModelError
from oodles.model.load import folder_fingerprint, load_model, load_tokenizer, resolve_model


def test_names_folders_and_hub_ids(tiny_model: Path, tmp_path: Path) -> None:
    embedded = resolve_model("tiny-llama-untrained")
    assert (embedded.label, embedded.revision) == ("tiny-llama-untrained", "made:3")
    copy = tmp_path / "my-model"
    shutil.copytree(tiny_model, copy)
    folder = resolve_model(str(copy))
    assert folder.label == "my-model"
    assert folder.revision == folder_fingerprint(tiny_model)
    assert resolve_model("my-model", folder=tmp_path) == folder
    hub = resolve_model("EleutherAI/Pythia-410m@abc123")
    assert hub == ModelSpec(label="pythia-410m", source="EleutherAI/Pythia-410m", revision="abc123")
    named = resolve_model("big", source=ModelSpec(label="big", source="org/m", revision="r"))
    assert named == ModelSpec(label="big", source="org/m", revision="r")


def test_the_fingerprint_sees_weights_and_config(tiny_model: Path, tmp_path: Path) -> None:
    copy = tmp_path / "m"
    shutil.copytree(tiny_model, copy)
    before = folder_fingerprint(copy)
    weights = copy / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(bytes(content))
    assert folder_fingerprint(copy) != before


@pytest.mark.parametrize(
    ("keep", "message"), [("model.safetensors", "no config.json"), ("config.json", "no .safetensors file")]
)
def test_incomplete_folders(tiny_model: Path, tmp_path: Path, keep: str, message: str) -> None:
    (tmp_path / "m").mkdir()
    shutil.copy(tiny_model / keep, tmp_path / "m")
    with pytest.raises(ModelError, match=message):
        resolve_model(str(tmp_path / "m"))


def test_a_folder_laid_out_like_the_hub_loads(tiny_model: Path, tmp_path: Path) -> None:
    copy = tmp_path / "m"
    shutil.copytree(tiny_model, copy)
    spec = resolve_model(str(copy))
    model = load_model(spec, "bf16")
    assert next(model.parameters()).dtype == torch.bfloat16
    assert load_tokenizer(spec).pad_token_id is not None
    (copy / "config.json").write_text("{}")
    spec = resolve_model(str(copy))
    with pytest.raises(ModelError, match="cannot be loaded"):
        load_model(spec)


def test_the_hub_is_asked_by_id_and_says_when_it_is_off() -> None:
    with pytest.raises(ModelError, match=r"model 'org/none' cannot be loaded: .*HF_HUB_OFFLINE"):
        load_model(ModelSpec(label="none", source="org/none"))


NO_NETWORK = """
import time
from huggingface_hub import HfApi
from transformers import AutoConfig, AutoTokenizer  # slow to import, and not what is timed
from oodles.errors import ModelError
from oodles.model.load import load_config, load_tokenizer, precision_of
from oodles.contracts import ModelSpec
for load in (load_config, load_tokenizer, precision_of):
    start = time.monotonic()
    try:
        load(ModelSpec(label="none", source="org/none"))
    except ModelError as error:
        print(round(time.monotonic() - start), error)
"""


def test_a_hub_out_of_reach_is_told_within_seconds_and_in_whole_sentences(tmp_path: Path) -> None:
    """Nobody listens at one address; at the other somebody does and never answers."""
    with socket.socket() as silent, socket.socket() as closed:
        for each in (silent, closed):
            each.bind(("127.0.0.1", 0))
        silent.listen()
        for listener, why in ((closed, "Connection refused"), (silent, "no answer in 10 s")):
            hub = f"http://127.0.0.1:{listener.getsockname()[1]}"
            env = {**os.environ, "HF_ENDPOINT": hub, "HF_HUB_OFFLINE": "0", "HF_HOME": str(tmp_path)}
            command = [sys.executable, "-c", NO_NETWORK]
            done = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
            ends = ["and the cache has no complete copy; check the network, or pass the model's folder"] * 2
            ends.append(f"{ends[0]}; or set [train] precision (--precision) to fp32, bf16 or fp16")
            for line, most, end in zip(done.stdout.splitlines(), (20, 5, 5), ends, strict=True):  # it is asked once
                seconds, told = line.split(" ", 1)
                assert int(seconds) <= most
                assert told.startswith(f"model 'org/none' cannot be loaded: {hub} cannot be reached (")
                assert why in told
                assert told.endswith(end)


def test_damaged_weights_are_one_line(tiny_model: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny_model, tmp_path / "m")
    sound = resolve_model(str(tmp_path / "m"))
    weights = tmp_path / "m" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(ModelError, match="holds other weights, config or tokenizer"):
        load_model(sound)
    with pytest.raises(ModelError, match="cannot be loaded: its weights are damaged"):
        load_model(resolve_model(str(tmp_path / "m")))


def test_what_is_not_fetched_says_how(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OODLES_CACHE", str(tmp_path))
    with pytest.raises(ModelError, match="run: oodles fetch smollm2-135m-q4"):
        load_model(resolve_model("smollm2-135m-q4"))
