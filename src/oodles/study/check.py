"""The audit of a study: the data and prompts that its runs use."""

from __future__ import annotations

from oodles.audit.audit import Audit, Say, View, audit
from oodles.contracts import Draw
from oodles.study.grid import Grid


def audit_grid(grid: Grid, *, notes: bool = True, say: Say = lambda _: None) -> Audit:
    """Audit a study's sampled test sets, train sets, drawn shots and tokenizers."""
    draws: dict[str, dict[str, Draw]] = {}
    for job in grid.jobs:
        draws.setdefault(job.spec.train_set, {})[job.draw.hash] = job.draw
    view = View(
        suite=grid.suite,
        patterns=tuple({job.spec.pattern.name: job.spec.pattern for job in grid.jobs}.values()),
        models=tuple({job.spec.model: None for job in grid.jobs}),
        train_sets=tuple(grid.study.train_sets),
        evaluation=grid.study.evaluation,
        draws={name: tuple(by_hash.values()) for name, by_hash in draws.items()},
        notes=notes,
    )
    return audit(view, say)
