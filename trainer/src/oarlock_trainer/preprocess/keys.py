"""What a cached embedding was made from, as a 128-bit key: another input, another key, so nothing stale is ever read."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from oarlock_trainer.data.buckets import Cut

_BLOCK = 65536
_BLOCKS = 16
"""Hashing all of T5's 9.8 GB at every start would cost minutes. Sixteen blocks spread over each file tell one set of
trained weights from another: training moves all of them."""


def encoder_fingerprint(folders: Iterable[Path]) -> str:
    """Identity of an encoder: its configuration and tokenizer files whole, its weights by size and samples."""
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted(folder.iterdir()) if folder.is_dir() else []:
            if not path.is_file():
                continue
            size = path.stat().st_size
            digest.update(f"{folder.name}/{path.name}:{size}\n".encode())
            with path.open("rb") as file:
                if size <= _BLOCK * _BLOCKS:
                    digest.update(file.read())
                else:
                    for block in range(_BLOCKS):
                        file.seek((size - _BLOCK) * block // (_BLOCKS - 1))
                        digest.update(file.read(_BLOCK))
    return digest.hexdigest()[:32]


def image_key(*, source: str, name: str, version: str, cut: Cut, encoder: str) -> str:
    """Key of a picture's latents."""
    return _key("latents", source, name, version, *_numbers(cut), encoder)


def text_key(*, caption: str, encoder: str, unpadded: bool) -> str:
    """Key of a caption's embeddings."""
    return _key("text", caption, encoder, unpadded)


def _numbers(cut: Cut) -> tuple[int, ...]:
    return (cut.scaled.width, cut.scaled.height, cut.left, cut.top, cut.target.width, cut.target.height)


def _key(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]
