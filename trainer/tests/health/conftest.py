"""A pod with pretended GPUs for each test that asks for one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from oarlock_local import nvml

sys.path.insert(0, str(Path(__file__).parent / "support"))

import gpu_pod as pods

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def gpu_pod(tmp_path: Path) -> Iterator[pods.GpuPod]:
    if reason := nvml.why_no_library():
        pytest.skip(reason)
    yield pods.create(tmp_path)
    pods.end_monitors()
