"""Frames become a file that plays."""

from __future__ import annotations

import io

import cv2
import numpy as np
from PIL import Image

from oarlock_trainer.validation.video_files import webm

WIDTH, HEIGHT = 96, 64


def test_a_file_has_all_frames_in_their_order_and_colours_at_the_rate_that_it_is_told() -> None:
    shades = range(30, 255, 25)
    frames = [Image.new("RGB", (WIDTH, HEIGHT), (shade, 255 - shade, 40)) for shade in shades]
    content = webm(frames, fps=16)
    assert content[:4] == b"\x1a\x45\xdf\xa3"  # of all files of Matroska's kind
    video = cv2.VideoCapture(io.BytesIO(content), cv2.CAP_FFMPEG, [])
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
