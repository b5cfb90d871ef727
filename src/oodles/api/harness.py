"""Scores in the form of lm-evaluation-harness: its table, and its results as JSON, which other tools read."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oodles.disk import write_text

if TYPE_CHECKING:
    import pandas as pd

HEADERS = ("Tasks", "Version", "Filter", "n-shot", "Metric", "", "Value", "", "Stderr")
FILTER = "none"  # the harness's name for answers as they are


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """What the harness tells of a task beside its scores."""

    size: int  # examples of the whole set
    version: str | None = None
    shots: int = 0


def results_of(
    scores: pd.DataFrame,
    sets: Mapping[str, Described],
    *,
    model: str,
    step: int | None,
    shortened: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """Return the scores of one model at one step as the harness writes them; `step` only if there are several.

    `shortened` is no field of the harness: how many prompts of each set were shortened to fit.
    """
    tasks: dict[str, dict[str, Any]] = {}
    for name, own in scores.groupby("test_set", sort=False):
        values = dict(zip(own["metric"], own["value"], strict=True))
        shown = {m: v for m, v in values.items() if m.startswith("acc") and m != "accuracy"} or {
            "acc": values["accuracy"]
        }
        n = int(own["n"].iloc[0])
        tasks[str(name)] = {"alias": str(name), "sample_len": n}
        for metric, value in shown.items():
            error = math.sqrt(value * (1 - value) / (n - 1)) if n > 1 else "N/A"
            tasks[str(name)] |= {f"{metric},{FILTER}": value, f"{metric}_stderr,{FILTER}": error}
    told = {name: _described(name, tasks[name]["sample_len"], sets) for name in tasks}
    revision = "" if step is None else f",revision=step{step}"
    metrics = {
        name: [k.partition(",")[0] for k in own if "," in k and "_stderr" not in k] for name, own in tasks.items()
    }
    return {
        "results": tasks,
        "group_subtasks": {name: [] for name in tasks},
        "configs": {name: {"task": name, "num_fewshot": one.shots} for name, one in told.items()},
        "versions": {name: _number(one.version) for name, one in told.items()},
        "n-shot": {name: one.shots for name, one in told.items()},
        "higher_is_better": {name: dict.fromkeys(own, True) for name, own in metrics.items()},
        "n-samples": {
            name: {"original": told[name].size, "effective": own["sample_len"]} for name, own in tasks.items()
        },
        "shortened": dict(shortened or {}),
        "config": {"model": "hf", "model_args": f"pretrained={model}{revision}"},
        "model_source": "oodles",
        "model_name": model,
        "model_name_sanitized": model.replace("/", "__"),
    }


def _described(name: str, examples: int, sets: Mapping[str, Described]) -> Described:
    """What is known of a set; a slice has the version of its set."""
    parent = sets.get(name.partition("/")[0], Described(size=examples))
    return sets.get(name, replace(parent, size=examples))


def _number(version: str | None) -> float | str | None:
    try:
        return None if version is None else float(version)
    except ValueError:
        return version


def write_results(results: Mapping[str, Any], folder: Path, now: datetime) -> Path:
    """Write results where the harness would: `<folder>/<model>/results_<date>.json`."""
    path = folder / str(results["model_name_sanitized"]) / f"results_{now.isoformat().replace(':', '-')}.json"
    dated = {**results, "date": now.timestamp()}
    write_text(path, json.dumps(dated, indent=2, ensure_ascii=False) + "\n")
    return path


def results_table(results: Mapping[str, Any]) -> str:
    """The table that the harness prints."""
    rows = list(_rows(results))
    numeric = [_is_numeric([row[k] for row in rows]) for k in range(len(HEADERS))]
    widths = [max(len(cell) for cell in (header, *(row[k] for row in rows), "---")) for k, header in enumerate(HEADERS)]
    rule = ["-" * (w - 1) + ":" if right else "-" * w for w, right in zip(widths, numeric, strict=True)]
    titles = [_centred(header, w) for header, w in zip(HEADERS, widths, strict=True)]
    lines = [_line(titles), _line(rule)]
    for row in rows:
        cells = zip(row, widths, numeric, strict=True)
        lines.append(_line([cell.rjust(w) if right else cell.ljust(w) for cell, w, right in cells]))
    return "\n".join(lines) + "\n"


def shortened_note(results: Mapping[str, Any]) -> str:
    """What the harness only warns of: how many prompts of which sets did not fit; empty if none."""
    sizes = results["n-samples"]
    cut = [
        f"{name} {count}"
        + (f" of {sizes[name]['effective']}" if name in sizes else "")  # or only a slice of it is shown
        for name, count in results["shortened"].items()
        if count
    ]
    return f"prompts shortened to fit: {', '.join(cut)}" if cut else ""


def _rows(results: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    for name, own in results["results"].items():
        version = results["versions"][name]
        first = [name, "" if version is None else str(version)]
        for key in sorted(k for k in own if "," in k and "_stderr" not in k):
            metric = key.partition(",")[0]
            error = own[f"{metric}_stderr,{FILTER}"]
            stderr = "N/A" if isinstance(error, str) else f"{error:.4f}"
            yield (*first, FILTER, str(results["n-shot"][name]), metric, "↑", f"{own[key]:.4f}", "±", stderr)
            first = ["", ""]


def _is_numeric(cells: Sequence[str]) -> bool:
    return any(cells) and all(not cell or cell.replace(".", "", 1).isdigit() for cell in cells)


def _centred(text: str, width: int) -> str:
    before = (width - len(text)) // 2
    return f"{' ' * before}{text}".ljust(width)


def _line(cells: Sequence[str]) -> str:
    return f"|{'|'.join(cells)}|"
