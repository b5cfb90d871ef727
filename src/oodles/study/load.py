"""Read study.toml into a frozen `Study`, with overrides from the command line.

oodles check study.toml
oodles run study.toml --set train.epochs=5
"""

from __future__ import annotations

import math
import os
import re
import tomllib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from oodles.contracts import (
    ZERO,
    EngineName,
    Evaluation,
    Lora,
    ModelSpec,
    Recipe,
    Slurm,
    SlurmJob,
    Study,
    TrackerName,
)
from oodles.errors import ConfigError, nearest, shown
from oodles.names import check_name
from oodles.study.accelerate import Asked, is_accelerate, read_accelerate
from oodles.study.deepspeed import read_settings
from oodles.toml import build, check_schema, read_toml

STUDY_SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Grid:
    models: tuple[str, ...]
    train_sets: tuple[str, ...]
    shots: tuple[int, ...]
    seeds: tuple[int, ...]
    patterns: tuple[str, ...] = ()
    data_seed: Literal["seed"] | int | tuple[int, ...] = "seed"
    draw: Literal["independent", "nested"] = "independent"
    run: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Model:
    source: str
    revision: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    schema: int
    name: str
    suite: str
    grid: _Grid
    out: str = ""
    data: str = ""
    allow: tuple[str, ...] = ()
    reported_gpu_hours: float | None = None
    models: Mapping[str, _Model] = field(default_factory=dict)
    lora: Lora = field(default_factory=Lora)
    train: Recipe = field(default_factory=Recipe)
    eval: Evaluation = field(default_factory=Evaluation)
    slurm: Slurm = field(default_factory=Slurm)
    report_to: Literal["none"] | TrackerName | tuple[TrackerName, ...] | None = None
    engine: EngineName = "single"
    processes: int | None = None
    engine_config: str = ""
    device_map: Literal["auto"] | None = None


def load_study(source: str | Path, overrides: Sequence[str] = ()) -> Study:
    """Read a study file, or a shipped study by its name.

    Parameters
    ----------
    source
        Path of a TOML file, or the name of a shipped study (``"demo"``).
    overrides
        ``key=value`` strings, e.g. ``train.epochs=5``; values are TOML.

    Examples
    --------
    >>> load_study("demo").suite
    'opinions'
    >>> load_study("demo", ["grid.seeds=[7]"]).seeds
    (7,)
    """
    path = find_study(source)
    raw = read_toml(path)
    for override in overrides:
        _apply(raw, override)
    check_schema(raw, STUDY_SCHEMA, path.name)
    file = _with_accelerate(build(_File, raw, path.name), path, named="engine" in raw)
    _check_ranges(file, path.name)
    grid = file.grid
    return Study(
        name=file.name,
        suite=file.suite,
        out=str(Path(os.environ.get("OUTPUT_DIR", "")) / (file.out or f"runs/{file.name}")),
        models=grid.models,
        train_sets=grid.train_sets,
        shots=grid.shots,
        seeds=grid.seeds,
        patterns=grid.patterns,
        data_seeds=(grid.data_seed,) if isinstance(grid.data_seed, int) else grid.data_seed,
        draw=grid.draw,
        data=str(path.parent / file.data) if file.data else "",
        allow=file.allow,
        sources={k: ModelSpec(label=k, source=m.source, revision=m.revision) for k, m in file.models.items()},
        lora=file.lora,
        recipe=file.train,
        evaluation=file.eval,
        folder=str(path.parent),
        reported_gpu_hours=file.reported_gpu_hours,
        slurm=file.slurm,
        report_to=_report_to(file.report_to),
        run=grid.run,
        engine=file.engine,
        processes=file.processes,
        engine_config=_engine_config(file, path),
        device_map=file.device_map,
    )


def _report_to(told: Literal["none"] | TrackerName | tuple[TrackerName, ...] | None) -> tuple[TrackerName, ...] | None:
    if told is None or isinstance(told, tuple):
        return told
    return () if told == "none" else (told,)


def load_slurm(source: str | Path, study: Slurm) -> Slurm:
    """A study's [slurm], with the keys of a file of one's own, which holds that table only, on top."""
    path = Path(source)
    raw = read_toml(path)
    given = build(Slurm, raw, path.name)
    _check_slurm(given, path.name)
    return replace(study, **{key: getattr(given, key) for key in raw})


def shipped_studies() -> list[str]:
    """Return the names of the shipped studies."""
    folder = resources.files("oodles.study") / "studies"
    return sorted(p.name.removesuffix(".toml") for p in folder.iterdir() if p.name.endswith(".toml"))


