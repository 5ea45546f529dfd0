"""Small real jobs for tests: written as people write them, watched through the API, broken by hand."""

from __future__ import annotations

import base64
import json
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from oarlock_api.contract.environment import STATUS_PORT
from oarlock_api.contract.gang_key import attempt_key, question
from oarlock_api.contract.layout import CHECKPOINTS, parse_checkpoint_name
from oarlock_api.contract.names import Label
from oarlock_local import patience
from oarlock_local.api import ApiServer
from oarlock_local.cluster import Cluster
from oarlock_local.demo.install import NAMESPACE

EXAMPLE = Path(__file__).parents[2] / "examples/trainingjob.yaml"
_SIGNAL = (
    'for p in /proc/[0-9]*; do case $(cat "$p/comm") in rank-{rank}) kill -{signal} "${{p#/proc/}}";; esac; done; true'
)
"""Run by a shell inside the pod: a rank's process is named after it."""
OPERATORS = "app.kubernetes.io/component=operator"
"""Label of the operator's pods: the page has one beside it."""
ANY_RANK = "[0-9]*"
EVERY = 5
"""Steps between the checkpoints of a small job."""
ENDLESS: dict[str, Any] = {"steps": 1_000_000, "every": EVERY, "pace": 0.2}
"""It does not end by itself, and leaves the cores to what the test waits for."""
SMALL: dict[str, Any] = {**ENDLESS, "gpusPerNode": 1}
"""Two of these fit on the cluster side by side."""


