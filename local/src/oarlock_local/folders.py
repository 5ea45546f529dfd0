"""Where things lie on disk: the cache of built binaries, and one folder per cluster.

Everything that a cluster ever writes lies in its own folder, and `down` removes that folder.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from oarlock_local.errors import LocalError


def cache_folder(environ: Mapping[str, str]) -> Path:
    """The folder of things that can be made again: $XDG_CACHE_HOME/oarlock, by default ~/.cache/oarlock."""
    return Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "oarlock"


def state_folder(environ: Mapping[str, str]) -> Path:
    """The folder of all clusters: $XDG_STATE_HOME/oarlock/clusters, by default under ~/.local/state."""
    return Path(environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "oarlock" / "clusters"


@dataclass(frozen=True, slots=True)
class ClusterFolder:
    """The files of one cluster, by the names that the rest of the package uses for them."""

    root: Path

    @classmethod
    def of(cls, name: str, state: Path | None = None) -> "ClusterFolder":
        """The folder of the cluster of that name; the name must be usable as a DNS label."""
        if not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?", name):
            raise LocalError(
                f"cluster name {name!r}: use 1 to 32 lower-case letters, digits and dashes, "
                "starting and ending with a letter or digit."
            )
        return cls((state or state_folder(os.environ)).absolute() / name)

    @property
    def name(self) -> str:
        """The cluster's name."""
        return self.root.name

    @property
    def spec(self) -> Path:
        """What the cluster was asked to be, as JSON."""
        return self.root / "cluster.json"

    @property
    def lock(self) -> Path:
        """A file that the cluster's processes keep locked: locked means alive. It stands beside the folder."""
        return self.root.with_name(f"{self.name}.lock")

    @property
    def supervisor(self) -> Path:
        """Process id and start time of the supervisor, for the case that it answers nobody."""
        return self.root / "supervisor.json"

    @property
    def control_socket(self) -> Path:
        """The unix socket on which the supervisor takes requests."""
        return self.root / "control.sock"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig, usable by every ordinary client on this machine."""
        return self.root / "kubeconfig"

    @property
    def certificates(self) -> Path:
        """The certificates and keys; the kubeconfigs of the components too."""
        return self.root / "pki"

    @property
    def logs(self) -> Path:
        """One log per process."""
        return self.root / "logs"

    @property
    def audit_policy(self) -> Path:
        """What the API server logs of requests."""
        return self.root / "audit-policy.json"

    @property
    def audit_log(self) -> Path:
        """What ServiceAccounts asked for, one JSON object a line."""
        return self.logs / "audit.log"

    @property
    def etcd(self) -> Path:
        """The data of etcd."""
        return self.root / "etcd"

    @property
    def volumes(self) -> Path:
        """One folder per PersistentVolume: the same on every node, as on a shared file system."""
        return self.root / "volumes"

    @property
    def image(self) -> Path:
        """The images that every node has from the start, as one OCI archive."""
        return self.root / "images.tar"

    @property
    def nvml(self) -> Path:
        """The pretended NVML that every node with GPUs gets; missing where nodes have none."""
        return self.root / "nvml"

    def node(self, name: str) -> Path:
        """The disk of one node; it outlives a reboot of the node."""
        return self.root / "nodes" / name
