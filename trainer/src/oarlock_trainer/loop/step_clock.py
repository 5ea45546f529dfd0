"""Where the time of a step goes: laps, each of which ends with the name of what was done in it.

The seconds of a step are all laps since the last split by the host's clock. Its parts are the same laps by the device's own:
a GPU's are CUDA events on the stream that computes, so no lap makes the host wait for it. A lap that the GPU has not
reached when the step is split counts in the next one: the loop splits while a GPU updates, so with that the update of one
step stands beside the gradients of the next.

    clock = StepClock(watch_of(device), around_update=StepPart.COMMUNICATION)
    batch = take(); clock.lap(StepPart.DATA)
    ...
    split = clock.split()
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self

import torch
from torch.autograd import Variable
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from oarlock_api.contract.status import StepPart

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor


class Stopwatch(Protocol):
    """Takes moments, of whatever kind, and tells the time between two."""

    def now(self) -> Any:
        """This moment."""

    def reached(self, moment: Any) -> bool:
        """Whether the moment lies behind."""

    def between(self, start: Any, end: Any) -> float:
        """Seconds between two moments that lie behind."""


class HostWatch:
    """The host's clock: for the CPU, whose work is done when a call returns."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` in seconds."""
        self.now = clock

    def reached(self, moment: float) -> bool:  # noqa: ARG002 - part of the interface
        """Always: it was taken."""
        return True

    def between(self, start: float, end: float) -> float:
        """Seconds."""
        return end - start


class StreamWatch:
    """Events on the current CUDA stream."""

    def now(self) -> torch.cuda.Event:
        """An event behind all that was given to the stream so far."""
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def reached(self, moment: torch.cuda.Event) -> bool:
        """Whether the GPU has come there. Does not wait."""
        return bool(moment.query())  # type: ignore[no-untyped-call]

    def between(self, start: torch.cuda.Event, end: torch.cuda.Event) -> float:
        """Seconds."""
        return float(start.elapsed_time(end)) / 1e3


def watch_of(device: torch.device) -> Stopwatch:
    """The watch of what computes."""
    return StreamWatch() if device.type == "cuda" else HostWatch()


@dataclass(frozen=True, slots=True)
class Split:
    """One step: `seconds` by the host's clock, and those of each part by the device's."""

    seconds: float
    parts: Mapping[StepPart, float]

    def share(self, part: StepPart) -> float | None:
        """How much of the step's seconds a part took, 0 to 1; None where the step took none."""
        return self.parts[part] / self.seconds if self.seconds > 0 else None

    def per_second(self, count: int) -> float | None:
        """How many of what a step has `count` of a second has; None where the step took none."""
        return count / self.seconds if self.seconds > 0 else None


class StepClock:
    """Counts the laps of one rank's loop. While it is open it also sees the updates of the process's optimizer."""

    def __init__(
        self, watch: Stopwatch, *, around_update: StepPart, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`around_update`: what an engine's step does beside the optimizer's update. `clock`: the host's, in seconds."""
        self._watch = watch
        self._around_update = around_update
        self._clock = clock
        self._laps: deque[tuple[StepPart, Any, Any]] = deque()
        self._seconds = 0.0
        self._last, self._moment = clock(), watch.now()
        self._updates = 0
        self._hooks = [
            register_optimizer_step_pre_hook(lambda *_: self._begin_update()),
            register_optimizer_step_post_hook(lambda *_: self._end_update()),
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for hook in self._hooks:
            hook.remove()

    def lap(self, part: StepPart) -> None:
        """What was done since the last lap is `part`."""
        last, moment = self._last, self._moment
        self.skip()
        self._seconds += self._last - last
        self._laps.append((part, moment, self._moment))

    def backward_of(self, loss: Tensor) -> None:
        """Begin a lap that ends with the computing of this loss's gradients; what an engine waits for then is not in it."""
        # autograd calls what is queued when all gradients are there, in the order of the queueing: DDP, which waits there
        # for the exchange, queues later than the first gradient.
        queue: Any = Variable._execution_engine.queue_callback  # noqa: SLF001 - DDP in Python and FSDP use it too
        loss.register_hook(lambda _: queue(lambda: self.lap(StepPart.BACKWARD)))  # type: ignore[no-untyped-call]

    def updated(self) -> None:
        """The engine's step has returned: since the optimizer's update, or where there was none, it did the rest."""
        self.lap(self._around_update)

    def _begin_update(self) -> None:
        """An optimizer whose base class does the work is announced twice by torch, one within the other."""
        if self._updates == 0:
            self.lap(self._around_update)
        self._updates += 1

    def _end_update(self) -> None:
        self._updates -= 1
        if self._updates == 0:
            self.lap(StepPart.OPTIMIZER)

    def skip(self) -> None:
        """What was done since the last lap belongs to no step."""
        self._last, self._moment = self._clock(), self._watch.now()

    def split(self) -> Split:
        """The step that ends here, and the beginning of the next."""
        parts = dict.fromkeys(StepPart, 0.0)
        while self._laps and self._watch.reached(self._laps[0][2]):
            part, start, end = self._laps.popleft()
            parts[part] += self._watch.between(start, end)
        seconds, self._seconds = self._seconds, 0.0
        return Split(seconds, parts)
