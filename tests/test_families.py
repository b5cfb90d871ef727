"""Every family of the study, as a tiny config of the real architecture in a folder like the hub's."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import oodles
from oodles.model.embedded import tiny_tokenizer
from oodles.store.folder import run_folders
from oodles.store.sidecars import read_json
from oodles.store.table import read_runs
from test_scoring import ARCHITECTURES, tiny

FAMILIES = {
    "opt": ["k_proj", "out_proj", "q_proj", "v_proj"],
    "olmo2": ["k_proj", "o_proj", "q_proj", "v_proj"],
    "smollm3": ["k_proj", "o_proj", "q_proj", "v_proj"],
    "llama": ["k_proj", "o_proj", "q_proj", "v_proj"],
    "gemma2": ["k_proj", "o_proj", "q_proj", "v_proj"],
}


@pytest.fixture
def hub(tmp_path: Path) -> Path:
    """One folder per model, as `huggingface_hub` leaves them."""
    for family in FAMILIES:
        tiny(family).save_pretrained(tmp_path / "hub" / family)
        tiny_tokenizer().save_pretrained(tmp_path / "hub" / family)
    return tmp_path / "hub"


def test_every_family_goes_from_toml_to_table(hub: Path, toy_study: Path, tmp_path: Path) -> None:
    models = ", ".join(f'"{hub / family}"' for family in FAMILIES)
    text = toy_study.read_text().replace('"tiny-llama-untrained"', models).replace("[0, 1]", "[0]")
    toy_study.write_text(text)
    done = oodles("run", toy_study, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    table = read_runs(tmp_path / "out")
    assert set(table.model) == set(FAMILIES)
    assert (table.groupby("model").step.nunique() == 4).all()
    for folder in run_folders(tmp_path / "out"):
        spec = read_json(folder.spec)
        assert spec["adapted"] == FAMILIES[spec["model"]["label"]]
        first, last = ((folder.adapter(step) / "adapter_model.safetensors").read_bytes() for step in (0, 4))
        assert first != last
    assert set(FAMILIES) <= set(ARCHITECTURES)
