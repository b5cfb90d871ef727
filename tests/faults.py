"""A campaign of faults against a study on a tiny model: kills, full and failing disks, damage, jumping clocks, rivals.

    python tests/faults.py STUDY OUT --faults 200 --seed 0

The study is run once undisturbed, then again under one fault after the other until it is done; when it is, it begins
anew in another folder. After every fault: what was committed is still there, once, and unaltered (but for what the
fault itself damaged). At the end of each study: every run is done, and table and records are those of the undisturbed
one. The parent loads torch once and forks. The disk is a tmpfs in a mount namespace of its own, filled up for real;
EIO and clocks come from faults.c through LD_PRELOAD.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
Committed = dict[tuple[str, int, str], str]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if not chosen.inside:
        return in_a_namespace(chosen)
    print(json.dumps(Campaign(chosen.study, chosen.out, random.Random(chosen.seed)).run(chosen.faults), indent=2))
    return 0


def in_a_namespace(chosen: argparse.Namespace) -> int:
    """The same again with a disk of our own and the shim loaded."""
    with tempfile.TemporaryDirectory() as scratch:
        shim = Path(scratch) / "faults.so"
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", shim, HERE / "faults.c", "-ldl"], check=True)
        chosen.out.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, __file__, chosen.study, chosen.out, "--inside"]
        command += ["--faults", chosen.faults, "--seed", chosen.seed]
        inner = f'mount -t tmpfs -o size=400m none "{chosen.out}" && LD_PRELOAD="{shim}" exec "$@"'
        outer = ["unshare", "--mount", "--map-root-user", "sh", "-c", inner, "sh", *map(str, command)]
        return subprocess.run(outer, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"}).returncode


@dataclass
class Campaign:
    """One study after the other under faults."""

    study: Path
    out: Path
    chance: random.Random
    shim: Any = field(default_factory=lambda: ctypes.CDLL(None))
    counts: Counter[str] = field(default_factory=Counter)
    studies: int = 0
    whole: float = 0.0  # seconds of the undisturbed study

    def run(self, faults: int) -> dict[str, Any]:
        import torch

        import oodles.callback
        import oodles.runner  # noqa: F401
        from oodles.config import load_study

        torch.set_num_threads(1)
        self.loaded = load_study(self.study)
        start = time.monotonic()
        assert self.finish(self.child(self.out / "undisturbed")) == 0, "the undisturbed study failed"
        self.whole = time.monotonic() - start
        kinds: list[Callable[[Path], set[Any]]] = [
            self.killed, self.killed, self.full_disk, self.failing_disk, self.torn_line, self.flipped_line,
            self.flipped_records, self.clock_jump, self.rivals, self.killed_holder,
        ]  # fmt: skip
        while self.counts.total() < faults:
            root = self.out / f"study-{self.studies}"
            committed: Committed = {}
            while self.counts.total() < faults and not self.done(root):
                kind = kinds[self.counts.total() % len(kinds)] if (root / "runs").is_dir() else self.killed
                damaged = kind(root)
                self.counts[kind.__name__] += 1
                committed = self.check(root, committed, damaged, kind.__name__)
            code = self.finish(self.child(root))
            assert code == 0, f"the study did not end: exit {code}"
            self.check(root, committed, set(), "the end")
            self.compare(root)
            self.studies += 1
            shutil.rmtree(root)
        return {"faults": self.counts.total(), "kinds": dict(self.counts), "studies": self.studies,
                "seconds_undisturbed": round(self.whole, 1), "lost": 0, "doubled": 0, "altered": 0}  # fmt: skip

    # children

    def child(self, root: Path, before: Callable[[], None] = lambda: None) -> int:
        """A process that runs the study; failed runs are tried again."""
        from oodles.launch import run

        process = os.fork()
        if process:
            return process
        code = 70
        try:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 2)
            before()
            outcome = run(self.loaded, root, retry=True, verify=True)
            code = 1 if outcome.failed or outcome.held else 0
        except BaseException as error:
            code = 2 if type(error).__name__ == "StoreError" else 71
        finally:
            os._exit(code)

    def finish(self, process: int) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])

    def kill_at(self, process: int, moment: float) -> None:
        time.sleep(moment)
        os.kill(process, signal.SIGKILL)
        self.finish(process)

    # faults: each returns what it damaged itself

    def killed(self, root: Path) -> set[Any]:
        self.kill_at(self.child(root), self.chance.uniform(0.02, 1.0) * self.whole)
        return set()

    def killed_holder(self, root: Path) -> set[Any]:
        """Killed as soon as it holds a lock."""
        process = self.child(root)
        for _ in range(2000):
            if list((root / "locks").glob("*.json")):
                break
            time.sleep(0.002)
        self.kill_at(process, self.chance.uniform(0, 0.05))
        return set()

    def full_disk(self, root: Path) -> set[Any]:
        used = shutil.disk_usage(self.out).used
        pages = self.chance.randrange(1, 40)
        self.remount(used + pages * 4096)
        code = self.finish(self.child(root))
        self.remount(400 << 20)
        assert code in (0, 1, 2), f"a full disk ended the study with {code}"
        return set()

    def remount(self, size: int) -> None:
        subprocess.run(["mount", "-o", f"remount,size={size}", self.out], check=True)

    def failing_disk(self, root: Path) -> set[Any]:
        after = self.chance.randrange(0, 120)
        arm = lambda: self.shim.fault_eio(os.fsencode(root), ctypes.c_long(after))  # noqa: E731
        code = self.finish(self.child(root, arm))
        assert code in (0, 1, 2), f"a failing disk ended the study with {code}"
        return set()

    def torn_line(self, root: Path) -> set[Any]:
        path = self.some_scores(root)
        if path is None:
            return self.killed(root)
        data = path.read_bytes()
        last = data.rstrip(b"\n").rfind(b"\n") + 1
        path.write_bytes(data[: self.chance.randrange(last, len(data))])
        self.kill_at(self.child(root), self.chance.uniform(0.1, 0.8) * self.whole)
        return {(path.parent.name, None)}

    def flipped_line(self, root: Path) -> set[Any]:
        path = self.some_scores(root)
        if path is None:
            return self.killed(root)
        data = bytearray(path.read_bytes())
        last = bytes(data).rstrip(b"\n").rfind(b"\n") + 1
        data[self.chance.randrange(last, len(data))] ^= 1 << self.chance.randrange(8)
        path.write_bytes(data)
        self.kill_at(self.child(root), self.chance.uniform(0.1, 0.8) * self.whole)
        return {(path.parent.name, None)}

    def flipped_records(self, root: Path) -> set[Any]:
        files = sorted((root / "runs").glob("*/records/*/*.parquet"))
        if not files:
            return self.killed(root)
        path = max(files, key=lambda p: p.stat().st_mtime_ns)
        data = bytearray(path.read_bytes())
        data[self.chance.randrange(len(data))] ^= 1 << self.chance.randrange(8)
        path.write_bytes(data)
        self.kill_at(self.child(root), self.chance.uniform(0.1, 0.8) * self.whole)
        return {(path.parts[-4], None)}

    def clock_jump(self, root: Path) -> set[Any]:
        jump = self.chance.choice([-1, 1]) * self.chance.randrange(3600, 10**7)
        process = self.child(root, lambda: self.shim.fault_jump(ctypes.c_long(jump)))
        self.kill_at(process, self.chance.uniform(0.1, 1.0) * self.whole)
        return set()

    def rivals(self, root: Path) -> set[Any]:
        """Three at once; one of them is killed."""
        processes = [self.child(root) for _ in range(3)]
        self.kill_at(processes[0], self.chance.uniform(0.05, 1.0) * self.whole)
        codes = [self.finish(p) for p in processes[1:]]
        assert all(code in (0, 1) for code in codes), f"rivals ended with {codes}"
        return set()

    def some_scores(self, root: Path) -> Path | None:
        files = [p for p in sorted((root / "runs").glob("*/scores.jsonl")) if p.stat().st_size]
        return self.chance.choice(files) if files else None

    # what must hold

    def done(self, root: Path) -> bool:
        from oodles.store import RunFolder

        names = [p.name for p in (self.out / "undisturbed" / "runs").iterdir()]
        return all(RunFolder(root / "runs" / name).status == "done" for name in names)

    def check(self, root: Path, before: Committed, damaged: set[Any], what: str) -> Committed:
        from oodles.store import run_folders, scan_scores

        now: Committed = {}
        if not (root / "study.json").is_file():
            assert not before, f"{what}: the study is gone"
            return now
        for folder in run_folders(root):
            keys = []
            for line in scan_scores(folder).lines:
                key = (folder.name, line["step"], line["test_set"])
                keys.append(key)
                now[key] = json.dumps(line["metrics"], sort_keys=True)
            assert len(keys) == len(set(keys)), f"{what}: doubled"
        spoilt = {name for name, _ in damaged}
        for key, value in before.items():
            assert key in now or key[0] in spoilt, f"{what}: {key} is lost"
            assert now.get(key, value) == value, f"{what}: {key} is altered"
        return now

    def compare(self, root: Path) -> None:
        from oodles.reading import read_records, read_runs

        for read in (read_runs, read_records):
            first, second = read(self.out / "undisturbed"), read(root)
            keys = [c for c in ("run", "step", "test_set", "metric", "example") if c in first.columns]
            first, second = (t.sort_values(keys).reset_index(drop=True) for t in (first, second))
            assert not second.duplicated(keys).any(), "doubled"
            assert first.equals(second), f"{read.__name__}: differs from the undisturbed study"


if __name__ == "__main__":
    sys.exit(main())
