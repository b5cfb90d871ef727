"""Models are known by every byte of their files, which are read once."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from oodles import hashes
from oodles.errors import ModelError
from oodles.model.embedded import MANIFEST, fetch, known_hash
from oodles.model.load import folder_fingerprint, load_model, resolve_model


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OODLES_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def flip(path: Path, at: int, bit: int = 0) -> None:
    with path.open("r+b") as handle:
        handle.seek(at)
        was = handle.read(1)[0]
        handle.seek(at)
        handle.write(bytes([was ^ 1 << bit]))


@pytest.fixture
def big_model(tmp_path: Path, tiny_model: Path) -> Path:
    """A model whose weights are larger than what was once read of each end."""
    folder = tmp_path / "model"
    shutil.copytree(tiny_model, folder)
    tensors = load_file(folder / "model.safetensors")
    save_file({**tensors, "ballast": np.zeros(1_000_000, np.float32)}, folder / "model.safetensors", {"format": "pt"})
    return folder


def test_a_changed_bit_in_the_middle_of_the_weights_is_another_model(big_model: Path, cache: Path) -> None:
    before = folder_fingerprint(big_model)
    assert folder_fingerprint(big_model) == before
    weights = big_model / "model.safetensors"
    times = weights.stat()
    flip(weights, times.st_size // 2)
    os.utime(weights, ns=(times.st_atime_ns, times.st_mtime_ns))  # as some copying tools do
    assert folder_fingerprint(big_model) != before
    flip(weights, times.st_size // 2)
    assert folder_fingerprint(big_model) == before
    flip(big_model / "tokenizer.json", 100)
    assert folder_fingerprint(big_model) != before


def test_a_model_that_changes_while_a_study_runs_is_refused(big_model: Path, cache: Path) -> None:
    spec = resolve_model(str(big_model))
    load_model(spec)
    flip(big_model / "model.safetensors", 3_000_000)
    with pytest.raises(ModelError, match="holds other weights, config or tokenizer"):
        load_model(spec)


def test_a_flipped_bit_in_a_fetched_model_is_noticed(cache: Path) -> None:
    folder = fetch("tiny-llama-untrained", lambda _: None)
    spec = resolve_model("tiny-llama-untrained")
    load_model(spec)
    flip(folder / "model.safetensors", 100_000, 3)
    with pytest.raises(ModelError, match=r"model.safetensors: damaged or changed since it was fetched; remove .*fetch"):
        load_model(spec)
    flip(folder / "model.safetensors", 100_000, 3)
    load_model(spec)
    (folder / MANIFEST).write_text("{")
    with pytest.raises(ModelError, match=f"{MANIFEST}: damaged"):
        load_model(spec)


def test_a_model_of_an_older_version_gets_its_hashes(cache: Path) -> None:
    folder = fetch("tiny-llama-untrained", lambda _: None)
    (folder / MANIFEST).unlink()
    load_model(resolve_model("tiny-llama-untrained"))
    assert (folder / MANIFEST).is_file()


def test_a_file_is_read_once(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "weights"
    path.write_bytes(b"one")
    monkeypatch.setattr(hashes, "SETTLED", 0.0)
    time.sleep(0.02)
    first = known_hash(path)
    (kept,) = (cache / "hashes").iterdir()
    reads: list[str] = []
    real = hashes.hashlib.file_digest
    monkeypatch.setattr(hashes.hashlib, "file_digest", lambda h, name: reads.append(name) or real(h, name))
    assert known_hash(path) == first
    assert not reads
    kept.write_text("[")  # damaged: read again
    assert known_hash(path) == first
    assert len(reads) == 1
    path.write_bytes(b"two")
    assert known_hash(path) != first
    shutil.rmtree(cache)
    cache.write_text("a cache that cannot be written fails nothing")
    assert known_hash(path) != first
