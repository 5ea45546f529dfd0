"""A real agent process for tests."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

from oarlock_api.contract import gang_key
from oarlock_api.contract.requests import MEANT
from oarlock_local import patience
from oarlock_local.patience import eventually

KEY = "ab" * 32
"""What an agent's pod is given in its file `key`, where it is given one."""


def lives(pid: int) -> bool:
    """Whether a thread of the process runs; a zombie does not."""
    threads = Path(f"/proc/{pid}/task")
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return any(_runs(threads / name / "stat") for name in os.listdir(threads))  # noqa: PTH208 - Path looks twice
    return False


def _runs(stat: Path) -> bool:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return stat.read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


LOST_SOON: dict[str, float] = {
    "oarlock_trainer.agent.parts:HEARTBEAT_SECONDS": 0.2,
    "oarlock_trainer.agent.parts:SILENCE_SECONDS": 1.0,
    "oarlock_trainer.agent.rounds.gang_rounds:SILENCE_SECONDS": 1.0,
    "oarlock_trainer.agent.rounds.gang_rounds:KILL_SECONDS": 0.5,
    "oarlock_trainer.agent.supervise:_TICK_SECONDS": 0.2,
}
"""For `Agent.altered`, of all agents of a gang: whoever falls silent is lost after a second, and its ranks are gone soon."""

SETTLES_SOON: dict[str, float] = {"oarlock_trainer.agent.supervise:_SETTLE_SECONDS": 0.2}
"""For `Agent.altered`: ranks that live still get that long to name another cause than the first one."""


