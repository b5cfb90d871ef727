"""A configuration of Accelerate as an engine of ours: what of it maps, and what is refused by name.

`accelerate config` writes such a file. Its launcher is not used: processes are started by oodles, or by SLURM. A run is
the same with every engine, so settings that would change what is computed must agree with the study.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oodles.contracts import LAYERS, ZERO, EngineName, Recipe
from oodles.errors import ConfigError, MissingExtraError, first_line, shown
from oodles.study.deepspeed import checked, read_json

SUFFIXES = (".yaml", ".yml")
MARK = "distributed_type"  # which every such configuration has
DATA_PARALLEL = ("MULTI_CPU", "MULTI_GPU")
LAUNCHING = {  # settings of the launcher, which is not used
    *("compute_environment", "debug", "enable_cpu_affinity", "machine_rank", "main_process_ip", "main_process_port"),
    *("main_training_function", "rdzv_backend", "same_network", "use_cpu", "tpu_use_cluster", "tpu_use_sudo"),
}
READ = {MARK, "num_processes", "num_machines", "mixed_precision", "gpu_ids", "fsdp_config", "deepspeed_config"}
NOTHING: tuple[Any, ...] = (None, False, "", "no", "NO", {}, [])  # values that switch a setting off
FSDP_IGNORED = {  # by Accelerate itself in version 2, or because checkpoints and loading are our own
    *("backward_prefetch", "backward_prefetch_policy", "forward_prefetch", "use_orig_params", "sync_module_states"),
    *("state_dict_type", "cpu_ram_efficient_loading"),
}
DEEPSPEED_IGNORED = {"zero3_init_flag", "zero3_save_16bit_model", "deepspeed_multinode_launcher"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the study itself says; None if it does not."""

    engine: EngineName | None
    processes: int | None
    recipe: Recipe


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapped:
    """An engine of ours, with settings as JSON."""

    engine: EngineName
    processes: int | None
    settings: str = ""


def is_accelerate(told: str, folder: Path) -> bool:
    """Whether an `engine_config` is a file of Accelerate's: YAML, or a JSON with a distributed_type."""
    if told.lstrip().startswith("{"):
        return False
    if Path(told).suffix in SUFFIXES:
        return True
    try:
        return MARK in json.loads((folder / told).read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError):
        return False  # read_settings says what is wrong


def read_accelerate(told: str, asked: Asked, folder: Path, where: str) -> Mapped:
    """Return the engine that a configuration asks for."""
    path, where = folder / told, f"{where}: engine_config {told}"
    raw = _read(path, where)
    kind = "NO" if raw[MARK] is False else raw[MARK]  # YAML reads NO as false
    engine, settings = _engine(str(kind), raw, asked, path.parent, where)
    if asked.engine not in (None, engine):
        raise ConfigError(
            f'{where}: {MARK} {kind} is engine "{engine}", but the study says engine = "{asked.engine}"; make them'
            " agree"
        )
    _check_rest(raw, asked.recipe, where)
    return Mapped(engine=engine, processes=_processes(raw, asked, engine, where), settings=settings)


def _read(path: Path, where: str) -> dict[str, Any]:
    try:
        import yaml
    except ImportError:
        raise MissingExtraError(f"reading {path.name}", "slurm") from None
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))  # JSON is YAML
    except OSError as error:
        raise ConfigError(f"{where}: {error.strerror}; expected a configuration of Accelerate") from None
    except (ValueError, yaml.YAMLError) as error:
        raise ConfigError(f"{where} is not YAML: {first_line(error)}") from None
    if not isinstance(raw, dict) or MARK not in raw:
        raise ConfigError(f"{where} has no {MARK}; expected a file as `accelerate config` writes it")
    return raw


def _engine(kind: str, raw: Mapping[str, Any], asked: Asked, folder: Path, where: str) -> tuple[EngineName, str]:
    if kind in DATA_PARALLEL:
        return "ddp", ""
    if kind == "FSDP":
        return "fsdp2", _fsdp(_table(raw, "fsdp_config", where), asked.recipe, f"{where}: fsdp_config")
    if kind == "DEEPSPEED":
        return _deepspeed(_table(raw, "deepspeed_config", where), asked, folder, f"{where}: deepspeed_config")
    if kind == "NO":
        raise ConfigError(f'{where}: {MARK} is NO, which is engine "single"; leave engine_config out')
    raise ConfigError(f"{where}: {MARK} is {shown(kind)}, which oodles has no engine for; expected {_kinds()}")


def _kinds() -> str:
    return f"{', '.join(DATA_PARALLEL)}, FSDP (version 2) or DEEPSPEED (ZeRO 2 or 3)"


def _table(raw: Mapping[str, Any], key: str, where: str) -> Mapping[str, Any]:
    table = raw.get(key) or {}
    if not isinstance(table, dict):
        raise ConfigError(f"{where}: {key} is no table")
    return table


# each engine


