"""Saving beside training: what the writer processes do when they are killed, when nothing fits, when ranks change."""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from saving import POSITION, Alone, Plain, save, save_alone, saver

from oarlock_trainer.checkpoint import commit
from oarlock_trainer.checkpoint.format import FileFacts, digest, inspect, valid_checkpoints
from oarlock_trainer.checkpoint.layout import runs_of
from oarlock_trainer.checkpoint.load import load
from oarlock_trainer.checkpoint.writer import NoRoom, SavedCheckpoint
from oarlock_trainer.models.adapters.targets import Adapters
from oarlock_trainer.runtime.errors import ConfigurationError, FencedError, StorageError
from oarlock_trainer.runtime.job import RankInfo


def pid_of(writer: Any) -> int:
    return int(writer._shard._process.pid)


def newest(output: Path) -> Any:
    return valid_checkpoints(output)[0]


def state(engine: Plain) -> dict[tuple[str, str, int], list[float]]:
    return {(part.name, part.slot, part.start): part.values.tolist() for part in engine.parts()}


def test_a_state_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    save_alone(tmp_path, 10)
    again = Plain(filled=-1.0)
    again.updates = 0
    load(newest(tmp_path), again)
    assert state(again) == state(Plain())
    assert again.updates == 3


def test_the_state_may_change_as_soon_as_an_update_is_allowed(tmp_path: Path) -> None:
    engine = Plain(sizes=(1 << 20,))
    with saver(tmp_path, engine=engine) as writer:
        writer.begin(10, POSITION)
        writer.before_update()
        for part in engine.parts():
            part.values.zero_()
        writer.finish()
    again = Plain(sizes=(1 << 20,), filled=-1.0)
    load(newest(tmp_path), again)
    assert state(again) == state(Plain(sizes=(1 << 20,)))


@pytest.mark.deep
def test_killed_at_random_moments_the_process_writes_again_and_nothing_is_lost(tmp_path: Path) -> None:
    """200 kills, some before the process has begun, some in the middle of a file, some after its last byte."""
    chance = random.Random(7)  # noqa: S311
    engine = Plain(sizes=(1 << 18,))
    kills = 0
    with saver(tmp_path, engine=engine, keep=2) as writer:
        step = 0
        while kills < 200:
            step += 1
            writer.begin(step, POSITION)
            writer.before_update()
            for _ in range(chance.randrange(3)):
                writer._shard.ended(chance.random() * 0.05)
                os.kill(pid_of(writer), signal.SIGKILL)
                kills += 1
            assert isinstance(writer.finish(), SavedCheckpoint)
            found = inspect(newest(tmp_path).path)
            assert found is not None
            assert found.step == step
    again = Plain(sizes=(1 << 18,), filled=-1.0)
    load(newest(tmp_path), again)
    assert state(again) == state(engine)


def test_a_process_that_dies_again_and_again_ends_the_attempt_with_its_signal(tmp_path: Path) -> None:
    def die_often(writer: Any) -> None:
        for _ in range(5):
            os.kill(pid_of(writer), signal.SIGSTOP)  # before it can have answered
            kill_and_wait(pid_of(writer))
            writer.ready()  # notices, and starts the next one

    with saver(tmp_path) as writer:
        os.kill(pid_of(writer), signal.SIGSTOP)
        writer.begin(10, POSITION)
        writer.before_update()
        with pytest.raises(StorageError, match="ended 5 times, last with -9"):
            die_often(writer)


