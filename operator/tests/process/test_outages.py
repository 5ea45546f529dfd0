"""Outages, in virtual time: whatever ends begins anew, and an API server that is back is noticed within seconds."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import islice, pairwise

import pytest
from kube.test_leader import SECONDS, candidate, holder
from memory_api import MemoryApi
from virtual_time import in_virtual_time, now

from oarlock_operator.kube.api_error import ApiError, Malformed
from oarlock_operator.kube.leader import LeadershipLost
from oarlock_operator.kube.outages import LONGEST_DELAY, supervised
from oarlock_operator.process.node_watch import Patience
from oarlock_operator.process.settings import Settings
from oarlock_operator.process.startup import StartUp
from oarlock_operator.process.workqueue import WorkQueue

HALF_AN_HOUR = 1800.0
NOTICED = 5.0


class Api(MemoryApi):
    """Away until a time: `hangs` for so long at each request, or says no at once."""

    def __init__(self, *, back: float, hangs: float = 0.0) -> None:
        super().__init__()
        self.back, self.hangs = back, hangs
        self.before = self._away

    async def _away(self, _verb: str, path: str) -> None:
        if now() < self.back:
            await asyncio.sleep(self.hangs)
            raise ApiError(0, "ClientConnectorError", path)


@in_virtual_time
async def test_a_part_that_fails_or_ends_begins_anew_and_the_others_know_nothing_of_it() -> None:
    begun: list[float] = []

    async def part() -> None:
        begun.append(now())
        if len(begun) % 2:
            raise RuntimeError("a bug")

    running = asyncio.create_task(supervised("test", part))
    await asyncio.sleep(HALF_AN_HOUR)
    running.cancel()
    pauses = [later - sooner for sooner, later in pairwise(begun)]
    assert pauses[:3] == [0.5, 1.0, 2.0]
    assert set(pauses[3:]) == {LONGEST_DELAY}


@pytest.mark.parametrize("hangs", [0.0, 30.0], ids=["refused", "hanging"])
def test_after_half_an_hour_without_an_api_server_the_lease_is_held_again_within_seconds(hangs: float) -> None:
    @in_virtual_time
    async def scenario() -> None:
        api = Api(back=0.0)
        leader = candidate(api, "a")
        await leader.acquire()
        assert leader.may_act()
        api.back, api.hangs = HALF_AN_HOUR, hangs
        with pytest.raises(LeadershipLost):
            await leader.hold()
        assert now() < SECONDS
        assert not leader.may_act()
        await leader.acquire()
        assert HALF_AN_HOUR <= now() < HALF_AN_HOUR + NOTICED
        assert leader.may_act()
        assert holder(api) == "a"

    scenario()


@in_virtual_time
async def test_a_slow_api_server_is_led_with() -> None:
    api = MemoryApi()

    async def slowly(_verb: str, _path: str) -> None:
        await asyncio.sleep(2)

    api.before = slowly
    leader = candidate(api, "a")
    await leader.acquire()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(HALF_AN_HOUR):
            await leader.hold()
    assert leader.may_act()


@in_virtual_time
async def test_a_leader_that_was_frozen_may_not_act_when_it_wakes() -> None:
    api, ahead = MemoryApi(), 0.0
    leader = candidate(api, "a")
    leader.clock = lambda: now() + ahead
    await leader.acquire()
    assert leader.may_act()
    ahead = SECONDS * 0.7
    assert not leader.may_act()


@in_virtual_time
async def test_who_loses_the_lease_or_gives_it_away_may_not_act_from_then_on() -> None:
    api = MemoryApi()
    leader = candidate(api, "a")
    await leader.acquire()
    await leader.release()
    assert not leader.may_act()
    await leader.acquire()
    api.objects["/apis/coordination.k8s.io/v1/namespaces/ns/leases/oarlock"]["spec"]["holderIdentity"] = "b"
    api.objects["/apis/coordination.k8s.io/v1/namespaces/ns/leases/oarlock"]["metadata"]["resourceVersion"] = "99"
    with pytest.raises(LeadershipLost):
        await leader.hold()
    assert not leader.may_act()


@in_virtual_time
async def test_whose_lease_was_deleted_waits_for_its_length_before_it_is_made_anew() -> None:
    """As at an uninstall, where everybody is about to go."""
    api = MemoryApi()
    leader = candidate(api, "a")
    await leader.acquire()
    api.objects.clear()
    with pytest.raises(LeadershipLost):
        await leader.hold()
    lost = now()
    await leader.acquire()
    assert now() - lost >= SECONDS
    assert holder(api) == "a"


@in_virtual_time
async def test_the_start_waits_for_the_api_server_says_for_what_and_goes_on_within_seconds() -> None:
    api = Api(back=HALF_AN_HOUR)
    start = StartUp(api, Settings(namespaces=["ns"], cluster_id="c"))  # type: ignore[arg-type]
    assert start.obstacle
    reading = asyncio.create_task(start.read())
    await asyncio.sleep(HALF_AN_HOUR / 2)
    assert "ClientConnectorError" in start.obstacle
    api.put("/apis/oarlock.dev/v1alpha1/namespaces/ns/trainingjobs")
    assert not (await reading).rights.cordon
    assert HALF_AN_HOUR <= now() < HALF_AN_HOUR + NOTICED
    assert start.obstacle == ""


@in_virtual_time
async def test_a_pass_that_an_outage_fails_is_repeated_within_seconds_however_long_the_outage_is() -> None:
    queue: WorkQueue[str] = WorkQueue(clock=now)
    away = ApiError(503, "ServiceUnavailable", "etcd")
    delays = [queue.retry("job", outage=away.outage) for _ in range(40)]
    assert max(delays) <= LONGEST_DELAY
    lasting = [queue.retry("other", outage=ApiError(403, "Forbidden", "a quota").outage) for _ in range(40)]
    assert max(lasting) > 100


@pytest.mark.parametrize(
    ("error", "outage"),
    [
        (ApiError(0, "ClientConnectorError", "x"), True),
        (ApiError(500, "InternalError", "etcdserver: leader changed"), True),
        (ApiError(503, "ServiceUnavailable", "x"), True),
        (ApiError(500, "InternalError", 'failed calling webhook "x"'), False),
        (ApiError(429, "TooManyRequests", "x"), False),
        (Malformed("x"), False),
        (ApiError(403, "Forbidden", "x"), False),
        (ApiError(409, "Conflict", "x"), False),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_is_an_outage(error: ApiError, outage: bool) -> None:  # noqa: FBT001
    assert error.outage is outage


def test_kopf_is_never_out_of_patience_and_asks_again_within_seconds() -> None:
    delays: Iterable[float] = Patience()
    assert len(list(islice(delays, 1000))) == 1000
    assert max(islice(delays, 1000)) == LONGEST_DELAY
