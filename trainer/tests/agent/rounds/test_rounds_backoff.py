"""A gang waits before its next round only where its program has failed before, and no step was done since."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oarlock_api.contract.struck_gpu import StruckGpu
from oarlock_trainer.agent.rounds import backoff
from oarlock_trainer.agent.rounds.leader import Leader
from oarlock_trainer.agent.rounds.membership import Membership
from oarlock_trainer.agent.rounds.model import FIRST, Fault, Limits, Report, Wanted

LIMITS = Limits(patience=60.0, backoff=10.0, longest_backoff=30.0, linked=True)
FAILED = Fault(1, "ValueError")
STRUCK = StruckGpu(index=0, uuid="GPU-1", xid=31)


@pytest.mark.parametrize(("failures", "waited"), [(0, 0.0), (1, 10.0), (2, 20.0), (3, 30.0), (10**6, 30.0)])
def test_the_first_failure_costs_no_wait_and_each_further_one_twice_as_much_up_to_the_longest(
    failures: int, waited: float
) -> None:
    assert backoff.seconds(failures, FAILED, LIMITS) == waited


@given(st.integers(0, 100), st.floats(1.0, 1e5), st.floats(1.0, 1e5), st.floats(1.0, 1e5))
def test_no_wait_is_longer_than_others_stand_by(failures: int, first: float, longest: float, patience: float) -> None:
    limits = replace(LIMITS, backoff=first, longest_backoff=longest, patience=patience)
    assert backoff.seconds(failures, FAILED, limits) <= patience


@pytest.mark.parametrize(
    ("fault", "own"),
    [
        (FAILED, True),
        (Fault(137, "killed"), True),
        (Fault(83, "no step", sure=False), True),
        (Fault(1, "leaves", lost=True), False),
        (Fault(82, "lost a peer"), False),
        (Fault(81, "Xid 31", gpu=STRUCK), False),
        (Fault(86, "the gang can train on 4 nodes instead of 3"), False),
    ],
)
def test_only_what_the_program_did_itself_is_waited_for(fault: Fault, *, own: bool) -> None:
    assert (backoff.seconds(1, fault, LIMITS) > 0) is own


class Alone:
    """The leader of a gang of one pod, which says what is so at once."""

    def __init__(self) -> None:
        self.leader = Leader(term=1, gang=Membership(nodes=1), limits=LIMITS, now=0.0)
        self._said = 0

    def fail(self, now: float, *, step: int = -1, fault: Fault = FAILED) -> None:
        """Its ranks end after this step; a tenth of a second later none of them is left."""
        self._say(now, fault=fault, step=step, running=True)
        self._say(now + 0.1, fault=fault, step=step)

    def trains(self, now: float) -> bool:
        """Whether it is to train by then."""
        self.leader.turn(now)
        return self.leader.order.wanted is Wanted.TRAIN

    def _say(self, now: float, **what: object) -> None:
        self._said += 1
        newest = max(self.leader.order.round, FIRST)
        said = Report(0, "zero", 1, self._said, round=newest, able=True)
        self.leader.hear(replace(said, **what), now)  # type: ignore[arg-type]
        self.leader.turn(now)


def test_a_second_failure_without_a_newer_step_waits_and_one_after_a_newer_step_does_not() -> None:
    gang = Alone()
    gang.fail(1.0, step=5)
    assert gang.trains(1.2), "the first"
    gang.fail(2.0, step=5)
    assert not gang.trains(11.9)
    assert gang.trains(12.0)
    gang.fail(13.0, step=4)
    assert not gang.trains(32.9)
    assert gang.trains(33.0)
    gang.fail(34.0, step=6)
    assert gang.trains(34.2), "a newer step forgets what was before"


def test_what_a_gpu_did_between_two_failures_waits_for_nothing_and_is_none_of_them() -> None:
    gang = Alone()
    gang.fail(1.0, step=5)
    gang.fail(2.0, step=5, fault=Fault(81, "Xid 31", gpu=STRUCK))
    assert gang.trains(2.2)
    gang.fail(3.0, step=5)
    assert not gang.trains(12.9)
    assert gang.trains(13.0)


def test_a_program_that_comes_no_further_is_given_up_without_a_wait() -> None:
    gang = Alone()
    gang.fail(1.0)
    assert gang.trains(1.2)
    gang.fail(2.0)
    assert gang.trains(12.0)
    gang.fail(13.0)
    assert gang.leader.order.wanted is Wanted.LEAVE
