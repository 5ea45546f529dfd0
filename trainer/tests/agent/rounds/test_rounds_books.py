"""What the leader tells of rounds that ended, for the operator's books: who, after which step, and what came after."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from oarlock_api.contract.figures import Figures
from oarlock_api.contract.report import Evidence, Gpu
from oarlock_api.contract.rounds import MAX_LOST, InPlace, LostPod, RoundEnd
from oarlock_api.contract.status import CheckpointStatus, PodStatus
from oarlock_api.contract.struck_gpu import StruckGpu
from oarlock_trainer.agent.link.protocol import Left, MissedPod
from oarlock_trainer.agent.rounds.books import Books
from oarlock_trainer.agent.rounds.ended import Ended
from oarlock_trainer.agent.rounds.gang_rounds import GangRounds
from oarlock_trainer.agent.rounds.model import FIRST, Fault, Kill, Leave, Report, Round, Start
from oarlock_trainer.agent.verdict import Verdict
from oarlock_trainer.runtime.assignment import Pod

KILLED = Verdict(code=137, summary="rank 0 was killed by SIGKILL", first_error_rank=0)


@dataclass
class Leader:
    """Rank 0's agent of a gang: what it tells the others goes nowhere, and its books are kept."""

    nodes: int = 1
    status: PodStatus = field(
        default_factory=lambda: PodStatus("uid", "pod", 1, 0, "Training", "2026-01-01T00:00:00Z", figures=Figures())
    )
    ends: tuple[RoundEnd, ...] = ()
    lost: tuple[LostPod, ...] = ()
    now: float = 0.0
    replaces: bool = False
    incarnation: int = 1
    spares: int = 0
    key: bytes | None = None
    members: tuple[int, ...] = ()
    backoff: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        memory = SimpleNamespace(every_steps="0")
        recovery = SimpleNamespace(in_place=InPlace.AUTO, memory=memory, standby_seconds=300)
        job = SimpleNamespace(nodes=self.nodes, job_uid="uid", attempt=1, recovery=recovery, spares=self.spares)
        job.elastic, job.whole_training, job.custom = None, {}, None
        link: Any = SimpleNamespace(agent="", order=lambda _: None, answered_at=-math.inf)
        who = {"rank": 0, "job": "flux", "attempt": 1, "pod_uid": "", "node": ""}
        pod = Pod(**who, replaces_pods=self.replaces, incarnation=self.incarnation, backoff=self.backoff)  # type: ignore[arg-type]
        assignment: Any = SimpleNamespace(pod=pod, job=job, ranks_per_node=1, key=self.key)
        self.rounds = GangRounds(
            assignment, link, books=self._keep, waits_for=self._wait_for, timestamp=self._timestamp, now=0.0
        )
        assert self.rounds.begins() == (self.incarnation == 1)

    def _keep(self, number: int, ends: tuple[RoundEnd, ...], members: tuple[int, ...]) -> None:
        self.status, self.ends, self.members = replace(self.status, round=number), ends, members

    def _timestamp(self, ago: float = 0.0) -> str:
        return f"second {self.now - ago:g}"

    def _wait_for(self, lost: tuple[LostPod, ...]) -> None:
        self.lost = lost

    def trains(self, step: int | None, *, resumed: int | None = None) -> None:
        """Ranks tell how far they are; None: nothing yet."""
        self.status = replace(self.status, figures=Figures(step=step), resumed_from_step=resumed)

    def saves(self, step: int) -> None:
        """Ranks tell of a checkpoint."""
        checkpoint = CheckpointStatus(step, f"/out/step-{step}-a1", f"second {self.now:g}")
        self.status = replace(self.status, checkpoint=checkpoint)
        self.turn()

    @property
    def saved(self) -> int:
        """The newest checkpoint that this agent's member reports."""
        return self.rounds._member.report(self.now).saved

    def turn(self) -> list[Any]:
        self.now += 1.0
        return self.rounds.turn(self.now, self.status)

    def fails(self, verdict: Verdict = KILLED) -> None:
        """A rank is killed, all are cleared within the same turn, and the next ones start: at once, or after a backoff."""
        self.rounds.failed(verdict)
        self.trains(None)
        self.rounds.cleared()
        turns = (self.turn() for _ in range(12))
        assert [type(action) for action in next(filter(None, turns))] == [Start]


