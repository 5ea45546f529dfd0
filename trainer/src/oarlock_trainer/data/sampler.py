"""Which samples every optimizer step takes: a pure function of the seed and the step.

Each bucket is an endless stream: its pictures in the order of pass 0, then pass 1, and so on, every pass a permutation
of its own. A step takes the next E (effective batch) entries of one bucket's stream, so nothing is dropped and nothing
is topped up: what an epoch's last step of a bucket leaves over, the next epoch starts with. Epoch e ends for a bucket
after floor((e + 1) x samples / E) steps; the buckets' turns within an epoch are shuffled.

Nothing here knows ranks, and no pass is stored (data.permutation): memory and time do not grow with the pictures. With E
unchanged a resume is one integer; with another E the stream positions carry over (`Origin`), so the cover stays disjoint
and complete.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from oarlock_trainer.data.permutation import round_keys, shuffled
from oarlock_trainer.runtime.draws import Purpose, generator

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Stream:
    """One bucket: `pictures` in it, `samples` that it gives an epoch (pictures x passes)."""

    pictures: int
    samples: int


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the present cut into steps begins: after `step` steps, with `consumed` entries of each stream used up.

    `epochs` is how many epochs each stream has behind it. Streams of one order can differ: one that joins late is covered
    as often as the others from then on, and does not catch up. Empty tuples are zeros.
    """

    step: int = 0
    consumed: tuple[int, ...] = ()
    epochs: tuple[int, ...] = ()


def carried_over(reached: Origin, *, was: Sequence[tuple[str, int]], now: Sequence[tuple[str, int]]) -> Origin:
    """The place that some streams have reached, for those that there are now: (name, samples an epoch) of each.

    A stream goes on with its next entry. Where its epochs got another length, it has as many behind it as that makes,
    so that it is drawn from as often as the settings now say, and neither floods nor starves.
    """
    before = {
        name: (samples, consumed, epochs)
        for (name, samples), consumed, epochs in zip(was, reached.consumed, reached.epochs, strict=True)
    }
    found = []
    for name, samples in now:
        length, consumed, epochs = before.get(name, (samples, 0, 0))
        found.append((consumed, epochs if length == samples else round(consumed / samples)))
    return Origin(reached.step, tuple(consumed for consumed, _ in found), tuple(epochs for _, epochs in found))


@dataclass(frozen=True, slots=True)
class StepDraw:
    """What one optimizer step takes: `pictures` (E,) are indices within the bucket."""

    epoch: int
    bucket: int
    pictures: np.ndarray


class Order:
    """The order of all optimizer steps of a run."""

    def __init__(
        self,
        streams: Sequence[Stream],
        *,
        seed: int,
        effective: int,
        origin: Origin | None = None,
        names: Sequence[int] | None = None,
    ) -> None:
        """Every stream needs at least `effective` samples an epoch (data.batch_fit sees to that).

        `names` are the streams' numbers among all of the run, which keep their orders apart; by default 0, 1, ...
        """
        self._streams = tuple(streams)
        self._seed = seed
        self._effective = effective
        self.origin = origin or Origin()
        self._offsets = self.origin.consumed or (0,) * len(self._streams)
        self._behind = self.origin.epochs or (0,) * len(self._streams)
        self._epoch: tuple[int, np.ndarray, np.ndarray] | None = None
        self._keys = [round_keys(seed, Purpose.ORDER, bucket) for bucket in names or range(len(self._streams))]

    def at(self, step: int) -> StepDraw:
        """What step `step` (counted from 0 over the whole run) takes."""
        epoch, position = self._locate(step)
        buckets, turns = self._turns(epoch)
        bucket, turn = int(buckets[position]), int(turns[position])
        start = self._offsets[bucket] + turn * self._effective
        return StepDraw(self._behind[bucket] + epoch, bucket, self._stream(bucket, start))

    def steps_in(self, epochs: int) -> int:
        """Steps of the whole run when it ends after `epochs` epochs of the first stream."""
        return self.origin.step + self._steps_by(max(epochs - self._behind[0], 0))

    def consumed(self, step: int) -> tuple[int, ...]:
        """Entries of each stream that the steps before `step` used up: the data position of a checkpoint."""
        epoch, position = self._locate(step)
        buckets, _ = self._turns(epoch)
        now = np.bincount(buckets[:position], minlength=len(self._streams))
        return tuple(
            self._offsets[index] + (self._bucket_steps_by(index, epoch) + int(now[index])) * self._effective
            for index in range(len(self._streams))
        )

    def epochs(self, step: int) -> tuple[int, ...]:
        """Epochs that each stream has behind it before `step`."""
        epoch, _ = self._locate(step)
        return tuple(behind + epoch for behind in self._behind)

    def _bucket_steps_by(self, bucket: int, epochs: int) -> int:
        """Steps of a bucket from the origin until `epochs` epochs later; what the last cut left over is of the first one."""
        if epochs <= 0:
            return 0
        left = (self._behind[bucket] + epochs) * self._streams[bucket].samples - self._offsets[bucket]
        return max(left // self._effective, 0)

    def _steps_by(self, epochs: int) -> int:
        return sum(self._bucket_steps_by(bucket, epochs) for bucket in range(len(self._streams)))

    def _locate(self, step: int) -> tuple[int, int]:
        """(epoch, position within it) of a step."""
        wanted = step - self.origin.step
        low, high = 0, 1
        while self._steps_by(high) <= wanted:
            low, high = high, high * 2
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._steps_by(middle) <= wanted else (low, middle)
        return low, wanted - self._steps_by(low)

    def _turns(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """(bucket, which of the bucket's steps since the origin) of every step of an epoch."""
        if self._epoch is None or self._epoch[0] != epoch:
            before = [self._bucket_steps_by(bucket, epoch) for bucket in range(len(self._streams))]
            counts = [self._bucket_steps_by(bucket, epoch + 1) - before[bucket] for bucket in range(len(self._streams))]
            buckets = np.repeat(np.arange(len(counts), dtype=np.uint32), counts)
            generator(self._seed, Purpose.SCHEDULE, epoch).shuffle(buckets)
            # A bucket's steps in the order of their turns: the k-th time that it stands there is its k-th step.
            by_bucket = np.argsort(buckets, kind="stable")
            turns = np.empty(len(buckets), dtype=np.int64)
            turns[by_bucket] = np.concatenate(
                [first + np.arange(count) for first, count in zip(before, counts, strict=True)]
            )
            self._epoch = (epoch, buckets, turns)
        return self._epoch[1], self._epoch[2]

    def _stream(self, bucket: int, start: int) -> np.ndarray:
        """Entries start .. start + E of a bucket's stream."""
        pictures = self._streams[bucket].pictures
        passes, entries = np.divmod(np.arange(start, start + self._effective), pictures)
        return shuffled(entries, passes, length=pictures, keys=self._keys[bucket])
