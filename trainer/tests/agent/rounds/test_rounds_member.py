"""A member obeys the newest order, and holds its right to run ranks by answers to what it said itself."""

from __future__ import annotations

from oarlock_trainer.agent.rounds.member import Member
from oarlock_trainer.agent.rounds.model import Fault, Kill, Leave, Limits, Order, Place, Round, Start, Wanted, Yield

LIMITS = Limits(lease=5.0, kill=2.0, patience=60.0)
BOTH = (Place(0, "zero"), Place(1, "one"))
FIRST = Order(Round(1, 1), Wanted.TRAIN, BOTH)


def member() -> Member:
    """Rank 1's, made at time 0."""
    return Member(rank=1, agent="one", incarnation=1, limits=LIMITS, now=0.0)


def training() -> Member:
    """With its ranks of the first round running since time 1."""
    one = member()
    assert one.hear(FIRST, one.report(1.0).sequence, 1.0) == [Start(FIRST)]
    return one


def test_a_lease_counts_from_when_the_answered_report_was_sent() -> None:
    one = training()
    answered = one.report(2.0).sequence
    one.report(5.0)
    one.hear(FIRST, answered, 6.9)  # long under way
    assert one.turn(6.9) == []
    assert [type(action) for action in one.turn(7.1)] == [Kill]


def test_an_order_to_train_that_answers_only_an_old_report_is_not_obeyed() -> None:
    one = member()
    sent = one.report(1.0).sequence
    assert one.hear(FIRST, sent, 6.1) == []
    assert not one.running


def test_what_is_heard_again_or_too_late_changes_nothing() -> None:
    one = training()
    heard = one.report(2.0).sequence
    stop = Order(FIRST.round, Wanted.STAND_BY, why="rank 0 failed")
    assert one.hear(FIRST, heard, 2.0) == []
    assert one.hear(stop, heard, 2.1) == [Kill("rank 0 failed")]
    one.gone()
    assert one.hear(FIRST, heard, 2.2) == []
    assert not one.report(2.3).running


def test_the_first_round_begins_without_a_word_and_not_after_one() -> None:
    one = member()
    one.hear(Order(FIRST.round, Wanted.TRAIN), one.report(1.0).sequence, 1.0)
    assert one.begins(1.0)
    assert not one.begins(1.0)
    assert one.report(1.1).running
    other = member()
    other.hear(Order(FIRST.round, Wanted.STAND_BY), other.report(1.0).sequence, 1.0)
    assert not other.begins(1.0)
    replaced = Member(rank=1, agent="one", incarnation=2, limits=LIMITS, now=0.0)
    assert not replaced.begins(1.0)


def test_the_first_round_does_not_begin_while_the_leader_may_have_given_its_member_up() -> None:
    one = member()
    one.report(1.0)
    assert not one.begins(5.1)
    one.answered(4.0)
    assert one.begins(5.2)


def test_whoever_was_told_to_stand_by_never_starts_that_round() -> None:
    one = member()
    heard = one.report(1.0).sequence
    one.hear(Order(Round(2, 0), Wanted.STAND_BY), heard, 1.0)
    assert one.hear(FIRST, heard, 1.1) == []
    assert one.report(1.2).round == Round(2, 0)


def test_the_first_reason_of_a_round_is_the_one_that_is_told() -> None:
    one = training()
    one.failed(Fault(81, "XID 31"))
    one.failed(Fault(82, "lost a peer"))
    assert one.report(2.0).fault == Fault(81, "XID 31")


def test_a_victim_that_finds_a_reason_of_its_own_tells_that_one() -> None:
    one = training()
    one.failed(Fault(82, "lost a peer"))
    one.failed(Fault(1, "ValueError"))
    assert one.report(2.0).fault == Fault(1, "ValueError")


def test_a_round_begins_without_the_reasons_of_the_one_before() -> None:
    one = training()
    one.failed(Fault(81, "XID 31"))
    one.gone()
    second = Order(Round(1, 2), Wanted.TRAIN, BOTH)
    assert one.hear(second, one.report(3.0).sequence, 3.0) == [Start(second)]
    assert one.report(3.1).fault is None


def test_a_member_that_nobody_answers_leaves_when_patience_ends() -> None:
    one = member()
    assert one.turn(60.0) == []
    (left,) = one.turn(60.1)
    assert isinstance(left, Leave)
    assert left.code == 82


def test_a_beat_that_was_answered_holds_the_lease_as_a_report_does() -> None:
    one = training()
    one.answered(5.0)
    one.answered(4.0)
    assert one.turn(9.9) == []
    assert [type(action) for action in one.turn(10.1)] == [Kill]


