"""One scenario measured: its times, what the contender used, what the control plane used, what others used meanwhile."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from contenders import Contender
from pod_watch import PodWatch
from process_costs import all_cpu_seconds, cpu_seconds, machine_cpu_seconds, peak_mib, reset_peak
from profiles import Profiles

NOISY_CORES = 0.25
QUIET_CORES = 0.25
LOOK_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Record:
    """One scenario, once."""

    scenario: str
    size: str
    contender: str
    times: dict[str, float]
    """Seconds since just before the request; empty where it was not over in time."""
    cpu_seconds: float
    peak_mib: float
    control_plane_cpu_seconds: float
    """etcd, API server, controller manager, scheduler and kwok."""
    calls: dict[str, int]
    """The contender's requests by verb; empty for the floor."""
    waited_below: float | None
    """Seconds: the bound of the histogram's bucket in which the operator's longest wait for a worker lies; None: no look."""
    others_cores: float
    """How many cores this machine gave to processes that have nothing to do with the benchmark."""
    resumed: int
    """How often the API server dropped our watch: above 0 the times may be late."""
    load: float = field(default_factory=lambda: os.getloadavg()[0])

    @property
    def noisy(self) -> bool:
        """Whether others used so much of the machine that the times tell little."""
        return self.others_cores > NOISY_CORES

    def to_json(self) -> dict[str, Any]:
        """For the file."""
        return asdict(self)


class Measuring:
    """Measures scenarios, one after the other."""

    def __init__(
        self,
        watch: PodWatch,
        control_plane: Sequence[int],
        contenders: Sequence[Contender],
        *,
        profiles: Profiles | None,
        patience: float,
    ) -> None:
        self.watch = watch
        self.control_plane = control_plane
        self.contenders = contenders
        self.profiles = profiles
        self.patience = patience

    async def measure(
        self,
        contender: Contender,
        scenario: str,
        size: str,
        act: Callable[[], Awaitable[None]],
        over: Callable[[float], dict[str, float] | None],
        *,
        limit: float = 300,
    ) -> Record:
        """Do `act` and wait until `over` knows the times, which it is asked for with the time of the beginning."""
        await self._quiet()
        _require_life(contender, scenario, size)
        pid = contender.process.pid
        reset_peak(pid)
        profiled = self.profiles if contender.name == "operator" else None
        if profiled:
            profiled.begin(pid)
        resumed, calls, waits = self.watch.resumed, contender.calls(), contender.waits()
        used, theirs, ours, machine = cpu_seconds(pid), self._control_plane(), self._ours(), machine_cpu_seconds()
        began = time.monotonic()
        await act()
        while (times := over(began)) is None:
            _require_life(contender, scenario, size)
            if time.monotonic() - began > limit:
                raise SystemExit(f"{contender.name} did not get through `{scenario} {size}` within {limit:.0f} s")
            await asyncio.sleep(LOOK_SECONDS)
        await asyncio.sleep(1)
        took = time.monotonic() - began
        record = Record(
            scenario=scenario,
            size=size,
            contender=contender.name,
            times=times,
            cpu_seconds=cpu_seconds(pid) - used,
            peak_mib=peak_mib(pid),
            control_plane_cpu_seconds=self._control_plane() - theirs,
            calls=dict(contender.calls() - calls),
            waited_below=_longest(contender.waits() - waits),
            others_cores=max(0.0, machine_cpu_seconds() - machine - (self._ours() - ours)) / took,
            resumed=self.watch.resumed - resumed,
        )
        if profiled:
            await profiled.end(pid, f"{scenario}-{size}".replace(" ", ""))
        return record

    def _control_plane(self) -> float:
        return all_cpu_seconds(self.control_plane)

    def _ours(self) -> float:
        mine = [os.getpid(), self.watch.pid, *(contender.process.pid for contender in self.contenders)]
        return self._control_plane() + all_cpu_seconds(mine)

    async def _quiet(self) -> None:
        """Wait until the last scenario has died away, and a while for others who work on this machine."""
        deadline = time.monotonic() + self.patience
        while time.monotonic() < deadline:
            ours, machine, began = self._ours(), machine_cpu_seconds(), time.monotonic()
            await asyncio.sleep(0.5)
            seconds = time.monotonic() - began
            busy, mine = (machine_cpu_seconds() - machine) / seconds, (self._ours() - ours) / seconds
            if mine < QUIET_CORES and busy - mine < QUIET_CORES:
                return


def _longest(waits: Counter[float]) -> float | None:
    most = max(waits.values(), default=0)
    return min((bound for bound, count in waits.items() if count == most), default=None)


def _require_life(contender: Contender, scenario: str, size: str) -> None:
    if contender.process.poll() is not None:
        raise SystemExit(f"the {contender.name} ended by itself before the end of `{scenario} {size}`")
