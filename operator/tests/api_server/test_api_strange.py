"""What nobody foresees, against a real API server: taints on nodes that work, labels taken off, values of other releases."""

from __future__ import annotations

import pytest
from api_server.test_api_nodes import NODES, two_nodes
from gangs import JOBS, PODS, Gang
from processes import Api

from oarlock_local.patience import eventually

pytestmark = pytest.mark.cluster
__all__ = ["two_nodes"]


def test_a_taint_on_a_node_that_works_leaves_the_gang_its_grace_to_save(
    with_operator: Api, two_nodes: tuple[str, str]
) -> None:
    gang = Gang(with_operator)
    gang.run(nodes=two_nodes)
    eventually(lambda: gang.status.get("recovery", {}).get("stage") == "FirstStep" or None, "the gang to come up")
    taint = {"key": "example.com/maintenance", "effect": "NoExecute"}
    with_operator.merge(f"{NODES}/{two_nodes[1]}", {"spec": {"taints": [taint]}})
    eventually(lambda: gang.pods()["1-1"]["metadata"].get("deletionTimestamp"), "the eviction")
    target = next(c for c in gang.pods()["1-1"]["status"]["conditions"] if c["type"] == "DisruptionTarget")
    assert target["reason"] == "DeletionByTaintManager", "as the API really says it"
    eventually(lambda: (gang.status.get("ranks") or {}).get("terminating") or None, "the operator to see it")
    assert (gang.status["attempt"], "deletionTimestamp" in gang.pods()["1-0"]["metadata"]) == (1, False)
    # A kubelet leaves the conditions of others alone.
    ended = {"name": "trainer", "image": "x", "imageID": "", "ready": False, "restartCount": 0}
    ended["state"] = {"terminated": {"exitCode": 86, "reason": "Error"}}
    with_operator.merge(f"{PODS}/{gang.name}-1-1/status", {"status": {"containerStatuses": [ended]}})
    gang.end("1-0", 86)
    eventually(lambda: gang.status.get("attempt") == 2 or None, "the decision")
    status = gang.status
    assert status["attempts"][-1]["reason"] == "Evicted"
    assert (status["restarts"]["voluntary"], status["restarts"]["infrastructure"]) == (1, 0)


def test_a_pod_whose_label_was_taken_off_is_stopped_before_the_next_gang_starts(
    with_operator: Api, two_nodes: tuple[str, str]
) -> None:
    gang = Gang(with_operator)
    gang.run(nodes=two_nodes)
    eventually(lambda: gang.status.get("recovery", {}).get("stage") == "FirstStep" or None, "the gang to come up")
    hidden = f"{PODS}/{gang.name}-1-1"
    with_operator.merge(hidden, {"metadata": {"labels": {"oarlock.dev/job": None}}})
    gang.end("1-0", 1, "ValueError: x")
    eventually(lambda: gang.status.get("attempt") == 2 or None, "the decision")
    assert gang.status["attempts"][-1]["reason"] == "ApplicationError"
    eventually(lambda: with_operator.call("GET", hidden)["metadata"].get("deletionTimestamp"), "its deletion")
    assert not [name for name in gang.pods() if name.startswith("2-")]
    with_operator.call("DELETE", hidden, {"gracePeriodSeconds": 0})
    eventually(lambda: {"2-0", "2-1"} <= set(gang.pods()) or None, "the next gang")


def test_a_job_that_a_later_release_left_with_values_of_its_own_recovers(with_operator: Api) -> None:
    gang = Gang(with_operator)
    gang.run()
    eventually(lambda: gang.status.get("recovery", {}).get("stage") == "FirstStep" or None, "the gang to come up")
    theirs = {"phase": "Rebalancing", "recovery": {"stage": "Rebalance"}, "resolved": {"gang": "Workload"}}
    with_operator.merge(f"{JOBS}/{gang.name}/status", {"status": theirs})
    gang.end("1-0", 1, "ValueError: x")
    eventually(lambda: gang.status.get("attempt") == 2 or None, "the decision")
    eventually(lambda: {"2-0", "2-1"} <= set(gang.pods()) or None, "the next gang")
    assert gang.status["resolved"]["gang"] == "Workload", "it stays as it was written"
