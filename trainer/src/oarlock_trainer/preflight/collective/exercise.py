"""A short run of the network that training will use: an all-reduce over all ranks, and a ring that tells who is slow.

An all-reduce is as slow as its slowest member, on all of them. So each rank also takes the same bytes from the rank
before it, all at once: there only those suffer whose own way in is slow, or whose predecessor's way out is.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from oarlock_trainer.health.fabric import read_fabric
from oarlock_trainer.runtime.errors import PeerLostError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from oarlock_trainer.engine.process_group import RankGroup

_MEBIBYTES = {"cpu": 16, "cuda": 256}
"""Small for any network that trains (a tenth of a second at 1 Gbit/s for CPUs, a second at 10 Gbit/s for GPUs), large enough
for bandwidth to show."""
_TIMES = 3
"""The fastest counts: the first one opens connections, and another job's traffic is nobody's fault here."""
_SLOW_FACTOR = 3.0
_SLOW_MILLISECONDS = 100.0
"""A node is slow if it takes three times the median and a tenth of a second: the first alone is noise, the second a rule
for slow networks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Milliseconds: of the all-reduce (on the slowest rank), and of the ring for each node (on its slowest rank).

    `networks`: what NCCL took on each node that knows; `fabric`: the nodes with InfiniBand, by what is wrong with its use.
    """

    ranks: int
    mebibytes: int
    all_reduce: float
    ring: Mapping[int, float]
    networks: Mapping[int, str]
    fabric: Mapping[int, str]

    @property
    def bus_bandwidth(self) -> float:
        """GB/s as nccl-tests count it (busbw, its doc/PERFORMANCE.md): what each way must carry, however many ranks."""
        share = 2 * (self.ranks - 1) / self.ranks
        return share * (self.mebibytes << 20) / max(self.all_reduce, 1e-6) / 1e6

    def slow(self) -> list[int]:
        """Nodes that are much slower than most. Of two nodes none: both ends of a slow way look the same."""
        median = statistics.median(self.ring.values())
        bound = max(_SLOW_FACTOR * median, _SLOW_MILLISECONDS)
        return [node for node, milliseconds in self.ring.items() if milliseconds > bound and len(self.ring) > 2]


def run(ranks: RankGroup, network: Callable[[], str]) -> Times:
    """Exercise all ranks. Collective. `network`: what NCCL has taken here, asked once it has.

    Raises PeerLostError where the sum is wrong, or what torch raises.
    """
    mebibytes = _MEBIBYTES[ranks.device.type]
    times = _exercised(ranks, floats=mebibytes << 18)
    if ranks.device.type == "cuda":
        torch.cuda.empty_cache()  # training begins with the whole card
    return _gathered(ranks, mebibytes, times, network())


def _exercised(ranks: RankGroup, *, floats: int) -> tuple[float, float]:
    """Milliseconds of the all-reduce and of the ring, on this rank."""
    world = ranks.rank_info.world_size
    ones, got = (torch.ones(floats, device=ranks.device) for _ in range(2))
    total = ones.clone()

    def reduce() -> None:
        dist.all_reduce(total)

    def pass_on() -> None:
        after, before = (ranks.rank_info.rank + 1) % world, (ranks.rank_info.rank - 1) % world
        for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, ones, after), dist.P2POp(dist.irecv, got, before)]):
            work.wait()

    times = (
        _fastest(reduce, ranks.device, before=lambda: total.fill_(1.0)),
        _fastest(pass_on, ranks.device, before=lambda: got.fill_(0.0)),
    )
    if not (bool((total == world).all()) and bool((got == 1.0).all())):
        raise PeerLostError(
            f"an all-reduce of ones over {world} ranks gave {float(total.min())} to {float(total.max())}: a GPU or the "
            "network corrupts data"
        )
    return times


def _fastest(work: Callable[[], None], device: torch.device, *, before: Callable[[], object]) -> float:
    """Milliseconds. What comes `before` each time does not count."""
    times = []
    for _ in range(_TIMES):
        before()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        began = time.monotonic()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append((time.monotonic() - began) * 1000)
    return min(times)


def _gathered(ranks: RankGroup, mebibytes: int, times: tuple[float, float], network: str) -> Times:
    rank_info = ranks.rank_info
    fabric = read_fabric()
    trouble = fabric.trouble(network) if fabric.devices else None
    rows: list[tuple[int, float, float, str, str | None]] = ranks.gather(
        (rank_info.rank // rank_info.local_world_size, *times, network, trouble)
    )
    nodes = sorted({node for node, *_ in rows})
    return Times(
        ranks=rank_info.world_size,
        mebibytes=mebibytes,
        all_reduce=max(milliseconds for _, milliseconds, *_ in rows),
        ring={node: max(ring for other, _, ring, *_ in rows if other == node) for node in nodes},
        networks={node: network for node, _, _, network, _ in rows if network},
        fabric={
            node: "".join(sorted({words for other, *_, words in rows if other == node and words})[:1])
            for node in nodes
            if any(other == node and words is not None for other, *_, words in rows)
        },
    )
