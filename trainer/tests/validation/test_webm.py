"""Frames become a file that plays."""

from __future__ import annotations

import io
import resource
import tempfile
from contextlib import contextmanager
from typing import TYPE_CHECKING

import cv2
import numpy as np
import pytest
from PIL import Image

from oarlock_trainer.validation.webm import webm

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WIDTH, HEIGHT = 96, 64


def noisy(count: int) -> list[Image.Image]:
    """Frames that cannot be made much smaller."""
    chances = np.random.default_rng(1)
    return [Image.fromarray(chances.integers(256, size=(HEIGHT, WIDTH, 3), dtype=np.uint8)) for _ in range(count)]


@contextmanager
def no_file_above(size: int) -> Iterator[None]:
    """What is written beyond so many bytes fails, as on a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_file_has_all_frames_in_their_order_and_colours_at_the_rate_that_it_is_told() -> None:
    shades = range(30, 255, 25)
    frames = [Image.new("RGB", (WIDTH, HEIGHT), (shade, 255 - shade, 40)) for shade in shades]
    content = webm(frames, fps=16, go_on=lambda: None)
    assert content[:4] == b"\x1a\x45\xdf\xa3"  # of all files of Matroska's kind
    stream = io.BytesIO(content)
    video = cv2.VideoCapture(stream, cv2.CAP_FFMPEG, [])
    assert video.get(cv2.CAP_PROP_FPS) == 16
    found = []
    while True:
        there, frame = video.read()
        if not there:
            break
        found.append(frame[:, :, ::-1])
    assert len(found) == len(frames)
    for frame, wanted in zip(found, frames, strict=True):
        assert frame.shape == (HEIGHT, WIDTH, 3)
        apart = np.abs(frame.astype(float).mean((0, 1)) - np.asarray(wanted, dtype=float).mean((0, 1)))
        assert apart.max() < 6  # of 255: colours are coded with a loss


def test_a_disk_that_fills_up_meanwhile_is_told_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    frames = noisy(24)
    whole = len(webm(frames, fps=16, go_on=lambda: None))
    with no_file_above(whole // 2), pytest.raises(OSError, match=r"\d+ of its 24 frames are in the file: the disk"):
        webm(frames, fps=16, go_on=lambda: None)
    assert list(tmp_path.iterdir()) == []


def test_whoever_waits_for_a_video_is_asked_at_each_frame_whether_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    asked: list[None] = []

    def go_on() -> None:
        asked.append(None)
        if len(asked) > 2:
            raise TimeoutError

    with pytest.raises(TimeoutError):
        webm(noisy(5), fps=16, go_on=go_on)
    assert len(asked) == 3
    assert list(tmp_path.iterdir()) == []
