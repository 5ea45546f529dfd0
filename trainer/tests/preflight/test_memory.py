"""Whether a node's memory holds its ranks' state: a warning, by the size of the model's files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from oarlock_trainer.preflight import memory

if TYPE_CHECKING:
    from pathlib import Path

GB = 10**9


@pytest.mark.parametrize(
    ("copies", "free", "left", "said"),
    [
        (False, 20, 30, ""),
        (False, 19, 30, "two generations of its ranks' state need about 20.0 GB: raise spec.pod.sharedMemory"),
        (True, 40, 50, ""),
        (True, 39, 50, "and of another node's need about 40.0 GB: raise spec.pod.sharedMemory"),
        (False, 20, 29, "the copy for checkpoints need about 30.0 GB: raise spec.pod.resources.limits.memory"),
    ],
)
def test_a_node_needs_two_generations_as_many_of_another_and_the_copy_for_checkpoints(
    copies: Any, free: int, left: int, said: str
) -> None:
    found = memory.judge(10 * GB, copies=copies, free=free * GB, memory=left * GB)
    assert said in found
    assert bool(found) == bool(said)


def model(folder: Path, size: int) -> str:
    """Whose weights take so many bytes, and nothing of the disk."""
    (folder / "transformer").mkdir()
    with (folder / "transformer/diffusion.safetensors").open("wb") as file:
        file.truncate(size)
    return str(folder)


def test_a_state_that_no_node_holds_is_a_warning_that_says_what_follows_and_stops_nobody(tmp_path: Path) -> None:
    found = memory.find(
        directory=model(tmp_path, 10**13), values=3, nodes=2, folder=str(tmp_path), copies=True, node="node-7"
    )
    assert (found.check, found.result, found.code) == ("memory", "Warning", 0)
    assert found.detail.startswith("memory: node node-7 has ")
    # 10^13 bytes of bfloat16, three float32 values of each, on two nodes, twice, and as much of the other one
    assert "need about 120000.0 GB: raise spec.pod.sharedMemory, or recovery.memory will keep nothing" in found.detail


def test_a_state_that_fits_passes_and_a_model_that_is_not_there_yet_is_not_judged(tmp_path: Path) -> None:
    small = memory.find(directory=model(tmp_path, 1000), values=3, nodes=1, folder=str(tmp_path), copies=False)
    assert small.result == "Passed"
    absent = memory.find(directory=str(tmp_path / "no"), values=3, nodes=1, folder=str(tmp_path), copies=False)
    assert (absent.result, absent.code) == ("NotSupported", 0)
