"""DeepSpeed settings of one's own: what of them is taken, what the study decides, and what is refused.

A run is the same with every engine, so only settings that move memory and messages are taken.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from oodles.contracts import ZERO, EngineName
from oodles.errors import ConfigError

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
OF_ACCELERATE = {"compute_environment", "distributed_type", "deepspeed_config", "fsdp_config", "num_processes"}


def read_settings(told: str, engine: EngineName, folder: Path, where: str) -> str:
    """Return the settings that are taken of a DeepSpeed JSON, as JSON; `told` is its path, or the JSON itself."""
    name = "engine_config" if told.lstrip().startswith("{") else f"engine_config {told}"
    if Path(told).suffix in (".yaml", ".yml"):
        raise ConfigError(f"{where}: {_not_accelerate(name)}")
    try:
        raw = json.loads(told if name == "engine_config" else (folder / told).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{where}: {name}: {error.strerror}; expected a DeepSpeed JSON") from None
    except ValueError as error:
        raise ConfigError(f"{where}: {name} is not JSON: {error}") from None
    if not isinstance(raw, dict):
        raise ConfigError(f"{where}: {name} is no table; expected a DeepSpeed JSON")
    if OF_ACCELERATE & set(raw):
        raise ConfigError(f"{where}: {_not_accelerate(name)}")
    return json.dumps(_checked(raw, engine, f"{where}: {name}"), sort_keys=True)


def _not_accelerate(name: str) -> str:
    return (
        f"{name} is a configuration of Accelerate, whose launcher oodles does not use. Write engine = "
        '"ddp", "fsdp2", "zero2" or "zero3", and processes = N; DeepSpeed settings belong into a DeepSpeed JSON'
    )


def _checked(raw: dict[str, Any], engine: EngineName, where: str) -> dict[str, Any]:
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
        raise ConfigError(f'{where}: zero_optimization.stage is {stage}, but engine is "{engine}"; make them agree')
    taken = {key: value for key, value in raw.items() if key in TAKEN and value != "auto"}
    kept = {key: value for key, value in zero.items() if key in OF_ZERO and key != "stage" and value != "auto"}
    return {**taken, "zero_optimization": kept}
