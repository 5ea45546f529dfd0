"""Rank 0's side of the link: it listens, hears every member, and tells each what became of the others.

Work per frame does not grow with the gang: members beat in their own time and are answered one by one, and whoever has
been silent for longest stands first in line. Only a loss is told to all at once, once; members that leave in peace
together are told together.

Strangers are harmless: whoever does not say a fitting hello in time is turned away, and at most `nodes` + 16 connections
are open. Where the gang has a key, a hello fits only with its proof: no stranger holds a rank's place, however early it
comes. A member is known by what its agent drew by chance: the same agent may connect anew (it saw the cut before we
did, so its newer connection replaces the older), another one that claims a rank that is taken is refused.

Where lost pods are replaced, a loss is told to the own agent alone, and the link goes on: the lost one may come again, and a
later incarnation of its pod takes its place at any time. A surge pod takes it once the one before has left or is lost: until
then its beats are answered, and no other word of it counts.
"""

from __future__ import annotations

import contextlib
import math
import resource
import socket
import time
from collections import OrderedDict
from dataclasses import dataclass, replace
from selectors import EVENT_READ
from typing import TYPE_CHECKING

from oarlock_trainer.agent.link import proof
from oarlock_trainer.agent.link.connection import Connection
from oarlock_trainer.agent.link.protocol import (
    FLUSH_SECONDS,
    PEACEFUL,
    Answer,
    Ask,
    Beat,
    Challenge,
    Hello,
    Leave,
    Left,
    PeerLost,
    Refused,
    Welcome,
    encode,
    encode_left,
    lost_pod,
    refusal,
)
from oarlock_trainer.agent.link.sparse_log import SparseLog
from oarlock_trainer.agent.link.surge_pods import SurgePods
from oarlock_trainer.agent.rounds.model import Report

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from oarlock_trainer.agent.link.loop import Loop
    from oarlock_trainer.agent.link.protocol import Gang
    from oarlock_trainer.agent.link.round_frames import Ordered

_SPARE = 16
_ACCEPTED_AT_ONCE = 64
_BACKLOG = 256
"""Beyond one for each member: the kernel drops what comes when it is full, and a client tries again a second later."""
_OTHER_DESCRIPTORS = 256
"""What the agent itself has open, generously."""

_BEAT = encode(Beat())
_WELCOME = encode(Welcome())


@dataclass(slots=True)
class _Member:
    """A member that said hello. `connection` is None while it is cut off; `trouble` says why.

    `heard_at` is on the clock that silence is judged by, `read_at` on the monotonic one, and no earlier than the last word:
    no answer to the member is newer.
    """

    rank: int
    agent: str
    incarnation: int
    connection: Connection | None
    heard_at: float
    read_at: float
    trouble: str = ""
    over: bool = False
    """The operator saw its end."""


@dataclass(frozen=True, slots=True)
class _Stranger:
    """A connection without a hello so far, since when, and the nonce that it was challenged with."""

    since: float
    challenge: str


