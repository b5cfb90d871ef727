"""The core is light: what is imported when, and in which direction."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import oodles

SOURCE = Path(oodles.__file__).parent
HEAVY = ("torch", "transformers", "peft", "datasets", "matplotlib", "pandas", "scipy")
NO_TORCH = [
    "cli", "show.figures", "show.report", "show.tables", "stats.analysis", "stats.cautions", "stats.changes",
    "stats.correlate", "stats.estimates", "stats.longtable", "stats.noise", "stats.outcomes", "stats.pairs",
    "stats.resample", "stats.residuals", "stats.robustness", "stats.series", "stats.splines", "stats.verdict",
    "scheduler", "store.folder", "store.facts", "store.ledger", "runs.trackers", "study.slurm",
    "study.resolved", "audit.overview", "api.analyse", "imports.registry", "imports.tables",
    "study.grid", "study.load", "suite.draw", "suite.load", "suite.patterns",
    "suite.sources",
]  # fmt: skip


def modules_after(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print(' '.join(sys.modules))"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.split())


def test_importing_oodles_loads_nothing_heavy() -> None:
    assert not modules_after("import oodles") & set(HEAVY)


def test_python_m_oodles_is_the_command_line() -> None:
    """Without torch, and with the script's name in its usage."""
    command = [sys.executable, "-X", "importtime", "-m", "oodles", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "Usage: oodles [OPTIONS] COMMAND" in done.stdout
    assert "oodles.cli" in done.stderr
    assert "torch" not in done.stderr
    refused = subprocess.run([sys.executable, "-m", "oodles", "runn"], capture_output=True, text=True, check=False)
    assert (refused.returncode, len(refused.stderr.splitlines())) == (2, 1)


def test_public_names() -> None:
    assert sorted(oodles.__all__) == [
        "Evaluator",
        "OODCallback",
        "analyse",
        "import_scores",
        "latex_table",
        "load_study",
        "load_suite",
        "partial_correlations",
        "plot_correlations",
        "plot_fits",
        "plot_residuals",
        "read_records",
        "read_runs",
        "run",
        "score",
        "write_report",
    ]
    for name in oodles.__all__:
        assert callable(getattr(oodles, name))
        assert not (SOURCE / f"{name}.py").exists()  # a lazily loaded name must not be a module's
    assert set(oodles.__all__) <= set(dir(oodles))
    with pytest.raises(AttributeError, match="no attribute 'partial_correlation'"):
        oodles.partial_correlation  # noqa: B018


BLOCK_TORCH = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split('.')[0] in ('torch', 'transformers', 'peft', 'accelerate', 'datasets', 'tokenizers'):
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)
sys.meta_path.insert(0, Block())
"""


def test_modules_that_need_no_torch() -> None:
    imports = "\n".join(f"import oodles.{module}" for module in NO_TORCH)
    assert "torch" not in modules_after(f"{BLOCK_TORCH}\n{imports}")


def without_torch(*arguments: object, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    code = f"{BLOCK_TORCH}\nsys.argv[0] = 'oodles'\nfrom oodles.cli import main\nmain()"
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, check=False, env=env
    )


def test_analyse_and_report_work_without_torch(tmp_path: Path) -> None:
    rows = ["run,step,test_set,role,value,n"]
    for run in range(6):
        for step in range(8):
            for k, name in enumerate(("in", "a", "b")):
                value = 0.5 + 0.04 * step + 0.01 * ((run * 7 + step * 3 + k * 5) % 11)
                rows.append(f"r{run},{step},{name},{'ood' if k else 'in_domain'},{value:.3f},500")
    table = tmp_path / "table.csv"
    table.write_text("\n".join(rows))
    for arguments in (
        ["analyse", table, "--out", tmp_path / "results"],
        ["report", table, "--out", tmp_path / "r.html"],
    ):
        done = without_torch(*arguments)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "results" / "results.json").is_file()
    assert "<html" in (tmp_path / "r.html").read_text()
    again = without_torch("report", tmp_path / "results", "--out", tmp_path / "again.html")
    assert again.returncode == 0, again.stderr
    anew = without_torch("analyse", tmp_path / "results", "--method", "linear", "--within", "run", "--json")
    assert {(row["method"], row["within"]) for row in json.loads(anew.stdout)["pairs"]} == {("linear", "run")}


def test_a_missing_extra_names_its_install_line(tmp_path: Path) -> None:
    done = without_torch("demo", "--quick", "--out", tmp_path / "q")
    assert done.returncode == 2
    assert "pip install 'oodles[train]'" in done.stderr


def test_the_demo_shows_its_finding_without_torch(tmp_path: Path) -> None:
    env = {**os.environ, "OODLES_CACHE": str(tmp_path / "cache")}  # where no model has been fetched
    done = without_torch("demo", "--out", tmp_path / "d", env=env)
    *shown, error = done.stderr.splitlines()
    assert done.returncode == 2
    assert shown[0].startswith("100 BERTs on HANS, published runs:")
    assert "It depends on the pair: of 15 pairs" in done.stderr
    assert "<h1>100 BERTs on HANS</h1>" in (tmp_path / "bert-hans.html").read_text()
    assert error.endswith("run: pip install 'oodles[train]'")
    assert not (tmp_path / "d").exists()


# which packages a package may import, beside the modules at the root
ALLOWED: dict[str, set[str]] = {
    "suite": set(),
    "model": {"suite"},
    "audit": {"suite", "model"},
    "store": {"suite"},
    "runs": {"suite", "model", "audit", "store"},
    "study": {"suite", "model", "audit", "store", "runs"},
    "stats": set(),
    "imports": {"stats"},
    "show": {"stats", "suite", "audit"},
    "api": {"store", "stats", "imports", "show"},
    "cli": {"suite", "model", "audit", "store", "runs", "study", "stats", "imports", "show", "api"},
}


def imports_of(path: Path) -> set[str]:
    """The modules of oodles that a module imports, such as `store.folder`."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "oodles":
            base = node.module.removeprefix("oodles").removeprefix(".")
            named = {f"{base}.{alias.name}".lstrip(".") for alias in node.names}
            found |= {name for name in named if is_module(name)} or ({base} if base else set())
    return found


