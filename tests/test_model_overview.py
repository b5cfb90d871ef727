"""Models in plain data; `test_presets.py` reads them through the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from oodles.errors import ModelError
from oodles.model.embedded import EMBEDDED
from oodles.model.load import load_model, resolve_model
from oodles.model.overview import describe_fetchable, describe_model, describe_models
from oodles.model.presets import PRESETS


def test_every_label_has_a_row() -> None:
    rows = {row["model"]: row for row in describe_models()}
    assert set(rows) == {*PRESETS, *EMBEDDED}
    assert rows["opt-125m"]["source"] == "facebook/opt-125m"
    assert rows["tiny-llama-untrained"]["kind"] == "embedded"


def test_an_embedded_model_is_as_large_as_it_says(tiny_model: Path) -> None:
    facts = describe_model("tiny-llama-untrained")
    assert facts["kind"] == "embedded"
    model = load_model(resolve_model("tiny-llama-untrained"))
    assert facts["parameters"] == sum(p.numel() for p in model.parameters())
    assert facts["context"] == 512


def test_a_folder_is_read_from_its_config(tiny_model: Path, tmp_path: Path) -> None:
    copy = tmp_path / "mine"
    copy.mkdir()
    for file in tiny_model.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    facts = describe_model(str(copy))
    assert (facts["kind"], facts["source"], facts["page"]) == ("folder", str(copy), "")
    assert facts["parameters"] == describe_model("tiny-llama-untrained")["parameters"]
    (copy / "config.json").write_text("{")
    with pytest.raises(ModelError):
        describe_model(str(copy))


def test_what_can_be_fetched_says_whether_it_is_here(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OODLES_DATA", raising=False)
    assert {row["name"]: row["fetched"] for row in describe_fetchable()}["tiny-llama-untrained"]
    monkeypatch.setenv("OODLES_CACHE", str(tmp_path))
    rows = {row["name"]: row for row in describe_fetchable()}
    assert not rows["tiny-llama-untrained"]["fetched"]
    assert not rows["nli"]["fetched"]
    assert "0 of " in rows["nli"]["about"]
    assert "mini" not in rows  # generated: nothing to fetch
