"""From a leader's /status to the status of its job: rounds are booked once, whoever asks, and whatever the API keeps."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import count
from typing import Any

from jobs import START
from memory_api import Json
from memory_reconciler import KEY, PATH, PODS, JobApi, reconciler, with_job
from status_pod import GOOD, serving

from oarlock_api.contract.rounds import RoundEnd

ENDS = tuple(
    RoundEnd(
        number=number,
        ended_at="2026-01-01T12:00:00+00:00",
        rank=0,
        code=1,
        why="rank 0 raised ValueError",
        resumed_step=0,
    )
    for number in (1, 2)
)
RUNNING = {
    "phase": "Running",
    "podIP": "127.0.0.1",
    "conditions": [{"type": "PodScheduled", "status": "True"}],
    "containerStatuses": [{"name": "trainer", "ready": True, "state": {"running": {}}}],
}


class OlderApi(JobApi):
    """Its schema knows no rounds."""

    async def replace(self, path: str, body: Json) -> Json:
        status = {name: value for name, value in body["status"].items() if name not in ("round", "rounds")}
        return await super().replace(path, {**body, "status": status})


async def heard(api: JobApi, *, operators: int) -> Any:
    """The job's status after so many operators, one after the other, have heard its leader six times each."""
    looks = count()  # each of them late enough for figures to be written
    async with serving() as leader:
        api.objects[PATH]["spec"] |= {"nodes": 1, "pod": {"ports": {"status": leader.port}}}
        first = reconciler(api)
        for _ in range(4):
            await first.reconcile(KEY, waited=0.0)
        pod = api.objects[f"{PODS}/flux-1-0"]
        pod["spec"]["nodeName"], pod["status"] = "node-0", RUNNING
        told = replace(GOOD, pod_uid=pod["metadata"]["uid"], round=3, rounds=ENDS)
        leader.handler = leader.tell(told.to_json())
        for _ in range(operators):
            operator = reconciler(api, clock=lambda: START + timedelta(seconds=20 * next(looks)))
            for _ in range(6):
                await operator.reconcile(KEY, waited=0.0)
            await operator.sources.progress.close()
            await operator.events.flush()
    return api.objects[PATH]["status"]


async def test_a_round_is_booked_once_however_many_operators_hear_of_it() -> None:
    api = with_job()
    status = await heard(api, operators=3)
    assert [(one["attempt"], one["round"], one["nodeName"]) for one in status["rounds"]] == [
        (1, 1, "node-0"),
        (1, 2, "node-0"),
    ]
    assert (status["round"], status["restarts"]["application"], status["attempt"]) == (3, 2, 1)
    told = [body["reason"] for path, body in api.objects.items() if "/events/" in path]
    assert told.count("RanksRestarted") >= 1


async def test_an_api_that_drops_rounds_has_each_charged_once_by_an_operator_and_not_with_each_look() -> None:
    api = OlderApi()
    api.objects = with_job().objects
    status = await heard(api, operators=1)
    assert "rounds" not in status
    assert status["restarts"]["application"] == 2
