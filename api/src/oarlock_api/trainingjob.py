"""The TrainingJob as a whole, and the rules that need to see all of it."""

import re
from typing import ClassVar, Literal

from pydantic import ConfigDict, Field

from oarlock_api.contract.names import MAX_NAME_LENGTH
from oarlock_api.group import Group, StatusGroup
from oarlock_api.naming import camel_case
from oarlock_api.primitives import Time
from oarlock_api.rules import Rule
from oarlock_api.spec import TrainingJobSpec
from oarlock_api.status import TrainingJobStatus

_NAME_PATTERN = "^[a-z]([-a-z0-9]*[a-z0-9])?$"

FROZEN_WHILE_ACTIVE = ("nodes", "gpusPerNode", "spares", "elastic", "training", "custom", "pod", "scheduling")
"""Fields of the spec that make the pods: they change only while no pod can exist."""
_MAY_BE_ABSENT = {camel_case(name) for name, field in TrainingJobSpec.model_fields.items() if field.default is None}


def _unchanged(field: str) -> str:
    new, old = f"self.spec.{field}", f"oldSelf.spec.{field}"
    if field not in _MAY_BE_ABSENT:
        return f"{new} == {old}"
    # The rule stands on the parent: a rule on an optional field is evaded by adding the field later.
    return f"(has({new}) == has({old}) && (!has({new}) || {new} == {old}))"


_SUSPENDED_AND_STOPPED = (
    "(oldSelf.spec.suspend && (!has(oldSelf.status) || !has(oldSelf.status.startTime) || "
    "(has(oldSelf.status.conditions) && "
    "oldSelf.status.conditions.exists(c, c.type == 'Suspended' && c.status == 'True'))))"
)

_STATUS_ONLY = "self.?status.?lastReconcileTime != oldSelf.?status.?lastReconcileTime"
"""True of every write of the status, which cannot touch the spec: comparing whole specs is a quarter of its cost."""


class ObjectMeta(StatusGroup):
    """The part of an object's metadata that Oarlock reads."""

    model_config = ConfigDict(extra="allow")

    name: str = Field(default="", description="Name.")
    namespace: str = Field(default="", description="Namespace.")
    uid: str = Field(default="", description="UID, set by the API server.")
    generation: int = Field(default=0, description="Rises with each change of the spec.")
    resource_version: str = Field(default="", description="Version for optimistic concurrency.")
    labels: dict[str, str] = Field(default={}, description="Labels.")
    annotations: dict[str, str] = Field(default={}, description="Annotations.")
    creation_timestamp: Time | None = Field(default=None, description="When the object was created.")
    deletion_timestamp: Time | None = Field(default=None, description="When its deletion began.")


class TrainingJob(Group):
    """A training run over several nodes that heals itself when one of them breaks."""

    admission: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel=f"self.metadata.name.size() <= {MAX_NAME_LENGTH} && self.metadata.name.matches('{_NAME_PATTERN}')",
            message=f"metadata.name becomes part of host names: at most {MAX_NAME_LENGTH} characters, lower-case "
            "letters, digits and '-', beginning with a letter; choose another name",
            holds=lambda job: (
                len(job.metadata.name) <= MAX_NAME_LENGTH and re.search(_NAME_PATTERN, job.metadata.name) is not None
            ),
        ),
        Rule(
            cel=f"{_STATUS_ONLY} || {_SUSPENDED_AND_STOPPED} || "
            f"({' && '.join(_unchanged(field) for field in FROZEN_WHILE_ACTIVE)})",
            message=f"{', '.join(FROZEN_WHILE_ACTIVE)} change only while no pod runs: set spec.suspend to true, wait "
            "for the condition Suspended, change them, set suspend to false; a job that has ended is deleted and applied "
            "anew, and goes on from its newest checkpoint",
        ),
    )

    api_version: Literal["oarlock.dev/v1alpha1"] = Field(default="oarlock.dev/v1alpha1", description="Group/version.")
    kind: Literal["TrainingJob"] = Field(default="TrainingJob", description="TrainingJob.")
    metadata: ObjectMeta = Field(description="Standard metadata of an object.")
    spec: TrainingJobSpec = Field(description="What to train, on what, with what.")
    status: TrainingJobStatus | None = Field(default=None, description="What the operator says; nobody else writes it.")
