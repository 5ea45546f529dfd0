"""Where a new attempt resumes, and what it cleans up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from saving import Alone, Plain, save, save_alone

from oarlock_api.contract.job_file import JobFile
from oarlock_api.contract.layout import Owner
from oarlock_api.training import Training
from oarlock_trainer.checkpoint.fence import Fence
from oarlock_trainer.checkpoint.reader import take_over
from oarlock_trainer.checkpoint.writer import Writer
from oarlock_trainer.runtime.errors import ConfigurationError
from oarlock_trainer.runtime.job import Job, RankInfo

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from oarlock_trainer.checkpoint.format import Checkpoint


def job(output: Path, *, attempt: int, uid: str = "job", resume: str = "Auto") -> Job:
    training = Training.model_validate(
        {
            "model": {"family": "Flux1", "path": "/m"}, "steps": 1, "checkpoint": {"resume": resume},
            "data": {"datasets": [{"name": "d", "source": {"path": "/d"}}]},
        }
    )  # fmt: skip
    file = JobFile(
        job="flux", namespace="default", job_uid=uid, attempt=attempt, nodes=1, gpus_per_node=0,
        output_directory=str(output), training={},
    )  # fmt: skip
    rank_info = RankInfo(rank=0, local_rank=0, world_size=1, local_world_size=1)
    return Job(file=file, training=training, rank_info=rank_info, simulate_gpus=False)


def start(given: Job) -> tuple[Checkpoint | None, Callable[[int], None]]:
    """Take the output over; returns the resume point, and how this attempt saves a step."""
    fence = Fence(given.output, Owner(given.file.job_uid, given.file.attempt))
    alone: Any = Alone()
    engine: Any = Plain()
    found = take_over(given, alone, fence, copies=None, go_on=lambda: None)

    def save_step(step: int) -> None:
        writer = Writer(given.output, fence, alone, engine, keep=5)
        save(writer, step)
        writer.close()

    return found, save_step


def resumed(given: Job) -> int | None:
    found, _ = start(given)
    return found.step if found else None


def test_a_fresh_output_starts_from_the_beginning(tmp_path: Path) -> None:
    assert resumed(job(tmp_path / "new", attempt=1)) is None


def test_the_newest_checkpoint_of_the_attempts_before_counts(tmp_path: Path) -> None:
    _, save = start(job(tmp_path, attempt=1))
    save(10)
    save(20)
    _, save = start(job(tmp_path, attempt=2))
    save(30)
    assert resumed(job(tmp_path, attempt=3)) == 30


def test_what_a_fenced_attempt_committed_after_it_was_overtaken_does_not_count(tmp_path: Path) -> None:
    _, save = start(job(tmp_path, attempt=1))
    save(10)
    _, save_second = start(job(tmp_path, attempt=2))
    late = tmp_path / "checkpoints" / "step-99-a1"
    (tmp_path / "checkpoints" / "step-10-a1").rename(tmp_path / "kept")
    save_second(20)
    (tmp_path / "kept").rename(tmp_path / "checkpoints" / "step-10-a1")
    _forge(tmp_path, late)
    assert resumed(job(tmp_path, attempt=3)) == 20


@pytest.mark.parametrize("finished", [False, True])
def test_what_another_job_committed_late_does_not_count_though_its_attempt_has_the_owners_number(
    tmp_path: Path,
    finished: bool,  # noqa: FBT001
) -> None:
    _, save = start(job(tmp_path, attempt=1, uid="earlier"))
    save(5)
    Fence(tmp_path, Owner("earlier", 1)).finish(5)
    _, save = start(job(tmp_path, attempt=1))
    save(10)
    _forge(tmp_path, tmp_path / "checkpoints" / "step-99-a1", uid="earlier")
    if finished:
        Fence(tmp_path, Owner("job", 1)).finish(10)
        assert resumed(job(tmp_path, attempt=1, uid="later")) == 10
    else:
        assert resumed(job(tmp_path, attempt=2)) == 10


def _forge(output: Path, late: Path, *, uid: str = "job") -> None:
    """Commit as attempt 1 would if its check of the fence had raced: in another output, then moved here."""
    other = output / "other"
    _, save = start(job(other, attempt=1, uid=uid))
    save(99)
    (other / "checkpoints" / late.name).rename(late)


def test_never_starts_anew_once_and_resumes_after_its_own_faults(tmp_path: Path) -> None:
    earlier = job(tmp_path, attempt=1, uid="earlier")
    _, save = start(earlier)
    save(50)
    Fence(tmp_path, Owner("earlier", 1)).finish(50)
    found, save = start(job(tmp_path, attempt=1, resume="Never"))
    assert found is None
    save(10)
    assert resumed(job(tmp_path, attempt=2, resume="Never")) == 10


def test_auto_goes_on_from_a_finished_jobs_last_checkpoint(tmp_path: Path) -> None:
    _, save = start(job(tmp_path, attempt=1, uid="earlier"))
    save(50)
    Fence(tmp_path, Owner("earlier", 1)).finish(50)
    assert resumed(job(tmp_path, attempt=1)) == 50


def test_required_without_a_checkpoint_is_the_jobs_fault(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="Required"):
        start(job(tmp_path, attempt=1, resume="Required"))


def test_half_written_leftovers_are_removed_and_checkpoints_are_not(tmp_path: Path) -> None:
    _, save = start(job(tmp_path, attempt=1))
    save(10)
    for name in ("checkpoints/.tmp-step-20-a1", "checkpoints/.tmp-old-step-5-a1", ".tmp-model"):
        (tmp_path / name / "deepspeed").mkdir(parents=True)
    start(job(tmp_path, attempt=2))
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-10-a1"]
    assert not (tmp_path / ".tmp-model").exists()


def damage(checkpoint: Path) -> None:
    """In a byte, not in its size."""
    state = checkpoint / "rank-00000.state"
    state.write_bytes(b"x" * state.stat().st_size)


def test_a_damaged_checkpoint_is_gone_once_it_was_passed_over_so_that_rotation_keeps_good_ones(tmp_path: Path) -> None:
    _, save = start(job(tmp_path, attempt=1))
    save(10)
    save(20)
    damage(tmp_path / "checkpoints/step-20-a1")
    found, save = start(job(tmp_path, attempt=2))
    assert found is not None
    assert found.step == 10
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["step-10-a1"]
    save(12)
    assert resumed(job(tmp_path, attempt=3)) == 12


def test_more_checkpoints_than_the_fence_lists_are_kept_over_takeovers(tmp_path: Path) -> None:
    save_alone(tmp_path, *range(1, 71), keep=1000)
    for attempt in (2, 3):
        start(job(tmp_path, attempt=attempt))
    assert len(list((tmp_path / "checkpoints").iterdir())) == 70


def test_people_are_told_which_newer_checkpoints_do_not_count_and_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, save = start(job(tmp_path, attempt=1))
    for step in (10, 20, 30):
        save(step)
    checkpoints = tmp_path / "checkpoints"
    manifest = checkpoints / "step-30-a1" / "manifest.json"
    manifest.write_bytes(manifest.read_bytes()[:50])
    flip(checkpoints / "step-20-a1")
    assert resumed(job(tmp_path, attempt=2)) == 10
    said = capsys.readouterr().err.splitlines()
    assert [line.partition(": ")[0] for line in said] == [
        f"checkpoint {checkpoints}/step-30-a1 is passed over",
        f"checkpoint {checkpoints}/step-20-a1 is damaged, as a file of it has another hash",
    ]


def test_a_job_whose_checkpoints_are_all_damaged_says_that_it_begins_anew(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, save = start(job(tmp_path, attempt=1))
    for step in (10, 20):
        save(step)
        flip(tmp_path / "checkpoints" / f"step-{step}-a1")
    assert resumed(job(tmp_path, attempt=2)) is None
    assert "none of 2 checkpoints is whole: training begins at step 0" in capsys.readouterr().err


def flip(checkpoint: Path) -> None:
    """Change a byte of a rank's file, and not its size."""
    file = checkpoint / "rank-00000.state"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
