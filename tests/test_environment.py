"""Where a run was made."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from importlib import metadata

import torch

from oodles import __version__
from oodles.store import environment as module
from oodles.store.environment import PACKAGES, environment


def test_versions_threads_and_device_are_those_of_this_process() -> None:
    facts = environment()
    assert facts["oodles"] == __version__
    assert facts["python"] == platform.python_version()
    assert facts["packages"]["numpy"] == metadata.version("numpy")
    assert set(facts["packages"]) == set(PACKAGES)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        assert environment()["threads"] == 3
    finally:
        torch.set_num_threads(before)
    assert json.loads(json.dumps(facts)) == facts  # compared with env.json when a run resumes


def test_a_package_that_is_absent_has_no_version() -> None:
    assert module._version("no-such-package-anywhere") is None


def test_asking_does_not_load_torch() -> None:
    code = "from oodles.store.environment import environment; import sys; print(environment(), 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("False")
    assert "'threads'" not in done.stdout
