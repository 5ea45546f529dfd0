"""Signs of life are few, whatever the work."""

from __future__ import annotations

import os

import pytest

from oarlock_trainer.runtime import channel
from oarlock_trainer.runtime.heartbeat import Heartbeat, with_heartbeat


def test_work_tells_at_most_once_a_second_that_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    monkeypatch.setenv(channel.AGENT_FD, str(writing))
    seconds = iter([0.0, 0.5, 0.99, 1.0, 1.5, 2.0, 2.5])
    assert list(with_heartbeat(range(7), Heartbeat(lambda: next(seconds)))) == list(range(7))
    os.close(writing)
    with os.fdopen(reading, "rb") as lines:
        events = [message.event for line in lines if (message := channel.decode(line))]
    assert events == ["working"] * 3
