"""Leadership, on virtual time and a Lease in memory: never two leaders at once, and never none for longer than needed."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from memory_api import MemoryApi
from virtual_time import in_virtual_time, now

from oarlock_operator.kube.api_error import ApiError, Conflict
from oarlock_operator.kube.leader import Leader, LeadershipLost

SECONDS = 15.0
LEASE = "/apis/coordination.k8s.io/v1/namespaces/ns/leases/oarlock"


def candidate(api: MemoryApi, identity: str, *, ahead: float = 0.0, seconds: float = SECONDS) -> Leader:
    """A process whose own clocks run `ahead` of virtual time: they need not agree with anybody's."""
    return Leader(
        cluster=api,  # type: ignore[arg-type]
        namespace="ns",
        name="oarlock",
        identity=identity,
        seconds=seconds,
        clock=lambda: now() + ahead,
        wall=lambda: datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=now() + 1000 * ahead),
    )


def holder(api: MemoryApi) -> str:
    return api.objects[LEASE]["spec"]["holderIdentity"]


class Partition:
    """Requests of one side hang from `since` on, as packets do that nobody answers."""

    def __init__(self, api: MemoryApi) -> None:
        self._api = api
        self.cut = False

    def __getattr__(self, name: str) -> object:
        async def call(*args: object, **kwargs: object) -> object:
            if self.cut:
                await asyncio.sleep(30)
                raise ApiError(0, "TimeoutError", "no answer")
            return await getattr(self._api, name)(*args, **kwargs)

        return call


@in_virtual_time
async def test_the_first_candidate_creates_the_lease_and_leads_at_once() -> None:
    api = MemoryApi()
    await candidate(api, "a").acquire()
    assert now() == 0
    spec = api.objects[LEASE]["spec"]
    assert (spec["holderIdentity"], spec["leaseDurationSeconds"], spec["leaseTransitions"]) == ("a", 15, 0)


@in_virtual_time
async def test_of_two_that_start_together_one_leads() -> None:
    api = MemoryApi()

    async def together(verb: str, _path: str) -> None:
        if verb == "GET":
            await asyncio.sleep(0.1)

    api.before = together
    tasks = [asyncio.create_task(candidate(api, name).acquire()) for name in "ab"]
    done, pending = await asyncio.wait(tasks, timeout=SECONDS / 2)
    assert (len(done), len(pending)) == (1, 1)
    for task in pending:
        task.cancel()


@pytest.mark.parametrize("ahead", [0.0, 5000.0, -5000.0])
def test_a_silent_leader_is_replaced_once_its_lease_ran_out_on_the_candidate_s_own_clock(ahead: float) -> None:
    @in_virtual_time
    async def scenario() -> None:
        api = MemoryApi()
        await candidate(api, "a").acquire()
        await candidate(api, "b", ahead=ahead).acquire()
        assert SECONDS < now() <= SECONDS * 1.3
        assert holder(api) == "b"
        assert api.objects[LEASE]["spec"]["leaseTransitions"] == 1

    scenario()


@pytest.mark.parametrize("hasty", [SECONDS, SECONDS / 6])
def test_a_leader_that_renews_is_never_replaced_not_even_by_one_with_a_shorter_lease(hasty: float) -> None:
    @in_virtual_time
    async def scenario() -> None:
        api = MemoryApi()
        leader = candidate(api, "a")
        await leader.acquire()
        holding = asyncio.create_task(leader.hold())
        waiting = asyncio.create_task(candidate(api, "b", seconds=hasty).acquire())
        done, _ = await asyncio.wait([holding, waiting], timeout=100 * SECONDS)
        assert not done
        assert api.objects[LEASE]["spec"]["acquireTime"].startswith("2026-01-01T00:00:00"), "renewing is not acquiring"
        for task in (holding, waiting):
            task.cancel()

    scenario()


async def lost_at(leader: Leader) -> float:
    """When the leader gave up."""
    with pytest.raises(LeadershipLost):
        await leader.hold()
    return now()


