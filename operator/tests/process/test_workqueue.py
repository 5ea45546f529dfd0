"""The work queue, on virtual time: nothing is lost, nothing runs twice at once, and waits only get shorter."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from virtual_time import in_virtual_time, now

from oarlock_operator.process.workqueue import FAIRNESS, FIRST_DELAY, MAX_DELAY, WorkQueue


def queue_of(jitter: Callable[[], float] = lambda: 0.0) -> WorkQueue[str]:
    return WorkQueue(clock=now, jitter=jitter)


async def idle(queue: WorkQueue[str], seconds: float = 10_000) -> bool:
    """Whether nothing comes out of the queue for so long."""
    try:
        async with asyncio.timeout(seconds):
            await queue.get()
    except TimeoutError:
        return True
    return False


@in_virtual_time
async def test_a_key_that_is_added_twice_before_it_runs_runs_once() -> None:
    queue = queue_of()
    queue.add("a")
    queue.add("a")
    assert len(queue) == 1
    assert (await queue.get())[0] == "a"
    queue.done("a")
    assert await idle(queue)


@in_virtual_time
async def test_keys_come_out_in_the_order_in_which_they_were_noticed_and_say_when() -> None:
    queue = queue_of()
    queue.add("a")
    await asyncio.sleep(3)
    queue.add("b")
    queue.add("a")
    assert [await queue.get(), await queue.get()] == [("a", 0.0), ("b", 3.0)]


@in_virtual_time
async def test_a_key_is_worked_on_by_one_worker_at_a_time_and_once_more_if_added_meanwhile() -> None:
    queue = queue_of()
    queue.add("a")
    await queue.get()
    queue.add("a")
    queue.add("a")
    assert await idle(queue, 100), "a second worker got a key that is being worked on"
    queue.done("a")
    assert (await queue.get())[0] == "a"
    queue.done("a")
    assert await idle(queue)


@in_virtual_time
async def test_of_many_workers_none_shares_a_key_and_none_sleeps_while_there_is_work() -> None:
    queue = queue_of()
    busy: set[str] = set()
    runs: list[tuple[str, float]] = []

    async def worker() -> None:
        while True:
            key, _ = await queue.get()
            assert key not in busy
            busy.add(key)
            await asyncio.sleep(1)
            runs.append((key, now()))
            busy.discard(key)
            queue.done(key)

    async with asyncio.TaskGroup() as group:
        workers = [group.create_task(worker()) for _ in range(4)]
        await asyncio.sleep(0)
        for key in ("a", "b", "c", "d", "a"):
            queue.add(key)
        await asyncio.sleep(0.5)
        queue.add("a")
        await asyncio.sleep(10)
        for task in workers:
            task.cancel()
    assert sorted(runs) == [("a", 1.0), ("a", 2.0), ("b", 1.0), ("c", 1.0), ("d", 1.0)]


@in_virtual_time
async def test_work_that_is_done_without_another_wish_leaves_the_queue_empty() -> None:
    queue = queue_of()
    queue.add("a")
    key, _ = await queue.get()
    assert len(queue) == 0
    queue.done(key)
    assert len(queue) == 0


@pytest.mark.parametrize(("delays", "due"), [((5, 9), 5), ((9, 5), 5), ((9, 5, 7), 5)])
def test_of_several_delays_the_earliest_wins(delays: tuple[float, ...], due: float) -> None:
    @in_virtual_time
    async def scenario() -> None:
        queue = queue_of()
        for delay in delays:
            queue.add_after("a", delay)
        assert await queue.get() == ("a", due)
        queue.done("a")
        assert await idle(queue), "the later delays are dropped"

    scenario()


@in_virtual_time
async def test_an_event_outruns_a_delay_and_drops_it() -> None:
    queue = queue_of()
    queue.add_after("a", 60)
    queue.add("a")
    assert await queue.get() == ("a", 0.0)
    queue.done("a")
    assert await idle(queue)


@pytest.mark.parametrize("delay", [0.0, -1.0])
def test_no_delay_is_now(delay: float) -> None:
    @in_virtual_time
    async def scenario() -> None:
        queue = queue_of()
        queue.add_after("a", delay)
        assert len(queue) == 1

    scenario()


@in_virtual_time
async def test_a_delay_that_ends_while_its_key_is_worked_on_makes_it_run_again_afterwards() -> None:
    queue = queue_of()
    queue.add("a")
    await queue.get()
    queue.add_after("a", 5)
    assert await idle(queue, 100)
    queue.done("a")
    assert (await queue.get())[0] == "a"


@pytest.mark.parametrize(("jitter", "factor"), [(0.0, 0.5), (0.999999, 1.0)])
def test_failures_back_off_twofold_up_to_a_bound_between_half_and_all_of_it(jitter: float, factor: float) -> None:
    @in_virtual_time
    async def scenario() -> None:
        queue = queue_of(lambda: jitter)
        delays = [queue.retry("a") for _ in range(60)]
        wanted = [min(FIRST_DELAY * 2**n, MAX_DELAY) * factor for n in range(60)]
        assert delays == pytest.approx(wanted, rel=1e-5)

    scenario()


@in_virtual_time
async def test_a_failed_key_comes_back_after_its_delay_and_not_before() -> None:
    queue = queue_of()
    queue.add("a")
    await queue.get()
    delay = queue.retry("a")
    queue.done("a")
    assert await queue.get() == ("a", delay)


@in_virtual_time
async def test_a_success_forgets_the_failures_of_its_key_and_of_no_other() -> None:
    queue = queue_of()
    first = queue.retry("a")
    for key in ("a", "b", "b"):
        queue.retry(key)
    queue.forget("a")
    queue.forget("never seen")
    assert queue.retry("a") == first
    assert queue.retry("b") == 4 * first


@in_virtual_time
async def test_a_cancelled_worker_that_waited_takes_no_key_with_it() -> None:
    queue = queue_of()
    waiting = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add("a")
    waiting.cancel()
    await asyncio.wait([waiting])
    assert (await queue.get())[0] == "a"


@in_virtual_time
async def test_what_happened_goes_before_what_is_only_due_which_is_never_starved() -> None:
    queue = queue_of()
    for number in range(3):
        queue.add_after(f"due {number}", 1)
    await asyncio.sleep(2)
    for number in range(2 * FAIRNESS):
        queue.add(f"new {number}")
    taken = [(await queue.get())[0] for _ in range(2 * FAIRNESS + 3)]
    assert taken[:3] == ["new 0", "new 1", "new 2"]
    due = [place for place, key in enumerate(taken) if key.startswith("due")]
    assert due == [FAIRNESS - 1, 2 * FAIRNESS - 1, 2 * FAIRNESS + 2]


@in_virtual_time
async def test_a_key_that_is_due_and_to_which_something_happens_moves_up() -> None:
    queue = queue_of()
    queue.add_after("a", 1)
    queue.add_after("b", 1)
    await asyncio.sleep(2)
    queue.add("b")
    assert [(await queue.get())[0] for _ in range(2)] == ["b", "a"]
    assert len(queue) == 0


@in_virtual_time
async def test_a_key_that_became_due_while_it_was_worked_on_waits_for_what_happened() -> None:
    queue = queue_of()
    queue.add("a")
    await queue.get()
    queue.add_after("a", 1)
    await asyncio.sleep(2)
    queue.add("b")
    queue.done("a")
    assert [(await queue.get())[0] for _ in range(2)] == ["b", "a"]
