"""Results of lm-evaluation-harness, old (`acc`) and new (`acc,none`): one file or thousands; samples as records.

The step is no field of theirs: it comes from the model's path or revision (`checkpoint-250`, `step1000`), what is left
of the name is the run. Subtasks of a group are slices of it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from oodles.errors import DataError, first_line, shown
from oodles.imports.contract import Imported, Options
from oodles.imports.found import files_below
from oodles.imports.identity import NAMELESS, NO_STEP, place_of
from oodles.imports.logs import Score, as_number, from_scores, tell_unread
from oodles.shapes import ANY, load_json, misfit, parse_json

NAME = "lm-eval"
SHAPE: Mapping[str, Any] = {"results": {...: ANY}}
SAMPLES = re.compile(r"samples_(?P<task>.+)_(?P<date>\d{4}-\d\d-\d\dT[\d.:-]+)")
DATE = re.compile(r"results_(?P<date>\d{4}-\d\d-\d\dT[\d.:-]+)")
NOT_METRICS = ("name", "alias", "sample_len", "sample_count", " ")
MOST_SAMPLES = 500_000_000  # bytes of samples that are read
RIGHT = ("acc", "exact_match")  # metrics of one example that are 0 or 1


def recognise(path: Path) -> bool:
    """A JSON file with `results` and `config` or `versions`, or a folder with one; the beginning is looked at."""
    if path.is_dir():
        found = [file for file in files_below(path) if file.suffix == ".json"]
        return any(DATE.match(file.stem) and _is_result(file) for file in found[:50]) or any(map(_is_result, found[:3]))
    return path.suffix == ".json" and _is_result(path)


def _is_result(file: Path) -> bool:
    try:
        with file.open("rb") as handle:
            head = handle.read(200)
        if b'"results"' not in head:
            return False
        value = load_json(file)
    except (OSError, ValueError):
        return False
    return isinstance(value, dict) and "config_general" not in value and ("versions" in value or "config" in value)


def read(paths: Sequence[Path], options: Options) -> Imported:
    """Every result in these files and folders."""
    where = str(paths[0]) if len(paths) == 1 else f"{len(paths)} paths"
    notes: list[str] = []
    scores: list[Score] = []
    configs: dict[str, dict[str, Any]] = {}
    samples: list[tuple[Path, str, int]] = []
    placed: dict[str, set[bool]] = {}  # whether the files of a run name a step
    for file in _files(paths):
        value = _read_result(file, alone=file in paths, notes=notes)
        if value is None:
            continue
        config = _config(value)
        before = len(notes)
        run, step = _place(config, file, notes)
        placed.setdefault(run, set()).add(NO_STEP not in notes[before:])
        if str(config.get("model_name", "")).startswith(run):
            config["model_name"] = run  # without the step of a checkpoint's folder
        elif run.endswith(NAMELESS):
            config.pop("model_name")
        configs.setdefault(run, {}).update(config)
        scores += _scores(value, run, step, file, notes)
        samples += [(one, run, step) for one in _samples_of(file)]
    both = next((run for run, ways in placed.items() if len(ways) > 1), None)
    if both is not None:
        raise DataError(
            f"{where}: of run '{shown(both)}' some files name a step and some do not, such as those of the final model;"
            " move these away, or evaluate them with a revision that names the step"
        )
    imported = from_scores(NAME, scores, configs, options, where, notes)
    records, told = _records(samples, imported.table)
    return Imported(
        format=NAME, table=imported.table, records=records, notes=tuple(dict.fromkeys((*imported.notes, *told)))
    )


def _files(paths: Sequence[Path]) -> list[Path]:
    found: list[Path] = []
    for path in paths:
        if not path.is_dir():
            found.append(path)
            continue
        below = [file for file in files_below(path) if file.suffix == ".json"]
        dated = [file for file in below if DATE.match(file.stem)]
        found += dated or below
    return found


def _read_result(file: Path, *, alone: bool, notes: list[str]) -> dict[str, Any] | None:
    try:
        value = load_json(file)
        found = misfit(value, SHAPE)
    except OSError as error:
        found = error.strerror or "cannot be read"
    except ValueError as error:
        found = f"not JSON ({first_line(error)}); is it cut off?"
    if not found:
        return dict(value)
    if not alone and "results" in found:  # another JSON file in the folder
        notes.append(f"{file}: left out, no results in it")
        return None
    raise DataError(f"{file}: {found}; expected results of lm-evaluation-harness")


def _config(value: Mapping[str, Any]) -> dict[str, Any]:
    """The model's arguments, flat; `model_args` is text or an object."""
    config = value.get("config")
    config = dict(config) if isinstance(config, dict) else {}
    arguments = config.get("model_args")
    if isinstance(arguments, str):
        pairs = (part.partition("=") for part in arguments.split(","))
        arguments = {name.strip(): text.strip() for name, equals, text in pairs if equals}
    arguments = arguments if isinstance(arguments, dict) else {}
    kept = {k: v for k, v in {**config, **arguments}.items() if isinstance(v, (str, int, float))}
    kept.pop("model", None)  # `hf`, the kind of model
    base, adapter = kept.get("pretrained"), kept.get("peft")
    name = adapter or base or value.get("model_name")
    for key in ("random_seed", "numpy_seed", "torch_seed", "fewshot_seed", "seed"):
        kept.pop(key, None)  # of the evaluation, not of the training
    if isinstance(adapter, str) and isinstance(base, str):
        kept["model"] = base  # adapters of one model are runs of it
    return {**kept, "model_name": name} if isinstance(name, str) and name else kept


