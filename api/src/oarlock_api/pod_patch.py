"""spec.pod.patch: the way out for what the pod API has and spec.pod has not.

It is free but for what holds a gang together: who the ranks are, the agent as the trainer's program, the volumes that
it lives on. Those leaves are declared, because CEL sees only declared fields. What CEL cannot see at all (a directive
of kubectl's strategic merge, however deep; a variable's value, because a null may take it away) the models refuse, and
the operator tells the job so.
"""

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Self

from pydantic import ConfigDict, Field, StrictBool, ValidationInfo, model_serializer, model_validator
from pydantic_core import PydanticCustomError

from oarlock_api.contract.environment import SET_BY_THE_AGENT, is_reserved
from oarlock_api.group import Group
from oarlock_api.naming import camel_case
from oarlock_api.pod_volumes import AGENT_PATHS, VolumeName, is_place
from oarlock_api.primitives import AbsolutePath, EnvName, LongText, Text, Unstructured
from oarlock_api.reserved import NO_RESERVED_ENV, references
from oarlock_api.rules import ACCEPTED, Rule

TRAINER_CONTAINER = "trainer"
"""The container that the agent runs in."""

_OF_THE_GANG = ("node_name", "scheduler_name", "hostname", "subdomain", "restart_policy", "host_network")
_OF_THE_AGENT = ("command", "args", "image", "restart_policy", "termination_message_path")
_VOLUMES_OF_THE_AGENT = ("output", "oarlock-config", "oarlock-run")

_Guarded = Annotated[str, Field(max_length=253)]
_Words = Annotated[tuple[LongText, ...], Field(max_length=256)]


def _sets(*fields: str) -> str:
    return "[" + ", ".join(f"has(self.{camel_case(field)})" for field in fields) + "].exists(x, x)"


def _given(group: Group, fields: tuple[str, ...]) -> bool:
    return any(getattr(group, field) is not None for field in fields)


class _Piece(Group):
    """A piece of the pod API of which only the fields that rules look at are declared."""

    model_config = ConfigDict(extra="allow")

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls_of_declared_fields(cls, given: Any) -> Any:
        # As the API server does, before any rule looks at them; elsewhere a null takes a key away.
        if not isinstance(given, dict):
            return given
        declared = cls.model_fields.keys() | {camel_case(name) for name in cls.model_fields}
        return {name: value for name, value in given.items() if value is not None or name not in declared}

    @model_serializer
    def as_given(self) -> dict[str, Any]:
        """Write the piece as it was given, with the nulls that take a key away."""
        declared = [name for name in type(self).model_fields if name in self.model_fields_set]
        return {camel_case(name): _plain(getattr(self, name)) for name in declared} | (self.model_extra or {})


class PatchedVolume(_Piece):
    """A volume of the pod, found by its name."""

    admission: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel=f"!(self.name in [{', '.join(repr(name) for name in _VOLUMES_OF_THE_AGENT)}])",
            message=f"pod.patch may not change the volumes {', '.join(_VOLUMES_OF_THE_AGENT)}: spec.output says where "
            "a job writes, the others hold what the agent is told",
            holds=lambda volume: volume.name not in _VOLUMES_OF_THE_AGENT,
        ),
    )

    name: VolumeName = Field(description="Name; the merge key.")


class PatchedVolumeMount(_Piece):
    """A mount of a patched container, found by its place."""

    mount_path: AbsolutePath = Field(description="Where it is mounted; the merge key.")


class PatchedEnvVar(_Piece):
    """An environment variable of a patched container."""

    name: EnvName = Field(description="Name; the merge key.")


class PatchedContainer(_Piece):
    """A container of the pod, found by its name."""

    admission: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel=f"self.name != '{TRAINER_CONTAINER}' || !{_sets(*_OF_THE_AGENT)}",
            message="pod.patch may not set command, args, image, restartPolicy or terminationMessagePath of the "
            "trainer: its program is Oarlock's agent; use pod.image for another image, spec.custom for another program",
            holds=lambda container: container.name != TRAINER_CONTAINER or not _given(container, _OF_THE_AGENT),
        ),
        Rule(
            cel=f"self.name != '{TRAINER_CONTAINER}' || !has(self.volumeMounts) || "
            f"!self.volumeMounts.exists(m, m.mountPath.matches('^{AGENT_PATHS}$'))",
            message="pod.patch may not mount anything at /etc/oarlock or /run/oarlock of the trainer: its agent reads "
            "the job and keeps its files there; take another mountPath",
            holds=lambda container: (
                container.name != TRAINER_CONTAINER
                or not any(is_place(mount.mount_path, AGENT_PATHS) for mount in container.volume_mounts)
            ),
        ),
    )

    name: Annotated[str, Field(min_length=1, max_length=63)] = Field(
        description="Name; the merge key. The trainer's container is called trainer."
    )
    image: Text | None = Field(default=None, description="Image; of the trainer it may not be set: use pod.image.")
    command: _Words | None = Field(default=None, description="Program; of the trainer it may not be set.")
    args: _Words | None = Field(default=None, description="Arguments; of the trainer they may not be set.")
    restart_policy: _Guarded | None = Field(
        default=None, description="Always makes an init container a sidecar; of the trainer it may not be set."
    )
    termination_message_path: Text | None = Field(
        default=None, description="File of last words; of the trainer it may not be set."
    )
    env: Annotated[tuple[Annotated[PatchedEnvVar, NO_RESERVED_ENV], ...], Field(max_length=128)] = Field(
        default=(),
        description="Environment, merged by name. A reference to a variable of Oarlock that the container has not is "
        "refused: only the trainer has them, and $(MASTER_ADDR) and its like are set inside it.",
    )
    volume_mounts: Annotated[tuple[PatchedVolumeMount, ...], Field(max_length=64)] = Field(
        default=(), description="Mounts, merged by mountPath."
    )


