"""spec.pod.patch: the way out for what the pod API has and spec.pod has not.

It is free but for what holds a gang together. Those leaves are declared, because CEL sees only declared fields.
"""

from typing import Annotated, ClassVar

from pydantic import ConfigDict, Field

from oarlock_api.group import Group
from oarlock_api.primitives import EnvName
from oarlock_api.reserved import NO_RESERVED_ENV
from oarlock_api.rules import Rule

_GUARDED = {
    "node_name": "nodeName",
    "scheduler_name": "schedulerName",
    "hostname": "hostname",
    "subdomain": "subdomain",
    "restart_policy": "restartPolicy",
}
_Guarded = Annotated[str, Field(max_length=253)]


class PatchedEnvVar(Group):
    """An environment variable of a patched container."""

    model_config = ConfigDict(extra="allow")

    name: EnvName = Field(description="Name; the merge key.")


class PatchedContainer(Group):
    """A container of the pod, found by its name."""

    model_config = ConfigDict(extra="allow")

    name: Annotated[str, Field(min_length=1, max_length=63)] = Field(
        description="Name; the merge key. The trainer's container is called trainer."
    )
    env: Annotated[tuple[Annotated[PatchedEnvVar, NO_RESERVED_ENV], ...], Field(max_length=128)] = Field(
        default=(), description="Environment, merged by name."
    )


class PodPatch(Group):
    """A piece of a pod spec."""

    model_config = ConfigDict(extra="allow")

    admission: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="![" + ", ".join(f"has(self.{field})" for field in _GUARDED.values()) + "].exists(x, x)",
            message="pod.patch may not set nodeName, schedulerName, hostname, subdomain or restartPolicy: use "
            "spec.scheduling (nodeSelector, schedulerName); the others hold the gang together",
            holds=lambda patch: not any(getattr(patch, field) is not None for field in _GUARDED),
        ),
    )

    node_name: _Guarded | None = Field(default=None, description="May not be set: use scheduling.nodeSelector.")
    scheduler_name: _Guarded | None = Field(default=None, description="May not be set: use scheduling.schedulerName.")
    hostname: _Guarded | None = Field(default=None, description="May not be set.")
    subdomain: _Guarded | None = Field(default=None, description="May not be set.")
    restart_policy: _Guarded | None = Field(default=None, description="May not be set: use spec.recovery.")
    containers: Annotated[tuple[PatchedContainer, ...], Field(max_length=8)] = Field(
        default=(), description="Containers, merged by name."
    )
    init_containers: Annotated[tuple[PatchedContainer, ...], Field(max_length=8)] = Field(
        default=(), description="Init containers, merged by name."
    )
