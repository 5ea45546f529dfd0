"""Port 9400 before strangers: however many connect and however slowly they speak, kubelet and operator are answered."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
import time
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oarlock_api.contract.status import PodStatus
from oarlock_local import patience
from oarlock_trainer.agent.status import status_server
from oarlock_trainer.agent.status.access import StatusAccess
from oarlock_trainer.agent.status.connection_limit import ConnectionLimit
from oarlock_trainer.agent.status.status_server import StatusServer

if TYPE_CHECKING:
    from collections.abc import Iterator

SLOW_REQUEST = b"GET /status HTTP/1.1\r\nX-Padding: "


def serve(access: StatusAccess | None = None) -> int:
    status = PodStatus(
        job_uid="u", pod_uid="p", attempt=1, rank=0, phase="Starting", heartbeat_at="2026-01-01T00:00:00Z"
    )
    return StatusServer(port=0, job="flux", status=lambda: status, alive=lambda: True, access=access).port


def get(port: int, path: str) -> int:
    connection = http.client.HTTPConnection(
        "127.0.0.1", port, timeout=patience.SECONDS, source_address=("127.0.0.200", 0)
    )
    with contextlib.closing(connection):
        connection.request("GET", path)
        return connection.getresponse().status


def is_closed_to(client: socket.socket, *, chunks: int) -> bool:
    """Whether the server closes the connection, though more comes, before it has taken so many long lines."""
    try:
        for index in range(chunks):
            client.sendall(b"X-%d: " % index + b"x" * 60_000 + b"\r\n")
    except OSError:  # reset, or a broken pipe
        return True
    return False


class Tricklers:
    """Clients that send a byte of an endless request now and then, and connect anew as soon as they are cut off."""

    def __init__(self, port: int, addresses: list[str]) -> None:
        self._port, self._addresses = port, addresses
        self._clients = {index: self._connect(index) for index in range(len(addresses))}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._trickle)
        self._thread.start()

    def end(self) -> None:
        self._over.set()
        self._thread.join()
        for client in self._clients.values():
            client.close()

    def _connect(self, index: int) -> socket.socket:
        source = (self._addresses[index], 0)
        client = socket.create_connection(("127.0.0.1", self._port), timeout=patience.SECONDS, source_address=source)
        with contextlib.suppress(OSError):
            client.sendall(SLOW_REQUEST)
        return client

    def _trickle(self) -> None:
        while not self._over.wait(0.02):
            for index, client in self._clients.items():
                try:
                    client.sendall(b"x")
                except OSError:
                    client.close()
                    self._clients[index] = self._connect(index)


@pytest.fixture(params=["one address", "as many addresses"])
def trickled_port(request: pytest.FixtureRequest) -> Iterator[int]:
    """A status server whose sixteen places are held by clients that never finish a request."""
    port = serve()
    last = [1] * 16 if request.param == "one address" else range(1, 17)
    clients = Tricklers(port, [f"127.0.0.{number}" for number in last])
    yield port
    clients.end()


@pytest.mark.parametrize("path", ["/healthz", "/status"])
def test_sixteen_clients_that_trickle_keep_nobody_from_an_answer(trickled_port: int, path: str) -> None:
    assert [get(trickled_port, path) for _ in range(20)] == [200] * 20


@pytest.mark.parametrize("start", [b"", b"GET /healthz HTTP/1.1\r\nX-Padding: ", b"POST /status HTTP/1.0\r\n\r\n"])
def test_a_client_has_one_deadline_for_everything_that_it_sends(monkeypatch: pytest.MonkeyPatch, start: bytes) -> None:
    monkeypatch.setattr(status_server, "_CLIENT_SECONDS", 0.2)
    with socket.create_connection(("127.0.0.1", serve()), timeout=0.05) as client:
        client.sendall(start)
        until = time.monotonic() + patience.SECONDS
        while time.monotonic() < until:  # and no twentieth of a second passes without a byte
            try:
                client.sendall(b"x")
                if client.recv(4096) == b"":
                    return
            except TimeoutError:
                continue
            except OSError:
                return
    pytest.fail("it is still listened to")


def test_a_request_without_a_body_is_not_listened_to_any_longer() -> None:
    with socket.create_connection(("127.0.0.1", serve()), timeout=patience.SECONDS) as client:
        client.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
        answer = b""
        while chunk := client.recv(4096):
            answer += chunk
        assert answer.endswith(b"ok\n")
        assert is_closed_to(client, chunks=1000)


def test_a_request_of_any_length_costs_little_memory() -> None:
    with socket.create_connection(("127.0.0.1", serve()), timeout=patience.SECONDS) as client:
        client.sendall(b"GET /healthz HTTP/1.1\r\n")
        assert is_closed_to(client, chunks=90), "fewer than Python's own reader takes, of a length that it takes"


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=60))
def test_an_address_that_holds_its_share_or_less_never_gives_way_to_one_that_holds_more(
    steps: list[tuple[int, bool]],
) -> None:
    connections: ConnectionLimit[int] = ConnectionLimit(8)
    held: dict[int, int] = {}
    for connection, (address, stays) in enumerate(steps):
        loser = connections.admit(connection, str(address))
        held[connection] = address
        if loser is not None:
            share = list(held.values()).count
            assert share(held[loser]) == max(share(one) for one in range(4)), "whoever holds most gives way"
            assert all(loser <= one for one, its in held.items() if its == held[loser]), "its oldest goes"
            del held[loser]
        if not stays:
            connections.release(connection)
            held.pop(connection, None)
        assert len(held) <= 8
