"""The processes that make a run together, and what they agree on. A process alone agrees with itself.

Each process has the same Trainer with the same batches, computes its share of every batch and of every test set, and
comes to the same weights. The first one decides whatever depends on the clock or the disk, and it alone writes.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from oodles.contracts import EngineName

if TYPE_CHECKING:
    import torch

PATIENCE = timedelta(minutes=30)  # in which every process must come to a common operation; loading a model counts

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """The place of this process among those that make a run."""

    engine: EngineName = "single"
    rank: int = 0
    size: int = 1
    settings: str = ""  # of DeepSpeed, as JSON

    @property
    def splits_weights(self) -> bool:
        """Whether each process holds only a part of the model's weights."""
        return self.engine in ("fsdp2", "zero3")

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    @property
    def alone(self) -> bool:
        return self.size == 1

    def from_first(self, decide: Callable[[], T]) -> T:
        """Let the first process decide; all get its answer."""
        if self.alone:
            return decide()
        import torch
        import torch.distributed as dist

        held: list[Any] = [decide() if self.is_first else None]
        dist.broadcast_object_list(held, src=0, device=torch.device("cpu"))
        return held[0]  # type: ignore[no-any-return]

    def largest(self, number: int) -> int:
        """Return the largest of the numbers that the processes have."""
        if self.alone:
            return number
        import torch
        import torch.distributed as dist

        tensor = torch.tensor(number)
        dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
        return int(tensor)

    def mean(self, value: torch.Tensor) -> torch.Tensor:
        """Return the mean over the processes."""
        if self.alone:
            return value
        import torch.distributed as dist

        total = value.detach().clone()
        dist.all_reduce(total)
        return total / self.size

    def gathered(self, value: T) -> list[T]:
        """Return the values of all processes, by rank."""
        if self.alone:
            return [value]
        import torch.distributed as dist

        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values


ALONE = Ranks()


def join(ranks: Ranks, store: torch.distributed.Store) -> None:
    """Make the process group: NCCL between GPUs, gloo for everything else."""
    import torch
    import torch.distributed as dist

    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend, store=store, rank=ranks.rank, world_size=ranks.size, timeout=PATIENCE)


def part() -> None:
    """Leave the process group, if there is one."""
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        with suppress(RuntimeError):  # another process is gone
            dist.destroy_process_group()