def is_module(name: str) -> bool:
    path = SOURCE / name.replace(".", "/")
    return path.is_dir() or path.with_suffix(".py").is_file()


def modules() -> dict[str, Path]:
    return {".".join(p.relative_to(SOURCE).with_suffix("").parts): p for p in SOURCE.rglob("*.py")}


def test_every_package_has_its_rule() -> None:
    assert {p.parent.name for p in SOURCE.glob("*/__init__.py")} == set(ALLOWED)


def test_no_import_breaks_the_table() -> None:
    """The root may be imported by all and imports no package; only the lazy public names reach down."""
    broken = []
    for name, path in modules().items():
        package = name.partition(".")[0] if "." in name else ""
        allowed = ALLOWED.get(package, set()) | {package}
        for used in imports_of(path):
            needed = used.partition(".")[0]
            if name not in ("__init__", "__main__") and needed in ALLOWED and needed not in allowed:
                broken.append(f"{name} imports {used}")
    assert not broken


def test_one_module_scores_and_commits() -> None:
    """Training, checkpoints, kept adapters and loops of one's own share it."""
    for name in ("commit", "predict"):
        users = [
            module
            for module, path in modules().items()
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name
        ]
        assert set(users) == {"runs.evaluate"}, name


def test_imports_have_no_cycle() -> None:
    graph = {name: imports_of(path) - {name} for name, path in modules().items() if not name.endswith("__init__")}
    graph = {name: needs & graph.keys() for name, needs in graph.items()}
    while graph:
        leaves = {name for name, needs in graph.items() if not needs & graph.keys()}
        assert leaves, f"cycle among {sorted(graph)}"
        graph = {name: needs for name, needs in graph.items() if name not in leaves}
