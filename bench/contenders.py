"""What is measured, as processes behind one interface: the operator, and the floor, with its pods and with minimal ones."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from connection import CORE, JOBS, Connection, Json, until
from floor import ASKED_LABEL

from oarlock_api.contract.names import API_VERSION, KIND
from oarlock_local.objects import GPU_RESOURCE
from oarlock_local.processes import die_with_parent
from oarlock_operator.decide import decide
from oarlock_operator.manifests.config import job_file
from oarlock_operator.manifests.pod import pod
from oarlock_operator.model.observation import Defaults, Job, Observation
from oarlock_operator.observe.job_facts import read_job

HERE = Path(__file__).parent
ROOT = HERE.parent
CLAIM = "out"
NFS = "192.0.2.10"
"""Nobody mounts it: the kubelets are not there."""


class Contender(Protocol):
    """A process that turns jobs into gangs."""

    name: str
    process: subprocess.Popen[Any]

    async def submit(self, job: str, nodes: int) -> None:
        """Ask for a gang."""

    async def delete(self, job: str) -> None:
        """Ask for its end."""

    def calls(self) -> Counter[str]:
        """Requests so far, by verb; empty where they are not counted."""

    def waits(self) -> Counter[float]:
        """How many looks so far waited for a worker no longer than so many seconds; empty where they are not counted."""


class Operator:
    """oarlock-operator, asked by TrainingJobs."""

    name = "operator"

    def __init__(
        self,
        api: Connection,
        process: subprocess.Popen[Any],
        port: int,
        *,
        claim: bool = False,
        in_place: bool = False,
    ) -> None:
        self.api = api
        self.process = process
        self._claim = claim
        self._in_place = in_place
        self._metrics = f"http://127.0.0.1:{port}/metrics"

    async def submit(self, job: str, nodes: int) -> None:
        """Create a TrainingJob."""
        await self.api.call("POST", JOBS, training_job(job, nodes, claim=self._claim, in_place=self._in_place))

    async def delete(self, job: str) -> None:
        """Delete it; the garbage collector deletes the rest."""
        await self.api.call("DELETE", f"{JOBS}/{job}", {"propagationPolicy": "Background"})

    def calls(self) -> Counter[str]:
        """Its own count; watches are not in it."""
        found: Counter[str] = Counter()
        for labels, value in self._samples("oarlock_api_calls_total"):
            found[re.search(r'verb="(\w+)"', labels)[1]] += int(float(value))  # type: ignore[index]
        return found

    def waits(self) -> Counter[float]:
        """The histogram's buckets."""
        samples = self._samples("oarlock_queue_wait_seconds_bucket")
        return Counter({float(labels.split('"')[1]): int(float(value)) for labels, value in samples})

    def _samples(self, name: str) -> list[tuple[str, str]]:
        with urllib.request.urlopen(self._metrics, timeout=30) as answer:  # noqa: S310 - http, see above
            return re.findall(rf"^{name}\{{(.*)\}} (\S+)$", answer.read().decode(), re.MULTILINE)


class Floor:
    """floor.py, asked by ConfigMaps, or by TrainingJobs if it `keeps_status`."""

    def __init__(self, name: str, api: Connection, process: subprocess.Popen[Any], *, keeps_status: bool) -> None:
        self.name = name
        self.api = api
        self.process = process
        self._path = JOBS if keeps_status else f"{CORE}/configmaps"

    async def submit(self, job: str, nodes: int) -> None:
        """Create the request."""
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": job}, "data": {"nodes": str(nodes)}}
        if self._path == JOBS:
            body = training_job(job, nodes)
        body["metadata"]["labels"] = {ASKED_LABEL: self.name}
        await self.api.call("POST", self._path, body)

    async def delete(self, job: str) -> None:
        """Delete it."""
        await self.api.call("DELETE", f"{self._path}/{job}")

    def calls(self) -> Counter[str]:
        """Nothing: it makes one request per Service and two per pod."""
        return Counter()

    def waits(self) -> Counter[float]:
        """Nothing."""
        return Counter()


def training_job(name: str, nodes: int, *, claim: bool = False, in_place: bool = False) -> Json:
    """A TrainingJob of `nodes` nodes with eight GPUs each, its output on an NFS export, or on a claim.

    `in_place`: its ranks start anew in their pods, and its lost pods are made anew one by one.

    The scheduler, and the controllers that guard a claim, look at each pod that mounts one.
    """
    output: Json = (
        {"persistentVolumeClaim": {"claimName": CLAIM}} if claim else {"nfs": {"server": NFS, "path": "/out"}}
    )
    training = {
        "model": {"family": "Flux1", "path": "/output/models/tiny"},
        "steps": 1000,
        "data": {"datasets": [{"name": "photos", "source": {"path": "/output/photos"}}]},
    }
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": name},
        "spec": {
            "nodes": nodes,
            "gpusPerNode": 8,
            "output": output,
            "training": training,
            **({"recovery": {"inPlace": "Auto"}} if in_place else {}),
        },
    }


