"""One rank's state in its node's memory: what counts, what is kept, and what happens when there is no room."""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from remembering import Facts, alone, one_of_nodes, remember, step
from saving import POSITION, Alone, Plain

from oarlock_trainer.checkpoint.format import parse_manifest
from oarlock_trainer.checkpoint.load import load
from oarlock_trainer.checkpoint.memory import files as module
from oarlock_trainer.checkpoint.memory.files import RankFiles
from oarlock_trainer.checkpoint.memory.held import Held, held, manifest_name, state_name, steps_of
from oarlock_trainer.checkpoint.memory.resume import resume
from oarlock_trainer.checkpoint.memory.room import Room, lacking

if TYPE_CHECKING:
    from collections.abc import Callable

    from forked import Forks

    from oarlock_trainer.checkpoint.format import Checkpoint

SUPPORT = Path(__file__).parents[2] / "support"


def found(folder: Path, number: int, *, job: Any = None) -> Checkpoint | None:
    return resume(job or Facts(), Alone(), folder, number)  # type: ignore[arg-type]


def values(engine: Plain) -> list[list[float]]:
    return [part.values.tolist() for part in engine.parts()]


def settle(memory: Any) -> None:
    """Wait until the newest state is whole."""
    memory._writing.wait(None)


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


@pytest.mark.parametrize("moment", ["copying", "hashing", "counting"])
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


# When memory is short


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


# Going on


def test_a_damaged_part_is_not_gone_on_from_and_all_say_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    memory = remember(tmp_path)
    step(memory, 5)
    settle(memory)
    state = next(path for path in tmp_path.glob("*.state") if path.name.endswith("-0.state"))
    content = bytearray(state.read_bytes())
    content[17] ^= 1
    state.write_bytes(content)
    assert found(tmp_path, 5) is None
    said = capsys.readouterr().err
    assert "can't be gone on from, so the newest checkpoint is: rank 0's part of step 5 is damaged" in said


@pytest.mark.parametrize("job", [Facts("another"), Facts(attempt=2)])
def test_what_another_attempt_kept_is_not_gone_on_from(tmp_path: Path, job: Facts) -> None:
    memory = remember(tmp_path)
    step(memory, 5)
    settle(memory)
    assert found(tmp_path, 5, job=job) is None
    assert found(tmp_path, 5) is not None


def test_a_part_that_is_missing_or_torn_is_not_gone_on_from(tmp_path: Path) -> None:
    assert found(tmp_path, 5) is None
    (tmp_path / manifest_name(5, 0, world=1)).write_text('{"version": 2, "step"')
    assert found(tmp_path, 5) is None
    assert held(tmp_path, ranks_per_node=1) == (Held(5, 1, (0,)),)  # the hash is for whoever loads


class Heard(Alone):
    """Rank 0, and what the others tell."""

    def __init__(self, *others: Any) -> None:
        super().__init__(alone(0, 1 + len(others)).rank_info)
        self.others = others

    def gather(self, value: Any) -> list[Any]:
        return [value, *self.others]


def test_one_rank_that_has_nothing_keeps_all_others_from_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ranks = Heard(Room("n1", 1 << 40, 1 << 40, 1, 0))
    memory = remember(tmp_path, ranks=ranks, engine=Plain(rank=0, ranks=2))
    step(memory, 5, told=(2.0, 1.0, 2.0))
    settle(memory)
    job: Any = Facts()
    assert resume(job, Heard("rank 1's part can't be read"), tmp_path, 5) is None  # type: ignore[arg-type]
    assert "rank 1's part can't be read" in capsys.readouterr().err


def test_parts_of_two_rounds_are_no_state(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ranks = Heard(Room("n1", 1 << 40, 1 << 40, 1, 0))
    memory = remember(tmp_path, ranks=ranks, engine=Plain(rank=0, ranks=2), round_=3)
    step(memory, 5, told=(2.0, 1.0, 2.0))
    settle(memory)
    manifest = parse_manifest((tmp_path / manifest_name(5, 0, world=2)).read_text())
    assert manifest.round == 3
    job: Any = Facts(round_=4)
    assert resume(job, Heard((replace(manifest, round=2),)), tmp_path, 5) is None  # type: ignore[arg-type]
    assert "the parts of rank 0 and rank 1 are not of one run" in capsys.readouterr().err
    assert resume(job, Heard((manifest,)), tmp_path, 5)  # type: ignore[arg-type]


def kept_by_two(folder: Path) -> None:
    """The state after step 5, of two ranks of one node."""
    for rank in range(2):
        memory = remember(folder, ranks=alone(rank, 2), engine=Plain(rank=rank, ranks=2))
        step(memory, 5, told=(2.0, 1.0, 2.0))
        settle(memory)


def test_one_rank_goes_on_from_what_two_have_kept(tmp_path: Path) -> None:
    kept_by_two(tmp_path)
    job: Any = Facts()
    assert resume(job, Alone(), tmp_path, 5) is None  # type: ignore[arg-type]
    kept = resume(job, Alone(), tmp_path, 5, world=2)  # type: ignore[arg-type]
    assert kept is not None
    again = Plain(filled=-1.0)
    load(kept, again)
    assert values(again) == values(Plain())


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (lambda folder: (folder / state_name(1, 0)).write_bytes(b"x"), "rank 1's part of step 5 is damaged"),
        (lambda folder: (folder / manifest_name(5, 1, world=2)).unlink(), "rank 1's part of step 5 can't be read"),
    ],
)
def test_a_part_of_a_rank_that_is_no_more_has_to_be_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], harm: Callable[[Path], object], words: str
) -> None:
    kept_by_two(tmp_path)
    harm(tmp_path)
    job: Any = Facts()
    assert resume(job, Alone(), tmp_path, 5, world=2) is None  # type: ignore[arg-type]
    assert words in capsys.readouterr().err


