"""The page of a job as it is served: from watched lists alone, live, and with the rights of who asks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fake_api import JOBS, FakeApi
from starlette.testclient import TestClient
from streams import Stream

from oarlock.web.access.link import LinkAuthenticator
from oarlock.web.app import build
from oarlock.web.settings import Settings

PATH = "/jobs/team/flux"
FAULT = {
    "time": "2026-11-23T10:30:00Z",
    "class": "GPU",
    "nodeName": "node-2",
    "gpu": {"index": 3},
    "evidence": ["XID 79: off the bus"],
}


def put(api: FakeApi, **status: Any) -> dict[str, Any]:
    attempts = [{"number": 1, "startTime": "2026-11-23T10:00:00Z", "nodeNames": ["node-1", "node-2"]}]
    told = {"phase": "Running", "attempt": 1, "attempts": attempts, **status}
    return {**api.add_job("flux", "team", status=told)}


def test_a_job_has_a_page_without_any_script(api: FakeApi, page: TestClient) -> None:
    put(api, progress={"step": 7, "totalSteps": 40})
    answer = page.get(PATH)
    assert answer.status_code == 200
    assert "<title>flux: Running, step 7 of 40</title>" in answer.text
    for part in ("timeline", "gpus", "curve", "faults", "what-happened", "events", "yaml"):
        assert f'id="{part}"' in answer.text
    assert 'data-live="/live/jobs/team/flux"' in answer.text


def test_a_job_that_is_not_there_is_not_found(page: TestClient) -> None:
    assert page.get(PATH).status_code == 404
    assert page.get("/jobs/team/No_Name").status_code == 404


def test_what_may_not_be_read_is_said_and_the_rest_is_there(api: FakeApi, page: TestClient) -> None:
    put(api)
    api.refusals["/api/v1/namespaces/team/pods"] = (403, "pods is forbidden")
    api.refusals["/api/v1/nodes"] = (403, "nodes is forbidden")
    text = page.get(PATH).text
    assert "pods: you may not read it" in text
    assert "node-2" in text


def test_a_list_that_is_refused_is_asked_for_once_for_a_page(api: FakeApi, page: TestClient) -> None:
    put(api)
    api.refusals["/api/v1/nodes"] = (403, "nodes is forbidden")
    avoided = [{"name": f"node-{number}"} for number in range(6)]
    put(api, avoidedNodes=avoided, cordonedNodes=avoided)
    page.get(PATH)
    assert [path.partition("?")[0] for _, path, _ in api.asked].count("/api/v1/nodes") == 1


def test_the_same_page_costs_no_request_of_its_own(api: FakeApi, page: TestClient) -> None:
    put(api)
    page.get(PATH)
    api.asked.clear()
    page.get(f"{PATH}?attempt=1")
    lists = [path for _, path, _ in api.asked if "watch" not in path and "persistentvolumeclaims" not in path]
    assert lists == []


def test_a_fault_appears_on_an_open_page_and_only_what_it_changes_is_sent(
    api: FakeApi, listen: Callable[..., Stream]
) -> None:
    put(api)
    stream = listen(f"/live{PATH}")
    assert "part-yaml" in stream.next().data["regions"][0]["html"]
    api.change(f"{JOBS.format('team')}/flux", put(api, lastFault=FAULT))
    (region,) = stream.next().data["regions"]
    assert "XID 79: off the bus" in region["html"]["part-gpus"]
    assert "part-yaml" not in region["html"]


def test_what_can_be_done_with_it_is_offered_where_it_may_be_done_here(api: FakeApi, access: LinkAuthenticator) -> None:
    put(api)
    for actions in (False, True):
        app = build(Settings(actions=actions), access)
        with TestClient(app, base_url="http://127.0.0.1:8270", follow_redirects=False) as page:
            page.get(access.link)
            assert (f'href="{PATH}/suspend"' in page.get(PATH).text) is actions
