"""Surge pods at rank 0's side of the link: they are ready, and wait until the pod before them has left or is lost.

Until then their beats are answered, and no other word of theirs counts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from oarlock_trainer.agent.link.protocol import Beat, Wait, encode
from oarlock_trainer.agent.rounds.surge import Waiting

if TYPE_CHECKING:
    from collections.abc import Callable

    from oarlock_trainer.agent.link.connection import Connection
    from oarlock_trainer.agent.link.loop import Loop
    from oarlock_trainer.agent.link.protocol import Hello

_BEAT, _WAIT = encode(Beat()), encode(Wait())


@dataclass(frozen=True, slots=True)
class _SurgePod:
    """What it said, and when it was heard last."""

    hello: Hello
    heard_at: float


class SurgePods:
    """Of one gang. `admit` makes one a member; it is given up after `silence` seconds without a beat."""

    def __init__(self, loop: Loop, *, silence: float, admit: Callable[[Connection, Hello], None]) -> None:
        self._loop, self._silence, self._admit = loop, silence, admit
        self._pods: dict[Connection, _SurgePod] = {}

    def take(self, connection: Connection, hello: Hello, lines: list[bytes]) -> None:
        """Have one wait that has said hello, and then these lines. Of each rank the newest counts."""
        for other in self._of(hello.rank):
            self._forget(other)
        self._pods[connection] = _SurgePod(hello, self._loop.now)
        connection.ready = self._hear
        connection.send(_WAIT)
        self._answer(connection, lines)
        if connection.ended:
            self._forget(connection)
        else:
            self._tell()

    def let_in(self, rank: int) -> None:
        """The pod of this rank has left, or is lost: the one that waits for that is a member from now on."""
        for connection in self._of(rank):
            hello = self._pods.pop(connection).hello
            self._tell()
            self._admit(connection, hello)

    def turn(self) -> None:
        """Give up those that are silent."""
        for connection in [end for end, pod in self._pods.items() if self._loop.now - pod.heard_at > self._silence]:
            self._forget(connection)

    def close(self) -> None:
        """Close their connections."""
        for connection in list(self._pods):
            self._forget(connection)

    def _of(self, rank: int) -> list[Connection]:
        return [connection for connection, pod in self._pods.items() if pod.hello.rank == rank]

    def _hear(self, connection: Connection) -> None:
        self._answer(connection, connection.receive())
        if connection.ended:
            self._forget(connection)

    def _answer(self, connection: Connection, lines: list[bytes]) -> None:
        for line in lines:
            if isinstance(connection.read(line), Beat):
                self._pods[connection] = replace(self._pods[connection], heard_at=self._loop.now)
                connection.send(_BEAT)

    def _forget(self, connection: Connection) -> None:
        del self._pods[connection]
        connection.close()
        self._tell()

    def _tell(self) -> None:
        pods = frozenset((pod.hello.rank, pod.hello.incarnation) for pod in self._pods.values())
        self._loop.tell_newest(Waiting, Waiting(pods))
