"""What rank 0 tells its agent of the state in memory."""

from __future__ import annotations

import shutil
from datetime import datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from remembering import alone, one_of_nodes, remember, step

from oarlock_api.contract.status import Degradation
from oarlock_trainer.checkpoint.memory.held import manifest_name
from oarlock_trainer.runtime import channel
from oarlock_trainer.runtime.channel import Event

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    """Event and fields of what was told."""
    told: list[tuple[str, dict[str, Any]]] = []
    monkeypatch.setattr(channel, "send", lambda event, **fields: told.append((event, fields)))
    return told


def of_kind(sent: list[tuple[str, dict[str, Any]]], event: Event) -> list[dict[str, Any]]:
    return [fields for kind, fields in sent if kind == event]


def test_a_state_is_told_once_it_is_whole_and_since_when(tmp_path: Path, sent: Any) -> None:
    memory = remember(tmp_path)
    step(memory, 1)
    assert not of_kind(sent, Event.MEMORY)
    step(memory, 2)
    (told,) = of_kind(sent, Event.MEMORY)
    assert told["step"] == 1
    assert datetime.fromisoformat(told["savedAt"]).tzinfo
    assert "copied" not in told


def test_it_is_told_whether_all_nodes_have_their_copies_and_again_once_they_do(tmp_path: Path, sent: Any) -> None:
    memory = remember(tmp_path, ring=True, ranks=one_of_nodes(0, 2))
    memory.told(0)
    step(memory, 1, told=(2.0, 1.0, 2.0))
    memory._writing.wait(None)  # type: ignore[union-attr]
    memory.told(2)
    (tmp_path / manifest_name(1, 1, world=2)).touch()
    for number, copies in ((2, 1.0), (3, 1.0), (4, 2.0), (5, 2.0)):
        step(memory, number, told=(2.0, 0.0, copies))
    assert [(told["step"], told["copied"]) for told in of_kind(sent, Event.MEMORY)] == [(1, False), (1, True)]
    late, over = of_kind(sent, Event.DEGRADED)
    assert late["reason"] == over["reason"] == Degradation.MEMORY_NOT_COPIED
    assert "status port" in late["message"]
    assert over["message"] == ""


def test_that_no_state_is_kept_degrades_the_job_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: Any
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1))
    remember(tmp_path)
    (told,) = of_kind(sent, Event.DEGRADED)
    assert told["reason"] == Degradation.MEMORY_OFF
    assert told["message"].endswith("raise spec.pod.sharedMemory")


def test_rank_0_tells_of_what_failed_in_another_pod(tmp_path: Path, sent: Any) -> None:
    memory = remember(tmp_path)
    step(memory, 1)
    step(memory, 2, told=(float("-inf"), 0.0, 0.0))
    (told,) = of_kind(sent, Event.DEGRADED)
    assert told["message"].endswith("another pod's memory failed, and its log says why")


def test_other_ranks_tell_nothing_and_the_end_of_training_is_no_fault(tmp_path: Path, sent: Any) -> None:
    memory = remember(tmp_path, ranks=alone(1, 2))
    step(memory, 1, told=(2.0, 1.0, 2.0))
    step(memory, 2, told=(2.0, 0.0, 2.0))
    memory.close()
    remember(tmp_path).close()
    assert sent == []
