"""How many graphs torch compiles before the first step, and about how long that takes.

Each kind of block has a graph of its own for each number of tokens, or, where sizes are left open, one for the first number
and one for all others. A dynamic graph's kernels are told their sizes at each call, which costs a little of every step; a
graph of its own costs its compilation, while all GPUs wait. So few shapes have their own, and many share one.
"""

from __future__ import annotations

from oarlock_api.engine import Compile, CompileMode

MOST_OWN = 4
"""Numbers of tokens that have graphs of their own where the job does not say: two minutes to four of waiting, once."""
_FIRST = 1
"""Of the graphs whose sizes are open one more than there are kinds: the very first block's inputs are views, whose sizes
torch tells from those of other blocks' inputs."""
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


def graphs(settings: Compile, *, shapes: int, masked: bool, kinds: int = 2) -> int:
    """Graphs of a whole run over so many kinds of blocks, with `dynamic` decided."""
    if settings.mode is CompileMode.NONE:
        return 0
    # Of the first shape each kind has one, and another whose sizes are open.
    return 2 * kinds + _FIRST if settings.dynamic and (masked or shapes > 1) else kinds * shapes


def words(settings: Compile, *, shapes: int, masked: bool, kinds: int = 2) -> str:
    """How long the first attempt compiles, in a line; empty where it does not."""
    number = graphs(settings, shapes=shapes, masked=masked, kinds=kinds)
    if not number:
        return ""
    many = f"{shapes} number{'s' if shapes > 1 else ''} of{' image' if masked else ''} tokens"
    many += " and texts of any length" if masked else ""
    fast, slow = (number * seconds / 60 for seconds in _SECONDS)
    return f"{number} graphs for {many}, {fast:.1f} to {slow:.1f} minutes before the first step, once: a model, not measured"
