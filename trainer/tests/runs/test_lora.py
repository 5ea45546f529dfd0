"""Real runs that train adapters: two processes, DDP, data that is learnt and data that keeps the model as it was."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from safetensors.torch import load_file

from oarlock_api.contract.exit_codes import ExitCode
from oarlock_local.pytest_tiers import quick_first
from oarlock_trainer.checkpoint.format import valid_checkpoints
from oarlock_trainer.cli import main

if TYPE_CHECKING:
    from gang import Gang, Run

_IN_DIFFUSERS = Path(__file__).parents[1] / "support" / "lora_in_diffusers.py"
RANK = 4


def training(gang: Gang, **fields: Any) -> dict[str, Any]:
    """Adapters over the session's photographs, learnt and kept in turns; dropout, so that its draws count too."""
    source = {"path": str(gang.pictures)}
    datasets = [
        {"name": "photos", "source": source, "probability": 0.5},
        {"name": "kept", "source": source, "role": "Regularization", "probability": 0.5},
    ]
    settings = {"method": "LoRA", "lora": {"rank": RANK, "dropout": 0.1}, "data": gang.data(datasets=datasets)}
    return gang.training(**settings | fields)


@pytest.fixture(scope="module")
def undisturbed(gang: Gang, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Run]:
    output = tmp_path_factory.mktemp("adapters")
    return output, gang.run(output, training(gang))


def test_adapters_are_trained_on_both_kinds_of_data_and_exported_alone(
    undisturbed: tuple[Path, Run], gang: Gang
) -> None:
    output, run = undisturbed
    assert run.codes == {0: 0, 1: 0}, gang.log()
    assert list(run.losses) == list(range(1, 9))
    kept = [loss for loss in run.losses.values() if loss < 0.1]
    assert 0 < len(kept) < 8
    assert any(loss > 0.0 for loss in kept)
    assert [path.name for path in (output / "model").iterdir()] == ["pytorch_lora_weights.safetensors"]


@pytest.mark.deep
def test_diffusers_own_loader_and_comfyuis_sums_take_the_export_and_predict_what_the_trained_model_does(
    undisturbed: tuple[Path, Run], gang: Gang
) -> None:
    output, _ = undisturbed
    command = [sys.executable, str(_IN_DIFFUSERS), str(gang.model), str(output / "model"), str(RANK)]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert found["moved"] > 0.0
    assert found["apart"] == 0.0
    assert found["comfyui"] < 0.001


def test_a_run_that_is_killed_repeats_the_undisturbed_losses_exactly(
    undisturbed: tuple[Path, Run], gang: Gang, tmp_path: Path
) -> None:
    _, reference = undisturbed

    def kill(event: dict[str, Any]) -> None:
        if event["event"] == "checkpoint" and (event["rank"], event["step"]) == (1, 2):
            gang.kill(1)

    # The save of step 4 waits for that of step 2, so a checkpoint is told of long before the last step.
    crashed = gang.run(tmp_path, training(gang, checkpoint={"intervalSteps": 2}), on_event=kill)
    assert crashed.codes == {0: ExitCode.PEER_LOST, 1: -9}, gang.log()
    newest = valid_checkpoints(tmp_path)[0].step
    resumed = gang.run(tmp_path, training(gang), attempt=2)
    assert resumed.codes == {0: 0, 1: 0}, gang.log()
    assert resumed.losses == {step: loss for step, loss in reference.losses.items() if step > newest}


@pytest.mark.deep
def test_a_run_that_starts_from_adapters_goes_on_where_they_were_left(
    undisturbed: tuple[Path, Run], gang: Gang, tmp_path: Path
) -> None:
    """What is kept costs nothing only at the base model, so its loss shows what was loaded."""
    output, _ = undisturbed
    shutil.copytree(output / "model", tmp_path / "earlier")
    fields = {"lora": {"rank": RANK}, "steps": 2, "checkpoint": {}}
    new = gang.run(tmp_path / "new", training(gang, **fields))
    old = gang.run(tmp_path / "old", training(gang, initFrom={"path": str(tmp_path / "earlier")}, **fields))
    assert new.codes == old.codes == {0: 0, 1: 0}, gang.log()
    assert new.losses[1] == 0.0
    assert old.losses[1] > 0.0


@pytest.mark.parametrize("kind", quick_first(["Int8", "NF4", "FP8"]))
def test_adapters_are_trained_over_quantized_weights_and_start_at_what_these_predict(
    gang: Gang, tmp_path: Path, kind: str
) -> None:
    fields = {"lora": {"rank": RANK, "quantizeBase": kind}, "steps": 4, "checkpoint": {"intervalSteps": 2}}
    run = gang.run(tmp_path, training(gang, **fields))
    assert run.codes == {0: 0, 1: 0}, gang.log()
    assert run.losses[1] == 0.0  # kept: the quantized model is its own base
    assert (tmp_path / "model" / "pytorch_lora_weights.safetensors").exists()


@pytest.mark.deep
def test_kronecker_adapters_resume_exactly_and_are_exported_from_any_checkpoint_for_lycoris(
    gang: Gang, tmp_path: Path
) -> None:
    lokr = {"algorithm": "LoKr", "rank": 2, "alpha": 4, "dropout": 0.1, "quantizeBase": "Int8", "lokr": {"factor": 4}}
    output = tmp_path / "job"
    run = gang.run(output, training(gang, lora=lokr))
    assert run.codes == {0: 0, 1: 0}, gang.log()
    assert any(0.0 < loss < 0.1 for loss in run.losses.values())  # kept, and moved
    assert main(["checkpoints", "export", str(output), "--to", str(tmp_path / "later")]) == 0
    shutil.rmtree(valid_checkpoints(output)[0].path)
    again = gang.run(output, training(gang, lora=lokr), attempt=2)
    assert again.losses == {step: loss for step, loss in run.losses.items() if step > 4}
    one, other = (
        load_file(folder / "pytorch_lora_weights.safetensors") for folder in (output / "model", tmp_path / "later")
    )
    assert one.keys() == other.keys()
    assert all(one[name].equal(other[name]) for name in one)
    assert {name.rpartition(".")[2] for name in one} == {"lokr_w1", "lokr_w2_a", "lokr_w2_b", "alpha"}
    assert all(name.startswith("lycoris_") for name in one)


def test_weights_to_start_from_that_are_no_adapters_end_in_85_before_the_model_is_read(
    gang: Gang, tmp_path: Path
) -> None:
    run = gang.run(tmp_path, training(gang, initFrom={"path": str(gang.model)}))
    assert set(run.codes.values()) == {ExitCode.CONFIGURATION}
    assert f"training.initFrom.path: {gang.model} has no pytorch_lora_weights.safetensors" in run.failure


@pytest.mark.deep
def test_a_whole_model_trains_on_ddp_as_with_deepspeed(gang: Gang, tmp_path: Path) -> None:
    steps = {"steps": 3, "checkpoint": {}}
    ddp = gang.run(tmp_path / "ddp", gang.training(**steps, engine={"strategy": "DDP"}))
    sharded = gang.run(tmp_path / "zero", gang.training(**steps, engine={"strategy": "DeepSpeed"}))
    assert ddp.codes == sharded.codes == {0: 0, 1: 0}, gang.log()
    assert list(ddp.losses.values()) == pytest.approx(list(sharded.losses.values()), rel=1e-3)
