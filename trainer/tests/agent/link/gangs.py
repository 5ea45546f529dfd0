"""A gang whose agents' links all live in this process, a network that can be cut between them, and strangers."""

from __future__ import annotations

import contextlib
import json
import selectors
import socket
import threading
import time
from typing import Any

from oarlock_local import patience
from oarlock_local.patience import eventually
from oarlock_trainer.agent.link import proof
from oarlock_trainer.agent.link.gang_link import GangLink
from oarlock_trainer.agent.link.protocol import Hello, News, PeerLost, decode, encode

JOB_UID = "uid-of-job"
ATTEMPT = 3
HEARTBEAT = 0.05
SILENCE = 30.0
SHORT_SILENCE = 0.5
"""Of a gang in which somebody falls silent, and is waited for."""
KEY = b"k" * 32


class GangClock:
    """Time that passes for links in one process as long as the thread of each of them looks at it.

    A machine that is busy runs one of them and lets the others wait: that is no silence of theirs.
    """

    def __init__(self, heartbeat: float) -> None:
        self._heartbeat, self._lock = heartbeat, threading.Lock()
        self._real = time.monotonic()
        self._seconds = 0.0
        self._looks: dict[threading.Thread, float] = {}

    def __call__(self) -> float:
        with self._lock:
            self._looks = {thread: at for thread, at in self._looks.items() if thread.is_alive()}
            if threading.current_thread().name == "gang-link":
                self._looks[threading.current_thread()] = self._seconds
            real = time.monotonic()
            passed, self._real = real - self._real, real
            self._seconds = min(
                self._seconds + passed, min(self._looks.values(), default=self._seconds) + self._heartbeat
            )
            return self._seconds


class Gang:
    """Links by rank. Rank 0 listens from the start, unless `port` says where members look for it."""

    def __init__(
        self,
        nodes: int,
        *,
        heartbeat: float = HEARTBEAT,
        silence: float = SILENCE,
        port: int | None = None,
        key: bytes | None = None,
        replaces: bool = False,
        chooses: bool = False,
        clock: GangClock | None = None,
    ) -> None:
        self.clock = clock or GangClock(heartbeat)
        self.nodes, self.heartbeat, self.silence, self.key = nodes, heartbeat, silence, key
        self.replaces, self.chooses = replaces, chooses
        self.links: dict[int, GangLink] = {}
        self._news: dict[int, list[News]] = {}
        self.port = port or 0
        if port is None:
            self.port = self.join(0).port

    def join(self, rank: int, *, port: int | None = None, **settings: Any) -> GangLink:
        """Start the link of a rank; a member looks for rank 0 at `port`."""
        settings = {
            "job_uid": JOB_UID, "attempt": ATTEMPT, "nodes": self.nodes, "leader": "127.0.0.1",
            "heartbeat": self.heartbeat, "silence": self.silence, "key": self.key,
            "replaces": self.replaces,
            "chooses": self.chooses, "clock": self.clock,
        } | settings  # fmt: skip
        link = self.links[rank] = GangLink(rank=rank, port=self.port if port is None else port, **settings)
        self._news[rank] = []
        return link

    def join_all(self) -> None:
        """Start the links of all members, and wait until they stand."""
        for rank in range(1, self.nodes):
            self.join(rank)
        self.stand(*range(1, self.nodes))

    def stand(self, *ranks: int) -> None:
        """Wait until these members are welcome."""
        eventually(lambda: all(self.links[rank]._role._welcome for rank in ranks), f"links of {ranks}")

    def news(self, rank: int) -> list[News]:
        """All news of a rank so far."""
        self._news[rank] += self.links[rank].news()
        return self._news[rank]

    def loss(self, rank: int) -> PeerLost:
        """Wait until the rank is told of a loss."""
        return eventually(lambda: next((one for one in self.news(rank) if isinstance(one, PeerLost)), None), "a loss")

    def crash(self, rank: int) -> None:
        """End the link of a rank as a crash does: its sockets close, and it says nothing."""

        def fail() -> None:
            raise RuntimeError("crashed for a test")

        self.links.pop(rank)._loop.do(fail)

    def end(self) -> None:
        for rank in sorted(self.links, reverse=True):
            self.links[rank].leave(0, "")


def time_of_silence(gang: Gang) -> None:
    """Wait as long as the gang takes to call somebody silent: that long it takes another gang of the same pace."""
    other = Gang(2, heartbeat=gang.heartbeat, silence=gang.silence, clock=gang.clock)
    try:
        other.join_all()
        other.crash(1)
        other.loss(0)
    finally:
        other.end()


class Network:
    """A way to a port that can be cut, and that can swallow everything in silence."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.swallows = False
        self.connections = 0
        self._other: dict[socket.socket, socket.socket] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._lock = threading.Lock()
        self._open = True
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def cut(self) -> None:
        """End every connection as a broken path does, with a reset."""
        with self._lock:
            for end in list(self._other):
                self._close(end)

    def close(self) -> None:
        self._open = False
        self._thread.join()
        self.cut()
        self._listener.close()

    def _run(self) -> None:
        while self._open:
            for key, _ in self._selector.select(0.02):
                with self._lock:
                    if key.fileobj is self._listener:
                        self._connect()
                    elif key.fileobj in self._other:
                        self._pass_on(key.fileobj)

    def _connect(self) -> None:
        near, _ = self._listener.accept()
        try:
            far = socket.create_connection(("127.0.0.1", self._target))
        except OSError:
            near.close()
            return
        self.connections += 1
        self._other |= {near: far, far: near}
        for end in (near, far):
            self._selector.register(end, selectors.EVENT_READ)

    def _pass_on(self, end: Any) -> None:
        try:
            received = end.recv(65536)
            if received and not self.swallows:
                self._other[end].sendall(received)
        except OSError:
            received = b""
        if not received:
            self._close(end)

    def _close(self, end: socket.socket) -> None:
        if (other := self._other.pop(end, None)) is None:
            return
        del self._other[other]
        for one in (end, other):
            self._selector.unregister(one)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            one.close()


class Stranger:
    """A plain connection to rank 0 that says what a test has it say. With `key` it can prove that it knows that one."""

    def __init__(self, port: int, *, key: bytes | None = None) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=patience.SECONDS)
        self._key = key

    def say(self, **values: Any) -> None:
        self.socket.sendall(json.dumps(values).encode() + b"\n")

    def hello(self, **changes: Any) -> None:
        fitting = {"kind": "hello", "version": 1, "jobUid": JOB_UID, "attempt": ATTEMPT, "rank": 1, "agent": "a"}
        if self._key is None:
            self.say(**fitting | changes)
            return
        hello = decode(json.dumps(fitting | changes).encode())
        assert isinstance(hello, Hello)
        self.socket.sendall(encode(proof.signed(hello, self._key, self.heard()["nonce"])))

    def heard(self) -> dict[str, Any]:
        """The next frame that rank 0 says."""
        return json.loads(self.heard_line())

    def heard_line(self) -> bytes:
        """The next line, without its end."""
        line = b""
        while not line.endswith(b"\n"):
            received = self.socket.recv(1)
            assert received, f"closed after {line!r}"
            line += received
        return line.rstrip(b"\n")

    def all_heard(self) -> bytes:
        """Everything that rank 0 says until it closes."""
        said = b""
        with contextlib.suppress(ConnectionResetError):
            while received := self.socket.recv(4096):
                said += received
        return said

    def close(self) -> None:
        self.socket.close()
