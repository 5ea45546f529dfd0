"""Real ranks over gloo: the rank host that runs in pods, which forks the ranks of every run, and what these tell."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pod_environment import of_pod

from oarlock_local import patience
from oarlock_trainer.ranks.rank_host import HostEvent

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from forked import Fork, Forks

_RANKS = Path(__file__).with_name("disturbed.py")
_ARGUMENTS = ("--program", f"{_RANKS.stem}:main")
_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", "GLOO_SOCKET_IFNAME": "lo", "MASTER_ADDR": "127.0.0.1",
    "PYTHONPATH": str(_RANKS.parent),
}  # fmt: skip
GPU_DEADLINE = 1700.0
"""For runs on GPUs, of a thousand steps, or of all of FLUX.1."""


@dataclass
class Run:
    """One attempt: its exit codes by rank, and what its ranks told the agent."""

    codes: dict[int, int] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)

    def of(self, event: str) -> list[dict[str, Any]]:
        return [one for one in self.events if one["event"] == event]

    @property
    def losses(self) -> dict[int, float]:
        return {one["step"]: one["loss"] for one in self.of("step") if one["rank"] == 0}

    @property
    def norms(self) -> dict[int, float]:
        """Of the gradients of each step, before clipping."""
        return {one["step"]: one["gradientNorm"] for one in self.of("step") if one["rank"] == 0}

    @property
    def failure(self) -> str:
        return " | ".join(one["summary"] for one in self.of("failure"))


class Gang:
    """Starts ranks, and listens to them."""

    def __init__(self, model: Path, pictures: Path, cache: Path, home: Path, *, forks: Forks | None = None) -> None:
        """`forks`: the suite's, of which the rank host is one. Without it the host is a process of its own, for a GPU."""
        self.model, self.pictures, self.cache = model, pictures, cache
        self._home, self._number = home, 0
        self._patience = patience.SECONDS if forks else GPU_DEADLINE
        control, self._orders = os.pipe()
        self._events, told = os.pipe()
        self._log = (home / "ranks.log").open("wb")
        self._host: Fork | subprocess.Popen[bytes]
        if forks:
            self._host = forks.start(
                "import sys; from oarlock_trainer.ranks import rank_host; sys.exit(rank_host.main())",
                [*_ARGUMENTS, "--control", "{control}", "--parent", forks.pid],
                streams=(self._log.fileno(),) * 3,
                environment=_ENVIRONMENT,
                descriptors={"control": control, "OARLOCK_AGENT_FD": told},
            )
        else:
            arguments = [*_ARGUMENTS, "--control", str(control), "--parent", str(os.getpid())]
            self._host = subprocess.Popen(
                [sys.executable, "-m", "oarlock_trainer.ranks.rank_host", *arguments],
                env={**of_pod(gpus=1), **_ENVIRONMENT, "OARLOCK_AGENT_FD": str(told)},
                pass_fds=(control, told), stdout=self._log, stderr=self._log,
            )  # fmt: skip
        os.close(control)
        os.close(told)
        self._pending = b""
        self._wait(lambda event: event["event"] == HostEvent.READY, [])

    def close(self) -> None:
        os.close(self._orders)
        self._host.wait()
        self._log.close()

    def training(self, **fields: Any) -> dict[str, Any]:
        """spec.training of a small job over the session's photographs and embeddings."""
        return {
            "model": {"family": "Flux1", "path": str(self.model)},
            "steps": 8,
            "batchSize": 2,
            "resolution": 64,
            "checkpoint": {"intervalSteps": 4},
            "optimizer": {"learningRate": 1e-3, "schedule": {"name": "Cosine", "warmupSteps": 2}},
            "data": self.data(),
        } | fields

    def data(self, pictures: Path | None = None, **fields: Any) -> dict[str, Any]:
        return {
            "textEmbeds": {"path": str(self.cache / "text")},
            "imageEmbeds": {"path": str(self.cache / "latents")},
            "datasets": [{"name": "photos", "source": {"path": str(pictures or self.pictures)}}],
        } | fields

    def run(
        self,
        output: Path,
        training: dict[str, Any],
        *,
        attempt: int = 1,
        uid: str = "job-uid",
        ranks: int = 2,
        on_event: Callable[[dict[str, Any]], None] = lambda _event: None,
        environment: Mapping[str, str] = MappingProxyType({}),
        **facts: Any,
    ) -> Run:
        """Run one attempt to its end. `on_event` sees each event as it comes and may disturb the run."""
        path = self._write_job(training, job_uid=uid, attempt=attempt, output_directory=str(output), **facts)
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        environments = [
            {
                "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks),
                "MASTER_PORT": str(port), "OARLOCK_CONFIG": str(path), "OARLOCK_OUTPUT_DIR": str(output), **environment,
            }
            for rank in range(ranks)
        ]  # fmt: skip
        self._order({"do": "start", "ranks": environments})
        run = Run()

        def note(event: dict[str, Any]) -> bool:
            if event["event"] == HostEvent.ENDED:
                run.codes[event["rank"]] = event["code"]
            on_event(event)
            return len(run.codes) == ranks

        self._wait(note, run.events)
        return run

    def _write_job(self, training: dict[str, Any], **facts: Any) -> Path:
        self._number += 1
        job = {
            "version": 2, "job": "flux", "namespace": "default", "job_uid": "job-uid", "attempt": 1, "nodes": 1,
            "gpus_per_node": 0, "training": training,
        } | facts  # fmt: skip
        path = self._home / f"job-{self._number}.json"
        path.write_text(json.dumps(job))
        return path

    def ask_to_leave(self) -> None:
        """SIGTERM to every rank."""
        self._order({"do": "signal", "number": int(signal.SIGTERM)})

    def ask(self, number: int) -> None:
        """Another signal to every rank."""
        self._order({"do": "signal", "number": number})

    def kill(self, rank: int) -> None:
        """SIGKILL to one rank, found by its name among the host's children; one that has ended stays as it is."""
        for pid in Path(f"/proc/{self._host.pid}/task/{self._host.pid}/children").read_text().split():
            if self._rank_of(int(pid)) == rank:
                os.kill(int(pid), signal.SIGKILL)

    def log(self) -> str:
        return (self._home / "ranks.log").read_text()[-4000:]

    def _rank_of(self, pid: int) -> int | None:
        # Ranks are forked in the order of their numbers, and name themselves.
        try:
            name = Path(f"/proc/{pid}/comm").read_text().strip()
        except FileNotFoundError:
            return None
        digits = "".join(letter for letter in name if letter.isdigit())
        return int(digits) if digits else None

    def _order(self, order: dict[str, Any]) -> None:
        os.write(self._orders, json.dumps(order).encode() + b"\n")

    def _wait(self, done: Callable[[dict[str, Any]], bool], seen: list[dict[str, Any]]) -> None:
        end = time.monotonic() + self._patience
        while True:
            if not select.select([self._events], [], [], max(end - time.monotonic(), 0.0))[0]:
                raise AssertionError(f"no end after {self._patience:.0f} s; the log's tail:\n{self.log()}")
            received = os.read(self._events, 65536)
            if not received:
                raise AssertionError(f"the rank host died; the log's tail:\n{self.log()}")
            *lines, self._pending = (self._pending + received).split(b"\n")
            finished = False
            for line in lines:
                event = json.loads(line)
                seen.append(event)
                finished = done(event) or finished
            if finished:
                return


def losses_in(output: Path) -> dict[int, float]:
    """The loss of each step, as the last round that did it has written it."""
    lines = map(json.loads, (output / "metrics.jsonl").read_text().splitlines())
    return {line["step"]: line["loss"] for line in lines if "loss" in line}
