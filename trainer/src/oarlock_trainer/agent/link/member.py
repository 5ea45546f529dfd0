"""A member's side of the link: it connects to rank 0 until it is welcome, beats, and passes on what rank 0 tells.

Before the first welcome nothing is judged: whether a gang starts in time is others' business. After it, silence is: a
connection that is cut is made anew, and only when rank 0 has not been heard for the whole time of silence is it lost.
Once the link has told of a loss, or rank 0 has left in peace, it judges nobody any more. Where lost pods are replaced,
rank 0's is looked for again by its name. That of a surge pod connects once the pod is ready, and beats while it waits for its
welcome.
"""

from __future__ import annotations

import logging
import math
import secrets
import time
from collections import deque
from typing import TYPE_CHECKING

from oarlock_trainer.agent.link import proof
from oarlock_trainer.agent.link.connection import Connection
from oarlock_trainer.agent.link.dialer import Dialer
from oarlock_trainer.agent.link.protocol import (
    FLUSH_SECONDS,
    AllLeft,
    Answer,
    Ask,
    Beat,
    Challenge,
    Frame,
    Hello,
    Leave,
    PeerLost,
    Refused,
    Wait,
    Welcome,
    encode,
    lost_pod,
)
from oarlock_trainer.agent.link.round_frames import Ordered
from oarlock_trainer.agent.link.sparse_log import SparseLog

if TYPE_CHECKING:
    from oarlock_trainer.agent.link.loop import Loop
    from oarlock_trainer.agent.link.protocol import Gang
    from oarlock_trainer.agent.rounds.model import Report

log = logging.getLogger(__name__)

_BEAT = encode(Beat())


