"""trainer_state.json of the transformers Trainer, and of what is built on it (TRL, LLaMA-Factory): runs and folders.

A checkpoint holds the whole history until then, so that of a run only the newest file is read. `training_args.bin` is a
pickle and never opened; the model's and the adapter's config.json, and LLaMA-Factory's YAML, say what the run was.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from oodles.errors import DataError, first_line
from oodles.imports.contract import Imported, Options
from oodles.imports.found import files_below, run_names
from oodles.imports.identity import DIGITS
from oodles.imports.logs import Log, Points, as_step, from_logs
from oodles.shapes import ANY, load_json, misfit

NAME = "trainer"
FILE = "trainer_state.json"
CHECKPOINT = re.compile(r"checkpoint-(\d+)")
YAML = ("training_args.yaml", "train_config.yaml")  # what LLaMA-Factory keeps beside it
LINE = re.compile(r"(\w+):[ \t]+(?:'([^']*)'|\"([^\"]*)\"|([^\s#][^#\n]*?))[ \t]*(?:#.*)?")
SHAPE: Mapping[str, Any] = {"global_step?": (int, float)}


def recognise(path: Path) -> bool:
    """The file itself, or a folder with one."""
    if path.is_dir():
        return any(file.name == FILE for file in files_below(path))
    return path.name == FILE


def read(paths: Sequence[Path], options: Options) -> Imported:
    """Every run in these files and folders."""
    files = [f for p in paths for f in ((f for f in files_below(p) if f.name == FILE) if p.is_dir() else [p])]
    runs: dict[Path, list[Path]] = {}
    for file in files:
        home = file.parent
        runs.setdefault(home.parent if CHECKPOINT.fullmatch(home.name) else home, []).append(file)
    where = str(paths[0]) if len(paths) == 1 else f"{len(paths)} paths"
    if not runs:
        raise DataError(f"{where}: no {FILE} in it")
    names = run_names(runs, [p for p in paths if p.is_dir()])
    notes: list[str] = []
    logs = [_read_run(names[home], home, own, notes) for home, own in runs.items()]
    return from_logs(NAME, logs, options, where, notes)


def _read_run(name: str, home: Path, files: Sequence[Path], notes: list[str]) -> Log:
    """The newest history of a run: its own file, else that of its last checkpoint."""
    newest = max(files, key=_checkpoint_step) if len(files) > 1 else files[0]
    own = [file for file in files if file.parent == home]
    state = _read_state(newest)
    if own and newest not in own:
        final = _read_state(own[0])
        if _steps_done(final) < _steps_done(state):
            notes.append(f"run {name}: {newest.parent.name} is later than {FILE} beside it: the checkpoint is read")
        else:
            newest, state = own[0], final
    history = state["log_history"]
    points = Points()
    for number, row in enumerate(history, start=1):
        step = as_step(row["step"], f"{newest} row {number}")
        for key, value in row.items():
            if key not in ("step", "epoch") and not key.endswith("_per_second"):
                points.add(step, key, value)
    return points.log(name, _config(home, newest.parent))


def _checkpoint_step(file: Path) -> int:
    found = CHECKPOINT.fullmatch(file.parent.name)
    return int(found[1]) if found else -1


def _steps_done(state: Mapping[str, Any]) -> float:
    return float(max([state.get("global_step", 0), *(row["step"] for row in state["log_history"])]))


def _read_state(file: Path) -> dict[str, Any]:
    try:
        state = load_json(file)
    except OSError as error:
        raise DataError(f"{file}: cannot be read ({error.strerror})") from None
    except ValueError as error:
        raise DataError(f"{file}: not JSON ({first_line(error)}); is it cut off?") from None
    found = misfit(state, SHAPE) or _misfit_rows(state.get("log_history"))
    if found:
        raise DataError(f"{file}: {found}; expected what the Trainer writes")
    return dict(state)


def _misfit_rows(history: Any) -> str:
    """As `misfit` would say it; a sweep has millions of rows, and this is ten times as fast."""
    if not isinstance(history, list):
        return misfit({} if history is None else {"log_history": history}, {"log_history": [ANY]})
    for number, row in enumerate(history):
        if not isinstance(row, dict) or not isinstance(row.get("step"), (int, float)):
            return misfit(row, {"step": (int, float)}, f"log_history[{number}]") or "a step is no number"
    return ""


def _config(home: Path, newest: Path) -> dict[str, Any]:
    """What files beside the history say of the run."""
    found: dict[str, Any] = {}
    for folder in dict.fromkeys((home, newest)):
        for name in ("config.json", "adapter_config.json"):
            found |= _flat_json(folder / name)
        for name in YAML:
            found |= _flat_yaml(folder / name)
    return found


def _flat_json(file: Path) -> dict[str, Any]:
    try:
        value = load_json(file)
    except (OSError, ValueError):
        return {}  # not needed, only useful
    return {k: v for k, v in value.items() if isinstance(v, (str, int, float))} if isinstance(value, dict) else {}


def _flat_yaml(file: Path) -> dict[str, Any]:
    """Lines such as `seed: 42`; nothing nested."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return {}
    return dict(_pairs(lines))


def _pairs(lines: Iterable[str]) -> Iterable[tuple[str, Any]]:
    for line in lines:
        if found := LINE.fullmatch(line):
            text = next(part for part in found.groups()[1:] if part is not None)
            yield found[1], int(text) if found[4] and re.fullmatch(DIGITS, text) else text
