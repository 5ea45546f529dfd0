"""Types of GPUs by name: what fits into them, and how fast they move data.

The memory is what a run may plan with, nine tenths of what the driver shows: the CUDA context, NCCL's buffers, what the
allocator cannot use, and headroom for what the model does not know are off it already. Bandwidths in bytes/s from
NVIDIA's data sheets; `nvlink` is the bus bandwidth that nccl-tests reaches on 8 of them (H100: 430 to 480 GB/s are
published), for other types in proportion to their NVLink.
"""

from __future__ import annotations

from dataclasses import dataclass

from oarlock_trainer.runtime.errors import ConfigurationError

_USABLE_SHARE = 0.9
"""An H100 of 80 GB shows 85.5e9 bytes, of which 77e9 are planned with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One type: usable memory in bytes, bandwidths in bytes/s, dense bf16 peak by flops.peak_flops(name)."""

    name: str
    memory: int
    memory_bandwidth: float
    nvlink: float
    has_fp8: bool = True
    device: tuple[str, ...] = ()
    """Parts of the name that the driver gives it."""


_TYPES = (
    Gpu(
        name="A100-40GB",
        memory=38 * 10**9,
        memory_bandwidth=1.56e12,
        nvlink=287e9,
        has_fp8=False,
        device=("A100", "40GB"),
    ),
    Gpu(
        name="A100-80GB",
        memory=77 * 10**9,
        memory_bandwidth=2.04e12,
        nvlink=287e9,
        has_fp8=False,
        device=("A100", "80GB"),
    ),
    Gpu(name="H100", memory=77 * 10**9, memory_bandwidth=3.35e12, nvlink=430e9, device=("H100", "80GB")),
    Gpu(name="H200", memory=135 * 10**9, memory_bandwidth=4.8e12, nvlink=430e9, device=("H200",)),
    Gpu(name="B200", memory=173 * 10**9, memory_bandwidth=8.0e12, nvlink=860e9, device=("B200",)),
)
ASSUMED = "H100"


def gpu(name: str) -> Gpu:
    """The type of this name, in upper or lower case. Raises ConfigurationError that lists those that are known."""
    for one in _TYPES:
        if one.name.lower() == name.lower():
            return one
    raise ConfigurationError(f"--gpu {name} is no type that is known here: {', '.join(one.name for one in _TYPES)}")


def gpu_of_device(device: str) -> Gpu | None:
    """The type of a device, by the name that its driver gives it; None where it is not known."""
    return next((one for one in _TYPES if all(part in device for part in one.device)), None)


def larger(than: int) -> list[Gpu]:
    """Types with more usable memory than `than` bytes, the smallest first."""
    return sorted((one for one in _TYPES if one.memory > than), key=lambda one: one.memory)


def shown_bytes(usable: int) -> int:
    """What the driver shows of a GPU with so many usable bytes."""
    return int(usable / _USABLE_SHARE)


def usable_bytes(total: int) -> int:
    """Of a GPU's memory as the driver tells it, what a run may plan with."""
    return int(total * _USABLE_SHARE)
