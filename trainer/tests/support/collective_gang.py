"""Nodes for tests of the collective check: one process imports torch once and forks every gang that it is asked for.

Reads one order a line, {"nodes": 3, "ranks": 1, "seconds": 5, "apart": 9, "troubles": {"2": "cannot connect"}}, runs that
gang, whose nodes may come up 9 s apart, on this machine and answers with a line: for each rank, in order, its code, what it
said, and what it told its agent.

Nobody sits out a gang's time: its ranks have one clock, which goes on by itself and is put forward once all that can happen
before has happened. So its seconds may be as many as a busy machine could need.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from oarlock_trainer.ranks import preload

preload.settle_environment()
from oarlock_trainer.runtime.uncompiled import import_torch  # noqa: E402

import_torch()
import torch.distributed as dist  # noqa: E402

from oarlock_api.contract.job_file import JobFile  # noqa: E402
from oarlock_api.contract.sections import Preflight  # noqa: E402
from oarlock_trainer.engine import process_group  # noqa: E402
from oarlock_trainer.health.fabric import Fabric  # noqa: E402
from oarlock_trainer.preflight.collective import check, exercise, reach, slow_network  # noqa: E402
from oarlock_trainer.preflight.collective.meeting import Meeting  # noqa: E402
from oarlock_trainer.runtime.errors import TrainingEnd  # noqa: E402
from oarlock_trainer.runtime.job import Job, RankInfo  # noqa: E402
from oarlock_trainer.runtime.stop import StopRequest  # noqa: E402


class Clock:
    """What the check takes for its module `time`, in all ranks of one gang."""

    def __init__(self) -> None:
        self._ahead = multiprocessing.Value("d", 0.0)
        self.sleep = time.sleep

    def monotonic(self) -> float:
        return time.monotonic() + self._ahead.value

    def forward(self, seconds: float) -> None:
        with self._ahead.get_lock():
            self._ahead.value += seconds


class Arrivals:
    """The nodes that have said that they are here, or wait in vain to say so. Once it is so many, the others are late."""

    def __init__(self, clock: Clock, late_after: int) -> None:
        """`late_after` 0: all come."""
        self._count = multiprocessing.Value("i", 0)
        self._clock, self._late_after = clock, late_after

    def one_more(self) -> None:
        with self._count.get_lock():
            self._count.value += 1
            if self._count.value == self._late_after:
                self._clock.forward(check._APART_SECONDS)

    def wait_for_one(self) -> None:
        while not self._count.value:
            time.sleep(0.005)


class Deaf(socket.socket):
    """Says that it listens, on a port where nobody does."""

    def getsockname(self) -> Any:
        return ("127.0.0.1", 1)


def cannot_register(*_: object) -> None:
    """What torch raises where InfiniBand's library can't lock a buffer."""
    raise dist.DistBackendError(
        "NCCL error: ncclSystemError. Last error: Call to ibv_reg_mr failed: Cannot allocate memory"
    )


def in_trouble(job: Job, trouble: str, clock: Clock, arrivals: Arrivals) -> Job:
    """The job of a rank to which this happens; what is patched here lives in this rank's process alone."""
    if trouble == "cannot connect":
        turn = check._Check._turn

        def first_turn(one: check._Check) -> None:
            check._Check._turn = turn
            arrivals.one_more()
            turn(one)

        check._Check._turn = first_turn
        return replace(job, rendezvous=("127.0.0.1", 1))
    if trouble == "cannot be reached":
        reach.listen = lambda *_args, **_kinds: Deaf()
    elif trouble == "comes late":
        arrivals.wait_for_one()
        clock.forward(check._APART_SECONDS - 10)
        time.sleep(10 * check._TURN_SECONDS)  # in which whoever waits looks at it
    elif trouble == "hangs":
        exercise.run = lambda *_: (clock.forward(job.collective_seconds), threading.Event().wait())
    elif trouble == "cannot lock memory":
        slow_network.read_fabric = lambda: Fabric(devices=("uverbs0",), lockable=8 << 20)
        exercise.run = cannot_register
    elif trouble == "is slow":
        fastest = exercise._fastest
        exercise._fastest = lambda work, device, before: fastest(work, device, before=before) + 5000.0
    elif trouble == "corrupts":
        reduce = dist.all_reduce
        dist.all_reduce = lambda tensor: reduce(tensor.mul_(3.0))
    elif trouble == "is asked to leave":
        os.kill(os.getpid(), signal.SIGTERM)
    return job


