"""Engines: how several processes share a run's model. `ddp` and `zero2` copy it to each, `fsdp2` and `zero3` split it.

`ddp` and `fsdp2` are torch's own, DistributedDataParallel and fully_shard; the others are DeepSpeed's (zero.py). They
work on the calls of one module, while oodles calls parts of a model (its layers without the head, rows of the head).
Therefore the model is put into a module whose forward calls any function: `forward.inside` runs a function there, where
gradients are averaged over the processes, and the weights that a sharded model keeps outside its layers are whole.
Layers gather their own weights, one layer at a time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from oodles.contracts import LAYERS, ZERO, Recipe
from oodles.errors import ModelError
from oodles.model.forward import ENTRY, causal_lm, is_sharded
from oodles.runs import zero
from oodles.runs.ranks import Ranks

KINDS = {"ddp": "DistributedDataParallel", "fsdp2": "FSDPCalls", "zero2": "DeepSpeedEngine", "zero3": "DeepSpeedEngine"}


class Calls(nn.Module):  # type: ignore[misc]
    """A model whose forward calls a function, which uses the model."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, call: Callable[[], Any]) -> Any:
        """Call the function."""
        return call()


def share_model(model: Any, ranks: Ranks, checkpoint: Path | None = None, *, trains: bool = False) -> str:
    """Share a model among the processes, with the adapter of a checkpoint; return a description of what each holds.

    If the model is to be trained, DeepSpeed needs its optimiser, and takes over later: see `hand_over`.
    """
    if ranks.alone:
        return ""
    if checkpoint is not None and not next(model.parameters()).is_meta:
        model.load_adapter(checkpoint, model.active_adapters[0], is_trainable=True)
    if ranks.splits_weights:
        entry = _sharded(model, ranks)
    else:
        entry = _copied(model) if ranks.engine == "ddp" else Calls(model)
    vars(model)[ENTRY] = entry  # not as a submodule: the entry holds the model
    if ranks.engine in ZERO:
        if trains:
            return ""
        zero.drive(model, entry, ranks)
    return _described(model, ranks)


def hand_over(model: nn.Module, ranks: Ranks, optimiser: torch.optim.Optimizer, recipe: Recipe) -> tuple[Any, str]:
    """Let DeepSpeed train a shared model; return what makes its steps, and a description of what each process holds."""
    steps = zero.drive(model, vars(model)[ENTRY], ranks, optimiser, recipe)
    return steps, _described(model, ranks)


def release_model(model: nn.Module) -> None:
    """Undo what an engine holds of a model outside of it."""
    zero.release(model)


def _copied(model: nn.Module) -> nn.Module:
    return nn.parallel.DistributedDataParallel(Calls(model))


def _sharded(model: Any, ranks: Ranks) -> nn.Module:
    """Shard the layers one after the other, then the rest; the first process alone needs the weights."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    split = _by_torch(device, ranks) if ranks.engine == "fsdp2" else partial(zero.split_weights, ranks=ranks)
    named = json.loads(ranks.settings).get(LAYERS) if ranks.engine == "fsdp2" and ranks.settings else None
    kinds = set(named or getattr(causal_lm(model), "_no_split_modules", None) or ())
    layers = [module for module in model.modules() if type(module).__name__ in kinds]
    if named and (unknown := kinds - {type(layer).__name__ for layer in layers}):
        raise ModelError(
            f"{type(causal_lm(model)).__name__} has no {', '.join(sorted(unknown))}, which {LAYERS} of engine_config"
            " names; leave it out, and the model names its layers itself"
        )
    if not layers:
        raise ModelError(
            f"{type(causal_lm(model)).__name__} does not name its layers, so {ranks.engine} cannot shard it"
        )
    entry: nn.Module = Calls(model)
    for module in (*layers, entry):
        _fill(module, device, ranks)
        split(module)
    return entry


def _by_torch(device: torch.device, ranks: Ranks) -> Callable[[nn.Module], Any]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    return partial(fully_shard, mesh=init_device_mesh(device.type, (ranks.size,)), reshard_after_forward=True)


def _fill(module: nn.Module, device: torch.device, ranks: Ranks) -> None:
    """Move a module's weights to the device, and send those of the first process to the others, which have none."""
    made: dict[int, Any] = {}  # weights that two modules share stay shared
    for inner in module.modules():
        for held in (inner._parameters, inner._buffers):
            for name, tensor in held.items():
                if tensor is None or hasattr(tensor, "full_tensor") or hasattr(tensor, "ds_tensor"):
                    continue
                if id(tensor) not in made:
                    made[id(tensor)] = _sent(tensor, device, ranks)
                held[name] = made[id(tensor)]


