"""DeepSpeed settings of one's own: what of them is taken, what the study decides, and what is refused.

A run is the same with every engine, so only settings that move memory and messages are taken.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from oodles.contracts import LAYERS, ZERO, EngineName
from oodles.errors import ConfigError, shown

DECIDED = (  # by the study, or by oodles
    "train_batch_size",
    "train_micro_batch_size_per_gpu",
    "gradient_accumulation_steps",
    "gradient_clipping",
    "optimizer",
    "scheduler",
    "fp16",
    "bf16",
    "zero_allow_untested_optimizer",
    "steps_per_print",
)
TAKEN = ("zero_optimization", "wall_clock_breakdown", "memory_breakdown", "comms_logger")
OF_ZERO = (
    "stage",
    "reduce_bucket_size",
    "reduce_scatter",
    "allgather_bucket_size",
    "allgather_partitions",
    "overlap_comm",
    "contiguous_gradients",
    "round_robin_gradients",
    "sub_group_size",
    "stage3_max_live_parameters",
    "stage3_max_reuse_distance",
    "stage3_prefetch_bucket_size",
    "stage3_param_persistence_threshold",
)
DECIDED_OF_ZERO = ("stage3_gather_16bit_weights_on_model_save", "memory_efficient_linear", "ignore_unused_parameters")
COUNTS = tuple(key for key in OF_ZERO if key.endswith(("_size", "_parameters", "_distance", "_threshold")))


def read_settings(told: str, engine: EngineName, folder: Path, where: str) -> str:
    """Return the settings that are taken of a DeepSpeed JSON, as JSON; `told` is its path, or the JSON itself."""
    inline = told.lstrip().startswith("{")
    where = f"{where}: engine_config" + ("" if inline else f" {told}")
    raw = _parsed(told, where) if inline else read_json(folder / told, where)
    if engine == "fsdp2":
        return json.dumps(_of_fsdp(raw, where))
    return json.dumps(checked(raw, engine, where), sort_keys=True)


def read_json(path: Path, where: str) -> dict[str, Any]:
    """Read a DeepSpeed JSON."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{where}: {error.strerror}; expected a DeepSpeed JSON") from None
    except ValueError as error:
        raise ConfigError(f"{where} is not JSON: {error}") from None
    return _parsed(text, where)


def _parsed(text: str, where: str) -> dict[str, Any]:
    try:
        raw = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{where} is not JSON: {error}") from None
    if not isinstance(raw, dict):
        raise ConfigError(f"{where} is no table; expected a DeepSpeed JSON")
    return raw


def _of_fsdp(raw: dict[str, Any], where: str) -> dict[str, Any]:
    names = raw.get(LAYERS)
    if set(raw) != {LAYERS} or not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ConfigError(f'{where}: engine "fsdp2" takes a configuration of Accelerate, such as accelerate.yaml')
    return raw


def checked(raw: dict[str, Any], engine: EngineName, where: str) -> dict[str, Any]:
    """Refuse settings that would change what is computed, or that oodles cannot resume; leave out those it decides."""
    zero = raw.get("zero_optimization", {})
    if not isinstance(zero, dict):
        raise ConfigError(f"{where}: zero_optimization is no table")
    unknown = [key for key in raw if key not in DECIDED + TAKEN]
    unknown += [f"zero_optimization.{key}" for key in zero if key not in OF_ZERO + DECIDED_OF_ZERO]
    if unknown:
        raise ConfigError(
            f"{where}: {', '.join(unknown)} would change what is computed, or where oodles looks for it; remove it."
            " Batch sizes, optimiser, schedule, clipping and precision are set in [train]"
        )
    stage = zero.get("stage", "auto")
    if stage not in ("auto", ZERO[engine]):
        raise ConfigError(
            f'{where}: zero_optimization.stage is {json.dumps(stage)}, but engine is "{engine}"; make them agree'
        )
    taken = {key: value for key, value in raw.items() if key in TAKEN and value != "auto"}
    kept = {key: value for key, value in zero.items() if key in OF_ZERO and key != "stage" and value != "auto"}
    _check_types({**taken, **{f"zero_optimization.{key}": value for key, value in kept.items()}}, where)
    return {**taken, "zero_optimization": kept}


def _check_types(taken: dict[str, Any], where: str) -> None:
    """Find values that DeepSpeed would refuse, here where it may not be installed."""
    for key, value in taken.items():
        name = key.removeprefix("zero_optimization.")
        if name in COUNTS:
            wanted = "" if _is_count(value) else "a whole number of 0 or more"
        elif name in ("comms_logger", "zero_optimization"):
            wanted = "" if isinstance(value, dict) else "a table"
        else:
            wanted = "" if isinstance(value, bool) else "true or false"
        if wanted:
            raise ConfigError(f"{where}: {key} is {shown(json.dumps(value))}, expected {wanted}")


def _is_count(value: Any) -> bool:
    """Whether a number is whole; 5e8 is.

    >>> [_is_count(value) for value in (3, 5e8, 0.5, -1, True, "3")]
    [True, True, False, False, False, False]
    """
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0 and value % 1 == 0
