"""Rounds in a living agent: the pure machines of member and leader, the gang link between them, and the books.

    rounds.begins()               the ranks' first round is due, or may be
    rounds.failed(verdict)        this pod's ranks ended, or hang: the gang stands by, and starts anew
    rounds.cleared()              none of them is left
    rounds.hear(news)             what came over the link
    rounds.lose(news, now)        a pod of the gang is gone
    rounds.turn(now)              what is to be done: Start, Kill, Leave

Without recovery.inPlace all of this is silent, and each fault ends the pod. Where the operator does not replace pods, whoever
loses one leaves (the link says so), and a new attempt follows.

Where it does, the lease is the link's silence. A beat answered within it is worth as much as a report: the link numbers both
by the order in which they were sent, the leader calls a member lost after as long without a word of it, and members take no
order of a leader that they have lost.
"""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from typing import TYPE_CHECKING

from oarlock_api.contract.exit_codes import ExitCode, FailureClass, failure_class
from oarlock_api.contract.report import CLAIMED, is_proven
from oarlock_api.contract.rounds import InPlace, LostPod
from oarlock_api.contract.struck_gpu import StruckGpu, parse_struck_gpu
from oarlock_trainer.agent.link.gang_link import SILENCE_SECONDS
from oarlock_trainer.agent.link.protocol import Left, MissedPod
from oarlock_trainer.agent.link.round_frames import Ordered
from oarlock_trainer.agent.rounds.books import Books
from oarlock_trainer.agent.rounds.choice import membership_of
from oarlock_trainer.agent.rounds.kept import Kept
from oarlock_trainer.agent.rounds.leader import Leader
from oarlock_trainer.agent.rounds.member import Member
from oarlock_trainer.agent.rounds.model import (
    FOR_ALL,
    KILL_SECONDS,
    Fault,
    Leave,
    Limits,
    Order,
    Report,
    Start,
    Wanted,
    Yield,
)
from oarlock_trainer.agent.rounds.saved import Saved
from oarlock_trainer.agent.rounds.surge import Surging, Waiting
from oarlock_trainer.agent.verdict import Verdict, is_failure

if TYPE_CHECKING:
    from collections.abc import Callable

    from oarlock_api.contract.rounds import RoundEnd
    from oarlock_api.contract.status import PodStatus
    from oarlock_trainer.agent.link.gang_link import GangLink
    from oarlock_trainer.agent.link.protocol import PeerLost
    from oarlock_trainer.agent.ring.ring import Ring
    from oarlock_trainer.agent.rounds.model import Action
    from oarlock_trainer.runtime.assignment import Assignment

log = logging.getLogger(__name__)

_IN_PLACE = frozenset({FailureClass.APPLICATION, FailureClass.HANG, FailureClass.PEER_LOST})
"""What new processes may well mend, as does a GPU's fault that asks for no more (81). Whatever else blames a GPU, a node,
storage or the job itself is the operator's to decide."""
_COMING_SECONDS = 0.1
"""Between two looks whether what this pod had has come back."""
_LIMITS = Limits(lease=math.inf, patience=30.0)
"""The link itself judges silence, and ends the pod. A rank that can't be killed for half a minute is stuck in the kernel."""