def find_study(source: str | Path) -> Path:
    """Return the file of a study: a path as given, or a shipped name."""
    path = Path(source)
    if path.is_file():
        return path
    if path.suffix == "" and str(source) in shipped_studies():
        return Path(str(resources.files("oodles.study") / "studies" / f"{source}.toml"))
    if path.suffix == ".toml" or len(path.parts) > 1:
        raise ConfigError(
            f"{source}: no such file; give the path of a study TOML or a shipped study: {', '.join(shipped_studies())}"
        )
    raise ConfigError(f"{source}: no such study file or shipped study; {nearest(str(source), shipped_studies())}")


def _apply(raw: dict[str, Any], override: str) -> None:
    """Apply one --set key=value to the raw file."""
    key, equals, text = override.partition("=")
    parts = key.strip().split(".")
    if not equals or not all(parts):
        raise ConfigError(f"--set {override}: expected key=value, e.g. --set train.epochs=5")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()  # an unquoted word is a string
    table = raw
    for part in parts[:-1]:
        table = table.setdefault(part, {})
        if not isinstance(table, dict):
            raise ConfigError(f"--set {override}: '{part}' is not a table")
    table[parts[-1]] = value


TIME = re.compile(r"\d+(:\d{1,2}){0,2}|\d+-\d{1,2}(:\d{1,2}){0,2}")
MEMORY = re.compile(r"\d+[KMGT]?B?")


def _check_slurm(slurm: Slurm, where: str) -> None:
    """What a type cannot say of [slurm]."""
    if slurm.width < 1:
        raise ConfigError(f"{where}: width is {slurm.width}, expected at least 1")
    if slurm.warning < 30:
        raise ConfigError(f"{where}: warning is {slurm.warning}, expected at least 30 seconds")
    _check_job(slurm, where)
    for name, job in slurm.models.items():
        _check_job(job, f"{where[:-1]}.models.{name}]" if where.endswith("]") else f"{where} [models.{name}]")


OWN_OPTIONS = {  # of sbatch
    *("array", "comment", "error", "nodes", "no_requeue", "ntasks", "ntasks_per_node", "open_mode", "output"),
    *("parsable", "requeue", "signal", "wait"),
}


def _check_job(job: SlurmJob, where: str) -> None:
    if job.time is not None and not TIME.fullmatch(job.time):
        raise ConfigError(f'{where}: time is "{shown(job.time)}", expected e.g. "04:00:00" or "2-00:00:00"')
    if job.memory is not None and not MEMORY.fullmatch(job.memory):
        raise ConfigError(f'{where}: memory is "{shown(job.memory)}", expected e.g. "64G"')
    if taken := sorted({key.replace("-", "_") for key in job.options or ()} & OWN_OPTIONS):
        raise ConfigError(
            f"{where}: options has {', '.join(taken)}, which oodles sets itself to know its jobs; remove it"
        )
    for key, least in (("gpus", 0), ("cpus", 1), ("runs_per_job", 1)):
        value = getattr(job, key)
        if value is not None and value < least:
            raise ConfigError(f"{where}: {key} is {value}, expected at least {least}")


SEED = "expected 0 to 4294967295"
LEAST = defaultdict(float, polynomial=1e-7)  # the final learning rate of that schedule


def _is_seed(seed: int) -> bool:
    """Whether numpy accepts the seed, because the Trainer seeds numpy's generator."""
    return 0 <= seed < 2**32


def _data_seeds(file: _File) -> tuple[int, ...]:
    seeds = file.grid.data_seed
    return (seeds,) if isinstance(seeds, int) else () if isinstance(seeds, str) else seeds


def _own_seeds(recipe: Recipe) -> dict[str, int]:
    named = {name: getattr(recipe, name) for name in ("adapter_seed", "order_seed", "dropout_seed")}
    return {name: seed for name, seed in named.items() if seed is not None}


def _engine_config(file: _File, path: Path) -> str:
    if not file.engine_config:
        return ""
    if file.engine not in (*ZERO, "fsdp2"):
        raise ConfigError(
            f'{path.name}: engine_config is for DeepSpeed, but engine is "{file.engine}"; choose "zero2" or "zero3", or'
            " leave it out"
        )
    return read_settings(file.engine_config, file.engine, path.parent, path.name)


def _with_accelerate(file: _File, path: Path, *, named: bool) -> _File:
    """Take the engine from a configuration of Accelerate, if that is what engine_config is; `named`: the study says."""
    if not is_accelerate(file.engine_config, path.parent):
        return file
    asked = Asked(engine=file.engine if named else None, processes=file.processes, recipe=file.train)
    found = read_accelerate(file.engine_config, asked, path.parent, path.name)
    return replace(file, engine=found.engine, processes=found.processes, engine_config=found.settings)


