"""The page as the chart runs it, on a real API server: whatever is done there, it asks as who has come with a token alone."""

from __future__ import annotations

import base64
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import yaml

from oarlock.cluster import connect
from oarlock.errors import RefusedError
from oarlock.job import Job
from oarlock_local import patience
from oarlock_local.cluster import Cluster
from oarlock_local.patience import eventually
from oarlock_local.rights import asked, users
from tests.chart.rendering import one, render

pytestmark = pytest.mark.cluster
ACCOUNT = "system:serviceaccount:{}:person"
SPEC = {
    "nodes": 1,
    "output": {"persistentVolumeClaim": {"claimName": "output"}},
    "custom": {"command": ["true"]},
    "pod": {"image": "example.test/none"},
}


def tenant(cluster: Cluster, name: str) -> str:
    """A namespace with a job, and a token of one who may edit there."""
    cluster.kubectl("create", "namespace", name)
    cluster.kubectl("create", "serviceaccount", "person", "-n", name)
    cluster.kubectl(
        "create", "rolebinding", "edit", "-n", name, "--clusterrole=edit", f"--serviceaccount={name}:person"
    )
    body = {
        "apiVersion": "oarlock.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": f"of-{name}"},
        "spec": SPEC,
    }
    cluster.kubectl("create", "-n", name, "-f", "-", stdin=json.dumps(body))
    return cluster.kubectl("create", "token", "person", "-n", name).strip()


@pytest.fixture(scope="module")
def page(helm_program: Path, serving: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the page, run by the chart's own command, with the chart's roles for people."""
    objects = render(helm_program, {"dashboard": {"enabled": True, "actions": True}}, release="seen")
    serving.apply(item for item in objects if item["kind"] in {"ServiceAccount", "ClusterRole"})
    config = yaml.safe_load(serving.kubeconfig.read_text())["clusters"][0]["cluster"]
    folder = tmp_path_factory.mktemp("page")
    (folder / "ca.crt").write_bytes(base64.b64decode(config["certificate-authority-data"]))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (container,) = one(objects, "Deployment", "seen-web")["spec"]["template"]["spec"]["containers"]
    here = {
        "python": sys.executable,
        "--port=8080": f"--port={port}",
        "--ca-file=/etc/oarlock/ca.crt": "--ca-file=ca.crt",
    }
    command = [here.get(word, word) for word in container["command"]]
    command += [f"--api-server={config['server']}", "--listen=127.0.0.1"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, env={"PATH": os.environ["PATH"]})
    address = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        assert process.poll() is None, (folder / "log").read_text()
        try:
            return httpx.get(f"{address}/healthz", trust_env=False).is_success
        except httpx.TransportError:
            return False

    eventually(answers, "the page")
    yield address
    process.terminate()
    process.wait(patience.SECONDS)


def person(page: str, token: str) -> httpx.Client:
    return httpx.Client(
        base_url=page, headers={"Authorization": f"Bearer {token}"}, trust_env=False, timeout=patience.SECONDS
    )


def test_tenants_see_and_change_their_own_alone_and_the_page_asks_as_nobody_else(page: str, serving: Cluster) -> None:
    with person(page, tenant(serving, "seen-a")) as alice, person(page, tenant(serving, "seen-b")) as bob:
        eventually(lambda: "of-seen-a" in alice.get("/jobs/seen-a").text, "the rights of the role edit")
        eventually(lambda: "of-seen-b" in bob.get("/jobs/seen-b").text, "the rights of the role edit")
        for path in ("/jobs/seen-a", "/jobs"):
            text = bob.get(path).text
            assert "cannot list resource" in text, f"{path} says which right is missing"
            assert "of-seen-a" not in text
        assert bob.get("/jobs/seen-a/of-seen-a/suspend").status_code == 403
        assert httpx.get(f"{page}/jobs/seen-a", trust_env=False).status_code == 303, "to the login"

        asking = alice.get("/jobs/seen-a/of-seen-a/suspend").text
        fields = dict(re.findall(r'name="(csrf|uid)" value="([^"]*)"', asking.partition('class="ask"')[2]))
        assert bob.post("/jobs/seen-a/of-seen-a/suspend", data=fields).status_code == 403
        assert bob.post("/jobs/seen-b/of-seen-b/suspend", data=fields).status_code == 403
        assert alice.post("/jobs/seen-a/of-seen-a/suspend", data=fields).status_code == 303

    found = json.loads(serving.kubectl("get", "trainingjob", "of-seen-a", "-n", "seen-a", "-o", "json"))
    assert found["spec"]["suspend"] is True
    assert json.loads(found["metadata"]["annotations"]["oarlock.dev/asked-by"])["by"] == ACCOUNT.format("seen-a")
    events = json.loads(serving.kubectl("get", "events", "-n", "seen-a", "-o", "json"))["items"]
    (event,) = [each for each in events if each["reason"] == "SuspendRequested"]
    assert ACCOUNT.format("seen-a") in event["message"]
    assert event["involvedObject"]["uid"] == found["metadata"]["uid"]

    assert asked(serving.audit_log, "system:serviceaccount:oarlock:seen-web") == {}
    assert users(serving.audit_log, "oarlock") == {ACCOUNT.format(name) for name in ("seen-a", "seen-b")}


def test_a_change_that_names_another_uid_is_refused_by_the_api_server(serving: Cluster) -> None:
    tenant(serving, "seen-c")
    job = Job(connect(kubeconfig=str(serving.kubeconfig)), "of-seen-c", "seen-c", metadata={"uid": "another"})
    with pytest.raises(RefusedError):
        job.suspend()
    assert not job.row.suspended
