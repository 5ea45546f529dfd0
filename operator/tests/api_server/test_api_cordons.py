"""Cordons against a real API server that says no, while nodes are replaced and operators die."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from gangs import BRAKES_OFF, Gang
from gpu_nodes import NODES, annotation, cordoned, gpu_nodes, make_node
from processes import Api, operator

from oarlock_local.patience import eventually

pytestmark = pytest.mark.cluster

QUOTAS = "/api/v1/namespaces/default/resourcequotas"
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
SETTINGS = ("--lease-seconds", "5", "--progress-seconds", "1", *BRAKES_OFF)


@contextmanager
def quota_of_none(api: Api) -> Iterator[None]:
    """A quota takes no pod for the length of the block."""
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
    api.call("POST", QUOTAS, quota)
    try:
        yield
    finally:
        api.call("DELETE", f"{QUOTAS}/none")


@contextmanager
def nobody_writes(api: Api, name: str) -> Iterator[None]:
    """A policy of the site's lets nobody cordon a node, for the length of the block."""
    spec: dict[str, Any] = {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "resourceRules": [
                {
                    "apiGroups": [""],
                    "apiVersions": ["v1"],
                    "operations": ["UPDATE"],
                    "resources": ["nodes"],
                    "resourceNames": [name],
                }
            ]
        },
        "validations": [
            {"expression": "!object.spec.?unschedulable.orValue(false)", "message": "the site guards nodes"}
        ],
    }
    kind = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy"}
    api.call("POST", POLICIES, {**kind, "metadata": {"name": name}, "spec": spec})
    binding = {"policyName": name, "validationActions": ["Deny"]}
    kind["kind"] += "Binding"
    api.call("POST", f"{POLICIES[:-3]}ybindings", {**kind, "metadata": {"name": name}, "spec": binding})
    try:
        eventually(lambda: "guards" in refused(api, name) or None, "the policy")
        yield
    finally:
        api.call("DELETE", f"{POLICIES[:-3]}ybindings/{name}")
        api.call("DELETE", f"{POLICIES}/{name}")


def refused(api: Api, name: str) -> str:
    """What the server has against a cordon by an administrator."""
    try:
        api.merge(f"{NODES}/{name}?dryRun=All", {"spec": {"unschedulable": True}})
    except Exception as error:  # noqa: BLE001 - 403 or 422, whichever the server's version gives
        return str(error) if "guards" in str(error) else "guards" if getattr(error, "code", 0) in (403, 422) else ""
    return ""


@pytest.fixture
def nodes(api: Api) -> Iterator[list[str]]:
    with gpu_nodes(api) as names:
        yield names


def broken(api: Api, nodes: list[str]) -> Gang:
    """A gang of which rank 1 has ended with a report against its node."""
    gang = Gang(api)
    gang.run(nodes=(nodes[0], nodes[1]))
    gang.end("1-1", 80, gang.report("1-1", 80, xid=79, gpu="GPU-x"))
    return gang


def entry(gang: Gang) -> dict[str, Any]:
    found: dict[str, Any] = gang.status["cordonedNodes"][0]
    return found


@pytest.mark.deep
def test_another_machine_under_the_name_of_a_cordoned_node_is_left_alone_by_an_operator_that_remembers_nothing(
    api: Api, nodes: list[str], as_operator: Path, tmp_path: Path
) -> None:
    with operator(as_operator, tmp_path / "first.log", *SETTINGS) as first:
        gang = Gang(api)
        gang.run(nodes=(nodes[0], nodes[1]))
        with quota_of_none(api):
            gang.end("1-1", 80, gang.report("1-1", 80, xid=79, gpu="GPU-x"))
            eventually(lambda: cordoned(api, nodes[1]) or None, "the cordon")
            first.kill()
            api.call("DELETE", f"{NODES}/{nodes[1]}")
            make_node(api, nodes[1])
            gang.remove("1-0")
            with operator(as_operator, tmp_path / "second.log", *SETTINGS):
                # It plans the second attempt again and again, and the quota refuses its pods.
                eventually(lambda: gang.condition("Scheduled")["reason"] == "CreateRefused" or None, "its plan")
                assert not cordoned(api, nodes[1])
                assert annotation(api, nodes[1], "cordoned") is None


def test_a_cordon_that_a_policy_denies_is_told_is_no_return_of_the_node_and_is_done_once_it_may_be(
    with_operator: Api, nodes: list[str]
) -> None:
    api = with_operator
    with nobody_writes(api, nodes[1]):
        gang = broken(api, nodes)
        eventually(lambda: gang.status.get("attempt") == 2 or None, "the second attempt")
        gang.remove("1-0")
        # The cluster is full: nobody places these pods, and the operator looks for nodes that came back.
        gang.wait_for_pods("2-0", "2-1")
        eventually(lambda: gang.condition("Degraded")["reason"] == "CordonFailed" or None, "the condition")
        eventually(lambda: "CordonFailed" in gang.events() or None, "the Event")
        assert [node["name"] for node in gang.status["avoidedNodes"]] == [nodes[1]]
        assert (gang.status["attempt"], "doneTime" in entry(gang)) == (2, False)
        assert not cordoned(api, nodes[1])
    eventually(lambda: cordoned(api, nodes[1]) or None, "the cordon")
    eventually(lambda: "doneTime" in entry(gang) or None, "its time")
    eventually(lambda: gang.condition("Degraded")["reason"] != "CordonFailed" or None, "the end of the condition")
