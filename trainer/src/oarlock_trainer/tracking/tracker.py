"""What a tracker is, and what it is told of the run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """A run as one tracker sees it, the same in every attempt but for `attempt` and `first`.

    `identity` tells the run from all others, for ever; `settings` is spec.training, without a secret in it; `first` steps
    were done before this attempt.
    """

    identity: str
    project: str
    name: str
    url: str | None
    secrets: Mapping[str, str]
    settings: Mapping[str, Any]
    output: Path
    attempt: int
    first: int


class Tracker(Protocol):
    """One open run of a tracker. Any method may raise; all are called by one thread, which may wait for the network."""

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        """Write the figures of a step. A step that an earlier attempt had done already may come again, and counts."""

    def close(self, *, done: bool) -> None:
        """Write what is still held back. `done`: the run is; otherwise another attempt may go on."""
