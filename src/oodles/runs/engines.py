"""Engines: how several processes share a run's model. `ddp` copies it to each, `fsdp2` gives each a part of it.

Both are torch's own: DistributedDataParallel and fully_shard. They work on the calls of one module, while oodles calls
parts of a model (its layers without the head, rows of the head). Therefore the model is put into a module whose forward
calls any function: `forward.inside` runs a function there, where gradients are averaged over the processes, and the
weights that a sharded model keeps outside its layers are whole. Layers gather their own weights, one layer at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from oodles.errors import ModelError
from oodles.model.forward import ENTRY, causal_lm, is_sharded
from oodles.runs.ranks import Ranks


class Calls(nn.Module):  # type: ignore[misc]
    """A model whose forward calls a function, which uses the model."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, call: Callable[[], Any]) -> Any:
        """Call the function."""
        return call()


def share_model(model: Any, ranks: Ranks, checkpoint: Path | None = None) -> str:
    """Share a model among the processes, with the adapter of a checkpoint; return a description of what each holds."""
    if ranks.alone:
        return ""
    if checkpoint is not None and not next(model.parameters()).is_meta:
        model.load_adapter(checkpoint, model.active_adapters[0], is_trainable=True)
    entry = _sharded(model, ranks) if ranks.engine == "fsdp2" else _copied(model)
    vars(model)[ENTRY] = entry  # not as a submodule: the entry holds the model
    return _described(model, entry, ranks)


def _copied(model: nn.Module) -> nn.Module:
    return nn.parallel.DistributedDataParallel(Calls(model))


def _sharded(model: Any, ranks: Ranks) -> nn.Module:
    """Shard the layers one after the other, then the rest; the first process alone needs the weights."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    mesh = init_device_mesh(device.type, (ranks.size,))
    kinds = set(getattr(causal_lm(model), "_no_split_modules", None) or ())
    layers = [module for module in model.modules() if type(module).__name__ in kinds]
    if not layers:
        raise ModelError(f"{type(causal_lm(model)).__name__} does not name its layers, so fsdp2 cannot shard it")
    for layer in layers:
        _fill(layer, device, ranks)
        fully_shard(layer, mesh=mesh)
    entry: nn.Module = Calls(model)
    _fill(entry, device, ranks)
    fully_shard(entry, mesh=mesh, reshard_after_forward=True)
    return entry


def _fill(module: nn.Module, device: torch.device, ranks: Ranks) -> None:
    """Move a module's weights to the device, and send those of the first process to the others, which have none."""
    made: dict[int, Any] = {}  # weights that two modules share stay shared
    for inner in module.modules():
        for held in (inner._parameters, inner._buffers):
            for name, tensor in held.items():
                if tensor is None or hasattr(tensor, "full_tensor"):
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


def _described(model: nn.Module, entry: nn.Module, ranks: Ranks) -> str:
    """Say what the engine is and what each process holds; refuse an engine that is not what it is called."""
    import torch.distributed as dist

    world = dist.get_world_size()
    counts = ranks.gathered((type(entry).__name__, held_parameters(model)))
    whole = sum(parameter.numel() for parameter in model.parameters())
    kind = "FSDPCalls" if ranks.engine == "fsdp2" else "DistributedDataParallel"
    held = [count for _, count in counts]
    is_right = sum(held) >= whole and max(held) < whole if ranks.engine == "fsdp2" else set(held) == {whole}
    if {name for name, _ in counts} != {kind} or world != ranks.size or not is_right:
        raise ModelError(
            f"engine {ranks.engine} of {ranks.size} processes became {counts[0][0]} of {world}, with {held} of {whole}"
            " parameters each; this is an error in oodles or torch"
        )
    return f"engine {ranks.engine}: {kind}, {world} processes, which hold {held} of {whole} parameters"


def held_parameters(model: nn.Module) -> int:
    """Return the number of parameters in this process."""
    return sum(p.to_local().numel() if hasattr(p, "to_local") else p.numel() for p in model.parameters())


# what is kept of a sharded model


def whole_adapter(model: nn.Module) -> dict[str, torch.Tensor] | None:
    """Gather the trained weights of a sharded model, and nothing else of it; None if every process has them."""
    if not is_sharded(model):
        return None
    return {name: _whole(p.detach()) for name, p in model.named_parameters() if p.requires_grad}


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


def load_adapter(model: Any, weights: Mapping[str, torch.Tensor]) -> None:
    """Put the whole weights of a kept adapter into a sharded model."""
    part = f".{model.active_adapters[0]}."  # in the names of the weights, but not in those of the file
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            with torch.no_grad():
                parameter.to_local().copy_(_split(weights[name.replace(part, ".")], parameter).to_local())


def _whole(value: Any) -> Any:
    return value.full_tensor().cpu() if hasattr(value, "full_tensor") else value


def _split(value: Any, like: Any) -> Any:
    from torch.distributed.tensor import distribute_tensor

    if not isinstance(value, torch.Tensor) or value.shape != like.shape or not hasattr(like, "device_mesh"):
        return value
    return distribute_tensor(value.to(like.to_local().device), like.device_mesh, like.placements)
