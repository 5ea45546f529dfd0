"""NVLinks that were up and are down: NCCL within the node then fails, or falls back to PCIe."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pynvml

from oarlock_api.contract.health import GpuVerdict
from oarlock_trainer.health.nvml import of_links
from oarlock_trainer.health.series import Series, Suspicion

if TYPE_CHECKING:
    from oarlock_trainer.health.nvml import Handle

NAME = "nvlink"
EVERY = 5.0
_CONFIRM = 2


def read(handle: Handle) -> frozenset[int]:
    """Links that are up. Raises NVMLError where the GPU has none."""
    states = of_links(lambda link: pynvml.nvmlDeviceGetNvLinkState(handle, link))
    return frozenset(link for link, up in enumerate(states) if up)


def judge(series: Series) -> Suspicion | None:
    """A link that was up at the start and is down twice in a row: a link that trains anew is down for a moment."""
    down = frozenset.intersection(*(series.first.value - up for up in series.last(_CONFIRM)))
    if down and len(series.readings) > _CONFIRM:
        links = ", ".join(map(str, sorted(down)))
        return Suspicion(verdict=GpuVerdict.REPLACE_NODE, words=f"lost NVLink {links}", value=links)
    return None
