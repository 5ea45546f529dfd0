"""Whatever a tracker does, who reports never waits and never fails, and each outage is told of once."""

from __future__ import annotations

import json
import os
import threading
from typing import TYPE_CHECKING, Any

import pytest

from oarlock_local import patience
from oarlock_trainer.runtime import channel
from oarlock_trainer.tracking.feed import Feed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


class Remembered:
    """A tracker that fails as long as it is told to."""

    def __init__(self) -> None:
        self.written: list[int] = []
        self.closed: list[bool] = []
        self.failing = 0
        self.reached = threading.Semaphore(0)

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        assert figures == {"loss": 0.5}
        self.reached.release()
        if self.failing:
            self.failing -= 1
            raise ConnectionError("no such host")
        self.written.append(step)

    def close(self, *, done: bool) -> None:
        self.closed.append(done)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], list[str]]]:
    """The notes that the agent has got so far."""
    reading, writing = os.pipe()
    monkeypatch.setenv(channel.AGENT_FD, str(writing))
    os.set_blocking(reading, False)

    def notes() -> list[str]:
        try:
            lines = os.read(reading, 65536).splitlines()
        except BlockingIOError:
            return []
        return [json.loads(line)["message"] for line in lines]

    yield notes
    os.close(reading)
    os.close(writing)


def feed_of(tracker: Any, **options: Any) -> Feed:
    return Feed("board", lambda: tracker, **{"pause": 0.01} | options)


def finish(feed: Feed, *, done: bool = True) -> None:
    feed.end(done=done)
    feed.join(patience.SECONDS)


def test_a_tracker_gets_every_step_in_order_and_how_the_run_ended(told: Callable[[], list[str]]) -> None:
    tracker = Remembered()
    feed = feed_of(tracker)
    for step in range(1, 100):
        feed.put(step, {"loss": 0.5})
    finish(feed, done=False)
    assert (tracker.written, tracker.closed) == (list(range(1, 100)), [False])
    assert told() == []


def test_an_outage_costs_nothing_and_is_told_of_once(told: Callable[[], list[str]]) -> None:
    tracker = Remembered()
    tracker.failing = 3
    feed = feed_of(tracker)
    for step in (1, 2):
        feed.put(step, {"loss": 0.5})
    for _ in range(5):
        assert tracker.reached.acquire(timeout=patience.SECONDS)
    finish(feed)
    assert tracker.written == [1, 2]
    assert told() == ["tracking board fails, and training goes on: ConnectionError: no such host"]


def test_a_tracker_that_cannot_be_opened_is_tried_again(told: Callable[[], list[str]]) -> None:
    tracker, tries, opened = Remembered(), iter((OSError("refused"), None)), threading.Event()

    def open_tracker() -> Remembered:
        if error := next(tries):
            raise error
        opened.set()
        return tracker

    feed = Feed("board", open_tracker, pause=0.01)
    feed.put(1, {"loss": 0.5})
    assert opened.wait(patience.SECONDS)
    finish(feed)
    assert tracker.written == [1]
    assert told() == ["tracking board fails, and training goes on: OSError: refused"]


def test_a_tracker_that_hangs_holds_up_nobody_and_what_it_lost_is_counted(told: Callable[[], list[str]]) -> None:
    ends = threading.Event()

    class Hanging(Remembered):
        def log(self, step: int, figures: Mapping[str, float]) -> None:
            self.reached.release()
            ends.wait(patience.SECONDS)
            super().log(step, figures)

    tracker = Hanging()
    feed = feed_of(tracker, bound=4)
    feed.put(0, {"loss": 0.5})
    assert tracker.reached.acquire(timeout=patience.SECONDS)
    for step in range(1, 10):
        feed.put(step, {"loss": 0.5})
    feed.end(done=True)
    feed.join(0.0)
    ends.set()
    assert told() == ["tracking board: some figures were not written; metrics.jsonl has them"]


def test_a_tracker_that_fails_at_the_end_is_not_waited_for(told: Callable[[], list[str]]) -> None:
    tracker = Remembered()
    tracker.failing = 1000
    feed = feed_of(tracker, pause=3600.0)
    feed.put(1, {"loss": 0.5})
    assert tracker.reached.acquire(timeout=patience.SECONDS)
    finish(feed)
    assert told() == [
        "tracking board fails, and training goes on: ConnectionError: no such host",
        "tracking board: some figures were not written; metrics.jsonl has them",
    ]