def _template_job(*, claim: bool = False) -> Job:
    raw = training_job("template", 4, claim=claim)
    raw["metadata"] |= {"namespace": "default", "uid": "00000000-0000-0000-0000-000000000000"}
    return read_job(raw)


def pod_template(*, claim: bool = False) -> Json:
    """The operator's own pod without its owner: what the floor writes costs the API server the same."""
    job = _template_job(claim=claim)
    assert job.spec is not None  # noqa: S101 - we wrote it
    manifest = pod(
        job, job.spec, attempt=1, rank=0, image="example.test/trainer", told=job_file(job, job.spec, 1).to_json()
    )
    del manifest["metadata"]["ownerReferences"]
    manifest["metadata"]["labels"] = {}
    return manifest


def minimal_template(*, claim: bool = False) -> Json:
    """The least that is a pod of a gang: one plain container with a node's GPUs, and the claim where all mount it."""
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {}}, "spec": minimal_spec(claim=claim)}


def minimal_spec(*, claim: bool = False) -> Json:
    """What is in such a pod."""
    container: Json = {"name": "trainer", "image": "example.test/trainer", "resources": {"limits": {GPU_RESOURCE: "8"}}}
    spec = {"restartPolicy": "Never", "containers": [container]}
    if claim:
        container["volumeMounts"] = [{"name": "output", "mountPath": "/output"}]
        spec["volumes"] = [{"name": "output", "persistentVolumeClaim": {"claimName": CLAIM}}]
    return spec


def first_status() -> Json:
    """What the operator's first write says of a new job."""
    now = datetime.now(UTC)
    plan = decide(Observation(now=now, job=_template_job(), defaults=Defaults(trainer_image="example.test/trainer")))
    assert plan.status is not None  # noqa: S101 - a new job is accepted
    return plan.status.model_copy(update={"last_reconcile_time": now}).to_manifest()


async def make_claim(api: Connection) -> None:
    """The claim that the pods mount, bound."""
    size = {"storage": "1Gi"}
    volume = {"accessModes": ["ReadWriteMany"], "storageClassName": "", "volumeName": CLAIM}
    claim = {**volume, "resources": {"requests": size}}
    source = {"capacity": size, "accessModes": ["ReadWriteMany"], "hostPath": {"path": "/nowhere"}}
    bound = {"claimRef": {"namespace": "default", "name": CLAIM}}
    for path, kind, spec in (
        ("/api/v1/persistentvolumes", "PersistentVolume", {**source, **bound}),
        (f"{CORE}/persistentvolumeclaims", "PersistentVolumeClaim", claim),
    ):
        await api.call("POST", path, {"apiVersion": "v1", "kind": kind, "metadata": {"name": CLAIM}, "spec": spec})

    async def is_bound() -> bool:
        return bool((await api.find(f"{CORE}/persistentvolumeclaims/{CLAIM}"))["status"]["phase"] == "Bound")

    await until(is_bound)


@contextmanager
def operator(
    api: Connection, kubeconfig: Path, log: Path, *, profile: Path | None, claim: bool = False, in_place: bool = False
) -> Iterator[Operator]:
    """Run the operator for the length of the block, under the profiler where `profile` names a file for it."""
    program = [str(HERE / "profiled.py"), str(profile)] if profile else ["-m", "oarlock_operator"]
    command = [sys.executable, *program, "--kubeconfig", str(kubeconfig), "--port", "0", "--host", "127.0.0.1"]
    command += ["--pod-access", "direct", "--lease-namespace", "default"]
    with log.open("wb") as output, _running(command, stdout=output, stderr=output) as process:
        deadline = time.monotonic() + 60
        while b'"leading"' not in (text := log.read_bytes()):
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"the operator did not start:\n{text[-3000:].decode()}")
            time.sleep(0.1)
        port = next(json.loads(line)["port"] for line in text.splitlines() if b'"port"' in line)
        yield Operator(api, process, port, claim=claim, in_place=in_place)


@contextmanager
def floor(
    name: str, api: Connection, kubeconfig: Path, folder: Path, *, template: Json, keeps_status: bool = False
) -> Iterator[Floor]:
    """Run a floor of pods like `template` for the length of the block."""
    pod, status = folder / f"{name}-pod.json", folder / f"{name}-status.json"
    template["metadata"]["labels"] = {ASKED_LABEL: name}
    pod.write_text(json.dumps(template))
    command = [sys.executable, str(HERE / "floor.py"), str(kubeconfig), name, str(pod)]
    if keeps_status:
        status.write_text(json.dumps(first_status()))
        command.append(str(status))
    with _running(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None  # noqa: S101 - it is a pipe, see above
        if process.stdout.readline() != b"ready\n":
            raise SystemExit(f"the {name} did not start")
        yield Floor(name, api, process, keeps_status=keeps_status)


@contextmanager
def _running(command: list[str], **pipes: Any) -> Iterator[subprocess.Popen[Any]]:
    # A group of its own: Ctrl-C is for us, and we end it in good order. It dies with us whatever happens.
    process = subprocess.Popen(command, process_group=0, preexec_fn=die_with_parent, **pipes)  # noqa: PLW1509
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
