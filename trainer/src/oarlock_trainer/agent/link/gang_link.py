"""The agent's end of the gang link, for the agent's one loop: a descriptor, news, and leave().

    link = GangLink(job_uid=..., attempt=3, rank=2, nodes=4, leader="flux-0.flux.default.svc", port=9401)
    select.select([link.descriptor, ...], ...)
    for news in link.news():       PeerLost: this pod is a victim (exit code 82); Left: that one is done, or was asked to go;
                                   LostPod: that one is replaced, and this one waits for its next incarnation
    link.ask(Ask(Topic.STACKS, "one"))     rank 0's; each Answer that comes is news, as the Ask is to the others
    link.leave(83, "rank 2 hangs at step 90")

It guarantees: the first loss that ends the gang is told once, and no other; what strangers send never becomes news; nobody is
judged before the link to it stood, nor for time that this process slept; the caller never waits, but in leave() for half a
second.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from typing import TYPE_CHECKING

from oarlock_trainer.agent.link.leader import Leader
from oarlock_trainer.agent.link.loop import Loop
from oarlock_trainer.agent.link.member import Member
from oarlock_trainer.agent.link.protocol import FLUSH_SECONDS, Answer, Ask, Gang, Leave, News, PeerLost
from oarlock_trainer.agent.rounds.surge import Surging

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from oarlock_api.contract.rounds import SurgePod
    from oarlock_trainer.agent.link.loop import Role
    from oarlock_trainer.agent.link.round_frames import Ordered
    from oarlock_trainer.agent.rounds.model import Report

log = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 1.0
"""Between two signs of life."""
SILENCE_SECONDS = 5.0
"""Whoever has not been heard for so long is lost."""
_LEAVE_SECONDS = FLUSH_SECONDS + 0.2
"""The thread keeps the first part itself; the rest is for its turn to come on a machine that is busy."""


class GangLink:
    """The link of one agent, from construction until leave(). A gang of one node has none: it is silent and inert.

    Rank 0 listens on `port` (0 takes any free one, and `port` says which), the others connect to `leader`:`port`.
    Raises OSError where rank 0's port is taken. `key` is the attempt's: with it, nobody's words count who does not know it.
    `descriptor` is readable when there is news, None for a single node. `incarnation`, `replaces`, `chooses` and `surge` are
    as a Gang has them. Silence is judged by `clock`, in seconds.
    """

    def __init__(
        self,
        *,
        job_uid: str,
        attempt: int,
        rank: int,
        nodes: int,
        leader: str,
        port: int,
        heartbeat: float = HEARTBEAT_SECONDS,
        silence: float = SILENCE_SECONDS,
        key: bytes | None = None,
        node: str = "",
        incarnation: int = 1,
        replaces: bool = False,
        chooses: bool = False,
        surge: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.port = port
        self._nodes = {rank: node}
        self.descriptor: int | None = None
        self.answered_at = -math.inf
        """When the newest word of a member was sent that rank 0 had answered at the last news(), on the monotonic clock."""
        self._loop: Loop | None = None
        self._left = self._opened = False
        self._surge_at = 0
        """When the operator said its newest word of surge pods."""
        self._over = threading.Event()
        if nodes == 1:
            return
        gang = Gang(
            job_uid=job_uid,
            attempt=attempt,
            rank=rank,
            nodes=nodes,
            heartbeat=heartbeat,
            silence=silence,
            key=key,
            node=node,
            incarnation=incarnation,
            replaces=replaces,
            chooses=chooses,
            surge=surge,
        )
        self._loop = loop = Loop(heartbeat=heartbeat, clock=clock)
        self.descriptor = loop.news_notifier.descriptor
        self._role: Role
        if rank == 0:
            self._role = role = Leader(gang, loop, port=port)
            self.port = role.port
        else:
            self._role = Member(gang, loop, host=leader, port=port)
        threading.Thread(target=_turn, args=(loop, self._role, self._over), name="gang-link", daemon=True).start()

    def news(self) -> list[News]:
        """What happened since the last call, in order. Never blocks."""
        if self._loop and isinstance(role := self._role, Member):
            self.answered_at = role.answered_at  # before the news: what rank 0 said before that answer is among them
        return self._loop.news() if self._loop else []

    def open(self) -> None:
        """Connect a surge pod, which is ready now. May be called again; others connect by themselves."""
        if self._loop and isinstance(role := self._role, Member) and not self._opened:
            self._opened = True
            self._loop.do(role.open)

    @property
    def admitted(self) -> bool:
        """Whether this agent is of the gang by now: rank 0's is, a member once it was welcome."""
        return not (self._loop and isinstance(role := self._role, Member)) or role.admitted

    def note_surge(self, pods: tuple[SurgePod, ...], asked_at: int) -> None:
        """The operator has made these surge pods, as it said then by its own clock; an earlier word than the last is void.

        Any thread may say so, again and again; rank 0's agent has it as news.
        """
        if self._loop and isinstance(self._role, Leader) and asked_at >= self._surge_at:
            self._surge_at = asked_at
            self._loop.tell_newest(Surging, Surging(pods, time.monotonic()))

    @property
    def nodes(self) -> dict[int, str]:
        """Rank -> name of its node, of all that have joined, where this is rank 0's agent."""
        if self._loop is None:
            return self._nodes
        return self._role.nodes if isinstance(self._role, Leader) else {}

    @property
    def reason_told(self) -> bool:
        """Whether a peer was lost that has said why it leaves: then somebody else knows of it, too."""
        return self._loop is not None and self._loop.cause is not None and self._loop.cause.code is not None

    def ask(self, question: Ask, only: int | None = None) -> None:
        """Have rank 0's agent ask a member, or all. Elsewhere nothing is asked."""
        if self._loop and isinstance(role := self._role, Leader):
            self._loop.do(lambda: role.ask(question, only))

    def answer(self, answer: Answer) -> None:
        """Have a member's agent answer rank 0's. It is lost where the link is cut at that moment."""
        if self._loop and isinstance(role := self._role, Member):
            self._loop.do(lambda: role.answer(answer))

    @property
    def agent(self) -> str:
        """What this agent drew by chance for itself, as a member."""
        return self._role.agent if self._loop and isinstance(self._role, Member) else ""

    def report(self, report: Report) -> None:
        """Have a member's agent tell rank 0's what is so; the newest is told again after a cut."""
        if self._loop and isinstance(role := self._role, Member):
            self._loop.do(lambda: role.report(report))

    def order(self, order_for: Callable[[int], Ordered]) -> None:
        """Have rank 0's agent tell all members, also those that connect later, what they are to do. Called in its thread."""
        if self._loop and isinstance(role := self._role, Leader):
            self._loop.do(lambda: role.order(order_for))

    def have_ended(self, pods: Sequence[tuple[int, int]]) -> None:
        """The operator saw these pods end: of each rank all before an incarnation. Any thread may say so, again and again."""
        if self._loop and isinstance(role := self._role, Leader):
            self._loop.do(lambda: role.have_ended(pods))

    def leave(self, code: int, why: str, *, over: bool = False) -> None:
        """Tell the others with which exit code this agent ends and why, then close. `over`: none of its ranks is left.

        Returns once they have read it, after half a second at the latest. Only the first call says anything.
        """
        if self._loop is None:
            return
        if not self._left:
            self._left = True
            self._loop.do(lambda: self._role.leave(Leave(code, why, over)))
        self._over.wait(_LEAVE_SECONDS)


def _turn(loop: Loop, role: Role, over: threading.Event) -> None:
    try:
        loop.run(role)
    except Exception as error:
        # The others lose this agent within seconds; it must not stay behind alone.
        log.exception("the gang link failed")
        loop.tell(PeerLost(None, None, f"the gang link itself failed: {type(error).__name__}: {error}"))
    finally:
        role.close()
        loop.selector.close()
        over.set()
