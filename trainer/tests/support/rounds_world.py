"""A played gang: pods with a member each, rank 0's with a leader, a network that loses, delays and doubles, and an operator.

Where it is linked, a link carries what is said: it answers beats itself, tells the leader of members that it has not heard
for a lease, and brings nothing any more that a lost one said before. Else reports and orders are all that there is.

Nothing here decides about rounds: the machines of oarlock_trainer.agent.rounds do, and the world keeps what they did.
"""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass, field, replace
from random import Random
from typing import TYPE_CHECKING, Any

from oarlock_api.contract.rounds import SurgePod
from oarlock_api.contract.struck_gpu import StruckGpu
from oarlock_trainer.agent.rounds.leader import Leader
from oarlock_trainer.agent.rounds.member import Member
from oarlock_trainer.agent.rounds.membership import Membership
from oarlock_trainer.agent.rounds.model import (
    FIRST,
    Fault,
    Kill,
    Leave,
    Limits,
    Order,
    Place,
    Round,
    Start,
    Wanted,
    Yield,
)
from oarlock_trainer.agent.rounds.surge import Surging, Waiting
from oarlock_trainer.checkpoint.memory.held import Held

if TYPE_CHECKING:
    from oarlock_trainer.agent.rounds.ended import Ended

TICK = 0.1
LIMITS = Limits(lease=2.0, kill=1.0, patience=60.0, fruitless=3, backoff=3.0, yielding=6.0)
LINKED = replace(LIMITS, linked=True)
BEAT = 0.3
ASKED = Fault(86, "it was asked to go", lost=True)


@dataclass(eq=False)
class Pod:
    """`there`: its object exists, for the operator. `alive`: its processes do."""

    rank: int
    incarnation: int
    agent: str
    member: Member
    leader: Leader | None
    beat_at: float
    begins_at: float
    """When it is able to train."""
    alive: bool = True
    there: bool = True
    isolated: bool = False
    mute: bool = False
    """What it says is lost, and what was on its way to it still comes."""
    met: bool = False
    """It was answered once. Until then it reports nothing and has no leader to lose, where pods are linked."""
    ranks: Round | None = None
    """Of the ranks that live."""
    dead_at: float = float("inf")
    """When its ranks are gone, after a kill."""
    yields: bool = False
    """Its ranks save at the next step boundary, and end; those of other pods with them."""
    leaves: bool = False
    """It ends as soon as its ranks have."""
    code: int | None = None
    heard: dict[str, float] = field(default_factory=dict)
    """Agent -> when the leader's link heard it last, as long as that has not lost it."""
    lost: dict[str, float] = field(default_factory=dict)
    """Agent -> when it was lost: what was said before never comes."""
    memory: dict[int, Held] = field(default_factory=dict)
    """Step -> the places whose parts its node has: the newest two steps."""
    follows: Pod | None = None
    """The one that still trains, of a surge pod: the leader's link hears this one only once that one has left, or is lost."""

    def gone(self) -> None:
        """None of its ranks is left."""
        self.ranks = None
        self.member.held = tuple(self.memory.values())
        self.member.gone()


@dataclass(frozen=True)
class Beat:
    """A member's sign of life, or the answer to it."""

    sender: Pod
    sent_at: float
    order: Order | None = None
    """The newest that was told on the same connection before the answer."""


@dataclass(frozen=True)
class Goodbye:
    """The last word of a pod, none of whose ranks is left: why it leaves."""

    sender: Pod
    sent_at: float
    fault: Fault


