"""Going on from states in memory: of the same ranks, or of another number of them."""

from __future__ import annotations

import json
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from remembering import Facts, Heard, alone, found, one_of_nodes, remember, settle, step, values
from saving import Alone, Plain

from oarlock_trainer.checkpoint.format import parse_manifest
from oarlock_trainer.checkpoint.load import load
from oarlock_trainer.checkpoint.memory import files as module
from oarlock_trainer.checkpoint.memory.files import RankFiles
from oarlock_trainer.checkpoint.memory.held import Held, held, manifest_name, state_name, steps_of
from oarlock_trainer.checkpoint.memory.resume import resume
from oarlock_trainer.checkpoint.memory.room import Room

if TYPE_CHECKING:
    from collections.abc import Callable


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


def keep_beside_another(folder: Path, *, round_: int = 1) -> None:
    """The state after step 5 of rank 0, whose neighbour has room as well."""
    ranks = Heard(Room("n1", 1 << 40, 1 << 40, 1, 0))
    memory = remember(folder, ranks=ranks, engine=Plain(rank=0, ranks=2), round_=round_)
    step(memory, 5, told=(2.0, 1.0, 2.0))
    settle(memory)


def test_one_rank_that_has_nothing_keeps_all_others_from_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep_beside_another(tmp_path)
    job: Any = Facts()
    assert resume(job, Heard("rank 1's part can't be read"), tmp_path, 5) is None  # type: ignore[arg-type]
    assert "rank 1's part can't be read" in capsys.readouterr().err


def test_parts_of_two_rounds_are_no_state(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep_beside_another(tmp_path, round_=3)
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


def test_a_node_that_has_other_nodes_parts_alone_forgets_them_and_keeps_its_own_from_then_on(tmp_path: Path) -> None:
    kept_by_two(tmp_path)
    memory = remember(tmp_path, ranks=one_of_nodes(3, 4))
    assert memory.told(1)[0] > -math.inf
    assert not steps_of(tmp_path, 0)
    assert not steps_of(tmp_path, 1)


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
    keep_beside_another(tmp_path)
    job: Any = Facts()
    own: Any = resume(job, Heard("x"), tmp_path, 5)  # type: ignore[arg-type]
    assert own is None
    manifest = parse_manifest((tmp_path / manifest_name(5, 0, world=2)).read_text())
    assert resume(job, Heard((replace(manifest, updates=9),)), tmp_path, 5) is None  # type: ignore[arg-type]
    assert "the parts of rank 0 and rank 1 are not of one run" in capsys.readouterr().err
    assert resume(job, Heard((replace(manifest, saved_at="later"),)), tmp_path, 5)  # type: ignore[arg-type]