def _fsdp(told: Mapping[str, Any], recipe: Recipe, where: str) -> str:
    given = {str(key).removeprefix("fsdp_"): value for key, value in told.items()}
    version = given.pop("version", 1)
    if version != 2:
        raise ConfigError(
            f"{where}: fsdp_version is {shown(version)}, and FSDP 1 is not FSDP 2, which oodles has; write"
            " fsdp_version: 2"
        )
    rules = {
        "auto_wrap_policy": ("TRANSFORMER_BASED_WRAP", "layers are what is sharded"),
        "reshard_after_forward": (True, 'weights are dropped after each layer; engine "ddp" keeps them'),
        "offload_params": (False, "weights stay on the GPUs"),
        "activation_checkpointing": (recipe.gradient_checkpointing, "[train] gradient_checkpointing says so"),
    }
    for key, (wanted, why) in rules.items():
        value = given.pop(key, wanted)
        if value != wanted:
            raise ConfigError(f"{where}: fsdp_{key} is {shown(value)}, expected {shown(wanted)}: {why}")
    layers = given.pop(LAYERS, None) or ()
    names = [name.strip() for name in layers.split(",")] if isinstance(layers, str) else layers
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
        raise ConfigError(f"{where}: fsdp_{LAYERS} is {shown(layers)}, expected names of classes")
    _refuse([f"fsdp_{key}" for key, value in given.items() if key not in FSDP_IGNORED and value not in NOTHING], where)
    return json.dumps({LAYERS: list(names)}) if names else ""


def _deepspeed(told: Mapping[str, Any], asked: Asked, folder: Path, where: str) -> tuple[EngineName, str]:
    """Inside the configuration, or in a DeepSpeed JSON that it names."""
    file = told.get("deepspeed_config_file")
    if file:
        where = f"{where}: {file}"
        raw = read_json((folder / str(file)), where)
        beside = [key for key in told if key not in {"deepspeed_config_file", *DEEPSPEED_IGNORED}]
        if beside:
            raise ConfigError(f"{where}: {', '.join(beside)} beside a deepspeed_config_file; say it in that file")
        zero = raw.get("zero_optimization")
        stage = zero.get("stage") if isinstance(zero, dict) else None
    else:
        stage, raw = told.get("zero_stage"), {"zero_optimization": {}}
        used = {"zero_stage", "gradient_accumulation_steps", "gradient_clipping", *DEEPSPEED_IGNORED}
        off = (*NOTHING, "none")
        _refuse([str(key) for key, value in told.items() if key not in used and value not in off], where)
    engine = next((name for name, number in ZERO.items() if number == stage), None)
    if engine is None:
        raise ConfigError(f"{where}: the stage of ZeRO is {shown(stage)}, expected 2 or 3")
    source = raw if file else told
    for key, wanted in (
        ("gradient_accumulation_steps", asked.recipe.accumulate),
        ("gradient_clipping", asked.recipe.max_grad_norm),
    ):
        value = source.get(key, "auto")
        if value not in ("auto", wanted):
            name = "accumulate" if key.endswith("steps") else "max_grad_norm"
            raise ConfigError(
                f'{where}: {key} is {shown(value)}, but [train] {name} is {wanted}; make them agree, or write "auto"'
            )
    return engine, json.dumps(checked(raw, engine, where), sort_keys=True)


# what all of them have


def _processes(raw: Mapping[str, Any], asked: Asked, engine: EngineName, where: str) -> int | None:
    told = raw.get("num_processes")
    if told is None or told == -1:
        return asked.processes
    if not isinstance(told, int) or isinstance(told, bool) or told < 2:
        raise ConfigError(
            f'{where}: num_processes is {shown(told)}, expected at least 2: with one, engine "{engine}" would be'
            ' "single"'
        )
    if asked.processes not in (None, told):
        raise ConfigError(
            f"{where}: num_processes is {told}, but the study says processes = {asked.processes}; make them agree"
        )
    return told


def _check_rest(raw: Mapping[str, Any], recipe: Recipe, where: str) -> None:
    """Refuse what would be ignored without a word, or would change what is computed."""
    if raw.get("compute_environment", "LOCAL_MACHINE") != "LOCAL_MACHINE":
        raise ConfigError(
            f"{where}: compute_environment is {shown(raw['compute_environment'])}, expected LOCAL_MACHINE; on a"
            " cluster, use --where slurm"
        )
    if raw.get("num_machines") not in (None, 1):
        raise ConfigError(
            f"{where}: num_machines is {shown(raw['num_machines'])}, expected 1: a run's processes are on one machine"
        )
    mixed = raw.get("mixed_precision")
    if mixed not in NOTHING and mixed != recipe.precision:
        raise ConfigError(
            f'{where}: mixed_precision is {shown(mixed)}, but [train] precision is "{recipe.precision}". Runs compute'
            f" in the precision of their weights: write precision = \"{mixed}\", or mixed_precision: 'no'"
        )
    if raw.get("gpu_ids") not in (None, "", "all"):
        raise ConfigError(f"{where}: gpu_ids is {shown(raw['gpu_ids'])}; set CUDA_VISIBLE_DEVICES instead")
    _refuse([str(key) for key in raw if key not in READ | LAUNCHING and raw[key] not in NOTHING], where)


def _refuse(keys: list[str], where: str) -> None:
    if keys:
        raise ConfigError(f"{where}: {', '.join(keys)} would change what is computed, or where; remove it")
