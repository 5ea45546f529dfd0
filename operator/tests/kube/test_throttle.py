"""Requests run side by side up to a bound that falls while the API server has too many, and rises again."""

from __future__ import annotations

import asyncio

import pytest
from virtual_time import in_virtual_time

from oarlock_operator.kube.api_error import ApiError
from oarlock_operator.kube.throttle import Throttle

BUSY = ApiError(429, "TooManyRequests", "later")


class Server:
    """Answers after a moment; says that it is busy as often as told, and counts how many ask at once."""

    def __init__(self, busy: int = 0) -> None:
        self.busy = busy
        self.now = self.most = self.answered = 0

    async def request(self) -> int:
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0.1)
        self.now -= 1
        if self.busy > 0:
            self.busy -= 1
            raise BUSY
        self.answered += 1
        return self.answered


async def many(throttle: Throttle, server: Server, count: int) -> None:
    await asyncio.gather(*(throttle.run(server.request) for _ in range(count)))


@in_virtual_time
async def test_never_more_run_at_once_than_the_bound_and_all_are_answered() -> None:
    server = Server()
    await many(Throttle(8), server, 50)
    assert (server.most, server.answered) == (8, 50)


@in_virtual_time
async def test_a_busy_server_is_asked_by_fewer_and_everything_is_answered_in_the_end() -> None:
    server, throttle = Server(busy=3), Throttle(8)
    await many(throttle, server, 4)
    assert server.answered == 4
    assert throttle.limit < 8


@in_virtual_time
async def test_the_bound_rises_again_when_the_server_has_time() -> None:
    throttle = Throttle(8)
    await many(throttle, Server(busy=3), 8)
    await many(throttle, Server(), 200)
    assert throttle.limit == 8


@in_virtual_time
async def test_a_server_that_stays_busy_is_told_after_some_tries() -> None:
    server = Server(busy=99)
    with pytest.raises(ApiError, match="later"):
        await Throttle(2).run(server.request)
    assert server.busy == 94


@in_virtual_time
async def test_other_errors_are_told_at_once() -> None:
    async def refused() -> None:
        raise ApiError(403, "Forbidden", "no")

    with pytest.raises(ApiError, match="no"):
        await Throttle(2).run(refused)
