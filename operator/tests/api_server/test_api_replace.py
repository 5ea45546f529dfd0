"""A lost pod is made anew by itself, against a real API server: while the others live, and under the name that rank 0 has."""

from __future__ import annotations

from typing import Any

import pytest
from gangs import JOBS, Gang
from processes import Api

from oarlock_local.patience import eventually

pytestmark = pytest.mark.cluster


def training(api: Api) -> Gang:
    """A gang that has made its first step, as far as its status tells."""
    gang = Gang(api, recovery={"inPlace": "Auto"})
    gang.run()
    eventually(lambda: gang.status["recovery"].get("stage") == "FirstStep" or None, "the start")
    trains = {"status": {"recovery": {"stage": None, "stageStartTime": None}, "reason": "Training"}}
    api.merge(f"{JOBS}/{gang.name}/status", trains)
    return gang


def selected(gang: Gang) -> Any:
    service = gang.api.call("GET", f"/api/v1/namespaces/default/services/{gang.name}")
    return service["spec"]["selector"].get("oarlock.dev/incarnation")


def test_a_killed_pod_is_made_anew_and_its_peer_is_let_be(with_operator: Api) -> None:
    gang = training(with_operator)
    peer = gang.pods()["1-0"]["metadata"]["uid"]
    gang.end("1-1", 137)
    gang.wait_for_pods("1-0", "1-1-i2")
    pods, status = gang.pods(), gang.status
    assert (status["attempt"], status["recovery"]["stage"]) == (1, "Replace")
    (entry,) = status["recovery"]["replacing"]
    assert (entry["rank"], entry["incarnation"], entry["reason"]) == (1, 2, "ProcessKilled")
    assert pods["1-0"]["metadata"]["uid"] == peer
    assert "deletionTimestamp" not in pods["1-0"]["metadata"]
    assert pods["1-1-i2"]["metadata"]["labels"]["oarlock.dev/incarnation"] == "2"
    assert pods["1-1-i2"]["spec"]["hostname"] == pods["1-0"]["spec"]["hostname"][:-1] + "1"
    eventually(lambda: "PodReplaced" in gang.events() or None, "the Event")
    assert selected(gang) is None, "rank 0 is the one that it was"


def test_a_new_rank_0_is_the_only_one_that_the_service_names_until_the_next_attempt(with_operator: Api) -> None:
    gang = training(with_operator)
    gang.end("1-0", 137)
    gang.wait_for_pods("1-0-i2", "1-1")
    eventually(lambda: selected(gang) == "2" or None, "the Service")
    gang.set_state("1-0-i2", running={"startedAt": "2026-01-01T00:00:00Z"})
    gang.end("1-1", 84)
    gang.wait_for_pods("2-0", "2-1")
    assert selected(gang) is None
