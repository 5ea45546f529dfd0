"""How much room a job's checkpoints need in its output, before there is one.

A checkpoint of full-rank training holds 12 bytes a parameter: its float32 weight (4) and AdamW's two moments (4 + 4).
Published models are stored in bfloat16, so that is six times the size of the files.
"""

from __future__ import annotations

from pathlib import Path

from oarlock_api.contract.layout import CHECKPOINTS

CHECKPOINT_BYTES_PER_WEIGHT_BYTE = 6


def estimate(model: Path, *, keep: int) -> int | None:
    """Bytes that `keep` checkpoints and the one being written need; None where the weights are not there to be measured."""
    weights = sum(path.stat().st_size for path in (model / "transformer").glob("*.safetensors"))
    return (keep + 1) * CHECKPOINT_BYTES_PER_WEIGHT_BYTE * weights or None


def held(output: Path) -> int:
    """Bytes of the checkpoints that are there already: room that rotation gives back."""
    return sum(path.stat().st_size for path in (output / CHECKPOINTS).rglob("*") if path.is_file())