def _sent(tensor: torch.Tensor, device: torch.device, ranks: Ranks) -> torch.Tensor:
    import torch.distributed as dist

    whole = tensor.detach().to(device) if ranks.is_first else torch.empty_like(tensor, device=device)
    whole = whole.contiguous()
    dist.broadcast(whole, src=0)
    return nn.Parameter(whole, requires_grad=tensor.requires_grad) if isinstance(tensor, nn.Parameter) else whole


def _described(model: nn.Module, ranks: Ranks) -> str:
    """Say what the engine is and what each process holds; refuse an engine that is not what it is called."""
    import torch.distributed as dist

    world = dist.get_world_size()
    counts = ranks.gathered((type(vars(model)[ENTRY]).__name__, held_parameters(model), zero.held_states(model)))
    whole = sum(getattr(parameter, "ds_numel", None) or parameter.numel() for parameter in model.parameters())
    held, states = [count for _, count, _ in counts], [count for _, _, count in counts]
    is_right = sum(held) >= whole and max(held) < whole if ranks.splits_weights else set(held) == {whole}
    said = f"{world} processes, which hold {held} of {whole} parameters"
    if any(states):
        trained = zero.trained(model)
        is_right = is_right and sum(states) >= trained and max(states) < trained
        said += f" and the optimiser's state of {states} of {trained}"
    if {name for name, _, _ in counts} != {KINDS[ranks.engine]} or world != ranks.size or not is_right:
        raise ModelError(
            f"engine {ranks.engine} of {ranks.size} processes became {counts[0][0]}, {said}; this is an error in oodles"
            " or in the engine"
        )
    return f"engine {ranks.engine}: {KINDS[ranks.engine]}, {said}"


def held_parameters(model: nn.Module) -> int:
    """Return the number of parameters in this process."""
    return sum(_held(parameter).numel() for parameter in model.parameters())


def _held(parameter: Any) -> torch.Tensor:
    held: torch.Tensor = parameter.to_local() if hasattr(parameter, "to_local") else parameter
    return getattr(parameter, "ds_tensor", held)


# what is kept of a sharded model


def whole_adapter(model: nn.Module) -> dict[str, torch.Tensor] | None:
    """Gather the trained weights of a sharded model, and nothing else of it; None if every process has them."""
    if not is_sharded(model):
        return None
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    if zero.engine_of(model) is not None:
        return zero.whole_weights(trained)
    return {name: _whole(p.detach()) for name, p in trained.items()}


def whole_state(state: Mapping[str, Any]) -> dict[str, Any]:
    """Gather the state of an optimiser, as it is in one process."""
    per_weight = {
        number: {key: _whole(value) for key, value in values.items()} for number, values in state["state"].items()
    }
    return {**state, "state": per_weight}


def split_state(state: Mapping[str, Any], optimiser: torch.optim.Optimizer) -> dict[str, Any]:
    """Split the state of an optimiser like the weights that it belongs to."""
    weights = [weight for group in optimiser.param_groups for weight in group["params"]]
    per_weight = {
        number: {key: _split(value, weights[number]) for key, value in values.items()}
        for number, values in state["state"].items()
    }
    return {**state, "state": per_weight}


def load_adapter(model: Any, weights: Mapping[str, torch.Tensor], ranks: Ranks) -> None:
    """Put the whole weights of a kept adapter into a sharded model."""
    part = f".{model.active_adapters[0]}."  # in the names of the weights, but not in those of the file
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        value = weights[name.replace(part, ".")]
        with torch.no_grad():
            if ranks.engine == "zero3":
                zero.put_weight(parameter, value, ranks)
            else:
                parameter.to_local().copy_(_split(value, parameter).to_local())


def _whole(value: Any) -> Any:
    return value.full_tensor().cpu() if hasattr(value, "full_tensor") else value


def _split(value: Any, like: Any) -> Any:
    from torch.distributed.tensor import distribute_tensor

    if not isinstance(value, torch.Tensor) or value.shape != like.shape or not hasattr(like, "device_mesh"):
        return value
    return distribute_tensor(value.to(like.to_local().device), like.device_mesh, like.placements)
