"""The adapters that a run keeps: saved atomically and compared bit by bit."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from oodles.disk import put_folder

ADAPTER_WEIGHTS = "adapter_model.safetensors"


def save_adapter(model: Any, path: Path) -> None:
    """Save the adapter alone; a model without an adapter is not saved."""
    if not hasattr(model, "peft_config"):
        return
    with put_folder(path) as aside:
        model.save_pretrained(aside)
        (aside / "README.md").unlink(missing_ok=True)  # an empty model card template


def is_adapter_of(model: Any, path: Path) -> bool:
    """Whether a kept adapter equals the model's own, bit by bit."""
    import torch
    from safetensors.torch import load_file

    with tempfile.TemporaryDirectory() as scratch:
        model.save_pretrained(scratch)
        now, stored = (load_file(folder / ADAPTER_WEIGHTS) for folder in (Path(scratch), path))
    return now.keys() == stored.keys() and all(torch.equal(now[name], stored[name]) for name in now)
