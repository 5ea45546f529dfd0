"""Loading the FLUX.1 transformer of diffusers, and knowing what it costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oarlock_trainer.models.flux.classes import transformer_class
from oarlock_trainer.models.flux.folder import TRANSFORMER, loading

if TYPE_CHECKING:
    from pathlib import Path

    from torch import nn


def load(model: Path) -> nn.Module:
    """The transformer in bfloat16, in training mode, as diffusers computes it: `tuning.tune` makes it fast."""
    import torch  # noqa: PLC0415

    with loading(model / TRANSFORMER):
        transformer = transformer_class().from_pretrained(
            model / TRANSFORMER, dtype=torch.bfloat16, local_files_only=True, low_cpu_mem_usage=False
        )
    transformer.train()
    transformer.requires_grad_(requires_grad=True)
    result: nn.Module = transformer
    return result
