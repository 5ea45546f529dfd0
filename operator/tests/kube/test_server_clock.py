"""Times are the API server's: an operator on a machine whose clock is wrong ends no job that another one began."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from email.utils import format_datetime
from typing import Self

import pytest
from jobs import START
from kube.test_fence import AUDITED, served
from memory_reconciler import KEY, PATH, PODS, JobApi, pod_of, reconciler, with_job

from oarlock_operator.kube import server_clock
from oarlock_operator.kube.api_error import ApiError
from oarlock_operator.kube.leader import Leader
from oarlock_operator.kube.server_clock import ANSWERS, SURE_SECONDS, ServerClock
from oarlock_operator.process.settings import Settings
from oarlock_operator.process.startup import StartUp

HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)


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
        api.objects[f"{PODS}/flux-1-{rank}"] = pod_of(rank, {"phase": "Pending"})
    assert isinstance(api, DatedApi)
    return api


@pytest.mark.parametrize("skew", [HOUR, -HOUR, timedelta(0)])
async def test_an_operator_whose_clock_is_wrong_does_not_fail_a_job_that_it_takes_over(skew: timedelta) -> None:
    api = coming_up()
    api.clock = started(lambda: START + skew, server=START)
    await reconciler(api, clock=api.clock.now).reconcile(KEY, waited=0.0)
    assert api.objects[PATH]["status"]["recovery"]["stage"] == "Start"
    api.time = START + timedelta(seconds=601)
    api.clock = started(lambda: api.time + skew, server=api.time)
    await reconciler(api, clock=api.clock.now).reconcile(KEY, waited=0.0)
    assert api.objects[PATH]["status"]["reason"] == "StartupDeadlineExceeded", "in its time, it does"


def test_a_machine_whose_clock_is_set_while_the_operator_runs_moves_no_time_of_its(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = ServerClock()
    before = clock.now()

    class Set(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Self:
            return super().now(tz) + HOUR

    monkeypatch.setattr(server_clock, "datetime", Set)
    assert timedelta(0) <= clock.now() - before < MINUTE


def started(local: Callable[[], datetime], *, server: datetime) -> ServerClock:
    """The clock of an operator that has read what it reads at its start."""
    clock = ServerClock(local=local)
    for _ in range(ANSWERS):
        clock.heard(dated(server), seconds=0.1)
    return clock


@pytest.mark.parametrize("skew", [HOUR, -HOUR])
def test_one_odd_date_among_many_moves_nothing_before_and_after_the_first_good_one(skew: timedelta) -> None:
    clock = ServerClock(local=lambda: START)
    for _ in range(3 * ANSWERS):
        clock.heard(dated(START + skew), seconds=0.1)
        assert clock.now() == START
        clock.heard(dated(START), seconds=0.1)


def test_odd_dates_that_do_not_agree_with_each_other_move_nothing() -> None:
    clock = ServerClock(local=lambda: START)
    for number in range(3 * ANSWERS):
        clock.heard(dated(START + number * MINUTE + MINUTE), seconds=0.1)
    assert clock.now() == START


def test_a_clock_that_agreed_once_moves_only_after_answers_that_differ_for_a_while() -> None:
    ours = START
    clock = started(lambda: ours, server=START)
    for _ in range(3 * ANSWERS):
        clock.heard(dated(ours + HOUR), seconds=0.1)
    assert clock.now() == START, "a burst: what stood in the network while the machine slept, or one bad server"
    ours += timedelta(seconds=SURE_SECONDS)
    clock.heard(dated(ours + HOUR), seconds=0.1)
    assert clock.now() == ours + HOUR


async def test_an_operator_has_heard_what_time_it_is_before_its_first_term() -> None:
    hour_off = datetime.now(UTC) + HOUR
    async with served() as (cluster, _):
        cluster.server_clock = ServerClock(local=lambda: hour_off)
        settings = Settings(namespaces=["ns"], cluster_id="lab", lease_namespace="ns")
        await StartUp(cluster, settings).read()
        leader = Leader(
            cluster=cluster,
            namespace="ns",
            name="oarlock",
            identity="a",
            seconds=15,
            clock=time.monotonic,
            wall=lambda: START,
        )
        await leader.acquire()
        assert abs(cluster.server_clock.now() - datetime.now(UTC)) < MINUTE


def test_clocks_that_agree_are_left_alone_for_ours_is_finer() -> None:
    ours = START + timedelta(milliseconds=4700)
    clock = ServerClock(local=lambda: ours)
    clock.heard(dated(START), seconds=0.1)
    assert clock.now() == ours


@pytest.mark.parametrize(
    ("date", "seconds"),
    [(None, 0.1), ("yesterday", 0.1), ("Fri, 31 Dec 9999 23:00:00 -2300", 0.1), (dated(START + HOUR), 6.0)],
    ids=["none", "odd", "after all time", "slow"],
)
def test_an_answer_without_a_good_date_says_nothing(date: str | None, seconds: float) -> None:
    clock = ServerClock(local=lambda: START)
    for _ in range(ANSWERS):
        clock.heard(date, seconds=seconds)
    assert clock.now() == START


async def test_answers_of_the_api_server_are_heard_and_none_of_a_pod_behind_its_proxy() -> None:
    async with served() as (cluster, server):
        cluster.server_clock = ServerClock(local=lambda: START)
        for _ in range(ANSWERS):
            await cluster.text("/api/v1/namespaces/ns/pods/flux-1-0:9400/proxy/status", timeout=5.0, max_bytes=1000)
        assert cluster.server_clock.now() == START, "a pod writes what date it likes"
        for _ in range(ANSWERS):
            await cluster.get("/api/v1/nodes/n1")
        assert abs(cluster.server_clock.now() - datetime.now(UTC)) < MINUTE
        assert server.asked


@pytest.mark.parametrize(("status", "headers"), [(503, AUDITED), (403, {})], ids=["failed", "of a load balancer"])
async def test_an_answer_that_no_api_server_gave_does_not_tell_the_time(status: int, headers: dict[str, str]) -> None:
    async with served() as (cluster, server):
        cluster.server_clock = ServerClock(local=lambda: START)
        server.status, server.headers = status, headers
        for _ in range(ANSWERS):
            with pytest.raises(ApiError):
                await cluster.get("/api/v1/nodes/n1")
        assert cluster.server_clock.now() == START
