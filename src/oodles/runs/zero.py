"""DeepSpeed's ZeRO: `zero2` splits gradients and the optimiser's state among the processes, `zero3` the weights, too.

DeepSpeed calls the model through its own engine, clips gradients and makes the steps. The Trainer keeps its optimiser
for the schedule: only its learning rates are used. Checkpoints hold what one process would write.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from oodles.contracts import ZERO, Recipe
from oodles.model.forward import ENTRY
from oodles.runs.ranks import Ranks

KINDS = {2: "DeepSpeedZeroOptimizer", 3: "DeepSpeedZeroOptimizer_Stage3"}
STATE = ("exp_avg", "exp_avg_sq")  # what AdamW keeps of each weight; plain SGD keeps nothing


class Steps(torch.optim.Optimizer):  # type: ignore[misc]
    """The Trainer's optimiser, whose steps DeepSpeed makes."""

    def __init__(self, engine: Any, groups: list[dict[str, Any]]) -> None:
        super().__init__(groups, {})
        self.engine = engine

    def step(self, _closure: Any = None) -> None:
        """Make a step with the learning rates of the schedule."""
        wanted = [group for group in self.param_groups if group["params"]]
        for group, inner in zip(wanted, self.engine.basic_optimizer.param_groups, strict=True):
            inner["lr"] = group["lr"]
        self.engine.step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """DeepSpeed drops gradients after a step."""

    @property
    def weights(self) -> list[nn.Parameter]:
        """The trained weights, in the order of a checkpoint."""
        return [weight for group in self.param_groups for weight in group["params"]]


def split_weights(module: nn.Module, ranks: Ranks) -> None:
    """Leave each process its part of a module's weights, which are those of the first one."""
    _deepspeed().zero.Init(module=module, config_dict_or_path=config_of(ranks))
    del os.environ["LOCAL_RANK"]  # the Trainer is made after this


def drive(model: nn.Module, entry: nn.Module, ranks: Ranks, optimiser: Any = None, recipe: Recipe | None = None) -> Any:
    """Put a model under DeepSpeed's engine, for training if there is an optimiser; return what makes the steps."""
    groups = [{**group, "params": list(group["params"])} for group in optimiser.param_groups] if optimiser else []
    engine, *_ = _deepspeed().initialize(
        model=entry, optimizer=optimiser, config=config_of(ranks, recipe), dist_init_required=False
    )
    vars(model)[ENTRY] = engine
    return Steps(engine, groups) if optimiser else None


def config_of(ranks: Ranks, recipe: Recipe | None = None) -> dict[str, Any]:
    """Return DeepSpeed's configuration, with settings of one's own; the study decides what is computed."""
    steps = recipe.accumulate if recipe else 1
    told: dict[str, Any] = json.loads(ranks.settings or "{}")
    return {
        **told,
        "train_micro_batch_size_per_gpu": 1,  # DeepSpeed computes nothing from it
        "gradient_accumulation_steps": steps,
        "gradient_clipping": recipe.max_grad_norm if recipe else 0.0,
        "zero_allow_untested_optimizer": True,
        "steps_per_print": 10**9,
        "zero_optimization": {
            "stage3_param_persistence_threshold": 0,
            **told.get("zero_optimization", {}),
            "stage": ZERO[ranks.engine],
            "memory_efficient_linear": False,
        },
    }


def _deepspeed() -> Any:
    """Import DeepSpeed as a part of this process group. A process sees one device, which is its first.

    DeepSpeed wants to be told in a variable that makes other libraries look for processes on their own: see `release`.
    """
    import deepspeed
    from deepspeed import comm

    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # would be compiled for a minute, for CPUs only
    os.environ["LOCAL_RANK"] = "0"
    if not comm.is_initialized():
        comm.init_distributed(dist_init_required=False)
    return deepspeed


def engine_of(model: nn.Module) -> Any:
    """Return the DeepSpeed engine of a model; None if it has none."""
    entry = vars(model).get(ENTRY)
    return entry if hasattr(entry, "zero_optimization_stage") else None


