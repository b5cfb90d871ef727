"""The evaluation steps of a run: always step 0 and the last, and the same steps for in-domain and OOD sets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from oodles.contracts import Recipe, RunSpec
from oodles.errors import ConfigError


def step_count(shots: int, recipe: Recipe) -> int:
    """Return the number of optimiser steps of a run; the last batch of an epoch may be smaller."""
    if recipe.steps is not None:
        return recipe.steps
    return math.ceil(math.ceil(shots / recipe.batch_size) / recipe.accumulate) * recipe.epochs


def passes(shots: int, recipe: Recipe, steps: int) -> float:
    """Return how many times the given steps pass over the shots.

    >>> passes(32, Recipe(batch_size=8), 16), passes(32, Recipe(batch_size=8, steps=6), 6)
    (4.0, 1.5)
    """
    return steps / step_count(shots, replace(recipe, steps=None, epochs=1))


def warmup_steps(last: int, share: float) -> int:
    """Return the number of warm-up steps, rounded up.

    >>> warmup_steps(70, 0.1), warmup_steps(24, 0.1), warmup_steps(24, 1.0)
    (7, 3, 24)
    """
    return math.ceil(round(last * share, 9))


def schedule(steps: str | Sequence[int], last: int, points: int = 10) -> tuple[int, ...]:
    """Return the evaluation steps of a run with `last` optimiser steps.

    Examples
    --------
    >>> schedule("log", 24)
    (0, 1, 2, 4, 8, 16, 24)
    >>> schedule("linear", 24, points=4)
    (0, 6, 12, 18, 24)
    >>> schedule([5, 10], 24)
    (0, 5, 10, 24)
    """
    if isinstance(steps, str):
        if steps == "log":
            wanted = {1 << k for k in range(last.bit_length())}
        elif steps == "linear":
            wanted = {round(last * k / points) for k in range(points + 1)}
        else:
            raise ConfigError(f'steps is "{steps}", expected "log", "linear" or a list of steps')
    else:
        wanted = set(steps)
        beyond = [s for s in wanted if not 0 <= s <= last]
        if beyond:
            raise ConfigError(
                f"[eval] steps holds {beyond[0]}, but the run has {last} steps; choose steps from 0 to {last}"
            )
    return tuple(sorted({0, last} | {s for s in wanted if s <= last}))


def schedule_of(spec: RunSpec) -> tuple[int, ...]:
    """Return the evaluation steps of a run."""
    return schedule(spec.evaluation.steps, step_count(spec.shots, spec.recipe), spec.evaluation.points)