class Agent:
    """`oarlock-trainer agent` as a child process, with everything that it reads and writes below one folder."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        self.output = scratch / "output" / "flux"
        self.report_path = scratch / "report"
        self.log_path = scratch / "log"
        self.job: dict[str, Any] = {
            "version": 2,
            "job": "flux",
            "namespace": "default",
            "job_uid": "uid-of-job",
            "attempt": 3,
            "nodes": 2,
            "gpus_per_node": 2,
            "output_directory": str(self.output),
            "training": {"method": "Full"},
            "ports": {"rendezvous": 0, "status": 0, "link": 0},
            "preflight": {"clock": False, "gpus": False, "collective": False},
        }
        self.environment = {
            **os.environ,
            "PYTHONPATH": str(Path(__file__).parent),
            "SCRATCH": str(scratch),
            "OARLOCK_SIMULATE_GPUS": "1",
            "OARLOCK_JOB": "flux",
            "OARLOCK_ATTEMPT": "3",
            "OARLOCK_POD_UID": "uid-of-pod",
            "OARLOCK_NODE": "node-1",
            "OARLOCK_CONFIG": str(scratch / "job.json"),
            "MACHINE_RANK": "0",
            "MASTER_ADDR": "flux-0.flux.default.svc",
            "MASTER_PORT": "29500",
        }
        self.launcher: tuple[str, ...] = ()
        self.altered: dict[str, float | list[float] | str] = {}
        """What of the agent's own, seconds above all, that are others in this test, by MODULE:NAME (altered_agent.py)."""
        self.process: subprocess.Popen[bytes] | None = None
        self._port = ""

    def start(
        self, program: str, *, warm: str = "fake_programs:imports_nothing", arguments: tuple[str, ...] = ()
    ) -> None:
        (self.scratch / "job.json").write_text(json.dumps(self.job))
        self.environment |= {"ALTERED": json.dumps(self.altered)} if self.altered else {}
        command = [
            *self.launcher,
            *(sys.executable, "-m", "altered_agent" if self.altered else "oarlock_trainer", "agent", *arguments),
            *("--program", program if ":" in program else f"fake_programs:{program}", "--warm", warm),
            *("--run-directory", str(self.scratch / "run"), "--termination-log", str(self.report_path)),
        ]
        self._run(command)

    def start_bundled(self, bundle: Path, command: list[str], *, python: Path | None = None) -> None:
        """As in an image of somebody else's: the job's own command, under the agent in one file."""
        self.job |= {"training": {}, "custom": {**self.job.get("custom", {}), "command": command}}
        (self.scratch / "job.json").write_text(json.dumps(self.job))
        files = ("--run-directory", str(self.scratch / "run"), "--termination-log", str(self.report_path))
        self._run([*self.launcher, str(python or sys.executable), "-I", "-S", str(bundle), *files])

    def _run(self, command: list[str]) -> None:
        self._port = ""
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(command, env=self.environment, stdout=log, stderr=log)

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def wait(self) -> int:
        assert self.process is not None
        try:
            return self.process.wait(patience.SECONDS)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the agent does not end:\n{self.log_path.read_text()}") from None

    def end(self) -> None:
        """The agent and all that it has begun, as with its node: afterwards nobody writes to its folders any more."""
        if self.process is not None:
            family = self._family()
            self.process.kill()
            self.process.wait()
            eventually(lambda: not self._kill(family | self._family()), "the end of all processes of the agent")

    def _family(self) -> set[int]:
        """The processes that have its environment, whoever their parents are by now."""
        mark, found = f"SCRATCH={self.scratch}\0".encode(), set()
        for name in filter(str.isdecimal, os.listdir("/proc")):  # noqa: PTH208 - Path looks twice, and processes end
            with contextlib.suppress(OSError):
                if mark in Path("/proc", name, "environ").read_bytes():
                    found.add(int(name))
        return found

    @staticmethod
    def _kill(pids: set[int]) -> list[int]:
        """Those that lived still."""
        alive = [pid for pid in sorted(pids) if lives(pid)]
        for pid in alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return alive

    def mark(self, name: str) -> None:
        (self.scratch / name).touch()

    def awaited(self, name: str) -> str:
        """Content of a file that a rank leaves in the scratch folder, once it is there."""
        path = self.scratch / name
        eventually(path.exists, lambda: f"{name}; log:\n{self.log_path.read_text()}")
        return path.read_text()

    def rank_pid(self, rank: int) -> int:
        return int(self.awaited(f"rank-{rank}"))

    def report(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.report_path.read_text())
        return found

    def log(self) -> list[dict[str, Any]]:
        lines = []
        for line in self.log_path.read_text().splitlines():
            with contextlib.suppress(ValueError):
                lines.append(json.loads(line))
        return lines

    @property
    def port(self) -> str:
        """Where /status is, once the agent listens."""
        self._port = self._port or eventually(self._listens_at, "listening")
        return self._port

    def _listens_at(self) -> str:
        return next((str(line["port"]) for line in self.log() if line.get("message") == "listening"), "")

    def get(self, path: str) -> bytes:
        question = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", headers={MEANT: "1"})
        with urllib.request.urlopen(question, timeout=patience.SECONDS) as answer:  # noqa: S310
            body: bytes = answer.read()
        return body

    def hear_of_the_end(self, rank: int, *, next_incarnation: int) -> None:
        """Be told, as rank 0's agent, what the operator has seen: the end of that pod. Nobody waits for its silence then."""
        key = gang_key.attempt_key(bytes.fromhex(KEY), self.job["job_uid"], self.job["attempt"])
        told = {"now": time.time(), "ended": f"{rank}-{next_incarnation}"}
        self.get(gang_key.question(key, "/status", pod_uid=self.environment["OARLOCK_POD_UID"], **told))

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.get("/status"))
        return found


def free_port() -> int:
    """A port for a process that starts later: none of those (32768 and up) that the system hands out meanwhile."""
    chance = random.Random()  # noqa: S311 - no secret
    while True:
        port = chance.randrange(20000, 30000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def pair(folder: Path) -> list[Agent]:
    """The agents of nodes 0 and 1 of one gang, on this machine."""
    return agents_of(folder, pods=2)


def agents_of(folder: Path, *, pods: int) -> list[Agent]:
    """The agents of all pods of one gang, on this machine."""
    link, agents = free_port(), []
    for rank in range(pods):
        (folder / str(rank)).mkdir()
        agent = Agent(folder / str(rank))
        agent.job["ports"]["link"] = link
        agent.environment |= {"MACHINE_RANK": str(rank), "MASTER_ADDR": "127.0.0.1"}
        agents.append(agent)
    return agents
