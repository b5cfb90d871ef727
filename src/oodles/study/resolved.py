"""A study, or one run of it, as a TOML file of its own: every key written out, every path absolute.

    oodles run paper --only smol_snli_0_128 --write-config smol.toml
    oodles run smol.toml                              the same run, under the same name and id

A job of SLURM runs such a copy, so that a study may be edited while its jobs wait.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from oodles.contracts import ModelSpec, Slurm, SlurmJob, Study
from oodles.disk import write_text
from oodles.errors import ConfigError
from oodles.model.embedded import EMBEDDED
from oodles.model.load import resolve_model
from oodles.outputs import begins_with, check_target
from oodles.study.grid import Grid
from oodles.study.load import STUDY_SCHEMA

MARK = "# written by oodles: "  # at the top of a file that may be written again


def study_text(grid: Grid) -> str:
    """A whole study, as it is now."""
    study = grid.study
    models = [resolve_model(name, study.folder, study.sources.get(name)) for name in study.models]
    return _text(grid, study, models, f"the study {study.name}, as it was submitted")


def run_text(grid: Grid) -> str:
    """The only run of a grid."""
    if len(grid.jobs) != 1:
        names = ", ".join(job.spec.name for job in grid.jobs[:3])
        raise ConfigError(f"--write-config: {len(grid.jobs)} runs are chosen ({names} ...); choose one by --only NAME")
    spec, study = grid.jobs[0].spec, grid.study
    one = replace(
        study,
        train_sets=(spec.train_set,),
        shots=(spec.shots,),
        seeds=(spec.seed,),
        patterns=(spec.pattern.name,) if study.patterns else (),
        data_seeds="seed" if study.data_seeds == "seed" else (spec.data_seed,),
        recipe=spec.recipe,
        run=spec.name,
    )
    return _text(grid, one, [spec.model], f"run {spec.name} of the study {study.name}, id {spec.run_id}")


def write_run(grid: Grid, path: Path) -> Path:
    """Write the only run of a grid to a file; what oodles did not write is not replaced."""
    text = run_text(grid)
    check_target(path, lambda there: begins_with(there, MARK.encode(), within=len(MARK)))
    write_text(path, text)
    return path


def _text(grid: Grid, study: Study, models: list[ModelSpec], what: str) -> str:
    top = {
        "schema": STUDY_SCHEMA,
        "name": study.name,
        "suite": _suite(grid),
        "out": str(Path(study.out).absolute()),
        "data": str(Path(study.data).absolute()) if study.data else "",
        "allow": study.allow,
        "reported_gpu_hours": study.reported_gpu_hours,
        "report_to": "none" if study.report_to == () else study.report_to,
        "engine": None if study.engine == "single" else study.engine,
        "processes": study.processes,
        "engine_config": study.engine_config or None,
        "device_map": study.device_map,
    }
    seeds = study.data_seeds
    axes = {
        "models": [model.label for model in models],
        "train_sets": study.train_sets,
        "shots": study.shots,
        "seeds": study.seeds,
        "patterns": study.patterns,
        "data_seed": seeds if isinstance(seeds, str) or len(seeds) > 1 else seeds[0],
        "draw": study.draw,
        "run": study.run,
    }
    tables = [
        _table("", top),
        _table("grid", axes),
        *(_table(f"models.{_key(model.label)}", _source(model)) for model in models),
        _table("lora", _flat(study.lora)),
        _table("train", _flat(study.recipe)),
        _table("eval", _flat(study.evaluation)),
        *_slurm(study.slurm),
    ]
    return f"{MARK}{what}\n" + "\n".join(tables)


def _suite(grid: Grid) -> str:
    """A built-in suite by its name, one's own by its path."""
    if grid.suite.file:
        return str(Path(grid.suite.file).absolute())
    if isinstance(grid.study.suite, str):
        return grid.study.suite
    raise ConfigError(
        f"study {grid.study.name}: its suite was made in Python, which a file cannot hold; write it as a suite TOML"
    )


def _source(model: ModelSpec) -> dict[str, Any]:
    """Folders and embedded models are pinned by their content, which the run's id holds."""
    pinned = model.source in EMBEDDED or (model.revision or "").startswith("folder:")
    return {"source": model.source, "revision": None if pinned else model.revision}


def _slurm(slurm: Slurm) -> list[str]:
    if slurm == Slurm():
        return []
    flat = {key: value for key, value in _flat(slurm).items() if key not in ("models", "options")}
    tables = [_table("slurm", flat), *_options("slurm", slurm)]
    for name, job in slurm.models.items():
        place = f"slurm.models.{_key(name)}"
        tables += [_table(place, {k: v for k, v in _flat(job).items() if k != "options"}), *_options(place, job)]
    return tables


def _options(place: str, job: SlurmJob) -> list[str]:
    return [_table(f"{place}.options", job.options)] if job.options else []


def _flat(record: Any) -> dict[str, Any]:
    return {f.name: getattr(record, f.name) for f in fields(record)}


def _table(name: str, values: Mapping[str, Any]) -> str:
    """What is None is not said: it is the default."""
    lines = [f"{_key(key)} = {_value(value)}" for key, value in values.items() if value is not None]
    return "\n".join([f"[{name}]"] * bool(name) + lines) + "\n"


def _key(name: str) -> str:
    plain = name.isascii() and all(c.isalnum() or c in "-_" for c in name)
    return name if plain and name else json.dumps(name, ensure_ascii=False)


def _value(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