class PodPatch(_Piece):
    """A piece of a pod spec. A null takes a key away; directives such as $patch end the job with a message."""

    admission: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel=f"!{_sets(*_OF_THE_GANG)}",
            message="pod.patch may not set nodeName, schedulerName, hostname, subdomain, restartPolicy or hostNetwork: "
            "use spec.scheduling (nodeSelector, schedulerName) and pod.hostNetwork; the others hold the gang together",
            holds=lambda patch: not _given(patch, _OF_THE_GANG),
        ),
        Rule(
            cel="!has(self.metadata) && !has(self.spec)",
            message="spec.pod.patch is a piece of a pod's spec, without metadata and spec: use pod.labels and "
            "pod.annotations, and write what stands below spec as it is",
            holds=lambda patch: patch.metadata is None and patch.spec is None,
        ),
    )

    metadata: Unstructured | None = Field(default=None, description="May not be set: use pod.labels, pod.annotations.")
    spec: Unstructured | None = Field(default=None, description="May not be set: a patch begins below it.")

    node_name: _Guarded | None = Field(default=None, description="May not be set: use scheduling.nodeSelector.")
    scheduler_name: _Guarded | None = Field(default=None, description="May not be set: use scheduling.schedulerName.")
    hostname: _Guarded | None = Field(default=None, description="May not be set.")
    subdomain: _Guarded | None = Field(default=None, description="May not be set.")
    restart_policy: _Guarded | None = Field(default=None, description="May not be set: use spec.recovery.")
    host_network: StrictBool | None = Field(default=None, description="May not be set: use pod.hostNetwork.")
    containers: Annotated[tuple[PatchedContainer, ...], Field(max_length=8)] = Field(
        default=(), description="Containers, merged by name."
    )
    init_containers: Annotated[tuple[PatchedContainer, ...], Field(max_length=8)] = Field(
        default=(), description="Init containers, merged by name."
    )
    volumes: Annotated[tuple[PatchedVolume, ...], Field(max_length=64)] = Field(
        default=(), description="Volumes, merged by name; output, oarlock-config and oarlock-run may not be changed."
    )

    @model_validator(mode="after")
    def _refuse_references(self, info: ValidationInfo) -> Self:
        # It came with a later release, and nothing relies on it.
        for container in () if info.context == ACCEPTED else (*self.init_containers, *self.containers):
            for name, reference in _unset_references(container):
                raise PydanticCustomError(
                    "reference",
                    "container {container}: {name} refers to $({reference}), which is not set there: Oarlock's own variables "
                    "are the trainer's, and those of the gang's size and address are set inside it, by the agent. Kubernetes "
                    "would leave the reference as it stands; write the value",
                    {"container": container.name, "name": name, "reference": reference},
                )
        return self

    @model_validator(mode="after")
    def _refuse_directives(self) -> Self:
        for path in _directives(self.as_given(), ()):
            raise PydanticCustomError(
                "directive",
                "{path} is a directive, and pod.patch knows none: a null takes a key away, an entry with the same merge "
                "key is merged, a list without merge key is replaced",
                {"path": ".".join(path)},
            )
        return self


def _unset_references(container: PatchedContainer) -> Iterator[tuple[str, str]]:
    """Variables of a patched container, and the variables of Oarlock that they refer to and that are not set there."""
    for variable in container.env:
        value = (variable.model_extra or {}).get("value")
        for name in references(value if isinstance(value, str) else None):
            if name in SET_BY_THE_AGENT or (container.name != TRAINER_CONTAINER and is_reserved(name)):
                yield variable.name, name


def _plain(value: Any) -> Any:
    if isinstance(value, _Piece):
        return value.as_given()
    return [_plain(entry) for entry in value] if isinstance(value, tuple) else value


def _directives(value: Any, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if isinstance(value, dict):
        for key, below in value.items():
            if key.startswith("$"):
                yield (*path, key)
            yield from _directives(below, (*path, key))
    elif isinstance(value, list):
        for index, below in enumerate(value):
            yield from _directives(below, (*path, str(index)))
