"""spec: what a person writes."""

from typing import Annotated, Any, ClassVar

from pydantic import Field, StrictBool, StrictInt, model_validator

from oarlock_api.bounds import check_bounds
from oarlock_api.dealing_rule import EVERY_GPU_GETS_A_MICRO_BATCH
from oarlock_api.elastic import OF_OTHER_MEMBERS, Elastic, Spares
from oarlock_api.group import Group
from oarlock_api.output import Output
from oarlock_api.pod import Pod
from oarlock_api.pod_patch import TRAINER_CONTAINER, PatchedVolumeMount
from oarlock_api.pod_volumes import VolumeMount
from oarlock_api.primitives import AbsolutePath, LongText
from oarlock_api.recovery import Preflight, Recovery
from oarlock_api.rules import ListMap, Rule, exactly_one
from oarlock_api.scheduling import Scheduling
from oarlock_api.training import Training
from oarlock_api.webhooks import Webhook

OPERATOR = "oarlock.dev/operator"
"""The value of managedBy that this operator acts on."""

Deadline = Annotated[StrictInt, Field(ge=1, le=31_536_000)]


class Custom(Group):
    """A trainer of one's own, in an image of one's own."""

    command: Annotated[tuple[LongText, ...], Field(min_length=1, max_length=64)] = Field(
        description="Program and first arguments, started once per node, such as accelerate launch --config_file "
        "/run/oarlock/accelerate.yaml train.py."
    )
    args: Annotated[tuple[LongText, ...], Field(max_length=256)] = Field(default=(), description="Further arguments.")
    working_dir: AbsolutePath | None = Field(default=None, description="Directory to start in; absent = the image's.")


_AT_THE_OUTPUT = (
    "m.mountPath == self.output.mountPath || m.mountPath + '/' == self.output.mountPath || "
    "m.mountPath == self.output.mountPath + '/'"
)


def _at_the_output(mount: VolumeMount | PatchedVolumeMount, spec: "TrainingJobSpec") -> bool:
    one, other = mount.mount_path, spec.output.mount_path
    return other in (one, f"{one}/") or one == f"{other}/"


def _patched_mounts(spec: "TrainingJobSpec") -> list[PatchedVolumeMount]:
    containers = spec.pod.patch.containers if spec.pod.patch else ()
    return [mount for each in containers if each.name == TRAINER_CONTAINER for mount in each.volume_mounts]


class TrainingJobSpec(Group):
    """What to train, on what, with what."""

    admission: ClassVar[tuple[Rule, ...]] = (
        exactly_one(
            "training",
            "custom",
            message="set exactly one of spec.training (the built-in trainer) and spec.custom (your own)",
        ),
        Rule(
            cel="!has(self.custom) || has(self.pod.image)",
            message="spec.custom needs spec.pod.image, the image that holds your trainer",
            holds=lambda spec: spec.custom is None or spec.pod.image is not None,
        ),
        Rule(
            cel=f"!has(self.pod.volumeMounts) || !self.pod.volumeMounts.exists(m, {_AT_THE_OUTPUT})",
            message="pod.volumeMounts may not mount anything at output.mountPath; take another mountPath, or another "
            "output.mountPath",
            holds=lambda spec: not any(_at_the_output(mount, spec) for mount in spec.pod.volume_mounts),
        ),
        Rule(
            cel="!has(self.pod.patch) || !has(self.pod.patch.containers) || !self.pod.patch.containers.exists(c, "
            f"c.name == '{TRAINER_CONTAINER}' && has(c.volumeMounts) && c.volumeMounts.exists(m, {_AT_THE_OUTPUT}))",
            message="pod.patch may not mount anything at output.mountPath of the trainer: spec.output says what is there",
            holds=lambda spec: not any(_at_the_output(mount, spec) for mount in _patched_mounts(spec)),
        ),
        EVERY_GPU_GETS_A_MICRO_BATCH,
        *OF_OTHER_MEMBERS,
        Rule(
            cel="self.output == oldSelf.output",
            message="spec.output is immutable: a job's checkpoints lie there; make a new job to write elsewhere",
        ),
        Rule(
            cel="self.managedBy == oldSelf.managedBy",
            message="spec.managedBy is immutable; make a new job",
        ),
    )

    nodes: Annotated[StrictInt, Field(ge=1, le=4096)] = Field(
        default=1, description="Number of nodes; one pod runs on each. accelerate: num_machines."
    )
    gpus_per_node: Annotated[StrictInt, Field(ge=0, le=16)] = Field(
        default=8, description="GPUs per node; 0 = train on the CPU. accelerate: num_processes = nodes * gpusPerNode."
    )
    spares: Spares = Field(
        default=0,
        description="Pods beyond `nodes` that wait for a lost one's place. Only where lost pods are made anew one by one.",
    )
    elastic: Elastic | None = Field(
        default=None,
        description="Go on with fewer nodes while some are lost; absent = wait for all of them. Only as spares.",
    )
    output: Output = Field(description="Where the job writes. Immutable. SimpleTuner: output_dir.")
    training: Training | None = Field(default=None, description="The built-in trainer's work.")
    custom: Custom | None = Field(default=None, description="A trainer of your own; needs pod.image.")
    pod: Pod = Field(default=Pod(), description="What the pods look like.")
    scheduling: Scheduling = Field(default=Scheduling(), description="Who places the gang, and where.")
    preflight: Preflight = Field(default=Preflight(), description="Checks before the start.")
    recovery: Recovery = Field(default=Recovery(), description="What happens when something breaks.")
    webhooks: Annotated[tuple[Webhook, ...], Field(max_length=16), ListMap("name")] = Field(
        default=(), description="Who is told what happens. SimpleTuner: webhook_config."
    )
    suspend: StrictBool = Field(
        default=False, description="Save, stop all pods and give the GPUs back until it is false again."
    )
    startup_deadline_seconds: Deadline = Field(
        default=1800, description="Seconds within which a placed gang must be up (image pull, mounts), else it fails."
    )
    active_deadline_seconds: Deadline | None = Field(
        default=None,
        description="Seconds since startTime after which the job fails; time suspended or in a queue does not count. "
        "Absent = none.",
    )
    ttl_seconds_after_finished: Annotated[StrictInt, Field(ge=60, le=31_536_000)] | None = Field(
        default=None, description="Seconds after which a finished job is deleted, at least 60; absent = kept."
    )
    managed_by: Annotated[
        str,
        Field(
            min_length=3,
            max_length=63,
            pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$",
        ),
    ] = Field(
        default=OPERATOR,
        description="Controller that runs the job; any other than the default is left alone. Immutable.",
    )

    @model_validator(mode="before")
    @classmethod
    def _check_bounds(cls, given: Any) -> Any:
        # Before anything looks into it: what is too deep no program can walk.
        return check_bounds(given)
