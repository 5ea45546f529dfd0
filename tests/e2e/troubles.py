"""Troubles that can be done to jobs on one local cluster, and the word and the node that `why` has to give for each.

test_why.py does as many as fit into two minutes; `python -m tests.e2e.record_troubles FOLDER` does all of them and keeps what
the API server says as fixtures of the pure tests.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.e2e.jobs import Jobs

STEPS = """
import json, os, time, urllib.request
rank, attempt, stop = os.environ["MACHINE_RANK"], os.environ["OARLOCK_ATTEMPT"], os.environ["OARLOCK_OUTPUT_DIR"] + "/stop"
for step in range(1, 1_000_000):
    time.sleep(0.2)
    while os.path.exists(stop) and attempt == "1":
        time.sleep(0.2)
    if rank == "0":
        body = {"type": "training.status", "data": {"status": "running", "global_step": step},
                "progress": {"current": step, "total": 1_000_000, "metrics": {"loss": 1 / step}}}
        request = urllib.request.Request("http://127.0.0.1:9400/webhook", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        urllib.request.urlopen(request, timeout=5).read()
"""
"""A trainer that steps for ever, and stands still in its first attempt once the file `stop` lies in its output."""
HUNGRY = "x = []\nwhile True: x.append(b'x' * 2**20)"
NEVER = "import time\ntime.sleep(1e6)"


def job(name: str, *, namespace: str = "default", program: str = STEPS, **spec: Any) -> dict[str, Any]:
    """A job of one pod without GPUs that runs `program`; `spec` is merged in."""
    base: dict[str, Any] = {
        "nodes": 1,
        "gpusPerNode": 0,
        "output": {"persistentVolumeClaim": {"claimName": "training-output"}, "minFree": "1Mi"},
        "custom": {"command": ["python3"], "args": ["-c", program]},
        "recovery": {"maxApplicationRestarts": 0, "maxInfrastructureRestarts": 2},
        "pod": {
            "image": "oarlock.local/host:1",
            "runtimeClassName": "host-userland",
            "sharedMemory": "16Mi",
            "patch": {"tolerations": [{"key": "spot", "operator": "Exists"}]},
        },
    }
    base = merged(base, spec)
    kept = {key: value for key, value in base.items() if value is not None}
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "oarlock.dev/v1alpha1", "kind": "TrainingJob", "metadata": metadata, "spec": kept}


def merged(base: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Two objects as one: what both have as objects is merged, all else is the second's."""
    both = {key: merged(base[key], more[key]) for key in base.keys() & more.keys() if isinstance(more[key], Mapping)}
    return {**base, **more, **both}


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """One job, what is there before it, and what is done to it once it trains.

    `node` says which node `why` has to name: none, or that of the pod of rank 0 or 1 before anything was done to it. `place`:
    that node by its name. `over`: the job ends by it. `quick`: it needs no more than two minutes beside all the others.
    """

    name: str
    cause: str
    spec: Mapping[str, Any]
    namespace: str = "default"
    program: str = STEPS
    before: tuple[Mapping[str, Any], ...] = ()
    strike: Callable[[Jobs, Mapping[int, str]], None] | None = None
    node: int | None = None
    place: str = ""
    over: bool = False
    quick: bool = True

    @property
    def manifests(self) -> list[Mapping[str, Any]]:
        """All that is to be applied."""
        return [*self.before, job(self.name, namespace=self.namespace, program=self.program, **self.spec)]


def _namespace(name: str, **labels: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def _claim(name: str, namespace: str, **spec: Any) -> dict[str, Any]:
    asked = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}, **spec}
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": asked}


def _quota(namespace: str) -> dict[str, Any]:
    metadata = {"name": "team", "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": {"pods": "0"}}}


def _webhook(namespace: str) -> dict[str, Any]:
    only_there = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    hook = {
        "name": "guard.example.com",
        "clientConfig": {"service": {"name": "guard", "namespace": namespace, "path": "/"}},
        "rules": [rule],
        "namespaceSelector": only_there,
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "timeoutSeconds": 1,
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "guard"},
        "webhooks": [hook],
    }


