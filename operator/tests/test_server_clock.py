"""Times are the API server's: an operator on a machine whose clock is wrong ends no job that another one began."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from jobs import START
from memory_reconciler import KEY, PATH, PODS, JobApi, reconciler, with_job
from test_fence import served

from oarlock_operator.server_clock import ServerClock

HOUR = timedelta(hours=1)


def dated(time: datetime) -> str:
    return format_datetime(time, usegmt=True)


class DatedApi(JobApi):
    """A server whose answers have its date."""

    clock: ServerClock
    time = START

    async def _asked(self, verb: str, path: str) -> None:
        await super()._asked(verb, path)
        self.clock.heard(dated(self.time), seconds=0.1)


def coming_up() -> DatedApi:
    """A job whose pods are placed and have not started yet, for a minute by the API server's clock."""
    api = with_job(
        {
            "attempt": 1,
            "phase": "Starting",
            "startTime": (START - timedelta(seconds=60)).isoformat(),
            "recovery": {"stage": "Start", "stageStartTime": (START - timedelta(seconds=60)).isoformat()},
            "attempts": [{"number": 1, "createdTime": START.isoformat(), "nodeCount": 2}],
        },
        startupDeadlineSeconds=600,
        activeDeadlineSeconds=1800,
    )
    api.__class__ = DatedApi
    for rank in (0, 1):
        labels = {"oarlock.dev/job": "flux", "oarlock.dev/job-uid": "uid-1", "oarlock.dev/attempt": "1"}
        api.objects[f"{PODS}/flux-1-{rank}"] = {
            "metadata": {
                "name": f"flux-1-{rank}",
                "namespace": "default",
                "uid": f"pod-{rank}",
                "labels": {**labels, "oarlock.dev/rank": str(rank)},
                "ownerReferences": [{"kind": "TrainingJob", "name": "flux", "uid": "uid-1"}],
            },
            "spec": {"nodeName": f"node-{rank}"},
            "status": {"phase": "Pending"},
        }
    assert isinstance(api, DatedApi)
    return api


@pytest.mark.parametrize("skew", [HOUR, -HOUR, timedelta(0)])
async def test_an_operator_whose_clock_is_wrong_does_not_fail_a_job_that_it_takes_over(skew: timedelta) -> None:
    api = coming_up()
    api.clock = ServerClock(local=lambda: START + skew)
    await reconciler(api, clock=api.clock.now).reconcile(KEY, waited=0.0)
    assert api.objects[PATH]["status"]["recovery"]["stage"] == "Start"
    api.time = START + timedelta(seconds=601)
    api.clock = ServerClock(local=lambda: api.time + skew)
    await reconciler(api, clock=api.clock.now).reconcile(KEY, waited=0.0)
    assert api.objects[PATH]["status"]["reason"] == "StartupDeadlineExceeded", "in its time, it does"


async def test_a_clock_that_jumps_between_two_passes_ends_nothing() -> None:
    api = coming_up()
    jump = timedelta(0)
    api.clock = ServerClock(local=lambda: START + jump)
    operator = reconciler(api, clock=api.clock.now)
    await operator.reconcile(KEY, waited=0.0)
    jump = HOUR
    await operator.reconcile(KEY, waited=0.0)
    assert api.objects[PATH]["status"]["recovery"]["stage"] == "Start"


def test_clocks_that_agree_are_left_alone_for_ours_is_finer() -> None:
    ours = START + timedelta(milliseconds=4700)
    clock = ServerClock(local=lambda: ours)
    clock.heard(dated(START), seconds=0.1)
    assert clock.now() == ours


@pytest.mark.parametrize(
    ("date", "seconds"), [(None, 0.1), ("yesterday", 0.1), (dated(START + HOUR), 6.0)], ids=["none", "odd", "slow"]
)
def test_an_answer_without_a_good_date_says_nothing(date: str | None, seconds: float) -> None:
    clock = ServerClock(local=lambda: START)
    clock.heard(date, seconds=seconds)
    assert clock.now() == START


async def test_every_answer_of_the_api_server_is_heard_and_none_of_a_pod_behind_its_proxy() -> None:
    async with served() as (cluster, server):
        cluster.server_clock = ServerClock(local=lambda: START)
        await cluster.text("/api/v1/namespaces/ns/pods/flux-1-0:9400/proxy/status", timeout=5.0, max_bytes=1000)
        assert cluster.server_clock.now() == START, "a pod writes what date it likes"
        await cluster.get("/api/v1/nodes/n1")
        assert abs(cluster.server_clock.now() - datetime.now(UTC)) < timedelta(minutes=1)
        assert server.asked
