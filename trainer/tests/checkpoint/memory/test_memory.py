"""One rank's state in its node's memory: what counts, and what is kept."""

from __future__ import annotations

import math
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from remembering import alone, found, one_of_nodes, remember, settle, step, values
from saving import POSITION, Plain

from oarlock_local.pytest_tiers import quick_first
from oarlock_trainer.checkpoint.load import load
from oarlock_trainer.checkpoint.memory.held import manifest_name, state_name, steps_of

if TYPE_CHECKING:
    from forked import Forks


SUPPORT = Path(__file__).parents[2] / "support"


def test_a_state_comes_back_as_it_was(tmp_path: Path) -> None:
    folder = tmp_path / "memory"
    memory = remember(folder)
    step(memory, 5)
    settle(memory)
    kept = found(folder, 5)
    assert kept is not None
    assert (kept.in_memory, kept.step, kept.manifest.data) == (True, 5, POSITION)
    again = Plain(filled=-1.0)
    again.updates = 0
    load(kept, again)
    assert values(again) == values(Plain())
    assert again.updates == 3


def held_by_this_process(folder: Path) -> list[str]:
    """Descriptors and maps of what lies, or lay, in the folder."""
    opened = [str(each.readlink()) for each in Path("/proc/self/fd").iterdir() if each.is_symlink()]
    return [line for line in (*opened, *Path("/proc/self/maps").read_text().splitlines()) if str(folder) in line]


def test_memory_that_is_given_back_is_free_at_once(tmp_path: Path) -> None:
    folder = tmp_path / "memory"
    memory = remember(folder)
    step(memory, 5)
    assert held_by_this_process(folder)
    memory.close()
    assert held_by_this_process(folder) == []


def test_only_whoever_trains_can_read_it(tmp_path: Path) -> None:
    folder = tmp_path / "memory"
    step(remember(folder), 5)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o077 for path in folder.glob("*.state")} == {0}


def test_the_newest_whole_state_is_never_written_over(tmp_path: Path) -> None:
    memory = remember(tmp_path)
    for number in range(1, 8):
        step(memory, number)
        assert number == 1 or number - 1 in steps_of(tmp_path, 0)
    settle(memory)
    assert steps_of(tmp_path, 0) == [7, 6]
    assert len(list(tmp_path.glob("*.state"))) == 2
    assert all(found(tmp_path, number) for number in (6, 7))


def test_a_state_counts_only_once_it_is_hashed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = remember(tmp_path)
    before: list[list[int]] = []
    complete = memory._files.complete

    def seen(*arguments: Any, **more: Any) -> None:
        before.append(steps_of(tmp_path, 0))
        complete(*arguments, **more)

    monkeypatch.setattr(memory._files, "complete", seen)
    for number in (1, 2, 3):
        step(memory, number)
    settle(memory)
    assert before == [[], [1], [2]]


def test_with_a_ring_no_state_is_written_over_before_the_node_has_the_same_step_of_the_node_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = remember(tmp_path, ring=True, ranks=one_of_nodes(0, 2))
    everybody = (2.0, 1.0, 2.0)
    memory.told(0)
    step(memory, 1, told=everybody)
    settle(memory)
    assert steps_of(tmp_path, 0) == [1]
    assert memory.told(2)[0] == 0.0
    (tmp_path / manifest_name(1, 1, world=2)).touch()
    assert memory.told(2)[0] == 1.0
    step(memory, 2, told=everybody)
    settle(memory)
    assert memory.told(3)[0] == 0.0
    monkeypatch.setattr(memory, "_whole_at", -1e6)  # the ring does not come so far
    assert memory.told(3)[0] == 1.0


def test_where_the_ring_does_not_come_so_far_that_is_said_once_and_no_further_state_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    memory = remember(tmp_path, ring=True, ranks=one_of_nodes(1, 3))
    everybody = (3.0, 1.0, 3.0)
    memory.told(0)
    step(memory, 1, told=everybody)
    settle(memory)
    assert memory.told(2)[0] == 0.0
    monkeypatch.setattr(memory, "_whole_at", -1e6)
    assert memory.told(2)[0] == 1.0
    said = capsys.readouterr().err
    assert said.startswith("the state in memory of pod 0 of the gang is not copied to pod 1 of the gang within 120 s")
    assert "the newest checkpoint" in said
    assert "spec.recovery.memory.everySteps" in said
    step(memory, 2, told=everybody)
    settle(memory)
    assert memory.told(3)[0] == 1.0
    (tmp_path / manifest_name(2, 0, world=1)).touch()  # by the agent: it works again
    assert memory.told(3)[0] == 1.0
    step(memory, 3, told=everybody)
    settle(memory)
    assert memory.told(4)[0] == 0.0
    monkeypatch.setattr(memory, "_whole_at", -1e6)
    assert memory.told(4)[0] == 1.0
    assert capsys.readouterr().err == ""


def test_whoever_gives_its_state_up_gives_back_the_copies_of_the_node_before_too(tmp_path: Path) -> None:
    folder = tmp_path / "memory"
    memory = remember(folder, ring=True, ranks=one_of_nodes(0, 2))
    memory.told(0)
    (folder / manifest_name(1, 1, world=2)).touch()
    (folder / state_name(1, 0)).touch()
    memory.close()
    assert not folder.exists()


@pytest.mark.parametrize("moment", quick_first(["counting", "hashing", "copying"]))
def test_killed_in_the_midst_a_rank_leaves_nothing_that_counts_and_the_state_before(
    forks: Forks, tmp_path: Path, moment: str
) -> None:
    killed = forks(SUPPORT / "killed_in_memory.py", tmp_path, moment)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert steps_of(tmp_path, 0) == [1]
    kept = found(tmp_path, 1)
    assert kept is not None
    again = Plain(filled=-1.0)
    load(kept, again)
    assert values(again) == values(Plain())


def test_what_a_rank_did_not_go_on_from_counts_no_longer(tmp_path: Path) -> None:
    first = remember(tmp_path)
    for number in (1, 2):
        step(first, number)
    settle(first)
    remember(tmp_path, keep=1)
    assert steps_of(tmp_path, 0) == [1]
    remember(tmp_path)
    assert steps_of(tmp_path, 0) == []


def test_the_state_that_a_rank_went_on_from_stays_until_there_is_a_newer_one(tmp_path: Path) -> None:
    first = remember(tmp_path)
    for number in (1, 2):
        step(first, number)
    settle(first)
    for keep in (2, 3):
        again = remember(tmp_path, keep=keep)
        step(again, keep + 1)
        assert keep in steps_of(tmp_path, 0)
        settle(again)
        assert found(tmp_path, keep + 1)


def test_what_a_kill_left_half_written_is_removed(tmp_path: Path) -> None:
    left = tmp_path / f".tmp-{manifest_name(3, 0, world=1)}-0123"
    others = tmp_path / f".tmp-{manifest_name(3, 1, world=1)}-0123"
    for path in (left, others):
        path.touch()
    remember(tmp_path, ranks=alone(0, 2), engine=Plain(rank=0, ranks=2))
    assert not left.exists()
    assert others.exists()


def test_a_folder_of_somebody_else_is_not_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    memory = remember(tmp_path)
    assert memory.told(1) == (-math.inf, 0.0, 0.0)
    assert "it belongs to somebody else" in capsys.readouterr().err


def test_a_link_in_the_folder_s_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "memory").symlink_to(tmp_path / "elsewhere")
    memory = remember(tmp_path / "memory")
    assert memory.told(1) == (-math.inf, 0.0, 0.0)
    assert not list((tmp_path / "elsewhere").iterdir())
