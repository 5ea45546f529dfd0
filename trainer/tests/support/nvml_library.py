"""The pretended NVML of the trainer's tests: oarlock-local's, skipped where it can't be built."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from oarlock_local import nvml

if TYPE_CHECKING:
    from pathlib import Path


def build(folder: Path) -> Path:
    """Put libnvidia-ml.so.1 into a folder; skips the test where nothing compiles C."""
    if reason := nvml.why_no_library():
        pytest.skip(reason)
    return nvml.install(folder)
