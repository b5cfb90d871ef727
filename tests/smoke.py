"""A wheel in an empty environment, without torch: installs, imports, analyses, reports.

$ python tests/smoke.py dist/oodles-0.1.0-py3-none-any.whl
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src" / "oodles"

INSTALLED = """
import importlib.util, json
from pathlib import Path
import oodles
from oodles.study.load import load_study
folder = Path(oodles.__file__).parent
print(json.dumps({
    "folder": str(folder),
    "version": oodles.__version__,
    "files": sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()),
    "heavy": [n for n in ("torch", "transformers", "datasets", "peft") if importlib.util.find_spec(n)],
    "studies": [load_study(name).name for name in ("demo", "paper", "quick")],
}))
"""


def main(wheel: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="oodles-smoke-") as name:
        folder = Path(name)
        binaries = install(wheel, folder / "venv")
        version = check_package(binaries, folder)
        check_commands(binaries, folder, version)
    print(f"{wheel.name}: installs without torch, and passes")


def install(wheel: Path, environment: Path) -> Path:
    """The folder of the new environment's programs."""
    venv.create(environment, with_pip=True)
    binaries = environment / ("Scripts" if os.name == "nt" else "bin")
    call(binaries / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel.resolve())
    return binaries


def check_package(binaries: Path, folder: Path) -> str:
    """What is in the environment; returns the version."""
    found = json.loads(call(binaries / "python", "-c", INSTALLED, cwd=folder))
    expect(Path(found["folder"]).is_relative_to(folder.resolve()), f"oodles was imported from {found['folder']}")
    expect(not found["heavy"], f"the environment has {', '.join(found['heavy'])}; the core must not need them")
    shipped = {str(p.relative_to(SOURCE)) for p in SOURCE.rglob("*") if p.is_file() and "__pycache__" not in p.parts}
    lost = sorted(shipped - set(found["files"]))
    expect(not lost, f"the wheel lacks {', '.join(lost)}")
    expect("py.typed" in found["files"], "the wheel lacks py.typed")
    expect(found["studies"] == ["demo", "paper", "quick"], f"the shipped studies are {found['studies']}")
    return str(found["version"])


def check_commands(binaries: Path, folder: Path, version: str) -> None:
    """What a user calls first."""
    oodles = binaries / "oodles"
    said = call(oodles, "--version", cwd=folder)
    expect(version in said, f"oodles --version says {said.strip()!r}, expected {version}")
    suites = call(oodles, "suites", cwd=folder)
    expect("mini" in suites and "nli" in suites, f"oodles suites lists {suites!r}, expected mini and nli")
    call(oodles, "suites", "mini", cwd=folder)
    (folder / "table.csv").write_text(example_table())
    call(oodles, "analyse", "table.csv", "--out", "results", cwd=folder)
    results = json.loads((folder / "results" / "results.json").read_text())
    expect(bool(results), "results.json is empty")
    for source, name in (("table.csv", "table.html"), ("results", "results.html")):
        call(oodles, "report", source, "--out", name, cwd=folder)
        text = (folder / name).read_text()
        expect("<html" in text and "hans" in text and "</html>" in text, f"the report of {source} is not whole")


def example_table() -> str:
    """Six runs of eight steps on three test sets."""
    rows = ["run,step,test_set,role,value,n"]
    for run in range(6):
        for step in range(8):
            for k, name in enumerate(("mnli", "hans", "paws")):
                value = 0.5 + 0.04 * step + 0.01 * ((run * 7 + step * 3 + k * 5) % 11)
                rows.append(f"r{run},{step},{name},{'ood' if k else 'in_domain'},{value:.3f},500")
    return "\n".join(rows) + "\n"


def call(*command: object, cwd: Path | None = None) -> str:
    """What a command prints; ends everything if it fails. Nothing of the caller's Python reaches it."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "OODLES_", "VIRTUAL_ENV"))}
    done = subprocess.run([str(c) for c in command], cwd=cwd, capture_output=True, text=True, check=False, env=env)
    shown = " ".join(str(c) for c in command if "\n" not in str(c))
    expect(done.returncode == 0, f"{shown}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def expect(holds: bool, otherwise: str) -> None:
    if not holds:
        raise SystemExit(f"smoke test: {otherwise}")


if __name__ == "__main__":
    if len(sys.argv) != 2 or not Path(sys.argv[1]).is_file():
        raise SystemExit("usage: python tests/smoke.py WHEEL")
    main(Path(sys.argv[1]))