class Jobs:
    """Jobs of the example's shape on a local cluster whose claim is `output` on this machine."""

    def __init__(self, cluster: Cluster, output: Path, api: ApiServer) -> None:
        """`api`: what is asked again and again goes there, for a kubectl each time would take the trainers' cores."""
        self.cluster = cluster
        self.output = output
        self._api = api

    def apply(self, name: str, *, steps: int = 30, every: int = 10, pace: float = 0.0, **spec: Any) -> None:
        """Apply the example under another name, shorter. `pace`: seconds that each step rests (paced/sitecustomize.py)."""
        job = yaml.safe_load(EXAMPLE.read_text())
        job["metadata"]["name"] = name
        # YAML 1.1 reads 1.0e-3 as the string that kubectl reads as a number.
        job["spec"]["training"]["optimizer"]["learningRate"] = 0.001
        job["spec"]["training"].update(steps=steps, checkpoint={"intervalSteps": every, "keep": 3})
        if pace:
            trips = f"/output/trips/{name}"
            paced = {"PYTHONPATH": str(Path(__file__).parent / "paced"), "STEP_PACE": str(pace), "STEP_TRIPS": trips}
            job["spec"]["pod"]["env"] += [{"name": key, "value": value} for key, value in paced.items()]
        for key, value in spec.items():
            job["spec"][key] = {**job["spec"].get(key, {}), **value} if isinstance(value, dict) else value
        self.cluster.kubectl("apply", "-f", "-", stdin=json.dumps(job))

    def change(self, name: str, **spec: Any) -> None:
        """Merge fields into a job's spec."""
        self.cluster.kubectl("patch", "trainingjob", name, "--type=merge", "-p", json.dumps({"spec": spec}))

    def delete(self, *names: str) -> None:
        """Delete jobs; returns when their pods are gone."""
        self.cluster.kubectl("delete", "trainingjob", *names, "--ignore-not-found", "--wait=false")
        for name in names:
            self.cluster.kubectl("wait", "--for=delete", "pod", "-l", f"oarlock.dev/job={name}", patience.KUBECTL)

    def phase(self, name: str) -> str:
        """The job's phase; empty where there is no such job."""
        path = "jsonpath={.status.phase}"
        return self.cluster.kubectl("get", "trainingjob", name, "--ignore-not-found", "-o", path)

    def status(self, name: str) -> dict[str, Any]:
        """The job's status."""
        raw = self._api.get(f"/apis/oarlock.dev/v1alpha1/namespaces/default/trainingjobs/{name}")
        status: dict[str, Any] = raw.get("status") or {}
        return status

    def wait(
        self, name: str, what: str, until: Callable[[dict[str, Any]], object], *, seconds: float = patience.SECONDS
    ) -> dict[str, Any]:
        """The status as soon as a condition on it holds."""
        deadline = time.monotonic() + seconds
        while not until(status := self.status(name)):
            words = f"{status.get('message')}\n{json.dumps(status)[:3000]}"
            assert "completionTime" not in status, f"{name} ended before {what}: {words}"
            assert time.monotonic() < deadline, f"{name}: {what} did not come: {words}"
            time.sleep(0.2)
        return status

    def wait_for_end(self, name: str, *, seconds: float = patience.SECONDS) -> dict[str, Any]:
        """The status of the finished job."""
        return self.wait(name, "the end", lambda status: "completionTime" in status, seconds=seconds)

    def wait_for_checkpoint_of(self, name: str, attempt: int) -> dict[str, Any]:
        """The status once that attempt, or a later one, trains and has saved a checkpoint of its own."""

        return self.wait(
            name, f"a checkpoint of attempt {attempt}", lambda status: self.has_checkpoint_of(status, attempt)
        )

    @staticmethod
    def has_checkpoint_of(status: dict[str, Any], attempt: int) -> bool:
        """Whether that attempt, or a later one, trains and has saved a checkpoint of its own."""
        now = status.get("attempt", 0)
        newest = Path((status.get("latestCheckpoint") or {}).get("path", "")).name
        return now >= attempt and "stage" not in status["recovery"] and newest.endswith(f"-a{now}")

    def signal_rank(self, pod: str, rank: int | str, signal: str) -> None:
        """Send a signal, such as KILL, to the process of a rank (by its global number, or ANY_RANK) in a pod."""
        self.cluster.kubectl("exec", pod, "--", "sh", "-c", _SIGNAL.format(rank=rank, signal=signal))

    def agent(self, pod: str) -> dict[str, Any]:
        """What the agent of a pod says in /status, asked with the key of its gang where it has one."""
        manifest = self._api.get(f"/api/v1/namespaces/default/pods/{pod}")
        projected = [volume["projected"]["sources"] for volume in manifest["spec"]["volumes"] if "projected" in volume]
        secrets = [source["secret"]["name"] for sources in projected for source in sources if "secret" in source]
        target = "/status"
        for name in secrets:
            secret = self._api.get(f"/api/v1/namespaces/default/secrets/{name}")
            key = bytes.fromhex(base64.b64decode(secret["data"]["key"]).decode())
            labels, uid = manifest["metadata"]["labels"], manifest["metadata"]["uid"]
            key = attempt_key(key, labels[Label.JOB_UID], int(labels[Label.ATTEMPT]))
            target = question(key, target, pod_uid=uid, now=time.time())
        path = f"/api/v1/namespaces/default/pods/{pod}:{STATUS_PORT}/proxy{target}"
        status: dict[str, Any] = json.loads(self.cluster.kubectl("get", "--raw", path).splitlines()[0])
        return status

    def evict(self, pod: str) -> None:
        """Have a pod leave as `kubectl drain` and autoscalers do, by the Eviction API."""
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": "default"}}
        path = f"/api/v1/namespaces/default/pods/{pod}/eviction"
        self.cluster.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(eviction))

    def losses(self, name: str) -> dict[tuple[int, int], float]:
        """(attempt, step) -> loss, as the trainer wrote them."""
        return {(line["attempt"], line["step"]): line["loss"] for line in self.metrics(name) if "loss" in line}

    def losses_by_step(self, name: str) -> dict[int, set[float]]:
        """Step -> the losses that were told of it, by whichever attempt or round."""
        found = defaultdict(set)
        for line in self.metrics(name):
            if "loss" in line:
                found[line["step"]].add(line["loss"])
        return found

    def metrics(self, name: str) -> list[dict[str, Any]]:
        """The lines of its metrics.jsonl so far."""
        # Of a job that runs, the last line may be half written.
        whole = (self.output / name / "metrics.jsonl").read_text().rpartition("\n")[0]
        return [json.loads(line) for line in whole.splitlines()]

    def assert_no_loss_changed(self, name: str) -> None:
        """What was done several times, by attempts or rounds, came out the same each time."""
        changed = {step: told for step, told in self.losses_by_step(name).items() if len(told) > 1}
        assert not changed

    def checkpoints(self, name: str) -> set[tuple[int, int]]:
        """(step, attempt) of the checkpoints in the output."""
        found = (parse_checkpoint_name(path.name) for path in (self.output / name / CHECKPOINTS).iterdir())
        return {each for each in found if each}

    def operator(self) -> dict[str, Any]:
        """The operator's pod."""
        found = self.cluster.kubectl("get", "pods", "-n", NAMESPACE, "-l", OPERATORS, "-o", "json")
        pods: list[dict[str, Any]] = json.loads(found)["items"]
        assert len(pods) == 1
        return pods[0]

    def pods(self, name: str) -> list[str]:
        """Names of the job's pods."""
        return self.cluster.kubectl("get", "pods", "-l", f"oarlock.dev/job={name}", "-o", "name").split()

    def nodes(self, name: str) -> set[str]:
        """The nodes that the job's pods are on."""
        path = "jsonpath={.items[*].spec.nodeName}"
        return set(self.cluster.kubectl("get", "pods", "-l", f"oarlock.dev/job={name}", "-o", path).split())

    def events(self, name: str, reason: str) -> list[dict[str, Any]]:
        """The job's Events with that reason."""
        selector = f"involvedObject.name={name},reason={reason}"
        found = self._api.get(f"/api/v1/namespaces/default/events?fieldSelector={selector}")
        events: list[dict[str, Any]] = found["items"]
        return events
