"""The same samples for every reader: latents of 512 px and the unpadded text of a caption of 60 tokens, 0.6 MB each."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator

import numpy as np
import torch

LATENTS = (16, 64, 64)
TEXT = (60, 4096)
POOLED = 768
BATCH = 8
WORKERS = 2


def make(count: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(latents, text) as uint16, the bits of bfloat16, with the magnitudes of real ones."""
    source = np.random.default_rng(0)
    values = POOLED + TEXT[0] * TEXT[1]
    for _ in range(count):
        latents = source.standard_normal(LATENTS, dtype=np.float32)
        yield _bits(latents), _bits(source.standard_normal(values, dtype=np.float32))


def tensor(data: bytes) -> torch.Tensor:
    """Bytes as a bfloat16 tensor of its own memory."""
    return torch.frombuffer(bytearray(data), dtype=torch.bfloat16)


def collate(samples: list[tuple[bytes, bytes]]) -> tuple[torch.Tensor, torch.Tensor]:
    """A batch: latents (B, C, h, w), texts (B, ...)."""
    latents = torch.stack([tensor(one).reshape(LATENTS) for one, _ in samples])
    return latents, torch.stack([tensor(text) for _, text in samples])


def measure(batches: Iterable[tuple[torch.Tensor, torch.Tensor]], began: float) -> None:
    """Take every batch and print what that took as JSON."""
    samples, size, first = 0, 0, 0.0
    for latents, texts in batches:
        first = first or time.monotonic() - began
        samples += len(latents)
        size += latents.nbytes + texts.nbytes
    seconds = time.monotonic() - began
    json.dump({"samples": samples, "bytes": size, "seconds": seconds, "first": first}, sys.stdout)


def _bits(values: np.ndarray) -> np.ndarray:
    return (values.view(np.uint32) >> 16).astype(np.uint16)
