"""Runs of a wandb project, from wandb's service: `wandb:entity/project`. The answer is cached; --refresh asks again.

The whole history is asked for (`scan_history`), not the 500 sampled points of `history`. Tested against recorded
answers only.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from oodles.disk import cache_dir, unsealed, write_json
from oodles.errors import ConfigError, DataError, MissingExtraError, first_line
from oodles.imports.contract import Imported, Options
from oodles.imports.wandb_files import History, from_histories, plain
from oodles.names import is_part
from oodles.shapes import ANY, load_json, misfit

NAME = "wandb-api"
PREFIX = "wandb:"
SHAPE = {"runs": [{"id": str, "name": str, "state?": (str, None), "config": ANY, "rows": [ANY]}]}


def recognise(path: Path) -> bool:
    """Not a file: an address such as wandb:entity/project."""
    return str(path).startswith(PREFIX) and not path.exists()


def read(paths: Sequence[Path], options: Options) -> Imported:
    """Every run of these projects."""
    runs, notes = list[History](), list[str]()
    for path in paths:
        for run in _project(str(path), options.refresh, notes):
            kept = {name: plain(value) for name, value in run["config"].items() if not name.startswith("_")}
            runs.append(History(id=run["id"], name=run["name"], config=kept, rows=run["rows"]))
            if run.get("state") == "running":
                notes.append(f"run {run['name']} was still running when it was asked for: --refresh asks again")
    return from_histories(NAME, runs, options, str(paths[0]), notes)


def _project(address: str, refresh: bool, notes: list[str]) -> list[dict[str, Any]]:
    entity, _, project = address.removeprefix(PREFIX).partition("/")
    if not is_part(entity) or not is_part(project):
        raise ConfigError(f"{address}: expected {PREFIX}entity/project")
    cache = cache_dir() / "wandb" / entity / f"{project}.json"
    if not refresh and cache.is_file():
        runs = _cached(cache)
        if runs is not None:
            notes.append(f"{address}: from the cache ({cache}); --refresh asks again")
            return runs
    runs = _ask(f"{entity}/{project}", address)
    write_json(cache, {"runs": runs})
    return runs


def _cached(cache: Path) -> list[dict[str, Any]] | None:
    try:
        held = unsealed(load_json(cache), strictly=True)
    except (OSError, ValueError):
        return None
    return None if misfit(held, SHAPE) else list(held["runs"])


def _ask(path: str, address: str) -> list[dict[str, Any]]:
    try:
        import wandb
    except ModuleNotFoundError:
        raise MissingExtraError(address, "wandb") from None
    try:
        return [
            {
                "id": str(run.id),
                "name": str(run.name or run.id),
                "state": run.state,
                "config": dict(run.config),
                "rows": [dict(row) for row in run.scan_history()],
            }
            for run in wandb.Api().runs(path)
        ]
    except Exception as error:  # the client raises what it likes: no login, no network, no such project
        said = first_line(error)
        raise DataError(f"{address}: wandb says: {said}; log in with `wandb login`, check the name") from None
