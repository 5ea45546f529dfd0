"""An operator with the rights of a chart's release, and a cluster that asks of it everything that it can do.

The operator is a process of its own with its ServiceAccount's token; nobody stands behind the nodes: this plays the
kubelets, and moves times in a status back rather than wait for them.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from oarlock_api.contract.report import Evidence, Gpu, Report
from oarlock_local import patience
from oarlock_local.account import Account
from oarlock_local.api import ApiServer
from oarlock_local.cluster import Cluster
from oarlock_local.errors import ClusterError
from oarlock_local.patience import eventually
from tests.chart.rendering import one

CORE = "/api/v1/namespaces/default"
JOBS = "/apis/oarlock.dev/v1alpha1/namespaces/default/trainingjobs"
NODES = "/api/v1/nodes"


def refusal(cluster: Cluster, body: str, *options: str) -> str:
    """What the API server has against an object; empty where it takes it."""
    try:
        cluster.kubectl("create", "--dry-run=server", *options, "-f", "-", stdin=body)
    except ClusterError as error:
        return str(error)
    return ""


@contextmanager
def operator(kubeconfig: Path, environment: Mapping[str, str], log: Path) -> Iterator[None]:
    """Run the operator for the length of the block, as its pod would: pods are asked directly, not through the API."""
    command = [sys.executable, "-m", "oarlock_operator", "--kubeconfig", str(kubeconfig), "--port", "0"]
    command += ["--lease-namespace", "oarlock", "--pod-access", "direct"]
    # Nobody replaces it: on a busy machine it keeps its Lease.
    command += ["--lease-seconds", "60"]
    with log.open("ab") as written:
        process = subprocess.Popen(command, stdout=written, stderr=written, env={**os.environ, **environment})
    try:
        yield
        assert process.poll() is None, f"the operator ended by itself:\n{log.read_text()[-3000:]}"
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=patience.SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            raise


@contextmanager
def operator_of(
    objects: list[dict[str, Any]], cluster: Cluster, folder: Path, *, server: Path | None = None
) -> Iterator[Account]:
    """Run the operator of a release for the length of the block: with its settings, its rights, and nothing else.

    `server`: the administrator's kubeconfig of the API server that it asks, by default the cluster's own.
    """
    # Without its Lease, as after somebody has deleted it.
    account = Account.made(cluster, objects)
    container = one(objects, "Deployment")["spec"]["template"]["spec"]["containers"][0]
    environment = {item["name"]: item["value"] for item in container["env"]}
    kubeconfig = account.write_kubeconfig(folder / "kubeconfig", like=server)
    with operator(kubeconfig, environment, folder / "operator.log"):
        yield account


class Demands:
    """Jobs that go through everything."""

    def __init__(self, cluster: Cluster, api: ApiServer, name: str) -> None:
        """`name`: a prefix of everything that is made."""
        self._cluster = cluster
        self._api = api
        self.name = name
        self.nodes = [f"{name}-node-{number}" for number in range(4)]

    def make_nodes(self) -> None:
        """Nodes with GPUs that say that they are Ready."""
        times = dict.fromkeys(("lastHeartbeatTime", "lastTransitionTime"), "2026-01-01T00:00:00Z")
        conditions = [{"type": "Ready", "status": "True", "reason": "Test", **times}]
        for node in self.nodes:
            self._api.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}})
            status = {"allocatable": {"nvidia.com/gpu": "2", "pods": "110"}, "conditions": conditions}
            self._api.merge(f"{NODES}/{node}/status", {"status": status})

    def a_start_among_strangers(self) -> None:
        """A name that is taken: whose the object is is read. Then the stranger goes, and the gang comes."""
        job = self._job("taken")
        pod = {"containers": [{"name": "c", "image": "example.test/none"}]}
        name = f"{job}-1-0"
        self._api.create(f"{CORE}/pods", {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": pod})
        self._apply(job)
        eventually(lambda: f"pods/{name}" in json.dumps(self._status(job)), "the refusal")
        self._cluster.kubectl("delete", "pod", name, "--grace-period=0", "--force", "--ignore-not-found")
        self._wait_for_pods(job, 1)
        self._delete(job)

    def a_start_that_hangs_and_a_fault(self, *, cordoned: bool) -> None:
        """A volume that cannot be mounted; then a GPU that falls off the bus, on a node that is cordoned or only avoided."""
        job = self._job("broken")
        self._apply(job)
        self._wait_for_pods(job, 1)
        for rank in (0, 1):
            self._bind(f"{job}-1-{rank}", self.nodes[rank])
        eventually(lambda: self._status(job).get("recovery", {}).get("stage") == "Start", "the stage Start")
        pod = self._api.get(f"{CORE}/pods/{job}-1-1")["metadata"]
        event = {
            "metadata": {"generateName": "x"},
            "involvedObject": {"kind": "Pod", **{key: pod[key] for key in ("name", "namespace", "uid")}},
            "type": "Warning",
            "reason": "FailedMount",
            "message": "mount.nfs: access denied by server",
        }
        self._api.create(f"{CORE}/events", event)
        self._set_status(job, recovery={"stageStartTime": _minutes_ago(1)})
        eventually(lambda: "mount.nfs" in json.dumps(self._status(job)), "the kubelet's words")
        for rank in (0, 1):
            self._set_state(f"{job}-1-{rank}", running={"startedAt": "2026-01-01T00:00:00Z"})
        ended = {"exitCode": 80, "reason": "Error", "message": self._report(pod["uid"])}
        self._set_state(f"{job}-1-1", terminated=ended)
        if cordoned:
            eventually(lambda: self._api.get(f"{NODES}/{self.nodes[1]}")["spec"].get("unschedulable"), "the cordon")
        eventually(lambda: self._status(job).get("attempt") == 2, "the second attempt")
        for rank in (0, 1):
            self._cluster.kubectl(
                "delete", "pod", f"{job}-1-{rank}", "--grace-period=0", "--force", "--ignore-not-found"
            )
        self._wait_for_pods(job, 2)
        about = f"{CORE}/events?fieldSelector=involvedObject.kind=TrainingJob,involvedObject.name={job}"
        eventually(lambda: self._api.get(about)["items"], "its Events")
        self._delete(job)

    def an_end_after_which_the_job_goes(self) -> None:
        """Success, and an hour later, as far as the status says."""
        job = self._job("done")
        self._apply(job, ttlSecondsAfterFinished=60)
        self._wait_for_pods(job, 1)
        for rank in (0, 1):
            self._set_state(f"{job}-1-{rank}", terminated={"exitCode": 0, "reason": "Completed"})
        eventually(lambda: self._status(job).get("phase") == "Succeeded", "its success")
        self._set_status(job, completionTime=_minutes_ago(60))
        eventually(lambda: self._api.find(f"{JOBS}/{job}") is None, "the job to go")

    def _job(self, name: str) -> str:
        return f"{self.name}-{name}"

    def _apply(self, name: str, **spec: Any) -> None:
        training = {
            "model": {"family": "Flux1", "path": "/output/models/tiny"},
            "steps": 100,
            "data": {"datasets": [{"name": "photos", "source": {"path": "/output/photos"}}]},
        }
        # One claim each: of two jobs with one output the second waits.
        output = {"persistentVolumeClaim": {"claimName": name}}
        # Nobody's scheduler: this binds the pods.
        fixed = {"nodes": 2, "gpusPerNode": 2, "output": output, "scheduling": {"schedulerName": "nobody"}}
        body = {"apiVersion": "oarlock.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": name}}
        self._api.create(JOBS, {**body, "spec": {**fixed, "training": training, **spec}})

    def _status(self, job: str) -> dict[str, Any]:
        status: dict[str, Any] = self._api.get(f"{JOBS}/{job}").get("status") or {}
        return status

    def _set_status(self, job: str, **status: Any) -> None:
        self._api.merge(f"{JOBS}/{job}/status", {"status": status})

    def _wait_for_pods(self, job: str, attempt: int) -> None:
        def there() -> bool:
            found = self._api.get(f"{CORE}/pods?labelSelector=oarlock.dev/job={job}")["items"]
            return {pod["metadata"]["name"] for pod in found} == {f"{job}-{attempt}-{rank}" for rank in (0, 1)}

        eventually(there, f"attempt {attempt} of {job}")

    def _bind(self, pod: str, node: str) -> None:
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod}}
        self._api.create(f"{CORE}/pods/{pod}/binding", {**body, "target": {"kind": "Node", "name": node}})

    def _set_state(self, pod: str, **state: Any) -> None:
        done = state.get("terminated", {}).get("exitCode")
        container = {"name": "trainer", "image": "x", "imageID": "", "ready": False, "restartCount": 0, "state": state}
        status = {
            "phase": "Running" if done is None else "Failed" if done else "Succeeded",
            "conditions": [{"type": "PodScheduled", "status": "True"}],
            "containerStatuses": [container],
        }
        self._api.merge(f"{CORE}/pods/{pod}/status", {"status": status})

    def _report(self, pod_uid: str) -> str:
        now = datetime.now(UTC).isoformat()
        return Report(
            attempt=1,
            rank=1,
            pod_uid=pod_uid,
            failure_class="GPU",
            code=80,
            detected_at=now,
            summary="GPU 5 (GPU-a, serial 165) XID 79",
            gpu=Gpu(index=5, uuid="GPU-a", serial="165"),
            xid=79,
            evidence=(Evidence(probe="xid", value=79, at=now),),
        ).to_json()

    def _delete(self, job: str) -> None:
        self._cluster.kubectl("delete", "trainingjob", job, "--wait=false")


def _minutes_ago(count: int) -> str:
    return (datetime.now(UTC) - timedelta(minutes=count)).strftime("%Y-%m-%dT%H:%M:%SZ")
