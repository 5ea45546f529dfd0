"""The monitor's process as its agent keeps it: real processes, a pretended driver, and time that the test gives."""

from __future__ import annotations

import os
import select
import signal
from typing import TYPE_CHECKING

import pytest
from gpu_pod import monitors

from oarlock_api.contract.health import HealthState
from oarlock_local import patience
from oarlock_local.patience import eventually
from oarlock_trainer.agent.gpus.gpu_health import PROVEN_SECONDS, SILENT_SECONDS, GpuHealth
from oarlock_trainer.runtime import children

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpu_pod import GpuPod

    from oarlock_trainer.health.symptom import Symptom


class Kept:
    """GPUs as the agent knows them. The agent's clock stands where `now` says; it hears of ends by `tend` alone."""

    def __init__(self, pod: GpuPod) -> None:
        self.gpus = pod.gpus
        self.now = 1000.0
        self.known = GpuHealth(pod.assignment, pod.environment, now=self.now)

    def until(self, fact: Callable[[], object], what: str) -> None:
        eventually(lambda: fact() or self.known.tend(children.reap(), self.now), what)

    def shows(self, state: HealthState) -> None:
        self.until(lambda: self.known.health.state == state, state)

    def symptoms(self, count: int) -> list[Symptom]:
        found: list[Symptom] = []

        def enough() -> bool:
            found.extend(self.known.take())
            return len(found) >= count

        self.until(enough, f"{count} symptoms")
        return found

    def hear(self) -> None:
        """Wait until the monitor has told something, and take it in."""
        assert select.select([self.known.descriptor], [], [], patience.SECONDS)[0]
        self.known.tend(children.reap(), self.now)

    def crash(self) -> None:
        """The monitor dies, and the agent hears of it."""
        os.kill(monitors()[0], signal.SIGKILL)
        self.shows(HealthState.UNMONITORED)

    def fall_silent(self) -> None:
        """Let time pass in which nothing is heard; that the monitor was killed for it ends nobody hears either."""
        while self.known.health.state != HealthState.UNMONITORED:
            self.now += SILENT_SECONDS + 1
            self.known.tend({}, self.now)


@pytest.fixture
def kept(gpu_pod: GpuPod) -> Kept:
    return Kept(gpu_pod)


def test_no_second_monitor_is_started_while_a_killed_one_has_not_ended(kept: Kept) -> None:
    kept.shows(HealthState.HEALTHY)
    kept.fall_silent()
    kept.now += 1000.0
    for _ in range(3):
        kept.known.tend({}, kept.now)
    assert "does not end" in kept.known.health.reason
    eventually(lambda: not monitors(), "the end of the one that was killed; what matters is that nobody follows it")
    kept.shows(HealthState.HEALTHY)  # its end is heard of
    assert len(monitors()) == 1


def test_a_monitor_that_fails_again_within_a_minute_is_waited_for_longer_each_time(kept: Kept) -> None:
    kept.shows(HealthState.HEALTHY)
    for waits in (1.0, 5.0, 30.0):
        kept.crash()
        kept.now += waits - 0.1
        kept.known.tend({}, kept.now)
        assert not monitors()
        kept.now += 0.2
        kept.shows(HealthState.HEALTHY)


def test_a_monitor_that_has_told_of_itself_for_a_minute_is_started_again_soon(kept: Kept) -> None:
    kept.shows(HealthState.HEALTHY)
    kept.crash()
    kept.now += 1.1
    kept.shows(HealthState.HEALTHY)
    for _ in range(int(PROVEN_SECONDS / SILENT_SECONDS) + 1):
        kept.now += SILENT_SECONDS - 1
        kept.hear()
    kept.crash()
    kept.now += 1.1
    kept.shows(HealthState.HEALTHY)


def test_a_warning_stays_under_the_next_monitor_which_takes_it_for_what_was_before(kept: Kept) -> None:
    kept.shows(HealthState.HEALTHY)
    kept.gpus.inject(gpu=1, remap_pending=True)
    kept.shows(HealthState.HOLD)
    warned = kept.known.health
    kept.crash()
    assert (kept.known.health.gpu, kept.known.health.since) == (None, "")
    kept.now += 1.1
    kept.until(lambda: kept.known.health.state != HealthState.UNMONITORED, "another monitor watches")
    shown = kept.known.health
    assert (shown.state, shown.reason, shown.gpu, shown.since) == (
        HealthState.HOLD,
        warned.reason,
        warned.gpu,
        warned.since,
    )


def test_an_xid_that_only_warns_is_new_once_for_each_gpu_and_one_that_ends_processes_each_time(kept: Kept) -> None:
    kept.shows(HealthState.HEALTHY)
    kept.gpus.set("1:xid=63", "1:xid=63", "0:xid=63", "1:xid=92", "1:xid=63", "0:xid=13", "0:xid=13")
    heard = [(one.gpu.index, one.xid) for one in kept.symptoms(5) if one.gpu]
    assert heard == [(1, 63), (0, 63), (1, 92), (0, 13), (0, 13)]


def test_a_gpu_that_does_not_answer_is_shown_as_unmonitored_and_is_no_fault(kept: Kept) -> None:
    kept.shows(HealthState.HEALTHY)
    kept.gpus.set("1:error=999")
    kept.shows(HealthState.UNMONITORED)
    assert "GPU 1" in kept.known.health.reason
    kept.gpus.clear("1:error")
    kept.shows(HealthState.HEALTHY)
    assert kept.known.take() == []