def test_a_round_is_booked_however_fast_the_next_one_starts_and_completed_once_that_has_done_a_step() -> None:
    leader = Leader()
    leader.trains(150)
    leader.turn()
    leader.fails()
    began = RoundEnd(
        number=1, ended_at="second 2", rank=0, code=137, why=KILLED.summary, step=150, start_wait_seconds=0.0
    )
    assert leader.ends == (began,)
    leader.trains(None, resumed=140)
    leader.turn()
    assert (leader.ends[0].resumed_step, leader.ends[0].down_seconds) == (140, None)
    leader.trains(141, resumed=140)
    leader.turn()
    assert (leader.ends[0].resumed_step, leader.ends[0].down_seconds) == (140, 2.0)


@pytest.mark.parametrize("began", [140, 120, 0])
def test_a_round_went_on_from_memory_where_its_ranks_say_the_step_that_they_were_ordered(began: int) -> None:
    told: list[RoundEnd] = []
    books = Books(lambda _, ends, __: told.extend(ends), timestamp=str, now=0.0)
    ended = Ended(FIRST, rank=0, fault=Fault(code=137, why="killed"), step=150, at=1.0)
    order = SimpleNamespace(round=Round(1, 2), step=140)
    leader: Any = SimpleNamespace(order=order, ended=[ended], unusual_members=())
    status = replace(Leader().status, round=2, resumed_from_step=began)
    books.keep(leader, status, 3.0)
    books.keep(leader, replace(status, figures=Figures(step=141)), 4.0)
    assert (told[0].resumed_step, told[0].start_wait_seconds) == (140, 2.0)
    assert (told[-1].resumed_step, told[-1].from_memory, told[-1].down_seconds) == (began, began == 140, 3.0)


def test_how_long_the_gang_stood_by_is_booked() -> None:
    leader = Leader(backoff=(3, 300))
    leader.fails()
    leader.fails()  # the second one waits
    assert [end.start_wait_seconds for end in leader.ends] == [0.0, 3.0]


@pytest.mark.parametrize(("told", "waited"), [(None, 10.0), ((3, 300), 3.0), ((20, 5), 5.0)])
def test_the_program_that_fails_again_waits_for_as_long_as_the_job_says(
    told: tuple[int, int] | None, waited: float
) -> None:
    leader = Leader(backoff=told)
    leader.fails()
    failed = leader.now + 1.0  # it is told at the next turn
    leader.fails()
    assert leader.now - failed == waited


def test_the_time_of_a_hang_begins_with_the_last_sign_of_progress_and_not_when_it_is_found() -> None:
    leader = Leader()
    leader.trains(150)
    leader.turn()
    leader.status = replace(leader.status, silent_seconds=59.0)
    leader.turn()
    leader.now += 1.0
    leader.status = replace(leader.status, silent_seconds=61.0)
    leader.fails(Verdict(code=83, summary="rank 0 hangs", first_error_rank=0))
    leader.status = replace(leader.status, silent_seconds=0.0)
    leader.trains(141, resumed=140)
    leader.turn()
    (end,) = leader.ends
    assert (end.ended_at, end.silent_seconds, end.down_seconds) == ("second 4", 61.0, 62.0)
    leader.fails()
    assert leader.ends[-1].silent_seconds == 0.0


def test_the_ring_hears_once_a_round_goes_on_from_elsewhere_than_was_ordered() -> None:
    leader = Leader()
    heard: list[int | None] = []
    ring: Any = SimpleNamespace(
        ready=True, begin=lambda *_, **__: heard.clear(), stop=lambda: None, went_on_from=heard.append
    )
    leader.rounds._kept._ring = ring
    leader.trains(150)
    leader.fails()
    leader.turn()
    leader.trains(None, resumed=140)
    leader.turn()
    leader.fails()
    leader.trains(1)  # there was no checkpoint at all
    leader.turn()
    assert heard == [0]


