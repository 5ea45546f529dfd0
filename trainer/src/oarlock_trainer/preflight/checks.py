"""The checks before the ranks start: which ones a job asks for, and how they stand.

They run at once, beside the rank host's imports, and share one bound in time. What touches the output shares a process,
since what hangs the one hangs the other, and a start pays for one interpreter less; NVML has a process of its own. The
collective check is no process here: the ranks do it, in as much time again; those of another trainer can't.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oarlock_api.contract.status import CheckResult
from oarlock_api.contract.wire import integer, text
from oarlock_trainer.preflight import room
from oarlock_trainer.preflight.check_process import CheckProcess
from oarlock_trainer.preflight.finding import Check, Finding
from oarlock_trainer.runtime.assignment import setting

if TYPE_CHECKING:
    from collections.abc import Mapping

    from oarlock_trainer.runtime.assignment import Assignment
    from oarlock_trainer.runtime.channel import Message

_PATIENCE_SHARE = 0.5
"""Of the time for all checks, what one may spend on waiting for things to get better."""


class Preflight:
    """The checks of one start. Only the main thread may use it.

    `collective`: whether the ranks can do that check. `torch_cuda`: what their torch needs, such as `13.0`, or empty.
    """

    def __init__(
        self, assignment: Assignment, environment: Mapping[str, str], *, collective: bool, torch_cuda: str, now: float
    ) -> None:
        self._bound = float(assignment.job.preflight.timeout_seconds)
        self._deadline = now + self._bound
        self._first_rank = assignment.first_rank
        # The others of a gang that waits for this pod have done it, and do not do it again. A spare is of no first round.
        first = assignment.pod.incarnation == 1 and not assignment.is_spare
        asked = assignment.job.preflight.collective and assignment.job.nodes > 1 and first
        self._collective = asked and collective
        self.unsupported = [str(Check.COLLECTIVE)] if asked and not collective else []
        there = (_output_orders(assignment), [*_network_orders(assignment), *_gpu_orders(assignment, torch_cuda)])
        orders = [order for order in there if order]
        self._processes = [CheckProcess(order, environment=environment, now=now) for order in orders]
        self.expected = [str(order["check"]) for process in orders for order in process]
        if self._collective:
            self.expected.append(Check.COLLECTIVE)

    @property
    def over(self) -> bool:
        """Whether the ranks may start: each check that comes before them has its finding."""
        return all(process.over for process in self._processes)

    def seconds_left(self, now: float) -> float:
        """Time until what is not over counts as silent."""
        return max(self._deadline - now, 0.0)

    @property
    def rank_seconds(self) -> float | None:
        """For the ranks' own, collective check; None where there is none.

        All of the time once more: what imports and the checks before have taken says nothing of the network.
        """
        return self._bound if self._collective else None

    def rank_finding(self, message: Message) -> Finding | None:
        """What a rank tells of its own check; one rank of the node speaks for all. How it ends is its last words' affair."""
        fields = message.fields
        if not self._collective or message.rank != self._first_rank or fields.get("name") != Check.COLLECTIVE:
            return None
        if (result := fields.get("result")) not in frozenset(CheckResult):
            return None
        return Finding(
            check=Check.COLLECTIVE,
            result=CheckResult(result),
            detail=text(fields.get("detail"), 4096),
            milliseconds=integer(fields.get("milliseconds")),
        )

    def findings(self, ended: Mapping[int, int], now: float) -> list[Finding]:
        """What is known since the last call. `ended`: pid -> code of the processes that ended meanwhile."""
        found: list[Finding] = []
        for process in self._processes:
            if process.over:
                continue
            found += process.heard()
            if process.pid in ended:
                found += process.ended(ended[process.pid], now)
            elif not process.over and not self.seconds_left(now):
                found += process.give_up(now, bound=self._bound)
        return found


def _output_orders(assignment: Assignment) -> list[dict[str, Any]]:
    job, pod = assignment.job, assignment.pod
    output: dict[str, Any] = {"directory": job.output_directory, "node": pod.node}
    orders: list[dict[str, Any]] = []
    if job.preflight.storage:
        # A few plain fields are read here; the ranks check the whole of `training`.
        training = job.whole_training
        needs = {
            "min_free": job.min_free_bytes,
            "model": _model(assignment),
            "keep": integer(setting(training, "checkpoint", "keep")) or 0,
            "values": room.values(training),
        }
        orders.append({"check": Check.STORAGE, **output, **needs})
    if job.preflight.clock:
        place = {"gang": f"{job.job_uid}/{pod.attempt}", "rank": pod.rank, "nodes": job.nodes}
        orders.append({"check": Check.CLOCK, **output, **place, "patience": _patience(assignment)})
    if assignment.keeps_state and (model := _model(assignment)):
        state = {"directory": model, "node": pod.node, "values": room.values(job.whole_training), "nodes": job.nodes}
        kept = {"folder": str(assignment.shared_memory), "copies": assignment.keeps_copies}
        orders.append({"check": Check.MEMORY, **state, **kept})
    return orders


def _model(assignment: Assignment) -> str | None:
    """The model that makes the job's checkpoints as large as they are: those of adapters are small, others have none."""
    training = assignment.job.whole_training
    path = setting(training, "model", "path")
    full = setting(training, "task") in (None, "Train") and setting(training, "method") in (None, "Full")
    return path if isinstance(path, str) and full else None


def _network_orders(assignment: Assignment) -> list[dict[str, Any]]:
    job = assignment.job
    between_gpus = job.preflight.collective and job.nodes > 1 and job.gpus_per_node > 0
    return [{"check": Check.NETWORK, "node": assignment.pod.node}] if between_gpus else []


def _gpu_orders(assignment: Assignment, torch_cuda: str) -> list[dict[str, Any]]:
    job = assignment.job
    if not job.preflight.gpus or not job.gpus_per_node:
        return []
    expected = {"expected": job.gpus_per_node, "node": assignment.pod.node, "cuda": torch_cuda}
    return [{"check": Check.GPUS, **expected, "patience": _patience(assignment)}]


def _patience(assignment: Assignment) -> float:
    return assignment.job.preflight.timeout_seconds * _PATIENCE_SHARE
