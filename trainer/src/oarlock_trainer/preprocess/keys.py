"""What a cached embedding was made from, as a 128-bit key: another input, another key, so nothing stale is ever read.

A key is XXH3 over the parts that decide about a record, with a NUL between them: no part but the last may hold one. It
guards against accidents, not against people who could write into the cache anyway.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from xxhash import xxh3_128_digest

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from oarlock_trainer.data.buckets import Cut

_BLOCK = 65536
_BLOCKS = 16
"""Hashing all of T5's 9.8 GB at every start would cost minutes. Sixteen blocks spread over each file tell one set of
trained weights from another: training moves all of them."""


@dataclass(frozen=True, slots=True)
class Encoders:
    """Fingerprints of the frozen encoders: what makes cached embeddings valid."""

    vae: str
    text: str


def encoders_of(model: Path) -> Encoders:
    """Fingerprints of a model's encoders."""
    text = [model / part for part in ("text_encoder", "text_encoder_2", "tokenizer", "tokenizer_2")]
    return Encoders(vae=encoder_fingerprint([model / "vae"]), text=encoder_fingerprint(text))


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


def image_key(*, source: str, name: str, version: str, cut: Cut, encoder: str) -> bytes:
    """Key of a picture's latents, 16 bytes. `source` is Files.where."""
    scaled, target = cut.scaled, cut.target
    numbers = f"{scaled.width},{scaled.height},{cut.left},{cut.top},{target.width},{target.height}"
    return xxh3_128_digest(f"latents\0{encoder}\0{source}\0{version}\0{numbers}\0{name}".encode())


def text_key(*, caption: str, encoder: str, unpadded: bool) -> bytes:
    """Key of a caption's embeddings, 16 bytes."""
    return xxh3_128_digest(f"text\0{encoder}\0{int(unpadded)}\0{caption}".encode())
