"""A leader starts a round when the gang is whole, ends it for the best reason, and knows when to give up."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oarlock_trainer.agent.rounds.leader import Leader
from oarlock_trainer.agent.rounds.membership import Membership
from oarlock_trainer.agent.rounds.model import FIRST, NONE, Fault, Limits, Place, Report, Round, Wanted
from oarlock_trainer.checkpoint.memory.held import Held

PAIR = Membership(nodes=2)
LIMITS = Limits(lease=5.0, kill=2.0, patience=60.0, fruitless=3)
ZERO = Report(rank=0, agent="zero", incarnation=1, sequence=1, round=Round(2, 0), able=True)
ONE = replace(ZERO, rank=1, agent="one")


def gathered(*reports: Report) -> Leader:
    """A second leader of two that heard these at time 1 and took its turn."""
    leader = Leader(term=2, gang=PAIR, limits=LIMITS, now=0.0)
    hear(leader, 1.0, *reports)
    return leader


def hear(leader: Leader, now: float, *reports: Report) -> None:
    """Reports that come at once, then a turn."""
    for report in reports:
        assert leader.hear(report, now) == ""
    leader.turn(now)


def lacks(leader: Leader, now: float) -> dict[int, str]:
    """Rank -> why the next round does not start with it."""
    return {rank: lack.why for rank, lack in leader.missing(now).items()}


def running(report: Report, sequence: int = 2, **changes: object) -> Report:
    """The same member later, its ranks of the first round running."""
    return replace(report, sequence=sequence, round=Round(2, 1), running=True, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("one", "why"),
    [
        (replace(ONE, able=False), "is not ready"),
        (replace(ONE, round=NONE), "still ends its ranks"),
        (replace(ONE, running=True), "still ends its ranks"),
        (replace(ONE, incarnation=2, follows_the_dead=False), "follows a pod that may still run"),
    ],
)
def test_a_round_waits_for_the_one_that_is_not_ready_and_says_why(one: Report, why: str) -> None:
    leader = gathered(ZERO, one)
    assert leader.order.wanted is Wanted.STAND_BY
    assert lacks(leader, 1.0) == {1: why}


def test_a_member_that_has_fallen_silent_is_waited_for() -> None:
    leader = Leader(term=2, gang=PAIR, limits=LIMITS, now=0.0)
    leader.hear(ONE, 1.0)
    hear(leader, 6.1, ZERO)
    assert lacks(leader, 6.1) == {1: "is not there"}


def test_the_gang_is_given_up_when_patience_ends_and_the_one_that_is_missing_is_named() -> None:
    leader = gathered(ZERO)
    hear(leader, 60.1, replace(ZERO, sequence=2))
    assert (leader.order.wanted, leader.order.code) == (Wanted.LEAVE, 82)
    assert "pod 1 is not there" in leader.order.why


def failed(code: int, why: str) -> Leader:
    """A leader of a round that ended: rank 0's member says that it lost a peer, rank 1's then this."""
    leader = gathered(ZERO, ONE)
    hear(leader, 2.0, running(ZERO), running(ONE))
    hear(leader, 2.1, running(ZERO, 3, fault=Fault(82, "lost a peer")))
    assert leader.order.wanted is Wanted.TRAIN, "somebody may know why"
    hear(leader, 3.2)
    assert leader.order.wanted is Wanted.STAND_BY
    hear(leader, 3.3, running(ONE, 3, fault=Fault(code, why)))
    return leader


def stand_by(leader: Leader, now: float) -> None:
    """Both say that nothing of the round runs any more."""
    hear(leader, now, replace(running(ZERO, 9), running=False), replace(running(ONE, 9), running=False))


def test_a_reason_of_its_own_counts_for_more_than_the_loss_of_a_peer_that_came_before() -> None:
    leader = failed(1, "ValueError")
    assert (leader.order.round, leader.order.wanted) == (Round(2, 1), Wanted.STAND_BY)
    stand_by(leader, 3.4)
    assert (leader.order.round, leader.order.wanted) == (Round(2, 2), Wanted.TRAIN)
    assert (leader.ended[0].rank, leader.ended[0].fault.code) == (1, 1)


@pytest.mark.parametrize(
    ("first", "second", "blamed"),
    [
        (Fault(83, "no step", sure=False), Fault(83, "rank 1 is stopped"), 1),
        (Fault(83, "rank 0 is stopped"), Fault(83, "no step", sure=False), 0),
        (Fault(82, "lost a peer"), Fault(83, "no step", sure=False), 1),
        (Fault(137, "killed"), Fault(83, "rank 1 is stopped"), 0),
    ],
    ids=["a hang by the one that hangs", "that is said first", "a victim by a hang", "a hang by nobody that failed"],
)
def test_the_cause_that_is_told_is_the_one_that_tells_most(first: Fault, second: Fault, blamed: int) -> None:
    leader = gathered(ZERO, ONE)
    hear(leader, 2.0, running(ZERO, fault=first), running(ONE))
    hear(leader, 2.1, running(ONE, 3, fault=second))
    hear(leader, 4.0)
    stand_by(leader, 4.1)
    assert leader.ended[0].rank == blamed


def test_what_another_round_would_only_repeat_ends_the_attempt() -> None:
    leader = failed(85, "no such file")
    assert (leader.order.wanted, leader.order.code, leader.order.why) == (Wanted.LEAVE, 85, "no such file")


def test_the_first_round_of_a_gang_needs_no_order_and_ends_as_any_other() -> None:
    leader = Leader(term=1, gang=PAIR, limits=LIMITS, now=0.0)
    zero, one = replace(ZERO, round=NONE), replace(ONE, round=NONE)
    hear(leader, 1.0, zero)
    assert (leader.order.round, leader.order.wanted) == (FIRST, Wanted.TRAIN)
    hear(leader, 2.0, replace(zero, sequence=2, round=FIRST, running=True, fault=Fault(137, "killed")))
    assert (leader.order.round, leader.order.wanted) == (FIRST, Wanted.STAND_BY)
    hear(leader, 3.0, replace(zero, sequence=3, round=FIRST), one)
    assert lacks(leader, 3.0) == {1: "still ends its ranks"}, "it has not promised not to begin"
    hear(leader, 4.0, replace(one, sequence=2, round=FIRST))
    assert (leader.order.round, leader.order.members) == (Round(1, 2), (Place(0, "zero"), Place(1, "one")))


NEXT = replace(ONE, agent="next", incarnation=2, round=Round(2, 1))
LOST = Fault(82, "pod 1's agent has been silent for 5.1 s", lost=True)


def test_a_lost_pod_ends_the_round_at_once_and_is_the_reason_whatever_others_say_after_it() -> None:
    leader = gathered(ZERO, ONE)
    hear(leader, 2.0, running(ZERO), running(ONE))
    leader.lose(1, 1, LOST, 2.0)
    hear(leader, 2.1, running(ZERO, 3, fault=Fault(1, "connection reset by peer")))
    assert (leader.order.wanted, leader.order.why) == (Wanted.STAND_BY, LOST.why)
    hear(leader, 2.2, replace(running(ZERO, 9), running=False))
    assert lacks(leader, 2.2) == {1: "is not there"}
    hear(leader, 3.0, NEXT)
    assert (leader.order.round, leader.order.members) == (Round(2, 2), (Place(0, "zero"), Place(1, "next")))
    assert (leader.ended[0].rank, leader.ended[0].fault, leader.ended[0].replaced) == (1, LOST, True)


def test_a_pod_that_is_lost_while_the_others_say_why_they_failed_is_why_they_did() -> None:
    leader = failed(1, "connection reset by peer")
    leader.lose(1, 1, LOST, 3.3)
    hear(leader, 3.4, replace(running(ZERO, 9), running=False), NEXT)
    assert leader.ended[0].fault == LOST


def test_a_pod_whose_next_one_is_there_before_it_is_missed_is_why_the_others_failed() -> None:
    leader = failed(82, "lost a peer")
    hear(leader, 3.4, replace(running(ZERO, 9), running=False), NEXT)
    assert (leader.ended[0].rank, leader.ended[0].replaced) == (1, True)


def test_a_pod_that_is_lost_after_its_ranks_were_gone_is_not_why_the_round_ended() -> None:
    leader = failed(1, "ValueError")
    hear(leader, 3.4, replace(running(ONE, 4, fault=Fault(1, "ValueError")), running=False))
    leader.lose(1, 1, LOST, 3.3)
    hear(leader, 3.5, replace(running(ZERO, 9), running=False), NEXT)
    assert leader.ended[0].fault == Fault(1, "ValueError")


GHOSTLY = replace(NEXT, round=FIRST, follows_the_dead=False)


LINKED = replace(LIMITS, linked=True)


def first_leader() -> Leader:
    """Of two that train."""
    leader = Leader(term=1, gang=PAIR, limits=LINKED, now=0.0)
    for report in (ZERO, ONE):
        leader.hear(replace(report, round=FIRST, running=True), 1.0)
    return leader


def test_the_first_leader_waits_until_the_pod_that_it_lost_has_no_lease_and_no_longer_for_the_next_one() -> None:
    leader = first_leader()
    leader.lose(1, 1, LOST, 10.0)
    hear(leader, 10.0, replace(ZERO, sequence=2, round=FIRST))
    hear(leader, 10.0 + LIMITS.silence, GHOSTLY)
    assert lacks(leader, 10.0 + LIMITS.silence) == {1: "follows a pod that may still run"}
    leader.turn(10.1 + LIMITS.silence)
    assert (leader.order.wanted, leader.order.members) == (Wanted.TRAIN, (Place(0, "zero"), Place(1, "next")))


def test_a_pod_that_the_first_leader_has_not_lost_keeps_its_lease_until_the_next_one_is_heard() -> None:
    leader = first_leader()
    hear(leader, 10.0, replace(ZERO, sequence=2, round=FIRST), GHOSTLY)
    hear(leader, 10.0, replace(ZERO, sequence=3, round=FIRST))
    assert lacks(leader, 10.0 + LIMITS.silence) == {1: "follows a pod that may still run"}
    assert lacks(leader, 10.1 + LIMITS.silence) == {}


def test_a_later_leader_also_waits_for_a_pod_that_an_earlier_one_may_have_answered() -> None:
    leader = Leader(term=2, gang=PAIR, limits=LINKED, now=0.0)
    hear(leader, 1.0, ZERO)
    hear(leader, 2.0, replace(NEXT, follows_the_dead=False))
    assert lacks(leader, 2.0 + LIMITS.lease + LIMITS.silence) == {1: "follows a pod that may still run"}
    assert lacks(leader, 2.1 + LIMITS.lease + LIMITS.silence) == {}


def test_the_loss_of_a_pod_that_was_replaced_already_is_no_news() -> None:
    leader = gathered(ZERO, replace(ONE, agent="next", incarnation=2))
    leader.lose(1, 1, LOST, 2.0)
    leader.turn(2.0)
    assert leader.order.wanted is Wanted.TRAIN


def test_ranks_that_cannot_be_killed_are_waited_for_less_long_than_a_pod() -> None:
    leader = failed(1, "ValueError")
    hear(leader, 3.2 + LIMITS.clearing, replace(running(ZERO, 9), running=False))
    assert leader.order.wanted is Wanted.STAND_BY
    leader.lose(1, 1, LOST, 3.3 + LIMITS.clearing)
    leader.turn(3.3 + LIMITS.clearing)
    assert leader.order.wanted is Wanted.STAND_BY, "a pod takes longer"
    leader.hear(running(ONE, 10), 3.3 + LIMITS.clearing)
    leader.turn(3.3 + LIMITS.clearing)
    assert "pod 1 still ends its ranks" in leader.order.why


def test_a_report_that_was_overtaken_takes_nothing_back() -> None:
    leader = gathered(ZERO, ONE)
    hear(leader, 2.0, running(ONE, sequence=3))
    hear(leader, 2.1, replace(ONE, sequence=2, fault=Fault(1, "of the past"), round=Round(2, 1)))
    assert leader.order.wanted is Wanted.TRAIN


def test_a_second_agent_of_a_rank_is_refused_unless_the_operator_made_its_pod_later() -> None:
    leader = gathered(ZERO, ONE)
    assert leader.hear(replace(ONE, agent="other"), 2.0) == "another agent is that of pod 1"
    assert leader.hear(replace(ONE, agent="later", incarnation=2), 2.0) == ""


def test_the_next_round_resumes_from_the_newest_step_that_all_parts_are_there_of() -> None:
    zero = replace(ZERO, held=(Held(40, 2, (0, 1)), Held(50, 2, (0,))))
    one = replace(ONE, held=(Held(45, 2, (1,)), Held(50, 2, (1,)), Held(60, 2, (1,))))
    assert gathered(zero, one).order.step == 50
    assert gathered(ZERO, one).order.step is None


def test_a_copy_that_has_not_come_back_to_its_node_is_not_gone_on_from() -> None:
    zero = replace(ZERO, held=(Held(50, 2, (0, 1)), Held(40, 2, (0, 1))))
    assert gathered(zero, replace(ONE, held=(Held(40, 2, (0, 1)),))).order.step == 40
    assert gathered(zero, replace(ONE, held=(Held(50, 2, (0,)),))).order.step is None


SPARED = Membership(nodes=2, spares=1)


def went_on(*held: tuple[Held, ...], gang: Membership = SPARED) -> Leader:
    """The first leader of two and a spare, after pod 1 was lost; what pods have in memory, by their ranks."""
    leader = Leader(term=1, gang=gang, limits=LINKED, now=0.0)
    pods = [Report(rank=rank, agent=str(rank), incarnation=1, sequence=1, able=True) for rank in range(gang.pods)]
    hear(leader, 1.0, *(replace(pod, round=FIRST, running=True) for pod in pods[:2]), *pods[2:])
    leader.lose(1, 1, LOST, 2.0)
    leader.turn(2.0)
    leader.turn(10.0)  # nothing of it runs any more
    there = [pod for pod in pods if pod.rank != 1]
    hear(leader, 10.0, *(replace(pod, sequence=2, round=FIRST, held=held[pod.rank]) for pod in there))
    return leader


def test_where_a_spare_takes_a_place_a_copy_at_another_member_is_gone_on_from() -> None:
    leader = went_on((Held(40, 2, (0, 1)), Held(50, 2, (0, 1))), (), ())
    assert ([place.rank for place in leader.order.members], leader.order.step) == ([0, 2], 50)
    assert went_on((Held(40, 2, (0, 1)), Held(50, 2, (0,))), (), ()).order.step == 40
    assert went_on((Held(50, 2, (0,)),), (), ()).order.step is None


def test_what_a_pod_holds_that_the_last_round_was_not_of_is_not_gone_on_from() -> None:
    leader = went_on((Held(50, 2, (0, 1)),), (), ())
    again = [Report(rank=rank, agent=str(rank), incarnation=1, sequence=3, round=Round(1, 2)) for rank in (0, 1, 2)]
    hear(leader, 11.0, *(replace(one, running=True, able=True) for one in (again[0], again[2])))
    stale = replace(again[1], able=True, held=(Held(50, 2, (1,)),))
    leader.hear(stale, 12.0)
    leader.lose(2, 1, LOST, 12.0)
    leader.turn(12.0)
    leader.turn(20.0)
    hear(leader, 20.0, replace(again[0], sequence=4, able=True, held=(Held(50, 2, (0,)),)))
    assert ([place.rank for place in leader.order.members], leader.order.step) == ([0, 1], None)


@pytest.mark.parametrize(
    ("held", "step", "made_by"),
    [((50, 2, (0, 1)), 50, 2), ((50, 2, (0,)), None, 0), ((50, 1, (0,)), 50, 0), ((50, 3, (0, 1)), None, 0)],
)
def test_a_smaller_round_goes_on_from_a_step_in_memory_that_all_parts_are_there_of(
    held: tuple[int, int, tuple[int, ...]], step: int | None, made_by: int
) -> None:
    leader = went_on((Held(*held),), (), gang=Membership(nodes=2, least=1, patience=3.0))
    assert [place.rank for place in leader.order.members] == [0]
    assert (leader.order.step, leader.order.made_by) == (step, made_by)


@pytest.mark.parametrize(("saved", "step"), [(49, 50), (50, 50), (51, None)])
def test_nobody_goes_on_from_a_step_in_memory_that_a_checkpoint_has_passed(saved: int, step: int | None) -> None:
    leader = gathered(replace(ZERO, held=(Held(50, 2, (0,)),), saved=saved), replace(ONE, held=(Held(50, 2, (1,)),)))
    assert (leader.order.wanted, leader.order.step) == (Wanted.TRAIN, step)


@pytest.mark.parametrize(("own", "step"), [(-1, None), (40, 50), (0, 50)])
def test_a_new_rank_0_that_has_heard_of_no_checkpoint_believes_the_others(own: int, step: int | None) -> None:
    leader = gathered(
        replace(ZERO, held=(Held(50, 2, (0,)),), saved=own), replace(ONE, held=(Held(50, 2, (1,)),), saved=51)
    )
    assert (leader.order.wanted, leader.order.step) == (Wanted.TRAIN, step)


def test_a_leader_that_hears_of_a_later_one_orders_nothing_more() -> None:
    leader = gathered(ZERO)
    leader.hear(replace(ONE, round=Round(3, 1)), 2.0)
    leader.turn(100.0)
    assert leader.deposed
    assert leader.order.wanted is Wanted.STAND_BY
