"""The pipe from ranks to agent."""

from __future__ import annotations

import json
import os
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oarlock_trainer.runtime import channel
from oarlock_trainer.runtime.channel import Event

if TYPE_CHECKING:
    from collections.abc import Iterator

JSON_SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6000)


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    reading, writing = os.pipe()
    monkeypatch.setenv(channel.AGENT_FD, str(writing))
    monkeypatch.setenv("RANK", "3")
    os.set_blocking(reading, False)
    yield reading
    for descriptor in (reading, writing):
        os.close(descriptor)


def test_an_event_arrives_as_one_line_with_the_senders_rank(pipe: int) -> None:
    channel.send(Event.STEP, step=12, total=100, loss=0.25)
    line = os.read(pipe, 65536)
    assert line.endswith(b"\n")
    assert channel.decode(line) == channel.Message("step", 3, {"step": 12, "total": 100, "loss": 0.25})


def test_numbers_that_are_not_finite_become_null(pipe: int) -> None:
    channel.send(Event.STEP, loss=float("nan"), mfu=float("-inf"))
    assert json.loads(os.read(pipe, 65536)) == {"loss": None, "mfu": None, "event": "step", "rank": 3}


def test_scalars_of_numpy_become_numbers(pipe: int) -> None:
    numpy = pytest.importorskip("numpy")
    channel.send(Event.STEP, loss=numpy.float32(0.5), step=numpy.int64(7))
    assert json.loads(os.read(pipe, 65536)) == {"loss": 0.5, "step": 7, "event": "step", "rank": 3}


def test_what_people_are_told_stands_in_the_log_too(pipe: int, capsys: pytest.CaptureFixture[str]) -> None:
    channel.tell("the storage is slow")
    assert channel.decode(os.read(pipe, 65536)) == channel.Message("note", 3, {"message": "the storage is slow"})
    assert capsys.readouterr().err == "the storage is slow\n"


def test_without_an_agent_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(channel.AGENT_FD, raising=False)
    channel.send(Event.NOTE, message="nobody hears this")


def test_a_broken_pipe_is_no_error_of_the_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    monkeypatch.setenv(channel.AGENT_FD, str(writing))
    channel.send(Event.FAILURE, code=85, summary="gone")
    os.close(writing)


def test_a_closed_descriptor_is_no_error_of_the_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    never_open = 2**30  # one that was closed here may have been opened again by another thread
    monkeypatch.setenv(channel.AGENT_FD, str(never_open))
    channel.send(Event.NOTE, message="x")


def test_a_full_pipe_drops_steps_instead_of_blocking_training(pipe: int) -> None:
    for step in range(5000):
        channel.send(Event.STEP, step=step, total=5000, loss=1.0)
    received = b""
    while True:
        try:
            received += os.read(pipe, 65536)
        except BlockingIOError:
            break
    messages = [channel.decode(line) for line in received.splitlines()]
    assert [message.fields["step"] for message in messages] == list(range(len(messages)))


def test_a_failure_waits_for_room_in_a_full_pipe(pipe: int) -> None:
    for _ in range(5000):
        channel.send(Event.STEP, step=1)
    sender = threading.Thread(target=channel.send, args=("failure",), kwargs={"code": 85, "summary": "wrong"})
    sender.start()
    received = b""
    # A read may end within a line.
    while b"failure" not in received or not received.endswith(b"\n"):
        with suppress(BlockingIOError):
            received += os.read(pipe, 65536)
    sender.join()
    assert channel.decode(received.splitlines()[-1]).event == "failure"


def test_what_is_too_long_loses_the_tail_of_its_longest_text() -> None:
    line = channel.encode("failure", 0, {"code": 85, "summary": "first words " + "x" * 100_000})
    message = channel.decode(line)
    assert len(line) <= channel.MAX_LINE
    assert message.fields["code"] == 85
    assert message.fields["summary"].startswith("first words ")


@given(st.dictionaries(st.text(max_size=20), JSON_SCALARS, max_size=20), st.integers(0, 10**6))
def test_every_line_is_one_atomic_write_and_can_be_read(fields: dict[str, Any], rank: int) -> None:
    line = channel.encode("note", rank, fields)
    assert len(line) <= channel.MAX_LINE
    assert line.count(b"\n") == 1
    message = channel.decode(line)
    assert (message.event, message.rank) == ("note", rank)


@given(st.binary(max_size=200))
def test_strange_bytes_are_no_message_and_no_error(line: bytes) -> None:
    channel.decode(line)