def _place(config: Mapping[str, Any], file: Path, notes: list[str]) -> tuple[str, int]:
    """The run and the step of the model that was evaluated."""
    name = str(config.get("model_name") or "")
    if not name:
        name = file.parent.name if DATE.match(file.stem) else file.stem
        notes.append(f"{file.name}: no model is named in it: the run is named after the file or its folder")
    base = str(config.get("model") or "")  # of an adapter
    return place_of(name, config.get("revision") or config.get("model_revision"), notes, base)


def _scores(value: Mapping[str, Any], run: str, step: int, file: Path, notes: list[str]) -> Iterator[Score]:
    sizes, parents = value.get("n-samples"), _parents(value)
    for task, metrics in value["results"].items():
        size = sizes.get(task) if isinstance(sizes, dict) else None
        n = as_number(size.get("effective") if isinstance(size, dict) else metrics.get("sample_len"))
        for key, content in metrics.items():
            metric, _, kind = key.partition(",")
            number = as_number(content)
            if metric in NOT_METRICS or metric.endswith("_stderr"):
                continue
            if number is None:
                tell_unread(notes, file, f"{task} {key}", content)
                continue
            error = as_number(metrics.get(f"{metric}_stderr,{kind}" if kind else f"{metric}_stderr"))
            yield Score(
                run=run,
                step=step,
                test_set=task,
                metric=metric if kind in ("", "none") else f"{metric},{kind}",
                value=number,
                n=n if n is not None and n >= 1 else math.nan,
                stderr=error if error is not None else math.nan,
                slice_of=parents.get(task),
                origin=str(file),
            )


def _parents(value: Mapping[str, Any]) -> dict[str, str]:
    """Of each task the outermost group that has a score of its own: they share their examples."""
    groups = value.get("group_subtasks")
    groups = groups if isinstance(groups, dict) else {}
    inner = {task: group for group, tasks in groups.items() if isinstance(tasks, list) for task in map(str, tasks)}
    found = {}
    for task in inner:
        chain, seen = [inner[task]], {task}
        while chain[-1] in inner and chain[-1] not in seen:
            seen.add(chain[-1])
            chain.append(inner[chain[-1]])
        scored = [group for group in chain if group in value["results"] and group != task]
        if scored:
            found[task] = scored[-1]
    return found


# samples


def _samples_of(file: Path) -> list[Path]:
    """The files of samples that were written with a file of results."""
    date = DATE.match(file.stem)
    if not date:
        return []
    return sorted(one for one in file.parent.glob("samples_*.jsonl") if one.stem.endswith(f"_{date['date']}"))


def _records(samples: Sequence[tuple[Path, str, int]], table: pd.DataFrame) -> tuple[pd.DataFrame | None, list[str]]:
    size = sum(file.stat().st_size for file, _, _ in samples)
    if size > MOST_SAMPLES:
        return None, [f"samples are not read: {size / 1e9:.1f} GB; intervals do without them"]
    parts, notes = [], []
    sizes = table["n"] if "n" in table.columns else [math.nan] * len(table)
    known = dict(zip(zip(table["run"], table["step"], table["test_set"], strict=True), sizes, strict=True))
    for file, run, step in samples:
        match = SAMPLES.fullmatch(file.stem)
        if match is None or (run, step, match["task"]) not in known:
            continue
        try:
            part = _read_samples(file)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            notes.append(f"{file.name}: its samples are left out ({first_line(error)})")
            continue
        n = known[run, step, match["task"]]
        if part and n > 0 and len(part) != n:
            notes.append(f"{file.name}: its samples are left out ({len(part)} of {n:.0f}: is it cut off?)")
        elif part:
            frame = pd.DataFrame(part, columns=["example", "correct"])
            parts.append(frame.assign(run=run, step=step, test_set=match["task"]))
    return (pd.concat(parts, ignore_index=True) if parts else None), notes


def _read_samples(file: Path) -> list[tuple[str, int]]:
    """Who was right, example by example; nothing where that is no question of right or wrong, or is asked twice."""
    found: dict[str, int] = {}
    with file.open("rb") as lines:
        for line in lines:
            row = parse_json(line)
            metric = next((name for name in RIGHT if name in row), None)
            if metric is None or row[metric] not in (0, 1):
                return []
            example = str(row["doc_id"])
            if example in found:  # several filters, or repeats
                return []
            found[example] = int(row[metric])
    return list(found.items())