def _check_engine(file: _File, where: str) -> None:
    """Refuse an engine that would become another one, and what it cannot be combined with."""
    engine, processes, train = file.engine, file.processes, file.train
    if engine == "single":
        if processes is not None:
            raise ConfigError(f'{where}: processes is {processes}, but engine "single" has one; choose another engine')
        return
    rules = [
        (
            file.device_map is None,
            f'device_map is "{file.device_map}", but engine "{engine}" has one device for each process; leave one of'
            " them out",
        ),
        (
            processes is None or processes > 1,
            f'processes is {processes}, expected at least 2: with one, engine "{engine}" would be "single"',
        ),
        (
            processes is None or train.batch_size >= processes,
            f"[train] batch_size is {train.batch_size}, which {processes} processes cannot share; raise it, and lower"
            " accumulate",
        ),
        (
            engine == "ddp" or train.optimiser != "adafactor",
            f'[train] optimiser is "adafactor", whose state cannot be split; choose "adamw" or "sgd" with "{engine}"',
        ),
        (
            engine == "ddp" or file.lora.bias == "none",
            f'[lora] bias is "{file.lora.bias}"; engine "{engine}" trains adapters only, choose "none"',
        ),
    ]
    for holds, message in rules:
        if not holds:
            raise ConfigError(f"{where}: {message}")


def _check_ranges(file: _File, where: str) -> None:
    """Check ranges that a type cannot express."""
    train, lora, evaluation = file.train, file.lora, file.eval
    rules = [
        (file.reported_gpu_hours is None or file.reported_gpu_hours > 0, ": reported_gpu_hours must be positive"),
        (bool(file.grid.models), "[grid]: models is empty; name at least one"),
        (bool(file.grid.train_sets), "[grid]: train_sets is empty; name at least one"),
        (bool(file.grid.seeds), "[grid]: seeds is empty; name at least one"),
        (bool(file.grid.shots), "[grid]: shots is empty; name at least one"),
        (all(s > 0 for s in file.grid.shots), "[grid]: shots must be positive"),
        (file.grid.data_seed != (), '[grid]: data_seed is empty; name at least one, or "seed"'),
        *((_is_seed(s), f"[grid]: seeds holds {s}, {SEED}") for s in file.grid.seeds),
        *((abs(s) < 2**63, f"[grid]: data_seed is {s}, expected 64 bits at most") for s in _data_seeds(file)),
        *((_is_seed(s), f"[train]: {name} is {s}, {SEED}") for name, s in _own_seeds(train).items()),
        (train.epochs > 0, f"[train]: epochs is {train.epochs}, expected at least 1"),
        (train.batch_size > 0, f"[train]: batch_size is {train.batch_size}, expected at least 1"),
        (train.steps is None or train.steps > 0, f"[train]: steps is {train.steps}, expected at least 1"),
        (train.accumulate > 0, f"[train]: accumulate is {train.accumulate}, expected at least 1"),
        (
            LEAST[train.schedule] < train.learning_rate < math.inf,
            f"[train]: learning_rate is {train.learning_rate}, expected more than {LEAST[train.schedule]:g}"
            f"{' with this schedule' * (train.schedule == 'polynomial')} and less than infinity",
        ),
        (
            0 <= train.weight_decay < math.inf,
            f"[train]: weight_decay is {train.weight_decay}, expected 0 or more and less than infinity",
        ),
        (train.max_grad_norm >= 0, f"[train]: max_grad_norm is {train.max_grad_norm}, expected 0 (no limit) or more"),
        (0 <= train.warmup <= 1, f"[train]: warmup is {train.warmup}, expected a share between 0 and 1"),
        (lora.rank > 0, f"[lora]: rank is {lora.rank}, expected at least 1"),
        (lora.alpha > 0, f"[lora]: alpha is {lora.alpha}, expected at least 1"),
        (0 <= lora.dropout < 1, f"[lora]: dropout is {lora.dropout}, expected 0 or more and less than 1"),
        (evaluation.limit is None or evaluation.limit > 0, "[eval]: limit must be positive"),
        (
            evaluation.limit_in_domain is None or evaluation.limit_in_domain > 0,
            "[eval]: limit_in_domain must be positive",
        ),
        (evaluation.batch_tokens is None or evaluation.batch_tokens > 0, "[eval]: batch_tokens must be positive"),
        (evaluation.points > 0, "[eval]: points must be positive"),
    ]
    for holds, message in rules:
        if not holds:
            raise ConfigError(f"{where} {message}")
    if isinstance(evaluation.steps, str) and evaluation.steps not in ("log", "linear"):
        raise ConfigError(f'{where} [eval]: steps is "{evaluation.steps}", expected "log", "linear" or a list of steps')
    _check_slurm(file.slurm, f"{where} [slurm]")
    _check_engine(file, where)
    if file.grid.run:
        check_name(file.grid.run, f"{where} [grid]: run")
    check_name(file.name, f"{where}: name")
    for label in file.models:
        check_name(label, f"{where} [models]: a label")
