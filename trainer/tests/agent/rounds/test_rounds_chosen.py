"""A leader of more pods than train, or of fewer than there should be: whom it waits for, and when a round grows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oarlock_trainer.agent.rounds.leader import Leader
from oarlock_trainer.agent.rounds.membership import Membership
from oarlock_trainer.agent.rounds.model import FIRST, NONE, Fault, Limits, Report, Round, Wanted
from oarlock_trainer.checkpoint.memory.held import Held

LIMITS = Limits(lease=5.0, kill=2.0, patience=60.0, fruitless=3, yielding=100.0, linked=True)
SPARE = Membership(nodes=2, spares=1)
ELASTIC = Membership(nodes=4, least=2, patience=10.0)
LOST = Fault(82, "silent", lost=True)
ASKED = Fault(86, "it was asked to go", lost=True)
BROKEN = Fault(80, "GPU 3 fell off the bus")


class Gang:
    """A leader and what its pods report: all that train have done step 9 of the first round at second 1."""

    def __init__(self, gang: Membership, *, term: int = 1) -> None:
        self.leader = Leader(term=term, gang=gang, limits=LIMITS, now=0.0)
        self.now = 1.0
        self.pods = {
            rank: Report(rank, f"{rank}-1", 1, 1, round=FIRST, running=True, able=True, step=9)
            for rank in range(gang.nodes)
        }
        for rank in range(gang.nodes, gang.pods):
            self.pods[rank] = Report(rank, f"{rank}-1", 1, 1, able=True)
        if term == 1:
            self.tell(*self.pods)

    def tell(self, *ranks: int, at: float | None = None, **changes: object) -> None:
        """These pods report what has become of them, and the leader takes its turn."""
        self.now = self.now if at is None else at
        for rank in ranks:
            report = self.pods[rank]
            self.pods[rank] = replace(report, sequence=report.sequence + 1, **changes)  # type: ignore[arg-type]
            assert self.leader.hear(self.pods[rank], self.now) == ""
        self.leader.turn(self.now)

    def lose(self, *ranks: int, at: float, fault: Fault = LOST, over: bool = False) -> None:
        """The link loses them; the ranks of all others are killed at once."""
        for rank in ranks:
            self.leader.lose(rank, self.pods[rank].incarnation, fault, at, over=over)
        left = [rank for rank, pod in self.pods.items() if pod.running and rank not in ranks]
        self.leader.turn(at)
        self.tell(*left, at=at, running=False)

    def train(self, *, step: int) -> None:
        """The members of the newest round start it, and do that step."""
        members = [place.rank for place in self.leader.order.members]
        self.tell(*members, round=self.leader.order.round, running=True, step=step)

    def come(self, rank: int, *, at: float, **changes: object) -> None:
        """The next incarnation of a rank's pod is there, and able."""
        pod = self.pods[rank]
        self.pods[rank] = Report(rank, f"{rank}-{pod.incarnation + 1}", pod.incarnation + 1, 0, round=NONE)
        self.tell(rank, at=at, able=True, **changes)

    @property
    def order(self) -> tuple[Round, Wanted, tuple[int, ...]]:
        order = self.leader.order
        return order.round, order.wanted, tuple(place.rank for place in order.members)


SECOND = Round(1, 2)


def test_the_place_of_a_lost_pod_goes_to_a_spare_once_nothing_of_it_can_run() -> None:
    gang = Gang(SPARE)
    gang.lose(1, at=2.0)
    gang.tell(at=2.0 + LIMITS.silence)
    assert gang.leader.order.wanted is Wanted.STAND_BY
    gang.tell(at=2.1 + LIMITS.silence)
    assert gang.order == (SECOND, Wanted.TRAIN, (0, 2))
    assert gang.leader.unusual_members == (0, 2)
    (end,) = gang.leader.ended
    assert (end.rank, end.replaced, end.spare, end.nodes) == (1, True, True, None)


def test_a_spare_waits_for_the_lease_of_a_lost_pod_also_where_the_next_one_is_there_and_not_ready() -> None:
    gang = Gang(SPARE)
    gang.pods[1] = Report(1, "1-2", 2, 1, round=FIRST, follows_the_dead=False)
    gang.tell(1, at=2.0)
    gang.tell(0, running=False)
    gang.tell(at=2.0 + LIMITS.silence)
    assert gang.leader.order.wanted is Wanted.STAND_BY
    gang.tell(at=2.1 + LIMITS.silence)
    assert gang.order == (SECOND, Wanted.TRAIN, (0, 2))


