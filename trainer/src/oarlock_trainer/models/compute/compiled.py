"""torch.compile of each block, and a folder for what was compiled.

Never the whole model: then no gradient would be ready before the end of the backward pass, and nothing could be exchanged
meanwhile. All blocks of a kind share one compiled graph per shape, or one for all shapes.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any

import torch

from oarlock_api.engine import CompileMode
from oarlock_trainer.models.compute.kept_code import kind
from oarlock_trainer.runtime.cgroup import cores_of_the_ranks
from oarlock_trainer.runtime.errors import ConfigurationError
from oarlock_trainer.runtime.uncompiled import bring_back

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from oarlock_api.engine import Compile

BUDGET = 0.9
"""torch._functorch.config.activation_memory_budget of a lean block. Any number between the share of 0.69 that is left and 1
has torch recompute what is pointwise. Below that it would recompute attention, too, where its kernel is cuDNN's: torch 2.13
does not count that among what is expensive."""
_GRAPHS = 256
"""Bound of compiled graphs per kind of block, one for each shape; torch's own is 8."""
_CACHE_VARIABLE = "TORCHINDUCTOR_CACHE_DIR"
_THREADS_VARIABLE = "TORCHINDUCTOR_COMPILE_THREADS"
_MOST_THREADS = 32
"""Processes that torch compiles with, of each rank, however many cores there are: its own bound."""


def compile_blocks(
    blocks: Iterable[Any],
    settings: Compile,
    *,
    device: torch.device,
    scratch: Path,
    lean: bool = False,
    ranks_per_node: int = 1,
) -> None:
    """Have each of a transformer's blocks compiled at its first call. Mode None changes nothing.

    `scratch` is a folder that outlives the process. `lean`: what is pointwise is computed once more in the backward pass
    (plan/activations.py). Raises ConfigurationError where the image has no compiler for the compiled code.
    """
    if settings.mode is CompileMode.NONE:
        return
    _require_compiler(device)
    bring_back()
    os.environ["TORCHDYNAMO_DISABLE"] = "0"  # the warm process set it, before it knew the job
    import torch._dynamo  # noqa: PLC0415 - a second of imports, for jobs that compile
    import torch._functorch.config  # noqa: PLC0415

    _share_cores(ranks_per_node)
    _keep_compiled_code(scratch)
    torch._functorch.config.activation_memory_budget = BUDGET if lean else 1.0  # noqa: SLF001
    torch._dynamo.config.disable = False  # noqa: SLF001
    torch._dynamo.config.recompile_limit = _GRAPHS  # noqa: SLF001
    # CUDA graphs of single blocks and the engines' hooks on gradients do not go together.
    mode = "max-autotune-no-cudagraphs" if settings.mode is CompileMode.MAX_AUTOTUNE else None
    # None, not True: the first shape has a graph of its own, and in the next one only what differs from it is open.
    dynamic = None if settings.dynamic else False
    for block in blocks:
        # Not the block itself: what engines hook to its call stays outside of the graph.
        compiled = torch.compile(block.forward, mode=mode, dynamic=dynamic, fullgraph=settings.full_graph)
        vars(block)["forward"] = _WithGradients(eager=block.forward, compiled=compiled)


def _share_cores(ranks_per_node: int) -> None:
    """Have a node's ranks compile with no more processes than it has cores: torch's own number is up to 32 for each rank.

    A number that the job's environment names is left as it is.
    """
    import torch._inductor.config  # noqa: PLC0415

    if not os.environ.get(_THREADS_VARIABLE):
        share = cores_of_the_ranks() // ranks_per_node
        torch._inductor.config.compile_threads = max(1, min(_MOST_THREADS, share))  # noqa: SLF001


def _keep_compiled_code(scratch: Path) -> None:
    """Keep compiled code for later processes of this pod with the same torch on the same hardware.

    A folder that the job's environment names is left as it is.
    """
    from torch._inductor.runtime.cache_dir_utils import default_cache_dir  # noqa: PLC0415

    if os.environ.get(_CACHE_VARIABLE, default_cache_dir()) == default_cache_dir():  # importing torch may set it
        os.environ[_CACHE_VARIABLE] = str(scratch / "oarlock-compiled" / kind())


def _require_compiler(device: torch.device) -> None:
    """The compiler's output is C++ on the CPU; for GPUs a small part of it is C."""
    names = ("gcc", "cc", "clang") if device.type == "cuda" else ("g++", "clang++")
    chosen = os.environ.get("CC" if device.type == "cuda" else "CXX")
    if not chosen and not any(map(shutil.which, names)):
        raise ConfigurationError(
            f"training.compile: the image has none of {', '.join(names)}, which torch.compile builds its code with: add "
            "one, or set training.compile.mode to None"
        )


class _WithGradients:
    """Compiled code is for training steps: pictures and losses without gradients have shapes of their own, and few steps."""

    def __init__(self, *, eager: Callable[..., Any], compiled: Callable[..., Any]) -> None:
        self._eager, self._compiled = eager, compiled

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return (self._compiled if torch.is_grad_enabled() else self._eager)(*arguments, **named)
