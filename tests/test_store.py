from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np

from oodles.contracts import Predictions, Prompt, PromptSet
from oodles.disk import write_json
from oodles.store.claim import claim_folder
from oodles.store.commit import commit
from oodles.store.folder import RunFolder, StudyFolder

SPEC = {
    "run_id": "1-x",
    "model": {"label": "m"},
    "train_set": "home",
    "shots": 8,
    "seed": 3,
    "pattern": {"name": "q"},
    "data_seed": 3,
    "suite": "toy",
}


def folder_with_scores(root: Path, name: str = "r") -> RunFolder:
    claim_folder(StudyFolder(root), "toy", "toy")
    folder = RunFolder(root / "runs" / name)
    write_json(folder.spec, SPEC)
    for step in (0, 4):
        for test_set in ("home", "away"):
            keep(folder, step, test_set)
    return folder


def keep(folder: RunFolder, step: int, test_set: str, gold: int = 1) -> None:
    prompts = PromptSet(
        name=test_set, answers=(" Yes", " No"), prompts=tuple(Prompt(id=f"e{i}", text="t", gold=gold) for i in range(3))
    )
    scores = np.array([[0.5, 1.5], [2.0, 1.0], [0.0, 0.25]])
    predictions = Predictions(
        test_set=test_set, answers=prompts.answers, ids=("e0", "e1", "e2"), scores=scores, gold=np.full(3, gold)
    )
    commit(folder, step, prompts, predictions, "in_domain" if test_set == "home" else "ood")


FULL_DISK = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from test_store import folder_with_scores, keep
from oodles.errors import StoreError
from oodles.store.scores import read_scores
from oodles.disk import write_json
root = Path(sys.argv[1])
folder = folder_with_scores(root)
before = read_scores(folder)
with open(root / "filler", "wb", buffering=0) as f:
    try:
        while True:
            f.write(b"x" * 4096)
    except OSError:
        pass
for call in (lambda: keep(folder, 8, "home"), lambda: write_json(folder.done, {"a": "b" * 9000})):
    try:
        call()
        print("WRITTEN")
    except StoreError as error:
        print(error)
print(read_scores(folder) == before, folder.done.exists(), list(root.rglob("*.part")))
"""


def test_a_full_disk_is_one_line_and_leaves_nothing_half_written(tmp_path: Path) -> None:
    """A real full disk: a tmpfs of a few pages in its own mount namespace."""
    from conftest import missing

    (tmp_path / "disk").mkdir()
    script = tmp_path / "full.py"
    script.write_text(FULL_DISK)
    command = f"{sys.executable} {script} {tmp_path}/disk {Path(__file__).parent}"
    inner = f"mount -t tmpfs -o size=128k none {tmp_path}/disk && {command}"
    done = subprocess.run(
        ["unshare", "--mount", "--map-root-user", "sh", "-c", inner], capture_output=True, text=True, check=False
    )
    if "unshare" in done.stderr or "mount:" in done.stderr:
        missing(f"no mount namespace here: {done.stderr.strip()[:100]}")
    lines = done.stdout.splitlines()
    assert len(lines) == 3, done.stderr
    assert "no space left on the disk" in lines[0]
    assert "no space left on the disk" in lines[1]
    assert lines[2] == "True False []"


# typed lines and specs
