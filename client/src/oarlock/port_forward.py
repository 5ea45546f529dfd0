"""GET from within a pod: through the API server's port-forward, as the caller, as if he stood in the pod.

The kubelet makes the connection, so it comes from the pod's own loopback, whatever the network in between is closed for
(docs/decisions/0057). One request for each connection: frames begin with a channel's number, 0 for the port's bytes, 1 for
what is wrong with it; each channel's first frame is the port.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from oarlock.checked_name import checked_name
from oarlock.cluster import Cluster
from oarlock.errors import ForbiddenError, NoClusterError, NotFoundError, NotNowError

if TYPE_CHECKING:
    from websocket import WebSocket

PROTOCOL = "v4.channel.k8s.io"
SECONDS = 60.0
"""Of one request, as long as the agent takes for a picture."""
MOST_HEAD = 16 * 1024
_DATA, _ERROR = 0, 1
_FIRST = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})[^\r\n]*\r\n")
_GAP = b"\r\n\r\n"
_LENGTH = re.compile(rb"^content-length: *([0-9]{1,12}) *\r?$", re.IGNORECASE | re.MULTILINE)


def get(
    cluster: Cluster,
    path: str,
    *,
    namespace: str,
    pod: str,
    port: int,
    most: int,
    seconds: float = SECONDS,
    admit: Callable[[int], None] = lambda _: None,
) -> bytes:
    """The body of a pod's answer, of at most so many bytes. `path` is one of this program's own, quoted.

    `admit` is told how many bytes come, before they are read; what it raises ends the connection.

    Raises OarlockError; NotFoundError where the pod has no such path, NotNowError where it gives no answer.
    """
    until = time.monotonic() + seconds
    where = f"/api/v1/namespaces/{checked_name(namespace, 'namespace')}/pods/{checked_name(pod, 'pod')}/portforward"
    socket: Any
    try:
        socket = cluster.web_socket(where, protocol=PROTOCOL, seconds=seconds, ports=str(port))
    except ForbiddenError as error:
        raise ForbiddenError(f"{error} (`create` and `get` of `pods/portforward`)") from error
    try:
        status, body = _answer(
            socket, f"GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode(), most, until, pod, admit
        )
    finally:
        socket.shutdown()
    words = " ".join(body[:300].decode(errors="replace").split())
    if status == 404:
        raise NotFoundError(f"{pod} does not have {path}: {words}")
    if status != 200:
        raise NotNowError(f"{pod} does not give {path} now ({status}): {words}")
    return body


def _answer(  # noqa: PLR0917 - one question's
    socket: WebSocket,
    request: bytes,
    most: int,
    until: float,
    pod: str,
    admit: Callable[[int], None] = lambda _: None,
) -> tuple[int, bytes]:
    """The status and the body. Raises NoClusterError, NotNowError."""
    said = bytearray()
    body, end = 0, MOST_HEAD
    for piece in _received(socket, request, until, pod):
        new = max(0, len(said) - len(_GAP) + 1)  # a gap may begin in what came before
        said += piece
        if not body and (gap := said.find(_GAP, new, MOST_HEAD)) >= 0:
            body = gap + len(_GAP)
            told = _LENGTH.search(said, 0, body)
            if not told or int(told[1]) > most:
                raise NotNowError(f"the answer of {pod} is longer than {most:,} bytes, or does not say how long it is")
            admit(int(told[1]))
            end = body + int(told[1])
        if len(said) >= end:
            break
    if not body or len(said) < end or not (first := _FIRST.match(said, 0, body)):
        raise NotNowError(f"{pod} broke off its answer: is its agent there?")
    with memoryview(said) as whole:
        return int(first[1]), bytes(whole[body:end])


def _received(socket: WebSocket, request: bytes, until: float, pod: str) -> Iterator[bytes]:
    """What the port says to what was sent, piece by piece. Raises NoClusterError, NotNowError."""
    import websocket  # noqa: PLC0415 - who gets here has paid

    opened = set()
    try:
        socket.send_binary(bytes([_DATA]) + request)
        while True:
            left = until - time.monotonic()
            if left <= 0:
                raise NoClusterError(f"{pod} does not answer in time")
            socket.settimeout(left)
            opcode, frame = socket.recv_data()
            if opcode == websocket.ABNF.OPCODE_CLOSE or not frame:
                return
            channel, told = frame[0], frame[1:]
            if channel not in opened:
                opened.add(channel)  # the port's number
            elif channel == _ERROR:
                raise NotNowError(f"{pod} cannot be reached: {' '.join(told[:300].decode(errors='replace').split())}")
            elif channel == _DATA:
                yield told
    except (websocket.WebSocketException, OSError) as error:
        raise NoClusterError(f"the connection to {pod} broke off: {error or type(error).__name__}") from error
