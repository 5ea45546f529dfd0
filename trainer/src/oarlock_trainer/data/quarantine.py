"""Pictures that cannot be used: named with their reason, never dropped in silence, and bounded.

They stand in `<output>/.oarlock/quarantine.jsonl` for people, as one file per scan.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from PIL import Image

from oarlock_trainer.durable import write_bytes
from oarlock_trainer.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

UNREADABLE = (OSError, ValueError, SyntaxError, EOFError, struct.error, zlib.error, Image.DecompressionBombError)
"""What Pillow and a caption's decoding raise for files that are not what they should be.

A header that claims more than Pillow's 179 million pixels is refused with them: no photograph is that large.
"""
_ALWAYS_ALLOWED = 5
_ALLOWED_SHARE = 0.01
"""A few bad files in a hundred thousand are life; one in ten is a wrong path or a broken copy."""


@dataclass(frozen=True, slots=True, order=True)
class Rejected:
    """One picture that is left out. `kind` groups reasons for the count, `reason` says what was seen."""

    dataset: str
    name: str
    kind: str
    reason: str


def write(path: Path, rejected: Sequence[Rejected]) -> None:
    """Replace the list for people."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(asdict(item), ensure_ascii=False) + "\n" for item in sorted(rejected)]
    write_bytes(path, "".join(lines).encode())


def check_bound(rejected: Sequence[Rejected], *, pictures: int, listed_in: Path) -> None:
    """Raise ConfigurationError where more pictures are bad than can be by accident: 5, or 1 % of `pictures`."""
    allowed = max(_ALWAYS_ALLOWED, int(pictures * _ALLOWED_SHARE))
    if len(rejected) <= allowed:
        return
    counts = ", ".join(f"{count} {kind}" for kind, count in Counter(item.kind for item in rejected).most_common())
    first = "\n".join(f"  {item.dataset}: {item.name}: {item.reason}" for item in sorted(rejected)[:5])
    raise ConfigurationError(
        f"{len(rejected)} of {pictures} pictures cannot be used ({counts}), at most {allowed} may be:\n{first}\n"
        f"All are listed in {listed_in}. Mend or remove them, or correct the source and captions of the dataset."
    )


def summary(rejected: Sequence[Rejected]) -> str:
    """One sentence for /status."""
    first = min(rejected)
    return f"{len(rejected)} pictures left out, such as {first.dataset}: {first.name}: {first.reason}"