def test_a_later_leader_hears_how_many_rounds_there_were_though_it_asks_only_for_the_promise() -> None:
    one = member()
    one.hear(Order(Round(1, 7), Wanted.TRAIN, BOTH), one.report(1.0).sequence, 1.0)
    one.hear(Order(Round(3, 0), Wanted.STAND_BY), one.report(2.0).sequence, 2.0)
    assert one.report(2.1).round == Round(3, 7)


def test_ranks_that_are_to_yield_end_by_themselves_and_until_then_are_told_so_again() -> None:
    one = training()
    more = Order(FIRST.round, Wanted.YIELD, BOTH, why="a third pod is there")
    heard = one.report(2.0).sequence
    assert one.hear(more, heard, 2.0) == [Yield(more.why)] == one.hear(more, heard, 2.1)
    assert one.report(2.2).running
    one.gone()
    assert one.hear(more, heard, 2.3) == []
    assert not one.report(2.4).running


def test_whoever_was_told_to_yield_never_starts_that_round() -> None:
    one = member()
    heard = one.report(1.0).sequence
    assert one.hear(Order(FIRST.round, Wanted.YIELD, BOTH), heard, 1.0) == []
    assert one.hear(FIRST, heard, 1.1) == []
    assert one.report(1.2).round == FIRST.round


def test_a_fault_while_the_ranks_yield_kills_them() -> None:
    one = training()
    heard = one.report(2.0).sequence
    one.hear(Order(FIRST.round, Wanted.YIELD, BOTH), heard, 2.0)
    assert one.hear(Order(FIRST.round, Wanted.STAND_BY, why="rank 0 failed"), heard, 2.1) == [Kill("rank 0 failed")]


def test_a_pod_that_a_round_begins_without_tells_of_nothing_in_its_memory_any_more() -> None:
    pod = member()
    pod.held = ((5, (1,)),)
    assert pod.hear(Order(Round(1, 2), Wanted.TRAIN, (Place(0, "zero"), Place(2, "two"))), 1, 1.0) == []
    assert pod.report(1.1).held == ()


def test_a_pod_that_hears_of_a_round_only_when_it_is_over_holds_nothing_of_it() -> None:
    pod = training()
    pod.gone()
    pod.held = ((5, (1,)),)
    pod.hear(Order(Round(1, 1), Wanted.STAND_BY), pod.report(2.0).sequence, 2.0)
    assert pod.report(2.1).held, "its own round"
    pod.hear(Order(Round(2, 0), Wanted.STAND_BY), pod.report(3.0).sequence, 3.0)
    assert pod.report(3.1).held, "a later leader that knows of no round yet"
    pod.hear(Order(Round(2, 2), Wanted.STAND_BY), pod.report(4.0).sequence, 4.0)
    assert pod.report(4.1).held == ()
    assert pod.outdated


def test_what_ended_its_ranks_is_not_told_of_a_later_round_that_a_pod_only_hears_the_end_of() -> None:
    pod = training()
    pod.step = 100
    pod.failed(Fault(81, "XID 94"))
    pod.gone()
    pod.hear(Order(Round(1, 2), Wanted.STAND_BY, why="rank 0 failed"), pod.report(2.0).sequence, 2.0)
    pod.step = 100  # as the agent sets it again and again
    told = pod.report(2.1)
    assert (told.round, told.fault, told.step) == (Round(1, 2), None, -1)
    pod.hear(Order(Round(1, 3), Wanted.TRAIN, BOTH), pod.report(3.0).sequence, 3.0)
    pod.failed(Fault(137, "killed"))
    assert pod.report(3.1).fault == Fault(137, "killed")


def test_a_later_leader_that_gathers_is_told_how_far_the_last_round_came() -> None:
    pod = training()
    pod.step = 100
    pod.hear(Order(Round(2, 0), Wanted.STAND_BY), pod.report(2.0).sequence, 2.0)
    assert (pod.report(2.1).round, pod.report(2.1).step) == (Round(2, 1), 100)


def test_what_a_pod_holds_is_outdated_by_a_later_leaders_round_of_the_same_number() -> None:
    pod = training()
    pod.gone()
    pod.held = ((5, (1,)),)
    pod.hear(Order(Round(2, 1), Wanted.STAND_BY), pod.report(2.0).sequence, 2.0)
    assert pod.outdated
    assert pod.report(2.1).held == ()


def test_a_spare_does_not_begin_the_first_round_and_starts_only_what_has_a_place_for_it() -> None:
    spare = Member(rank=2, agent="two", incarnation=1, limits=LIMITS, now=0.0, first=False)
    heard = spare.report(1.0).sequence
    assert not spare.begins(1.0)
    assert spare.hear(FIRST, heard, 1.0) == []
    second = Order(Round(1, 2), Wanted.TRAIN, (Place(0, "zero"), Place(2, "two")))
    assert spare.hear(second, heard, 1.1) == [Start(second)]
