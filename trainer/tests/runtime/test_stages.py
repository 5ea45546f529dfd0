"""Stages that overlap: order is kept, errors arrive, no more is begun than may be, no thread stays behind."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from oarlock_local import patience
from oarlock_trainer.data.progress import Progress
from oarlock_trainer.runtime.errors import LeftOnRequest
from oarlock_trainer.runtime.stages import PendingResults, PipelineStage, Stages, ahead, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator


def nothing() -> None:
    """Go on."""


def alive(*stages: PipelineStage) -> list[str]:
    names = {stage.name for stage in stages}
    return [thread.name for thread in threading.enumerate() if thread.name.rpartition("_")[0] in names]


class Clock:
    """A time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_results_come_in_order_whichever_thread_is_faster() -> None:
    first, second = PipelineStage("first-a", 4), PipelineStage("second-a", 4)
    late = threading.Event()

    def slow_for_the_first(number: int) -> int:
        if number == 0:
            assert late.wait(patience.SECONDS)
        elif number == 3:
            late.set()
        return number

    def start(number: int):  # noqa: ANN202 - the future's type says nothing here
        return second.submit(str, after=[first.submit(slow_for_the_first, number)])

    with Stages((first, second), making=2):
        made = [wait_for(future, nothing) for _, future in ahead(range(10), start, limit=6)]
    assert made == [str(number) for number in range(10)]
    assert alive(first, second) == []


def test_no_more_is_begun_than_the_limit_and_one() -> None:
    stage = PipelineStage("bounded", 1)
    taken: list[int] = []

    def items() -> Iterator[int]:
        for number in range(20):
            taken.append(number)
            yield number

    with Stages((stage,), making=1):
        for number, _ in ahead(items(), lambda number: stage.submit(int, number), limit=3):
            assert len(taken) <= number + 4


def test_an_error_in_a_stage_reaches_the_caller_through_all_later_ones() -> None:
    first, second, third = PipelineStage("first-b", 1), PipelineStage("second-b", 1), PipelineStage("third-b", 1)

    def fail(_: object) -> None:
        raise OSError("disk on fire")

    def work() -> None:
        with Stages((first, second, third), making=1):
            outbox: PendingResults[str] = PendingResults(4, nothing)
            broken = second.submit(fail, after=[first.submit(int, "1")])
            outbox.put(third.submit(str, after=[broken]))
            outbox.drain()

    with pytest.raises(OSError, match="disk on fire"):
        work()
    assert alive(first, second, third) == []


def test_asked_to_stop_what_makes_is_dropped_and_what_stores_is_ended() -> None:
    making, storing = PipelineStage("making", 1), PipelineStage("storing", 1)
    begun, stored = threading.Event(), []
    release = threading.Event()

    def hold() -> None:
        begun.set()
        assert release.wait(patience.SECONDS)

    def stop() -> None:
        release.set()
        raise LeftOnRequest("left")

    futures = []

    def work() -> None:
        with Stages((making, storing), making=1):
            futures.append(making.submit(hold))
            futures.extend(making.submit(stored.append, "never") for _ in range(3))
            futures.append(storing.submit(stored.append, "kept"))
            assert begun.wait(patience.SECONDS)
            wait_for(futures[0], stop, every=0.01)

    with pytest.raises(LeftOnRequest):
        work()
    _, *dropped, kept = futures
    assert kept.done()
    assert stored == ["kept"]
    assert all(future.cancelled() for future in dropped)


def test_an_outbox_waits_for_the_oldest_when_it_is_full() -> None:
    stage = PipelineStage("outbox", 1)
    done: list[int] = []
    with Stages((stage,), making=1):
        outbox: PendingResults[None] = PendingResults(2, nothing)
        for number in range(10):
            outbox.put(stage.submit(done.append, number))
            assert len(done) >= number - 1
        outbox.drain()
        assert done == list(range(10))


def test_a_timeout_that_the_work_raised_is_an_error_and_no_reason_to_wait_on() -> None:
    stage = PipelineStage("timeout", 1)

    def fail() -> None:
        raise TimeoutError("the service does not answer")

    with Stages((stage,), making=1), pytest.raises(TimeoutError, match="does not answer"):
        wait_for(stage.submit(fail), nothing)


def test_progress_tells_share_rate_and_time_left_by_its_own_share() -> None:
    clock = Clock()
    progress = Progress("latents", own=100, total=400, speaks=False, clock=clock)
    clock.now = 10.0
    progress.advance(25)
    assert progress.line() == "latents: 100 of 400 (25%), 10.0/s, 0:00:30 left"


def test_the_summary_names_the_busiest_stage() -> None:
    clock = Clock()
    progress = Progress("latents", own=10, total=20, speaks=False, clock=clock)
    reading, encoding = PipelineStage("read", 4, clock), PipelineStage("encode", 1, clock)
    reading.busy, encoding.busy = 10.0, 8.0
    clock.now = 10.0
    progress.advance(10)
    words = progress.summary([reading, encoding])
    assert "busy: read 25% of 4 threads, encode 80% of 1 thread" in words
    assert words.endswith("encode decides about the speed")
    assert "rank 0 encoded 10 of 20 in 0:00:10 (1.0/s)" in words


def test_what_is_started_and_not_given_weighs_no_more_than_it_may() -> None:
    stage = PipelineStage("weighed", 1)
    begun: list[int] = []

    def start(number: int):  # noqa: ANN202 - the future's type says nothing here
        begun.append(number)
        return stage.submit(int, number)

    with Stages((stage,), making=1):
        for number, _ in ahead(range(20), start, limit=10, weight=lambda number: 1 if number % 5 else 3, most=4):
            waiting = begun[begun.index(number) + 1 :]
            assert sum(1 if one % 5 else 3 for one in waiting) <= 4
    assert begun == list(range(20))


def test_what_weighs_more_than_may_wait_is_started_alone() -> None:
    stage = PipelineStage("heavy", 1)
    with Stages((stage,), making=1):
        given = [number for number, _ in ahead(range(3), lambda number: stage.submit(int, number), limit=9,
                                               weight=lambda _: 5, most=4)]  # fmt: skip
    assert given == [0, 1, 2]
