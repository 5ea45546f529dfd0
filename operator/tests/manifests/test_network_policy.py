"""The NetworkPolicy of a job: who gets one, and what it lets through."""

from __future__ import annotations

from typing import Any

import pytest
from jobs import job, spec
from memory_api import MemoryApi
from worlds import World

from oarlock_operator.execute import execute
from oarlock_operator.kube.throttle import Throttle
from oarlock_operator.manifests.network_policy import network_policy
from oarlock_operator.model.observation import Defaults
from oarlock_operator.model.plan import CreatePods
from oarlock_operator.nodes.pool import PoolReader

MONITORING: dict[str, Any] = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}


def made(status_from: tuple[dict[str, Any], ...] | None = (), **changes: Any) -> dict[str, Any] | None:
    return network_policy(job(), spec(**changes), status_from=status_from)


def test_the_pods_of_a_job_reach_each_other_on_all_ports_and_others_only_the_status() -> None:
    policy = made((MONITORING,), pod={"ports": {"status": 9500}})
    assert policy is not None
    its_pods = {"podSelector": {"matchLabels": {"oarlock.dev/job-uid": job().uid}}}
    assert policy["spec"] == {
        **its_pods,
        "policyTypes": ["Ingress"],
        "ingress": [{"from": [its_pods]}, {"ports": [{"protocol": "TCP", "port": 9500}], "from": [MONITORING]}],
    }
    assert policy["metadata"]["ownerReferences"][0]["uid"] == job().uid


def test_where_nobody_is_named_everybody_reaches_the_status_and_nothing_else() -> None:
    policy = made()
    assert policy is not None
    assert policy["spec"]["ingress"][1] == {"ports": [{"protocol": "TCP", "port": 9400}]}


@pytest.mark.parametrize(
    ("status_from", "changes"),
    [
        pytest.param(None, {}, id="the operator makes none"),
        pytest.param((), {"pod": {"networkPolicy": "None"}}, id="the job wants none"),
        pytest.param((), {"nodes": 1}, id="one node"),
        pytest.param((), {"pod": {"hostNetwork": True}}, id="in the node's network"),
    ],
)
async def test_who_has_no_policy_costs_no_request_for_one(
    status_from: tuple[dict[str, Any], ...] | None, changes: dict[str, Any]
) -> None:
    here = World(job=job(spec=spec(**changes)), defaults=Defaults(trainer_image="i", status_from=status_from))
    plan = here.one_pass()
    api = MemoryApi()
    pool = PoolReader(cluster=api, brakes=None)  # type: ignore[arg-type]
    await execute(api, job(), plan.actions, throttle=Throttle(4), pool=pool)  # type: ignore[arg-type]
    assert not [path for _, path in api.requests if "networkpolicies" in path]


async def test_a_job_with_a_policy_has_it_before_its_pods() -> None:
    plan = World(defaults=Defaults(trainer_image="i", status_from=())).one_pass()
    api = MemoryApi()
    pool = PoolReader(cluster=api, brakes=None)  # type: ignore[arg-type]
    pods = tuple(action for action in plan.actions if isinstance(action, CreatePods))
    await execute(api, job(), pods, throttle=Throttle(4), pool=pool)  # type: ignore[arg-type]
    kinds = [path.split("/")[-2] for verb, path in api.requests if verb == "POST"]
    assert kinds == ["networkpolicies", "pods", "pods"]
