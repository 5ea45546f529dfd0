"""The nodes: who cordoned what, by which evidence, within which brakes, and what is said to who may not read them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from fake_api import FakeApi
from pages import Page
from starlette.testclient import TestClient

from oarlock.web.drawn.cordons import Brakes
from oarlock.web.drawn.links import node_address
from oarlock_api.contract.asked_by import ASKED_BY_ANNOTATION, AskedBy
from oarlock_api.contract.node_marks import BREAKER, CORDONED, ENDED, GIVEN_BACK, LEDGER

EVIL = "<script>alert(1)</script>"
NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
MARK = {
    "job": "team/flux",
    "attempt": 2,
    "reason": "GPU fault: XID 79",
    "gpu": {"index": 5, "uuid": "GPU-5f7a"},
    "time": "2026-11-23T11:30:00+00:00",
}
LIMITS = {"nodes": 2, "percent": 10.0, "namespaceNodes": 1, "namespacePercent": 2.0, "windowSeconds": 3600}


def node(api: FakeApi, name: str, *, cordoned: bool = False, **annotations: str) -> None:
    marks = {CORDONED: annotations["mark"]} if "mark" in annotations else {}
    marks |= {ENDED: annotations["ended"]} if "ended" in annotations else {}
    api.objects[f"/api/v1/nodes/{name}"] = {
        "metadata": {"name": name, "annotations": marks},
        "spec": {"unschedulable": cordoned},
        "status": {"capacity": {"nvidia.com/gpu": "8"}, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def job(api: FakeApi) -> None:
    fault = {"time": "2026-11-23T11:29:00Z", "class": "GPU", "nodeName": "gpu-3", "evidence": ["XID 79"]}
    api.add_job("flux", "team", status={"phase": "Running", "lastFault": fault})


def entry(minutes: float | None, *, tried: float = 0, namespace: str = "team") -> dict[str, Any]:
    made: dict[str, Any] = {
        "node": "n",
        "job": f"{namespace}/flux",
        "time": (NOW - timedelta(minutes=tried)).isoformat(),
    }
    return made if minutes is None else {**made, "done": (NOW - timedelta(minutes=minutes)).isoformat()}


def brakes(*entries: dict[str, Any], limits: Any = LIMITS, nodes: int | None = 50, reason: str | None = None) -> Brakes:
    ledger = {"data": {"cordons": json.dumps(entries), "limits": json.dumps(limits)}}
    breaker = None if reason is None else {"data": {"reason": reason}}
    return Brakes.of(ledger, breaker, now=NOW, nodes=nodes)


def test_a_cordon_says_since_when_for_which_job_and_on_what_evidence(api: FakeApi, page: TestClient) -> None:
    node(api, "gpu-3", cordoned=True, mark=json.dumps(MARK))
    node(api, "gpu-4", cordoned=True)
    node(api, "gpu-5", ended=json.dumps(MARK))
    told = Page(page.get("/nodes").text)
    assert "1 of 3 nodes with GPUs is cordoned by Oarlock, 1 by somebody else." in told.texts["p"]
    assert {"gpu-3", "GPU 5, GPU-5f7a", "GPU fault: XID 79", "by somebody else"} <= set(told.texts["td"])
    assert "/jobs/team/flux" in [one["href"] for one in told.all("a")]
    assert "2026-11-23T11:30:00+00:00" in [one.get("datetime") for one in told.all("time")]
    assert [one["href"] for one in told.all("a") if str(one["href"]).endswith("uncordon")] == [], "nothing is done here"


def test_who_may_not_read_nodes_is_told_so_and_what_statuses_say(api: FakeApi, page: TestClient) -> None:
    job(api)
    api.refusals["/api/v1/nodes"] = (403, 'nodes is forbidden: User "ada" cannot list resource "nodes"')
    told = Page(page.get("/nodes").text).text
    assert "You may not read nodes (nodes is forbidden)." in told
    assert "the last fault was on it" in told
    assert "XID 79" in told


def test_a_link_from_a_job_leads_to_a_row_also_for_who_may_read_no_nodes_and_one_namespace_alone(
    api: FakeApi, page: TestClient
) -> None:
    fault = {"time": "2026-11-23T11:29:00Z", "class": "GPU", "nodeName": "gpu-3", "evidence": ["XID 79"]}
    avoided = {"name": "gpu-3", "reason": "GPUFault in attempt 2"}
    api.add_job("flux", "team", status={"phase": "Running", "lastFault": fault, "avoidedNodes": [avoided]})
    api.refusals["/api/v1/nodes"] = (403, "nodes is forbidden")
    api.refusals["/apis/oarlock.dev/v1alpha1/trainingjobs"] = (403, "trainingjobs is forbidden")
    link = node_address("gpu-3", "team")
    told = Page(page.get(link.partition("#")[0]).text)
    assert [one.get("id") for one in told.all("tr")].count(link.partition("#")[2]) == 1


def test_a_node_has_one_row_that_links_lead_to(api: FakeApi, page: TestClient) -> None:
    node(api, "gpu-3")
    job(api)
    assert page.get("/nodes").text.count('id="node-gpu-3"') == 1


def test_who_may_read_one_namespace_alone_is_told_of_its_jobs(api: FakeApi, page: TestClient) -> None:
    job(api)
    api.refusals["/apis/oarlock.dev/v1alpha1/trainingjobs"] = (403, "trainingjobs is forbidden")
    assert "Not known: trainingjobs is forbidden." in Page(page.get("/nodes").text).text
    assert "gpu-3" in page.get("/nodes?namespace=team").text
    assert page.get("/nodes?namespace=No/Name").status_code == 404


def test_the_ledger_says_how_many_cordons_count_of_how_many_that_are_allowed(api: FakeApi, page: TestClient) -> None:
    where = "/api/v1/namespaces/oarlock/configmaps"
    node(api, "gpu-3")
    done = datetime.now(UTC).isoformat()
    entries = json.dumps([{"node": "gpu-3", "job": "team/flux", "time": done, "done": done}])
    api.objects[f"{where}/{LEDGER}"] = {
        "metadata": {"name": LEDGER, "namespace": "oarlock"},
        "data": {"cordons": entries, "limits": json.dumps(LIMITS)},
    }
    api.objects[f"{where}/{BREAKER}"] = {
        "metadata": {"name": BREAKER, "namespace": "oarlock"},
        "data": {"reason": f"too many {EVIL}"},
    }
    text = page.get("/nodes").text
    told = Page(text).text
    assert "1 of 2 cordons that are allowed within 1 h; of each namespace at most 1." in told
    assert "kubectl delete configmap oarlock-cordon-breaker -n oarlock" in told
    assert EVIL not in text


@pytest.mark.parametrize(
    ("entries", "counted"),
    [
        ([entry(59)], 1),
        ([entry(61)], 0),
        ([entry(None)], 1),
        ([entry(None, tried=119)], 1),
        ([entry(None, tried=121)], 0),
        ([{"node": 1}], 0),
    ],
)
def test_a_cordon_counts_as_the_brakes_of_the_operator_count_it(entries: list[dict[str, Any]], counted: int) -> None:
    assert brakes(*entries).counted == counted


def test_what_is_allowed_grows_with_the_nodes_and_is_not_guessed() -> None:
    assert (brakes(nodes=50).allowed, brakes(nodes=5).allowed) == (5, 2)
    assert brakes(nodes=None).allowed is None
    assert brakes(limits="broken").allowed is None
    assert Brakes.of({"data": {"cordons": "[" * 9000}}, None, now=NOW, nodes=5).counted == 0
    assert (brakes().breaker, brakes(reason="").breaker) == ("", "no reason given")
    assert brakes(reason="4 within an hour").breaker == "4 within an hour"


@pytest.mark.parametrize(
    ("asked", "named"),
    [("2026-11-23T11:40:00+00:00", True), ("2026-11-23T11:35:00+00:00", False)],
    ids=["here", "shell"],
)
def test_a_node_that_was_given_back_says_when_and_by_whom(
    api: FakeApi, page: TestClient, asked: str, *, named: bool
) -> None:
    node(api, "gpu-5", ended=json.dumps(MARK))
    annotations = api.objects["/api/v1/nodes/gpu-5"]["metadata"]["annotations"]
    annotations[GIVEN_BACK] = "2026-11-23T11:40:01+00:00"
    annotations[ASKED_BY_ANNOTATION] = AskedBy(action="Uncordon", by="bob <b>", time=asked).to_annotation()
    cordoned = [{"name": "gpu-5", "time": MARK["time"], "doneTime": MARK["time"]}]
    api.add_job("flux", "team", status={"phase": "Running", "cordonedNodes": cordoned})
    told = Page(page.get("/nodes").text)
    assert (" by bob <b>" in told.text) is named
    assert "2026-11-23T11:40:01+00:00" in [one.get("datetime") for one in told.all("time")]
    assert "was cordoned for the job, and is uncordoned" in told.texts["td"]
    assert "Job" in told.texts["th"]
    assert not {"Action", "GPU"} & set(told.texts["th"]), "a column that says nothing is left out"


def test_what_was_only_told_of_is_listed_from_events(api: FakeApi, page: TestClient) -> None:
    api.objects["/api/v1/namespaces/team/events/one"] = {
        "metadata": {"name": "one", "namespace": "team"},
        "involvedObject": {"kind": "TrainingJob", "name": "flux", "namespace": "team"},
        "reason": "CordonDryRun",
        "message": "node gpu-3 would be cordoned: XID 79",
        "lastTimestamp": "2026-11-23T11:29:00Z",
    }
    told = Page(page.get("/nodes").text)
    assert "node gpu-3 would be cordoned: XID 79" in told.texts["td"]


def test_who_is_not_known_any_more_is_sent_to_the_login_and_not_told_that_he_may_not(
    api: FakeApi, page: TestClient
) -> None:
    api.refusals["/api/v1/nodes"] = (401, "Unauthorized")
    assert page.get("/nodes").status_code == 401


def test_the_row_of_a_broken_node_that_nobody_cordoned_says_which_brake_held_and_what_to_do(
    api: FakeApi, page: TestClient
) -> None:
    node(api, "gpu-3")
    node(api, "gpu-4")
    avoided = {"name": "gpu-3", "reason": "GPUFault in attempt 2", "notCordoned": "the breaker is latched"}
    api.add_job("flux", "team", status={"phase": "Running", "avoidedNodes": [avoided]})
    told = Page(page.get("/nodes").text)
    assert told.texts["strong"].count("broken and not cordoned") == 1
    assert ": the breaker is latched. Look at it, and " in told.texts["span"]
    assert "kubectl cordon gpu-3" in told.texts["code"]
    assert "2 nodes that take pods, 1 of them broken and not cordoned" in told.text


def test_the_row_of_a_node_that_any_program_may_call_broken_has_no_command_that_cordons(
    api: FakeApi, page: TestClient
) -> None:
    node(api, "gpu-3")
    why = "its report is only a claim: spec.custom runs a program of its own"
    avoided = {"name": "gpu-3", "reason": "GPUFault in attempt 2", "notCordoned": why}
    api.add_job("flux", "team", status={"phase": "Running", "avoidedNodes": [avoided]})
    text = page.get("/nodes").text
    assert "a program that the site does not vouch for says that a GPU of it is broken" in text
    assert "spec.custom runs a program of its own" in text
    assert "kubectl cordon" not in text
    assert "broken and not cordoned" not in text