class GangRounds:
    """Of one agent. Only the main thread may use it."""

    def __init__(
        self,
        assignment: Assignment,
        link: GangLink,
        *,
        books: Callable[[int, tuple[RoundEnd, ...], tuple[int, ...]], None],
        waits_for: Callable[[tuple[LostPod, ...]], None],
        timestamp: Callable[[float], str],
        now: float,
        ring: Ring | None = None,
    ) -> None:
        """`books` is what Books tell to, `waits_for` takes the pods that are lost.

        `timestamp` writes the moment so many seconds ago. `ring`: None where nodes keep no state of each other.
        """
        pod, job = assignment.pod, assignment.job
        self._link, self._waits_for, self._timestamp = link, waits_for, timestamp
        self._books = Books(books, timestamp=timestamp, now=now)
        self._active = job.recovery.in_place == InPlace.AUTO
        self._replaces, self._is_custom = pod.replaces_pods, job.custom is not None
        self._rank, self._incarnation, self._surge = pod.rank, pod.incarnation, pod.surge
        self._agent = link.agent or f"0-{pod.incarnation}"
        limits = _LIMITS
        if self._replaces:
            patience = float(job.recovery.standby_seconds)
            limits = Limits(lease=SILENCE_SECONDS, kill=KILL_SECONDS, patience=patience, linked=True)
        if pod.backoff:
            limits = replace(limits, backoff=float(pod.backoff[0]), longest_backoff=float(pod.backoff[1]))
        self._member = Member(
            rank=pod.rank,
            agent=self._agent,
            incarnation=pod.incarnation,
            limits=limits,
            now=now,
            follows_the_dead=pod.follows_the_dead,
            first=pod.rank < job.nodes,
        )
        self._gang = gang = membership_of(assignment)
        self._leader = Leader(term=pod.incarnation, gang=gang, limits=limits, now=now) if pod.rank == 0 else None
        self._kept = Kept(assignment, self._member, ring)
        self._order: Order | None = None
        """The newest that was told to the others."""
        self._ordered: tuple[Order, int] | None = None
        """The newest that the others' leader told this agent, and the newest report that it had heard of it."""
        self._members: tuple[int, ...] = gang.own
        """Pods of the newest round that this agent knows of, by place."""
        self._lost: tuple[LostPod, ...] = ()
        self._reported: Report | None = None
        self._actions: list[Action] = []
        self._saved = Saved()
        self._start: Start | None = None
        """Of a round that was begun here, and has no ranks yet: their part of the state is still on its way."""
        self._yields = False
        """Whether this round's ranks were told to save and end, once: their pod stays, unless it was asked to go."""
        self._turned_at = now
        self.due_in = math.inf
        """Seconds until the next turn is due, though nobody wakes this agent: what this pod had is coming, or is here now."""

    def stays(self, code: int) -> bool:
        """Whether ranks that end so start anew in this pod, as far as this agent knows."""
        if code == ExitCode.LEFT_ON_REQUEST:
            return self._active and (self._yields or self.awaits_state or self._member.leaving)
        mends = code == ExitCode.RESTART_PROCESS or failure_class(code) in _IN_PLACE
        return self._active and is_failure(code) and mends

    def give_up(self) -> None:
        """There is no further round: somebody leaves, in peace or not."""
        self._active = False

    def ask_to_leave(self) -> bool:
        """Have the gang save and go on without this pod, which was asked to go. False where all leave with it.

        A program of the job's own is told to end in this pod alone: what it does then, and with which code, is its own.
        """
        has_place = self._active and (self._member.running or self._member.has_yielded)
        alone = has_place and self._replaces and not self._is_custom and self._gang.pods > 1
        self._member.leaving = self._member.leaving or alone
        return alone

    @property
    def leaving(self) -> bool:
        """Whether this pod was asked to go, and the gang goes on without it."""
        return self._active and self._member.leaving

    def may_leave(self, now: float) -> bool:
        """Whether this pod's ranks have ended, and those of all others have as well, run without it, or nobody says so."""
        alone = not self._leader and self._member.is_alone(now)
        return self.leaving and (self._member.waits or self._member.is_aside or alone)

    @property
    def is_held(self) -> bool:
        """Whether the gang trains on although a pod was asked to go: its next one is on its way."""
        return self._active and self._member.is_held

    @property
    def yields(self) -> bool:
        """Whether this round's ranks were told to save and end."""
        return self._active and self._yields

    def begins(self) -> bool:
        """Whether the ranks of the first round start now: all is imported and checked."""
        if not self._active:
            return self._incarnation == 1 and self._rank < self._gang.nodes
        if self._surge:
            self._link.open()
            if not self._link.admitted:
                return False
            self._kept.come_back()
        if not self._kept.ready:
            self.due_in = _COMING_SECONDS
            return False  # what comes back is told with the first word that this pod is able
        if not self._member.able:
            self.due_in = 0.0
            self._kept.look()
        self._member.able = True
        begins = self._member.begins(self._turned_at)
        if begins:
            self._kept.begin()
        return begins

    @property
    def _admitted(self) -> bool:
        """Whether this pod is of the gang by now; a surge pod is not while the one before it trains."""
        return not self._surge or self._link.admitted

    def failed(self, verdict: Verdict) -> None:
        """This pod's ranks ended, must end, or hang: whoever says so sees to their end. May be told again, and better.

        Ranks that saved and ended because their round can be larger have not failed.
        """
        if not is_failure(verdict.code):
            return
        sure = verdict.first_error_rank is not None
        self._member.failed(Fault(verdict.code, verdict.summary, sure=sure, gpu=_struck(verdict)))

    def leaves_last(self, verdict: Verdict, now: float) -> bool:
        """Whether this pod, which ends by this verdict, is to say that it leaves only once its ranks are gone.

        So where members are chosen: another pod may take its place as soon as that is said. Why the round ends a report tells
        before. What another pod would only repeat ends the gang, which waits for nothing.
        """
        chosen = self._active and not self._gang.is_fixed and not self._leader
        if not chosen or not is_failure(verdict.code) or verdict.code in FOR_ALL:
            return False
        if self._member.running:
            self.failed(verdict)
            self._report(now)
        return True

    def cleared(self) -> None:
        """No process of the ranks is left, so what this node's memory holds of them stays as it is."""
        self._member.gone()
        self._kept.stop()

    def hear(self, news: Report | Ordered | Surging | Waiting, now: float) -> None:
        """Take in what another agent says, or the operator of surge pods."""
        if not self._active:
            return
        if isinstance(news, Surging | Waiting):
            if self._leader:
                self._leader.surge.hear(news)
        elif isinstance(news, Ordered):
            self._ordered = news.to(self._rank, self._agent, nodes=self._gang.nodes), news.heard
            if news.order.wanted in (Wanted.TRAIN, Wanted.YIELD):
                self._members = tuple(place.rank for place in news.order.members) or self._gang.own
        elif self._leader:
            self._leader.hear(news, now)

    def lose(self, news: PeerLost | MissedPod | Left, now: float, *, standing_by: bool) -> bool:
        """Take in that a pod is gone. Returns whether the gang waits for the next one of its rank.

        One that was asked to go while the gang stands by or yields, or that does not train, leaves nothing undone: others
        save what they have together.
        """
        trains = news.rank in self._members
        if self._replaces and not self._active and news.rank is not None and not trains:
            return True  # the gang leaves, and not for this one
        in_peace = standing_by or self._yields or not trains
        asked = isinstance(news, Left) and news.code == ExitCode.LEFT_ON_REQUEST and in_peace
        if not self._active or not self._replaces or not (asked or isinstance(news, MissedPod)):
            return False
        rank, why = news.rank or 0, f"pod {news.rank} was asked to go" if isinstance(news, Left) else news.why
        log.warning("pod %d is lost, and the next one of its rank is waited for", rank, extra={"why": why})
        if self._leader:
            heard_at, incarnation, over = now, self._leader.incarnation(rank), False
            if isinstance(news, MissedPod):
                heard_at, incarnation, over = news.heard_at, news.incarnation, news.over
            fault = Fault(news.code or ExitCode.PEER_LOST, why, lost=True)
            self._leader.lose(rank, incarnation, fault, heard_at, at=self._timestamp(0.0), over=over)
        elif rank == 0:
            self._ordered = None
            if self._member.running:
                self._actions += self._member.failed(Fault(ExitCode.PEER_LOST, why))
        return True

    def turn(self, now: float, status: PodStatus) -> list[Action]:
        """Tell the others what is new here, lead where this is rank 0's agent, and return what this one is to do."""
        if not self._active:
            return []
        self._turned_at, self.due_in = now, math.inf
        self._member.step = max(self._member.step, -1 if status.figures.step is None else status.figures.step)
        went_on_from, self._member.saved = self._saved.hear(status), self._saved.step
        self._kept.went_on_from(went_on_from)
        self._follow(now)
        self._report(now)
        if self._leader:
            self._books.watch(self._leader, status, now)
            self._lead(self._leader, now)
            self._books.keep(self._leader, status, now)
        actions = [action for action in self._actions if not (self._yields and isinstance(action, Yield))]
        self._actions = []
        for action in actions:
            self._yields = isinstance(action, Yield) or (self._yields and not isinstance(action, Start))
        self._kept.turn()
        return self._when_due(actions)

    def _when_due(self, actions: list[Action]) -> list[Action]:
        """These, but a start only once this place's part of the state is here, or is known to lack: its ranks say so then."""
        due: list[Action] = []
        for action in actions:
            if isinstance(action, Start):
                self._start = action
                self._saved.begin(action.order.step)
                self._kept.begin(action.order)
            elif self._start and not isinstance(action, Leave):  # the round is over, and no rank has begun it
                self._start = None
                self.cleared()
            else:
                due.append(action)
        if self._start and self._kept.ready:
            due.append(self._start)
            self._start = None
        return due

    def seconds_left(self, now: float) -> float:
        """Until this pod's ranks have to end, unless rank 0's agent answers once more."""
        counts = self._active and self._replaces and not self._leader
        return self._member.seconds_left(now) if counts else math.inf

    @property
    def awaits_state(self) -> bool:
        """Whether a round was begun here, and waits for its part of the state."""
        return self._start is not None

    @property
    def waits(self) -> bool:
        """Whether this pod's ranks are to wait, as all the others'."""
        return self._active and self._member.waits

    @property
    def stands_by(self) -> bool:
        """Whether this pod is ready to train, and waits for a place: a spare, or one that was made anew."""
        able = self._member.able or not self._admitted
        return self._active and able and (self._incarnation > 1 or self._rank >= self._gang.nodes)

    @property
    def is_aside(self) -> bool:
        """Whether the gang trains without this pod, as far as it knows."""
        return self._active and self._member.is_aside

    def _follow(self, now: float) -> None:
        """Hold the lease, and obey: again and again, as an order that came while the lease was over was not obeyed."""
        # Whoever was never welcome has no leader to lose; whether a gang starts in time is the operator's business.
        unknown = math.isinf(self._link.answered_at) if self._incarnation == 1 else not self._admitted
        self._member.answered(now if unknown else self._link.answered_at)
        if self._ordered:
            self._actions += self._member.hear(*self._ordered, now)
        if self._replaces and not self._leader:
            self._actions += self._member.turn(now)

    def _report(self, now: float) -> None:
        report = self._member.report(now)
        if self._leader:
            self._leader.hear(report, now)
            return
        # What is the same but for its number and the step that training has reached is no news.
        told = replace(report, sequence=0, step=0)
        if told != self._reported:
            self._reported = told
            self._link.report(report)

    def _lead(self, leader: Leader, now: float) -> None:
        leader.turn(now)
        if leader.deposed:  # the operator has given this pod up, and the next one of rank 0 leads
            self._actions.append(Leave(ExitCode.PEER_LOST, "a pod of the gang follows another leader"))
        self._tell_lost(leader)
        order = leader.order
        self._actions += self._member.hear(order, leader.heard(self._rank), now)
        if order is self._order:
            return
        self._order = order
        ranks = tuple(place.rank for place in order.members)
        self._members = ranks or self._members
        told = replace(order, members=()) if ranks == self._gang.own else order
        members = frozenset(ranks)
        self._link.order(lambda rank: Ordered(told, yours=rank in members, heard=leader.heard(rank)))

    def _tell_lost(self, leader: Leader) -> None:
        lost = tuple(
            LostPod(rank=rank, incarnation=pod.incarnation, code=pod.fault.code, why=pod.fault.why, lost_at=pod.at)
            for rank, pod in sorted(leader.lost.items())
        )
        if lost != self._lost:
            self._lost = lost
            self._waits_for(lost)


def _struck(verdict: Verdict) -> StruckGpu | None:
    """The GPU whose driver asked for new processes; None where a program alone says so, or it has no name."""
    gpu = verdict.gpu
    if verdict.code != ExitCode.RESTART_PROCESS or gpu is None or not is_proven(verdict.evidence):
        return None
    probe = next(one.probe for one in verdict.evidence if one.probe not in CLAIMED)
    told = StruckGpu(index=gpu.index, uuid=gpu.uuid, serial=gpu.serial, xid=verdict.xid, probe=probe)
    return parse_struck_gpu(told.to_fields())
