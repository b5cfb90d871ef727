"""GPUs with their published specifications, and the hours that an amount of arithmetic takes on them.

Hours are an estimate: the arithmetic at an assumed share of the published rate. The assumed share is 35 %, with a range
of 20 to 50 %. Meta trained OPT-175B at 147 TFLOP/s per A100, 47 % of the rate (Zhang et al. 2022, arXiv 2205.01068),
with large batches on many devices. LoRA on batches of 32 short prompts reaches less.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

ASSUMED = (0.20, 0.35, 0.50)  # share of the published rate: low, assumed, high
USABLE = 0.9  # usable share of a device's memory; the rest is for the driver, the libraries and the allocator
HALF = ("bf16", "fp16")  # the precisions of the published rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """The published specification of a GPU."""

    name: str
    memory: int  # bytes
    rate: float  # operations per second of dense matrix products in bf16 or fp16
    source: str


# NVIDIA's data sheets state the rates with sparsity, twice as high: 222.2, 309.7, 624 and 1,979 TFLOP/s.
DEVICES = (
    Device(name="A5000", memory=24 * 2**30, rate=111.1e12, source="NVIDIA RTX A5000 data sheet"),
    Device(name="A6000", memory=48 * 2**30, rate=154.8e12, source="NVIDIA RTX A6000 data sheet"),
    Device(name="A100", memory=80 * 2**30, rate=312e12, source="NVIDIA A100 80 GB data sheet"),
    Device(name="H100", memory=80 * 2**30, rate=989.4e12, source="NVIDIA H100 SXM data sheet"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The demand of a run on a GPU."""

    model: str
    arithmetic: float
    memory: int  # peak bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Hours:
    """Hours of one kind of GPU for all runs."""

    device: Device
    hours: float  # at the assumed share of the rate
    low: float
    high: float
    fitting: float  # hours of the runs that fit on one device
    too_large: Mapping[str, int]  # model -> number of runs that do not fit

    @property
    def name(self) -> str:
        return self.device.name


def hours_on(device: Device, loads: Iterable[Load]) -> Hours:
    """Return the hours of a device for some runs; a model that does not fit is counted anyway, and named.

    >>> load = Load(model="m", arithmetic=312e12 * 3600 * 0.35, memory=100 * 2**30)
    >>> needed = hours_on(DEVICES[2], [load])
    >>> round(needed.hours, 3), needed.fitting, dict(needed.too_large)
    (1.0, 0.0, {'m': 1})
    """
    listed = list(loads)
    slow, assumed, fast = (_hours(device, listed, share) for share in ASSUMED)
    room = [load for load in listed if _fits(device, load)]
    return Hours(
        device=device,
        hours=assumed,
        low=fast,
        high=slow,
        fitting=_hours(device, room, ASSUMED[1]),
        too_large=Counter(load.model for load in listed if not _fits(device, load)),
    )


def _hours(device: Device, loads: Sequence[Load], share: float) -> float:
    return math.fsum(load.arithmetic for load in loads) / (device.rate * share) / 3600


def _fits(device: Device, load: Load) -> bool:
    return load.memory <= USABLE * device.memory