def test_a_spare_takes_the_place_at_once_of_a_pod_that_leaves_when_none_of_its_ranks_is_left() -> None:
    gang = Gang(SPARE)
    gang.tell(1, at=2.0, fault=BROKEN)
    assert (gang.leader.order.wanted, gang.leader.order.why) == (Wanted.STAND_BY, BROKEN.why)
    gang.lose(1, at=2.3, fault=replace(BROKEN, lost=True), over=True)
    assert gang.order == (SECOND, Wanted.TRAIN, (0, 2))
    (end,) = gang.leader.ended
    assert (end.rank, end.fault.code, end.replaced, end.spare) == (1, 80, True, True)


def test_a_spare_takes_the_place_at_once_of_a_pod_that_is_lost_after_it_promised() -> None:
    gang = Gang(SPARE)
    gang.tell(0, at=2.0, fault=Fault(137, "killed"))
    gang.tell(1, running=False)
    gang.leader.lose(1, 1, ASKED, 2.5)
    gang.tell(0, at=3.0, running=False)
    assert gang.order == (SECOND, Wanted.TRAIN, (0, 2))
    (end,) = gang.leader.ended
    assert (end.rank, end.fault.code, end.replaced) == (0, 137, False)


def test_a_spare_takes_the_place_at_once_of_a_pod_whose_end_was_seen_by_whoever_made_the_next_one() -> None:
    gang = Gang(SPARE)
    gang.pods[1] = Report(1, "1-2", 2, 1, round=FIRST, follows_the_dead=True)
    gang.tell(1, at=2.0)  # long before it is able
    gang.tell(0, running=False)
    assert gang.order == (SECOND, Wanted.TRAIN, (0, 2))


@pytest.mark.parametrize("said", [{"over": True}, {}], ids=["it leaves without ranks", "it has promised"])
def test_a_spare_waits_for_the_lease_of_a_pod_that_nobody_saw_end_though_the_next_one_is_known_to_have_ended(
    said: dict[str, bool],
) -> None:
    gang = Gang(SPARE)
    gang.lose(1, at=2.0)
    gang.come(1, at=3.0, follows_the_dead=False)
    gang.tell(1, round=FIRST)
    gang.lose(1, at=4.0, **said)
    gang.tell(at=2.0 + LIMITS.silence)
    assert gang.leader.order.wanted is Wanted.STAND_BY
    gang.tell(at=2.1 + LIMITS.silence)
    assert gang.order == (SECOND, Wanted.TRAIN, (0, 2))


def test_the_last_word_of_a_pod_that_never_reported_says_nothing_of_the_one_before_it() -> None:
    gang = Gang(SPARE)
    gang.lose(1, at=2.0)
    gang.leader.lose(1, 2, replace(BROKEN, lost=True), 3.0, over=True)
    gang.tell(at=3.0 + LIMITS.silence)
    assert gang.leader.order.wanted is Wanted.STAND_BY


def test_a_pod_whose_ranks_failed_keeps_its_place_and_is_waited_for_though_a_spare_is_able() -> None:
    gang = Gang(SPARE)
    gang.tell(1, at=2.0, fault=Fault(137, "killed"))
    gang.tell(0, at=3.0, running=False)
    gang.tell(at=3.0 + LIMITS.silence + 1.0)
    assert gang.leader.order.wanted is Wanted.STAND_BY
    gang.tell(1, running=False)
    assert gang.order == (SECOND, Wanted.TRAIN, (0, 1))
    assert not gang.leader.ended[0].spare


def test_a_pod_that_comes_back_where_a_spare_trains_stands_by_and_is_the_next_to_take_a_place() -> None:
    gang = Gang(SPARE)
    gang.lose(1, at=2.0)
    gang.tell(at=10.0)
    gang.train(step=20)
    gang.come(1, at=30.0)
    assert gang.order == (SECOND, Wanted.TRAIN, (0, 2))
    gang.lose(2, at=40.0)
    gang.tell(at=50.0)
    assert gang.order == (Round(1, 3), Wanted.TRAIN, (0, 1))


