"""The learning rate's shapes."""

from __future__ import annotations

from typing import Any

import pytest

from oarlock_api.optimization import Optimizer
from oarlock_trainer.engine.learning_rate import learning_rate


def rate(step: int, total: int = 100, **schedule: Any) -> float:
    return learning_rate(Optimizer.model_validate({"learningRate": 1.0, "schedule": schedule}), step, total)


@pytest.mark.parametrize(
    ("schedule", "step", "expected"),
    [
        ({"name": "Constant"}, 99, 1.0),
        ({"name": "Constant", "warmupSteps": 10}, 5, 0.5),
        ({"name": "Constant", "warmupSteps": 10}, 10, 1.0),
        ({"name": "Linear"}, 25, 0.75),
        ({"name": "Linear", "endLearningRate": 0.5}, 50, 0.75),
        ({"name": "Polynomial", "power": 2}, 50, 0.25),
        ({"name": "Cosine"}, 50, 0.5),
        ({"name": "Cosine"}, 100, 0.0),
        ({"name": "CosineWithRestarts", "cycles": 2}, 25, 0.5),
        ({"name": "CosineWithRestarts", "cycles": 2}, 50, 1.0),
        ({"name": "Sine", "cycles": 2}, 25, 0.0),
        ({"name": "Sine", "cycles": 2}, 50, 1.0),
    ],
)
def test_shape(schedule: dict[str, Any], step: int, expected: float) -> None:
    assert rate(step, **schedule) == pytest.approx(expected, abs=1e-12)
