"""Whether a node's NVIDIA driver is new enough for the CUDA that this image's torch was built with."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

_LEAST = {12: 525, 13: 580}
"""CUDA's major version -> the first branch of drivers that runs it, on Linux: "CUDA Compatibility", docs.nvidia.com."""
_CUDA = re.compile(r"^cuda(?::[^=]*)? = '([0-9.]+)'$", re.MULTILINE)


def torch_cuda() -> str:
    """The CUDA of this interpreter's torch, such as `13.0`, without importing it; empty where it has none."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return ""
    try:
        found = _CUDA.search(Path(spec.origin).with_name("version.py").read_text(encoding="utf-8"))
    except OSError:
        return ""
    return found[1] if found else ""


def too_old(driver: str, cuda: str, *, runs: int | None) -> str:
    """Why a driver such as `550.90.07` can't run this CUDA, and what to do; empty where it can, or that is not known. Pure.

    `runs`: the CUDA that the driver's library runs, as NVML tells it (13000 = 13.0), None where it does not. A compatibility
    package in the image makes that newer than the driver itself.
    """
    branch, major = (int(text.partition(".")[0] or 0) if text[:1].isdigit() else 0 for text in (driver, cuda))
    least = _LEAST.get(major, 0)
    if not branch or branch >= least or (runs or 0) // 1000 >= major:
        return ""
    return (
        f"the driver {driver} is too old for this image's CUDA {cuda}, which needs {least} or newer: update the node's "
        "driver (of NVIDIA's GPU Operator: driver.version), or build the image with TORCH_BACKEND for an older CUDA "
        "(docs/images.md)"
    )
