"""Counts a model: a few runs of each kind of block on the meta device, and how what they cost grows with tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from oarlock_trainer.plan.counting.arguments import Shapes, call_arguments
from oarlock_trainer.plan.counting.calls import calls, make
from oarlock_trainer.plan.counting.counted import Block, Counted, Kept, Pass
from oarlock_trainer.plan.counting.flops import flops_of, flops_of_both
from oarlock_trainer.plan.counting.gpu_kernels import gpu_kernels
from oarlock_trainer.plan.counting.kept import compiled, kept
from oarlock_trainer.plan.counting.scaling import by_pair, by_token, fitted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from torch import nn

    from oarlock_trainer.plan.counting.arguments import Description
    from oarlock_trainer.plan.counting.calls import Call, Made
    from oarlock_trainer.plan.counting.flops import Both, Flops, Passes
    from oarlock_trainer.plan.counting.kinds import Kind
    from oarlock_trainer.plan.counting.scaling import Coefficients, Tokens

SAMPLES = 2
"""Of a micro-batch, as one alone may keep less: parts of attention's result are copied for the next product, unless the
batch has a single sample, whose parts lie in one piece."""
POINTS = tuple(
    Shapes(rows=side, columns=side, text=text, batch=SAMPLES)
    for side, text in ((32, 256), (64, 256), (32, 512), (64, 512))
)
"""512 and 1024 pixels with two lengths of text: three give the coefficients, the fourth must agree. The meta device needs as
long for many tokens as for few."""


def count(
    transformer: Callable[..., nn.Module],
    config: Mapping[str, Any],
    description: Description,
    *,
    prepare: Callable[[Any], None] = lambda _model: None,
    lean_budget: float | None = None,
) -> Counted:
    """Count a class with this configuration, in bfloat16, without what its constructor would read or draw.

    `prepare`: what is done to the model before. `lean_budget`: the activation memory budget of lean blocks; compiled and lean
    ones are counted where it is given, for some seconds each. Raises ValueError where a size is unknown, or something grows
    otherwise than with tokens and pairs of tokens.
    """
    made = make(transformer, config, prepare=prepare)
    runs = [_run(made, description, shapes) for shapes in POINTS]
    blocks = {
        kind: Block(
            name=kind.name,
            number=kind.number,
            parameters=kind.parameters,
            forward=_pass({one.tokens: one.passes[kind].forward for one in runs}),
            backward=_pass({one.tokens: one.passes[kind].backward for one in runs}),
            frozen=_pass({one.tokens: one.passes[kind].frozen for one in runs}),
            kept=_kept(block, {one.tokens: one.calls[kind] for one in runs}, lean_budget),
        )
        for kind, block in made.kinds.items()
    }
    return Counted(
        parameters=made.parameters,
        blocks=tuple(blocks.values()),
        rest_forward=_less(
            _pass({one.tokens: one.whole.forward for one in runs}),
            [(kind.left, block.forward) for kind, block in blocks.items()],
        ),
        rest_backward=_less(
            _pass({one.tokens: one.whole.backward for one in runs}),
            [(kind.left, block.backward) for kind, block in blocks.items()],
        ),
    )


@dataclass(frozen=True, slots=True)
class _Run:
    """What one call of the model costs."""

    tokens: Tokens
    calls: Mapping[Kind, Call]
    passes: Mapping[Kind, Passes]
    whole: Both


def _run(made: Made, description: Description, shapes: Shapes) -> _Run:
    config: Any = made.model.config
    arguments = call_arguments(description, shapes, config, device=torch.device("meta"), dtype=torch.bfloat16)
    with gpu_kernels():
        called = calls(made, arguments)
        passes = {kind: flops_of(block, called[kind]) for kind, block in made.kinds.items()}
        return _Run((shapes.image, shapes.text), called, passes, flops_of_both(made.model, (), arguments))


def _pass(counts: Mapping[Tokens, Flops]) -> Pass:
    return Pass(
        fitted({tokens: _of_a_sample(one.matrices) for tokens, one in counts.items()}, by_token),
        fitted({tokens: _of_a_sample(one.attention) for tokens, one in counts.items()}, by_pair),
    )


def _kept(block: nn.Module, called: Mapping[Tokens, Call], lean_budget: float | None) -> Kept:
    def counted(*, norms: bool) -> Coefficients:
        with gpu_kernels(norms=norms):
            return fitted({tokens: _of_a_sample(kept(block, call)) for tokens, call in called.items()}, by_token)

    def counted_compiled(budget: float) -> Coefficients:
        with compiled(block, budget=budget):
            return counted(norms=False)

    return Kept(
        inputs=fitted({tokens: _of_a_sample(call.own_bytes) for tokens, call in called.items()}, by_token),
        eager=counted(norms=True),
        compiled=None if lean_budget is None else counted_compiled(1.0),
        lean=None if lean_budget is None else counted_compiled(lean_budget),
    )


def _of_a_sample(count: int) -> int:
    one, left = divmod(count, SAMPLES)
    if left:
        raise ValueError(f"{count} is not the same for each of {SAMPLES} samples")
    return one


def _less(whole: Pass, blocks: Iterable[tuple[int, Pass]]) -> Pass:
    """`whole` without so many of each of `blocks`."""
    matrices, attention = list(whole.matrices), list(whole.attention)
    for number, one in blocks:
        matrices = [all_ - number * own for all_, own in zip(matrices, one.matrices, strict=True)]
        attention = [all_ - number * own for all_, own in zip(attention, one.attention, strict=True)]
    return Pass((matrices[0], matrices[1], matrices[2]), (attention[0], attention[1], attention[2]))
