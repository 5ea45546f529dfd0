"""Storage that does not answer keeps a few threads of its own, and nobody who asks."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import count, islice

import pytest

from oarlock.errors import NotFoundError, NotNowError
from oarlock.web.busy import BusyError
from oarlock.web.storage import AT_ONCE, PIECE, STREAMS, Storage
from oarlock_local import patience


def test_what_is_read_comes_back_and_what_is_raised_is_raised() -> None:
    storage = Storage("nfs:/a")
    assert storage.read(lambda: 7) == 7
    assert list(storage.stream(lambda: iter(range(3 * PIECE + 1)))) == list(range(3 * PIECE + 1))

    def torn() -> Iterator[int]:
        yield 1
        raise NotFoundError("gone")

    with pytest.raises(NotFoundError):
        storage.read(lambda: next(torn()) and list(torn()))
    with pytest.raises(NotFoundError):
        list(storage.stream(torn))


@pytest.mark.parametrize(("stream", "few"), [(True, STREAMS), (False, AT_ONCE)])
def test_a_storage_that_hangs_is_asked_by_a_few_and_by_nobody_more_until_it_answers(*, stream: bool, few: int) -> None:
    storage, answers, asked = Storage("nfs:/a", seconds=0.05), threading.Event(), threading.Semaphore(0)

    def hang() -> Iterator[int]:
        asked.release()
        answers.wait(patience.SECONDS)
        return iter((1,))

    def ask() -> list[int]:
        return list(storage.stream(hang)) if stream else list(storage.read(hang))

    for _ in range(3 * few):
        with pytest.raises(NotNowError, match="nfs:/a does not answer"):
            ask()
    for _ in range(few):
        assert asked.acquire(timeout=patience.SECONDS)
    assert not asked.acquire(blocking=False), "no thread more"
    answers.set()
    for thread in threading.enumerate():
        if thread.name == "reads nfs:/a":
            thread.join(patience.SECONDS)
    assert ask() == [1]


def test_readers_of_logs_that_last_keep_nobody_from_anything_else() -> None:
    storage = Storage("nfs:/c", seconds=0.05)
    logs = [storage.stream(count) for _ in range(STREAMS)]
    assert [next(log) for log in logs] == [0] * STREAMS
    for _ in range(2 * AT_ONCE):
        assert storage.read(lambda: 7) == 7
    with pytest.raises(BusyError, match="nfs:/c is busy"):
        next(storage.stream(count))


def test_who_has_waited_long_enough_for_one_answer_waits_for_no_other() -> None:
    storage, answers = Storage("nfs:/d", seconds=30.0), threading.Event()
    with pytest.raises(NotNowError, match="does not answer"):
        storage.read(lambda: answers.wait(patience.SECONDS), until=storage.deadline() - 30.0)
    answers.set()


def test_who_stops_reading_a_stream_gives_its_thread_back() -> None:
    storage = Storage("nfs:/b")
    for _ in range(2 * AT_ONCE):
        assert list(islice(storage.stream(count), 3)) == [0, 1, 2]
    assert storage.read(lambda: 7) == 7