def test_nodes_that_have_other_parts_of_a_step_do_not_go_on_from_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept_by_two(tmp_path)
    job: Any = Facts()
    own = [parse_manifest((tmp_path / manifest_name(5, rank, world=2)).read_text()) for rank in range(2)]
    other = tuple(replace(one, runs={}, files=own[0].files) for one in own)
    three: Any = Heard(other)
    three.rank_info = replace(three.rank_info, world_size=3, local_world_size=1)
    assert resume(job, three, tmp_path, 5, world=2) is None
    assert "the parts on the nodes of rank 0 and rank 1 are not the same" in capsys.readouterr().err


def test_what_two_have_kept_stays_whole_until_the_second_newer_state_begins(tmp_path: Path) -> None:
    kept_by_two(tmp_path)
    job: Any = Facts()

    def goes_on() -> bool:
        return resume(job, Alone(), tmp_path, 5, world=2) is not None  # type: ignore[arg-type]

    memory = remember(tmp_path, keep=5, made_by=2)
    memory.told(6)
    assert goes_on(), "room for a state of another size was made beside it"
    step(memory, 6)
    settle(memory)
    assert goes_on()
    assert found(tmp_path, 6)
    step(memory, 7)
    settle(memory)
    assert not goes_on()
    assert steps_of(tmp_path, 0) == [7, 6]
    assert len(list(tmp_path.glob("rank-00000-*.state"))) == 2


@pytest.mark.parametrize("moment", ["before the manifest", "before the old name goes"])
def test_a_kill_while_a_part_is_set_aside_leaves_it_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    kept_by_two(tmp_path)
    job: Any = Facts()
    files = RankFiles(tmp_path, 0)
    files.claim(keep=5)

    def killed(path: Path, *_: Any, **__: Any) -> None:
        if moment == "before the manifest" or path.name == state_name(0, 0):
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(*((module, "write_bytes") if moment == "before the manifest" else (Path, "unlink")), killed)
        with pytest.raises(KeyboardInterrupt):
            files.set_aside(5)
    again = RankFiles(tmp_path, 0)
    again.claim(keep=5)
    again.set_aside(5)
    for file in again.make(4):
        os.close(file)
    assert resume(job, Alone(), tmp_path, 5, world=2)  # type: ignore[arg-type]


def test_parts_that_were_copied_for_nothing_take_no_room(tmp_path: Path) -> None:
    kept_by_two(tmp_path)
    memory = remember(tmp_path)
    step(memory, 1)
    settle(memory)
    assert {path.name for path in tmp_path.iterdir()} == {
        state_name(0, 0), state_name(0, 1), manifest_name(1, 0, world=1)
    }  # fmt: skip


def test_a_copy_of_what_another_number_of_ranks_has_made_is_not_waited_for(tmp_path: Path) -> None:
    memory = remember(tmp_path)
    step(memory, 5)
    settle(memory)
    larger = remember(tmp_path, keep=5, made_by=1, ring=True, ranks=one_of_nodes(0, 3))
    larger.told(6)
    step(larger, 6, told=(3.0, 1.0, 3.0))
    settle(larger)
    assert steps_of(tmp_path, 0) == [6, 5]
    assert larger.told(7)[0] == 0.0, "of its own it is"


def test_a_manifest_of_the_first_round_names_none_as_those_in_the_storage(tmp_path: Path) -> None:
    memory = remember(tmp_path)
    step(memory, 5)
    settle(memory)
    body = (tmp_path / manifest_name(5, 0, world=1)).read_text()
    assert "round" not in json.loads(body)
    assert parse_manifest(body).round == 1


def test_parts_of_two_runs_are_no_state(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ranks = Heard(Room("n1", 1 << 40, 1 << 40, 1, 0))
    memory = remember(tmp_path, ranks=ranks, engine=Plain(rank=0, ranks=2))
    step(memory, 5, told=(2.0, 1.0, 2.0))
    settle(memory)
    job: Any = Facts()
    own: Any = resume(job, Heard("x"), tmp_path, 5)  # type: ignore[arg-type]
    assert own is None
    manifest = parse_manifest((tmp_path / manifest_name(5, 0, world=2)).read_text())
    assert resume(job, Heard((replace(manifest, updates=9),)), tmp_path, 5) is None  # type: ignore[arg-type]
    assert "the parts of rank 0 and rank 1 are not of one run" in capsys.readouterr().err
    assert resume(job, Heard((replace(manifest, saved_at="later"),)), tmp_path, 5)  # type: ignore[arg-type]
