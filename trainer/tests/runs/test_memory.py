"""Ranks that are killed and start anew in the same place: they go on from their node's memory as if nothing had been."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from reads import Reads

from oarlock_api.contract.environment import ROUND
from oarlock_api.contract.history import METRICS
from oarlock_api.contract.layout import DATA_MANIFEST, OWNER, PRIVATE, parse_owner
from oarlock_trainer.checkpoint.format import MANIFEST, MARKER, valid_checkpoints
from oarlock_trainer.checkpoint.memory.held import FOLDER, RESUME_STEP, held

if TYPE_CHECKING:
    from gang import Gang, Run

MEMORY = {"memory": {"everySteps": "1"}}
NO_CHECKPOINTS: dict[str, Any] = {"intervalSteps": 1000}


def weights(output: Path) -> dict[str, bytes]:
    found = {path.name: path.read_bytes() for path in (output / "model" / "transformer").glob("*.safetensors")}
    assert found
    return found


def run(gang: Gang, output: Path, folder: Path, *, resume: int | None = None, **options: Any) -> Run:
    later = {RESUME_STEP: str(resume), ROUND: "2"} if resume is not None else {}
    environment = {FOLDER: str(folder)} | later
    fields = {"checkpoint": NO_CHECKPOINTS, "model": {"family": "Flux1", "path": str(gang.model)}}
    settings = gang.training(**{name: options.pop(name, value) for name, value in fields.items()})
    return gang.run(output, settings, environment=environment, recovery=MEMORY, **options)


@pytest.fixture(scope="module")
def calm(gang: Gang, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Run]:
    """A run that nothing disturbs, and that keeps nothing in memory."""
    output = tmp_path_factory.mktemp("calm")
    return output, gang.run(output, gang.training(checkpoint=NO_CHECKPOINTS))


@pytest.fixture(scope="module")
def killed(gang: Gang, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Output and memory of a run whose rank 1 was killed after some steps, with a checkpoint of one before."""

    def kill(event: dict[str, Any]) -> None:
        if event["event"] == "step" and (event["rank"], event["step"]) == (1, 6):
            gang.kill(1)

    home = tmp_path_factory.mktemp("killed")
    left = run(gang, home / "output", home / "memory", on_event=kill, checkpoint={"intervalSteps": 2})
    assert left.codes[1] == -9, gang.log()
    return home / "output", home / "memory"


def newest(memory: Path) -> int:
    steps = held(memory, ranks_per_node=2)
    assert steps
    return steps[0].step


def test_without_any_checkpoint_losses_and_weights_are_those_of_an_undisturbed_run_to_the_last_bit(
    calm: tuple[Path, Run], killed: tuple[Path, Path], gang: Gang, tmp_path: Path
) -> None:
    output, memory = (tmp_path / "output", tmp_path / "memory")
    for here, there in zip((output, memory), killed, strict=True):
        shutil.copytree(there, here)
    shutil.rmtree(output / "checkpoints")
    step = newest(memory)
    assert step >= 5
    again = run(gang, output, memory, resume=step)
    assert again.codes == {0: 0, 1: 0}, gang.log()
    assert {event["step"] for event in again.of("resumed")} == {step}
    assert again.losses == {number: loss for number, loss in calm[1].losses.items() if number > step}
    assert weights(output) == weights(calm[0])
    assert f"resuming from step {step} of 8: the nodes have its state in memory" in gang.log()
    assert not memory.exists()  # the end of training gives it back


def test_no_state_is_read_from_the_output_and_no_weights_of_what_is_trained_from_the_model(
    killed: tuple[Path, Path], gang: Gang, tmp_path: Path
) -> None:
    output, memory, model = (tmp_path / name for name in ("output", "memory", "model"))
    for here, there in zip((output, memory, model), (*killed, gang.model), strict=True):
        shutil.copytree(there, here)
    for unreadable in (model / "transformer").glob("*.safetensors"):
        unreadable.write_bytes(b"")
    assert valid_checkpoints(output)
    with Reads(output) as reads:
        again = run(gang, output, memory, resume=newest(memory), model={"family": "Flux1", "path": str(model)})
        assert again.codes == {0: 0, 1: 0}, gang.log()
        read = reads.names()
    data = {name for name in read if name.startswith(f"{PRIVATE}/data/")}
    counted = {name for name in read if Path(name).name in {MARKER, MANIFEST}}  # by the save at the end
    assert read - data - counted == {OWNER, METRICS, DATA_MANIFEST}


@pytest.mark.deep
def test_a_damaged_part_sends_all_ranks_back_to_the_newest_checkpoint(
    calm: tuple[Path, Run], killed: tuple[Path, Path], gang: Gang, tmp_path: Path
) -> None:
    output, memory = (tmp_path / "output", tmp_path / "memory")
    for here, there in zip((output, memory), killed, strict=True):
        shutil.copytree(there, here)
    for state in memory.glob("rank-00001-*.state"):
        with state.open("r+b") as file:
            file.write(b"\xff")
    saved = valid_checkpoints(output)[0].step
    again = run(gang, output, memory, resume=newest(memory))
    assert again.codes == {0: 0, 1: 0}, gang.log()
    assert {event["step"] for event in again.of("resumed")} == {saved}
    notes = " ".join(event["message"] for event in again.of("note"))
    assert "so the newest checkpoint is: rank 1's part of step" in notes
    assert again.losses == {number: loss for number, loss in calm[1].losses.items() if number > saved}
    assert weights(output) == weights(calm[0])


def test_asked_to_leave_right_after_it_went_on_from_memory_a_run_still_saves(
    killed: tuple[Path, Path], gang: Gang, tmp_path: Path
) -> None:
    output, memory = (tmp_path / "output", tmp_path / "memory")
    for here, there in zip((output, memory), killed, strict=True):
        shutil.copytree(there, here)
    shutil.rmtree(output / "checkpoints")

    def leave(event: dict[str, Any]) -> None:
        if event["event"] == "resumed":
            gang.ask_to_leave()

    step = newest(memory)
    left = run(gang, output, memory, resume=step, on_event=leave)
    assert set(left.codes.values()) == {86}, gang.log()
    assert valid_checkpoints(output)[0].step >= step
    owner = parse_owner((output / OWNER).read_text())
    assert owner.round == 2, "what round 1 still writes is none of the job's any more"