def test_nothing_that_befalls_a_pod_without_a_place_ends_the_round() -> None:
    gang = Gang(SPARE)
    gang.tell(2, at=2.0, fault=Fault(1, "ValueError"))
    gang.lose(2, at=3.0, fault=Fault(80, "GPU 3 fell off the bus", lost=True))
    assert set(gang.leader.lost) == {2}
    gang.come(2, at=4.0)
    gang.tell(at=20.0)
    assert gang.order == (FIRST, Wanted.TRAIN, ())
    assert gang.leader.lost == {}


def test_a_pod_that_trains_and_leaves_for_what_another_would_repeat_ends_the_attempt() -> None:
    gang = Gang(SPARE)
    gang.lose(1, at=2.0, fault=Fault(84, "no space left", lost=True))
    assert (gang.leader.order.wanted, gang.leader.order.code, gang.leader.order.why) == (
        Wanted.LEAVE,
        82,
        "no space left",
    )


def test_a_gang_is_done_when_those_that_train_are() -> None:
    gang = Gang(SPARE)
    gang.tell(0, 1, running=False, finished=True)
    assert (gang.leader.order.wanted, gang.leader.order.code) == (Wanted.LEAVE, 0)


def test_a_pod_that_was_never_heard_may_have_begun_the_first_round_and_a_spare_has_not() -> None:
    gang = Gang(replace(ELASTIC, spares=1))
    gang.leader = Leader(term=1, gang=replace(ELASTIC, spares=1), limits=LIMITS, now=0.0)
    gang.tell(0, 1, 2, fault=Fault(137, "killed"))
    gang.tell(0, 1, 2, running=False)
    gang.tell(at=59.0)
    assert gang.leader.order.wanted is Wanted.STAND_BY
    gang.tell(3, running=False, round=FIRST)
    assert gang.order == (SECOND, Wanted.TRAIN, (0, 1, 2, 3))


def shrunken(gang: Membership = ELASTIC) -> Gang:
    """A gang of four that trains on, at step 20 and from second 13, without its pods 1 and 3."""
    small = Gang(gang)
    small.lose(1, 3, at=2.0)
    small.tell(at=2.0 + gang.patience)
    assert small.leader.order.wanted is Wanted.STAND_BY
    small.tell(at=13.0)
    assert small.order == (SECOND, Wanted.TRAIN, (0, 2))
    small.train(step=20)
    return small


def test_after_its_patience_an_elastic_gang_goes_on_with_those_that_are_there() -> None:
    gang = shrunken()
    (end,) = gang.leader.ended
    assert (end.nodes, end.spare, end.replaced) == (2, False, True)


def test_a_gang_that_is_smaller_than_it_may_be_waits_for_as_long_as_pods_stand_by() -> None:
    gang = Gang(ELASTIC)
    gang.lose(1, 2, 3, at=2.0)
    gang.tell(at=62.0)
    assert gang.leader.order.wanted is Wanted.STAND_BY
    gang.tell(at=62.1)
    assert gang.leader.order.wanted is Wanted.LEAVE


def test_a_smaller_round_that_breaks_as_others_are_there_again_is_followed_by_a_whole_one_from_its_memory() -> None:
    gang = shrunken()
    gang.train(step=15)
    gang.tell(2, at=20.0, fault=Fault(1, "the program failed"))
    gang.tell(0, 2, running=False, held=(Held(15, 2, (0, 1)),))
    gang.come(1, at=20.1)
    gang.come(3, at=20.2)
    gang.tell(0, 2, at=40.0)
    assert gang.order == (Round(1, 3), Wanted.TRAIN, (0, 1, 2, 3))
    assert (gang.leader.order.step, gang.leader.order.made_by) == (15, 2)


def test_a_whole_gang_grows_at_once_and_its_next_round_goes_on_from_what_the_ranks_saved() -> None:
    gang = shrunken()
    gang.tell(0, 2, held=(Held(15, 2, (0, 1)),))
    gang.come(1, at=20.0, held=(Held(15, 4, (1,)),))
    assert gang.leader.order.wanted is Wanted.TRAIN
    gang.come(3, at=21.0, held=(Held(15, 4, (3,)),))
    assert gang.order == (SECOND, Wanted.YIELD, (0, 2))
    gang.tell(0, at=22.0, running=False, saved=16)
    assert gang.leader.order.wanted is Wanted.YIELD
    gang.tell(2, running=False)
    assert gang.order == (Round(1, 3), Wanted.TRAIN, (0, 1, 2, 3))
    assert gang.leader.order.step is None
    end = gang.leader.ended[-1]
    assert (end.fault.code, end.rank, end.nodes, end.spare, end.replaced) == (86, 0, 4, False, False)


