"""Real runs that train adapters: two processes, DDP, data that is learnt and data that keeps the model as it was."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Gang, Run


def training(gang: Gang, **fields: Any) -> dict[str, Any]:
    """Adapters over the session's photographs, learnt and kept in turns."""
    source = {"path": str(gang.pictures)}
    datasets = [
        {"name": "photos", "source": source, "probability": 0.5},
        {"name": "kept", "source": source, "role": "Regularization", "probability": 0.5},
    ]
    return gang.training(
        **{"method": "LoRA", "lora": {"rank": 4, "dropout": 0.1}, "data": gang.data(datasets=datasets)} | fields
    )


@pytest.fixture(scope="module")
def undisturbed(gang: Gang, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Run]:
    output = tmp_path_factory.mktemp("adapters")
    return output, gang.run(output, training(gang))


def test_adapters_are_trained_on_both_kinds_of_data_saved_and_exported_alone(
    undisturbed: tuple[Path, Run], gang: Gang
) -> None:
    output, run = undisturbed
    assert run.codes == {0: 0, 1: 0}, gang.log()
    assert list(run.losses) == list(range(1, 9))
    assert [path.name for path in (output / "model").iterdir()] == ["pytorch_lora_weights.safetensors"]
