"""Pods of a job that was deleted go at once, by what the watches know of them, where nobody wanted them to stay."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from observe.test_gone import JOB, KEY, Json, Operator, Serving, serving
from raw_pods import pod

from oarlock_operator.execute import DELETING_AT_ONCE
from oarlock_operator.kube.api_error import ApiError
from oarlock_operator.kube.throttle import Throttle

PODS = "/api/v1/namespaces/default/pods"
SINCE = "2026-01-01T00:00:00Z"
OTHER = {"kind": "TrainingJob", "uid": "uid-2"}


def heard(*pods: Json) -> tuple[Serving, Operator]:
    """A cluster without the job that has these pods, and an operator that was told of them, and then of the job's end."""
    api = serving()
    del api.objects[JOB]
    operator = Operator(api)
    operator.reconciler.memory.met(KEY, "uid-1")
    for raw in pods:
        api.objects[f"{PODS}/{raw['metadata']['name']}"] = raw
        operator.hear("LISTED", raw)
    return api, operator


def named(name: str, **metadata: Any) -> Json:
    return pod(name=name, uid=f"uid-{name}", resourceVersion="7", **metadata)


def pods_of(api: Serving) -> list[str]:
    return [path.removeprefix(f"{PODS}/") for path in api.objects if path.startswith(PODS)]


def deleted(requests: list[tuple[str, str]]) -> list[str]:
    return [path.removeprefix(f"{PODS}/").partition("?")[0] for verb, path in requests if verb == "DELETE"]


async def test_they_are_deleted_without_being_listed_and_only_once() -> None:
    api, operator = heard(named("a"), named("b"))
    operator.hear_of_the_job("DELETED")
    assert await operator.tidy() == [("DELETE", f"{PODS}/{name}?grace=None") for name in "ab"]
    assert pods_of(api) == []
    assert await operator.tidy() == []


@pytest.mark.parametrize(
    "spared",
    [
        {"ownerReferences": None},
        {"ownerReferences": [OTHER]},
        {"ownerReferences": [{"kind": "TrainingJob", "uid": "uid-1"}, OTHER]},
        {"deletionTimestamp": SINCE},
    ],
    ids=["nobody's", "another job's", "several owners'", "going"],
)
async def test_a_pod_that_is_not_the_jobs_alone_or_goes_already_is_left_alone(spared: dict[str, Any]) -> None:
    _, operator = heard(named("a", **spared), named("b"))
    operator.hear_of_the_job("DELETED")
    assert deleted(await operator.tidy()) == ["b"]


async def test_a_pod_that_has_changed_since_the_watch_told_of_it_stays_for_the_collector_to_judge() -> None:
    api, operator = heard(named("a"), named("b"))
    api.objects[f"{PODS}/a"] = pod(name="a", uid="uid-a", resourceVersion="8", ownerReferences=None)
    operator.hear_of_the_job("DELETED")
    await operator.tidy()
    assert pods_of(api) == ["a"]


async def test_pods_stay_where_the_deletion_of_their_job_did_not_go_by_itself() -> None:
    """By --cascade=orphan, for instance: such a job has a time of deletion to its end."""
    _, operator = heard(named("a"))
    operator.hear_of_the_job("MODIFIED", deletionTimestamp=SINCE)
    operator.hear_of_the_job("DELETED", deletionTimestamp=SINCE)
    assert await operator.tidy() == []


async def test_of_a_job_made_again_under_the_name_no_pod_goes_with_the_old_one() -> None:
    _, operator = heard(named("old"), named("new", ownerReferences=[OTHER]))
    operator.hear_of_the_job("DELETED")
    operator.api.objects[JOB] = serving().objects[JOB]
    operator.api.objects[JOB]["metadata"]["uid"] = "uid-2"
    assert deleted(await operator.tidy()) == ["old"]


async def test_what_the_server_refuses_is_left_to_the_collector() -> None:
    api, operator = heard(*(named(f"{number:02}") for number in range(40)))

    async def refuse(verb: str, _path: str) -> None:
        if verb == "DELETE":
            raise ApiError(500, "InternalError", "not now")

    api.before = refuse
    operator.hear_of_the_job("DELETED")
    assert 0 < len(deleted(await operator.tidy())) <= DELETING_AT_ONCE, (
        "a server that fails is not asked for all of them"
    )
    api.before = None
    assert await operator.tidy() == []


async def test_a_large_gang_takes_only_so_many_requests_at_once() -> None:
    api, operator = heard(*(named(f"{number:02}") for number in range(40)))
    running, most = 0, 0

    async def count(_verb: str, _path: str) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1

    api.before = count
    operator.reconciler = replace(operator.reconciler, throttle=Throttle(2 * DELETING_AT_ONCE))
    operator.hear_of_the_job("DELETED")
    assert len(deleted(await operator.tidy())) == 40
    assert most == DELETING_AT_ONCE


async def test_whoever_looks_at_jobs_deletes_no_pods_of_one_that_is_gone() -> None:
    """Or a tenant that deletes many of its jobs would hold up everybody's recovery."""
    _, operator = heard(named("a"))
    operator.hear_of_the_job("DELETED")
    assert await operator.look() == [("GET", JOB)]