def run_rank(job: Job, trouble: str, clock: Clock, arrivals: Arrivals) -> dict[str, Any]:
    """One rank's life."""
    stop = StopRequest()
    check.time, tell = clock, Meeting.tell

    def tell_and_count(meeting: Meeting, name: str, value: Any) -> None:
        tell(meeting, name, value)
        if name == "here":
            arrivals.one_more()

    Meeting.tell = tell_and_count
    try:
        ranks = check.join(in_trouble(job, trouble, clock, arrivals), go_on=stop.leave_if_requested)
    except TrainingEnd as end:
        return {"code": int(end.code), "said": str(end)}
    total = ranks.sum([1.0])
    process_group.leave()
    return {"code": 0, "said": f"{total[0]:.0f} ranks"}


def run_gang(order: dict[str, Any], scratch: Path) -> list[dict[str, Any]]:
    """One gang's life. A node whose trouble is `absent` has no rank."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    nodes, local = order["nodes"], order["ranks"]
    check._APART_SECONDS, check._CUT_OFF_SECONDS, check._LOOK_SECONDS = order["apart"], 0.5, 0.5
    file = JobFile(
        job="flux", namespace="default", job_uid="uid", attempt=1, nodes=nodes, gpus_per_node=0,
        output_directory=str(scratch / "output"), training={}, preflight=Preflight(min_bus_bandwidth=order.get("floor")),
    )  # fmt: skip
    troubles, pids, clock = order["troubles"], {}, Clock()
    cut_off = [node for node, trouble in troubles.items() if trouble == "cannot connect" and nodes > 2]
    some_never_come = bool(troubles) and set(troubles.values()) <= {"absent", "cannot connect"} and not cut_off
    arrivals = Arrivals(clock, nodes - list(troubles.values()).count("absent") if some_never_come else 0)
    for rank in range(nodes * local):
        trouble = troubles.get(str(rank // local), "")
        if trouble == "absent":
            continue
        rank_info = RankInfo(rank=rank, local_rank=rank % local, world_size=nodes * local, local_world_size=local)
        job = Job(
            file=file, training=None, rank_info=rank_info, simulate_gpus=False, node=f"gpu-{rank // local:02}",
            rendezvous=("127.0.0.1", port), collective_seconds=order["seconds"],
        )  # fmt: skip
        if (pid := os.fork()) == 0:
            told = os.open(scratch / f"told-{rank}", os.O_WRONLY | os.O_CREAT)
            os.environ |= {"OARLOCK_AGENT_FD": str(told), "RANK": str(rank)}
            result = run_rank(job, trouble, clock, arrivals)
            (scratch / f"result-{rank}").write_text(json.dumps(result))
            os._exit(0)
        pids[rank] = pid
    answer = []
    for rank in sorted(pids, key=lambda rank: str(rank // local) not in cut_off):
        os.waitpid(pids[rank], 0)
        if str(rank // local) in cut_off:
            clock.forward(check._APART_SECONDS)  # it has told: the others, which would hear of it, need wait no longer
        told = [json.loads(line) for line in (scratch / f"told-{rank}").read_text().splitlines()]
        result = json.loads((scratch / f"result-{rank}").read_text())
        checks, degraded = ([event for event in told if event["event"] == kind] for kind in ("check", "degraded"))
        answer.append({"rank": rank, **result, "checks": checks, "degraded": degraded})
    return sorted(answer, key=lambda one: one["rank"])


for line in sys.stdin:
    with tempfile.TemporaryDirectory() as folder:
        sys.stdout.write(json.dumps(run_gang(json.loads(line), Path(folder))) + "\n")
        sys.stdout.flush()
