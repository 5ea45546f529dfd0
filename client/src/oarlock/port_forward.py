"""GET from within a pod: through the API server's port-forward, as the caller, as if he stood in the pod.

The kubelet makes the connection, so it comes from the pod's own loopback, whatever the network in between is closed for
(docs/decisions/0057). One request for each connection: frames begin with a channel's number, 0 for the port's bytes, 1 for
what is wrong with it; each channel's first frame is the port.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from oarlock.cluster import Cluster
from oarlock.errors import ForbiddenError, NoClusterError, NotFoundError, NotNowError
from oarlock.names import checked_name

if TYPE_CHECKING:
    from websocket import WebSocket

PROTOCOL = "v4.channel.k8s.io"
SECONDS = 60.0
"""Of one request, as long as the agent takes for a picture."""
MOST_HEAD = 16 * 1024
_DATA, _ERROR = 0, 1
_HEAD = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})[^\r\n]*\r\n(.*?)\r\n\r\n", re.DOTALL)
_LENGTH = re.compile(rb"^content-length: *([0-9]{1,12}) *\r?$", re.IGNORECASE | re.MULTILINE)


def get(
    cluster: Cluster, path: str, *, namespace: str, pod: str, port: int, most: int, seconds: float = SECONDS
) -> bytes:
    """The body of a pod's answer, of at most so many bytes. `path` is one of this program's own, quoted.

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
        status, body = _answer(socket, f"GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode(), most, until, pod)
    finally:
        socket.shutdown()
    words = " ".join(body[:300].decode(errors="replace").split())
    if status == 404:
        raise NotFoundError(f"{pod} does not have {path}: {words}")
    if status != 200:
        raise NotNowError(f"{pod} does not give {path} now ({status}): {words}")
    return body


def _answer(socket: WebSocket, request: bytes, most: int, until: float, pod: str) -> tuple[int, bytes]:
    """The status and the body. Raises NoClusterError, NotNowError."""
    said = bytearray()
    end: int | None = None
    for piece in _received(socket, request, until, pod):
        said += piece
        if end is None and (found := _HEAD.match(said, 0, MOST_HEAD)):
            told = _LENGTH.search(found[2])
            end = found.end() + int(told[1]) if told else None
            if end is None or end > found.end() + most:
                raise NotNowError(f"the answer of {pod} is longer than {most:,} bytes, or does not say how long it is")
        if len(said) >= (MOST_HEAD if end is None else end):
            break
    if end is None or len(said) < end or not (found := _HEAD.match(said)):
        raise NotNowError(f"{pod} broke off its answer: is its agent there?")
    return int(found[1]), bytes(said[found.end() : end])


def _received(socket: WebSocket, request: bytes, until: float, pod: str) -> Iterator[bytes]:
    """What the port says to what was sent, piece by piece. Raises NoClusterError, NotNowError."""
    import websocket  # noqa: PLC0415 - who gets here has paid

    opened = set()
    try:
        socket.send_binary(bytes([_DATA]) + request)
        while True:
            socket.settimeout(max(0.001, until - time.monotonic()))
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