def test_a_gang_grows_to_less_than_its_full_size_after_its_patience() -> None:
    gang = shrunken()
    gang.come(3, at=20.0)
    gang.tell(at=30.0)
    assert gang.leader.order.wanted is Wanted.TRAIN
    gang.tell(at=30.1)
    assert gang.leader.order.wanted is Wanted.YIELD
    gang.tell(0, 2, at=31.0, running=False)
    assert gang.order == (Round(1, 3), Wanted.TRAIN, (0, 2, 3))


def test_a_gang_does_not_grow_to_a_size_that_its_steps_cannot_be_dealt_to() -> None:
    gang = shrunken(replace(ELASTIC, can_be_dealt=lambda nodes: nodes != 3))
    gang.come(3, at=20.0)
    gang.tell(at=60.0)
    assert gang.leader.order.wanted is Wanted.TRAIN


@pytest.mark.parametrize("fault", [Fault(137, "killed"), LOST])
def test_a_fault_while_ranks_yield_ends_the_round_as_ever(fault: Fault) -> None:
    gang = shrunken()
    gang.come(1, at=20.0)
    gang.come(3, at=20.0)
    assert gang.leader.order.wanted is Wanted.YIELD
    if fault.lost:
        gang.lose(2, at=21.0)
    else:
        gang.tell(2, at=21.0, fault=fault)
    assert (gang.leader.order.wanted, gang.leader.order.why) == (Wanted.STAND_BY, fault.why)


def test_a_pod_that_is_asked_to_go_while_others_end_their_ranks_neither_ended_the_round_nor_costs_its_patience() -> (
    None
):
    gang = Gang(ELASTIC)
    gang.tell(1, at=2.0, fault=Fault(137, "killed"))
    gang.tell(0, 1, 2, running=False)
    gang.leader.lose(3, 1, ASKED, 3.0)
    gang.tell(at=3.1 + LIMITS.silence)
    assert gang.leader.order.wanted is Wanted.STAND_BY, "the next pod 3 may come"
    gang.tell(at=2.1 + ELASTIC.patience)
    assert gang.order == (SECOND, Wanted.TRAIN, (0, 1, 2))
    (end,) = gang.leader.ended
    assert (end.rank, end.fault.code, end.replaced, end.nodes) == (1, 137, False, 3)


def test_a_round_that_ends_as_a_pod_is_asked_to_go_is_followed_by_a_smaller_one_only_after_patience() -> None:
    gang = Gang(ELASTIC)
    gang.lose(3, at=2.0, fault=ASKED)  # its ranks had not begun yet what the others began
    gang.tell(at=2.1 + LIMITS.silence)
    assert gang.leader.order.wanted is Wanted.STAND_BY
    gang.tell(at=2.1 + ELASTIC.patience)
    assert gang.order == (SECOND, Wanted.TRAIN, (0, 1, 2))


def test_ranks_that_do_not_end_though_they_are_to_yield_are_killed_after_a_time() -> None:
    gang = shrunken()
    gang.come(1, at=20.0)
    gang.come(3, at=20.0)
    gang.tell(at=20.0 + LIMITS.yielding)
    assert gang.leader.order.wanted is Wanted.YIELD
    gang.tell(at=20.1 + LIMITS.yielding)
    assert (gang.leader.order.wanted, gang.leader.order.code) == (Wanted.STAND_BY, 86)


