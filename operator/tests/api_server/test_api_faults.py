"""A real API server that refuses, hangs, or does what it is told and does not say so: the same end, no extra attempt."""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import structlog
from lives import END, KINDS, Administrator, FaultyCluster, Gang, lives_through
from processes import Api

from oarlock_api.contract.names import Label
from oarlock_local.pytest_tiers import quick_first
from oarlock_operator import metrics
from oarlock_operator.kube.cluster import Cluster
from oarlock_operator.kube.credentials import load_configuration
from oarlock_operator.model.observation import Key
from oarlock_operator.pods.pod_facts import RawPod
from oarlock_operator.process.watches import pod_watch
from oarlock_operator.process.workers import work
from oarlock_operator.process.workqueue import WorkQueue

if TYPE_CHECKING:
    from oarlock_local.cluster import Cluster as LocalCluster

pytestmark = pytest.mark.cluster

AT_ONCE = 6
"""Scenarios that run side by side; more would only wait for the API server's two cores."""
PERIOD = 7
LOST_EVENTS = 0.4
"""Share of events."""
RESYNC_SECONDS = 1.0


@pytest.fixture
async def real(api: Api, control_plane: LocalCluster, as_operator: Path) -> AsyncIterator[Administrator]:  # noqa: ARG001 - the CRD must be there
    configuration, _ = await load_configuration(as_operator)
    operator = Cluster(configuration)
    configuration, _ = await load_configuration(control_plane.kubeconfig)
    administrator = Administrator(configuration, operator)
    yield administrator
    await administrator.close()
    await operator.close()


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.reset_defaults()


