"""GET from within a pod, through the API server, as the caller."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest
from fake_api import FakeApi

from oarlock import ForbiddenError, NotFoundError, OarlockError
from oarlock.cluster import connect
from oarlock.errors import NoClusterError, NotNowError
from oarlock.port_forward import _answer, get

WHERE = "/api/v1/namespaces/default/pods/flux-1-0/portforward"
Says = Callable[[bytes], None]


@pytest.fixture
def says(api: FakeApi) -> Iterator[Says]:
    """What the pod answers to one request, byte for byte; a port where it listens once."""
    listener = socket.create_server(("127.0.0.1", 0))
    api.forwards[WHERE] = listener.getsockname()[1]
    heard: list[bytes] = []

    def answer(body: bytes) -> None:
        def serve() -> None:
            connection, _ = listener.accept()
            with closing(connection):
                heard.append(connection.recv(4096))
                connection.sendall(body)

        threading.Thread(target=serve, daemon=True).start()

    with closing(listener):
        yield answer


def ask(path: str = "/figures?since=3", most: int = 1 << 20) -> bytes:
    return get(connect(), path, namespace="default", pod="flux-1-0", port=9400, most=most)


def told(body: bytes, status: str = "200 OK") -> bytes:
    return f"HTTP/1.0 {status}\r\nServer: oarlock\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


@pytest.mark.parametrize("size", [0, 1, 100_000])
def test_a_body_of_any_size_comes_whole_and_the_port_is_the_one_that_was_asked_for(
    api: FakeApi, says: Says, size: int
) -> None:
    body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    says(told(body))
    assert ask() == body
    assert api.asked[-1][1] == f"{WHERE}?ports=9400"


def test_an_answer_that_is_too_long_is_not_read(says: Says) -> None:
    says(told(b"x" * 2000))
    with pytest.raises(NotNowError, match="longer than 1,000 bytes"):
        ask(most=1000)


@pytest.mark.parametrize(
    ("said", "error", "words"),
    [
        pytest.param(told(b"no such picture\n", "404 Not Found"), NotFoundError, "no such picture", id="404"),
        pytest.param(told(b"others read", "503 Unavailable"), NotNowError, "others read", id="503"),
        pytest.param(b"HTTP/1.0 200 OK\r\nContent-Length: 10\r\n\r\nhalf", NotNowError, "broke off", id="half"),
        pytest.param(b"HTTP/1.0 200 OK\r\nServer: x\r\n\r\nendless", NotNowError, "how long", id="no length"),
        pytest.param(b"what?" * 10_000, NotNowError, "broke off", id="no HTTP"),
        pytest.param(b"", NotNowError, "broke off", id="nothing"),
    ],
)
def test_an_answer_that_is_none_is_an_error_in_words(
    says: Says, said: bytes, error: type[OarlockError], words: str
) -> None:
    says(said)
    with pytest.raises(error, match=words):
        ask()


def test_a_port_on_which_nobody_listens_is_said(api: FakeApi) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        api.forwards[WHERE] = listener.getsockname()[1]
    with pytest.raises(NotNowError, match="flux-1-0 cannot be reached: error forwarding port 9400"):
        ask()


def test_who_may_not_forward_ports_hears_which_rights_he_lacks(api: FakeApi) -> None:
    api.refusals[WHERE] = (403, 'pods "flux-1-0" is forbidden: User "me" cannot create resource "pods/portforward"')
    with pytest.raises(ForbiddenError, match="`create` and `get` of `pods/portforward`"):
        ask()


def test_an_api_server_that_is_gone_is_a_hiccup(api: FakeApi) -> None:
    cluster = connect()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        gone = listener.getsockname()[1]
    object.__setattr__(cluster._access, "host", f"http://127.0.0.1:{gone}")
    with pytest.raises(NoClusterError, match="opens no connection"):
        get(cluster, "/figures", namespace="default", pod="flux-1-0", port=9400, most=10)
    assert api.asked == []


def test_an_answer_that_trickles_is_given_up_when_its_time_is_over() -> None:
    frames = iter([b"\0\0\0"])
    trickle: Any = SimpleNamespace(
        send_binary=lambda _: None, settimeout=lambda _: None, recv_data=lambda: (2, next(frames, b"\0x"))
    )
    with pytest.raises(NoClusterError, match="in time"):
        _answer(trickle, b"", 10, time.monotonic() - 1, "flux-1-0")
