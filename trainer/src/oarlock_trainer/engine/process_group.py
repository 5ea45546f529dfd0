"""The ranks as a group: joining, agreeing on small things, and never waiting without a bound.

Two groups exist: the one that DeepSpeed moves gradients in (NCCL on GPUs, gloo on the CPU), and one over gloo for
agreement (who saves, who stops, what the mean loss is), which on the CPU is the same. Gloo notices a dead peer in about
a second and a silent one by timeout; init_process_group's own timeout does not bound the groups that DeepSpeed opens
later, so the default of every new group is set as well.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from oarlock_trainer.engine import numa
from oarlock_trainer.engine.sealed import Exchange
from oarlock_trainer.runtime import channel
from oarlock_trainer.runtime.background import Background
from oarlock_trainer.runtime.errors import ConfigurationError, TrainingEnd

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch._C._distributed_c10d import Store

    from oarlock_trainer.runtime.job import Job, RankInfo

START_TIMEOUT = 900.0
"""Seconds. Ranks may load weights and open data at very different speeds."""
PREPROCESS_TIMEOUT = 7 * 86400.0
"""Seconds. Shares of the encoding are even in number, not in time; every rank can be seen working meanwhile."""
STEP_TIMEOUT = 2000.0
"""Seconds, from the first step on. Dead peers are noticed long before, and silent ones by the agent (agent/hangs/hang.py),
which can say who is stuck and where: so its allowances, the export's being the longest, must end first."""

_NO_GPU_IN_A_POD = ("in this pod", "the node's driver, the device plugin and spec.pod.gpuResource")
_NO_GPU_HERE = ("on this machine", "its driver with nvidia-smi, and CUDA_VISIBLE_DEVICES")

Result = TypeVar("Result")


class RankGroup:
    """This process among the others. All methods are collective: every rank calls them in the same order."""

    def __init__(
        self, rank_info: RankInfo, device: torch.device, control: dist.ProcessGroup | None, *, key: bytes | None = None
    ) -> None:
        """`control` is the gloo group for agreement, None for the default group; `key` the gang's, if it has one."""
        self.rank_info = rank_info
        self.device = device
        self._control = control
        self._exchange = Exchange(rank_info, control, key=key)

    def gather(self, value: Any) -> list[Any]:
        """Every rank's value, in the order of ranks."""
        return self._exchange.gather(value)

    def decide(self, choose: Callable[[], Result]) -> Result:
        """Let rank 0 decide; all get its result, or raise the TrainingEnd that it raised."""
        outcome: Any = None
        if self.rank_info.is_leader:
            try:
                outcome = choose()
            except TrainingEnd as end:
                outcome = end
        outcome = self._exchange.from_leader(outcome)
        if isinstance(outcome, TrainingEnd):
            raise outcome
        result: Result = outcome
        return result

    def all_or_none(self, work: Callable[[], Result]) -> Result:
        """Do something short on every rank; if it ends on one of them, all raise that end (the lowest rank's)."""
        result, ended = None, None
        try:
            result = work()
        except TrainingEnd as end:
            ended = end
        for other in self.gather(ended):
            if other is not None:
                raise other
        return result  # type: ignore[return-value]

    def shares(self, work: Callable[[], Result], go_on: Callable[[], None]) -> list[Result]:
        """Do a long share of some work on every rank; all get what each returned, in the order of ranks.

        Unlike in `all_or_none`, what ends one rank is raised there at once, and the others lose it: they may be hours from
        their end. How long they need is none of this rank's own slowness. `go_on` is called meanwhile, and may raise to stop.
        """
        channel.send(channel.Event.WORKING)
        own = work()
        with channel.waiting():
            gathering = Background(lambda: self.gather(own))
            gathering.join(go_on)
            return gathering.result()

    def sum(self, values: Sequence[float]) -> list[float]:
        """Sums over all ranks, as float64 on the CPU: waits for the other ranks, and for no GPU."""
        tensor = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(tensor, group=self._control)
        return [float(value) for value in tensor]

    def barrier(self) -> None:
        """Wait for all ranks."""
        self.sum([0.0])

    def bound_waiting(self, seconds: float) -> None:
        """Set the timeout of all groups that exist and of those to come."""
        timeout = timedelta(seconds=seconds)
        _bound_new_groups(timeout)
        for group in distributed_c10d._world.pg_map:  # noqa: SLF001 - torch lists its groups nowhere else
            distributed_c10d._set_pg_timeout(timeout, group)  # noqa: SLF001 - the public form is NCCL's only


def choose_device(job: Job) -> torch.device:
    """The GPU of this rank, or the CPU where the job asks for none.

    Raises ConfigurationError where GPUs are asked for and CUDA is not there: never a silent fall-back.
    """
    if job.file.gpus_per_node == 0 or job.simulate_gpus:
        return torch.device("cpu")
    if not torch.cuda.is_available():
        where, remedy = _NO_GPU_IN_A_POD if job.node else _NO_GPU_HERE
        raise ConfigurationError(
            f"the job asks for {job.file.gpus_per_node} GPUs per node and CUDA finds none {where}: check {remedy}, or set "
            "gpusPerNode: 0 for the CPU"
        )
    if torch.cuda.device_count() <= job.rank_info.local_rank:
        raise ConfigurationError(
            f"rank {job.rank_info.rank} needs GPU {job.rank_info.local_rank}, CUDA finds {torch.cuda.device_count()}: "
            "gpusPerNode must be the number of GPUs that are there for it"
        )
    return torch.device("cuda", job.rank_info.local_rank)


def join(job: Job, *, store: Store | None = None) -> RankGroup:
    """Meet the other ranks in rank 0's store, by default the one that torch opens at MASTER_ADDR:MASTER_PORT.

    The store asks nobody who he is, and lists its entries to whoever connects, so that names which follow from the gang's key
    would keep nobody out: only the network can.
    """
    device = choose_device(job)
    timeout = timedelta(seconds=START_TIMEOUT)
    _bound_new_groups(timeout)
    control = None
    rank, world_size = job.rank_info.rank, job.rank_info.world_size
    if device.type == "cuda":
        torch.cuda.set_device(device)
        numa.pin(device, os.environ)
        # A group of one rank that is bound to its GPU can't be split into DeepSpeed's groups (its issue 8248).
        bound = device if world_size > 1 else None
        dist.init_process_group("nccl", timeout=timeout, device_id=bound, store=store, rank=rank, world_size=world_size)
        control = dist.new_group(backend="gloo", timeout=timeout)
    else:
        dist.init_process_group("gloo", timeout=timeout, store=store, rank=rank, world_size=world_size)
    return RankGroup(job.rank_info, device, control, key=job.key)


def _bound_new_groups(timeout: timedelta) -> None:
    """DeepSpeed opens its groups without a timeout, and torch then takes these: half an hour, unless they are set."""
    for name in ("default_pg_timeout", "default_pg_nccl_timeout"):
        setattr(distributed_c10d, name, timeout)


def leave() -> None:
    """Close the groups, so that a rank that is done does not look lost to the others."""
    if dist.is_initialized():
        dist.destroy_process_group()
