"""The adapters that a run keeps: saved atomically and compared bit by bit."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from oodles.disk import put_folder
from oodles.runs.ranks import ALONE, Ranks

ADAPTER_WEIGHTS = "adapter_model.safetensors"


def save_adapter(model: Any, path: Path, ranks: Ranks = ALONE) -> None:
    """Save the adapter alone; a model without an adapter is not saved."""
    if not hasattr(model, "peft_config"):
        return
    weights = _gathered(model, ranks)
    if not ranks.is_first:
        return
    with put_folder(path) as aside:
        model.save_pretrained(aside, state_dict=weights)
        (aside / "README.md").unlink(missing_ok=True)  # an empty model card template


def is_adapter_of(model: Any, path: Path, ranks: Ranks = ALONE) -> bool:
    """Whether a kept adapter equals the model's own, bit by bit."""
    weights = _gathered(model, ranks)
    return ranks.from_first(lambda: _equals(model, weights, path))


def _gathered(model: Any, ranks: Ranks) -> Any:
    """Gather the adapter of our own sharded model; of another's, PEFT saves what it can."""
    if ranks.alone:
        return None
    from oodles.runs.engines import whole_adapter

    return whole_adapter(model)


def _equals(model: Any, weights: Any, path: Path) -> bool:
    import torch
    from safetensors.torch import load_file

    with tempfile.TemporaryDirectory() as scratch:
        model.save_pretrained(scratch, state_dict=weights)
        now, stored = (load_file(folder / ADAPTER_WEIGHTS) for folder in (Path(scratch), path))
    return now.keys() == stored.keys() and all(torch.equal(now[name], stored[name]) for name in now)
