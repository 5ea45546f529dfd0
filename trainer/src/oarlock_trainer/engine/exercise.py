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

from oarlock_trainer.errors import PeerLostError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from oarlock_trainer.engine.process_group import Ranks

_FLOATS = 4 << 20
MEBIBYTES = _FLOATS * 4 >> 20
"""Small for any network that trains (a tenth of a second at 1 Gbit/s), large enough for bandwidth to show."""
_TIMES = 3
"""The fastest counts: the first one opens connections, and another job's traffic is nobody's fault here."""
_SLOW_FACTOR = 3.0
_SLOW_MILLISECONDS = 100.0
"""A node is slow if it takes three times the median and a tenth of a second: the first alone is noise, the second a rule
for slow networks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Milliseconds: of the all-reduce (on the slowest rank), and of the ring for each node (on its slowest rank)."""

    all_reduce: float
    ring: Mapping[int, float]

    def slow(self) -> list[int]:
        """Nodes that are much slower than most. Of two nodes none: both ends of a slow way look the same."""
        median = statistics.median(self.ring.values())
        bound = max(_SLOW_FACTOR * median, _SLOW_MILLISECONDS)
        return [node for node, milliseconds in self.ring.items() if milliseconds > bound and len(self.ring) > 2]


def run(ranks: Ranks) -> Times:
    """Exercise all ranks. Collective. Raises PeerLostError where the sum is wrong, or what torch raises."""
    world = ranks.place.world_size
    ones, got = (torch.ones(_FLOATS, device=ranks.device) for _ in range(2))
    total = ones.clone()

    def reduce() -> None:
        total.fill_(1.0)
        dist.all_reduce(total)

    def pass_on() -> None:
        after, before = (ranks.place.rank + 1) % world, (ranks.place.rank - 1) % world
        for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, ones, after), dist.P2POp(dist.irecv, got, before)]):
            work.wait()

    reduced, passed = _fastest(reduce, ranks.device), _fastest(pass_on, ranks.device)
    if not (bool((total == world).all()) and bool((got == 1.0).all())):
        raise PeerLostError(
            f"an all-reduce of ones over {world} ranks gave {float(total.min())} to {float(total.max())}: a GPU or the "
            "network corrupts data"
        )
    return _gathered(ranks, reduced, passed)


def _fastest(work: Callable[[], None], device: torch.device) -> float:
    times = []
    for _ in range(_TIMES):
        began = time.monotonic()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append((time.monotonic() - began) * 1000)
    return min(times)


def _gathered(ranks: Ranks, reduced: float, passed: float) -> Times:
    place = ranks.place
    rows: list[tuple[int, float, float]] = ranks.gather((place.rank // place.local_world_size, reduced, passed))
    nodes = sorted({node for node, _, _ in rows})
    return Times(
        all_reduce=max(milliseconds for _, milliseconds, _ in rows),
        ring={node: max(ring for other, _, ring in rows if other == node) for node in nodes},
    )
