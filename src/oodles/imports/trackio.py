"""trackio: a project's database, `<project>.db`; its layout is declared beta by trackio."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from oodles.errors import DataError, first_line
from oodles.imports.contract import Imported, Options
from oodles.imports.databases import SUFFIXES, mentions, opened
from oodles.imports.found import files_below
from oodles.imports.wandb_files import History, from_histories
from oodles.shapes import parse_json

NAME = "trackio"


def recognise(path: Path) -> bool:
    """A database of trackio, or a folder with one."""
    if path.is_dir():
        return any(_is_database(file) for file in files_below(path))
    return _is_database(path)


def _is_database(file: Path) -> bool:
    return mentions(file, b"run_name", b"CREATE TABLE configs", b"metrics TEXT")


def read(paths: Sequence[Path], options: Options) -> Imported:
    """Every run of these projects."""
    where = str(paths[0]) if len(paths) == 1 else f"{len(paths)} paths"
    below = [file for path in paths if path.is_dir() for file in files_below(path) if file.suffix in SUFFIXES]
    files = [*(path for path in paths if not path.is_dir()), *filter(_is_database, below)]
    runs = [run for file in files for run in _read_project(file)]
    if not runs:
        raise DataError(f"{where}: no run of trackio in it")
    return from_histories(NAME, runs, options, where)


def _read_project(file: Path) -> list[History]:
    runs: dict[str, History] = {}
    with opened(file) as database:
        identity = "run_id" if _has(database, "metrics", "run_id") else "run_name"
        rows = database.execute(f"SELECT {identity}, run_name, step, metrics FROM metrics ORDER BY id")
        for key, name, step, text in rows:
            run = runs.setdefault(str(key), History(id=str(key), name=str(name)))
            run.rows.append({"_step": step, **_object(text, f"{file}: run '{name}'")})
        for key, text in database.execute(f"SELECT {identity}, config FROM configs"):
            if str(key) in runs:
                config = _object(text, f"{file}: config of '{key}'")
                runs[str(key)].config = {k: v for k, v in config.items() if not k.startswith("_")}
    return list(runs.values())


def _has(database: Any, table: str, column: str) -> bool:
    return any(row[1] == column for row in database.execute(f"PRAGMA table_info({table})"))


def _object(text: object, where: str) -> dict[str, Any]:
    try:
        value = parse_json(text if isinstance(text, bytes) else str(text).encode())
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: not JSON ({first_line(error)})") from None
    if not isinstance(value, dict):
        raise DataError(f"{where}: expected an object")
    return value
