"""A state in memory for which there is little room: it is given up as a whole, and training goes on."""

from __future__ import annotations

import errno
import math
import os
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from remembering import alone, remember, settle, step

from oarlock_trainer.checkpoint.memory.held import steps_of
from oarlock_trainer.checkpoint.memory.room import Room, lacking


def test_too_little_room_is_said_in_one_sentence_and_nothing_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1))
    memory = remember(tmp_path)
    assert step(memory, 1) == (-math.inf, 0.0, 0.0)
    said = capsys.readouterr().err
    assert said.startswith(
        "no state is kept in the nodes' memory, a restart takes the newest checkpoint: node n1 has 0.0 GB"
    )
    assert said.endswith("raise spec.pod.sharedMemory\n")
    assert not tmp_path.exists()


def test_a_folder_that_is_full_gives_all_back_and_training_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    allocate = os.posix_fallocate
    calls: list[int] = []

    def full(*arguments: int) -> None:
        calls.append(arguments[0])
        if len(calls) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        allocate(*arguments)

    monkeypatch.setattr(os, "posix_fallocate", full)
    memory = remember(tmp_path)
    assert step(memory, 1) == (-math.inf, 0.0, 0.0)
    assert step(memory, 2) == (-math.inf, 0.0, 0.0)
    assert capsys.readouterr().err.count(f"{tmp_path}: No space left on device: raise spec.pod.sharedMemory\n") == 1
    assert not tmp_path.exists()


def test_a_manifest_for_which_there_is_no_room_ends_it_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    memory = remember(tmp_path)
    step(memory, 1)

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    settle(memory)
    monkeypatch.setattr(memory._files, "complete", full)
    assert step(memory, 2) == (1.0, 1.0, 1.0)
    assert step(memory, 3) == (-math.inf, 0.0, 0.0)
    assert "No space left on device" in capsys.readouterr().err
    assert not tmp_path.exists()


def test_where_another_rank_gives_up_this_one_does_without_a_word(tmp_path: Path, capsys: Any) -> None:
    memory = remember(tmp_path)
    step(memory, 1)
    assert step(memory, 2, told=(-math.inf, 0.0, 0.0)) == (1.0, 1.0, 1.0)
    assert memory.told(3) == (-math.inf, 0.0, 0.0)
    assert not tmp_path.exists()
    assert capsys.readouterr().err == ""


def test_no_state_is_taken_before_all_ranks_are_ready(tmp_path: Path) -> None:
    ranks = alone(0, 2)
    memory = remember(tmp_path, ranks=ranks)
    step(memory, 1, told=(1.0, 1.0, 1.0))
    step(memory, 2, told=(2.0, 0.0, 2.0))
    assert memory._writing is None
    step(memory, 3, told=(2.0, 1.0, 2.0))
    settle(memory)
    assert steps_of(tmp_path, 0) == [3]


def test_only_rank_0_tells_that_a_state_is_due(tmp_path: Path) -> None:
    assert remember(tmp_path, ranks=alone(1, 2)).told(1) == (1.0, 0.0, 1.0)


def test_a_node_lacks_what_all_its_ranks_need_more() -> None:
    has = Room("", folder=40, memory=100, needs=10, has=0)
    assert lacking([has] * 4, ranks_per_node=2) == ""
    small = replace(has, folder=39)
    assert "the node of rank 2 has 0.0 GB free in /dev/shm" in lacking([has, has, small, small], ranks_per_node=2)
    there = replace(small, has=1)
    assert lacking([has, has, there, there], ranks_per_node=2) == ""
    poor = replace(has, memory=59)
    assert "raise spec.pod.resources.limits.memory" in lacking([poor, poor], ranks_per_node=2)


def test_with_a_ring_a_node_needs_room_for_the_state_of_the_node_before_it_too() -> None:
    has = Room("", folder=40, memory=100, needs=10, has=0)
    large = Room("", folder=1000, memory=1000, needs=15, has=0)
    assert lacking([has, has], ranks_per_node=1, ring=True) == ""
    words = lacking([has, large], ranks_per_node=1, ring=True)
    assert words.startswith("the node of rank 0")
    assert "and of another node's need" in words
    assert lacking([replace(has, has=10), large], ranks_per_node=1, ring=True) == ""
    assert lacking([has, large], ranks_per_node=1) == ""


def test_the_end_of_training_gives_the_memory_back(tmp_path: Path) -> None:
    memory = remember(tmp_path)
    step(memory, 1)
    memory.close()
    assert not tmp_path.exists()