class Member:
    """Connects to `host`:`port` from its first turn on; that of a surge pod once it is opened."""

    def __init__(self, gang: Gang, loop: Loop, *, host: str, port: int) -> None:
        self.over = False
        self._gang, self._loop = gang, loop
        self.agent = secrets.token_hex(8)
        self._hello = Hello(
            job_uid=gang.job_uid,
            attempt=gang.attempt,
            rank=gang.rank,
            agent=self.agent,
            node=gang.node,
            incarnation=gang.incarnation,
            surge=gang.surge,
        )
        self.admitted = False
        """Whether rank 0 has ever welcomed it."""
        self._open = not gang.surge
        self.answered_at = -math.inf
        """When the newest of this member's words was sent that rank 0 has answered, on the monotonic clock."""
        self._unanswered: deque[float] = deque()
        """When each was sent on this connection whose answer is awaited: rank 0 answers in order."""
        self._report: Report | None = None
        self._challenge = ""
        """Of the connection that there is; empty until it comes, and for ever where the gang has no key."""
        self._unsent_leave = b""
        """What is to be said as soon as rank 0 has said its challenge."""
        self._dialer = Dialer(host, port, loop=loop, heartbeat=gang.heartbeat)
        self._connection: Connection | None = None
        self._welcome = self._waits = self._settled = False
        self._welcome_until = self._leaving_until = math.inf
        self._beat_at = self._heard_at = math.inf
        self._trouble = ""
        self._log = SparseLog()

    def turn(self) -> float:
        """Judge rank 0's silence, beat, or try to connect."""
        now, pace = self._loop.now, self._gang.heartbeat / 4
        if self._leaving_until < math.inf:
            self.over = self._connection is None or now >= self._leaving_until
        elif not self._settled and now - self._heard_at > self._gang.silence:
            self._lose_leader(now - self._heard_at)
        elif self._connection and (self._welcome or self._waits):
            if now >= self._beat_at:
                self._unanswered.append(time.monotonic())  # before it is sent: no answer may tell of a later time
                self._connection.send(_BEAT)
                self._beat_at = now + self._gang.heartbeat
        elif self._connection and now >= self._welcome_until:
            self._drop("no answer")
        elif not self._connection and not self._settled and self._open:
            self._dial()
            return pace if self._connection else min(self._dialer.seconds_left, pace)
        return pace

    def open(self) -> None:
        """Connect: this pod is ready."""
        self._open = True

    def leave(self, last: Leave) -> None:
        """Tell rank 0, if there is a connection, and be over when it has read it, or soon."""
        self._leaving_until = self._loop.now + FLUSH_SECONDS
        if self._gang.key and not self._challenge:
            self._unsent_leave = encode(last)
        elif self._connection:
            self._connection.send(encode(last))
            self._connection.finish()

    def answer(self, answer: Answer) -> None:
        """Tell rank 0, if it can hear."""
        if self._connection and self._welcome:
            self._connection.send(encode(answer))

    def report(self, report: Report) -> None:
        """Tell rank 0 what is so in this pod, now and whenever the connection is made anew."""
        self._report = report
        if self._connection and self._welcome:
            self._connection.send(encode(report))

    def close(self) -> None:
        """Close the connection at once."""
        if self._connection:
            self._connection.close()
            self._connection = None

    def _dial(self) -> None:
        if end := self._dialer.dial():
            self._connection = Connection(end, self._loop.selector, timeout=self._gang.silence, ready=self._hear)
            self._challenge = ""
            self._unanswered = deque([time.monotonic()])
            if not self._gang.key:
                self._connection.greet(self._hello)
            self._welcome_until = self._loop.now + self._gang.silence / 2  # two tries, should the first packets be lost

    def _hear(self, connection: Connection) -> None:
        lines = connection.receive()
        for line in lines:
            if connection is not self._connection:
                break
            frame = connection.read(line)
            if self._gang.key and not self._challenge:
                if isinstance(frame, Challenge):  # from one that does not begin so, nothing is believed
                    self._answer(connection, frame.nonce, self._gang.key)
            elif self._leaving_until == math.inf:
                self._take(frame)
        if lines and (self._welcome or self._waits):
            self._heard_at = self._loop.now
        if connection.ended and connection is self._connection:
            self._drop(connection.ended)

    def _answer(self, connection: Connection, challenge: str, key: bytes) -> None:
        """Prove that this one is of the gang; what it says from then on is sealed, before the welcome as well."""
        self._challenge = challenge
        self._hello = proof.signed(self._hello, key, challenge)
        connection.send(encode(self._hello))
        connection.seal(proof.seal_of(self._hello, key, challenge, leader=False))
        if self._unsent_leave:
            connection.send(self._unsent_leave)
            connection.finish()

    def _take(self, frame: Frame | None) -> None:
        if not self._welcome:
            self._take_first(frame)
        elif isinstance(frame, Beat):
            self._answered()
        elif isinstance(frame, PeerLost):
            self._lose(frame)
            if frame.rank == 0:
                self.close()  # it waits for that, to know that its leave was read
        elif isinstance(frame, Ask):
            self._loop.tell(frame)
        elif isinstance(frame, Ordered):
            self._loop.tell_newest(0, frame)
        elif isinstance(frame, AllLeft):
            for left in frame.peers:
                self._loop.tell(left)
            if codes := [left.code for left in frame.peers if left.rank == 0]:
                self._part(codes[0])

    def _take_first(self, frame: Frame | None) -> None:
        if isinstance(frame, Wait):
            self._answered()
            self._waits, self._welcome_until = True, math.inf
            self._beat_at = self._heard_at = self._loop.now
            log.info("this pod is ready, and waits until the one before it has left")
        elif isinstance(frame, Beat) and self._waits:
            self._answered()
        elif isinstance(frame, Welcome):
            if not self._waits:
                hello_at = self._unanswered.popleft()
                self.answered_at = hello_at if math.isinf(self.answered_at) else self.answered_at
            self.admitted, self._waits = True, False
            # Whoever comes back first hears which order is in force, and then the answer to a beat.
            self._welcome = True
            self._beat_at = self._loop.now
            self._dialer.succeeded()
            log.info("the gang link to pod 0 stands")
            if self._report and self._connection:
                self._connection.send(encode(self._report))
        elif isinstance(frame, Refused):
            self._drop(f"it refused: {frame.why}")

    def _drop(self, trouble: str) -> None:
        """Without this connection; the next one is dialled, unless the link has had its say."""
        self.close()
        self._trouble = trouble
        if self._waits:
            self._waits, self._heard_at = False, math.inf
        if self._welcome:
            self._welcome = False
            if not self._settled and self._leaving_until == math.inf:
                self._log.warning(f"the gang link to pod 0 was cut: {trouble}", now=self._loop.now)
        else:
            self._dialer.failed(trouble)

    def _lose_leader(self, silent: float) -> None:
        if self._waits:  # it is no member yet, and loses nobody
            self._drop("no answer")
            return
        # The connection stays where this one leaves: should rank 0 only have slept, leave() tells it so on waking.
        trouble = "" if self._welcome else f", and cannot be reached: {self._trouble or 'no answer'}"
        self._lose(PeerLost(0, None, f"pod 0's agent has been silent for {silent:.1f} s{trouble}"))

    def _lose(self, cause: PeerLost) -> None:
        waits = cause.rank == 0 and self._gang.waits_after(cause.code, rank=0)
        self._loop.tell(lost_pod(cause, 0, heard_at=-math.inf) if waits else cause)
        if waits:
            self._part(None)
        else:
            self._settled = True

    def _part(self, code: int | None) -> None:
        """Be without rank 0's pod, which is lost or left with this code: for good, or until the next one of its name."""
        self.close()
        self._settled = code == 0 or not self._gang.replaces
        self._welcome, self._heard_at = False, math.inf
        self._dialer.forget()

    def _answered(self) -> None:
        if self._unanswered:
            self.answered_at = self._unanswered.popleft()
