"""A gang on a real API server without kubelets: the tests write what scheduler and kubelets would."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from processes import Api

from oarlock_api.contract.report import Evidence, Gpu, Report
from oarlock_local.patience import eventually

JOBS = "/apis/oarlock.dev/v1alpha1/namespaces/default/trainingjobs"
PODS = "/api/v1/namespaces/default/pods"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/default/leases/oarlock-operator"
BRAKES_OFF = ("--cordon-max-nodes", "50", "--cordon-namespace-max-nodes", "50")
"""All tests are one namespace, and what one of them cordons counts for an hour."""
SETTINGS = ("--lease-seconds", "60", "--progress-seconds", "1", *BRAKES_OFF)
"""However busy the machine is, the operator does not lose its Lease."""


class Gang:
    """One job and its pods, through the API. The real scheduler places them where `scheduling` is {}."""

    def __init__(self, api: Api, **spec: Any) -> None:
        self.api = api
        self._is_scheduled = spec.get("scheduling") == {}
        self.name = f"job-{uuid.uuid4().hex[:8]}"
        training = {
            "model": {"family": "Flux1", "path": "/output/models/tiny"},
            "steps": 100,
            "data": {"datasets": [{"name": "photos", "source": {"path": "/output/photos"}}]},
        }
        body = {
            "apiVersion": "oarlock.dev/v1alpha1",
            "kind": "TrainingJob",
            "metadata": {"name": self.name},
            "spec": {
                "nodes": 2,
                "gpusPerNode": 2,
                "output": {"persistentVolumeClaim": {"claimName": "out"}},
                "training": training,
                "scheduling": {"schedulerName": "nobody"},
                **spec,
            },
        }
        api.call("POST", f"{JOBS}?fieldValidation=Strict", body)

    @property
    def status(self) -> dict[str, Any]:
        return self.api.call("GET", f"{JOBS}/{self.name}").get("status") or {}

    def pods(self) -> dict[str, Any]:
        found = self.api.call("GET", f"{PODS}?labelSelector=oarlock.dev/job={self.name}")
        return {pod["metadata"]["name"].removeprefix(self.name + "-"): pod for pod in found["items"]}

    def wait_for_pods(self, *names: str) -> None:
        eventually(lambda: sorted(self.pods()) == sorted(names) or None, self.told(f"pods {names}"))

    def wait_for_phase(self, phase: str) -> dict[str, Any]:
        eventually(lambda: self.status.get("phase") == phase or None, self.told(f"phase {phase}"))
        return self.status

    def told(self, what: str) -> Callable[[], str]:
        """What was waited for, and how things stand instead."""

        def now() -> str:
            pods = {name: pod["status"] for name, pod in self.pods().items()}
            return f"{what}; {self.name}'s status: {json.dumps(self.status)}; its pods': {json.dumps(pods)}"

        return now

    def set_state(self, pod: str, **state: Any) -> None:
        """What a kubelet would write."""
        phase = {"running": "Running", "terminated": "Failed"}[next(iter(state))]
        if state.get("terminated", {}).get("exitCode") == 0:
            phase = "Succeeded"
        container = {"name": "trainer", "image": "x", "imageID": "", "ready": False, "restartCount": 0, "state": state}
        status = {
            "phase": phase,
            "conditions": [{"type": "PodScheduled", "status": "True"}],
            "containerStatuses": [container],
        }
        self.api.merge(f"{PODS}/{self.name}-{pod}/status", {"status": status})

    def exists(self) -> bool:
        return self.api.find(f"{JOBS}/{self.name}") is not None

    def condition(self, kind: str) -> dict[str, Any]:
        """One of its conditions; an empty reason before the first write."""
        found = [c for c in self.status.get("conditions") or [] if c["type"] == kind]
        return found[0] if found else {"reason": ""}

    def bind(self, pod: str, node: str) -> None:
        """What the scheduler does."""
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": f"{self.name}-{pod}"},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        self.api.call("POST", f"{PODS}/{self.name}-{pod}/binding", body)

    def remove(self, pod: str) -> None:
        """What a kubelet does once the containers of a deleted pod have stopped."""
        self.api.call("DELETE", f"{PODS}/{self.name}-{pod}", {"gracePeriodSeconds": 0})

    def run(self, attempt: int = 1, *, nodes: tuple[str, str] | None = None) -> None:
        """Both pods run; without `nodes` they are bound to none, and the API server deletes them at once."""
        self.wait_for_pods(f"{attempt}-0", f"{attempt}-1")
        if self._is_scheduled:
            eventually(
                lambda: all(pod["status"].get("conditions") for pod in self.pods().values()),
                "the scheduler's own words, which would take these back",
            )
        for rank in (0, 1):
            if nodes:
                self.bind(f"{attempt}-{rank}", nodes[rank])
            self.set_state(f"{attempt}-{rank}", running={"startedAt": "2026-01-01T00:00:00Z"})

    def end(self, pod: str, code: int, message: str = "") -> None:
        self.set_state(pod, terminated={"exitCode": code, "reason": "Error", "message": message})

    def report(self, pod: str, code: int, *, xid: int, gpu: str, **changes: Any) -> str:
        """What a pod's agent would write of a GPU's fault; `changes` make it another one's."""
        attempt, rank = map(int, pod.split("-"))
        now = datetime.now(UTC).isoformat()
        known: dict[str, Any] = {
            "attempt": attempt,
            "rank": rank,
            "pod_uid": self.pods()[pod]["metadata"]["uid"],
            "failure_class": "GPU",
            "code": code,
            "detected_at": now,
            "summary": f"GPU 5 ({gpu}, serial 165) XID {xid}",
            "gpu": Gpu(index=5, uuid=gpu, serial="165"),
            "xid": xid,
            "evidence": (Evidence(probe="xid", value=xid, at=now),),
        }
        return Report(**{**known, **changes}).to_json()

    def events(self) -> set[str]:
        found = self.api.call("GET", f"/api/v1/namespaces/default/events?fieldSelector=involvedObject.name={self.name}")
        return {event["reason"] for event in found["items"]}
