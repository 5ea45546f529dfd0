"""The operator with no other rights than those that the chart gives it, on a real API server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from oarlock_local.crd import apply_crd
from tests.chart.test_chart import CHART, render

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from oarlock_local.cluster import Cluster

pytestmark = pytest.mark.cluster
RELEASES = {"everywhere": (), "only-here": ("namespaces={default}",)}


def wait(what: str, until: Callable[[], object], *, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not until():
        assert time.monotonic() < deadline, f"{what} did not come within {seconds} s"
        time.sleep(0.1)


def kubeconfig_of(cluster: Cluster, account: str, path: Path) -> Path:
    """The administrator's kubeconfig, but as a ServiceAccount."""
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    token = cluster.kubectl("create", "token", account, "-n", "oarlock", "--duration=1h").strip()
    config["users"] = [{"name": config["users"][0]["name"], "user": {"token": token}}]
    path.write_text(yaml.safe_dump(config))
    return path


def job(name: str) -> dict[str, Any]:
    raw: dict[str, Any] = yaml.safe_load((CHART.parents[1] / "examples/trainingjob.yaml").read_text())
    raw["metadata"]["name"] = name
    del raw["spec"]["pod"]["runtimeClassName"]  # that of local nodes; here are none
    raw["spec"]["training"]["optimizer"]["learningRate"] = 0.001  # YAML 1.1 reads 1.0e-3 as a string
    return raw


@pytest.mark.parametrize("release", RELEASES)
def test_the_rights_of_the_chart_suffice_for_a_start_and_a_restart(
    release: str, helm_program: Path, control_plane: Cluster, tmp_path: Path
) -> None:
    apply_crd(control_plane, CHART.parents[1] / "crds/trainingjobs.yaml")
    namespace = json.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "oarlock"}})
    control_plane.kubectl("apply", "-f", "-", stdin=namespace)
    objects = render(helm_program, *RELEASES[release], release=release)
    deployment = next(item for item in objects if item["kind"] == "Deployment")
    rights = [item for item in objects if item["kind"] != "Deployment"]
    control_plane.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(rights))
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    environment = {item["name"]: item["value"] for item in container["env"]}
    log = tmp_path / "operator.log"
    kubeconfig = kubeconfig_of(control_plane, f"{release}-operator", tmp_path / "kubeconfig")
    command = [sys.executable, "-m", "oarlock_operator", "--kubeconfig", str(kubeconfig), "--port", "0"]
    with log.open("wb") as written:
        operator = subprocess.Popen(
            [*command, "--lease-namespace", "oarlock"],
            stdout=written,
            stderr=written,
            env={**os.environ, **environment},
        )
    try:
        control_plane.kubectl("apply", "-f", "-", stdin=json.dumps(job(release)))

        def pods() -> set[str]:
            found = control_plane.kubectl("get", "pods", "-l", f"oarlock.dev/job={release}", "-o", "name")
            return {name.removeprefix(f"pod/{release}-") for name in found.split()}

        def alive_and(expected: set[str]) -> bool:
            assert operator.poll() is None, log.read_text()[-2000:]
            return pods() == expected

        wait("the first attempt", lambda: alive_and({"1-0", "1-1"}))
        wait("its Event", lambda: release in control_plane.kubectl("get", "events", "--field-selector=reason=Starting"))
        control_plane.kubectl("delete", "pod", f"{release}-1-1", "--grace-period=0", "--force")
        wait("the second attempt", lambda: alive_and({"2-0", "2-1"}))
        assert "Forbidden" not in log.read_text()
    finally:
        operator.send_signal(signal.SIGTERM)
        operator.wait(timeout=20)
        control_plane.kubectl("delete", "trainingjob", release, "--wait=false", "--ignore-not-found")