class Leader:
    """Listens from construction on. Raises OSError where the port is taken; port 0 takes any free one."""

    def __init__(self, gang: Gang, loop: Loop, *, port: int) -> None:
        self.over = False
        self.nodes: dict[int, str] = {gang.rank: gang.node}
        self._gang, self._loop = gang, loop
        self._log = SparseLog()
        self._members: OrderedDict[int, _Member] = OrderedDict()
        self._rank_of: dict[Connection, int] = {}
        self._strangers: OrderedDict[Connection, _Stranger] = OrderedDict()
        self._surge = SurgePods(loop, silence=gang.silence, admit=self._admit)
        self._left: dict[int, int] = {}
        """Rank -> incarnation of the pod that said that it leaves."""
        self._lost: dict[int, _Member] = {}
        """Members that fell silent, and that the gang waits for, or for the next one of their rank."""
        self._untold: list[Left] = []
        self._told_at = -math.inf
        self._cause: PeerLost | None = None
        self._leaving_until = math.inf
        self._asked: dict[str, tuple[str, set[int]]] = {}
        """Topic -> the last question's name, and who has not answered it."""
        self._order_for: Callable[[int], Ordered] | None = None
        _make_room(gang.nodes + _SPARE + _OTHER_DESCRIPTORS)
        self._listener = _listen(port, backlog=gang.nodes + _BACKLOG)
        self.port: int = self._listener.getsockname()[1]
        self._deaf_until = math.inf
        loop.selector.register(self._listener, EVENT_READ, self._accept)

    def turn(self) -> float:
        """Hear late what could not be accepted, turn strangers away, judge silence."""
        now, pace = self._loop.now, self._gang.heartbeat / 4
        if self._leaving_until < math.inf:
            self.over = not self._rank_of or now >= self._leaving_until
            return pace
        if now >= self._deaf_until:
            self._deaf_until = math.inf
            self._loop.selector.register(self._listener, EVENT_READ, self._accept)
        if self._untold and now >= self._told_at + pace:
            self._tell_all(encode_left(self._untold))
            self._untold, self._told_at = [], now
        while self._strangers and now - next(iter(self._strangers.values())).since > self._gang.silence:
            self._turn_away(next(iter(self._strangers)), "it said no hello in time")
        self._surge.turn()
        while self._members and self._cause is None and self._judge(next(iter(self._members.values()))):
            pass  # the next one may be as silent: what is lost at once is told at once
        return pace

    def ask(self, question: Ask, only: int | None) -> None:
        """Ask a member, or all. Who is cut off hears nothing; one that asks again takes the place of the question before."""
        chosen = {end: rank for end, rank in self._rank_of.items() if only in (None, rank)}
        self._asked[question.topic] = question.name, set(chosen.values())
        for connection in chosen:
            connection.send(encode(question))

    def order(self, order_for: Callable[[int], Ordered]) -> None:
        """Tell each member, by its rank, what it is to do about rounds; and whoever connects later, as well."""
        self._order_for = order_for
        for connection, rank in self._rank_of.items():
            connection.send(encode(order_for(rank)))

    def have_ended(self, pods: Sequence[tuple[int, int]]) -> None:
        """Lose at once whoever has ended, by the operator's word: of each rank all before an incarnation.

        So nobody waits for the silence of a pod that is known to run no more, nor for what it may still do.
        """
        for rank, before in pods:
            member = self._members.get(rank) or self._lost.get(rank)
            if member is None or member.incarnation >= before or member.over or not self._gang.replaces:
                continue
            if member.connection:
                self._cut(member, member.connection, "it has ended")
            self._members.pop(rank, None)
            self._lost[rank], member.over = member, True
            self._lose(PeerLost(rank, None, f"the operator saw the end of pod {rank}"), member, over=True)
            self._surge.let_in(rank)

    def leave(self, last: Leave) -> None:
        """Tell all members, and be over when they have read it, or soon."""
        self._leaving_until = self._loop.now + FLUSH_SECONDS
        for stranger in list(self._strangers):
            self._forget_stranger(stranger)
        self._surge.close()
        self._stop_listening()
        self._tell_all(encode_left(self._untold))
        if last.code is not None and last.code in PEACEFUL:
            self._tell_all(encode_left([Left(0, last.code)]))
        else:
            self._tell_all(encode(PeerLost(0, last.code, last.why)))
        for connection in self._rank_of:
            connection.finish()

    def close(self) -> None:
        """Close every socket at once."""
        self._stop_listening()
        self._surge.close()
        for connection in (*self._strangers, *self._rank_of):
            connection.close()

    # Strangers

    def _accept(self, _events: int) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                end, _address = self._listener.accept()
            except (BlockingIOError, ConnectionAbortedError, InterruptedError):
                return
            except OSError as error:  # no descriptors, no memory: it would be ready again at once, for ever
                self._log.warning(f"the gang link accepts nobody: {error.strerror}", now=self._loop.now)
                self._loop.selector.unregister(self._listener)
                self._deaf_until = self._loop.now + self._gang.heartbeat
                return
            stranger = Connection(end, self._loop.selector, timeout=self._gang.silence, ready=self._hear_stranger)
            self._strangers[stranger] = _Stranger(self._loop.now, proof.nonce())
            if self._gang.key:
                stranger.send(encode(Challenge(self._strangers[stranger].challenge)))
            if len(self._strangers) > self._gang.nodes + _SPARE - len(self._members):
                # The oldest: a member says hello within a round trip, so that a crowd of idlers keeps no place from it.
                self._turn_away(next(iter(self._strangers)), "too many connections without a hello")

    def _hear_stranger(self, connection: Connection) -> None:
        lines = connection.receive()
        if not lines:
            if connection.ended:
                self._forget_stranger(connection)
            return
        hello = connection.read(lines[0])
        if not isinstance(hello, Hello):
            self._turn_away(connection, "its first line was no hello")
        elif why := self._refusal(hello, self._strangers[connection].challenge):
            connection.send(encode(Refused(why)))
            self._turn_away(connection, why)
        else:
            challenge = self._strangers.pop(connection).challenge
            if key := self._gang.key:
                connection.seal(proof.seal_of(hello, key, challenge, leader=True))
            before = self._members.get(hello.rank)
            if hello.surge and before and before.agent != hello.agent:
                self._surge.take(connection, hello, lines[1:])
            else:
                self._admit(connection, hello)
                self._take(connection, lines[1:])

    def _refusal(self, hello: Hello, challenge: str) -> str:
        if why := refusal(hello, self._gang):
            return why
        if self._gang.key and not proof.is_of_a_member(hello, self._gang.key, challenge):
            return "it does not show that it knows the gang's key"
        if hello.rank in self._left and not self._follows(hello, self._left[hello.rank]):
            return f"pod {hello.rank} has left"
        known = self._members.get(hello.rank) or self._lost.get(hello.rank)
        if known and known.agent != hello.agent and not self._follows(hello, known.incarnation):
            return f"another agent holds pod {hello.rank}"
        return ""

    def _follows(self, hello: Hello, incarnation: int) -> bool:
        return self._gang.replaces and hello.incarnation > incarnation

    def _turn_away(self, connection: Connection, why: str) -> None:
        self._forget_stranger(connection)
        self._log.warning(f"the gang link turned a connection away: {why}", now=self._loop.now)

    def _forget_stranger(self, connection: Connection) -> None:
        del self._strangers[connection]
        connection.close()

    # Members

    def _admit(self, connection: Connection, hello: Hello) -> None:
        known = self._members.get(hello.rank)
        if known and known.connection:
            self._cut(known, known.connection, "it connected anew")
        self.nodes = self.nodes | {hello.rank: hello.node}  # another thread reads it
        self._left.pop(hello.rank, None)
        self._lost.pop(hello.rank, None)
        self._members[hello.rank] = _Member(
            hello.rank, hello.agent, hello.incarnation, connection, heard_at=self._loop.now, read_at=time.monotonic()
        )
        self._members.move_to_end(hello.rank)
        self._rank_of[connection] = hello.rank
        connection.ready = self._hear_member
        connection.send(_WELCOME)
        if self._order_for:
            connection.send(encode(self._order_for(hello.rank)))
        if self._cause:
            connection.send(encode(self._cause))

    def _hear_member(self, connection: Connection) -> None:
        self._take(connection, connection.receive())

    def _take(self, connection: Connection, lines: list[bytes]) -> None:
        member = self._members[self._rank_of[connection]]
        if lines:
            member.heard_at, member.read_at = self._loop.now, time.monotonic()
            self._members.move_to_end(member.rank)
        for line in lines:
            frame = connection.read(line)
            if isinstance(frame, Beat):
                connection.send(_BEAT)
            elif isinstance(frame, Report):
                report = replace(frame, rank=member.rank, agent=member.agent, incarnation=member.incarnation)
                self._loop.tell_newest(member.rank, report)
            elif isinstance(frame, Answer):
                self._take_answer(member, frame)
            elif isinstance(frame, Leave) and self._leaving_until == math.inf:
                self._take_leave(member, connection, frame)
                return
        if connection.ended:
            self._cut(member, connection, connection.ended)
            if self._cause is None and self._leaving_until == math.inf:
                self._log.warning(f"the gang link of pod {member.rank} was cut: {member.trouble}", now=self._loop.now)

    def _take_answer(self, member: _Member, answer: Answer) -> None:
        """Each is asked once and heard once: nobody fills this agent's memory."""
        name, silent = self._asked.get(answer.topic, ("", set()))
        if answer.name == name and member.rank in silent:
            silent.discard(member.rank)
            self._loop.tell(replace(answer, rank=member.rank))

    def _take_leave(self, member: _Member, connection: Connection, leave: Leave) -> None:
        self._cut(member, connection, "it left")
        del self._members[member.rank]
        self._left[member.rank] = member.incarnation
        if leave.code is None or leave.code not in PEACEFUL:
            self._lose(PeerLost(member.rank, leave.code, leave.why), member, over=leave.over)
        else:
            left = Left(member.rank, leave.code)
            self._untold.append(left)
            self._loop.tell(left)
        self._surge.let_in(member.rank)

    def _cut(self, member: _Member, connection: Connection, trouble: str) -> None:
        """The member may come again until its silence is too long."""
        del self._rank_of[connection]
        connection.close()
        member.connection, member.trouble = None, trouble

    def _judge(self, member: _Member) -> bool:
        """Lose a member that has been silent for too long. Returns whether it was."""
        silent = self._loop.now - member.heard_at
        if silent <= self._gang.silence:
            return False
        cut = f", its connection was cut: {member.trouble}" if member.trouble else ""
        cause = PeerLost(member.rank, None, f"pod {member.rank}'s agent has been silent for {silent:.1f} s{cut}")
        if self._gang.replaces:
            if member.connection:
                self._cut(member, member.connection, "it was given up")
            self._lost[member.rank] = self._members.pop(member.rank)
        self._lose(cause, member)
        if self._gang.replaces:
            self._surge.let_in(member.rank)
        return True

    def _lose(self, cause: PeerLost, member: _Member, *, over: bool = False) -> None:
        """The lost one is told too, if it can hear: it learns that the gang goes on without it."""
        if self._gang.waits_after(cause.code, rank=member.rank):
            self._loop.forget_newest(member.rank)
            self._loop.tell(lost_pod(cause, member.incarnation, heard_at=member.read_at, over=over))
        elif self._cause is None:
            self._cause = cause
            self._loop.tell(cause)
            self._tell_all(encode(cause))

    def _tell_all(self, lines: bytes) -> None:
        for connection in self._rank_of:
            connection.send(lines)

    def _stop_listening(self) -> None:
        with contextlib.suppress(KeyError, ValueError):  # it may be out of the selector, or closed before
            self._loop.selector.unregister(self._listener)
        self._listener.close()


def _listen(port: int, *, backlog: int) -> socket.socket:
    dual_stack = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if dual_stack else socket.AF_INET
    listener = socket.create_server(
        ("::" if dual_stack else "", port), family=family, backlog=backlog, dualstack_ipv6=dual_stack
    )
    listener.settimeout(0)
    return listener


def _make_room(descriptors: int) -> None:
    """Allow as many open files as a big gang needs: many runtimes start containers with 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = descriptors if hard == resource.RLIM_INFINITY else min(descriptors, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
