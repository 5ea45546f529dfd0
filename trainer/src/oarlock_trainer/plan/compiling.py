"""How many graphs torch compiles before the first step, and about how long that takes.

Each kind of block has a graph of its own for each number of tokens, or, where sizes are left open, one for the first number
and one for all others. A dynamic graph's kernels are told their sizes at each call, which costs a little of every step; a
graph of its own costs its compilation, while all GPUs wait. So few shapes have their own, and many share one.
"""

from __future__ import annotations

from oarlock_api.engine import Compile, CompileMode

MOST_OWN = 4
"""Numbers of tokens that have graphs of their own where the job does not say: two minutes to four of waiting, once."""
_KINDS = 2
_DYNAMIC = 5
"""Two of the first shape, and three whose sizes are open: the very first block's inputs are views, whose sizes torch tells
from those of other blocks' inputs."""
_SECONDS = (15.0, 30.0)
"""Of one graph. Four took a minute on two cores (docs/model-speed.md); the second figure is twice that, for eight ranks that
share the cores of a node. A model."""


def settled(settings: Compile, *, shapes: int, masked: bool) -> Compile:
    """`settings` with `dynamic` decided, where the job leaves it open; `shapes`: different numbers of tokens of batches.

    `masked`: texts keep their own lengths, of which there are too many for graphs of their own.
    """
    if settings.dynamic is not None:
        return settings
    return settings.model_copy(update={"dynamic": masked or shapes > MOST_OWN})


def graphs(settings: Compile, *, shapes: int, masked: bool) -> int:
    """Graphs of a whole run, with `dynamic` decided."""
    if settings.mode is CompileMode.NONE:
        return 0
    return _DYNAMIC if settings.dynamic and (masked or shapes > 1) else _KINDS * shapes


def words(settings: Compile, *, shapes: int, masked: bool) -> str:
    """How long the first attempt compiles, in a line; empty where it does not."""
    number = graphs(settings, shapes=shapes, masked=masked)
    if not number:
        return ""
    many = f"{shapes} number{'s' if shapes > 1 else ''} of{' image' if masked else ''} tokens"
    many += " and texts of any length" if masked else ""
    fast, slow = (number * seconds / 60 for seconds in _SECONDS)
    return f"{number} graphs for {many}, {fast:.1f} to {slow:.1f} minutes before the first step, once: a model, not measured"
