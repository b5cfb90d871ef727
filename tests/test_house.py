"""Every module has a test file of its own name, so that the tests of a module are easy to find, and to miss.

The file is `test_<module>.py`, or `test_<package>_<module>.py` where another package has a module of the same name.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import oodles

SOURCE, TESTS = Path(oodles.__file__).parent, Path(__file__).parent
ELSEWHERE = {  # module or package -> where it is tested instead, and why
    "cli": "commands are tested as users call them, with what they do: test_cli, test_help, test_doors and others",
    "suite.mini": "the generators of one suite are tested together: test_mini",
    "suite.opinions": "the same: test_opinions",
    "suite.generated": "what both suites are drawn with: test_mini, test_opinions",
    "imports": "formats are tested by the files of their own libraries: test_import_*",
    "scheduler": "what SLURM is asked and answers: test_cluster, test_slurm",
    "store.ledger": "which job has which run: test_cluster, test_slurm",
    "study.requeue": "a job that ends is queued again: test_cluster, test_slurm",
    "study.resolved": "one run as a file: test_cluster, test_slurm",
    "api.plan": "what `oodles plan` says: test_planning",
    "show.answers": "figures and sentences of further questions: test_claim, test_further, test_sensitivity",
    "api.analyse": "tested as Python users call it: test_api",
    "api.records": "slices of records against slices of the table: test_slices",
    "show.latex": "tables that fit a column: test_assets",
    "show.data": "the page's data: test_report, test_page",
    "show.words": "notes and methods: test_tables, test_report",
    "show.numbers": "part of every golden table: test_tables",
    "show.suites": "what `oodles suites` and `oodles check` print: test_audit, test_nli",
    "show.notebook": "what print() and Jupyter show: test_display",
    "stats.blur": "noise of the in-domain set: test_intervals",
    "stats.items": "part of the noise in scores: test_noise",
    "stats.clusters": "what the claim compares: test_claim",
    "stats.effects": "random effects of the claim: test_claim",
    "stats.answers": "what further questions return: test_claim, test_further, test_sensitivity",
    "stats.questions": "one of the further questions: test_further",
    "stats.redundancy": "one of the further questions: test_further",
    "stats.skill": "one of the further questions: test_further",
    "stats.stability": "one of the further questions: test_further",
    "stats.windows": "one of the further questions: test_further",
    "stats.outcomes": "part of the noise in scores: test_noise",
    "stats.pairs": "part of partial_correlations: test_correlate",
}


def modules() -> list[str]:
    """All modules but those that only make a package or a script of others."""
    names = (".".join(path.relative_to(SOURCE).with_suffix("").parts) for path in sorted(SOURCE.rglob("*.py")))
    return [name for name in names if name.rpartition(".")[2] not in ("__init__", "__main__")]


def covered(module: str, name: str) -> bool:
    """Whether a module is meant by the name of a module or package."""
    return module == name or module.startswith(f"{name}.")


def own_file(module: str) -> str:
    """`test_<package>_<module>.py`."""
    return f"test_{module.replace('.', '_')}.py"


def file_of(module: str) -> str:
    return own_file(module) if (TESTS / own_file(module)).is_file() else f"test_{module.rpartition('.')[2]}.py"


def test_every_module_has_a_test_file_of_its_own() -> None:
    files = {m: file_of(m) for m in modules() if not any(covered(m, name) for name in ELSEWHERE)}
    lacking = [module for module, file in files.items() if not (TESTS / file).is_file()]
    assert not lacking, "write tests/test_<module>.py, or say in ELSEWHERE where the module is tested"
    shared = [file for file, count in Counter(files.values()).items() if count > 1]
    assert not shared, "two modules of the same name: call their files test_<package>_<module>.py"


def test_every_exception_is_still_needed() -> None:
    gone = [name for name in ELSEWHERE if not any(covered(module, name) for module in modules())]
    assert not gone, "no such module: take it out of ELSEWHERE"
    needless = [name for name in ELSEWHERE if name in modules() and (TESTS / own_file(name)).is_file()]
    assert not needless, "it has a test file now: take it out of ELSEWHERE"
