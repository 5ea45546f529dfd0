"""Which frozen encoders a model has: what is cached of one is of no use to another."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from oarlock_trainer.models.family import VAE

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from oarlock_trainer.models.family import Family

_BLOCK = 65536
_BLOCKS = 16
"""Hashing all of T5's 9.8 GB at every start would cost minutes. Sixteen blocks spread over each file tell one set of
trained weights from another: training moves all of them."""


@dataclass(frozen=True, slots=True)
class Encoders:
    """Fingerprints of the frozen encoders: what makes cached embeddings valid."""

    vae: str
    text: str


def fingerprints(model: Path, family: Family) -> Encoders:
    """Fingerprints of a model's encoders."""
    text = [model / part for part in (*family.text_encoders, *family.tokenizers)]
    return Encoders(
        vae=encoder_fingerprint([model / VAE], family.cache_mark), text=encoder_fingerprint(text, family.cache_mark)
    )


def encoder_fingerprint(folders: Iterable[Path], mark: str = "") -> str:
    """Identity of an encoder: its configuration and tokenizer files whole, its weights by size and samples.

    With `mark` it is that of what one family makes of them.
    """
    digest = hashlib.sha256(mark.encode())
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