@dataclass
class World:
    """The gang's life from time 0. `steps` is how many steps the job has; with 0 none is ever finished."""

    gang: Membership
    seed: int
    steps: int = 10**9
    harsh: bool = True
    linked: bool = False
    copied: float = 0.8
    """How often a node has its copy of a step by the time of the next."""
    torn: float = 0.1
    """How often a round can't put together what it is to begin with."""
    now: float = 0.0
    step: int = 0
    pods: list[Pod] = field(default_factory=list)
    started: dict[Round, set[tuple[Place, ...]]] = field(default_factory=dict)
    rounds: list[Round] = field(default_factory=list)
    ends: list[Ended] = field(default_factory=list)
    kills: int = 0
    """Ranks of so many pods were killed."""
    reshaped: int = 0
    """So many orders went on from what a round of another size had in memory."""

    def __post_init__(self) -> None:
        self._random = Random(self.seed)  # noqa: S311 - no secret
        self._mail: list[tuple[float, int, Pod, Any]] = []
        self._number = itertools.count()
        self._step_due = 0.0
        self._faults: dict[Round, set[tuple[int, str]]] = {}
        """What befell ranks of that round: of whose pod, and in words."""
        self._restored: dict[Round, bool] = {}
        """Whether all that are of that round began with the state in memory."""
        self._steps: dict[Round, int] = {}
        """The newest that was done in it."""
        for rank in range(self.gang.pods):
            self._make(rank, 1, follows_the_dead=True)

    # What befalls it

    def crash(self, rank: int) -> None:
        """A rank's process ends."""
        self._fail(rank, Fault(1, "failed"))

    def strike(self, rank: int) -> None:
        """A driver asks for new processes on a GPU, which tells more than the end of a process."""
        self._fail(rank, Fault(81, "XID 94", gpu=StruckGpu(index=0, uuid=f"GPU-{rank}")))

    def _fail(self, rank: int, fault: Fault) -> None:
        pod = self.current(rank)
        if pod and pod.ranks:
            why = f"{fault.why} in pod {rank} and {pod.ranks}"
            self._faults.setdefault(pod.ranks, set()).add((rank, why))
            self._do(pod, pod.member.failed(replace(fault, why=why)))

    def break_gpu(self, rank: int) -> None:
        """Its pod tells why its ranks end, and says that it leaves once none of them is left."""
        pod = self.current(rank)
        if pod and pod.alive and not pod.leader:
            pod.leaves = True
            self._fail(rank, Fault(80, "GPU 3 fell off the bus"))

    def ask(self, rank: int) -> None:
        """Somebody asks its pod to go: it does once the gang stands by, or trains without it; one that stands by, at once."""
        pod = self.current(rank)
        if pod and pod.alive and (pod.ranks or pod.member.has_yielded):
            pod.member.leaving = True
        elif pod and pod.alive:
            self._leave(pod, ASKED)

    def surge(self, rank: int) -> None:
        """Its pod is asked to go, and the operator makes the next one meanwhile, and says so."""
        pod = self.current(rank)
        if not pod or not pod.alive or rank == 0 or not self.linked or self.gang.spares or not self.step:
            return
        self.ask(rank)
        if pod.member.leaving and not any(one.follows is pod for one in self.pods):
            self._make(rank, pod.incarnation + 1, follows_the_dead=False)
            self.pods[-1].follows, self.pods[-1].there = pod, False
        told = tuple(SurgePod(one.rank, one.incarnation, 8) for one in self._surging())
        for leader in self._leaders():
            leader.surge.hear(Surging(told, self.now))

    def _surging(self) -> list[Pod]:
        return [one for one in self.pods if one.follows and one.follows.alive and one.alive]

    def _leaders(self) -> list[Leader]:
        return [one.leader for one in self.pods if one.leader and one.alive and not one.isolated]

    def kill_pod(self, rank: int) -> None:
        """All its processes are gone at once, and everybody may know."""
        if pod := self.current(rank):
            self._end(pod, 137)

    def isolate(self, rank: int) -> None:
        """Its node goes on, and nobody can reach it."""
        if pod := self.current(rank):
            pod.isolated = True

    def silence(self, rank: int) -> None:
        """Nobody hears it any more."""
        if pod := self.current(rank):
            pod.mute = True

    def heal(self, rank: int) -> None:
        """All its pods that were cut off are reached again, also ones that were replaced meanwhile."""
        for pod in self.pods:
            if pod.rank == rank:
                pod.isolated = pod.mute = False

    def replace(self, rank: int) -> None:
        """The operator replaces a pod that is gone, or that it can't reach: then another one must be left to miss it."""
        pod = self.current(rank)
        if pod and pod.alive and (self.gang.pods == 1 or not self.step or not pod.met):
            return  # a new attempt, whose fence the old one meets: before the first step not all need have met
        if pod and (not pod.alive or pod.isolated or pod.mute) and (pod.code in (None, 80, 86, 137)):
            pod.there = False
            if made := next((one for one in self.pods if one.follows is pod and one.alive), None):
                made.there = True
                return
            dead = not any(one.alive for one in self.pods if one.rank == rank)
            self._make(rank, pod.incarnation + 1, follows_the_dead=dead)

    @property
    def at_full_size(self) -> bool:
        """Whether the newest round has a pod for each node of the job."""
        return not self.rounds or len(self.members(self.rounds[-1])) == self.gang.nodes

    def current(self, rank: int) -> Pod | None:
        """The pod of a rank that exists for the operator."""
        return next((pod for pod in self.pods if pod.rank == rank and pod.there), None)

    @property
    def leader(self) -> Pod:
        """Rank 0's pod."""
        pod = self.current(0)
        assert pod
        return pod

    # Its course

    def run(self, seconds: float) -> None:
        """Let time pass."""
        until = self.now + seconds
        while self.now < until:
            self.tick()

    def tick(self) -> None:
        """One tick: mail, deadlines, beats, steps; then what must hold."""
        self.now += TICK
        while self._mail and self._mail[0][0] <= self.now:
            _, _, pod, said = heapq.heappop(self._mail)
            if pod.alive and not pod.isolated:
                self._hear(pod, said)
        waiting = Waiting(frozenset((one.rank, one.incarnation) for one in self._surging() if one.member.able))
        for leader in self._leaders():
            leader.surge.hear(waiting)
        for pod in [pod for pod in self.pods if pod.alive]:
            if self.now >= pod.dead_at:
                pod.dead_at = float("inf")
                pod.gone()
            if pod.leaves and not pod.ranks:
                self._leave(pod, Fault(80, "GPU 3 fell off the bus", lost=True))
            elif pod.member.leaving and (pod.member.waits or pod.member.is_aside):
                self._leave(pod, ASKED)
            else:
                self._turn(pod)
        self._train()
        self.check()

    def _turn(self, pod: Pod) -> None:
        if self.linked and not pod.met and (pod.incarnation == 1 or pod.follows):
            pod.member.answered(self.now)
        self._do(pod, pod.member.turn(self.now))
        if pod.leader and pod.alive:
            self._lead(pod)
        if pod.alive and self.now >= pod.begins_at:
            pod.member.able = True
            if pod.member.begins(self.now):
                pod.ranks = FIRST
        if pod.alive and self.now >= pod.beat_at:
            pod.beat_at = self.now + BEAT
            self._beat(pod)
            self._report(pod)

    def check(self) -> None:
        """What must hold at any time."""
        running = {pod.ranks for pod in self.pods if pod.alive and pod.ranks}
        assert len(running) <= 1, f"{running} run at once at {self.now:.1f}"
        for round_, members in self.started.items():
            assert len(members) == 1, f"{round_} has several memberships"
        for round_ in running:
            holders = [pod.rank for pod in self.pods if pod.alive and pod.ranks == round_]
            assert len(holders) == len(set(holders)), f"a rank of {round_} is held twice"
            assert set(holders) <= set(self.members(round_)), f"one that is not of {round_} runs it"

    def _check_end(self, end: Ended) -> None:
        """What is told of a round's end happened in that round."""
        if end.fault.code in (1, 81):
            assert (end.rank, end.fault.why) in self._faults.get(end.round, ()), f"{end.round} has a fault of another"
        if end.round in self.rounds or end.round == FIRST:
            assert end.step <= self._steps.get(end.round, -1), f"{end.round} came no further than its own steps"

    def members(self, round_: Round) -> tuple[int, ...]:
        """Ranks of the pods that were to start it, by place."""
        if round_ == FIRST:
            return tuple(range(self.gang.nodes))
        (places,) = self.started[round_]
        return tuple(place.rank for place in places)

    def _check_order(self, order: Order) -> None:
        ranks = [place.rank for place in order.members]
        assert ranks[0] == 0, "place 0 is not its leader's"
        assert len(set(ranks)) == len(ranks), f"a place of {order.round} is held twice"
        whole = len(ranks) == self.gang.nodes
        assert whole or (self.gang.elastic and len(ranks) >= self.gang.least and self.gang.can_be_dealt(len(ranks)))
        if order.step is not None and order.wanted is Wanted.TRAIN:
            agents = {place.agent for place in order.members}
            size = order.made_by or len(ranks)
            held = [one for pod in self.pods if pod.agent in agents for one in pod.memory.values()]
            there = {place for one in held if one[:2] == (order.step, size) for place in one.places}
            assert there >= set(range(size)), f"step {order.step} is not whole"
            self.reshaped += size != len(ranks)

    def _make(self, rank: int, incarnation: int, *, follows_the_dead: bool) -> None:
        agent = f"{rank}-{incarnation}"
        member = Member(
            rank=rank,
            agent=agent,
            incarnation=incarnation,
            limits=self._limits,
            now=self.now,
            follows_the_dead=follows_the_dead,
            first=rank < self.gang.nodes,
        )
        leader = Leader(term=incarnation, gang=self.gang, limits=self._limits, now=self.now) if rank == 0 else None
        begins_at = self.now + self._random.choice([0.0, self._random.uniform(0, 10)] if self.harsh else [0.0])
        self.pods.append(
            Pod(rank, incarnation, agent, member, leader, self.now + self._random.uniform(0, BEAT), begins_at)
        )

    @property
    def _limits(self) -> Limits:
        return LINKED if self.linked else LIMITS

    def _beat(self, pod: Pod) -> None:
        if not self.linked or pod.leader or pod.isolated or pod.mute:
            return
        for other in self.pods:
            if other.leader and other.alive and not other.isolated:
                self._post(other, Beat(pod, self.now))

    def _take_beat(self, pod: Pod, beat: Beat) -> None:
        if beat.order:
            self._do(pod, pod.member.hear(beat.order, 0, self.now))
            pod.member.answered(beat.sent_at)
            pod.met = True
        elif pod.leader and self._is_heard(pod, beat.sender, beat.sent_at) and not pod.mute:
            self._post(beat.sender, replace(beat, order=pod.leader.order))

    def _is_heard(self, leader: Pod, sender: Pod, sent_at: float) -> bool:
        """Whether the leader's link takes what was sent then: by the newest incarnation, and not before it was lost."""
        if not self.linked:
            return True
        if sender.follows and sender.follows.agent in leader.heard:
            return False
        later = any(pod.rank == sender.rank and pod.incarnation > sender.incarnation for pod in self._heard_by(leader))
        if later or sent_at <= leader.lost.get(sender.agent, -1.0):
            return False
        leader.heard[sender.agent] = self.now
        return True

    def _heard_by(self, leader: Pod) -> list[Pod]:
        return [pod for pod in self.pods if pod.agent in leader.heard or pod.agent in leader.lost]

    def _judge(self, leader: Pod) -> None:
        for pod in self._heard_by(leader):
            heard_at = leader.heard.get(pod.agent)
            if heard_at is not None and self.now - heard_at > LIMITS.lease:
                del leader.heard[pod.agent]
                leader.lost[pod.agent] = self.now
                assert leader.leader
                leader.leader.lose(pod.rank, pod.incarnation, Fault(82, "silent", lost=True), heard_at)

    def _report(self, pod: Pod) -> None:
        """To the leader of the name that all know; an older leader is reached by those who are cut off with nobody else."""
        report = pod.member.report(self.now)
        if pod.leader:
            pod.leader.hear(report, self.now)
            self._obey(pod, pod.leader)
        elif not pod.isolated and not pod.mute and (pod.met or not self.linked):
            for other in self.pods:
                if other.leader and other.alive and not other.isolated:
                    self._post(other, (pod, report, self.now))

    def _lead(self, pod: Pod) -> None:
        leader = pod.leader
        assert leader
        before = leader.order
        self._judge(pod)
        leader.turn(self.now)
        while leader.ended:
            self.ends.append(leader.ended.pop(0))
            self._check_end(self.ends[-1])
        if leader.deposed:
            self._end(pod, 88)
        elif leader.order is not before:
            if leader.order.members and leader.order.position != before.position:
                self._check_order(leader.order)
                self.started.setdefault(leader.order.round, set()).add(leader.order.members)
                if leader.order.wanted is Wanted.TRAIN:
                    self.rounds.append(leader.order.round)
            self._obey(pod, leader)
            for other in self.pods:
                if other is not pod and not pod.isolated and not pod.mute:
                    self._post(other, (leader.order, leader.heard(other.rank)))

    def _hear(self, pod: Pod, said: Any) -> None:
        if isinstance(said, Beat):
            self._take_beat(pod, said)
            return
        if isinstance(said, Goodbye):
            self._take_goodbye(pod, said)
            return
        if isinstance(said[0], Order):
            pod.met |= not self.linked
            self._do(pod, pod.member.hear(said[0], said[1], self.now))
            return
        sender, report, sent_at = said
        assert pod.leader
        if not self._is_heard(pod, sender, sent_at):
            return
        if not pod.leader.hear(report, self.now) and not pod.mute:
            self._post(sender, (pod.leader.order, pod.leader.heard(report.rank)))

    def _obey(self, pod: Pod, leader: Leader) -> None:
        pod.met = True
        self._do(pod, pod.member.hear(leader.order, leader.heard(0), self.now))

    def _do(self, pod: Pod, actions: Any) -> None:
        for action in actions:
            if isinstance(action, Start):
                assert pod.ranks is None
                pod.ranks, pod.yields = action.order.round, False
                self._begin_with(pod, action.order)
            elif isinstance(action, Yield):
                pod.yields = True
                if pod.member.step < 0:  # nothing to save yet
                    pod.dead_at = min(pod.dead_at, self.now + self._random.uniform(0, 1.0))
            elif isinstance(action, Kill):
                self.kills += 1
                pod.dead_at = min(pod.dead_at, self.now + self._random.uniform(0, LIMITS.kill - 2 * TICK))
            elif isinstance(action, Leave):
                self._end(pod, action.code)

    def _leave(self, pod: Pod, fault: Fault) -> None:
        self._end(pod, fault.code)
        for other in self.pods:
            if self.linked and other.leader and other.alive and not (other.isolated or pod.isolated or pod.mute):
                self._post(other, Goodbye(pod, self.now, fault))

    def _take_goodbye(self, pod: Pod, said: Goodbye) -> None:
        if pod.leader and self._is_heard(pod, said.sender, said.sent_at):
            del pod.heard[said.sender.agent]
            pod.lost[said.sender.agent] = self.now
            over = said.fault is not ASKED  # whoever leaves in peace does not say so
            pod.leader.lose(said.sender.rank, said.sender.incarnation, said.fault, self.now, over=over)

    def _end(self, pod: Pod, code: int) -> None:
        pod.alive, pod.ranks, pod.code = False, None, code

    def _post(self, pod: Pod, said: Any) -> None:
        chance = self._random.random()
        if self.harsh and chance < 0.15:
            return
        for _ in range(2 if self.harsh and chance > 0.9 else 1):
            late = 10.0 if self.harsh and self._random.random() < 0.2 else 0.2
            heapq.heappush(self._mail, (self.now + self._random.uniform(0.01, late), next(self._number), pod, said))

    def _remember(self, living: list[Pod], members: tuple[int, ...]) -> None:
        """Each has its own part of the step, and most have a copy of the place before theirs."""
        for pod in living:
            place = members.index(pod.rank)
            copied = {(place - 1) % len(members)} if self._random.random() < self.copied else set()
            held = Held(self.step, len(members), tuple(sorted({place} | copied)))
            pod.memory = dict([*pod.memory.items(), (self.step, held)][-2:])

    def _begin_with(self, pod: Pod, order: Order) -> None:
        """What lies in a pod's memory as its ranks start: of one step; all parts, where more or fewer places made it.

        Nothing, where one of the round could not get its parts: all of them go on from a checkpoint then.
        """
        if order.round not in self._restored:
            self._restored[order.round] = self._random.random() >= self.torn
        kept = None
        if order.step is not None and self._restored[order.round]:
            whole = Held(order.step, order.made_by, tuple(range(order.made_by)))
            kept = whole if order.made_by else pod.memory.get(order.step)
        pod.memory = {kept.step: kept} if kept else {}

    def _train(self) -> None:
        """A step is done every half second where all ranks of a round live and reach each other."""
        living = [pod for pod in self.pods if pod.alive and pod.ranks and pod.dead_at == float("inf")]
        if not living or not living[0].ranks or self.now < self._step_due or not self.steps:
            return
        size = len(self.members(living[0].ranks))
        if len(living) < size or (size > 1 and any(pod.isolated for pod in living)):
            return
        self._step_due = self.now + 0.5
        self.step += 1
        self._steps[living[0].ranks] = self.step
        self._remember(living, self.members(living[0].ranks))
        yields = any(pod.yields for pod in living)
        for pod in living:
            pod.member.step = self.step
            pod.member.finished = self.step >= self.steps
            if yields or pod.member.finished:
                pod.gone()
