"""Bringing a new kind of object to a cluster.

`kubectl wait --for=condition=Established` fails on a definition that has no conditions at all yet, as one has none right
after it was made. What counts is whether the API server serves the kind, so that is asked.
"""

import time
from pathlib import Path

import yaml

from oarlock_local.api import ApiServer
from oarlock_local.cluster import Cluster
from oarlock_local.errors import ClusterError


def apply_crd(cluster: Cluster, path: Path, *, seconds: float = 60) -> None:
    """Apply the CustomResourceDefinition of a file and wait until its objects can be made; raises ClusterError."""
    # Helm writes some numbers otherwise: what it has installed would be a conflict, though the same is meant.
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(path))
    wait_until_served(cluster, path, seconds=seconds)


def wait_until_served(cluster: Cluster, path: Path, *, seconds: float = 60) -> None:
    """Wait until objects of the definition in a file, which somebody has applied, can be made; raises ClusterError."""
    spec = yaml.safe_load(path.read_text())["spec"]
    plural = spec["names"]["plural"]
    groups = [f"/apis/{spec['group']}/{version['name']}" for version in spec["versions"] if version["served"]]
    deadline = time.monotonic() + seconds
    with ApiServer(cluster.kubeconfig) as api:
        while not all(_serves(api, group, plural) for group in groups):
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"the API server does not serve {plural} after {seconds:g} s: "
                    f"`kubectl describe crd {plural}.{spec['group']}` says why."
                )
            time.sleep(0.05)


def _serves(api: ApiServer, group: str, plural: str) -> bool:
    """Whether clients can find the kind (kubectl looks it up), and the server can list it."""
    found = api.find(group) or {}
    known = any(resource["name"] == plural for resource in found.get("resources", []))
    return known and api.find(f"{group}/{plural}?limit=1") is not None
