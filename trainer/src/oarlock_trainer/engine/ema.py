"""An exponential moving average of the trained weights, beside any engine and spread over the ranks as its masters are.

average = d average + (1 - d) weights after every n-th update, where d rises to the job's decay as in diffusers' EMAModel
and SimpleTuner: the k-th time it is min(decay, k / (k + 9)), and the first time 0. What is exported is the average, and so
it is what is judged while training: pictures and losses on unseen data. For that weights and average change places, share by
share, so that no second model is held.

On the GPU an average costs a rank its share of the masters once more, and nearly no time. On the CPU it costs that twice: the
masters are copied into pinned memory behind each update, and a thread renews the average from there during the next step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from oarlock_api.optimization import EmaDevice
from oarlock_trainer.engine import own_gpu
from oarlock_trainer.engine.around import Judged
from oarlock_trainer.engine.engine import AVERAGE, MASTER, TensorSlice
from oarlock_trainer.runtime.background import Background

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from oarlock_api.optimization import Ema
    from oarlock_trainer.engine.engine import Engine


def decay(settings: Ema, updates: int) -> float | None:
    """What the average keeps of itself after so many updates of the weights; None where it is not renewed."""
    if updates % settings.every_steps:
        return None
    times = updates // settings.every_steps
    return 0.0 if times <= 1 else min(settings.decay, times / (times + 9))


class Averaging(Judged):
    """An engine with an average; see engine.Engine for what each method promises."""

    def __init__(self, engine: Engine, settings: Ema, *, accumulation: int) -> None:
        """The average begins as the weights. `accumulation` micro-batches make an update."""
        super().__init__(engine)
        self._settings = settings
        self._accumulation = accumulation
        self._micro_batches = 0
        self._updates = engine.updates  # counted along: the optimizer's own count may lie on the GPU
        self._masters = [part for part in engine.parts() if part.slot == MASTER]
        on_cpu = settings.device is EmaDevice.CPU
        self._averages = [
            TensorSlice(
                name=part.name,
                slot=AVERAGE,
                start=part.start,
                values=part.values.to("cpu", copy=True) if on_cpu else part.values.clone(),
            )
            for part in self._masters
        ]
        self._copies = [_room_for(part.values) for part in self._masters] if on_cpu else None
        self._renewing: Background[None] | None = None

    def step(self, learning_rate: float) -> None:
        """The engine's, and the average follows where it updated."""
        skipped = self._engine.skipped
        self._engine.step(learning_rate)
        self._micro_batches = (self._micro_batches + 1) % self._accumulation
        if not self._micro_batches and self._engine.skipped == skipped:
            self._updates += 1
            self._follow()

    @torch.no_grad()
    def exchange(self) -> None:
        """Let weights and average change places; the optimizer's state stays. Collective.

        An average on the CPU has the host wait for the GPU, tensor by tensor: before and after evaluation and validation.
        """
        self._renewed()
        for average, master in zip(self._averages, self._masters, strict=True):
            weights = master.values.to(average.values.device, copy=True)
            master.values.copy_(average.values)
            average.values.copy_(weights)
        self.refresh()

    def parts(self) -> Sequence[TensorSlice]:
        """The engine's, and the average, which the next update changes."""
        self._renewed()
        return [*self._engine.parts(), *self._averages]

    def restored(self, updates: int, parts: Sequence[TensorSlice]) -> None:
        """The engine's; the average is its own values."""
        self._updates = updates
        self._engine.restored(updates, parts[: len(parts) - len(self._averages)])

    @torch.no_grad()
    def _follow(self) -> None:
        kept = decay(self._settings, self._updates)
        if kept is None:
            return
        if self._copies is None:
            # float32, on the masters' stream: behind the update, and nobody waits for it.
            for average, master in zip(self._averages, self._masters, strict=True):
                average.values.lerp_(master.values, 1.0 - kept)
            return
        self._renewed()  # the room is in use until then
        for copy, master in zip(self._copies, self._masters, strict=True):
            copy.copy_(master.values, non_blocking=True)
        device = self._masters[0].values.device if self._masters else torch.device("cpu")
        copied = torch.cuda.current_stream(device).record_event() if device.type == "cuda" else None
        self._renewing = Background(lambda: self._renew(copied, kept, device))

    @torch.no_grad()
    def _renew(self, copied: torch.cuda.Event | None, kept: float, device: torch.device) -> None:
        own_gpu.choose(device)
        if copied is not None:
            copied.synchronize()
        for average, copy in zip(self._averages, self._copies or (), strict=True):
            average.values.lerp_(copy, 1.0 - kept)

    def _renewed(self) -> None:
        """Wait for the thread that renews the average; raises what it raised."""
        if self._renewing is not None:
            self._renewing.wait(None)
            self._renewing.result()
            self._renewing = None


def _room_for(master: Tensor) -> Tensor:
    """Memory on the CPU for a copy; pinned where a GPU is to write it by itself."""
    return torch.empty(master.shape, dtype=master.dtype, pin_memory=master.is_cuda)
