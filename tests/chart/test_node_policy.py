"""What the operator may do to a node, as the API server itself judges its account: cordon it, say why, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oarlock_local.account import Account
from oarlock_local.cluster import Cluster
from oarlock_local.errors import ClusterError
from oarlock_local.patience import eventually
from tests.chart.rendering import render

RELEASE, NODE = "guarded-nodes", "guarded-node"
AS = f"--as=system:serviceaccount:oarlock:{RELEASE}-operator"
POLICIES = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")


@pytest.fixture(scope="module")
def guarded(helm_program: Path, serving: Cluster) -> Iterator[Cluster]:
    """A node, and a release's account with more rights on it than the chart gives: only the policy holds it."""
    objects = render(helm_program, release=RELEASE)
    for item in objects:
        for rule in item.get("rules", []):
            if rule["resources"] == ["nodes"]:
                rule.update(resources=["nodes", "nodes/status"], verbs=["*"])
    Account.made(serving, objects)
    metadata = {"name": NODE, "labels": {"pool": "a"}, "annotations": {"example.com/mine": "1"}}
    taint = {"key": "example.com/t", "effect": "NoSchedule"}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {"taints": [taint]}}
    serving.kubectl("create", "-f", "-", stdin=json.dumps(node))
    # The server hears of a policy in a moment. Asked for nothing but an answer: a change that it took would be none any more.
    eventually(
        lambda: (
            "annotations of oarlock.dev alone"
            in refused(serving, {"metadata": {"labels": {"x": "y"}}}, AS, "--dry-run=server")
        ),
        "the policy",
    )
    yield serving
    serving.kubectl("delete", "node", NODE)


def refused(cluster: Cluster, patch: dict[str, Any], *options: str) -> str:
    """What the API server has against a patch by the operator; empty where it takes it."""
    command = ("patch", "node", NODE, "--type=merge", "-p", json.dumps(patch), *(options or (AS,)))
    try:
        cluster.kubectl(*command)
    except ClusterError as error:
        return str(error)
    return ""


@pytest.mark.cluster
@pytest.mark.parametrize(
    "patch",
    [
        pytest.param({"metadata": {"labels": {"pool": "b"}}}, id="a label changed"),
        pytest.param({"metadata": {"labels": {"pool": None}}}, id="a label removed"),
        pytest.param({"metadata": {"labels": {"oarlock.dev/x": "y"}}}, id="a label of its own"),
        pytest.param({"metadata": {"annotations": {"example.com/new": "1"}}}, id="an annotation added"),
        pytest.param({"metadata": {"annotations": {"example.com/mine": "2"}}}, id="an annotation changed"),
        pytest.param({"metadata": {"annotations": {"example.com/mine": None}}}, id="an annotation removed"),
        pytest.param(
            {"metadata": {"annotations": {"oarlock.dev.example.com/x": "1"}}}, id="one that looks like its own"
        ),
        pytest.param({"metadata": {"finalizers": ["example.com/f"]}}, id="a finalizer"),
        pytest.param({"spec": {"taints": []}}, id="the taints removed"),
        pytest.param({"spec": {"taints": [{"key": "x", "effect": "NoExecute"}]}}, id="a taint"),
        pytest.param({"spec": {"providerID": "cloud://other"}}, id="whose machine it is"),
        pytest.param({"spec": {"podCIDR": "10.9.0.0/24", "podCIDRs": ["10.9.0.0/24"]}}, id="its addresses"),
        pytest.param(
            {"spec": {"unschedulable": True}, "metadata": {"labels": {"pool": "b"}}}, id="a label beside a cordon"
        ),
    ],
)
def test_the_operator_changes_nothing_else_of_a_node(patch: dict[str, Any], guarded: Cluster) -> None:
    assert "of oarlock.dev alone" in refused(guarded, patch)


@pytest.mark.cluster
def test_the_operator_cordons_and_says_why_and_uncordoning_is_a_persons(guarded: Cluster) -> None:
    mark = {"metadata": {"annotations": {"oarlock.dev/cordoned": "{}", "oarlock.dev/gpu-strikes": "[]"}}}
    assert refused(guarded, {**mark, "spec": {"unschedulable": True}}) == ""
    assert "never uncordons" in refused(guarded, {"spec": {"unschedulable": None}})
    assert "never uncordons" in refused(guarded, {"spec": {"unschedulable": False}})
    gone = {"metadata": {"annotations": {"oarlock.dev/cordoned": None, "oarlock.dev/last-cordon": "{}"}}}
    assert refused(guarded, gone) == ""
    assert refused(guarded, {"spec": {"unschedulable": None}}, "--as=admin", "--as-group=system:masters") == ""
    assert refused(guarded, mark) == "", "after an uncordon, too"


@pytest.mark.cluster
def test_the_operator_neither_makes_nodes_nor_deletes_them_nor_writes_their_status(guarded: Cluster) -> None:
    with pytest.raises(ClusterError, match="makes no nodes"):
        guarded.kubectl("delete", "node", NODE, AS)
    body = json.dumps({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "another"}})
    with pytest.raises(ClusterError, match="makes no nodes"):
        guarded.kubectl("create", "-f", "-", AS, stdin=body)
    status = {"status": {"capacity": {"nvidia.com/gpu": "8"}}}
    assert "makes no nodes" in refused(guarded, status, "--subresource=status", AS)


@pytest.mark.parametrize(
    ("values", "guarded_by"),
    [
        pytest.param({}, 2, id="by default"),
        pytest.param({"cordon": False}, 0, id="off"),
        pytest.param({"cordon": "DryRun"}, 0, id="telling"),
        pytest.param({"namespaces": ["a"]}, 0, id="in namespaces"),
        pytest.param({"rbac": {"create": False}}, 0, id="where an administrator makes the roles"),
    ],
)
def test_whoever_gets_the_right_to_patch_nodes_gets_the_policy(
    values: dict[str, Any], guarded_by: int, helm_program: Path
) -> None:
    ours = [item for item in render(helm_program, values) if item["metadata"]["name"].endswith("-operator-nodes")]
    assert sum(item["kind"] in POLICIES for item in ours) == guarded_by
