"""Results of lighteval: `results_*.json` with `config_general`. The step comes from the model's name or revision."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from oodles.errors import DataError, first_line
from oodles.imports.contract import Imported, Options
from oodles.imports.found import files_below
from oodles.imports.identity import place_of
from oodles.imports.logs import Score, as_number, from_scores, tell_unread
from oodles.shapes import ANY, load_json, misfit

NAME = "lighteval"
SHAPE: Mapping[str, Any] = {"results": {...: ANY}, "config_general": ANY}
SHOTS = re.compile(r"\|\d+(\|\d+)?$")  # arc:challenge|25


def recognise(path: Path) -> bool:
    """A JSON file of results with `config_general`, or a folder with one."""
    if path.is_dir():
        return any(_is_result(file) for file in files_below(path) if file.name.startswith("results_"))
    return _is_result(path)


def _is_result(file: Path) -> bool:
    try:
        if file.suffix != ".json" or b'"config_general"' not in file.read_bytes():
            return False
        return not misfit(load_json(file), SHAPE)
    except (OSError, ValueError):
        return False


def _is_damaged(file: Path) -> bool:
    """Whether a file is named like results, and cut off or of another shape: its scores would be missed silently."""
    if not (file.name.startswith("results_") and file.suffix == ".json"):
        return False
    try:
        value = load_json(file)
    except (OSError, ValueError):
        return True
    return isinstance(value, dict) and "config_general" in value


def read(paths: Sequence[Path], options: Options) -> Imported:
    """Every result in these files and folders."""
    where = str(paths[0]) if len(paths) == 1 else f"{len(paths)} paths"
    notes: list[str] = []
    scores: list[Score] = []
    configs: dict[str, dict[str, Any]] = {}
    for file in [f for p in paths for f in (files_below(p) if p.is_dir() else [p])]:
        if file not in paths and not _is_result(file) and not _is_damaged(file):
            continue
        value = _read_result(file)
        general = value["config_general"]
        model = general.get("model_config")
        config = {**general, **(model if isinstance(model, dict) else {})}
        name = str(config.get("model_name") or file.parent.name)
        run, step = place_of(name, config.get("revision"), notes)
        configs[run] = {"model_name": name}
        scores += _scores(value["results"], run, step, file, notes)
    return from_scores(NAME, scores, configs, options, where, tuple(dict.fromkeys(notes)))


def _read_result(file: Path) -> dict[str, Any]:
    try:
        value = load_json(file)
        found = misfit(value, SHAPE)
    except OSError as error:
        found = error.strerror or "cannot be read"
    except ValueError as error:
        found = f"not JSON ({first_line(error)}); is it cut off?"
    if found:
        raise DataError(f"{file}: {found}; expected results of lighteval")
    return dict(value)


def _scores(
    results: Mapping[str, Mapping[str, Any]], run: str, step: int, file: Path, notes: list[str]
) -> Iterator[Score]:
    names = {task: SHOTS.sub("", task) for task in results if task != "all"}
    twins = {name for name in names.values() if list(names.values()).count(name) > 1}  # several numbers of shots
    for task, name in names.items():
        for metric, content in results[task].items():
            value, error = as_number(content), as_number(results[task].get(f"{metric}_stderr"))
            if value is None:
                tell_unread(notes, file, f"{task} {metric}", content)
            if value is not None and not metric.endswith("_stderr"):
                yield Score(
                    run=run,
                    step=step,
                    test_set=task if name in twins else name,
                    metric=metric,
                    value=value,
                    stderr=math.nan if error is None else error,
                    origin=str(file),
                )
