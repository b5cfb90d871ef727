"""Format a budget as tables, lines and plain data."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from oodles.runs.progress import duration
from oodles.study.budget import UTILISATION, Budget, Cost, Memory, rows, total
from oodles.study.devices import ASSUMED, USABLE, Hours


def describe_budget(budget: Budget, status: Mapping[str, str]) -> dict[str, Any]:
    """Return the budget as plain data; unknown values are None."""
    left = total(run.left for run in budget.runs)
    names = ("model", "train_set", "pattern", "shots")
    runs = [
        {"run": r.run, "status": status[r.run], "would": r.would, "left": _plain(r.left)}
        | dict(zip(names, r.group, strict=True))
        | _plain(r.cost, r.memory)
        | ({"memory_on_gpu": _plain_memory(r.on_gpu)} if r.on_gpu else {})
        for r in budget.runs
    ]
    groups = [
        {**dict(zip(names, r.group, strict=True)), "runs": len(r.costs), **_plain(r.each, r.memory)}
        for r in rows(budget)
    ]
    return {
        "estimates": ["arithmetic", "seconds_low", "seconds_high", "disk", "memory"],
        "utilisation": list(UTILISATION),
        "device": budget.device,
        "rates": dict(budget.rates),
        "gpus": [_plain_hours(hours) for hours in budget.gpus],
        "gpu_utilisation": list(ASSUMED),
        "reported_gpu_hours": budget.reported,
        "notes": list(budget.notes),
        "runs": runs,
        "per_run": groups,
        "total": _plain(total(run.cost for run in budget.runs)),
        "left": _plain(left),
    }


def _plain_hours(hours: Hours) -> dict[str, Any]:
    times = {"gpu_hours": hours.hours, "low": hours.low, "high": hours.high, "gpu_hours_fitting": hours.fitting}
    return {**asdict(hours.device), **times, "too_large": dict(hours.too_large)}


def _plain(cost: Cost, memory: Memory | None = None) -> dict[str, Any]:
    fields = {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in asdict(cost).items()}
    return {**fields, "memory": _plain_memory(memory)} if memory else fields


def _plain_memory(memory: Memory) -> dict[str, int]:
    return {**asdict(memory), "total": memory.total}


def table_of_counts(budget: Budget) -> tuple[list[str], list[list[str]]]:
    """Return columns and cells of the counts per run."""
    columns = ["runs", "steps", "evaluations", "prompts", "prompt tokens", "computed", "training tokens"]
    cells = []
    for row in rows(budget):
        names = ("steps", "evaluations", "prompts", "prompt_tokens", "computed_tokens", "training_tokens")
        cells.append([f"{len(row.costs):,}", *(_range([getattr(c, name) for c in row.costs]) for name in names)])
    return _with_groups(budget, columns, cells)


def table_of_estimates(budget: Budget) -> tuple[list[str], list[list[str]]]:
    """Return columns and cells of the estimates per run."""
    columns = ["arithmetic", "time", "memory", "disk"]
    cells = [
        [
            in_units(row.each.arithmetic, "FLOP"),
            time_range(row.each),
            in_units(row.memory.total, "B") if row.memory else "-",
            in_units(row.each.disk, "B"),
        ]
        for row in rows(budget)
    ]
    return _with_groups(budget, columns, cells)


def table_of_gpus(budget: Budget) -> tuple[list[str], list[list[str]]]:
    """Return columns and cells: hours per kind of GPU, and models that do not fit; no rows if nothing is known."""
    columns = ["GPU", "memory", "rate", "GPU-hours", "range", "of runs that fit", "do not fit on one device"]
    runs = Counter(run.group[0] for run in budget.runs)
    cells = [
        [
            gpu.name,
            f"{gpu.device.memory / 2**30:.0f} GiB",
            f"{in_units(gpu.device.rate, 'FLOP')}/s",
            _rounded(gpu.hours),
            f"{_rounded(gpu.low)} to {_rounded(gpu.high)}",
            _rounded(gpu.fitting),
            ", ".join(model if n == runs[model] else f"{model} ({n} of {runs[model]} runs)" for model, n in misfits)
            or "-",
        ]
        for gpu in budget.gpus
        for misfits in [gpu.too_large.items()]
    ]
    return columns, cells


def _rounded(hours: float) -> str:
    """Round to two digits, because it is an estimate.

    >>> _rounded(1234.5), _rounded(0.0123), _rounded(0)
    ('1,200', '0.012', '0')
    """
    return f"{float(f'{hours:.2g}'):,.{max(0, 1 - math.floor(math.log10(hours)))}f}" if hours > 0 else "0"


def gpu_lines(budget: Budget) -> list[str]:
    """Return lines on the assumptions of the GPU hours, and a comparison with the reported hours."""
    if not budget.gpus:
        return []
    low, assumed, high = (round(100 * share) for share in ASSUMED)
    lines = [
        f"GPU-hours, an estimate: the arithmetic of all runs at {assumed} % (range: {high} to {low} %) of the rate the"
        " maker publishes for dense matrix products in half precision; loading and writing are not counted, and small"
        " models come to less",
        f"fits: weights, adapter, optimiser and the largest batch take at most {USABLE:.0%} of the memory; the hours of"
        " a run that does not fit are counted as if it did; a smaller train.batch_size with train.accumulate, or"
        " train.gradient_checkpointing, takes less memory",
    ]
    if budget.reported:
        shares = ", ".join(f"{gpu.hours / budget.reported:.1%} on {gpu.name}" for gpu in budget.gpus)
        lines.append(
            f"reported cost of the study: about {budget.reported:,.0f} GPU-hours. As a share of that, the estimate is"
            f" {shares}; it covers arithmetic only and uses this file's recipe and evaluation points, not the study's"
        )
    return lines


def _with_groups(budget: Budget, columns: list[str], cells: list[list[str]]) -> tuple[list[str], list[list[str]]]:
    """Put the group of runs before the cells of a row; the pattern only if there are several."""
    groups = [row.group for row in rows(budget)]
    shown = [0, 1, 3] if len({group[2] for group in groups}) == 1 else [0, 1, 2, 3]
    names = [("model", "train set", "pattern", "shots")[k] for k in shown]
    return names + columns, [[str(g[k]) for k in shown] + row for g, row in zip(groups, cells, strict=True)]


def _range(numbers: Sequence[int]) -> str:
    """Format the exact range of values over runs.

    >>> _range([20, 15, 15]), _range([1200, 1200])
    ('15 to 20', '1,200')
    """
    low, high = min(numbers), max(numbers)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def sum_lines(budget: Budget) -> list[str]:
    """Return one line for the whole study, and one for the missing part if some of it is finished."""
    lines = [f"whole study: {_sum([run.cost for run in budget.runs])}"]
    left = [run.left for run in budget.runs if run.left.evaluations or run.left.taken_over or run.left.steps]
    return lines + ([f"left to run: {_sum(left)}"] if left != [run.cost for run in budget.runs] else [])


def _sum(runs: Sequence[Cost]) -> str:
    cost = total(runs)
    over = f" (and {cost.taken_over:,} of step 0 taken over from another run)" if cost.taken_over else ""
    return (
        f"{len(runs)} run{'s' * (len(runs) != 1)}, {cost.steps:,} steps, {cost.evaluations:,} evaluations{over},"
        f" {cost.computed_tokens + cost.training_tokens:,} tokens; estimates:"
        f" {in_units(cost.arithmetic, 'FLOP')}, {time_range(cost)}, {in_units(cost.disk, 'B')} on disk"
    )


def basis_lines(budget: Budget) -> list[str]:
    """Return lines on the assumptions of the estimates."""
    low, high = (round(100 * share) for share in UTILISATION)
    timed = "; ".join(f"{label} {in_units(rate, 'FLOP')}/s" for label, rate in budget.rates.items())
    process = " and the process with its packages and data" if budget.device == "cpu" else ""
    lines = [
        f"time, an estimate: the arithmetic at {high} to {low} % of the rate at which matrix products of the model's"
        f" shapes were timed just now on this {budget.device} ({timed}); loading and writing are not counted",
        f"memory, an estimate of the peak: weights, adapter, optimiser, the largest batch{process}",
    ]
    return lines * bool(timed) + list(budget.notes)


def time_range(cost: Cost) -> str:
    if math.isnan(cost.arithmetic):
        return "-"
    return f"{duration(cost.seconds_low)} to {duration(cost.seconds_high)}"


def in_units(value: float, unit: str) -> str:
    """Format a value with three digits and the unit's prefix.

    >>> in_units(1_234_567, "B"), in_units(12.3e12, "FLOP"), in_units(512, "B")
    ('1.23 MB', '12.3 TFLOP', '512 B')
    """
    if math.isnan(value):
        return "-"
    power = min(6, max(0, math.floor(math.log10(value) / 3))) if value >= 1 else 0
    short = value / 1000**power
    digits = 0 if power == 0 or short >= 100 else 1 if short >= 10 else 2
    return f"{short:.{digits}f} {('', 'k', 'M', 'G', 'T', 'P', 'E')[power]}{unit}"
