"""Datasets that come and go: the order of steps over a whole run, cut where a dataset's window begins or ends.

Between two cuts the datasets are the same, and a `Mixture` orders the steps; each cut begins where the one before left
every stream. All is a function of the settings and the origin, so any step can be asked for, in any order.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from oarlock_trainer.data.mixture import Group, Mixture
from oarlock_trainer.data.sampler import Origin
from oarlock_trainer.runtime.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oarlock_trainer.data.sampler import StepDraw, Stream


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """When a dataset is drawn from: its name, its streams among all, its share (None = by size), its window.

    Steps of the window count from 0, `end` is the first step after it (None = the end of the run).
    """

    dataset: str
    streams: tuple[int, ...]
    probability: float | None = None
    start: int = 0
    end: int | None = None


class Timeline:
    """The order of all optimizer steps of a run."""

    def __init__(
        self,
        streams: Sequence[Stream],
        turns: Sequence[Turn],
        *,
        seed: int,
        effective: int,
        origin: Origin | None = None,
    ) -> None:
        """Every stream needs at least `effective` samples an epoch (data.batch_fit sees to that).

        Raises ConfigurationError where no dataset is left for some step.
        """
        self._streams = tuple(streams)
        self._turns = tuple(turns)
        self._seed, self._effective = seed, effective
        self.origin = origin or Origin()
        edges = {turn.start for turn in turns} | {turn.end for turn in turns if turn.end is not None}
        self._starts = [self.origin.step, *sorted(edge for edge in edges if edge > self.origin.step)]
        self._groups = [_groups(self._turns, start) for start in self._starts]
        self._parts: list[Mixture] = []

    @property
    def digest(self) -> str:
        """What the order depends on besides the origin: equal digests continue each other's order by the step alone."""
        facts = repr((self._streams, self._turns, self._seed, self._effective))
        return hashlib.sha256(facts.encode()).hexdigest()[:32]

    def check(self, total: int) -> None:
        """Raise ConfigurationError where some step before `total` has no dataset to draw from."""
        ends = [*self._starts[1:], total]
        for start, end, groups in zip(self._starts, ends, self._groups, strict=True):
            if start < total and not groups:
                windows = ", ".join(
                    f"{turn.dataset}: {turn.start + 1} to {turn.end or 'the end'}" for turn in self._turns
                )
                raise ConfigurationError(
                    f"steps {start + 1} to {min(end, total)} have no dataset to draw from ({windows}): widen startStep or "
                    f"endStep of one{', or lower training.steps' if end >= total else ''}"
                )

    def at(self, step: int) -> StepDraw:
        """What step `step` (counted from 0 over the whole run) takes."""
        return self._part(step).at(step)

    def reached(self, step: int) -> Origin:
        """Where the steps before `step` leave all streams: the data position of a checkpoint."""
        return self._part(step).reached(step)

    def steps_in(self, epochs: int) -> int:
        """Steps of the whole run when it ends after `epochs` epochs of the datasets that are drawn from by size."""
        if len(self._starts) > 1 or any(turn.end is not None for turn in self._turns):
            raise ConfigurationError(
                "training.epochs has no meaning with a dataset that is only drawn from between startStep and endStep: set "
                "training.steps instead"
            )
        return self._part(self.origin.step).steps_in(epochs)

    def _part(self, step: int) -> Mixture:
        """The cut that a step lies in, made after all before it."""
        number = max(sum(start <= step for start in self._starts) - 1, 0)
        while len(self._parts) <= number:
            start = self._starts[len(self._parts)]
            origin = self._parts[-1].reached(start) if self._parts else self.origin
            groups = self._groups[len(self._parts)]
            self._parts.append(
                Mixture(self._streams, groups, seed=self._seed, effective=self._effective, origin=origin)
            )
        return self._parts[number]


def _groups(turns: Sequence[Turn], step: int) -> list[Group]:
    """Groups of the datasets whose window holds a step: first those by size, then each with a probability.

    Where all have one, they are taken in proportion. Raises ConfigurationError where nothing is left for those by size.
    """
    open_now = [turn for turn in turns if turn.start <= step and (turn.end is None or step < turn.end)]
    by_size = [turn for turn in open_now if turn.probability is None]
    by_chance = [turn for turn in open_now if turn.probability]
    shares = sum(turn.probability or 0.0 for turn in by_chance)
    groups = [Group(turn.streams, turn.probability or 0.0) for turn in by_chance]
    if not by_size:
        return groups
    if shares >= 1.0:
        names = ", ".join(turn.dataset for turn in by_size)
        raise ConfigurationError(
            f"the probabilities of the datasets add up to {shares:g}, which leaves no step for {names} without one: lower "
            "them below 1 in all, or give every dataset a probability"
        )
    return [Group(tuple(index for turn in by_size for index in turn.streams), 1.0 - shares), *groups]
