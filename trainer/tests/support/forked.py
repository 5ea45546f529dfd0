"""Programs of tests in forks of one process that has imported what ranks have (fork_host.py). A suite has one."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from oarlock_local import patience

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Forks:
    """Starts programs, and knows how they ended. They die with this process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._number = 0
        self._ended: dict[int, int] = {}
        self._orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._orders.settimeout(patience.SECONDS)
        with theirs:
            self._host = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("fork_host.py")), str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
            )

    @property
    def pid(self) -> int:
        """Of the programs' parent."""
        return self._host.pid

    def close(self) -> None:
        """End the host, and what it has forked."""
        self._orders.close()
        self._host.wait(timeout=patience.SECONDS)

    def start(
        self,
        program: str | Path,
        arguments: Sequence[object] = (),
        *,
        streams: tuple[int, int, int],
        environment: Mapping[str, str] = _NOTHING,
        descriptors: Mapping[str, int] = _NOTHING,
    ) -> Fork:
        """Start a program: a file, or else its code.

        `streams` are its standard ones. `environment`: what differs from that of this process. `descriptors`: a program finds
        the number of each in this variable, and in the place of the argument {NAME}.
        """
        file, code = (str(program), "") if isinstance(program, Path) else ("", program)
        order = {
            "program": file, "code": code, "arguments": [str(one) for one in arguments], "descriptors": [*descriptors],
            "environment": {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", **environment},
        }  # fmt: skip
        socket.send_fds(self._orders, [json.dumps(order).encode()], [*streams, *descriptors.values()])
        while "code" in (answer := self._answer()):
            self._ended[answer["pid"]] = answer["code"]
        self._ended.pop(
            answer["pid"], None
        )  # of a program before it that had the same number, and that nobody asked for
        return Fork(answer["pid"], self)

    def end_of(self, pid: int) -> int:
        """Wait for the end of a program: its exit code, or minus the signal that killed it."""
        while pid not in self._ended:
            answer = self._answer()
            self._ended[answer["pid"]] = answer["code"]
        return self._ended.pop(pid)

    def __call__(
        self, program: str | Path, *arguments: object, given: str = "", environment: Mapping[str, str] = _NOTHING
    ) -> subprocess.CompletedProcess[str]:
        """Run a program to its end."""
        self._number += 1
        files = {name: self._folder / f"{self._number}.{name}" for name in ("input", "stdout", "stderr")}
        for name, path in files.items():
            path.write_text(given if name == "input" else "")
        with ExitStack() as opened:
            streams = [opened.enter_context(path.open("rb+")).fileno() for path in files.values()]
            fork = self.start(program, arguments, streams=(streams[0], streams[1], streams[2]), environment=environment)
        code = fork.wait()
        said = {name: files[name].read_text() for name in ("stdout", "stderr")}
        return subprocess.CompletedProcess([str(program)], code, **said)

    def _answer(self) -> dict[str, int]:
        received = self._orders.recv(1 << 16)
        assert received, "the host of forks died"
        answer: dict[str, int] = json.loads(received)
        return answer


@dataclass(frozen=True)
class Fork:
    """A program that was started."""

    pid: int
    _forks: Forks

    def wait(self) -> int:
        """Its exit code, or minus the signal that killed it."""
        return self._forks.end_of(self.pid)
