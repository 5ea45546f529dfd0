"""What a node's memory holds, by names alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from oarlock_trainer.checkpoint.memory.held import (
    Held,
    by_rank,
    folder_of,
    held,
    manifest_name,
    resume_variables,
    state_name,
    steps_of,
    sweep,
)

WORLD = 8


def fill(folder: Path, *whole: tuple[int, int]) -> None:
    """Manifests of (step, rank)."""
    folder.mkdir(exist_ok=True)
    for step, rank in whole:
        (folder / manifest_name(step, rank, world=WORLD)).touch()


def test_a_step_is_held_of_a_node_where_all_its_ranks_are_whole(tmp_path: Path) -> None:
    fill(tmp_path, (120, 2), (120, 3), (130, 2), (130, 3), (140, 3))
    assert held(tmp_path, ranks_per_node=2) == (Held(130, 4, (1,)), Held(120, 4, (1,)))


def test_the_parts_of_another_node_count_for_that_node(tmp_path: Path) -> None:
    fill(tmp_path, *((7, rank) for rank in (0, 1, 4, 5, 6)))
    assert held(tmp_path, ranks_per_node=2) == (Held(7, 4, (0, 2)),)


def test_what_another_number_of_ranks_has_made_is_told_apart(tmp_path: Path) -> None:
    fill(tmp_path, (5, 0), (5, 1))
    for rank in (0, 1):
        (tmp_path / manifest_name(6, rank, world=4)).touch()
    (tmp_path / manifest_name(7, 2, world=4)).touch()
    (tmp_path / manifest_name(7, 3, world=8)).touch()
    assert held(tmp_path, ranks_per_node=2) == (Held(6, 2, (0,)), Held(5, 4, (0,)))
    assert steps_of(tmp_path, 0) == [6, 5]


def test_all_that_lies_there_is_listed_by_rank(tmp_path: Path) -> None:
    fill(tmp_path, (5, 0), (5, 12))
    left = f".tmp-{manifest_name(6, 12, world=WORLD)}-aa"
    for name in (state_name(12, 1), state_name(3, 2), left, "file"):
        (tmp_path / name).touch()
    found = by_rank(tmp_path)
    assert {rank: set(names) for rank, names in found.items()} == {
        0: {manifest_name(5, 0, world=WORLD)},
        3: {state_name(3, 2)},
        12: {manifest_name(5, 12, world=WORLD), state_name(12, 1), left},
    }
    assert by_rank(tmp_path / "none") == {}


def test_ranks_are_told_how_many_nodes_made_a_step_where_they_are_not_as_many_themselves() -> None:
    assert resume_variables(None, 3) == {}
    assert resume_variables(7, 0) == {"OARLOCK_RESUME_STEP": "7"}
    assert resume_variables(7, 3) == {"OARLOCK_RESUME_STEP": "7", "OARLOCK_RESUME_PLACES": "3"}


def test_what_no_manifest_names_does_not_count(tmp_path: Path) -> None:
    fill(tmp_path, (5, 0))
    for name in (
        state_name(0, 0),
        f".tmp-{manifest_name(6, 0, world=WORLD)}-aa",
        "step-7-of-8-rank-00000.json~",
        "step-x-of-8-rank-00000.json",
        "step-7-rank-00000.json",
    ):
        (tmp_path / name).touch()
    assert held(tmp_path, ranks_per_node=1) == (Held(5, 8, (0,)),)
    assert steps_of(tmp_path, 0) == [5]


def test_a_folder_that_is_not_there_or_may_not_be_read_holds_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert held(tmp_path / "none", ranks_per_node=1) == ()
    assert held(tmp_path / "file", ranks_per_node=1) == ()


def test_each_attempt_has_a_folder_of_its_own(tmp_path: Path) -> None:
    folders = {folder_of(uid, attempt, shared_memory=tmp_path) for uid in ("a", "b") for attempt in (1, 2)}
    assert len(folders) == 4


def test_what_earlier_attempts_of_a_job_left_goes_and_nothing_else_does(tmp_path: Path) -> None:
    for attempt in (1, 2, 3, 10):
        fill(folder_of("a", attempt, shared_memory=tmp_path), (5, 0))
    fill(folder_of("ab", 1, shared_memory=tmp_path), (5, 0))
    fill(tmp_path / "elsewhere", (5, 0))
    (tmp_path / "oarlock-a-a0").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "oarlock-a-a1-x").mkdir()
    sweep("a", 3, shared_memory=tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {
        "oarlock-a-a3", "oarlock-a-a10", "oarlock-ab-a1", "elsewhere", "oarlock-a-a0", "oarlock-a-a1-x"
    }  # fmt: skip
    assert held(tmp_path / "elsewhere", ranks_per_node=1) == (Held(5, 8, (0,)),)
    sweep("a", 3, shared_memory=tmp_path / "none")


def test_the_agent_asks_without_torch() -> None:
    program = "import sys, oarlock_trainer.checkpoint.memory.held\n"
    program += "assert not {'torch', 'numpy', 'pydantic'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)
