"""How much room a job's checkpoints need in its output, before there is one.

A checkpoint of full-rank training holds some float32 values of each parameter: the weight, AdamW's two moments or Lion's one,
and the moving average where there is one. Published models are stored in bfloat16, so each is twice the size of the files.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from oarlock_api.contract.layout import CHECKPOINTS
from oarlock_trainer.runtime.assignment import setting

if TYPE_CHECKING:
    from collections.abc import Mapping

_FLOAT32_PER_BFLOAT16 = 2


def values(training: Mapping[str, Any]) -> int:
    """Values of each parameter in a checkpoint of the job with this spec.training."""
    moments = 1 if setting(training, "optimizer", "name") == "Lion" else 2
    return 1 + moments + (setting(training, "ema") is not None)


def estimate(model: Path, *, keep: int, values: int) -> int | None:
    """Bytes that `keep` checkpoints and the one being written need, with so many values of each parameter.

    None where the weights are not there to be measured.
    """
    weights = sum(path.stat().st_size for path in (model / "transformer").glob("*.safetensors"))
    return (keep + 1) * values * _FLOAT32_PER_BFLOAT16 * weights or None


def held(output: Path) -> int:
    """Bytes of the checkpoints that are there already: room that rotation gives back."""
    return sum(path.stat().st_size for path in (output / CHECKPOINTS).rglob("*") if path.is_file())
