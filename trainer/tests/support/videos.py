"""Small real videos."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from oarlock_trainer.runtime.opencv import opencv

if TYPE_CHECKING:
    from pathlib import Path

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
    cv2 = opencv()
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
