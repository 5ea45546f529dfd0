"""What the maker of a part noted: how many pictures it looked at, and what became of those that are no rows."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

LISTED = 2_000
"""Bad pictures that a part lists by name; the counts go on. Far above what a run tolerates of one part."""


@dataclass(frozen=True, slots=True, order=True)
class Bad:
    """One picture that cannot be used. `kind` groups reasons for the count, `reason` says what was seen."""

    name: str
    kind: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """`found` pictures made rows, or were `bad` (by kind; `listed` with names), or were left out by a setting (by field).

    `recipe` is the fingerprint of the settings that the part was made by.
    """

    recipe: str
    found: int
    bad: dict[str, int] = field(default_factory=dict)
    left_out: dict[str, int] = field(default_factory=dict)
    listed: tuple[Bad, ...] = ()

    def to_json(self) -> str:
        """As a part's notes."""
        return json.dumps(asdict(self), ensure_ascii=False)


def parse_facts(notes: str) -> Facts:
    """Read a part's notes."""
    raw = json.loads(notes)
    return Facts(**raw | {"listed": tuple(Bad(**bad) for bad in raw["listed"])})


def total(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The sum of counts, by their names; without those that are 0."""
    added: Counter[str] = Counter()
    for one in counts:
        added.update(one)
    return {name: count for name, count in sorted(added.items()) if count}
