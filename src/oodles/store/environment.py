"""The environment of a run: recorded with the run, never part of its identity."""

from __future__ import annotations

import os
import platform
import sys
from functools import cache
from importlib import metadata
from typing import Any

from oodles import __version__

PACKAGES = ("torch", "transformers", "peft", "accelerate", "tokenizers", "numpy", "scipy", "pandas", "pyarrow")


def environment() -> dict[str, Any]:
    """Return versions, threads and device."""
    return {
        "oodles": __version__,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        **_torch_facts(),
        "packages": {name: _version(name) for name in PACKAGES},
    }


def _torch_facts() -> dict[str, Any]:
    if "torch" not in sys.modules:
        return {}
    torch = sys.modules["torch"]
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    # from /proc/cpuinfo: if that is hidden, torch computes without AVX, and the last digits differ
    instructions = torch.backends.cpu.get_cpu_capability()
    return {"device": device, "threads": torch.get_num_threads(), "instructions": instructions}


@cache
def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
