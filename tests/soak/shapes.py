"""The gangs that a soak's jobs are, one after the other: each has the same steps, whichever of them computes them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

SAMPLES = 6
"""Of a step, on two nodes as on three."""
RECOVERY: dict[str, Any] = {
    "inPlace": "Auto",
    "memory": {"everySteps": 1},
    "hangSeconds": 10,
    "backoffSeconds": 0,
    "windowSeconds": 60,
    "teardownSeconds": 5,
    "standbySeconds": 60,
    "maxApplicationRestarts": 100_000,
    "maxInfrastructureRestarts": 100_000,
    "maxRestartsWithoutProgress": 1000,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """`spec`: what a job has beside what all have. `tolerance`: the share by which its losses may differ from the calm run's.

    Without a tolerance its model is that run's to the last bit as well.
    """

    words: str
    spec: dict[str, Any] = field(default_factory=dict)
    tolerance: float = 0.0


PLAIN = Shape(words="two nodes")
SHAPES = {
    "plain": PLAIN,
    "spare": Shape(words="two nodes and a spare", spec={"spares": 1}),
    # Ten seconds are the shortest patience that a job may have.
    "elastic": Shape(
        words="two to three nodes",
        spec={"nodes": 3, "elastic": {"minNodes": 2, "patienceSeconds": 10}},
        tolerance=0.05,  # bfloat16; a sample that is missing moves a loss further
    ),
}


def job(shape: Shape) -> dict[str, Any]:
    """The fields of a job of this shape that are not the example's."""
    training = {"effectiveBatch": SAMPLES}
    return {"gpusPerNode": 1, "recovery": RECOVERY, "training": training, **shape.spec}
