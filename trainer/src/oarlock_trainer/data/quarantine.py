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

from oarlock_api.contract.layout import PRIVATE
from oarlock_trainer.runtime import channel
from oarlock_trainer.runtime.atomic_write import write_bytes
from oarlock_trainer.runtime.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_QUARANTINE = "quarantine.jsonl"

UNREADABLE = (OSError, ValueError, SyntaxError, EOFError, struct.error, zlib.error, Image.DecompressionBombError)
"""What Pillow and a caption's decoding raise for files that are not what they should be.

A header that claims more than Pillow's 179 million pixels is refused with them: no photograph is that large.
"""
_REMEDY = "Mend or remove them, or correct the source and captions of the dataset."
_ALWAYS_ALLOWED = 5
_ALLOWED_SHARE = 0.01
"""A few bad files in a hundred thousand are life; one in ten is a wrong path or a broken copy."""
MOST = 100_000
"""However many pictures there are, nobody looks through more bad ones; and all ranks hold their names."""


@dataclass(frozen=True, slots=True, order=True)
class Rejected:
    """One picture that is left out. `kind` groups reasons for the count, `reason` says what was seen."""

    dataset: str
    name: str
    kind: str
    reason: str


class TooManyRejectedError(ConfigurationError):
    """More pictures cannot be used than can be by accident. `found`: how many, which first; `listed_in`: all of them."""

    def __init__(self, found: str, listed_in: Path) -> None:
        """Both are arguments of the exception, so that it goes from rank to rank."""
        super().__init__(found, listed_in)
        self.found = found
        self.listed_in = listed_in

    def __str__(self) -> str:
        """With the list, for where it stays."""
        return f"{self.found}\nThey are listed in {self.listed_in}. {_REMEDY}"

    def unlisted(self) -> ConfigurationError:
        """The same for where nothing stays."""
        return ConfigurationError(f"{self.found}\n{_REMEDY}")


def kinds(rejected: Sequence[Rejected]) -> Counter[str]:
    """How many there are of each kind."""
    return Counter(item.kind for item in rejected)


def report(
    output: Path, rejected: Sequence[Rejected], *, pictures: int, counts: Mapping[str, int] | None = None
) -> None:
    """List bad pictures below the job's output and tell of them; rank 0 does it for all.

    `counts` by kind counts those too that are not named. Raises TooManyRejectedError where too many of `pictures` are bad.
    """
    if not rejected:
        return
    path = output / PRIVATE / _QUARANTINE
    counted = Counter(counts) if counts is not None else kinds(rejected)
    write(path, rejected, count=counted.total())
    channel.send(channel.Event.NOTE, message=summary(rejected, count=counted.total()))
    check_bound(rejected, pictures=pictures, listed_in=path, counts=counted)


def write(path: Path, rejected: Sequence[Rejected], *, count: int | None = None) -> None:
    """Replace the list for people. Where there are more than are named, `count` in all, its last line says so."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(asdict(item), ensure_ascii=False) + "\n" for item in sorted(rejected)]
    if count is not None and count > len(rejected):
        lines.append(json.dumps({"moreThatAreNotNamed": count - len(rejected)}) + "\n")
    write_bytes(path, "".join(lines).encode())


def allowed(pictures: int) -> int:
    """How many of `pictures` may be bad: 5, or 1 %, or MOST."""
    return min(max(_ALWAYS_ALLOWED, int(pictures * _ALLOWED_SHARE)), MOST)


def check_bound(
    rejected: Sequence[Rejected], *, pictures: int, listed_in: Path, counts: Mapping[str, int] | None = None
) -> None:
    """Raise TooManyRejectedError where more pictures are bad than are `allowed`.

    `counts` by kind counts those too that are not named in `rejected`.
    """
    counted = Counter(counts) if counts is not None else kinds(rejected)
    most = allowed(pictures)
    if counted.total() <= most:
        return
    each = ", ".join(f"{count} {kind}" for kind, count in counted.most_common())
    first = "\n".join(f"  {item.dataset}: {item.name}: {item.reason}" for item in sorted(rejected)[:5])
    found = f"{counted.total()} of {pictures} pictures cannot be used ({each}), at most {most} may be:\n{first}"
    raise TooManyRejectedError(found, listed_in)


def summary(rejected: Sequence[Rejected], *, count: int) -> str:
    """One sentence for /status; there are `count` in all."""
    first = min(rejected)
    return f"{count} pictures left out, such as {first.dataset}: {first.name}: {first.reason}"