def test_a_checkpoint_that_a_round_could_not_go_on_from_is_the_newest_no_longer() -> None:
    leader = Leader()
    leader.trains(150)
    leader.saves(150)
    assert leader.saved == 150
    leader.fails()
    leader.trains(None, resumed=100)  # 150 is damaged
    leader.turn()
    assert leader.saved == 100
    leader.trains(120, resumed=100)
    leader.saves(120)
    assert leader.saved == 120
    leader.trains(125, resumed=100)
    leader.turn()
    assert leader.saved == 120


def test_a_round_that_goes_on_from_memory_as_it_was_told_to_says_nothing_of_checkpoints() -> None:
    leader = Leader()
    leader.trains(150)
    leader.saves(140)
    leader.rounds._saved.begin(150)
    leader.trains(151, resumed=150)
    leader.turn()
    assert leader.saved == 140


def test_what_a_round_reached_is_not_told_of_the_next_one_that_reached_less() -> None:
    leader = Leader()
    leader.trains(150)
    leader.turn()
    leader.fails()
    leader.trains(101, resumed=100)
    leader.turn()
    leader.fails()
    leader.turn()
    assert [end.step for end in leader.ends] == [150, 101]


def test_a_gang_that_starts_without_a_checkpoint_begins_with_step_0() -> None:
    leader = Leader()
    leader.turn()
    leader.fails()
    leader.trains(1)
    leader.turn()
    assert (leader.ends[0].step, leader.ends[0].resumed_step) == (None, 0)


def test_a_member_that_follows_another_leader_ends_the_attempt() -> None:
    leader = Leader(nodes=2)
    leader.rounds.hear(Report(1, "other", 1, 1, round=Round(2, 1)), 1.0)
    (left,) = leader.turn()
    assert isinstance(left, Leave)


STRUCK = StruckGpu(index=5, uuid="GPU-5", serial="1652", xid=94)
CONTAINED = Verdict(
    code=81,
    summary="GPU 5 (GPU-5) XID 94",
    gpu=Gpu(5, uuid="GPU-5", serial="1652", pci_bus_id="00:05.0"),
    xid=94,
    evidence=(Evidence("xid", 94.0, "now"),),
)


def test_a_gpu_whose_driver_asks_for_new_processes_is_in_the_books() -> None:
    leader = Leader()
    assert leader.rounds.stays(81)
    leader.fails(CONTAINED)
    (end,) = leader.ends
    assert (end.code, end.gpu, end.other_gpus) == (81, STRUCK, False)


def test_what_a_program_says_against_a_gpu_is_in_no_books() -> None:
    leader = Leader()
    leader.fails(replace(CONTAINED, evidence=(Evidence("webhook", "GPU 5", "now"),)))
    assert leader.ends[0].gpu is None


@pytest.mark.parametrize("when", ["before the round ends", "after it"])
def test_it_is_known_where_other_gpus_of_the_gang_met_the_same(when: str) -> None:
    leader = Leader(nodes=2)
    other = Report(1, "b", 1, 1, round=FIRST, able=True, fault=Fault(81, "XID 94", gpu=replace(STRUCK, uuid="GPU-9")))
    if when == "before the round ends":
        leader.rounds.failed(CONTAINED)
        leader.rounds.hear(other, leader.now)
        leader.turn()
    else:
        leader.rounds.hear(replace(other, sequence=0, fault=None, running=True), leader.now)
        leader.rounds.failed(CONTAINED)
        leader.turn()
        leader.rounds.hear(other, leader.now)
    leader.rounds.cleared()
    leader.turn()
    assert leader.ends[0].other_gpus


def test_the_drivers_word_outranks_what_its_rank_said_of_the_same_fault() -> None:
    leader = Leader()
    leader.rounds.failed(Verdict(code=81, summary="rank 1: CUDA error", first_error_rank=1))
    leader.fails(CONTAINED)
    assert leader.ends[0].gpu == STRUCK


