"""The chart's rights are those that the operator uses: no more, no less, for each switch. On a real API server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from oarlock_local.api import ApiServer
from oarlock_local.patience import eventually
from oarlock_local.pytest_tiers import quick_first
from oarlock_local.rights import Right, granted, never_used
from tests.chart.demands import JOBS, Demands, operator_of, refusal
from tests.chart.rendering import one, render

if TYPE_CHECKING:
    from oarlock_local.cluster import Cluster

RELEASES: dict[str, dict[str, Any]] = {
    # One namespace, and what another release has cordoned for it counts for an hour.
    "everywhere": {"settings": {"CORDON_MAX_NODES": 9, "CORDON_NAMESPACE_MAX_NODES": 9}},
    "telling": {"cordon": "DryRun"},
    "avoiding": {"cordon": False, "jobNetworkPolicies": {"enabled": True, "statusFrom": [{"namespaceSelector": {}}]}},
    "here": {"namespaces": ["default"]},
}
OF_AN_ADMISSION_PLUGIN = Right("oarlock.dev", "trainingjobs/finalizers", "update")
"""Asked for by nobody: where owners are guarded, a plugin looks whether who names an owner has it."""
NOT_USED: dict[str, set[Right]] = {
    "everywhere": set(),
    "telling": set(),
    "avoiding": set(),
    "here": set(),
}
DONE_WITHOUT = {
    "everywhere": set(),
    "telling": set(),
    "avoiding": set(),
    # Nodes are not a namespace's: the operator asks whether one is in trouble, is refused, and goes on without.
    "here": {Right("", "nodes", "get")},
}


@pytest.mark.cluster
@pytest.mark.parametrize("release", quick_first(RELEASES))
def test_the_operator_uses_every_right_that_it_has_and_has_every_right_that_it_uses(
    release: str, helm_program: Path, serving: Cluster, tmp_path: Path
) -> None:
    objects = render(helm_program, RELEASES[release], release=release)
    with ApiServer(serving.kubeconfig) as api:
        demands = Demands(serving, api, release)
        demands.make_nodes()
        with operator_of(objects, serving, tmp_path) as account:
            demands.a_start_among_strangers()
            demands.a_start_that_hangs_and_a_fault(cordoned=release == "everywhere")
            demands.an_end_after_which_the_job_goes()
    unused = never_used(account.rights, account.asked())
    assert {right.anywhere() for right in unused} == {OF_AN_ADMISSION_PLUGIN, *NOT_USED[release]}
    assert set(account.lacked()) == DONE_WITHOUT[release]


def an_object_that_holds_up_its_job(api: ApiServer) -> str:
    """As all of a job's objects do."""
    job = {"apiVersion": "oarlock.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "guarded"}}
    output = {"persistentVolumeClaim": {"claimName": "guarded"}}
    spec = {"suspend": True, "custom": {"command": ["true"]}, "pod": {"image": "example.test/none"}}
    api.create(JOBS, {**job, "spec": {"nodes": 1, "output": output, **spec}})
    uid = api.get(f"{JOBS}/guarded")["metadata"]["uid"]
    owner = {"apiVersion": job["apiVersion"], "kind": job["kind"], "name": "guarded", "uid": uid}
    metadata = {"name": "guarded", "ownerReferences": [{**owner, "blockOwnerDeletion": True}]}
    return json.dumps({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"clusterIP": "None"}})


@pytest.mark.cluster
def test_without_the_right_to_finalizers_no_object_of_a_job_can_be_made_where_owners_are_guarded(
    helm_program: Path, serving: Cluster
) -> None:
    objects = [item for item in render(helm_program, release="guarded") if "ClusterRole" in item["kind"]]
    serving.apply(objects)
    with ApiServer(serving.kubeconfig) as api:
        owned = an_object_that_holds_up_its_job(api)

    account = "--as=system:serviceaccount:oarlock:guarded-operator"
    # The server hears of new roles in a moment.
    eventually(lambda: not refusal(serving, owned, account), "the right")
    role = one(objects, "ClusterRole", "guarded-operator")
    role["rules"] = [rule for rule in role["rules"] if rule["resources"] != ["trainingjobs/finalizers"]]
    serving.apply([role])
    eventually(lambda: "blockOwnerDeletion" in refusal(serving, owned, account), "its end")


def test_only_cordoning_may_change_nodes(helm_program: Path) -> None:
    without = granted(render(helm_program, {"cordon": False}), "oarlock-operator")
    telling = granted(render(helm_program, {"cordon": "DryRun"}), "oarlock-operator")
    cordoning = granted(render(helm_program), "oarlock-operator")
    own = ("oarlock-cordon-breaker", "oarlock-cordons")
    assert telling - without == {Right("", "configmaps", "get", "oarlock", name) for name in own}
    assert cordoning - telling == {
        Right("", "nodes", "patch"),
        Right("", "configmaps", "create", "oarlock"),
        Right("", "configmaps", "update", "oarlock", "oarlock-cordons"),
    }


@pytest.mark.parametrize("values", [{}, {"cordon": False}, {"namespaces": ["default"]}])
def test_no_config_map_but_its_own_breaker_and_ledger_is_within_the_operator_s_reach(
    values: dict[str, Any], helm_program: Path
) -> None:
    rights = [
        right for right in granted(render(helm_program, values), "oarlock-operator") if right.resource == "configmaps"
    ]
    assert {right.namespace for right in rights} <= {"oarlock"}
    assert {right.name for right in rights if right.verb != "create"} <= {"oarlock-cordon-breaker", "oarlock-cordons"}


@pytest.mark.parametrize("rights", [{"rbac": {"create": False}}, {"rbac": {"create": False}, "cordon": False}])
def test_no_rights_are_rendered_where_an_administrator_makes_them(rights: dict[str, Any], helm_program: Path) -> None:
    assert not granted(render(helm_program, rights), "oarlock-operator")
