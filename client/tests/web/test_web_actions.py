"""Actions: asked first, done as the caller, with his name; refused without a token of his session, and where they are off."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fake_api import JOBS, FakeApi
from starlette.testclient import TestClient

from oarlock.web.access.link import LinkAuthenticator
from oarlock.web.app import build
from oarlock.web.drawn.actions import last_action
from oarlock.web.guards import Csrf
from oarlock.web.settings import Settings
from oarlock_api.contract.asked_by import AskedBy
from oarlock_local import patience

REVIEW = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
EVENTS = "/api/v1/namespaces/{}/events"
NODE = "/api/v1/nodes/node-2"
PERSON = "alice@example.com"
RUNNING = {"phase": "Running", "latestCheckpoint": {"step": 1200}}


@pytest.fixture
def page(access: LinkAuthenticator, api: FakeApi) -> Iterator[TestClient]:
    """A browser on a page whose actions are on, of somebody whom the API server knows."""
    api.objects[REVIEW] = {"metadata": {}, "status": {"userInfo": {"username": PERSON}}}
    for namespace in ("team", "default"):
        api.objects[EVENTS.format(namespace)] = {"metadata": {}}
    with TestClient(
        build(Settings(actions=True), access), base_url="http://127.0.0.1:8270", follow_redirects=False
    ) as page:
        page.get(access.link)
        yield page


def job(api: FakeApi, name: str = "flux", **status: Any) -> dict[str, Any]:
    return api.add_job(name, "team", status={**RUNNING, **status})


def node(api: FakeApi, **spec: Any) -> dict[str, Any]:
    mark = {"job": "team/flux", "reason": "GPUFault", "time": "2026-01-01T00:00:00Z"}
    metadata = {"name": "node-2", "uid": "uid-node", "annotations": {"oarlock.dev/cordoned": json.dumps(mark)}}
    made = {"metadata": metadata, "spec": spec, "status": {"capacity": {"nvidia.com/gpu": "8"}}}
    api.objects[NODE] = made
    return made


def form(text: str) -> dict[str, str]:
    """The fields of the form that asks."""
    asked = text.partition('class="ask"')[2]
    return dict(re.findall(r'name="(csrf|uid)" value="([^"]*)"', asked))


def changes(api: FakeApi) -> list[tuple[str, str, Any]]:
    """What was written to jobs and nodes."""
    return [(method, path, body) for method, path, body in api.asked if method in {"PATCH", "DELETE"}]


def events(api: FakeApi) -> list[dict[str, Any]]:
    return [body for method, path, body in api.asked if method == "POST" and path.endswith("/events")]


def wait_for_threads(name: str) -> None:
    for thread in threading.enumerate():
        if thread.name == name:
            thread.join(patience.SECONDS)


@pytest.mark.parametrize(
    ("action", "words"),
    [
        ("suspend", "16 GPUs on 2 nodes are free for others"),
        ("save", "The newest one now is of step 1,200"),
        ("stop", "Then the TrainingJob is deleted"),
    ],
)
def test_an_action_asks_first_and_says_what_will_happen(
    api: FakeApi, page: TestClient, action: str, words: str
) -> None:
    job(api)
    text = page.get(f"/jobs/team/flux/{action}").text
    assert words in text
    assert form(text)["uid"] == "uid-flux"
    assert changes(api) == []


@pytest.mark.parametrize(("action", "wanted", "phase"), [("suspend", True, "Running"), ("resume", False, "Suspended")])
def test_an_action_is_one_patch_with_the_callers_name_and_an_event_of_it(
    api: FakeApi, page: TestClient, action: str, *, wanted: bool, phase: str
) -> None:
    job(api, phase=phase)["spec"]["suspend"] = not wanted
    answer = page.post(f"/jobs/team/flux/{action}", data=form(page.get(f"/jobs/team/flux/{action}").text))
    assert (answer.status_code, answer.headers["location"]) == (303, "/jobs/team/flux")
    ((method, _, patch),) = changes(api)
    told = json.loads(patch["metadata"]["annotations"]["oarlock.dev/asked-by"])
    assert (method, patch["spec"], patch["metadata"]["uid"]) == ("PATCH", {"suspend": wanted}, "uid-flux")
    assert (told["action"], told["by"]) == (action.title(), PERSON)
    (event,) = events(api)
    assert event["reason"] == f"{action.title()}Requested"
    assert PERSON in event["message"]
    assert event["involvedObject"] == {
        "apiVersion": "oarlock.dev/v1alpha1",
        "kind": "TrainingJob",
        "name": "flux",
        "namespace": "team",
        "uid": "uid-flux",
    }


def test_the_jobs_page_leads_to_what_can_be_done_and_says_who_asked_last(api: FakeApi, page: TestClient) -> None:
    asked = AskedBy(action="Resume", by="bob <b>", time="2026-01-01T00:00:00Z")
    job(api)["metadata"]["annotations"] = {"oarlock.dev/asked-by": asked.to_annotation()}
    text = page.get("/jobs/team/flux").text
    assert set(re.findall(r'href="/jobs/team/flux/([a-z]+)" class="button"', text)) == {"suspend", "save", "stop"}
    assert "Resume, asked for by bob &lt;b&gt;" in text


@pytest.mark.parametrize("said", ["[1", "{}", "[]", '{"action": 7, "by": "a"}', '{"action": "Stop"}', 7])
def test_an_annotation_that_names_nobody_is_left_out(said: object) -> None:
    assert last_action({"metadata": {"annotations": {"oarlock.dev/asked-by": said}}}) is None


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({"state": "Asked", "verb": "save", "requestTime": "2026-01-01T00:00:00Z"}, "The last save: Asked, "),
        (
            {"state": "Done", "verb": "save", "step": 1234, "seconds": 2.5},
            "The last save: step 1,234 was saved after 2.5 s",
        ),
        (
            {"state": "Refused", "verb": "save", "message": "it <i> waits"},
            "The last save: Refused: it &lt;i&gt; waits, ",
        ),
        ({"state": "Done", "verb": "stacks", "message": "see x.txt"}, "The last request for stacks: Done: see x.txt, "),
        ({"state": "Done", "verb": 7, "step": "x"}, "The last request: Done, "),
    ],
)
def test_the_answer_to_a_request_is_told(request_: dict[str, Any], words: str) -> None:
    assert words in (last_action({"status": {"request": request_}}) or "")


@pytest.mark.parametrize(
    ("request_", "is_told"),
    [
        ({"attempt": 2, "state": "Done", "endTime": "2026-01-01T09:55:00Z"}, True),
        ({"attempt": 2, "state": "Done", "endTime": "2026-01-01T09:45:00Z"}, False),
        ({"attempt": 1, "state": "Failed", "endTime": "2026-01-01T09:59:00Z"}, False),
        ({"attempt": 2, "state": "Asked", "requestTime": "2026-01-01T09:45:00Z"}, True),
    ],
)
def test_an_answer_is_told_for_ten_minutes_and_until_the_next_attempt(
    request_: dict[str, Any], *, is_told: bool
) -> None:
    told = last_action(
        {"status": {"attempt": 2, "request": {"verb": "stacks", **request_}}}, now="2026-01-01T10:00:00Z"
    )
    assert ("stacks" in (told or "")) is is_told


def test_save_is_a_request_to_the_operator_that_is_not_waited_for(api: FakeApi, page: TestClient) -> None:
    job(api)
    page.post("/jobs/team/flux/save", data=form(page.get("/jobs/team/flux/save").text))
    ((_, _, patch),) = changes(api)
    assert patch["metadata"]["annotations"]["oarlock.dev/request"].startswith("save ")
    assert PERSON in patch["metadata"]["annotations"]["oarlock.dev/asked-by"]


def test_stop_deletes_once_the_pods_have_left_and_says_so(api: FakeApi, page: TestClient) -> None:
    found = job(api)

    def leaves(method: str, path: str, body: Any) -> None:
        if method == "PATCH" and path.endswith("/flux") and body["spec"]["suspend"]:
            found["status"]["phase"] = "Suspended"

    api.before = leaves
    page.post("/jobs/team/flux/stop", data=form(page.get("/jobs/team/flux/stop").text))
    wait_for_threads("stop flux")
    assert f"{JOBS.format('team')}/flux" not in api.objects
    assert {event["reason"] for event in events(api)} == {"StopRequested", "StopDone"}


def test_a_stop_that_comes_to_nothing_is_told_by_a_warning(api: FakeApi, page: TestClient) -> None:
    found = job(api)

    def resumed(method: str, path: str, _: Any) -> None:
        if method == "GET" and path.endswith("/flux") and threading.current_thread() is not threading.main_thread():
            found["spec"]["suspend"] = False

    fields = form(page.get("/jobs/team/flux/stop").text)
    api.before = resumed
    page.post("/jobs/team/flux/stop", data=fields)
    wait_for_threads("stop flux")
    (warning,) = [event for event in events(api) if event["type"] == "Warning"]
    assert warning["reason"] == "StopFailed"
    assert "somebody has resumed flux" in warning["message"]
    assert f"{JOBS.format('team')}/flux" in api.objects


def test_a_job_that_somebody_else_deletes_while_it_stops_is_no_failure(api: FakeApi, page: TestClient) -> None:
    job(api)
    fields = form(page.get("/jobs/team/flux/stop").text)

    def deleted(method: str, path: str, _: Any) -> None:
        if method == "POST" and path.endswith("/events"):
            api.objects.pop(f"{JOBS.format('team')}/flux", None)

    api.before = deleted
    page.post("/jobs/team/flux/stop", data=fields)
    wait_for_threads("stop flux")
    assert {event["reason"] for event in events(api)} == {"StopRequested", "StopDone"}


def test_a_second_stop_while_it_stops_leads_to_the_job_and_writes_nothing(
    api: FakeApi, page: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oarlock.job.LOOK_SECONDS", 0.05)
    found = job(api)
    fields = form(page.get("/jobs/team/flux/stop").text)
    page.post("/jobs/team/flux/stop", data=fields)
    again = page.post("/jobs/team/flux/stop", data=fields)
    asked = page.get("/jobs/team/flux/stop")
    assert (again.status_code, again.headers["location"]) == (303, "/jobs/team/flux")
    assert "is asked for already" in asked.text
    assert [thread.name for thread in threading.enumerate()].count("stop flux") == 1
    found["status"]["phase"] = "Suspended"
    wait_for_threads("stop flux")
    assert [event["reason"] for event in events(api)] == ["StopRequested", "StopDone"]


@pytest.mark.parametrize(("action", "wanted"), [("suspend", True), ("resume", False)])
def test_a_second_click_leads_to_the_job_and_writes_nothing(
    api: FakeApi, page: TestClient, action: str, *, wanted: bool
) -> None:
    job(api)["spec"]["suspend"] = not wanted
    fields = form(page.get(f"/jobs/team/flux/{action}").text)
    first, again = (page.post(f"/jobs/team/flux/{action}", data=fields) for _ in range(2))
    assert (first.status_code, again.status_code) == (303, 303)
    assert again.headers["location"] == "/jobs/team/flux"
    assert (len(changes(api)), len(events(api))) == (1, 1)
    assert "is asked for already" in page.get(f"/jobs/team/flux/{action}").text


def test_a_node_is_given_back_with_the_callers_name(api: FakeApi, page: TestClient) -> None:
    node(api, unschedulable=True)
    text = page.get("/nodes/node-2/uncordon").text
    assert "GPUFault" in text
    page.post("/nodes/node-2/uncordon", data=form(text))
    ((_, path, patch),) = changes(api)
    assert (path, patch["spec"]) == (NODE, {"unschedulable": None})
    assert patch["metadata"]["annotations"].keys() == {"oarlock.dev/asked-by", "oarlock.dev/given-back"}
    (event,) = events(api)
    assert (event["metadata"]["namespace"], event["involvedObject"]["kind"]) == ("default", "Node")


def avoided(api: FakeApi, *, since: str = "2026-01-01T00:00:00Z") -> None:
    """A node that nobody cordoned, and a job that keeps off it."""
    node(api)["metadata"]["annotations"] = {}
    job(api, avoidedNodes=[{"name": "node-2", "reason": "GPUFault in attempt 1", "sinceTime": since}])


def test_a_node_that_is_avoided_and_not_cordoned_is_given_back_from_the_nodes_view(
    api: FakeApi, page: TestClient
) -> None:
    avoided(api)
    assert 'href="/nodes/node-2/uncordon"' in page.get("/nodes").text
    text = page.get("/nodes/node-2/uncordon").text
    assert "Use node-2 again?" in text
    assert "team/flux" in text
    assert changes(api) == []
    page.post("/nodes/node-2/uncordon", data=form(text))
    ((_, path, patch),) = changes(api)
    assert path == NODE
    assert json.loads(patch["metadata"]["annotations"]["oarlock.dev/asked-by"])["by"] == PERSON
    assert "oarlock.dev/given-back" in patch["metadata"]["annotations"]
    (event,) = events(api)
    assert (event["reason"], event["involvedObject"]["name"]) == ("UseAgainRequested", "node-2")
    assert PERSON in event["message"]


def test_a_node_that_nothing_keeps_from_jobs_is_not_given_back(api: FakeApi, page: TestClient) -> None:
    avoided(api)
    fields = form(page.get("/nodes/node-2/uncordon").text)
    api.objects[NODE]["metadata"]["annotations"] = {"oarlock.dev/given-back": "2026-01-01T00:00:01Z"}
    assert page.get("/nodes/node-2/uncordon").status_code == 409
    assert page.post("/nodes/node-2/uncordon", data=fields).status_code == 303, "a second click"
    assert changes(api) == []
    assert 'href="/nodes/node-2/uncordon"' not in page.get("/nodes").text


def test_who_may_not_read_jobs_may_give_a_node_back_all_the_same(api: FakeApi, page: TestClient) -> None:
    avoided(api)
    api.refusals[JOBS.format("team").replace("namespaces/team/", "")] = (403, "trainingjobs is forbidden")
    page.post("/nodes/node-2/uncordon", data=form(page.get("/nodes/node-2/uncordon").text))
    assert len(changes(api)) == 1


def test_who_may_not_create_events_acts_all_the_same_and_is_told(api: FakeApi, page: TestClient) -> None:
    job(api)
    api.refusals[EVENTS.format("team")] = (403, "alice cannot create events")
    answer = page.post("/jobs/team/flux/suspend", data=form(page.get("/jobs/team/flux/suspend").text))
    assert "in an annotation there, and in no Event" in answer.text
    assert "alice cannot create events" in answer.text
    assert len(changes(api)) == 1


def test_nothing_is_done_for_one_without_a_name(api: FakeApi, page: TestClient) -> None:
    job(api)
    api.objects[REVIEW] = {"metadata": {}, "status": {}}
    answer = page.post("/jobs/team/flux/suspend", data=form(page.get("/jobs/team/flux/suspend").text))
    assert answer.status_code == 403
    assert changes(api) == []


@pytest.mark.parametrize("token", ["", "0000000000000000.0", None])
def test_a_form_without_a_token_of_this_session_does_nothing(api: FakeApi, page: TestClient, token: str | None) -> None:
    job(api)
    fields = form(page.get("/jobs/team/flux/suspend").text) | {"csrf": token or ""}
    if token is None:
        del fields["csrf"]
    assert page.post("/jobs/team/flux/suspend", data=fields).status_code == 403
    assert changes(api) == []


def test_what_was_asked_about_a_job_is_not_done_to_another_of_its_name(api: FakeApi, page: TestClient) -> None:
    job(api)
    fields = form(page.get("/jobs/team/flux/stop").text)
    job(api)["metadata"]["uid"] = "another"
    assert page.post("/jobs/team/flux/stop", data=fields).status_code == 404
    assert changes(api) == []


@pytest.mark.parametrize(
    ("action", "status"),
    [
        ("resume", {}),
        ("save", {"phase": "Queued"}),
        ("suspend", {"phase": "Succeeded", "completionTime": "2026-01-01T00:00:00Z"}),
    ],
)
def test_what_does_nothing_there_is_not_asked(
    api: FakeApi, page: TestClient, action: str, status: dict[str, Any]
) -> None:
    job(api, **status)
    assert page.get(f"/jobs/team/flux/{action}").status_code == 409


def test_a_refusal_of_the_api_server_is_told_in_its_words(api: FakeApi, page: TestClient) -> None:
    job(api)
    fields = form(page.get("/jobs/team/flux/suspend").text)

    def refuse(method: str, *_: Any) -> tuple[int, str] | None:
        return (403, "alice cannot patch trainingjobs") if method == "PATCH" else None

    api.before = refuse
    answer = page.post("/jobs/team/flux/suspend", data=fields)
    assert answer.status_code == 403
    assert "alice cannot patch trainingjobs" in answer.text
    assert events(api) == []


@pytest.mark.parametrize("address", ["/jobs/team/flux/suspend", "/jobs/team/flux/stop", "/nodes/node-2/uncordon"])
@pytest.mark.parametrize("ask", [TestClient.get, TestClient.post], ids=["asked", "done"])
def test_nothing_can_be_changed_where_actions_are_off(
    address: str, ask: Callable[..., Any], api: FakeApi, access: LinkAuthenticator, page: TestClient
) -> None:
    job(api)
    node(api, unschedulable=True)
    fields = form(page.get(address).text)
    csrf = Csrf()
    off = build(Settings(), access, csrf=csrf)
    with TestClient(off, base_url="http://127.0.0.1:8270", cookies=page.cookies) as other:
        fields["csrf"] = csrf.token(access._caller.session)
        answer = ask(other, address, **({"data": fields} if ask is TestClient.post else {}))
    assert answer.status_code == 403
    assert "dashboard.actions" in answer.text
    assert changes(api) == []