@pytest.mark.parametrize("code", [0, 80, 84, 85, 86, 87, 88])
def test_no_round_follows_what_new_processes_do_not_mend(code: int) -> None:
    assert not Leader().rounds.stays(code)


def test_no_round_follows_once_somebody_has_left() -> None:
    leader = Leader(nodes=2)
    assert leader.rounds.stays(137)
    leader.rounds.give_up()
    assert not leader.rounds.stays(137)
    leader.rounds.hear(Report(1, "other", 1, 1, round=FIRST, fault=Fault(137, "killed")), 1.0)
    assert leader.turn() == []


ONE = Report(rank=1, agent="one", incarnation=1, sequence=1, round=FIRST, running=True, able=True)
GONE = LostPod(rank=1, incarnation=1, code=82, why="pod 1's agent has been silent for 5.1 s")


def missed(pod: LostPod, leader: Leader) -> MissedPod:
    """The news of its loss, where its last word was read just now."""
    return MissedPod(**asdict(pod), heard_at=leader.now)


def lose_one(leader: Leader) -> None:
    """Rank 1's pod is lost while both train; rank 0's ranks are killed."""
    leader.rounds.hear(ONE, 1.0)
    leader.trains(150)
    leader.turn()
    assert leader.rounds.lose(missed(GONE, leader), leader.now, standing_by=False)
    assert [type(action) for action in leader.turn()] == [Kill]
    leader.rounds.cleared()
    leader.trains(None)
    assert leader.turn() == []


def test_a_lost_pod_is_named_until_its_next_incarnation_is_there_and_the_round_ended_with_it() -> None:
    leader = Leader(nodes=2, replaces=True)
    lose_one(leader)
    assert leader.lost == (replace(GONE, lost_at="second 1"),)
    leader.turn()
    assert leader.lost == (replace(GONE, lost_at="second 1"),)
    assert leader.ends == ()
    leader.rounds.hear(replace(ONE, agent="two", incarnation=2, round=FIRST, running=False), 5.0)
    assert [type(action) for action in leader.turn()] == [Start]
    leader.turn()
    assert leader.lost == ()
    (end,) = leader.ends
    assert (end.number, end.rank, end.code, end.why, end.step, end.lost_pod) == (1, 1, 82, GONE.why, 150, True)


def test_a_leader_that_loses_more_pods_than_are_replaced_at_once_tells_so() -> None:
    leader = Leader(nodes=12, replaces=True)
    for rank in range(1, 12):
        assert leader.rounds.lose(missed(replace(GONE, rank=rank), leader), leader.now, standing_by=False)
    leader.turn()
    assert len(leader.lost) > MAX_LOST


def test_a_pod_that_was_lost_and_comes_back_was_not_lost_to_the_books() -> None:
    leader = Leader(nodes=2, replaces=True)
    lose_one(leader)
    leader.rounds.hear(replace(ONE, running=False, sequence=2), 5.0)
    leader.turn()
    assert leader.lost == ()
    assert (leader.ends[0].rank, leader.ends[0].lost_pod) == (1, False)


def test_a_round_ended_when_it_did_however_long_the_gang_stood_by_after_it() -> None:
    leader = Leader(nodes=2, replaces=True)
    lose_one(leader)
    ended = leader.now - 1.0
    for _ in range(60):
        leader.turn()
    leader.rounds.hear(replace(ONE, agent="two", incarnation=2, round=FIRST, running=False), leader.now)
    assert [type(action) for action in leader.turn()] == [Start]
    leader.turn()
    assert leader.ends[0].ended_at == f"second {ended:g}"


def test_a_later_pod_of_rank_0_counts_the_rounds_on_and_tells_how_the_last_one_ended() -> None:
    leader = Leader(nodes=2, replaces=True, incarnation=3)
    assert leader.turn() == []
    leader.rounds.hear(replace(ONE, round=Round(1, 4), step=70, fault=Fault(82, "lost rank 0")), 1.0)
    assert leader.turn() == []
    leader.rounds.hear(replace(ONE, round=Round(3, 4), step=70, sequence=2, running=False), 2.0)
    (start,) = leader.turn()
    assert start.order.round == Round(3, 5)
    leader.turn()
    (end,) = leader.ends
    assert (end.number, end.rank, end.code, end.step, end.lost_pod) == (4, 0, 82, 70, True)
    assert leader.status.round == 5


