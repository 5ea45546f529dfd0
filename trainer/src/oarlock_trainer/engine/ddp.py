"""Training with the whole state on every rank: DistributedDataParallel, or nothing around the model where there is one rank.

For what is small beside the frozen weights: adapters; and for one GPU. Gradients are averaged in the type of the parameters
while the backward pass of an optimizer step's last micro-batch runs. Masters are float32: a parameter that is float32 is its
own, any other one has a copy, which the optimizer updates and the model gets back; AdamWBF16 updates the parameter itself.
All ranks begin alike, because the same files and the same seed made their models: nothing is broadcast.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, cast

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_value_, clip_grads_with_norm_

from oarlock_api.optimization import ClippingMethod, OptimizerName
from oarlock_trainer.engine.engine import MASTER, TensorSlice
from oarlock_trainer.engine.optimizers import make_optimizer
from oarlock_trainer.engine.slots import FloatSlot, numbers, set_updates, slots, updates
from oarlock_trainer.runtime.dealing import dealing_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor, nn

    from oarlock_api.training import Training
    from oarlock_trainer.engine.slots import Slot
    from oarlock_trainer.runtime.job import RankInfo

_OPTIMIZER = "optimizer"
"""Name of the logical tensors that are of no parameter: what the optimizer keeps as a whole."""
_BUCKET_ELEMENTS = 25_000_000
_MEBIBYTE = 2.0**20
_groups: list[object] = []
"""Groups that gradients were exchanged in, kept to the process's end. If the last to hold one were DDP's reducer, torch would
wait for the group's threads with the interpreter's lock in hand, which they may want: one run in five hung at its end.
"""


class DdpEngine:
    """The model on all ranks; see engine.Engine for what each method promises."""

    def __init__(self, model: nn.Module, training: Training, rank_info: RankInfo) -> None:
        """`model` is on its device; what requires a gradient is trained."""
        self._rank_info = rank_info
        self._clipping = training.gradient_clipping
        self._accumulation = dealing_of(training, rank_info.world_size).passes
        self._trained = {name: value for name, value in model.named_parameters() if value.requires_grad}
        own = training.optimizer.name is OptimizerName.ADAMW_BF16
        self._masters = {name: value if own else _master(value) for name, value in self._trained.items()}
        self._optimizer = make_optimizer(self._masters.values(), training.optimizer, seed=training.seed)
        self._weights = model
        self._ddp = _distributed(model, training, self._trained) if rank_info.world_size > 1 else None
        self._micro_batches = 0
        self._norm: float | None = None
        self.skipped = 0
        """Updates that were left out, because a gradient was not finite."""
        self._announce()

    @property
    def model(self) -> nn.Module:
        """To be called in the forward pass."""
        return self._ddp or self._weights

    @property
    def weights(self) -> nn.Module:
        """The module that is trained itself."""
        return self._weights

    def backward(self, loss: Tensor) -> None:
        """Add a micro-batch's gradients to those of the optimizer step, each micro-batch with the same weight."""
        (loss / self._accumulation).backward()  # type: ignore[no-untyped-call]

    def step(self, learning_rate: float) -> None:
        """Count a micro-batch; the last one of an optimizer step clips and updates."""
        self._micro_batches = (self._micro_batches + 1) % self._accumulation
        if not self._micro_batches:
            self._update(learning_rate)
        self._announce()

    def gradient_norm(self) -> float | None:
        """Global norm of the last update before clipping; None before the first."""
        return self._norm

    @property
    def rate_factor(self) -> float:
        """What the optimizer multiplies the schedule's rate by: Prodigy's newest estimate, of others 1."""
        return float(self._optimizer.param_groups[0].get("d", 1.0))

    def parts(self) -> Sequence[TensorSlice]:
        """This rank's state: of each tensor the range that falls to it when all ranks share it evenly."""
        rank, ranks = self._rank_info.rank, self._rank_info.world_size
        parts = []
        for name, slot, values in self._slots():
            start, stop = len(values) * rank // ranks, len(values) * (rank + 1) // ranks
            parts.append(TensorSlice(name=name, slot=slot, start=start, values=values.read(start, stop)))
        return parts

    @property
    def updates(self) -> int:
        """How many updates the optimizer has counted: what Adam corrects its averages by."""
        return updates(self._optimizer, next(iter(self._masters.values())))

    @torch.no_grad()
    def refresh(self) -> None:
        """All masters of `parts` were overwritten: bring the weights that the model computes with in line. Collective."""
        for part, (_, _, values) in zip(self.parts(), self._slots(), strict=True):
            if part.slot == MASTER:
                self._spread(part, values)
        self._write_back()

    @torch.no_grad()
    def restored(self, updates: int, parts: Sequence[TensorSlice]) -> None:
        """All values of `parts` were overwritten: take them and `updates` over. Collective."""
        for part, (_, _, values) in zip(parts, self._slots(), strict=True):
            self._spread(part, values)
        for master in self._masters.values():
            set_updates(self._optimizer, master, updates)
        self._write_back()

    def _spread(self, part: TensorSlice, values: Slot) -> None:
        """Give all ranks what each of them has of a slot's values."""
        whole = torch.zeros(len(values), device=part.values.device)  # float32 (n,), on the GPU for NCCL
        whole[part.start : part.start + part.values.numel()] = part.values
        if self._ddp is not None:
            dist.all_reduce(whole)  # each element comes from one rank: the sum is exact
        values.write(0, whole)

    def _update(self, learning_rate: float) -> None:
        masters = list(self._masters.values())
        for parameter, master in zip(self._trained.values(), masters, strict=True):
            if master is not parameter and parameter.grad is not None:
                # The optimizer computes in the master's type, float32. The model's own gradient is freed at once.
                master.grad, parameter.grad = parameter.grad.float(), None
        # Where the engine waits for the GPU, once in a step: for the backward pass and the exchange, and not for the update,
        # which the GPU has not been given yet.
        self._norm = float(self._clip(masters))
        if math.isfinite(self._norm):
            for group in self._optimizer.param_groups:
                group["lr"] = learning_rate
            self._optimizer.step()
            self._write_back()
        else:
            self.skipped += 1
        self._optimizer.zero_grad()

    def _clip(self, masters: list[Tensor]) -> Tensor:
        """Bound the gradients; returns their norm from before. They are the same on all ranks, so no rank asks another."""
        gradients = [master.grad for master in masters if master.grad is not None]
        norms = torch._foreach_norm(gradients, 2.0, dtype=torch.float32)  # noqa: SLF001 - torch's own name for it
        norm: Tensor = torch.linalg.vector_norm(torch.stack(norms))
        if self._clipping.method is ClippingMethod.NORM:
            clip_grads_with_norm_(masters, self._clipping.max, norm)
        elif self._clipping.method is ClippingMethod.VALUE:
            clip_grad_value_(masters, self._clipping.max)
        return norm

    def _announce(self) -> None:
        """Say whether gradients are exchanged in the next backward pass: what DDP's no_sync does, without a block."""
        if self._ddp is not None:
            self._ddp.require_backward_grad_sync = self._micro_batches == self._accumulation - 1

    def _slots(self) -> Iterator[tuple[str, str, Slot]]:
        """(parameter, slot, its values for the whole parameter), and what is of none."""
        for name, master in self._masters.items():
            yield name, MASTER, FloatSlot(master)
            yield from ((name, slot, values) for slot, values in slots(self._optimizer, master).items())
        yield from ((_OPTIMIZER, slot, values) for slot, values in numbers(self._optimizer).items())

    @torch.no_grad()
    def _write_back(self) -> None:
        """Round each master to its parameter's type. Waits for nothing."""
        for name, master in self._masters.items():
            if master is not self._trained[name]:
                self._trained[name].copy_(master)


def _master(parameter: Tensor) -> Tensor:
    if parameter.dtype == torch.float32:
        return parameter
    return parameter.detach().float().requires_grad_()


def _distributed(model: nn.Module, training: Training, trained: dict[str, nn.Parameter]) -> DistributedDataParallel:
    _groups.append(dist.group.WORLD)
    one = next(iter(trained.values()))
    elements = training.engine.bucket_elements or _BUCKET_ELEMENTS
    if not training.engine.overlap_communication:
        elements = sum(value.numel() for value in trained.values())  # nothing is sent before the last gradient is there
    return DistributedDataParallel(
        model,
        init_sync=False,
        forward_sync_buffers=False,
        bucket_cap_mb=cast("int", elements * one.element_size() / _MEBIBYTE),
        gradient_as_bucket_view=True,
    )