def release(model: nn.Module) -> None:
    """Undo what DeepSpeed holds of a model."""
    engine = engine_of(model)
    if engine is None:
        return
    from deepspeed.runtime.zero import parameter_offload

    engine.destroy()
    parameter_offload.FWD_MODULE_STACK.clear()
    vars(model).pop(ENTRY)
    os.environ.pop("LOCAL_RANK", None)


def trained(model: nn.Module) -> int:
    """Return the number of weights that are trained."""
    return sum(getattr(p, "ds_numel", None) or p.numel() for p in model.parameters() if p.requires_grad)


def held_states(model: nn.Module) -> int:
    """Return the number of weights whose optimiser state DeepSpeed keeps in this process."""
    engine = engine_of(model)
    if engine is None or type(engine.optimizer).__name__ != KINDS[engine.zero_optimization_stage()]:
        return 0
    return sum(part.numel() for part in _flat(engine))


def _flat(engine: Any) -> list[torch.Tensor]:
    """Return this process's part of the trained weights, in fp32."""
    zero = engine.optimizer
    parts = (
        zero.single_partition_of_fp32_groups
        if engine.zero_optimization_stage() == 2
        else zero.fp32_partitioned_groups_flat
    )
    return list(parts)


# weights and states, whole and in parts


def whole_weights(weights: Mapping[str, nn.Parameter]) -> dict[str, torch.Tensor]:
    """Gather weights of which each process has a part."""
    import deepspeed

    whole = {}
    for name, weight in weights.items():
        with deepspeed.zero.GatheredParameters([weight]):
            whole[name] = weight.detach().clone().cpu()
    return whole


def put_weight(weight: Any, value: torch.Tensor, ranks: Ranks) -> None:
    """Put a whole value into a weight of which each process has a part."""
    weight.ds_tensor.data.copy_(_own_part(value, weight, ranks))


def whole_state(steps: Steps) -> dict[str, Any]:
    """Gather the state of the optimiser, as it is in one process."""
    from deepspeed.utils import safe_get_full_optimizer_state

    inner = steps.engine.basic_optimizer
    count = next((state["step"] for state in inner.state.values() if "step" in state), None)
    per_weight = {}
    if count is not None:
        for number, weight in enumerate(steps.weights):
            kept = {key: safe_get_full_optimizer_state(weight, key).cpu() for key in STATE}
            per_weight[number] = {"step": count.clone().cpu(), **kept}
    return {**steps.state_dict(), "state": per_weight}


def put_state(state: Mapping[str, Any], steps: Steps, ranks: Ranks) -> None:
    """Put the state of an optimiser, as it is in one process, into this one."""
    from deepspeed.utils import safe_set_full_optimizer_state, safe_set_local_optimizer_state

    for group, kept in zip(steps.param_groups, state["param_groups"], strict=True):
        group.update({key: value for key, value in kept.items() if key != "params"})
    if not state["state"]:
        return
    zero, inner = steps.engine.optimizer, steps.engine.basic_optimizer
    stage = steps.engine.zero_optimization_stage()
    for part in _flat(steps.engine):
        inner.state[part] = {"step": state["state"][0]["step"].clone()} | {key: torch.zeros_like(part) for key in STATE}
    if stage == 2:
        zero._lazy_init_hp_params_optimizer_state()
    for number, weight in enumerate(steps.weights):
        for key in STATE:
            value = state["state"][number][key].to(weight.device)
            if stage == 2:
                safe_set_full_optimizer_state(weight, value, key)
            else:
                safe_set_local_optimizer_state(weight, _own_part(value, weight, ranks), key)


def _own_part(value: torch.Tensor, weight: Any, ranks: Ranks) -> torch.Tensor:
    """Return this process's part of a weight, as DeepSpeed cuts it: equal parts, the last one padded."""
    size = weight.ds_tensor.numel()
    flat = torch.zeros(size * ranks.size, dtype=value.dtype, device=value.device)
    flat[: value.numel()] = value.flatten()
    return flat[size * ranks.rank : size * (ranks.rank + 1)]
