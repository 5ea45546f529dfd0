"""How a round ended, as its leader knows it until the next one begins."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oarlock_trainer.agent.rounds.model import Fault, Round


@dataclass
class Ended:
    """How a round ended: by which rank's fault, after which step (-1: none), and when.

    `gpus` are the UUIDs of all of which drivers spoke in it. `incarnation` is that of a pod that was lost with it;
    `replaced`: the next one goes on without that pod. `nodes`: the next one's size, where it is another one; `spare`: a pod
    that was not of this one took a place in it. `yielded`: nothing ended it but that the next one can be larger.
    """

    round: Round
    rank: int
    fault: Fault
    step: int
    at: float
    gpus: set[str] = field(default_factory=set)
    incarnation: int = 0
    replaced: bool = False
    nodes: int | None = None
    spare: bool = False
    yielded: bool = False

    def blame(self, rank: int, fault: Fault, incarnation: int = 0) -> None:
        """Tell this fault where it tells more than the one that was known."""
        if fault.weight < self.fault.weight:
            self.rank, self.fault, self.incarnation, self.yielded = rank, fault, incarnation, False