def _xid(jobs: Jobs, nodes: Mapping[int, str]) -> None:
    jobs.cluster.fault("gpu", nodes[0], gpu=0, xid=79)


def _contained(jobs: Jobs, nodes: Mapping[int, str]) -> None:
    jobs.cluster.fault("gpu", nodes[0], gpu=1, xid=94)


def _stop(name: str) -> Callable[[Jobs, Mapping[int, str]], None]:
    return lambda jobs, _: (jobs.output / name / "stop").touch()


def _evict(name: str) -> Callable[[Jobs, Mapping[int, str]], None]:
    return lambda jobs, _: jobs.evict(f"{name}-1-0")


def _delete(name: str) -> Callable[[Jobs, Mapping[int, str]], None]:
    return lambda jobs, _: void(jobs.cluster.kubectl("delete", "pod", f"{name}-1-0", "--grace-period=0", "--force"))


def _kill(name: str) -> Callable[[Jobs, Mapping[int, str]], None]:
    find = 'for p in /proc/[0-9]*; do grep -q "[g]lobal_step" "$p/cmdline" && kill -KILL "${p#/proc/}"; done; true'
    return lambda jobs, _: void(jobs.cluster.kubectl("exec", f"{name}-1-0", "--", "sh", "-c", find))


def _cut(jobs: Jobs, nodes: Mapping[int, str]) -> None:
    jobs.cluster.fault("cut", nodes[0])


def void(_: object) -> None:
    """Somebody's answer that nobody needs."""


HOST = "kubernetes.io/hostname"
BOTH_GPUS = {"gpusPerNode": 2, "recovery": {"maxApplicationRestarts": 3}}
SECRET = {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub-token", "key": "token"}}}

SPOT = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "node-3"},
    "spec": {"taints": [{"key": "spot", "value": "true", "effect": "NoSchedule"}]},
}
"""A taint that all of these jobs tolerate, but one."""

