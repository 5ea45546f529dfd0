"""Real runs that train adapters: two processes, DDP, data that is learnt and data that keeps the model as it was."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from oarlock_api.contract.exit_codes import ExitCode
from oarlock_trainer.checkpoint.format import valid_checkpoints

if TYPE_CHECKING:
    from conftest import Gang, Run

_IN_DIFFUSERS = Path(__file__).parent / "support" / "lora_in_diffusers.py"
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


def test_diffusers_own_loader_takes_the_export_and_predicts_what_the_trained_model_does(
    undisturbed: tuple[Path, Run], gang: Gang
) -> None:
    output, _ = undisturbed
    command = [sys.executable, str(_IN_DIFFUSERS), str(gang.model), str(output / "model"), str(RANK)]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert found["moved"] > 0.0
    assert found["apart"] == 0.0


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


@pytest.mark.parametrize("kind", ["Int8", "NF4", "FP8"])
def test_adapters_are_trained_over_quantized_weights_and_start_at_what_these_predict(
    gang: Gang, tmp_path: Path, kind: str
) -> None:
    fields = {"lora": {"rank": RANK, "quantizeBase": kind}, "steps": 4, "checkpoint": {"intervalSteps": 2}}
    run = gang.run(tmp_path, training(gang, **fields))
    assert run.codes == {0: 0, 1: 0}, gang.log()
    assert run.losses[1] == 0.0  # kept: the quantized model is its own base
    assert (tmp_path / "model" / "pytorch_lora_weights.safetensors").exists()


def test_weights_to_start_from_that_are_no_adapters_end_in_85_before_the_model_is_read(
    gang: Gang, tmp_path: Path
) -> None:
    run = gang.run(tmp_path, training(gang, initFrom={"path": str(gang.model)}))
    assert set(run.codes.values()) == {ExitCode.CONFIGURATION}
    assert f"training.initFrom.path: {gang.model} has no pytorch_lora_weights.safetensors" in run.failure


def test_a_whole_model_trains_on_ddp_as_with_deepspeed(gang: Gang, tmp_path: Path) -> None:
    steps = {"steps": 3, "checkpoint": {}}
    ddp = gang.run(tmp_path / "ddp", gang.training(**steps, engine={"strategy": "DDP"}))
    sharded = gang.run(tmp_path / "zero", gang.training(**steps, engine={"strategy": "DeepSpeed"}))
    assert ddp.codes == sharded.codes == {0: 0, 1: 0}, gang.log()
    assert list(ddp.losses.values()) == pytest.approx(list(sharded.losses.values()), rel=1e-3)
