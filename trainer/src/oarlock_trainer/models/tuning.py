"""A loaded transformer made as fast as the job asks for: forward pass, attention kernel, recomputation, float8, compile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oarlock_api.engine import Attention, CompileMode, Precision
from oarlock_trainer.models.compute import attention, compiled, fp8
from oarlock_trainer.models.families import family_of, masks_text
from oarlock_trainer.models.family_codes import code_of
from oarlock_trainer.runtime.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

    import torch

    from oarlock_api.training import Training


def tune(
    transformer: Any,
    training: Training,
    *,
    device: torch.device,
    recomputed: int,
    scratch: Path,
    lean: bool = False,
    ranks_per_node: int = 1,
) -> Attention:
    """Tune a transformer of diffusers in place, after adapters were added and before an engine takes it.

    Its first `recomputed` blocks keep no activations, and `lean` ones nothing that is pointwise. What is compiled is kept
    below `scratch`. Returns the attention kernel that was chosen; whether it runs, `warm_up.warm_up` tells.

    Raises ConfigurationError where the device or the image lacks what the job asks for.
    """
    masked = masks_text(training)
    if masked and training.compile.mode is not CompileMode.NONE and training.compile.dynamic is False:
        raise ConfigurationError(
            "training.compile: where padding is masked (objective.attentionMask; some families always) batches have texts of "
            "any length, and each would be compiled anew: remove training.compile.dynamic, or set it to true"
        )
    blocks = family_of(training.model).blocks_of(transformer)
    kernel = attention.choose(training.attention, device=device, masked=masked)
    if training.precision is Precision.FP8:
        fp8.require_float8(device)
        fp8.use_float8(blocks)
    code_of(training.model).install(transformer, attend=attention.attend_with(kernel), recomputed=recomputed)
    compiled.compile_blocks(
        blocks, training.compile, device=device, scratch=scratch, lean=lean, ranks_per_node=ranks_per_node
    )
    return kernel
