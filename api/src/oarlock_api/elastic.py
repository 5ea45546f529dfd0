"""spec.spares and spec.elastic: pods beyond `nodes`, and gangs of fewer nodes than that."""

from typing import Annotated, Any

from pydantic import Field, StrictInt

from oarlock_api.contract.rounds import MAX_SPARES, InPlace
from oarlock_api.group import Group
from oarlock_api.rules import Rule

Spares = Annotated[StrictInt, Field(ge=0, le=MAX_SPARES)]


class Elastic(Group):
    """A gang that goes on with fewer nodes while some are lost, and grows again."""

    min_nodes: Annotated[StrictInt, Field(ge=1, le=4096)] = Field(description="Fewest nodes to train on.")
    patience_seconds: Annotated[StrictInt, Field(ge=10, le=86_400)] = Field(
        default=30,
        description="Seconds for which a lost node is waited for before the others go on without it, and all lost ones "
        "before some of them are taken back.",
    )


def _goes_on_in_place(spec: Any) -> bool:
    return spec.recovery.in_place == InPlace.AUTO and spec.custom is None


OF_OTHER_MEMBERS = (
    Rule(
        cel="self.spares == 0 || self.nodes >= 2",
        message="spares need nodes: 2 or more, for they never take the first one's place; raise it, or remove them",
        holds=lambda spec: spec.spares == 0 or spec.nodes >= 2,
    ),
    Rule(
        cel="self.spares == 0 || (self.recovery.inPlace == 'Auto' && !has(self.custom))",
        message="spares need recovery.inPlace: Auto and the built-in trainer; set that, or remove them",
        holds=lambda spec: spec.spares == 0 or _goes_on_in_place(spec),
    ),
    Rule(
        cel="!has(self.elastic) || (self.recovery.inPlace == 'Auto' && !has(self.custom))",
        message="elastic needs recovery.inPlace: Auto and the built-in trainer; set that, or remove it",
        holds=lambda spec: spec.elastic is None or _goes_on_in_place(spec),
    ),
    Rule(
        cel="!has(self.elastic) || !has(self.training) || has(self.training.effectiveBatch)",
        message="elastic needs training.effectiveBatch, with which a step is the same on however many nodes: set it to "
        "batchSize x GPUs x gradientAccumulation",
        holds=lambda spec: spec.elastic is None or spec.training is None or spec.training.effective_batch is not None,
    ),
    Rule(
        cel="!has(self.elastic) || self.elastic.minNodes < self.nodes",
        message="elastic.minNodes is not below nodes: lower it, or remove elastic",
        holds=lambda spec: spec.elastic is None or spec.elastic.min_nodes < spec.nodes,
    ),
    Rule(
        cel="!has(self.elastic) || self.elastic.patienceSeconds < self.recovery.standbySeconds",
        message="elastic.patienceSeconds is not below recovery.standbySeconds, after which all pods leave: lower it, or "
        "raise that",
        holds=lambda spec: spec.elastic is None or spec.elastic.patience_seconds < spec.recovery.standby_seconds,
    ),
)
"""Rules of spec: what a gang needs whose members are not always the same."""
