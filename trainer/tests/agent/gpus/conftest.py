"""A pod with pretended GPUs for each test that asks for one; its monitor is ten times as fast as the one that ships."""

from __future__ import annotations

from typing import TYPE_CHECKING

import gpu_pod as pods
import pytest

from oarlock_local import nvml
from oarlock_trainer.agent.gpus import gpu_health

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def gpu_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[pods.GpuPod]:
    if reason := nvml.why_no_library():
        pytest.skip(reason)
    monkeypatch.setattr(gpu_health, "MONITOR", "hurried_monitor")
    yield pods.create(tmp_path)
    pods.end_monitors()
