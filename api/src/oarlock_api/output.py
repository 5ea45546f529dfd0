"""Where a job writes: one directory on storage that every pod of the gang mounts."""

from typing import Annotated, ClassVar

from pydantic import Field, StrictInt

from oarlock_api.group import Group
from oarlock_api.pod_volumes import OWN_PATHS, is_place
from oarlock_api.primitives import AbsolutePath, ObjectName, Quantity
from oarlock_api.rules import Rule, exactly_one


class PersistentVolumeClaimOutput(Group):
    """A claim of the job's namespace."""

    claim_name: ObjectName = Field(
        description="Name of the claim. With more than one node its access mode must be ReadWriteMany."
    )


class NfsOutput(Group):
    """An NFS export, mounted without a claim."""

    server: Annotated[str, Field(min_length=1, max_length=253)] = Field(description="Host name or address.")
    path: AbsolutePath = Field(description="Exported path, absolute.")


class HistoryOutput(Group):
    """How much is kept of what a job's pods printed, and of the stacks of hangs. The story itself is short."""

    log_size: Quantity = Field(
        default="16Mi",
        description="Most that is kept of a pod's log, compressed; 0 = no logs are kept. All pods of an attempt together "
        "keep 1Gi at most: with many nodes, each has an equal share of that, of 1Mi at least.",
    )
    keep_attempts: Annotated[StrictInt, Field(ge=1, le=1000)] = Field(
        default=20, description="Attempts whose logs and stacks are kept."
    )


class Output(Group):
    """The job's output directory. Immutable."""

    admission: ClassVar[tuple[Rule, ...]] = (
        exactly_one(
            "persistent_volume_claim",
            "nfs",
            message="set exactly one of output.persistentVolumeClaim and output.nfs",
        ),
        Rule(
            cel=f"!self.mountPath.matches('^{OWN_PATHS}$')",
            message="output.mountPath is used by the pod itself; take another path, such as /output",
            holds=lambda output: not is_place(output.mount_path, OWN_PATHS),
        ),
    )

    persistent_volume_claim: PersistentVolumeClaimOutput | None = Field(
        default=None, description="A PersistentVolumeClaim that all pods mount."
    )
    nfs: NfsOutput | None = Field(default=None, description="An NFS export that all pods mount.")
    directory: Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[^/.][^/]*$")] | None = Field(
        default=None,
        description="Directory below the mount that holds everything of this job; absent = the job's name. "
        "SimpleTuner: output_dir.",
    )
    mount_path: AbsolutePath = Field(default="/output", description="Where the storage is mounted in the pod.")
    history: HistoryOutput = Field(
        default=HistoryOutput(), description="What is kept of the job's history below the directory."
    )
    min_free: Quantity | None = Field(
        default=None,
        description="Free space that the start requires, such as 200Gi; absent = (checkpoint.keep + 1) times the "
        "estimated checkpoint.",
    )
