"""A job whose status cannot be read says so, once, and nothing of it is touched."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from memory_reconciler import KEY, PATH, reconciler, with_job

from oarlock_operator.kube.api_error import ApiError

UNREADABLE = {
    "attempt": {"number": 3},
    "phase": "Running",
    "tomorrow": [1],
    "conditions": [
        {"type": "Accepted", "status": "True", "reason": "Accepted", "lastTransitionTime": "2026-01-01T00:00:00Z"},
        {"type": "Degraded", "status": "False", "reason": "AsExpected", "lastTransitionTime": "2026-01-01T00:00:00Z"},
    ],
}


async def test_it_is_told_in_one_condition_and_one_event_and_all_else_stays() -> None:
    api = with_job(copy.deepcopy(UNREADABLE))
    operator = reconciler(api)
    for _ in range(3):
        assert await operator.reconcile(KEY, waited=0.0) is None
    await operator.events.flush()
    status = api.objects[PATH]["status"]
    told = status["conditions"].pop()
    assert (told["type"], told["status"], told["reason"]) == ("Degraded", "True", "StatusUnreadable")
    assert "status.attempt: " in told["message"]
    assert status == {**UNREADABLE, "conditions": [UNREADABLE["conditions"][0]]}  # type: ignore[index]
    assert [verb for verb, _ in api.requests if verb not in {"GET", "LIST"}] == ["PUT", "POST"]
    assert [body["reason"] for path, body in api.objects.items() if "/events/" in path] == ["StatusUnreadable"]


async def test_once_it_can_be_read_again_the_condition_is_taken_back() -> None:
    api = with_job(copy.deepcopy(UNREADABLE))
    operator = reconciler(api)
    await operator.reconcile(KEY, waited=0.0)
    api.objects[PATH]["status"]["attempt"] = 0
    await operator.reconcile(KEY, waited=0.0)
    degraded = [one for one in api.objects[PATH]["status"]["conditions"] if one["type"] == "Degraded"]
    assert [(one["status"], one["reason"]) for one in degraded] == [("False", "AsExpected")]


@pytest.mark.parametrize(
    "job",
    [
        {"managedBy": "kueue.x-k8s.io/multikueue"},
        {"managedBy": "kueue.x-k8s.io/multikueue", "fieldOfALaterVersion": {"a": 1}},
    ],
)
async def test_another_controller_s_job_is_never_touched_whatever_stands_in_it(job: dict[str, Any]) -> None:
    api = with_job(copy.deepcopy(UNREADABLE), **job)
    await reconciler(api).reconcile(KEY, waited=0.0)
    assert {verb for verb, _ in api.requests} <= {"GET", "LIST"}


async def test_a_server_that_does_not_take_the_condition_is_not_asked_for_ever() -> None:
    api = with_job(copy.deepcopy(UNREADABLE))

    async def refuse(verb: str, path: str) -> None:
        if verb == "PUT":
            raise ApiError(422, "Invalid", f"{path} is invalid: status.attempt: Invalid value: object")

    api.before = refuse
    operator = reconciler(api)
    assert await operator.reconcile(KEY, waited=0.0) is None
    await operator.events.flush()
    assert [body["reason"] for path, body in api.objects.items() if "/events/" in path] == ["StatusUnreadable"]


async def test_what_a_later_release_wrote_beside_ours_survives_a_write() -> None:
    api = with_job({"attempt": 0, "tomorrow": {"a": 1}, "summary": {"tomorrow": 2}, "recovery": {"tomorrow": 3}})
    await reconciler(api).reconcile(KEY, waited=0.0)
    status = api.objects[PATH]["status"]
    assert status["attempt"] == 1
    assert (status["tomorrow"], status["summary"]["tomorrow"], status["recovery"]["tomorrow"]) == ({"a": 1}, 2, 3)
