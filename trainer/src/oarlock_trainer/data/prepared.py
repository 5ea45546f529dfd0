"""What preprocessing leaves, and training reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oarlock_trainer.data.embedding_index import EmbeddingIndex
    from oarlock_trainer.data.grouping import Bucket
    from oarlock_trainer.data.metadata.table import Table
    from oarlock_trainer.data.seen_texts import SeenTexts


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """Everything that training reads: the table in buckets, where its embeddings are, and what all was made from.

    `latents` has the entries of data.entries, those of the table's rows first. `texts` has one for each caption in the order
    of Table.text_keys, and last the empty caption's, whose number is `empty_text`; it is None where captions are encoded
    while training. `seen` is there where texts are encoded beside references: `texts` then has those of data.seen_texts.
    """

    table: Table
    buckets: Sequence[Bucket]
    latents: EmbeddingIndex
    texts: EmbeddingIndex | None
    empty_text: int
    fingerprint: str
    seen: SeenTexts | None = None
