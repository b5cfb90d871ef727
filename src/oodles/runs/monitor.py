"""The progress report of a run: one line per evaluation, the time left, the memory used."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


def evaluation_line(
    step: int, last: int | None, loss: float, values: Mapping[str, Mapping[str, Any]], in_domain: str
) -> str:
    """Return one line per evaluation: in-domain accuracy, OOD accuracies, and the mean share of each first answer."""
    of_sets = [[(k, v) for k, v in metrics.items() if k.startswith("share:")] for metrics in values.values()]
    firsts = [shares[0] for shares in of_sets if shares]  # sets whose choices differ have none
    named: dict[str, list[float]] = {}
    for key, value in firsts:
        named.setdefault(key.removeprefix("share:"), []).append(value)
    share = "".join(f"  {name} {sum(values) / len(values):.2f}" for name, values in named.items())
    order: Sequence[str] = sorted(values, key=lambda name: name != in_domain)
    accuracies = "  ".join(f"{name} {values[name]['accuracy']:.2f}" for name in order)
    shown = "-" if loss != loss else f"{loss:.3f}"  # of this step it is not known
    of = "" if last is None else f"/{last}"
    return f"step {step}{of}  loss {shown}  {accuracies}{share}"


@dataclass(slots=True)
class Clock:
    """Measures a run's steps and evaluations to estimate the time left."""

    step: int = 0  # step at which this attempt started
    begun: float = field(default_factory=time.monotonic)
    evaluations: list[float] = field(default_factory=list)

    def evaluated(self, seconds: float) -> None:
        self.evaluations.append(seconds)

    def left(self, step: int, scheduled: Sequence[int]) -> float:
        """Return the seconds until the last scheduled step is evaluated; 0 where the attempt began."""
        if step <= self.step:
            return 0.0
        training = time.monotonic() - self.begun - sum(self.evaluations)
        to_come = [s for s in scheduled if s > step]
        each = sum(self.evaluations) / len(self.evaluations)
        return max(0.0, training) / (step - self.step) * (max(scheduled) - step) + each * len(to_come)


def memory_gigabytes() -> float:
    """Return the peak memory so far, of the GPU or of this process."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        return float(torch.cuda.max_memory_allocated()) / 1e9
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e9 if sys.platform == "darwin" else peak / 1e6