def test_a_gang_that_would_be_given_up_grows_only_after_a_step() -> None:
    gang = shrunken()
    for number in (2, 3, 4):
        gang.tell(2, fault=Fault(137, "killed"))
        gang.tell(0, 2, running=False)
        gang.tell(at=gang.now + 50.0)
        assert gang.order == (Round(1, number + 1), Wanted.TRAIN, (0, 2))
        gang.tell(0, 2, round=gang.leader.order.round, running=True, step=-1, fault=None)
    gang.come(1, at=300.0)
    gang.come(3, at=300.0)
    assert gang.leader.order.wanted is Wanted.TRAIN
    gang.tell(0, step=5)
    assert gang.leader.order.wanted is Wanted.YIELD
    gang.tell(0, 2, running=False)
    assert gang.order == (Round(1, 6), Wanted.TRAIN, (0, 1, 2, 3))


def follows_nobody_that_was_seen(gang: Membership) -> Gang:
    """A second leader whose pod is made anew while the first one can't be reached."""
    later = Gang(gang, term=2)
    later.pods[0] = Report(0, "0-2", 2, 1, round=Round(2, 0), able=True, follows_the_dead=False)
    later.tell(0, at=1.0)
    return later


def test_a_leader_that_may_not_be_the_only_one_waits_until_the_other_has_too_few_pods_for_a_round() -> None:
    gang = follows_nobody_that_was_seen(ELASTIC)
    promised = {"round": Round(2, 2), "running": False}
    gang.tell(1, 2, at=2.0, **promised)
    gang.tell(at=40.0)
    assert gang.leader.order.wanted is Wanted.STAND_BY, "pods 0 and 3 may train under the first one"
    gang.tell(3, **promised)
    gang.tell(at=40.0 + LIMITS.lease + LIMITS.silence)
    assert gang.leader.order.wanted is Wanted.STAND_BY, "the first one may not have missed it yet"
    gang.tell(at=40.1 + LIMITS.lease + LIMITS.silence)
    assert gang.order == (Round(2, 3), Wanted.TRAIN, (0, 1, 2, 3))


def test_a_leader_leaves_where_the_one_before_it_may_train_alone() -> None:
    gang = follows_nobody_that_was_seen(replace(ELASTIC, least=1))
    assert (gang.leader.order.wanted, gang.leader.order.code) == (Wanted.LEAVE, 82)


def test_a_later_leader_leaves_out_whom_it_never_hears_once_an_earlier_lease_is_over() -> None:
    gang = Gang(SPARE, term=2)
    gang.pods[0] = Report(0, "0-2", 2, 1, round=Round(2, 0), able=True)
    gang.tell(0, at=1.0)
    gang.tell(2, round=Round(2, 2))
    gang.tell(at=LIMITS.silence)
    assert gang.leader.order.wanted is Wanted.STAND_BY
    gang.tell(at=LIMITS.silence + 0.1)
    assert gang.order == (Round(2, 3), Wanted.TRAIN, (0, 2))


def test_the_end_of_a_round_is_not_told_by_a_pod_that_was_not_in_it() -> None:
    gang = Gang(SPARE)
    gang.lose(1, at=2.0)
    gang.tell(at=10.0)
    gang.train(step=20)
    gang.tell(2, at=20.0, fault=Fault(1, "the program failed"))
    # Pod 1 is heard again, with what it met in round 1: that is over, and booked.
    gang.tell(1, round=SECOND, running=False, step=500, fault=Fault(81, "the driver of GPU 3", lost=True))
    gang.tell(0, 2, running=False)
    end = gang.leader.ended[-1]
    assert (end.rank, end.fault.code, end.step) == (2, 1, 20)


@pytest.mark.parametrize(("incarnation", "step"), [(1, 9), (2, None)])
def test_a_later_leader_goes_on_from_memory_only_where_it_hears_of_every_round(
    incarnation: int, step: int | None
) -> None:
    # Rank 0's last pod may have led a round with a pod 2 before this one, and with others than those that hold step 9.
    gang = Gang(SPARE, term=2)
    whole = (Held(9, 2, (0, 1)),)
    gang.pods[0] = Report(0, "0-2", 2, 1, round=Round(2, 1), able=True, held=whole)
    gang.pods[1] = replace(gang.pods[1], round=Round(2, 1), running=False, held=whole)
    gang.pods[2] = Report(2, f"2-{incarnation}", incarnation, 1, round=Round(2, 1), able=True)
    gang.tell(0, 1, 2, at=1.0 + LIMITS.silence)
    gang.tell(at=40.0)
    assert (gang.leader.order.wanted, gang.leader.order.step) == (Wanted.TRAIN, step)
