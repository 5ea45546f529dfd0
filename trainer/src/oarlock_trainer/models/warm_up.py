"""Steps on zeros before the first real one: they compile every bucket's shape, and show which attention kernel runs.

They leave no trace in weights, gradients or random numbers. They run after the engine took the model, in the memory of a
real step, and without its hooks: it exchanges gradients as they are added to parameters, which these never are. Where
weights are sharded nothing is compiled, and the forward pass is enough.
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from oarlock_api.engine import CompileMode
from oarlock_trainer.engine.sharded import is_sharded
from oarlock_trainer.models.compute.attention import assert_ran
from oarlock_trainer.models.compute.recompute import of_all_blocks
from oarlock_trainer.models.families import family_of, masks_text
from oarlock_trainer.models.family import Reference
from oarlock_trainer.models.family_codes import code_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from torch import nn

    from oarlock_api.engine import Attention
    from oarlock_api.training import Training
    from oarlock_api.weights import Model
    from oarlock_trainer.models.family import Family, Grid


@dataclass(frozen=True, slots=True, order=True)
class Shape:
    """What is fixed within a bucket: latents of height x width, text tokens, a reference of that size or "", and frames."""

    height: int
    width: int
    text_tokens: int
    reference: Reference | str = ""
    frames: int = 1

    @classmethod
    def of(
        cls,
        *,
        height: int,
        width: int,
        text_tokens: int,
        grid: Grid,
        reference: Reference | None = None,
        frames: int = 1,
    ) -> Shape:
        """Of pictures of height x width pixels, or of videos of so many frames."""
        latents = (height // grid.pixels, width // grid.pixels)
        return cls(*latents, text_tokens, reference or "", grid.latent_frames(frames))

    @property
    def latents(self) -> int:
        """That become tokens."""
        return (
            self.frames * self.height * self.width * (1 + (Reference(self.reference).pictures if self.reference else 0))
        )


def warm_up(
    transformer: Any,
    shapes: Collection[Shape],
    training: Training,
    *,
    kernel: Attention,
    told: Callable[[int, int, float], None] = lambda _done, _all, _seconds: None,
    fit: Callable[[Callable[[], None]], None] | None = None,
) -> str:
    """Compile every shape of a tuned transformer on its device, where the job compiles; returns the attention that ran.

    The smallest shape runs in any case, without compiled code: raises ConfigurationError where its attention is not
    `kernel`. Then the largest is compiled first: what does not fit is told at once. Where text is masked, and so has any
    length, a shorter one follows with the smallest shape: both lengths are open from then on. `told` hears (done, all,
    seconds) of the host, which does not wait here for what a step computes; `fit`, which is given the largest shape's step
    and runs it, may.
    """
    compiles, masked = training.compile.mode is not CompileMode.NONE, masks_text(training)
    wanted = sorted(set(shapes), key=lambda shape: (-shape.latents, shape))
    run = partial(step_on_zeros, transformer, model=training.model, batch_size=training.batch_size, masked=masked)
    # What is not compiled keeps more than was planned for.
    with torch.compiler.set_stance("force_eager") if compiles else nullcontext(), of_all_blocks(transformer):
        ran = assert_ran(kernel, partial(run, wanted[-1]))
    if masked:
        wanted.insert(1, replace(wanted[-1], text_tokens=wanted[-1].text_tokens // 2))
    for done, shape in enumerate(wanted if compiles else wanted[: fit is not None], start=1):
        began = time.monotonic()
        step = partial(run, shape)
        if fit and done == 1:
            fit(step)
        else:
            step()
        told(done, len(wanted), time.monotonic() - began)
    return ran


def step_on_zeros(transformer: Any, shape: Shape, *, model: Model, batch_size: int, masked: bool) -> None:
    """One forward and backward pass as in training; with sharded weights forward only, and collective.

    Gradients are taken for a few small parameters only, by hand, and thrown away. The backward passes of all blocks run on
    the way to them; what they find for others is freed at once, so that memory holds a step's activations without its
    gradients.
    The inputs have the weights' type, as a job's have; the loss is float32, as a job's is. Nothing is read back.
    """
    family = family_of(model)
    reached = _reached(transformer, family)
    # One of the model's own, which are frozen where adapters of another type stand beside them.
    weight = next((parameter for parameter in transformer.parameters() if not parameter.requires_grad), reached[0])
    settings = family.architecture(transformer.config)
    zeros = partial(torch.zeros, batch_size, device=weight.device)
    sharded = is_sharded(weight)
    more = {}
    if shape.reference:
        channels = Reference(shape.reference).channels(settings.latent_channels, family.grid)
        more["reference"] = zeros(channels, shape.height, shape.width)
    with torch.set_grad_enabled(not sharded):
        output = code_of(model).velocity(
            transformer,
            zeros(settings.latent_channels * shape.frames, shape.height, shape.width),
            zeros(),
            text=zeros(shape.text_tokens, settings.text_width, dtype=weight.dtype),
            pooled=zeros(settings.pooled_width, dtype=weight.dtype),
            text_mask=torch.ones(batch_size, shape.text_tokens, device=weight.device, dtype=torch.bool)
            if masked
            else None,
            guidance=zeros() if settings.has_guidance else None,
            **more,
        )
    if not sharded:
        torch.autograd.grad(output.float().square().mean(), reached)


def _reached(transformer: Any, family: Family) -> list[nn.Parameter]:
    """The smallest trained parameter of the first block that has any, of each list of blocks.

    No parameter beside the blocks will do: not each is used by every shape, and no one of them stands before all lists.
    """
    found: list[nn.Parameter] = []
    for name in family.blocks:
        each = ([one for one in block.parameters() if one.requires_grad] for block in getattr(transformer, name))
        found += [min(trained, key=torch.numel) for trained in [next(filter(None, each), None)] if trained]
    return found or [next(one for one in transformer.parameters() if one.requires_grad)]
