"""Jobs that ask of the operator everything that it can do with gang systems, whose kinds this serves.

The kinds are those of the operator's tests: what is asked of the API server is real, and no scheduler answers.
"""

from __future__ import annotations

import json
import runpy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from oarlock_api.contract.names import Label, group_name
from oarlock_local import patience
from oarlock_local.api import ApiServer
from oarlock_local.cluster import Cluster
from oarlock_local.gang_server import GANGS
from oarlock_local.patience import eventually
from tests.chart.demands import JOBS, Demands
from tests.chart.rendering import ROOT

_MADE = runpy.run_path(str(ROOT / "operator/tests/gang_crds.py"))
SYSTEMS = {
    "volcano": ("scheduling.volcano.sh/v1beta1", {"gang": "Volcano"}),
    "coscheduling": ("scheduling.x-k8s.io/v1alpha1", {"gang": "Coscheduling"}),
    "kai": ("scheduling.run.ai/v2alpha2", {"gang": "KAI", "queue": "team"}),
    "native": (GANGS, {"gang": "Native"}),
}
"""Those whose groups the operator makes: the API, and how a job chooses it."""
GROUPS = {"native": {"schedulingPolicy": {"gang": {"minCount": 1}}}}
"""What a group of somebody else's says, where it is not as in the others."""
KUEUE = "/apis/kueue.x-k8s.io/v1beta2/namespaces/default/workloads"


def kinds_of_gang_systems() -> list[dict[str, Any]]:
    """The definitions of all kinds. Raises SourceMissing where a source cannot be had."""
    return [*_MADE["served"](), _MADE["TOPOLOGY"]]


@contextmanager
def gang_systems(kinds: list[dict[str, Any]], cluster: Cluster, *servers: ApiServer) -> Iterator[None]:
    """The kinds are served in the block, and gone after it: other tests' jobs leave the choice to Auto."""
    cluster.apply(kinds)
    eventually(lambda: all(_is_served(api, kind) for kind in kinds for api in servers), "the gang systems")
    try:
        yield
    finally:
        names = [kind["metadata"]["name"] for kind in kinds]
        cluster.kubectl("delete", "customresourcedefinitions", *names, patience.KUBECTL)
        eventually(
            lambda: not any(_is_served(api, kind) for kind in kinds for api in servers), "the end of the gang systems"
        )


def _is_served(api: ApiServer, kind: dict[str, Any]) -> bool:
    """Whether clients can find the kind, and the server can list it."""
    group, version = kind["spec"]["group"], kind["spec"]["versions"][-1]["name"]
    plural, path = kind["spec"]["names"]["plural"], f"/apis/{group}/{version}"
    versions = {each["groupVersion"] for found in api.get("/apis")["groups"] for each in found["versions"]}
    named = plural in {found["name"] for found in (api.find(path) or {}).get("resources", [])}
    return f"{group}/{version}" in versions and named and api.find(f"{path}/{plural}") is not None


class GangDemands(Demands):
    """Jobs that choose each system."""

    def two_attempts_of_each_system(self) -> None:
        """A group whose name is taken; then it is made, an attempt fails, the next has its group, and the first goes."""
        for system, (api, scheduling) in SYSTEMS.items():
            stranger = {
                "apiVersion": api,
                "kind": "PodGroup",
                "metadata": {"name": self._suspended(system, scheduling)},
            }
            self._api.create(_groups(api), {**stranger, "spec": GROUPS.get(system, {"minMember": 1})})
            self._resume(system)
        for system, (api, _) in SYSTEMS.items():
            job = self._job(system)
            name = self._group_name(job)
            eventually(lambda job=job, name=name: f"podgroups/{name}" in json.dumps(self._status(job)), "the refusal")
            self._api.delete(f"{_groups(api)}/{name}")
            self._let_go(api)
        for system in SYSTEMS:
            job = self._job(system)
            self._wait_for_pods(job, 1)
            self._set_state(f"{job}-1-1", terminated={"exitCode": 1, "reason": "Error"})
        for system, (api, _) in SYSTEMS.items():
            job = self._job(system)
            self._wait_for_pods(job, 2)
            eventually(lambda api=api, job=job: self._attempts_with_groups(api, job) == {"2"}, "the second group alone")
            self._delete(job)

    def a_wait_in_a_queue_of_kueue(self) -> None:
        """Kueue's own words on why, in an object that it made."""
        name = self._suspended("kueue", {"gang": "Kueue", "queue": "team"})
        workload = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": {"name": name}, "spec": {}}
        self._api.create(KUEUE, workload)
        quota = {
            "type": "QuotaReserved",
            "status": "False",
            "reason": "Pending",
            "message": "insufficient unused quota",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        self._api.merge(f"{KUEUE}/{name}/status", {"status": {"conditions": [quota]}})
        self._resume("kueue")
        job = self._job("kueue")
        eventually(lambda: quota["message"] in json.dumps(self._status(job)), "Kueue's words")
        self._delete(job)

    def _suspended(self, system: str, scheduling: dict[str, Any]) -> str:
        """Make a job that does not start yet; the name of the group that it is to have."""
        job = self._job(system)
        self._apply(job, suspend=True, scheduling={**scheduling, "schedulerName": "nobody"})
        return self._group_name(job)

    def _resume(self, system: str) -> None:
        self._api.merge(f"{JOBS}/{self._job(system)}", {"spec": {"suspend": False}})

    def _group_name(self, job: str) -> str:
        return group_name(job, self._api.get(f"{JOBS}/{job}")["metadata"]["uid"], 1)

    def _attempts_with_groups(self, api: str, job: str) -> set[str]:
        self._let_go(api)
        found = self._api.get(f"{_groups(api)}?labelSelector={Label.JOB.value}={job}")["items"]
        return {group["metadata"]["labels"][Label.ATTEMPT.value] for group in found}

    def _let_go(self, api: str) -> None:
        """What Kubernetes' controllers do where its own gangs are switched on: a deleted group without pods goes."""
        for group in self._api.get(_groups(api))["items"]:
            if "deletionTimestamp" in group["metadata"]:
                self._api.merge(f"{_groups(api)}/{group['metadata']['name']}", {"metadata": {"finalizers": None}})


def _groups(api: str) -> str:
    return f"/apis/{api}/namespaces/default/podgroups"