def test_a_loss_ends_the_pod_where_pods_are_not_replaced() -> None:
    leader = Leader(nodes=2)
    assert not leader.rounds.lose(missed(GONE, leader), 1.0, standing_by=False)


def test_who_is_asked_to_go_is_waited_for_only_where_all_stand_by_and_who_is_done_never() -> None:
    leader = Leader(nodes=2, replaces=True)
    leader.rounds.hear(ONE, 1.0)
    assert not leader.rounds.lose(Left(1, 86), leader.now, standing_by=False)
    assert not leader.rounds.lose(Left(1, 0), leader.now, standing_by=True)
    assert leader.rounds.lose(Left(1, 86), leader.now, standing_by=True)
    leader.turn()
    (lost,) = leader.lost
    assert lost == LostPod(rank=1, incarnation=1, code=86, why="pod 1 was asked to go", lost_at="second 0")


def test_the_pods_of_a_round_that_a_spare_is_of_are_told_with_how_the_one_before_ended() -> None:
    leader = Leader(nodes=2, spares=1, key=b"key", replaces=True)
    leader.rounds.hear(Report(rank=2, agent="spare", incarnation=1, sequence=1, able=True), 1.0)
    lose_one(leader)
    assert leader.members == ()
    (start,) = (action for _ in range(8) for action in leader.turn())
    assert [place.rank for place in start.order.members] == [0, 2]
    (end,) = leader.ends
    assert (leader.members, end.spare, end.nodes) == ((0, 2), True, None)
    assert leader.lost == (replace(GONE, lost_at="second 1"),)


def test_a_spare_that_is_asked_to_go_is_lost_and_nobody_else_leaves_with_it() -> None:
    leader = Leader(nodes=2, spares=1, key=b"key", replaces=True)
    leader.rounds.hear(ONE, 1.0)
    leader.turn()
    assert leader.rounds.lose(Left(2, 86), leader.now, standing_by=False)
    assert leader.turn() == []
    assert [(pod.rank, pod.code) for pod in leader.lost] == [(2, 86)]


def test_a_spare_that_is_lost_while_the_gang_leaves_in_peace_takes_nobody_with_it() -> None:
    leader = Leader(nodes=2, spares=1, key=b"key", replaces=True)
    leader.rounds.give_up()
    lost = missed(replace(GONE, rank=2), leader)
    assert leader.rounds.lose(lost, leader.now, standing_by=False)
    assert not leader.rounds.lose(replace(lost, rank=1), leader.now, standing_by=False)


def test_without_a_key_no_members_are_chosen() -> None:
    leader = Leader(nodes=2, spares=1, replaces=True)
    leader.rounds.hear(Report(rank=2, agent="spare", incarnation=1, sequence=1, able=True), 1.0)
    lose_one(leader)
    for _ in range(20):
        assert leader.turn() == []


def test_ranks_start_once_their_part_of_the_state_is_here_or_never_where_the_round_is_over_before() -> None:
    leader = Leader()
    ring: Any = SimpleNamespace(ready=True, begin=lambda *_, **__: None, stop=lambda: None, went_on_from=lambda _: None)
    leader.rounds._kept._ring = ring
    leader.trains(150)
    leader.turn()
    leader.rounds.failed(KILLED)
    leader.trains(None)
    leader.rounds.cleared()
    ring.ready = False
    assert not any(leader.turn() for _ in range(12))
    leader.rounds.failed(KILLED)
    assert not any(leader.turn() for _ in range(40)), "nobody clears ranks that never were"
    ring.ready = True
    assert [type(action) for action in leader.turn()] == [Start]
    assert [end.number for end in leader.ends] == [1, 2]