@in_virtual_time
async def test_a_leader_whose_renewals_are_refused_gives_up_before_anybody_could_take_over() -> None:
    api = MemoryApi()
    leader = candidate(api, "a")
    await leader.acquire()

    async def refuse(_verb: str, _path: str) -> None:
        raise ApiError(500, "InternalError", "etcd is away")

    api.before = refuse
    assert SECONDS / 2 < await lost_at(leader) < SECONDS


@in_virtual_time
async def test_a_leader_whose_requests_hang_gives_up_before_its_successor_leads() -> None:
    api = MemoryApi()
    line = Partition(api)
    leader = candidate(api, "a")
    leader.cluster = line  # type: ignore[assignment]
    await leader.acquire()
    successor = asyncio.create_task(candidate(api, "b").acquire())
    line.cut = True
    assert await lost_at(leader) < SECONDS
    assert not successor.done()
    await successor
    assert holder(api) == "b"


@in_virtual_time
async def test_one_refused_renewal_is_no_reason_to_give_up() -> None:
    api = MemoryApi()
    leader = candidate(api, "a")
    await leader.acquire()
    refusals = iter([Conflict(409, "Conflict", "x"), ApiError(429, "TooManyRequests", "x")])

    async def refuse(verb: str, _path: str) -> None:
        if verb == "PUT" and (error := next(refusals, None)):
            raise error

    api.before = refuse
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(10 * SECONDS):
            await leader.hold()
    assert holder(api) == "a"


@in_virtual_time
async def test_a_leader_that_finds_another_s_name_in_the_lease_gives_up_at_its_next_renewal() -> None:
    api = MemoryApi()
    leader = candidate(api, "a")
    await leader.acquire()
    await api.merge(LEASE, {"spec": {"holderIdentity": "b"}})
    assert await lost_at(leader) <= SECONDS / 3


@in_virtual_time
async def test_a_leader_whose_lease_is_deleted_gives_up_and_does_not_make_it_anew() -> None:
    """At an uninstall it would stay for ever; otherwise whoever leads next makes it."""
    api = MemoryApi()
    leader = candidate(api, "a")
    await leader.acquire()
    del api.objects[LEASE]
    assert await lost_at(leader) <= SECONDS / 3
    assert LEASE not in api.objects
    await candidate(api, "b").acquire()
    assert holder(api) == "b"


@in_virtual_time
async def test_a_leader_that_releases_is_followed_without_waiting() -> None:
    api = MemoryApi()
    leader = candidate(api, "a")
    await leader.acquire()
    waiting = asyncio.create_task(candidate(api, "b").acquire())
    await asyncio.sleep(1)
    await leader.release()
    assert holder(api) == ""
    await waiting
    assert now() <= 1 + SECONDS / 7
    assert holder(api) == "b"


@in_virtual_time
async def test_releasing_takes_nothing_from_a_successor() -> None:
    api = MemoryApi()
    leader = candidate(api, "a")
    await leader.acquire()
    api.objects[LEASE]["spec"]["holderIdentity"] = "b"
    await leader.release()
    assert holder(api) == "b"


@pytest.mark.parametrize("spec", [{}, {"spec": {}}, {"spec": {"holderIdentity": None, "leaseTransitions": None}}])
def test_a_lease_without_a_holder_is_free_and_nothing_to_release(spec: dict[str, object]) -> None:
    @in_virtual_time
    async def scenario() -> None:
        api = MemoryApi()
        api.put(LEASE, **spec)
        await candidate(api, "z").release()
        await candidate(api, "a").acquire()
        assert (now(), holder(api)) == (0, "a")

    scenario()


@in_virtual_time
async def test_a_candidate_whose_taking_was_done_but_not_answered_finds_itself_the_holder() -> None:
    api = MemoryApi()
    await candidate(api, "a").acquire()
    await candidate(api, "a").acquire()
    assert now() == 0
    assert api.objects[LEASE]["spec"]["leaseTransitions"] == 0
