"""A pod with pretended GPUs for each test that asks for one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import gpu_pod as pods
import pytest

from oarlock_local import nvml

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def gpu_pod(tmp_path: Path) -> Iterator[pods.GpuPod]:
    if reason := nvml.why_no_library():
        pytest.skip(reason)
    yield pods.create(tmp_path)
    pods.end_monitors()
