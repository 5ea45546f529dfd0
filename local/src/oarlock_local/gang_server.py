"""Kubernetes' own gangs: one more API server of a cluster, on the same store, with their feature gate.

Only this one serves PodGroups and keeps the pods' membership. Nobody acts on them: scheduler and controllers are without
the gate, so that a deleted PodGroup keeps its finalizer until somebody takes it away.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from oarlock_local.api import ApiServer
from oarlock_local.cluster import Cluster
from oarlock_local.control_plane import api_server
from oarlock_local.errors import ClusterError
from oarlock_local.ports import free_port
from oarlock_local.processes import start_logged, stop

GANGS = "scheduling.k8s.io/v1alpha2"
"""The version that it serves."""
_SECONDS = 120.0


@contextmanager
def gang_server(cluster: Cluster, folder: Path) -> Iterator[Path]:
    """The administrator's kubeconfig for such a server of a control plane alone, which lives as long as the block.

    Who asks it for what stands in the cluster's audit log. Its own log and the kubeconfig are written to `folder`.
    Raises ClusterError where it does not start.
    """
    address = cluster.spec.addresses.control_plane
    port = free_port(address)
    path, log = folder / "gang-server.kubeconfig", folder / "gang-server.log"
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = f"https://{address}:{port}"
    path.write_text(yaml.safe_dump(config))
    # Of an option that is given twice the last one counts.
    options = [f"--secure-port={port}", "--feature-gates=GenericWorkload=true,GangScheduling=true"]
    server = start_logged([*api_server(cluster.spec), *options, f"--runtime-config={GANGS}=true"], log)
    try:
        deadline = time.monotonic() + _SECONDS
        with ApiServer(path) as api:
            while not (api.is_ready() and api.find(f"/apis/{GANGS}/podgroups")):
                if server.poll() is not None or time.monotonic() > deadline:
                    raise ClusterError(f"the API server with gangs does not come up: {log.read_text()[-2000:]}")
                time.sleep(0.1)
        yield path
    finally:
        stop(server)