async def differing(works: dict[int, Any]) -> dict[int, Any]:
    """What ended otherwise than it should, by its key; a few scenarios run at a time."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def end_of(work: Any) -> Any:
        async with gate:
            return await work

    ends = await asyncio.gather(*(end_of(work) for work in works.values()), return_exceptions=True)
    return {key: end for key, end in zip(works, ends, strict=True) if end != END}


async def test_without_faults_the_scenario_ends_as_it_should(real: Administrator) -> None:
    assert await lives_through(real, "409", lambda _: False) == END


@pytest.mark.parametrize("kind", quick_first(KINDS))
async def test_faults_at_any_write_lead_to_the_same_end_without_an_extra_attempt(
    real: Administrator, kind: str
) -> None:
    # Every write is hit in one of them: the undisturbed scenario makes some thirty, and no pass makes as many as seven.
    works = {first: lives_through(real, kind, lambda n, k=first: n % PERIOD == k) for first in range(PERIOD)}  # type: ignore[misc]
    assert await differing(works) == {}


WITH_A_SPARE: dict[str, Any] = {"asked": {"spares": 1, "recovery": {"inPlace": "Auto"}}, "keys": (b"k" * 32,)}


async def test_a_gang_whose_spare_is_never_placed_ends_as_one_that_has_none(real: Administrator) -> None:
    gang = Gang(real, FaultyCluster(real, "409", lambda _: False), **WITH_A_SPARE)
    await gang.create()
    await gang.settle()
    assert sorted(await gang.pods()) == ["1-0", "1-1", "1-2"]
    assert await lives_through(real, "409", lambda _: False, **WITH_A_SPARE) == END


@pytest.mark.deep
@pytest.mark.parametrize("kind", KINDS)
async def test_faults_at_any_write_of_a_gang_with_a_spare_lead_to_the_same_end(real: Administrator, kind: str) -> None:
    works = {
        first: lives_through(real, kind, lambda n, k=first: n % PERIOD == k, **WITH_A_SPARE)  # type: ignore[misc]
        for first in range(PERIOD)
    }
    assert await differing(works) == {}


@pytest.mark.parametrize("kind", quick_first(KINDS))
async def test_an_api_server_that_fails_two_times_in_five_only_delays_the_same_end(
    real: Administrator, kind: str
) -> None:
    def unlucky(number: int) -> bool:
        return random.Random(f"{kind}/{number}").random() < 0.4  # noqa: S311 - a draw that repeats

    assert await differing({0: lives_through(real, kind, unlucky)}) == {}


async def test_a_new_operator_shows_a_job_that_waits_though_it_has_nothing_to_write(real: Administrator) -> None:
    gang = Gang(real, FaultyCluster(real, "409", lambda _: False))
    await gang.create()
    await gang.settle()
    metrics.forget("default", gang.name)  # as with its process
    gang.reconcilers = [gang.new_reconciler()]
    writes = gang.faulty.writes
    await gang.settle()
    assert gang.faulty.writes == writes
    labels = {"namespace": "default", "training_job": gang.name, "phase": (await gang.status())["phase"]}
    assert metrics.REGISTRY.get_sample_value("oarlock_job_phase", labels) == 1


async def test_operators_that_work_at_the_same_time_make_no_extra_attempt(real: Administrator) -> None:
    works = {number: lives_through(real, "409", lambda _: False, operators=number) for number in (2, 3)}
    assert await differing(works) == {}


@pytest.mark.parametrize("seconds", [-3600, -5, 5, 300])
async def test_a_clock_that_jumps_back_and_forth_makes_no_extra_attempt(real: Administrator, seconds: int) -> None:
    looks = itertools.count()

    def jumping() -> datetime:
        return datetime.now(UTC) + timedelta(seconds=seconds * (next(looks) % 2))

    assert await differing({0: lives_through(real, "409", lambda _: False, clock=jumping)}) == {}


@pytest.mark.parametrize(
    ("pod", "words"),
    [
        ({"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}}, "must be less than or equal to cpu limit"),
        ({"volumes": [{"name": "mine", "emptyDri": {}}]}, "emptyDri"),
        ({"patch": {"priority": "high"}}, "priority"),
    ],
    ids=["against the rules", "misspelled", "another type"],
)
async def test_a_pod_that_the_api_server_calls_invalid_ends_the_job_with_its_words(
    real: Administrator, pod: dict[str, Any], words: str
) -> None:
    gang = Gang(real, FaultyCluster(real, "409", lambda _: False))
    await gang.create(pod=pod)
    await gang.settle()
    status = await gang.status()
    assert (status["phase"], status["reason"]) == ("Failed", "InvalidManifest")
    assert words in status["message"]
    assert await gang.pods() == {}


@dataclass
class Unreliable(Gang):
    """Led as in life, by a queue and its worker; of each event of a pod it is drawn whether it is lost, late or repeated."""

    seed: int = 0
    passes: int = 0
    """That went through."""

    async def live(self) -> dict[str, Any]:
        key = ("default", self.name)
        gang = self

        class Counting(WorkQueue[Key]):
            def forget(self, key: Key) -> None:  # after each pass that went through
                super().forget(key)
                gang.passes += 1

        queue = Counting(clock=time.monotonic)
        chance = random.Random(self.seed)  # noqa: S311 - a draw that repeats

        def hear(kind: str, pod: RawPod) -> None:
            if pod.label(Label.JOB) != self.name or chance.random() < LOST_EVENTS:
                return
            for _ in range(chance.choice((1, 1, 3))):
                self.reconcilers[0].memory.terminated.note(pod, deleted=kind == "DELETED")
                queue.add_after(key, chance.choice((0.0, 0.02, 0.7)))

        async def resync() -> None:
            while True:
                queue.add(key)
                await asyncio.sleep(RESYNC_SECONDS)

        async with asyncio.TaskGroup() as group:
            around = (
                work(queue, self.reconcilers[0]),
                pod_watch(self.real.operator, ["default"], hear).run(),
                resync(),
            )
            tasks = [group.create_task(each) for each in around]
            end = await super().live()
            for task in tasks:
                task.cancel()
        return end

    async def settle(self) -> None:
        """Until nothing was written for longer than a resync takes, in which two passes went through.

        Two, since the first may have begun before: it may not have seen what was done last. However slow the machine is.
        """
        rest, seen, passes = time.monotonic(), self.faulty.writes, self.passes
        while time.monotonic() - rest < 2 * RESYNC_SECONDS or self.passes < passes + 2:
            await asyncio.sleep(0.1)
            if self.faulty.writes != seen:
                rest, seen, passes = time.monotonic(), self.faulty.writes, self.passes


@pytest.mark.deep
async def test_events_that_are_lost_late_or_repeated_lead_to_the_same_end(real: Administrator) -> None:
    works = {seed: lives_through(real, "409", lambda _: False, life=Unreliable, seed=seed) for seed in range(AT_ONCE)}  # type: ignore[misc]
    assert await differing(works) == {}
