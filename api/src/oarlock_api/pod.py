"""spec.pod: what the pods of the gang look like beyond what Oarlock makes itself."""

from enum import StrEnum
from typing import Annotated, ClassVar, Self

from pydantic import Field, StrictBool, model_validator
from pydantic_core import PydanticCustomError

from oarlock_api.group import Group
from oarlock_api.pod_patch import PodPatch
from oarlock_api.pod_volumes import Volume, VolumeMount
from oarlock_api.primitives import (
    ObjectName,
    Port,
    QualifiedName,
    Quantity,
    Seconds,
    Text,
    Unstructured,
)
from oarlock_api.reserved import NO_RESERVED_KEYS, Env, EnvVar, StringMap
from oarlock_api.rules import ListMap, Rule

_ResourceList = Annotated[Unstructured, Field(max_length=32)]

__all__ = ["EnvVar", "ImagePullPolicy", "LocalObjectReference", "NetworkPolicy", "Pod", "Ports", "VolumeMount"]


class ImagePullPolicy(StrEnum):
    """When the kubelet pulls the image."""

    ALWAYS = "Always"
    IF_NOT_PRESENT = "IfNotPresent"
    NEVER = "Never"


class NetworkPolicy(StrEnum):
    """Whether the job's pods are closed to others."""

    AUTO = "Auto"
    NONE = "None"


class LocalObjectReference(Group):
    """An object of the job's namespace."""

    name: ObjectName = Field(description="Its name.")


class Resources(Group):
    """What the trainer's container asks for and may use, in the words of the pod API."""

    requests: _ResourceList | None = Field(default=None, description="What a node must have free, such as cpu: 32.")
    limits: _ResourceList | None = Field(default=None, description="What the container may use at most.")
    claims: Annotated[tuple[Unstructured, ...], Field(max_length=32)] = Field(
        default=(), description="Devices from the pod's resourceClaims, which pod.patch adds."
    )


class Ports(Group):
    """Ports in the pod; to be changed with hostNetwork, where other programs of the node may hold them."""

    admission: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="self.rendezvous != self.status && self.rendezvous != self.link && self.status != self.link",
            message="pod.ports.rendezvous, status and link must be three different ports",
            holds=lambda ports: len({ports.rendezvous, ports.status, ports.link}) == 3,
        ),
    )

    rendezvous: Port = Field(default=29500, description="Rendezvous of the ranks. accelerate: main_process_port.")
    status: Port = Field(default=9400, description="HTTP: /healthz, /status, /metrics.")
    link: Port = Field(default=9401, description="Connection of every agent to rank 0's.")


class Pod(Group):
    """The pods of the gang: one per node, all alike."""

    image: Text | None = Field(
        default=None,
        description="Image; absent = the trainer image of the operator's release. Required with spec.custom.",
    )
    image_pull_policy: ImagePullPolicy | None = Field(
        default=None, description="When to pull; absent = Kubernetes' default for the tag."
    )
    image_pull_secrets: Annotated[tuple[LocalObjectReference, ...], Field(max_length=16), ListMap("name")] = Field(
        default=(), description="Secrets for the registry."
    )
    resources: Resources = Field(
        default=Resources(),
        description="Requests and limits of the trainer's container; GPUs come from gpusPerNode.",
    )
    env: Env = Field(
        default=(),
        description="Environment of the trainer's container. Names of the pod contract (MASTER_ADDR, OARLOCK_...) are "
        "reserved.",
    )
    env_from: Annotated[tuple[Unstructured, ...], Field(max_length=32)] = Field(
        default=(), description="ConfigMaps and Secrets whose keys become environment variables."
    )
    volumes: Annotated[tuple[Volume, ...], Field(max_length=64), ListMap("name")] = Field(
        default=(), description="Further volumes of the pod."
    )
    volume_mounts: Annotated[tuple[VolumeMount, ...], Field(max_length=64), ListMap("mount_path")] = Field(
        default=(), description="Further mounts of the trainer's container."
    )
    security_context: Annotated[Unstructured, Field(max_length=32)] | None = Field(
        default=None, description="Security context of the pod: runAsUser, fsGroup, ..."
    )
    service_account_name: ObjectName | None = Field(
        default=None,
        description="ServiceAccount, for cloud credentials. Without it no token is mounted: Oarlock needs none.",
    )
    runtime_class_name: ObjectName | None = Field(default=None, description="RuntimeClass, such as nvidia.")
    labels: Annotated[StringMap, NO_RESERVED_KEYS] = Field(default={}, description="Further labels of the pods.")
    annotations: Annotated[
        dict[
            Annotated[str, Field(max_length=316)],
            Annotated[str, Field(max_length=8192)],
        ],
        Field(max_length=64),
        NO_RESERVED_KEYS,
    ] = Field(default={}, description="Further annotations of the pods.")
    gpu_resource: QualifiedName = Field(
        default="nvidia.com/gpu", description="Extended resource that gpusPerNode is asked as."
    )
    shared_memory: Quantity = Field(default="64Gi", description="Size limit of /dev/shm; counts as the pod's memory.")
    termination_grace_period_seconds: Seconds = Field(
        default=300, description="Seconds that a pod has to save a checkpoint after SIGTERM; 0 counts as 1."
    )
    host_network: StrictBool = Field(
        default=False,
        description="Use the node's network; sets the DNS policy and the interface of NCCL and gloo as well. The ports "
        "are then the node's.",
    )
    ports: Ports = Field(default=Ports(), description="Ports in the pod.")
    network_policy: NetworkPolicy = Field(
        default=NetworkPolicy.AUTO,
        description="Auto: where the operator makes NetworkPolicies, a job of several nodes gets one. Its pods reach each "
        "other, others only ports.status; a policy of your own can open more. None: no policy.",
    )
    patch: PodPatch | None = Field(
        default=None,
        description="Merged over the finished pod spec as the last word: lists with a merge key (containers, env, "
        "volumes) by that key, other lists (tolerations) are replaced, a null takes a key away. A spec has at most 32 "
        "levels and 128 KiB.",
    )

    @model_validator(mode="after")
    def _refuse_gpus_asked_for_twice(self) -> Self:
        # CEL sees nothing of a map whose values are numbers or texts, so the operator tells the job.
        if self.gpu_resource in {**(self.resources.requests or {}), **(self.resources.limits or {})}:
            raise PydanticCustomError(
                "gpus",
                "spec.gpusPerNode asks for {resource}; remove it from pod.resources",
                {"resource": self.gpu_resource},
            )
        return self
