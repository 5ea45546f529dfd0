"""Kubernetes' own gangs on a real API server that serves them: one more, with the feature gate, on the same store.

No scheduler with the gate runs here: what is shown is that the server takes the PodGroup and keeps the pods' membership.
"""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from gangs import JOBS, SETTINGS, Gang
from processes import Api, operator, wait_for

if TYPE_CHECKING:
    from oarlock_local.cluster import Cluster

pytestmark = pytest.mark.cluster
GROUPS = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups"


def free_port(address: str) -> int:
    with socket.socket() as taken:
        taken.bind((address, 0))
        port: int = taken.getsockname()[1]
        return port


@pytest.fixture
def kubeconfig(control_plane: Cluster, api: Api, tmp_path: Path) -> Iterator[Path]:
    """The administrator's way to an API server with gangs, which lives as long as the test."""
    from oarlock_local.control_plane import api_server  # noqa: PLC0415

    del api  # it has brought the CRD
    address = control_plane.spec.addresses.control_plane
    port = free_port(address)
    command = [part for part in api_server(control_plane.spec) if not part.startswith("--secure-port")]
    gates = [f"--secure-port={port}", "--feature-gates=GenericWorkload=true,GangScheduling=true"]
    config = yaml.safe_load(control_plane.kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = f"https://{address}:{port}"
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    with (tmp_path / "server.log").open("wb") as log:
        server = subprocess.Popen(
            [*command, *gates, "--runtime-config=scheduling.k8s.io/v1alpha2=true"], stdout=log, stderr=log
        )
    try:
        client = Api(path)

        def serves() -> bool:
            assert server.poll() is None, (tmp_path / "server.log").read_text()[-3000:]
            try:
                return bool(client.find(GROUPS) and client.find(JOBS))
            except OSError:
                return False

        wait_for("the server with gangs", serves, seconds=120)
        yield path
    finally:
        server.terminate()
        server.wait(timeout=60)


def test_the_highest_version_that_is_served_makes_the_gang_and_its_group_goes_with_it(
    kubeconfig: Path, tmp_path: Path
) -> None:
    api = Api(kubeconfig)
    with operator(kubeconfig, tmp_path / "operator.log", *SETTINGS):
        gang = Gang(api)
        gang.wait_for_pods("1-0", "1-1")
        assert gang.status["resolved"]["gang"] == "Native", "Auto, where the cluster has it"
        (group,) = api.call("GET", f"{GROUPS}?labelSelector=oarlock.dev/job={gang.name}")["items"]
        assert group["spec"]["schedulingPolicy"] == {"gang": {"minCount": 2}}
        members = {pod["spec"]["schedulingGroup"]["podGroupName"] for pod in gang.pods().values()}
        assert members == {group["metadata"]["name"]}
        wait_for("the first look", lambda: gang.condition("Degraded")["reason"] == "AsExpected" or None)
        gang.run()
        for rank in (0, 1):
            gang.end(f"1-{rank}", 0)
        gang.wait_for_phase("Succeeded")
        path = f"{GROUPS}/{group['metadata']['name']}"
        wait_for(
            "the group to go", lambda: (found := api.find(path)) is None or "deletionTimestamp" in found["metadata"]
        )
