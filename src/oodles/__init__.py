"""oodles: do your generalisation results generalise?

>>> import oodles as oo
>>> print(oo.load_suite("mini").name)
mini

The names below are the public API; each is loaded on first use, so that importing oodles
imports neither torch nor matplotlib.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "load_suite": "suite",
    "load_study": "config",
    "run": "launch",
    "read_runs": "reading",
    "read_records": "reading",
    "score": "scoring",
    "partial_correlations": "correlate",
    "plot_correlations": "figures",
    "latex_table": "tables",
    "write_report": "report",
    "OODCallback": "callback",
}

__all__ = [
    "OODCallback",
    "latex_table",
    "load_study",
    "load_suite",
    "partial_correlations",
    "plot_correlations",
    "read_records",
    "read_runs",
    "run",
    "score",
    "write_report",
]

if TYPE_CHECKING:
    from oodles.callback import OODCallback
    from oodles.config import load_study
    from oodles.correlate import partial_correlations
    from oodles.figures import plot_correlations
    from oodles.launch import run
    from oodles.reading import read_records, read_runs
    from oodles.report import write_report
    from oodles.scoring import score
    from oodles.suite import load_suite
    from oodles.tables import latex_table


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'oodles' has no attribute '{name}'")
    return getattr(importlib.import_module(f"oodles.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
