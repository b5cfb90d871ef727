"""The importers, in the order in which they are asked; and the way from paths to one table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import cast

import pandas as pd

from oodles.errors import ConfigError, DataError, nearest, some
from oodles.imports.contract import Imported, Importer, Options
from oodles.imports.found import look_again
from oodles.stats.longtable import SOURCE

BUILT_IN = (
    *("wandb_api", "trainer", "tensorboard", "lm_eval", "lighteval", "helm", "inspect_logs"),
    *("wandb_files", "mlflow", "trackio", "tables"),
)
GROUP = "oodles.importers"  # of entry points: name -> an object with NAME, recognise and read
PRESETS: Mapping[str, Mapping[str, str]] = {
    "paper": {"names": "{model}_{train_set}_{seed}_{shots}", "keys": "eval/{test_set}_{metric}"},
}


@cache
def importers() -> Mapping[str, Importer]:
    """Every importer by its name: other packages' first, which know their formats best."""
    found: dict[str, Importer] = {}
    for point in entry_points(group=GROUP):
        found[point.name] = cast(Importer, point.load())
    for module in BUILT_IN:
        own = cast(Importer, import_module(f"oodles.imports.{module}"))
        found.setdefault(own.NAME, own)
    return found


def with_preset(options: Options, preset: str | None) -> Options:
    """The options that a preset stands for; what a user says himself comes first."""
    if preset is None:
        return options
    if preset not in PRESETS:
        raise ConfigError(f"--preset {preset}: no such preset; {nearest(preset, PRESETS)}")
    said = PRESETS[preset]
    return replace(options, names=options.names or said["names"], keys=options.keys or said["keys"])


def recognised(path: Path) -> list[str]:
    """The formats that a path may be, the likeliest first."""
    return [name for name, one in importers().items() if one.recognise(path)]


def read_paths(paths: Sequence[Path], options: Options) -> Imported:
    """One table of all runs in these files and folders."""
    look_again()
    grouped: dict[str, list[Path]] = {}
    notes: list[str] = []
    for path in paths:
        name, said = _format_of(path, options.format)
        grouped.setdefault(name, []).append(path)
        notes += said
    parts = [importers()[name].read(own, options) for name, own in grouped.items()]
    joined = _joined(parts, paths)
    return replace(joined, notes=(*dict.fromkeys([*notes, *joined.notes]),))


def _format_of(path: Path, asked: str | None) -> tuple[str, list[str]]:
    if asked is not None:
        if asked not in importers():
            raise ConfigError(f"--format {asked}: no such format; {nearest(asked, importers())}")
        return asked, []
    names = recognised(path)
    if not names and not path.exists():
        raise DataError(f"{path}: no such file or folder; expected scores, see oodles import --help")
    if not names:
        what = "folder" if path.is_dir() else f"'{path.suffix}' file"
        raise ConfigError(
            f"{path}: cannot read this {what}; expected a study (study.json), results (results.json), or scores as"
            f" {', '.join(importers())}; name it with --format"
        )
    if len(names) > 1 and path.is_dir() and names[1] != "table":
        return names[0], [f"{path}: read as {names[0]}; {some(names[1:])} is there as well: --format {names[1]}"]
    return names[0], []


def _joined(parts: Sequence[Imported], paths: Sequence[Path]) -> Imported:
    if len(parts) == 1:
        return parts[0]
    owners: dict[str, str] = {}
    for part in parts:
        for run in map(str, part.table["run"].unique()):
            if owners.setdefault(run, part.format) != part.format:
                raise DataError(
                    f"run '{run}' is in {owners[run]} and in {part.format}; import them apart, or rename one"
                )
    table = pd.concat([part.table for part in parts], ignore_index=True)
    table.attrs[SOURCE] = f"{len(paths)} paths"
    records = [part.records for part in parts if part.records is not None]
    return Imported(
        format=", ".join(part.format for part in parts),
        table=table,
        records=pd.concat(records, ignore_index=True) if records else None,
        notes=tuple(note for part in parts for note in part.notes),
        aliases={alias: name for part in parts for alias, name in part.aliases.items()},
    )
