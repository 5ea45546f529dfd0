"""The server's process before clients that send nothing, or slowly: each connection is one of a bounded number."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from streams import served

from oarlock.web import guards, patient, sent, serve
from oarlock.web.access.link import LinkAuthenticator
from oarlock.web.app import build
from oarlock.web.budget import Budget
from oarlock.web.settings import Settings
from oarlock_local import patience


@pytest.fixture
def client(access: LinkAuthenticator) -> Iterator[socket.socket]:
    """Connected to a server that really runs."""
    with served(build(Settings(), access)) as address:
        where = urlsplit(address)
        with socket.create_connection((where.hostname or "", where.port or 0), timeout=patience.SECONDS) as connection:
            yield connection


def ended(client: socket.socket) -> bytes:
    """What comes until the server ends the connection; a client that waits for ever fails by its own timeout."""
    said = b""
    while piece := client.recv(65536):
        said += piece
    return said


def dribble(client: socket.socket) -> None:
    """Send a byte now and then until the server ends the connection."""
    client.settimeout(0.02)
    until = time.monotonic() + patience.SECONDS
    said = b"x"
    while said and time.monotonic() < until:
        try:
            client.sendall(b"G")
            said = client.recv(65536)
        except TimeoutError:
            continue
        except OSError:
            said = b""
    assert said == b""


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patient, "HEAD_SECONDS", 0.05)


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("said", [b"", b"G", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-A: "])
def test_who_sends_nothing_or_half_a_head_loses_the_connection(client: socket.socket, said: bytes) -> None:
    client.sendall(said)
    assert ended(client) == b""


def test_who_sends_a_head_byte_by_byte_has_no_more_time_for_it(
    client: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patient, "HEAD_SECONDS", 0.2)
    client.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: keep-alive\r\n\r\n")
    answer = b""
    while not answer.endswith(b"\r\n\r\nok"):
        answer += client.recv(65536)
    dribble(client)


@pytest.mark.parametrize("request_line", [b"GET /healthz", b"POST /theme", b"GET /nowhere"])
def test_who_is_answered_and_sends_a_body_byte_by_byte_loses_the_connection(
    client: socket.socket, monkeypatch: pytest.MonkeyPatch, request_line: bytes
) -> None:
    monkeypatch.setattr(patient, "HEAD_SECONDS", 0.2)
    monkeypatch.setattr(guards, "FORM_SECONDS", 0.0)
    client.sendall(request_line + b" HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\nx")
    assert client.recv(65536).startswith(b"HTTP/1.1 ")
    dribble(client)


@pytest.mark.usefixtures("hurried")
def test_an_answer_may_take_longer_than_a_head(access: LinkAuthenticator) -> None:
    with served(build(Settings(), access)) as address:
        where = urlsplit(address)
        with socket.create_connection((where.hostname or "", where.port or 0), timeout=patience.SECONDS) as client:
            cookie = f"oarlock-8270={access._caller.session}"
            client.sendall(f"GET /live/jobs HTTP/1.1\r\nHost: localhost\r\nCookie: {cookie}\r\n\r\n".encode())
            said = b""
            while b"event: draw" not in said:
                piece = client.recv(65536)
                assert piece, said
                said += piece


@pytest.mark.usefixtures("hurried")
def test_a_head_with_the_longest_token_may_come_in_pieces(client: socket.socket) -> None:
    client.sendall(b"GET / HTTP/1.1\r\nCookie: " + b"x" * 30_000)
    assert ended(client) == b"", "it waits for the rest"


@pytest.mark.parametrize("half_closed", [False, True])
def test_who_takes_nothing_of_a_large_answer_keeps_no_connection(
    monkeypatch: pytest.MonkeyPatch, *, half_closed: bool
) -> None:
    lost, room = threading.Event(), Budget()
    monkeypatch.setattr(sent, "SEND_SECONDS", 0.1)
    monkeypatch.setattr(patient, "CLOSE_SECONDS", 0.1)
    closed = patient.PatientProtocol.connection_lost

    def lose(self: patient.PatientProtocol, error: Exception | None) -> None:
        closed(self, error)
        lost.set()

    monkeypatch.setattr(patient.PatientProtocol, "connection_lost", lose)

    async def picture(_: Request) -> Response:
        return sent.Sent(b"x" * 2**25, room.share(), media_type="image/png", headers={})

    with served(Starlette(routes=[Route("/picture", picture)])) as address, socket.socket() as client:
        where = urlsplit(address)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect((where.hostname, where.port))
        client.sendall(b"GET /picture HTTP/1.1\r\nHost: localhost\r\n\r\n")
        if half_closed:
            client.recv(1)
            client.shutdown(socket.SHUT_WR)
        assert lost.wait(patience.SECONDS)


def test_a_head_without_end_is_refused(client: socket.socket) -> None:
    client.sendall(b"GET / HTTP/1.1\r\nX-A: " + b"x" * serve.MOST_HEAD)
    assert ended(client).startswith(b"HTTP/1.1 400 ")


def test_a_form_that_does_not_come_to_its_end_is_refused(
    client: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guards, "FORM_SECONDS", 0.0)
    client.sendall(b"POST /theme HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nth")
    assert client.recv(65536).startswith(b"HTTP/1.1 408 ")
