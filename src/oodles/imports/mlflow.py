"""MLflow: a tracking database (SQLite) or a folder `mlruns`; deleted runs are left out. The library is not needed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oodles.errors import DataError, first_line, shown
from oodles.imports.contract import Imported, Options
from oodles.imports.databases import SUFFIXES, mentions, opened
from oodles.imports.found import files_below
from oodles.imports.identity import told_apart
from oodles.imports.logs import Log, as_step, from_logs

NAME = "mlflow"
META = "meta.yaml"
RUNS = "SELECT run_uuid, name FROM runs WHERE lifecycle_stage = 'active' ORDER BY start_time, run_uuid"
POINTS = "SELECT run_uuid, key, value, step, is_nan FROM metrics ORDER BY timestamp"
PARAMS = "SELECT run_uuid, key, value FROM params"


@dataclass(slots=True)
class _Run:
    id: str
    name: str
    config: dict[str, Any] = field(default_factory=dict)
    steps: list[int] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    values: list[float] = field(default_factory=list)


def recognise(path: Path) -> bool:
    """A database of MLflow, or a folder with one or with runs in MLflow's layout."""
    if path.is_dir():
        return bool(_run_folders(path)) or any(_is_database(file) for file in files_below(path))
    return _is_database(path)


def _is_database(file: Path) -> bool:
    return mentions(file, b"run_uuid", b"lifecycle_stage", b"metrics")


def _run_folders(path: Path) -> list[Path]:
    return [f.parent for f in files_below(path) if f.name == META and (f.parent / "metrics").is_dir()]


def read(paths: Sequence[Path], options: Options) -> Imported:
    """Every active run in these databases and folders."""
    where = str(paths[0]) if len(paths) == 1 else f"{len(paths)} paths"
    runs: list[_Run] = []
    for path in paths:
        folders = _run_folders(path) if path.is_dir() else []
        files = [f for f in files_below(path) if f.suffix in SUFFIXES and _is_database(f)] if path.is_dir() else [path]
        runs += [run for folder in folders if (run := _read_folder(folder)) is not None]
        for file in files if not folders else []:
            runs += _read_database(file)
    if not runs:
        raise DataError(f"{where}: no active run of MLflow in it")
    notes: list[str] = []
    names = told_apart([(run.name, run.id) for run in runs], notes)
    logs = [
        Log(run=name, config=run.config, steps=run.steps, keys=run.keys, values=run.values)
        for name, run in zip(names, runs, strict=True)
    ]
    return from_logs(NAME, logs, options, where, notes)


def _read_database(file: Path) -> list[_Run]:
    with opened(file) as database:
        runs = {str(i): _Run(str(i), str(name or i)) for i, name in database.execute(RUNS)}
        for identity, key, value in database.execute(PARAMS):
            if identity in runs:
                runs[identity].config[str(key)] = value
        for identity, key, value, step, is_nan in database.execute(POINTS):
            run = runs.get(identity)
            if run is not None:
                if not isinstance(value, (int, float)):
                    found = f"{shown(key)} is {shown(value)}"
                    raise DataError(f"{file}: run '{shown(run.name)}': {found}; expected a number")
                run.steps.append(as_step(step, f"{file}: run '{run.name}'"))
                run.keys.append(str(key))
                run.values.append(math.nan if is_nan else float(value))
    return list(runs.values())


def _read_folder(folder: Path) -> _Run | None:
    meta = dict(line.partition(": ")[::2] for line in _lines(folder / META, ended=True))
    if meta.get("lifecycle_stage", "active") != "active":
        return None
    named = _lines(folder / "tags" / "mlflow.runName") if (folder / "tags" / "mlflow.runName").is_file() else []
    run = _Run(folder.name, (named or [meta.get("run_name", "").strip("'\"")])[0] or folder.name)
    for file in files_below(folder):
        kind, *parts = file.relative_to(folder).parts
        if kind == "params":
            run.config["/".join(parts)] = "\n".join(_lines(file))
        elif kind == "metrics":
            _add_points(run, "/".join(parts), file)
    return run


def _add_points(run: _Run, key: str, file: Path) -> None:
    """Lines of time, value and step, ordered by time; files of old versions have no step."""
    rows = []
    for number, line in enumerate(_lines(file, ended=True), start=1):
        parts = line.split()
        try:
            rows.append((int(parts[0]), float(parts[1]), int(parts[2]) if len(parts) > 2 else 0))
        except (ValueError, IndexError):
            raise DataError(f"{file} line {number}: '{shown(line, 40)}'; expected time, value and step") from None
    for _, value, step in sorted(rows, key=lambda row: row[0]):
        run.steps.append(as_step(step, str(file)))
        run.keys.append(key)
        run.values.append(value)


def _lines(file: Path, *, ended: bool = False) -> list[str]:
    """The lines of a file; `ended`: the last one too must end, or a part of a number would be taken for it."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise DataError(f"{file}: cannot be read ({first_line(error)})") from None
    if ended and not text.endswith("\n"):
        raise DataError(f"{file}: its last line is cut off; copy the file again, or remove the line")
    return [line for line in text.splitlines() if line.strip()]
