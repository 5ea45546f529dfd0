"""When each pod was created, ran and was gone, and when each job's attempt was raised: seen by a watch of our own.

    python bench/pod_watch.py KUBECONFIG

As a program it watches, in a process of its own, because the API server drops a watch whose reader is slow without a
word: it prints one JSON line per event, with the time at which the event arrived. `PodWatch` runs it and keeps the
lives of all pods.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from connection import CORE, JOBS, Connection
from floor import POD_LABEL
from jobset import LABEL as JOBSET_LABEL

from oarlock_api.contract.names import Label
from oarlock_local.processes import die_with_parent


@dataclass(slots=True)
class Life:
    """One pod's life, in time.monotonic() seconds, which all processes of a machine share."""

    name: str
    node: str
    created: float
    running: float | None = None
    gone: float | None = None


class PodWatch:
    """What the watching process has told so far."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.lives: dict[str, dict[str, Life]] = {}
        """Job -> uid of the pod -> its life."""
        self.attempts: dict[str, dict[int, float]] = {}
        """Job -> number of the attempt -> when the status told it first."""
        self.resumed = 0

    def of(self, jobs: Iterable[str]) -> list[Life]:
        """All lives of those jobs' pods, in the order of their creation."""
        return [life for job in jobs for life in self.lives.get(job, {}).values()]

    def note(self, line: bytes) -> None:
        """Take in one line of the watching process."""
        arrived, kind, change, job, *rest = json.loads(line)
        if kind == "job":
            self.attempts.setdefault(job, {}).setdefault(rest[0], arrived)
            self.resumed = rest[1]
            return
        uid, name, node, phase, self.resumed = rest
        life = self.lives.setdefault(job, {}).setdefault(uid, Life(name=name, node=node, created=arrived))
        life.node = node or life.node
        if phase == "Running" and life.running is None:
            life.running = arrived
        if change == "DELETED":
            life.gone = arrived


@asynccontextmanager
async def watching(kubeconfig: Path) -> AsyncIterator[PodWatch]:
    """Watch for the length of the block."""
    program = await asyncio.create_subprocess_exec(
        sys.executable,
        __file__,
        str(kubeconfig),
        stdout=asyncio.subprocess.PIPE,
        process_group=0,
        preexec_fn=die_with_parent,
    )
    watch = PodWatch(program.pid)

    async def read() -> None:
        assert program.stdout is not None  # noqa: S101 - it is a pipe, see above
        async for line in program.stdout:
            watch.note(line)

    reading = asyncio.create_task(read())
    try:
        yield watch
    finally:
        reading.cancel()
        if program.returncode is None:
            program.terminate()
        await program.wait()


async def _tell_pods(api: Connection) -> None:
    async for arrived, event in api.watch(f"{CORE}/pods"):
        pod = event["object"]
        metadata = pod["metadata"]
        labels = metadata.get("labels") or {}
        job = next((labels[key] for key in (Label.JOB.value, POD_LABEL, JOBSET_LABEL) if labels.get(key)), "")
        seen = (metadata["uid"], metadata["name"], pod["spec"].get("nodeName", ""), pod["status"].get("phase"))
        _tell(arrived, "pod", event["type"], job, *seen, api.resumed)


async def _tell_jobs(api: Connection) -> None:
    async for arrived, event in api.watch(JOBS):
        attempt = (event["object"].get("status") or {}).get("attempt", 0)
        _tell(arrived, "job", event["type"], event["object"]["metadata"]["name"], attempt, api.resumed)


def _tell(*words: object) -> None:
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


async def _watch(kubeconfig: Path) -> None:
    async with Connection(kubeconfig) as api, asyncio.TaskGroup() as tasks:
        tasks.create_task(_tell_pods(api))
        tasks.create_task(_tell_jobs(api))


if __name__ == "__main__":
    asyncio.run(_watch(Path(sys.argv[1])))
