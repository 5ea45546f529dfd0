"""Volumes and mounts that a job adds to its pods, kept off the names and places that Oarlock itself uses.

Oarlock's own are the output, job.json, the agent's run directory, shared memory and /tmp. A second volume or mount of
the same name or place would make a pod that the API server refuses; it is refused here, where the words can say more.
"""

import re
from typing import Annotated, ClassVar

from pydantic import ConfigDict, Field

from oarlock_api.group import Group
from oarlock_api.primitives import AbsolutePath
from oarlock_api.rules import Rule

OWN_VOLUMES = ("output", "oarlock-config", "oarlock-run", "shared-memory", "tmp")
"""Names of the volumes that every pod has."""

AGENT_PATHS = r"/+(etc|run)/oarlock(/.*)?"
"""Where the agent finds its job and keeps its files."""
OWN_PATHS = r"/+((dev/shm|tmp)?/*|(etc|run)/oarlock(/.*)?)"
"""Where every pod has a mount already, but for the output, whose place is the job's choice; and the root itself."""

VolumeName = Annotated[str, Field(min_length=1, max_length=63)]


def is_place(path: str, places: str) -> bool:
    """Tell whether a mount at `path` would stand at or over one of `places`; CEL says matches('^places$')."""
    return re.fullmatch(places, path) is not None


class Volume(Group):
    """A volume of the pod, in the words of the pod API."""

    model_config = ConfigDict(extra="allow")

    admission: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel=f"!(self.name in [{', '.join(repr(name) for name in OWN_VOLUMES)}])",
            message=f"Oarlock has volumes named {', '.join(OWN_VOLUMES)}; name yours otherwise (pod.patch changes the "
            "volumes shared-memory and tmp, spec.output says what output is)",
            holds=lambda volume: volume.name not in OWN_VOLUMES,
        ),
    )

    name: VolumeName = Field(description="Name that volumeMounts refer to.")


class VolumeMount(Group):
    """A mount in the trainer's container, in the words of the pod API."""

    model_config = ConfigDict(extra="allow")

    admission: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel=f"!self.mountPath.matches('^{OWN_PATHS}$')",
            message="Oarlock mounts something at /dev/shm, /etc/oarlock, /run/oarlock and /tmp; take another mountPath "
            "(pod.patch changes the volumes shared-memory and tmp that are mounted there)",
            holds=lambda mount: not is_place(mount.mount_path, OWN_PATHS),
        ),
    )

    name: VolumeName = Field(description="Name of a volume.")
    mount_path: AbsolutePath = Field(description="Where it is mounted.")
