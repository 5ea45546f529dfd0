"""What a cluster is asked to be: written once by `up`, read by its supervisor and by every later command."""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from oarlock_local.addresses import Addresses
from oarlock_local.errors import ClusterError
from oarlock_local.folders import ClusterFolder


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """One cluster."""

    root: str
    """The cluster's folder."""
    slot: int
    binaries: str
    """The folder of the programs."""
    nodes: int
    """0 is a control plane alone."""
    gpus: int
    """How many `nvidia.com/gpu` each node advertises; 0 advertises none."""
    shares: tuple[str, ...]
    """Folders of this machine that pods of the runtime class `host-userland` see, read-only, at the same paths."""
    images: tuple[str, ...]
    """The names under which every node has the host userland image."""
    guard_owners: bool = False
    """Whether who names an owner must have the right to its finalizers, as on OpenShift. The API server asks every 30 s which
    kinds there are: until then it takes no object with an owner of a new kind."""
    stock_controllers: bool = False
    """Whether the controllers ask the API server no more often than they do as released: 20 requests a second each."""

    @property
    def folder(self) -> ClusterFolder:
        """The cluster's files."""
        return ClusterFolder(Path(self.root))

    @property
    def addresses(self) -> Addresses:
        """The cluster's addresses."""
        return Addresses(self.slot, loopback_only=self.nodes == 0)

    @property
    def node_names(self) -> list[str]:
        """node-1, node-2, ..."""
        return [f"node-{number}" for number in range(1, self.nodes + 1)]

    def program(self, name: str) -> str:
        """The path of one of the programs."""
        return str(Path(self.binaries) / name)

    def save(self) -> None:
        """Write the spec into the cluster's folder."""
        self.folder.spec.write_text(json.dumps(dataclasses.asdict(self), indent=1))

    @classmethod
    def load(cls, folder: ClusterFolder) -> Self:
        """Read the spec; raises ClusterError where there is no such cluster."""
        try:
            fields = json.loads(folder.spec.read_text())
        except FileNotFoundError:
            raise ClusterError(
                f"there is no cluster {folder.name!r} in {folder.root.parent}. "
                f"`oarlock-local status` lists those that are; `oarlock-local up {folder.name}` starts it."
            ) from None
        return cls(**{**fields, "shares": tuple(fields["shares"]), "images": tuple(fields["images"])})
