"""A campaign of faults against a study on a tiny model: kills, disks, logs, workers, rivals, damage, clocks, folders.

    python tests/faults.py STUDY OUT --faults 1000 --seed 0
    python tests/faults.py STUDY OUT --faults 30 --only full_disk no_inodes

The study is run once undisturbed, then again under one fault after the other until it is done; when it is, it begins
anew in another folder. Every run is the command `oodles run STUDY --out OUT --verify`, never with --retry-failed. After
every fault: what was committed is still there, once, and unaltered (but for what the fault itself damaged); no run is
marked failed; the command ended with 0, or with 2 and a few lines (or by the signal it was sent), without a traceback,
within a minute. At the end of each study the same command finishes it with 0, and table, records and sidecars are those
of the undisturbed one. Violations are counted, and any makes the campaign exit with 1.

The parent loads torch once and forks. The disk is a tmpfs in a mount namespace of its own, filled up for real; EIO and
clocks come from faults.c through LD_PRELOAD. Workers are real processes, started by the command line.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import importlib
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
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SIZE, INODES = 400 << 20, 200_000  # of the disk
LIMIT = 60.0  # seconds: longer is a hang
Key = tuple[str, int, str]
Committed = dict[Key, str]
Damaged = set[Key]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--faults", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=[], help="only these kinds")
    parser.add_argument("--without", nargs="*", default=[], help="all but these kinds")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if not chosen.inside:
        return in_a_namespace(chosen)
    campaign = Campaign(chosen.study.resolve(), chosen.out.resolve(), random.Random(chosen.seed))
    found = campaign.run(chosen.faults, chosen.only, chosen.without)
    print(json.dumps(found, indent=2))
    return 1 if found["violations"] else 0


def in_a_namespace(chosen: argparse.Namespace) -> int:
    """The same again with a disk of our own and the shim loaded."""
    with tempfile.TemporaryDirectory() as scratch:
        shim = Path(scratch) / "faults.so"
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", shim, HERE / "faults.c", "-ldl"], check=True)
        chosen.out.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, __file__, chosen.study, chosen.out, "--inside"]
        command += ["--faults", chosen.faults, "--seed", chosen.seed]
        command += ["--only", *chosen.only] if chosen.only else []
        command += ["--without", *chosen.without] if chosen.without else []
        mount = f'mount -t tmpfs -o size={SIZE},nr_inodes={INODES} none "{chosen.out}"'
        inner = f'{mount} && LD_PRELOAD="{shim}" exec "$@"'
        outer = ["unshare", "--mount", "--map-root-user", "sh", "-c", inner, "sh", *map(str, command)]
        env = {**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": scratch}
        return subprocess.run(outer, check=False, env=env).returncode


@dataclass
class Child:
    """A command that runs, and what it tells."""

    process: int
    log: Path
    begun: float

    @property
    def told(self) -> str:
        return self.log.read_text(errors="replace")


@dataclass
class Campaign:
    """One study after the other under faults."""

    study: Path
    out: Path
    chance: random.Random
    shim: Any = field(default_factory=lambda: ctypes.CDLL(None))
    counts: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)  # kind and exit code
    violations: list[str] = field(default_factory=list)
    kind: str = ""
    studies: int = 0
    whole: float = 0.0  # seconds of the undisturbed study
    longest: float = 0.0  # seconds of the longest command
    half: Path | None = None  # an unfinished study with a checkpoint

    def kinds(self) -> list[Callable[[Path], Damaged]]:
        """In turn; those that start processes of their own, which must load torch, less often."""
        cheap = [
            self.killed, self.full_disk, self.damaged_sidecar, self.flipped_checkpoint, self.killed_holder,
            self.no_inodes, self.broken_log, self.own_tmpdirs, self.read_only, self.flipped_adapter, self.torn_line,
            self.renamed_folder, self.damaged_sidecar, self.full_disk, self.failing_disk, self.flipped_line,
            self.clock_jump, self.rivals, self.flipped_records,
        ]  # fmt: skip
        return [*cheap * 4, self.crashed_worker, *cheap * 4, self.orphaned_workers]

    def run(self, faults: int, only: list[str], without: list[str]) -> dict[str, Any]:
        self.prepare()
        kinds = [k for k in self.kinds() if (not only or k.__name__ in only) and k.__name__ not in without]
        started, turn = time.monotonic(), 0
        while self.counts.total() < faults:
            root = self.out / f"study-{self.studies}"
            committed: Committed = {}
            while self.counts.total() < faults and not self.done(root):
                kind = kinds[turn % len(kinds)]
                turn += 1
                damaged = self.suffer(kind, root)
                committed = self.check(root, committed, damaged)
            self.kind = f"after {self.kind}"
            self.ended(self.child(root), {0})
            self.check(root, committed, set())
            self.compare(root, "undisturbed")
            self.studies += 1
            shutil.rmtree(root, ignore_errors=True)
        words = ("lost", "doubled", "altered", "differs", "hang", "traceback", "failed", "exit")
        found = {word: sum(f": {word}" in v for v in self.violations) for word in words}
        return {"faults": self.counts.total(), "kinds": dict(sorted(self.counts.items())), "studies": self.studies,
                "ends": dict(sorted(self.ends.items())), "seconds_undisturbed": round(self.whole, 1),
                "seconds_longest": round(self.longest, 1), "seconds": round(time.monotonic() - started),
                **found, "violations": self.violations}  # fmt: skip

    def prepare(self) -> None:
        """Load what every child needs, and run the study undisturbed, and once more with a set added."""
        import torch
        from peft import PeftModel

        PeftModel.create_or_update_model_card = lambda *_: None  # it is slow, and removed again
        torch.set_num_threads(1)
        self.load_what_is_needed()
        gc.freeze()  # collecting what is shared would copy it, in every child
        for name, more in (("undisturbed", ()), ("grown", GROWN)):
            start = time.monotonic()
            if more:
                shutil.copytree(self.out / "undisturbed", self.out / name)
            child = self.child(self.out / name, *more)
            assert self.finish(child) == 0, f"the undisturbed study failed: {child.told}"
            self.whole = self.whole or time.monotonic() - start

    def load_what_is_needed(self) -> None:
        """Whatever a child loads on its way, once for all of them."""
        names = self.out / "names"
        if (child := os.fork()) == 0:
            try:
                os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # stdout is the campaign's result
                call_oodles("run", str(self.study), "--out", str(self.out / "first"))
                names.write_text(" ".join(sys.modules))
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        shutil.rmtree(self.out / "first")
        for name in names.read_text().split():
            with contextlib.suppress(Exception):
                importlib.import_module(name)

    def suffer(self, kind: Callable[[Path], Damaged], root: Path) -> Damaged:
        self.kind = kind.__name__
        if not (root / "runs").is_dir() and self.kind not in ("killed", "full_disk", "no_inodes", "broken_log"):
            self.kill_at(self.child(root), self.chance.uniform(0.2, 0.9) * self.whole)  # something to act on
        damaged = kind(root)
        self.counts[kind.__name__] += 1
        if self.counts.total() % 50 == 0:
            print(f"{self.counts.total()} faults, {len(self.violations)} violations", file=sys.stderr, flush=True)
        return damaged

    def fault(self, text: str) -> None:
        """Something that must not be."""
        self.violations.append(f"{self.counts.total()} {self.kind}: {text}")
        print(self.violations[-1], file=sys.stderr, flush=True)

    # children

    def child(
        self, root: Path, *more: str, before: Callable[[], None] = lambda: None, streams: tuple[int, int] | None = None
    ) -> Child:
        """A process that runs the study as a user does."""
        handle, name = tempfile.mkstemp(suffix=".log")
        process = os.fork()
        if process:
            os.close(handle)
            return Child(process, Path(name), time.monotonic())
        code = 70
        try:
            for stream, target in zip((1, 2), streams or (handle, handle), strict=True):
                os.dup2(target, stream) if target >= 0 else os.close(stream)
            os.close(handle)
            if streams:  # as a process has them that begins so
                sys.stdout, sys.stderr = (
                    open_stream(n) if t >= 0 else None for n, t in zip((1, 2), streams, strict=True)
                )
            before()
            code = call_oodles("run", str(self.study), "--out", str(root), "--verify", *more)
        finally:
            os._exit(code)

    def workers(self, root: Path) -> Child:
        """The same with two workers, in a process of its own."""
        handle, name = tempfile.mkstemp(suffix=".log")
        command = [sys.executable, "-c", "from oodles.cli import main; main()", "run", str(self.study)]
        command += ["--out", str(root), "--verify", "--workers", "2"]
        process = subprocess.Popen(command, stdout=handle, stderr=handle, start_new_session=True)
        os.close(handle)
        return Child(process.pid, Path(name), time.monotonic())

    def finish(self, child: Child) -> int:
        """The exit code; a command that takes too long is ended."""
        while True:
            process, status = os.waitpid(child.process, os.WNOHANG)
            took = time.monotonic() - child.begun
            if process:
                self.longest = max(self.longest, took)
                return os.waitstatus_to_exitcode(status)
            if took > LIMIT:
                self.fault(f"hang: {child.told[-500:]}")
                os.kill(child.process, signal.SIGKILL)
                os.waitpid(child.process, 0)
                return 0
            time.sleep(0.005)

    def ended(self, child: Child, codes: set[int]) -> int:
        """How a command ended: with one of these codes, and in few words."""
        code = self.finish(child)
        told = child.told
        self.ends[f"{self.kind} {code}"] += 1
        if code not in codes:
            self.fault(f"exit {code}, expected {codes}: {told[-1500:]}")
        if "Traceback" in told:
            self.fault(f"traceback: {told[-3000:]}")
        if code == 2 and len([line for line in told.splitlines() if not line.startswith(("[", "study "))]) > 3:
            self.fault(f"exit 2 in many lines: {told[-1500:]}")
        child.log.unlink()
        return code

    def kill_at(self, child: Child, moment: float) -> None:
        time.sleep(moment)
        os.kill(child.process, signal.SIGKILL)
        self.ended(child, {0, 1, 2, -signal.SIGKILL})

    def moment(self, low: float = 0.02, high: float = 1.0) -> float:
        return self.chance.uniform(low, high) * self.whole

    # faults: each returns the evaluations that it damaged itself

    def killed(self, root: Path) -> Damaged:
        self.kill_at(self.child(root), self.moment())
        return set()

    def killed_holder(self, root: Path) -> Damaged:
        """Killed as soon as it holds a lock."""
        child = self.child(root)
        for _ in range(2000):
            if list((root / "locks").glob("*.json")):
                break
            time.sleep(0.002)
        self.kill_at(child, self.chance.uniform(0, 0.05))
        return set()

    def full_disk(self, root: Path) -> Damaged:
        """Some pages are left."""
        used = shutil.disk_usage(self.out).used
        with self.remounted(f"size={used + self.chance.randrange(60) * 4096}", f"size={SIZE}"):
            self.ended(self.child(root), {0, 2})
        return set()

    def no_inodes(self, root: Path) -> Damaged:
        disk = os.statvfs(self.out)
        left = self.chance.randrange(40)
        with self.remounted(f"nr_inodes={disk.f_files - disk.f_ffree + left}", f"nr_inodes={INODES}"):
            self.ended(self.child(root), {0, 2})
        return set()

    def read_only(self, root: Path) -> Damaged:
        """From the beginning, or from some moment on."""
        if self.chance.random() < 0.4:
            with self.remounted("bind,ro", "bind,rw"):
                self.ended(self.child(root), {2})
            return set()
        child = self.child(root)
        time.sleep(self.moment(0.02, 0.9))
        with self.remounted("bind,ro", "bind,rw"):
            self.ended(child, {0, 2})
        return set()

    @contextlib.contextmanager
    def remounted(self, how: str, back: str) -> Iterator[None]:
        self.remount(how)
        try:
            yield
        finally:
            self.remount(back)

    def remount(self, how: str) -> None:
        for _ in range(2000):  # not while a file is open for writing
            done = subprocess.run(["mount", "-o", f"remount,{how}", self.out], capture_output=True, check=False)
            if done.returncode == 0:
                return
            time.sleep(0.002)
        raise RuntimeError(done.stderr.decode())

    def failing_disk(self, root: Path) -> Damaged:
        after = self.chance.randrange(0, 150)
        arm = lambda: self.shim.fault_eio(os.fsencode(root), ctypes.c_long(after))  # noqa: E731
        self.ended(self.child(root, before=arm), {0, 2})
        return set()

    def broken_log(self, root: Path) -> Damaged:
        """A log on a full disk, one whose reader has gone (`2>&1 | head -1`), or none at all."""
        way = self.chance.choice(["full", "full", "head", "head", "closed"])
        if way == "full":
            full = os.open("/dev/full", os.O_WRONLY)
            self.ended(self.child(root, streams=(full, full)), {0})
            os.close(full)
        elif way == "head":
            read, write = os.pipe()
            child = self.child(root, streams=(write, write), before=lambda: os.close(read))
            os.close(write)
            os.read(read, 1)
            os.close(read)
            self.ended(child, {0})
        else:
            self.ended(self.child(root, streams=(-1, -1)), {0})
        return set()

    def crashed_worker(self, root: Path) -> Damaged:
        """One of two workers dies, or is asked to stop."""
        parent = self.workers(root)
        children = self.at_work(parent, root)
        time.sleep(self.moment(0, 0.5))
        crash = self.chance.choice([signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGTERM])
        struck = bool(children) and self.signalled(self.chance.choice(children), crash)
        parent.begun = time.monotonic()
        self.ended(parent, {0, 2, 128 + signal.SIGTERM} if struck else {0})
        return set()

    def orphaned_workers(self, root: Path) -> Damaged:
        """Whoever started the workers is killed: they end too."""
        parent = self.workers(root)
        children = self.at_work(parent, root)
        time.sleep(self.moment(0, 0.5))
        self.signalled(parent.process, signal.SIGKILL)
        parent.begun = time.monotonic()
        self.ended(parent, {0, -signal.SIGKILL})
        deadline = time.monotonic() + LIMIT
        while any(map(runs, children)) and time.monotonic() < deadline:
            time.sleep(0.02)
        if any(map(runs, children)):
            self.fault("hang: workers live on without whoever started them")
            for child in children:
                self.signalled(child, signal.SIGKILL)
        return set()

    def at_work(self, parent: Child, root: Path) -> list[int]:
        """The workers, once one of them holds a lock that is its own."""
        for _ in range(40_000):
            children = workers_of(parent.process)
            if any(self.holds(child, root) for child in children) or not runs(parent.process):
                return children
            time.sleep(0.005)
        return workers_of(parent.process)

    def signalled(self, process: int, number: int) -> bool:
        try:
            os.kill(process, number)
        except ProcessLookupError:
            return False
        return True

    def own_tmpdirs(self, root: Path) -> Damaged:
        """Four at once with temporary folders of their own, and every run has a dead lock."""
        from oodles.store.locks import Holder

        gone = asdict(replace(Holder.me(), start="1"))
        for folder in found(root / "runs", "*"):
            path = root / "locks" / f"{folder.name}.json"
            path.parent.mkdir(exist_ok=True)
            path.write_text(json.dumps(gone))
        with tempfile.TemporaryDirectory() as scratch:
            children = []
            for number in range(4):
                own = Path(scratch) / str(number)
                own.mkdir()

                def before(own: Path = own) -> None:
                    os.environ["TMPDIR"], tempfile.tempdir = str(own), None

                children.append(self.child(root, before=before))
            for child in children:
                self.ended(child, {0})
        return set()

    def rivals(self, root: Path) -> Damaged:
        """Three at once; one of them is killed."""
        children = [self.child(root) for _ in range(3)]
        self.kill_at(children[0], self.moment(0.05))
        for child in children[1:]:
            self.ended(child, {0})
        return set()

    def renamed_folder(self, root: Path) -> Damaged:
        """The study's folder is moved away while it is written; nothing appears in its place."""
        child, moved = self.child(root), root.with_name(f"{root.name}-moved")
        while runs(child.process) and not self.holds(child.process, root):
            time.sleep(0.002)
        time.sleep(self.moment(0, 0.5))
        root.rename(moved)
        code = self.ended(child, {0, 2})
        if list(root.glob("runs/*/scores.jsonl")) or (code == 0 and not self.done(moved)):
            self.fault("differs: the folder was made again")
        shutil.rmtree(root, ignore_errors=True)
        moved.rename(root)
        return set()

    def holds(self, process: int, root: Path) -> bool:
        """Whether a process is at a run."""
        with contextlib.suppress(OSError):
            texts = [p.read_text(errors="replace") for p in found(root / "locks", "*.json")]
            return any(f'"process": {process},' in text for text in texts)
        return False

    def clock_jump(self, root: Path) -> Damaged:
        jump = self.chance.choice([-1, 1]) * self.chance.randrange(3600, 10**7)
        child = self.child(root, before=lambda: self.shim.fault_jump(ctypes.c_long(jump)))
        self.kill_at(child, self.moment(0.1))
        return set()

    # damage

    def torn_line(self, root: Path) -> Damaged:
        def tear(data: bytes) -> bytes:
            last = data.rstrip(b"\n").rfind(b"\n") + 1
            return data[: self.chance.randrange(last, len(data))]

        return self.damaged_line(root, tear)

    def flipped_line(self, root: Path) -> Damaged:
        return self.damaged_line(root, lambda data: self.flipped(data, data.rstrip(b"\n").rfind(b"\n") + 1))

    def damaged_line(self, root: Path, damage: Callable[[bytes], bytes]) -> Damaged:
        files = [p for p in found(root / "runs", "*/scores.jsonl") if p.stat().st_size]
        if not files:
            return self.killed(root)
        path = self.chance.choice(files)
        data = path.read_bytes()
        line = json.loads(data.splitlines()[-1])
        path.write_bytes(damage(data))
        self.kill_at(self.child(root), self.moment(0.1, 0.8))
        return {(path.parent.name, line["step"], line["test_set"])}

    def flipped_records(self, root: Path) -> Damaged:
        files = found(root / "runs", "*/records/*/*.parquet")
        if not files:
            return self.killed(root)
        path = max(files, key=lambda p: p.stat().st_mtime_ns)
        path.write_bytes(self.flipped(path.read_bytes()))
        self.kill_at(self.child(root), self.moment(0.1, 0.8))
        return {(path.parts[-4], int(path.parts[-2]), path.stem)}

    def flipped_checkpoint(self, root: Path) -> Damaged:
        """A bit of an unfinished run's training state flips, or a file of it is cut or gone; then the run goes on."""
        files = [p for p in found(root / "runs", "*/checkpoints/[0-9]*/*") if p.is_file()]
        if not files:  # an unfinished study, kept for this
            copy = self.out / "checkpoint"
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(self.unfinished(), copy)
            self.flip_checkpoint([p for p in found(copy / "runs", "*/checkpoints/[0-9]*/*") if p.is_file()])
            self.ended(self.child(copy), {0})
            self.compare(copy, "undisturbed")
            shutil.rmtree(copy)
            return set()
        self.flip_checkpoint(files)
        self.kill_at(self.child(root), self.moment(0.3, 1.5))
        return set()

    def flip_checkpoint(self, files: list[Path]) -> None:
        path = self.chance.choice(files)
        way = self.chance.choice(["flip", "flip", "flip", "cut", "remove"])
        if way == "remove":
            path.unlink()
        else:
            data = path.read_bytes()
            path.write_bytes(self.flipped(data) if way == "flip" else data[: self.chance.randrange(len(data))])

    def unfinished(self) -> Path:
        """A study that was killed when its first run had trained for some steps."""
        if self.half is None:
            self.half = self.out / "half"
            while not list(self.half.glob("runs/*/checkpoints/[0-9]*")):
                shutil.rmtree(self.half, ignore_errors=True)
                child = self.child(self.half)
                while runs(child.process) and not list(self.half.glob("runs/*/checkpoints/[2-9]*")):
                    time.sleep(0.001)
                self.kill_at(child, 0)
        return self.half

    def flipped_adapter(self, root: Path) -> Damaged:
        """A bit of a kept adapter flips, and a set is added to the finished study: refused, or scored as ever."""
        copy = self.out / "adapter"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.out / "undisturbed", copy)
        path = self.chance.choice([p for p in found(copy / "runs", "*/adapters/*/*") if p.is_file()])
        path.write_bytes(self.flipped(path.read_bytes()))
        code = self.ended(self.child(copy, *GROWN), {0, 2})
        if code == 0:
            self.compare(copy, "grown")
        else:
            self.compare(copy, "grown", part=True)
        shutil.rmtree(copy)
        return set()

    def damaged_sidecar(self, root: Path) -> Damaged:
        """One of the files beside the scores is garbled, cut, emptied or removed: written anew, or named."""
        folders = found(root / "runs", "*")
        run = self.chance.choice(folders) if folders else root / "runs" / "none"
        sets = found(root / "sets", "*.parquet")
        places = [root / "study.json", root / "audit.json", *sets[:1], run / "env.json", run / "draw.json"]
        places += [run / "failed.json", root / "locks" / f"{run.name}.json", root / ".study.lock", run / "spec.json"]
        path = self.chance.choice(places)
        way = self.chance.choice(["garble", "flip", "cut", "empty", "remove"])
        plantable = path.name == "failed.json" and not (run / "done.json").is_file()
        plantable |= path.parent.name == "locks" or path.suffix == ".lock"
        if not path.parent.is_dir() or not (path.is_file() or plantable):
            return self.killed(root)
        data = path.read_bytes() if path.is_file() else self.planted(path)
        if way == "remove" and path.name == "spec.json":
            way = "cut"
        if way == "remove":
            path.unlink(missing_ok=True)
        else:
            cut = data[: self.chance.randrange(len(data))]
            ways = {"garble": b"\x00\xff{", "flip": self.flipped(data), "cut": cut, "empty": b""}
            path.write_bytes(ways[way])
        self.kind = (
            f"damaged_sidecar {path.suffix if path.suffix == '.parquet' else path.name.replace(run.name, 'run')}"
        )
        child = self.child(root)
        told = ""
        while runs(child.process) and time.monotonic() - child.begun < LIMIT:
            time.sleep(0.01)
        told = child.told
        damaged: Damaged = set()
        if self.ended(child, {0, 2}) == 2:  # as the message says
            if str(path) not in told:
                self.fault(f"exit 2 and no advice about {path}: {told[-500:]}")
            gone = path.parent if path.name == "spec.json" else path
            if path.name == "spec.json":
                damaged = {key for key in self.committed(root) if key[0] == run.name}
            shutil.rmtree(gone) if gone.is_dir() else gone.unlink(missing_ok=True)
        return damaged

    def planted(self, path: Path) -> bytes:
        """What a lock or a failure would be, to be damaged."""
        from oodles.disk import sealed
        from oodles.store.locks import Holder

        failure = {"reason": "RuntimeError: no luck", "log": "log.txt"}
        return json.dumps(sealed(failure if path.name == "failed.json" else asdict(Holder.me()))).encode()

    def flipped(self, data: bytes, first: int = 0) -> bytes:
        changed = bytearray(data)
        if changed:
            changed[self.chance.randrange(first, len(changed))] ^= 1 << self.chance.randrange(8)
        return bytes(changed)

    # what must hold

    def done(self, root: Path) -> bool:
        from oodles.store.folder import RunFolder

        names = [p.name for p in (self.out / "undisturbed" / "runs").iterdir()]
        return all(RunFolder(root / "runs" / name).status == "done" for name in names)

    def committed(self, root: Path) -> Committed:
        """What is committed in a study's folder; says what is doubled."""
        from oodles.store.folder import RunFolder
        from oodles.store.records import records_are_whole
        from oodles.store.scores import scan_scores

        now: Committed = {}
        for path in found(root / "runs", "*"):
            lines = RunFolder(path).scores.read_bytes().splitlines() if RunFolder(path).scores.is_file() else []
            keys = [tuple(line.split(b'"role"')[0].split(b", ")) for line in lines if line.endswith(b"}")]
            if len(keys) != len(set(keys)):
                self.fault(f"doubled: {path.name}")
            for line in scan_scores(RunFolder(path)).scores:
                if not records_are_whole(RunFolder(path), line):
                    continue  # damaged by a fault, and not made anew yet
                now[path.name, line.step, line.test_set] = json.dumps(line.metrics, sort_keys=True)
        return now

    def check(self, root: Path, before: Committed, damaged: Damaged) -> Committed:
        now = self.committed(root)
        for key, value in before.items():
            if key not in now and key not in damaged:
                self.fault(f"lost: {key}")
            if now.get(key, value) != value and key not in damaged:
                self.fault(f"altered: {key}")
        for path in found(root / "runs", "*/failed.json"):
            self.fault(f"failed: {path.read_text(errors='replace')[:500]}")
            path.unlink()
        return now

    def compare(self, root: Path, name: str, *, part: bool = False) -> None:
        """With the undisturbed study: tables and records, and what lies beside them."""
        import warnings

        from oodles.store.table import read_records, read_runs

        warnings.simplefilter("ignore")
        for read in (read_runs, read_records):
            first, second = read(self.out / name), read(root)
            keys = [c for c in ("run", "step", "test_set", "metric", "example") if c in first.columns]
            first, second = (t.sort_values(keys).reset_index(drop=True) for t in (first, second))
            if second.duplicated(keys).any():
                self.fault(f"doubled: {read.__name__}")
            if part:
                first = first.merge(second[keys], on=keys).sort_values(keys).reset_index(drop=True)
                second = second[first.columns]
            if not first.equals(second):
                self.fault(f"differs: {read.__name__} of {root.name}")
        if not part:
            self.compare_sidecars(root, self.out / name)

    def compare_sidecars(self, root: Path, whole: Path) -> None:
        import pyarrow.parquet as pq

        for one in ("study.json", "audit.json", *(f"runs/{p.name}/draw.json" for p in found(whole / "runs", "*"))):
            first, second = json.loads((whole / one).read_text()), json.loads((root / one).read_text())
            if plainly(first) != plainly(second):
                self.fault(f"differs: {one} of {root.name}: {first}, {second}")
        for path in found(whole / "sets", "*"):
            if pq.read_table(path) != pq.read_table(root / "sets" / path.name):
                self.fault(f"differs: sets/{path.name} of {root.name}")


GROWN = ("--set", "eval.shots=true")


def open_stream(number: int) -> Any:
    return open(number, "w", buffering=1, closefd=False)


def plainly(told: dict[str, Any]) -> dict[str, Any]:
    """Without what may differ: the checksum, the order of lists, and what is empty."""
    kept = {k: v for k, v in told.items() if v and k != "checksum"}
    return {k: sorted(map(str, v)) if isinstance(v, list) else v for k, v in kept.items()}


def call_oodles(*arguments: str) -> int:
    """The command line in this process; its exit code."""
    import traceback

    from oodles.cli import main

    sys.argv = ["oodles", *arguments]
    try:
        main()
    except SystemExit as left:
        return left.code if isinstance(left.code, int) else int(left.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def found(folder: Path, pattern: str) -> list[Path]:
    return sorted(p for p in folder.glob(pattern) if not p.name.startswith(".")) if folder.is_dir() else []


def runs(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def workers_of(parent: int) -> list[int]:
    """Processes that a parent has spawned to work."""
    try:
        children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        return [int(c) for c in children if b"spawn_main" in Path(f"/proc/{c}/cmdline").read_bytes()]
    except OSError:
        return []


if __name__ == "__main__":
    sys.exit(main())
