"""A pod whose labels somebody took off runs on, is counted, and is stopped before another gang starts."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from jobs import START
from memory_api import Json
from memory_reconciler import KEY, PATH, PODS, JobApi, pod_of, reconciler, with_job

from oarlock_operator.pods.pod_facts import RawPod
from oarlock_operator.reconcile import Reconciler


def training() -> JobApi:
    """A gang of two that trains."""
    attempt = {
        "number": 1,
        "createdTime": START.isoformat(),
        "startTime": START.isoformat(),
        "nodeCount": 2,
        "stageMilliseconds": {"schedule": 1, "start": 1, "firstStep": 1},
    }
    api = with_job({"attempt": 1, "phase": "Running", "startTime": START.isoformat(), "attempts": [attempt]})
    for rank in (0, 1):
        api.objects[f"{PODS}/flux-1-{rank}"] = running(rank)
    return api


def running(rank: int) -> Json:
    containers = [{"name": "trainer", "state": {"running": {}}}]
    return pod_of(rank, {"phase": "Running", "containerStatuses": containers})


def take_labels_off(api: JobApi, operator: Reconciler | None, *names: str) -> None:
    """The watch then says that the pod was deleted, with what it last was."""
    pod = api.objects[f"{PODS}/flux-1-1"]
    if operator is not None:
        operator.memory.terminated.note(msgspec.convert(pod, RawPod), deleted=True)
    pod["metadata"]["labels"] = {k: v for k, v in pod["metadata"]["labels"].items() if k not in names}


def attempt_of(api: JobApi) -> Any:
    return api.objects[PATH]["status"]["attempt"]


ALL = ("oarlock.dev/job", "oarlock.dev/job-uid", "oarlock.dev/attempt", "oarlock.dev/rank")


@pytest.mark.parametrize("names", [ALL[:1], ALL])
@pytest.mark.parametrize("seen", [True, False], ids=["the watch saw it", "by an operator that has just started"])
async def test_a_pod_whose_label_was_taken_off_is_not_taken_for_gone(names: tuple[str, ...], seen: bool) -> None:  # noqa: FBT001
    api = training()
    operator = reconciler(api)
    take_labels_off(api, operator if seen else None, *names)
    for _ in range(3):
        await operator.reconcile(KEY, waited=0.0)
    assert attempt_of(api) == 1
    assert api.objects[PATH]["status"]["ranks"]["created"] == 2


async def test_its_end_is_seen_and_no_other_gang_starts_before_it_has_stopped() -> None:
    api = training()
    operator = reconciler(api)
    take_labels_off(api, operator, *ALL)
    crashed = {"terminated": {"exitCode": 1, "reason": "Error", "message": "ValueError: x"}}
    api.objects[f"{PODS}/flux-1-0"]["status"]["containerStatuses"][0]["state"] = crashed
    deleted: list[str] = []

    async def delete(_path: str, *, uid: str, **_: object) -> None:
        deleted.append(uid)

    api.delete = delete  # type: ignore[method-assign]
    for _ in range(2):
        await operator.reconcile(KEY, waited=0.0)
    assert (attempt_of(api), "pod-1" in deleted) == (2, True)
    assert f"{PODS}/flux-2-0" not in api.objects, "it still runs"


async def test_a_pod_that_was_deleted_by_force_is_looked_for_once() -> None:
    api = training()
    operator = reconciler(api)
    operator.memory.terminated.note(msgspec.convert(api.objects.pop(f"{PODS}/flux-1-1"), RawPod), deleted=True)
    for _ in range(4):
        await operator.reconcile(KEY, waited=0.0)
    assert attempt_of(api) == 2
    assert api.requests.count(("GET", f"{PODS}/flux-1-1")) == 1


async def test_a_pod_that_cannot_be_read_is_there() -> None:
    api = training()
    hidden = api.objects[f"{PODS}/flux-1-1"]
    hidden["status"] = {"conditions": "none"}
    hidden["metadata"]["labels"] = {}
    await reconciler(api).reconcile(KEY, waited=0.0)
    assert attempt_of(api) == 1


async def test_a_spare_whose_labels_were_taken_off_is_looked_for_by_its_name() -> None:
    api = training()
    status = api.objects[PATH]["status"]
    status["attempts"][0]["nodeCount"] = 3
    status["standby"] = [2]
    await reconciler(api).reconcile(KEY, waited=0.0)
    assert ("GET", f"{PODS}/flux-1-2") in api.requests


async def test_pods_that_are_listed_cost_no_look() -> None:
    api = training()
    await reconciler(api).reconcile(KEY, waited=0.0)
    assert not [path for verb, path in api.requests if verb == "GET" and path.startswith(PODS)]


async def test_a_pod_that_was_made_anew_is_looked_for_by_the_names_that_it_may_have() -> None:
    api = training()
    api.objects[PATH]["status"]["attempts"][0]["incarnation"] = 2
    new = running(1)
    new["metadata"] |= {"name": "flux-1-1-i2", "labels": {}}
    del api.objects[f"{PODS}/flux-1-1"]
    api.objects[f"{PODS}/flux-1-1-i2"] = new
    for _ in range(2):
        await reconciler(api).reconcile(KEY, waited=0.0)
    assert attempt_of(api) == 1
    assert api.objects[PATH]["status"]["ranks"]["created"] == 2


async def test_the_pod_whose_place_is_taken_does_not_stand_for_the_new_one() -> None:
    api = training()
    replacing = {"rank": 1, "incarnation": 2, "time": START.isoformat()}
    api.objects[PATH]["status"]["recovery"] = {"stage": "Replace", "replacing": [replacing]}
    new = running(1)
    new["metadata"] |= {"name": "flux-1-1-i2", "uid": "pod-2", "labels": {}}
    api.objects[f"{PODS}/flux-1-1-i2"] = new
    await reconciler(api).reconcile(KEY, waited=0.0)
    assert [path for verb, path in api.requests if (verb, path[: len(PODS)]) == ("GET", PODS)] == [
        f"{PODS}/flux-1-1-i2"
    ]
