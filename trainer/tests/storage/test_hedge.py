"""A second request for what comes too late: on a real server whose tail is slow, and its bound."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from oarlock_local import patience
from oarlock_local.patience import eventually
from oarlock_local.s3_faults import Cut, Faults, Refusal, Stall
from oarlock_trainer.storage.hedge import Hedge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from oarlock_trainer.storage.s3 import S3Files

FOREVER = 3600.0


def warmed(files: S3Files, reads: int = 256) -> None:
    for _ in range(reads):
        files.read("a", 0, 1000)


def test_a_read_that_never_ends_is_asked_a_second_time_and_the_first_answer_counts(
    s3_files: S3Files, through: Callable[..., S3Files], faults: Faults
) -> None:
    s3_files.write("a", b"1" * 1000)
    # Only the second request can answer: the connection's own patience would outlast the test.
    files = through(silence_seconds=FOREVER)
    warmed(files)
    faults.forget()
    faults.plan(Stall(FOREVER), method="GET")
    assert files.read("a", 0, 1000) == b"1" * 1000
    assert [request.method for request in faults.requests] == ["GET", "GET"]


@pytest.mark.parametrize("fault", [Refusal(500, "InternalError"), Cut(after=10, reset=True)], ids=str)
def test_a_second_request_that_fails_leaves_the_first_to_answer(
    s3_files: S3Files, through: Callable[..., S3Files], faults: Faults, fault: Refusal | Cut
) -> None:
    s3_files.write("a", b"1" * 1000)
    files = through()
    warmed(files)
    faults.forget()
    faults.plan(Stall(1.0), method="GET")
    faults.plan(fault, method="GET")
    assert files.read("a", 0, 1000) == b"1" * 1000
    assert len(faults.requests) == 2


def test_whole_files_and_large_ranges_are_asked_for_once(
    s3_files: S3Files, through: Callable[..., S3Files], faults: Faults
) -> None:
    s3_files.write("a", b"1" * 1000)
    files = through()
    warmed(files)
    faults.forget()
    faults.plan(Stall(0.5), method="GET", times=2)
    files.read("a")
    files.read("a", 0, 1 << 30)
    assert len(faults.requests) == 2


@pytest.mark.parametrize(("connections", "asked"), [(1, 1), (2, 2)])
def test_a_second_request_waits_for_no_connection(
    s3_files: S3Files, through: Callable[..., S3Files], faults: Faults, connections: int, asked: int
) -> None:
    s3_files.write("a", b"1" * 1000)
    files = through(pool_size=connections)
    warmed(files)
    faults.forget()
    faults.plan(Stall(1.0), method="GET")
    assert files.read("a", 0, 1000) == b"1" * 1000
    assert len(faults.requests) == asked


def test_a_request_that_came_too_late_keeps_its_connection_until_it_ends(
    s3_files: S3Files, through: Callable[..., S3Files], faults: Faults
) -> None:
    s3_files.write("a", b"1" * 1000)
    files = through(pool_size=2, silence_seconds=FOREVER)
    warmed(files)
    faults.forget()
    faults.plan(Stall(FOREVER), method="GET")
    files.read("a", 0, 1000)  # whose first request now hangs, and one connection is left
    faults.plan(Stall(1.0), method="GET")
    files.read("a", 0, 1000)
    assert len(faults.requests) == 3


class Store:
    """Reads that take no time by `clock`, until they are to hang until `release`; counted."""

    def __init__(self) -> None:
        self.asked = 0
        self.hang = False
        self.release = threading.Event()

    def read(self) -> bytes:
        self.asked += 1
        if self.hang:
            self.release.wait()
        return b"answer"


@pytest.fixture
def store() -> Iterator[Store]:
    store = Store()
    yield store
    store.release.set()


def test_extra_requests_are_a_bounded_share_of_all(store: Store) -> None:
    hedge = Hedge(share=0.05)
    for _ in range(256):
        hedge.first(1000, store.read)
    store.hang = True
    readers = [threading.Thread(target=hedge.first, args=(1000, store.read), daemon=True) for _ in range(100)]
    for reader in readers:
        reader.start()
    eventually(lambda: store.asked > 256 + 100, "a request that overtakes another")
    store.release.set()
    for reader in readers:
        reader.join()
    assert store.asked <= 1.05 * (256 + 100)


def test_nothing_is_asked_twice_and_no_thread_spent_before_it_is_known_what_late_is() -> None:
    hedge = Hedge()
    asked_in: list[threading.Thread] = []

    def read() -> bytes:
        asked_in.append(threading.current_thread())
        return b"answer"

    for _ in range(128):
        hedge.first(1000, read)
    # Whoever reads in the caller's own thread cannot be overtaken.
    assert asked_in == [threading.current_thread()] * 128


def test_both_requests_failing_is_an_error(store: Store) -> None:
    hedge = Hedge()
    for _ in range(256):
        hedge.first(1000, store.read)

    both = threading.Barrier(2)

    def failing() -> bytes:
        both.wait(patience.SECONDS)  # the first is late until the second has been asked
        raise ConnectionError("gone")

    with pytest.raises(ConnectionError, match="gone"):
        hedge.first(1000, failing)
    assert not both.broken
