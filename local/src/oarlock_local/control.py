"""How commands reach a cluster's supervisor: one JSON request and one JSON answer per connection to a unix socket.

A unix socket's path may be 107 bytes long only, and a state folder may be deeper: both ends go through
/proc/self/fd, so the length of the folder's path does not matter.
"""

import json
import os
import socket
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from oarlock_local.errors import ClusterError, LocalError

Request = Mapping[str, Any]
_LONGEST = 1 << 16


@contextmanager
def _short_path(path: Path) -> Iterator[str]:
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def listen(path: Path) -> socket.socket:
    """Open the supervisor's end."""
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    path.unlink(missing_ok=True)
    with _short_path(path) as short:
        server.bind(short)
    path.chmod(0o600)
    server.listen()
    return server


def answer_one(server: socket.socket, handle: Callable[[Request], None]) -> None:
    """Take one request; what `handle` could not do becomes the answer: a cluster outlives a fault that cannot be done."""
    connection, _ = server.accept()
    with connection:
        connection.settimeout(5)
        try:
            request = json.loads(connection.recv(_LONGEST))
        except (OSError, ValueError):
            # Whoever connected said nothing that can be answered.
            return
        try:
            handle(request)
            reply: dict[str, str] = {"done": "yes"}
        except LocalError as error:
            reply = {"error": str(error)}
        except OSError as error:
            traceback.print_exc()
            reply = {"error": f"{dict(request)} failed: {error}. The end of supervisor.log tells where."}
        try:
            connection.sendall(json.dumps(reply).encode())
        except OSError:
            # The asker did not wait for the answer; what it asked for is done all the same.
            return


def ask(path: Path, request: Request, *, seconds: float = 60) -> None:
    """Send one request and wait until it is done; raises ClusterError with the supervisor's words if it was not."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(seconds)
        try:
            with _short_path(path) as short:
                connection.connect(short)
            connection.sendall(json.dumps(request).encode())
            reply = connection.recv(_LONGEST)
        except (FileNotFoundError, ConnectionError) as error:
            raise ClusterError(
                f"the supervisor of cluster {path.parent.name!r} does not answer ({error}). It may have been killed: "
                f"`oarlock-local down {path.parent.name}` clears what it left."
            ) from error
        except TimeoutError as error:
            raise ClusterError(f"the supervisor of {path.parent.name!r} took more than {seconds:g} s.") from error
    if not reply:
        raise ClusterError(f"the supervisor of {path.parent.name!r} ended while it worked on {dict(request)}.")
    if message := json.loads(reply).get("error"):
        raise ClusterError(message)