TROUBLES: tuple[Trouble, ...] = (
    # What never starts.
    Trouble(name="image", cause="ImagePullFailed", spec={"pod": {"image": "registry.invalid/team/trainer:9"}}, node=0),
    Trouble(name="image-name", cause="InvalidImageName", spec={"pod": {"image": "Registry/Team:??"}}, over=True),
    Trouble(name="claim", cause="ClaimMissing", spec={"output": {"persistentVolumeClaim": {"claimName": "not-there"}}}),
    Trouble(
        name="unbound",
        cause="ClaimUnbound",
        spec={"output": {"persistentVolumeClaim": {"claimName": "fast"}}},
        before=(_claim("fast", "default", storageClassName="ssd"),),
    ),
    Trouble(
        name="quota",
        cause="QuotaExceeded",
        spec={},
        namespace="team-a",
        before=(_namespace("team-a"), _quota("team-a")),
    ),
    Trouble(
        name="policy",
        cause="AdmissionDenied",
        spec={"pod": {"securityContext": {"runAsUser": 0}}},
        namespace="strict",
        before=(_namespace("strict", **{"pod-security.kubernetes.io/enforce": "restricted"}),),
    ),
    Trouble(
        name="guarded",
        cause="AdmissionWebhookFailed",
        spec={},
        namespace="guarded",
        before=(_namespace("guarded"), _webhook("guarded")),
    ),
    Trouble(name="gpus", cause="NotEnoughGPUs", spec={"nodes": 2, "gpusPerNode": 8}),
    Trouble(
        name="tainted",
        cause="TaintNotTolerated",
        spec={"pod": {"patch": {"tolerations": [], "nodeSelector": {HOST: "node-3"}}}},
        before=(SPOT,),
        place="node-3",
    ),
    Trouble(
        name="label",
        cause="NoNodeMatches",
        spec={"pod": {"patch": {"nodeSelector": {"gpu.example.com/model": "h100"}}}},
    ),
    Trouble(name="memory", cause="NotEnoughResources", spec={"pod": {"resources": {"requests": {"memory": "900Ti"}}}}),
    Trouble(name="secret", cause="SecretMissing", spec={"pod": {"env": [SECRET]}}, node=0),
    Trouble(
        name="config",
        cause="ConfigMapMissing",
        spec={
            "pod": {
                "volumes": [{"name": "settings", "configMap": {"name": "settings"}}],
                "volumeMounts": [{"name": "settings", "mountPath": "/settings"}],
            }
        },
        node=0,
        quick=False,
    ),
    Trouble(
        name="taken",
        cause="NameTaken",
        spec={"nodes": 2},
        before=(
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": "taken", "namespace": "default"},
                "spec": {"ports": [{"port": 80}]},
            },
        ),
    ),
    Trouble(name="asleep", cause="Suspended", spec={"suspend": True}),
    Trouble(
        name="gated",
        cause="SchedulingGated",
        spec={"pod": {"patch": {"schedulingGates": [{"name": "example.com/gate"}]}}},
    ),
    Trouble(name="late", cause="DeadlineExceeded", spec={"gpusPerNode": 8, "activeDeadlineSeconds": 5}, over=True),
    # What starts, and ends by itself.
    Trouble(
        name="program",
        cause="ApplicationError",
        spec={},
        program="raise ValueError('the caption is empty')",
        node=0,
        over=True,
    ),
    Trouble(
        name="no-program",
        cause="ProgramMissing",
        spec={"custom": {"command": ["trainn"], "args": []}},
        node=0,
        over=True,
    ),
    Trouble(
        name="denied",
        cause="OutputNotWritable",
        spec={"output": {"directory": "data"}, "recovery": {"maxInfrastructureRestarts": 0}},
        node=0,
        over=True,
    ),
    Trouble(
        name="full",
        cause="StorageFull",
        spec={"output": {"minFree": "900Ti"}, "recovery": {"maxInfrastructureRestarts": 0}},
        node=0,
        over=True,
    ),
    Trouble(
        name="no-data",
        cause="DataUnusable",
        spec={
            "custom": None,
            "training": {
                "model": {"family": "Flux1", "path": "/output/models/flux-tiny"},
                "steps": 10,
                "batchSize": 1,
                "resolution": 64,
                "data": {"datasets": [{"name": "photos", "source": {"path": "/output/data/nothing"}}]},
            },
        },
        node=0,
        over=True,
    ),
    Trouble(
        name="hungry",
        cause="OOMKilled",
        spec={"pod": {"resources": {"limits": {"memory": "256Mi"}}}},
        program=HUNGRY,
        node=0,
        over=True,
    ),
    # What is broken while it trains.
    Trouble(
        name="xid",
        cause="GPUFault",
        spec=BOTH_GPUS,
        namespace="seen",
        before=(_namespace("seen"), _claim("training-output", "seen")),
        strike=_xid,
        node=0,
    ),
    Trouble(
        name="contained",
        cause="GPUProcessFault",
        spec=BOTH_GPUS,
        strike=_contained,
        node=0,
        quick=False,
    ),
    Trouble(
        name="hang",
        cause="Hang",
        spec={"recovery": {"maxApplicationRestarts": 3, "hangSeconds": 4}},
        strike=_stop("hang"),
        node=0,
    ),
    Trouble(name="evicted", cause="Evicted", spec={}, strike=_evict("evicted"), node=0),
    Trouble(name="deleted", cause="PodDisappeared", spec={}, strike=_delete("deleted"), node=0),
    Trouble(
        name="killed",
        cause="ProcessKilled",
        spec={"recovery": {"maxApplicationRestarts": 3}},
        strike=_kill("killed"),
        node=0,
    ),
    Trouble(name="lost", cause="NodeLost", spec={}, strike=_cut, node=0, quick=False),
)


def apply(jobs: Jobs, trouble: Trouble) -> None:
    """Apply what the trouble needs, and its job."""
    for manifest in trouble.manifests:
        jobs.cluster.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))
