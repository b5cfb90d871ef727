"""oodles: do your generalisation results generalise?

>>> import oodles as oo
>>> print(oo.load_suite("mini").name)
mini

The names below are the public API. Each is loaded on first use, so importing oodles imports neither torch nor
matplotlib.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "analyse": "api.analyse",
    "import_scores": "api.imports",
    "load_suite": "suite.load",
    "load_study": "study.load",
    "run": "study.launch",
    "read_runs": "store.table",
    "read_records": "store.table",
    "score": "model.scoring",
    "partial_correlations": "stats.correlate",
    "plot_correlations": "show.heatmap",
    "plot_fits": "show.scatter",
    "plot_residuals": "show.scatter",
    "latex_table": "show.tables",
    "write_report": "show.report",
    "OODCallback": "runs.callback",
    "Evaluator": "runs.own_loop",
}

__all__ = [
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

if TYPE_CHECKING:
    from oodles.api.analyse import analyse
    from oodles.api.imports import import_scores
    from oodles.model.scoring import score
    from oodles.runs.callback import OODCallback
    from oodles.runs.own_loop import Evaluator
    from oodles.show.heatmap import plot_correlations
    from oodles.show.report import write_report
    from oodles.show.scatter import plot_fits, plot_residuals
    from oodles.show.tables import latex_table
    from oodles.stats.correlate import partial_correlations
    from oodles.store.table import read_records, read_runs
    from oodles.study.launch import run
    from oodles.study.load import load_study
    from oodles.suite.load import load_suite


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'oodles' has no attribute '{name}'")
    return getattr(importlib.import_module(f"oodles.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
