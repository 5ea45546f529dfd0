"""Files of a source that nobody reads: told by their kinds, for they may be pictures that somebody misses."""

from __future__ import annotations

from collections import Counter
from posixpath import splitext
from typing import TYPE_CHECKING

from oarlock_trainer.data.picture_kinds import HEIF, HEIF_PLUG_IN
from oarlock_trainer.storage.files import as_told

if TYPE_CHECKING:
    from collections.abc import Iterable

_KINDS = 8


def unread_kinds(names: Iterable[str]) -> str:
    """How many there are of which kind, the most first: "5 .heic, 2 .gif"; and what would have them read. Empty: none."""
    endings = Counter(splitext(name)[1] or "without an ending" for name in names)
    kinds = sorted(endings.items(), key=lambda kind: (-kind[1], kind[0]))
    told = ", ".join(f"{count:,} {as_told(ending)}" for ending, count in kinds[:_KINDS])
    others = sum(count for _, count in kinds[_KINDS:])
    more = f" and {others:,} others" if others else ""
    missed = any(ending.lower() in HEIF for ending in endings)
    return f"{told}{more}{f' ({HEIF_PLUG_IN} in the image would read .heic)' if missed else ''}"