def kill_and_wait(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


def fill_up(output: Path, step: int) -> None:
    """A full disk for one checkpoint: its file is the device that has no room."""
    folder = output / "checkpoints" / f".tmp-step-{step}-a1"
    folder.mkdir(parents=True)
    (folder / "rank-00000.state").symlink_to("/dev/full")


def test_a_full_disk_costs_the_oldest_checkpoint_and_training_goes_on(tmp_path: Path) -> None:
    with saver(tmp_path) as writer:
        for step in (10, 20, 30):
            save(writer, step)
        fill_up(tmp_path, 40)
        assert save(writer, 40) == NoRoom(40, freed=True)
        assert [path.name for path in sorted((tmp_path / "checkpoints").iterdir())] == ["step-20-a1", "step-30-a1"]
        assert isinstance(save(writer, 40), SavedCheckpoint)


def test_room_is_made_before_anything_is_written_where_there_is_too_little(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = shutil.disk_usage(tmp_path)
    size = sum(part.values.numel() * 4 for part in Plain().parts())

    def usage(_path: Path) -> Any:
        """A storage with room for two checkpoints and a half."""
        return real._replace(free=int(2.5 * size) - len(valid_checkpoints(tmp_path)) * size)

    with saver(tmp_path) as writer:
        monkeypatch.setattr(shutil, "disk_usage", usage)
        for step in (10, 20, 30):
            assert isinstance(save(writer, step), SavedCheckpoint)
    assert [one.step for one in valid_checkpoints(tmp_path)] == [30, 20]


def test_a_full_disk_never_costs_the_newest_checkpoint(tmp_path: Path) -> None:
    with saver(tmp_path) as writer:
        save(writer, 10)
        for step in (20, 30):
            fill_up(tmp_path, step)
            assert save(writer, step) == NoRoom(step, freed=False)
        assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-10-a1"]


def test_a_storage_that_fails_is_told_with_its_words(tmp_path: Path) -> None:
    with saver(tmp_path) as writer:
        (tmp_path / "checkpoints").write_text("a file in the folder's place")
        with pytest.raises(
            StorageError, match=r"saving the checkpoint of step 10: .*Not a directory.*\.tmp-step-10-a1"
        ):
            save(writer, 10)


def test_a_checkpoint_that_an_earlier_round_made_is_deleted_once_the_one_in_its_place_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_alone(tmp_path, 10)
    made = newest(tmp_path)
    remove, removed = shutil.rmtree, []

    def removing(path: Path, **keywords: Any) -> None:
        if path.exists():
            assert newest(tmp_path).step == made.step, "a kill now would leave none"
            removed.append(path.name)
        remove(path, **keywords)

    monkeypatch.setattr(shutil, "rmtree", removing)
    save_alone(tmp_path, 10)
    assert removed == [".tmp-old-step-10-a1"]
    assert [path.name for path in made.path.parent.iterdir()] == ["step-10-a1"]


def test_a_damaged_checkpoint_and_another_jobs_give_way_to_the_same_step(tmp_path: Path) -> None:
    save_alone(tmp_path, 10, 20, uid="other")
    save_alone(tmp_path, 10)
    (tmp_path / "checkpoints" / "step-20-a1" / "COMMITTED").unlink()
    save_alone(tmp_path, 20)
    assert [(one.step, one.manifest.job_uid) for one in valid_checkpoints(tmp_path)] == [(20, "job"), (10, "job")]


def test_what_killed_rounds_left_half_written_or_half_deleted_goes_with_the_next_save(tmp_path: Path) -> None:
    save_alone(tmp_path, 10)
    folder = tmp_path / "checkpoints"
    for name in (".tmp-step-15-a1", ".tmp-old-step-5-a1", ".tmp-step-30-a2"):
        (folder / name).mkdir()
    (folder / ".tmp-upload-step-10-a1-rank-00000.state").touch()
    save_alone(tmp_path, 20)
    left = sorted(path.name for path in folder.glob(".tmp-*"))
    assert left == [".tmp-step-30-a2", ".tmp-upload-step-10-a1-rank-00000.state"], "another attempt's, and a copy's"


def test_what_a_killed_rank_still_writes_lands_in_no_checkpoint_of_a_later_round(tmp_path: Path) -> None:
    with saver(tmp_path) as killed:
        killed.begin(10, POSITION)
        killed.before_update()
        killed._shard.ended(None)
        (file,) = (tmp_path / "checkpoints").glob("*/rank-00000.state")
        with file.open("r+b") as late, saver(tmp_path, number=2) as writer:
            writer.begin(10, POSITION)
            writer.before_update()
            writer._shard.ended(None)
            late.write(b"late")
            late.flush()
            saved = writer.finish()
    assert isinstance(saved, SavedCheckpoint)
    facts = newest(tmp_path).manifest.files[0]
    assert digest(saved.path / facts.name) == facts.sha256
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-10-a1"], "and the folder is gone"


def test_a_save_that_a_later_round_has_overtaken_is_never_a_checkpoint(tmp_path: Path) -> None:
    with saver(tmp_path) as earlier:
        earlier.begin(10, POSITION)
        with saver(tmp_path, number=2), pytest.raises(FencedError, match="round 2 of attempt 1"):
            earlier.finish()
    assert valid_checkpoints(tmp_path) == []


def test_room_is_made_of_what_earlier_rounds_left_and_not_of_what_this_one_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "checkpoints"
    for name in (".tmp-step-10-a1", ".tmp-step-10-a1-r2", ".tmp-step-10-a1-r3", ".tmp-step-10-a1-r4"):
        (folder / name).mkdir(parents=True)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: SimpleNamespace(total=1, free=0))
    with saver(tmp_path, number=3) as writer:
        writer.begin(10, POSITION)
    left = sorted(path.name for path in folder.glob(".tmp-*"))
    assert left == [".tmp-step-10-a1-r3", ".tmp-step-10-a1-r4"]


class Together(Alone):
    """Rank 0 of several, where the others' files are there already."""

    def __init__(self, ranks: int, others: list[Any]) -> None:
        super().__init__(RankInfo(rank=0, local_rank=0, world_size=ranks, local_world_size=ranks))
        self.others = others

    def gather(self, value: Any) -> list[Any]:
        return [value, *self.others]


def save_as_many(output: Path, ranks: int) -> None:
    """A checkpoint of several ranks, each with its own file."""
    told = []
    folder = output / "checkpoints" / ".tmp-step-10-a1"
    for rank in range(1, ranks):
        engine = Plain(rank=rank, ranks=ranks)
        save_alone(output / "aside", 10, engine=engine)
        file = output / "aside" / "checkpoints" / "step-10-a1" / "rank-00000.state"
        facts = newest(output / "aside").manifest.files[0]
        folder.mkdir(parents=True, exist_ok=True)
        file.rename(folder / f"rank-{rank:05}.state")
        told.append((FileFacts(f"rank-{rank:05}.state", facts.size, facts.sha256), runs_of(engine.parts())))
    with saver(output, engine=Plain(rank=0, ranks=ranks), ranks=Together(ranks, told)) as writer:
        save(writer, 10)


@pytest.mark.parametrize(("before", "after"), [(1, 3), (4, 1), (2, 5), (3, 2)])
def test_any_number_of_ranks_goes_on_from_what_any_other_number_saved(tmp_path: Path, before: int, after: int) -> None:
    save_as_many(tmp_path, before)
    found = newest(tmp_path)
    assert found.manifest.world_size == before
    for rank in range(after):
        engine = Plain(rank=rank, ranks=after, filled=-1.0)
        load(found, engine)
        assert state(engine) == state(Plain(rank=rank, ranks=after))


def test_another_model_is_refused_with_what_differs(tmp_path: Path) -> None:
    save_alone(tmp_path, 10)
    with pytest.raises(ConfigurationError, match=r"another model or method: it lacks p2\. Give the job back"):
        load(newest(tmp_path), Plain(sizes=(7, 64, 5)))


def test_another_optimizer_is_refused_with_what_it_keeps(tmp_path: Path) -> None:
    save_alone(tmp_path, 10)
    engine = Plain()
    engine._parts = [part for part in engine._parts if part.slot == "master"]
    with pytest.raises(
        ConfigurationError, match=r"it holds exp_avg, master, this one keeps master\. Set optimizer\.name"
    ):
        load(newest(tmp_path), engine)


def test_parameters_of_another_size_are_refused_by_their_names(tmp_path: Path) -> None:
    save_alone(tmp_path, 10)
    for sizes in ((7, 32), (7, 65)):
        with pytest.raises(ConfigurationError, match=r"of another size are p1\."):
            load(newest(tmp_path), Plain(sizes=sizes))


def test_adapters_of_another_rank_or_scale_are_refused(tmp_path: Path) -> None:
    save_alone(tmp_path, 10)
    with pytest.raises(
        ConfigurationError, match="has no adapters, the job asks for LoRA adapters of rank 16 and alpha 8: set"
    ):
        load(newest(tmp_path), Plain(), adapters=Adapters(16, 8.0))


def test_a_full_disk_at_the_very_end_of_a_save_gives_it_up_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, _content: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    with saver(tmp_path) as writer:
        save(writer, 10)
        monkeypatch.setattr(commit, "write_bytes", full)
        assert save(writer, 20) == NoRoom(20, freed=False)
