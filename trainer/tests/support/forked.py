"""Programs of tests, run in forks of one process that has imported what ranks have (fork_host.py)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from oarlock_local import patience

if TYPE_CHECKING:
    from collections.abc import Mapping


class Forks:
    """Runs one program after the other."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._number = 0
        program = [sys.executable, str(Path(__file__).with_name("fork_host.py"))]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        self._host = subprocess.Popen(
            program, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )

    def close(self) -> None:
        assert self._host.stdin
        self._host.stdin.close()
        self._host.wait(timeout=patience.SECONDS)

    def __call__(
        self, program: str | Path, *arguments: object, given: str = "", environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a program: a file, or else its code. `environment`: what differs from that of this process."""
        assert self._host.stdin
        assert self._host.stdout
        self._number += 1
        files = {name: self._folder / f"{self._number}.{name}" for name in ("input", "stdout", "stderr")}
        for name, file in files.items():
            file.write_text(given if name == "input" else "")
        file_, code = (str(program), "") if isinstance(program, Path) else ("", program)
        order = {
            "program": file_, "code": code, "arguments": [str(one) for one in arguments],
            "environment": {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", **(environment or {})},
        }  # fmt: skip
        self._host.stdin.write(json.dumps(order | {name: str(file) for name, file in files.items()}) + "\n")
        self._host.stdin.flush()
        answer = self._host.stdout.readline()
        assert answer, "the host of forks died"
        said = {name: files[name].read_text() for name in ("stdout", "stderr")}
        return subprocess.CompletedProcess([str(program)], int(answer), **said)
