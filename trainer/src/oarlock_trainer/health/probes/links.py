"""What a GPU is connected by: NVLink, the NVSwitch fabric, PCIe."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import pynvml

from oarlock_api.contract.health import GpuVerdict
from oarlock_trainer.health.nvml import field, of_links
from oarlock_trainer.health.series import Probe, Series, Suspicion

if TYPE_CHECKING:
    from oarlock_trainer.health.nvml import Handle

_CONFIRM = 2
_WINDOW_SECONDS = 60.0
_LINK_ERRORS = 5
"""Within the window. Imbue's cluster-health checks warn at as many on one GPU."""
_REPLAYS = 600
"""Ten a second for a minute, our own choice: single ones are what the protocol is made for."""
_COMPLETED = 3
"""State of the fabric: the GPU is registered with it."""


def _links_up(handle: Handle) -> frozenset[int]:
    states = of_links(lambda link: pynvml.nvmlDeviceGetNvLinkState(handle, link))
    return frozenset(link for link, up in enumerate(states) if up)


def _link_lost(series: Series) -> Suspicion | None:
    """A link that was up at the start and is down twice in a row: a link that trains anew is down for a moment."""
    down = frozenset.intersection(*(series.first.value - up for up in series.last(_CONFIRM)))
    if down and len(series.readings) > _CONFIRM:
        links = ", ".join(map(str, sorted(down)))
        return Suspicion(verdict=GpuVerdict.REPLACE_NODE, words=f"lost NVLink {links}", value=links)
    return None


NVLINK = Probe(
    name="nvlink",
    about="NVLinks that were up and are down: NCCL within the node then fails, or falls back to PCIe.",
    every=5.0,
    read=_links_up,
    judge=_link_lost,
)


def _link_errors(handle: Handle) -> int:
    """CRC errors and replays of all links. Recoveries alone are benign."""
    kinds = (pynvml.NVML_FI_DEV_NVLINK_ERROR_DL_CRC, pynvml.NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY)
    return sum(of_links(lambda link: sum(field(handle, kind, link) for kind in kinds)))


NVLINK_ERRORS = Probe(
    name="nvlinkErrors",
    about="Errors on NVLinks that still work: a worn cable or contact announces itself.",
    every=10.0,
    read=_link_errors,
    judge=lambda series: _often(series, _LINK_ERRORS, "NVLink errors"),
)


def _fabric_state(handle: Handle) -> tuple[int, int, int]:
    """(state, status, summary of health). Raises NVMLError, also where the GPU is on no fabric."""
    info = pynvml.c_nvmlGpuFabricInfo_v3_t()
    pynvml.nvmlDeviceGetGpuFabricInfoV(handle, ctypes.byref(info))  # the bare struct would crash the process
    if info.state == pynvml.NVML_GPU_FABRIC_STATE_NOT_SUPPORTED:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
    return info.state, info.status, info.healthSummary


def _fabric_unhealthy(series: Series) -> Suspicion | None:
    """Unhealthy, or registered with an error, twice in a row: the switches' fault, so the GPU is not taken away."""
    last = series.last(_CONFIRM)
    if len(last) == _CONFIRM and all(_unhealthy(*value) for value in last):
        state, status, summary = series.latest
        words = f"is on an unhealthy NVLink fabric (state {state}, status {status}, health {summary})"
        return Suspicion(verdict=GpuVerdict.HOLD, words=words, value=f"{state}/{status}/{summary}")
    return None


def _unhealthy(state: int, status: int, summary: int) -> bool:
    failed = state == _COMPLETED and status != pynvml.NVML_SUCCESS
    return bool(failed or summary == pynvml.NVML_GPU_FABRIC_HEALTH_SUMMARY_UNHEALTHY)


FABRIC = Probe(
    name="fabric",
    about="The NVSwitch fabric, as its manager reports it for the GPU.",
    every=10.0,
    read=_fabric_state,
    judge=_fabric_unhealthy,
)


def _lanes_lost(series: Series) -> Suspicion | None:
    """Narrower than at the start, twice in a row: a slot or a VM may never have had all lanes, and that is its own."""
    last = series.last(_CONFIRM)
    if len(last) == _CONFIRM and all(width < series.first.value for width in last):
        words = f"has {series.latest} PCIe lanes left of {series.first.value}"
        return Suspicion(verdict=GpuVerdict.HOLD, words=words, value=series.latest)
    return None


PCIE_WIDTH = Probe(
    name="pcieWidth",
    about="The width of the PCIe link. Its generation falls when a GPU idles, so that tells nothing.",
    every=60.0,
    read=lambda handle: int(pynvml.nvmlDeviceGetCurrPcieLinkWidth(handle)),
    judge=_lanes_lost,
)

PCIE_REPLAYS = Probe(
    name="pcieReplays",
    about="PCIe packets that had to be sent again: a bad slot, riser or cable.",
    every=10.0,
    read=lambda handle: int(pynvml.nvmlDeviceGetPcieReplayCounter(handle)),
    judge=lambda series: _often(series, _REPLAYS, "PCIe replays"),
)


def _often(series: Series, too_many: int, what: str) -> Suspicion | None:
    """The rate within a minute; what happened before the job is nobody's concern."""
    count, _ = series.rise(_WINDOW_SECONDS)
    if count >= too_many:
        words = f"had {count:.0f} {what} within {_WINDOW_SECONDS:.0f} s"
        return Suspicion(verdict=GpuVerdict.HOLD, words=words, value=series.latest)
    return None
