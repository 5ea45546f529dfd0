"""Small real videos, and a family that learns from them: Qwen-Image's VAE, which is one of videos, over all their frames."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from oarlock_api.weights import ModelFamily
from oarlock_trainer.models import families

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

STEP = 8
"""Grey levels between one frame and the next."""


def grey(number: int) -> int:
    """Of all pixels of a frame: it says which one it is, of 30."""
    return number % 30 * STEP + 4


def number_of(level: float) -> int:
    """The number of a frame by its grey level."""
    return round((level - 4) / STEP)


def write_video(
    path: Path,
    *,
    frames: int = 20,
    size: tuple[int, int] = (64, 48),
    rate: float = 16.0,
    text: str | None = "a grey that grows lighter",
    drawn: np.ndarray | None = None,
) -> Path:
    """VP9 in .webm, MPEG-4 in .mp4 and .mov, FFV1 (no loss) in .avi and .mkv: `drawn` (F, H, W, 3), red first, or greys."""
    import cv2  # noqa: PLC0415 - seldom needed

    path.parent.mkdir(parents=True, exist_ok=True)
    code = {".webm": "VP90", ".mp4": "mp4v", ".mov": "mp4v"}.get(path.suffix, "FFV1")
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*code), rate, size)
    assert writer.isOpened()
    for number in range(frames if drawn is None else len(drawn)):
        frame = np.full((size[1], size[0], 3), grey(number), np.uint8) if drawn is None else drawn[number][..., ::-1]
        writer.write(np.ascontiguousarray(frame))
    writer.release()
    if text is not None:
        path.with_suffix(".txt").write_text(text)
    return path


def turn(path: Path) -> None:
    """Let an .mp4 say that its frames are to be shown turned clockwise by a quarter."""
    body = bytearray(path.read_bytes())
    matrix = body.index(b"tkhd") + 44
    quarter = [(0, 4), (0x10000, 4), (0, 4), (-0x10000, 4), (0, 4), (0, 4), (0, 4), (0, 4), (0x40000000, 4)]
    body[matrix : matrix + 36] = b"".join(number.to_bytes(width, "big", signed=True) for number, width in quarter)
    path.write_bytes(body)


def let_wan_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the test ends, Wan is Qwen-Image with videos: what a data layer asks of such a family."""
    known = families.FAMILIES[ModelFamily.QWEN_IMAGE]
    filmed = replace(known, grid=replace(known.grid, frames=4), variants={}, cache_mark="videos")
    monkeypatch.setitem(families.FAMILIES, ModelFamily.WAN, filmed)  # type: ignore[arg-type] - it is a dict


def let_wan_encode(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same with its VAE, which torch is needed for."""
    from oarlock_trainer.models import family_codes  # noqa: PLC0415
    from oarlock_trainer.models.latents import Latents  # noqa: PLC0415

    def encode(vae: Any, pixels: Any, draw: Any) -> Any:
        distribution = vae.encode(pixels).latent_dist
        mean, deviation = distribution.mean.float(), distribution.std.float()
        return (mean + deviation * draw(mean.shape[1:])).flatten(1, 2)

    def decode(vae: Any, latents: Any) -> Any:
        raise NotImplementedError(f"{vae} shows nothing of {latents} here")

    let_wan_be(monkeypatch)
    known = family_codes.CODES[ModelFamily.QWEN_IMAGE]
    filmed = replace(known, latents=Latents(encode=encode, decode=decode), variants={})
    monkeypatch.setitem(family_codes.CODES, ModelFamily.WAN, filmed)  # type: ignore[arg-type] - it is a dict
