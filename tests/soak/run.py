"""The run: jobs one after the other, each from its first step to its exported model, under faults.

The first is left alone, and is what the others are judged by; those are of each shape in turn. A fault comes some seconds
after the one before is over, by the law of a Poisson process; one in five comes before that. Without a bound on how many are
open at once, a machine that is slow to start ranks would never train.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from oarlock_local.errors import ClusterError
from tests.e2e.jobs import Jobs
from tests.soak.curve import Curve
from tests.soak.faults import KINDS, Kind
from tests.soak.field import Field
from tests.soak.shapes import PLAIN, SHAPES, Shape, job
from tests.soak.table import Cost

EVERY = 20
"""Steps between checkpoints."""
LAST_STEPS = 30
"""Of a job: no fault is begun there, for its end is judged as well."""
_TOGETHER = 0.2
"""The share of faults after which the next one does not wait until they are over."""
_LOOK_SECONDS = 0.1
_SETTLED_STEPS = 5
_LATE_SECONDS = 30.0
"""A fault that was to start ranks anew, and did not within so long, hit none: they were starting already."""
_RUNGS = {
    "RestartRanks": "new ranks",
    "ReplacePod": "a new pod",
    "TakeSpare": "a spare",
    "Shrink": "fewer nodes",
}
"""status.rounds[].rung of what a fault may cost, in words."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """`faults` in all, `gap` seconds of training between two on average, none after `minutes`.

    Each is to be mended within `bound` seconds, as is the end. A step of a job rests for `pace` seconds. `kinds` are done in
    turn; without any they are drawn. Jobs are of these `shapes` in turn.
    """

    faults: int
    minutes: float
    steps: int
    gap: float
    bound: float
    pace: float
    kinds: tuple[str, ...] = ()
    shapes: tuple[Shape, ...] = tuple(SHAPES.values())


@dataclass(slots=True)
class Strike:
    """A fault that was done at `at` (seconds since the epoch) in an attempt, and is not mended yet."""

    name: str
    kind: Kind
    at: float
    attempt: int
    round: int
    incarnation: int
    alone: bool
    mended_at: float


class Soak:
    """`costs` are of the faults that were mended, `violations` what must not have been."""

    def __init__(self, jobs: Jobs, plan: Plan, field: Field, say: Say) -> None:
        self._jobs, self._plan, self._field, self._say = jobs, plan, field, say
        self.costs: list[Cost] = []
        self.violations: list[str] = []
        self.counts: Counter[str] = Counter()
        self.legs = 0
        self.seconds = self.useful = 0.0
        self.steps = self.again = 0
        self._began = time.monotonic()
        self._open: list[Strike] = []
        self._due = 0.0
        self._model = ""

    def play(self) -> None:
        """The undisturbed job, and then others until all faults were done, or a violation stopped one."""
        expected = self._undisturbed()
        self._due = time.monotonic() + self._gap()
        while self._goes_on():
            self.legs += 1
            self._leg(expected)

    def _undisturbed(self) -> dict[int, float]:
        began = time.monotonic()
        with self._job("soak-0", PLAIN, pace=0.0) as curve:
            self._jobs.wait_for_end("soak-0", seconds=self._plan.steps * 3 + 300)
            curve.look()
            self._model = self._fingerprint("soak-0")
        assert sorted(curve.losses) == list(range(1, self._plan.steps + 1)), "the undisturbed run has every step"
        self._say(f"undisturbed: {self._plan.steps} steps in {time.monotonic() - began:.0f} s")
        return curve.losses

    def _leg(self, expected: dict[int, float]) -> None:
        shapes = self._plan.shapes
        name, shape = f"soak-{self.legs}", shapes[(self.legs - 1) % len(shapes)]
        self._field.job = name
        trips = self._jobs.output / self._field.trips
        trips.mkdir(parents=True, exist_ok=True)
        for folder in (trips, trips.parent):
            folder.chmod(0o777)  # pods run as another user, and take a trip away
        with self._job(name, shape, pace=self._plan.pace) as curve:
            curve.expected, curve.tolerance = expected, shape.tolerance
            reached, moved_at = 0, time.monotonic()
            while "completionTime" not in (status := self._status()):
                if self._field.mending or any(strike.kind.cuts_off for strike in self._open):
                    curve.unheard = max(curve.unheard, curve.attempt, status.get("attempt", 0))
                self._judge(name, curve)
                self._heed(curve)
                told = len(curve.lines)
                if told > reached or self._field.mending:
                    reached, moved_at = told, time.monotonic()
                if time.monotonic() - moved_at > self._plan.bound:
                    self._violated(name, f"nothing was told for {self._plan.bound:g} s: {_words(status)}")
                    self._clear()
                    return
                if self._may_strike(curve):
                    self._strike()
                time.sleep(_LOOK_SECONDS)
            self._judge(name, curve)
            self._end(name, shape, curve, status)

    def _judge(self, name: str, curve: Curve) -> None:
        curve.look()
        while curve.violations:
            self._violated(name, curve.violations.pop(0))

    def _end(self, name: str, shape: Shape, curve: Curve, status: dict[str, Any]) -> None:
        self._field.mend(everything=True)
        for strike in self._open:  # the job was quicker than the last look at it
            self._close(curve, strike)
        self._clear()
        if status["phase"] != "Succeeded":
            self._violated(name, f"it ended as {status['phase']}: {_words(status)}")
            return
        if sorted(curve.losses) != list(range(1, self._plan.steps + 1)):
            self._violated(name, "steps are missing from its curve")
        if self._fingerprint(name) != self._model and not shape.tolerance:
            self._violated(name, "its model is not the undisturbed run's to the last bit")
        steps = [line.at for line in curve.lines if line.loss is not None]
        gaps = sorted(after - before for before, after in pairwise(steps))
        self.seconds += steps[-1] - steps[0]
        self.useful += gaps[len(gaps) // 2] * (self._plan.steps - 1)
        self.steps += len(steps)
        self.again += curve.again
        attempts, rounds = status["attempt"], status.get("round", 1)
        self._say(
            f"{name}, {shape.words}: ended after {attempts} attempts (the last in round {rounds}), "
            f"{curve.again} steps done again"
        )

    # Faults

    def _gap(self) -> float:
        return self._field.chance.expovariate(1 / self._plan.gap)

    def _clear(self) -> None:
        self._open.clear()
        self._due = time.monotonic() + self._gap()

    def _may_strike(self, curve: Curve) -> bool:
        trains = 0 < curve.step < self._plan.steps - LAST_STEPS
        return self._goes_on() and trains and time.monotonic() >= self._due

    def _goes_on(self) -> bool:
        done = sum(self.counts.values()) >= self._plan.faults
        return not done and time.monotonic() - self._began < 60 * self._plan.minutes

    def _strike(self) -> None:
        if self._plan.kinds:
            name = self._plan.kinds[sum(self.counts.values()) % len(self._plan.kinds)]
        else:
            name = self._field.chance.choices(list(KINDS), [kind.weight for kind in KINDS.values()])[0]
        kind, at, status = KINDS[name], time.time(), self._status()
        nodes = set(self._field.mending)
        try:
            kind.do(self._field)
        except ClusterError as error:  # such as a pod that has just gone: another one, a moment later
            self._due = time.monotonic() + 1
            self._say(f"  no {name}: {str(error)[:120]}")
            return
        # One more beside it, or none until all are over.
        together = not self._open and self._field.chance.random() < _TOGETHER
        self._due = time.monotonic() + self._gap() if together else math.inf
        mended_at = time.time() if set(self._field.mending) == nodes else float("inf")
        for other in self._open:
            other.alone = False
        strike = Strike(
            name=name,
            kind=kind,
            at=at,
            attempt=status.get("attempt", 0),
            round=status.get("round", 1),
            incarnation=_incarnation(status),
            alone=not self._open,
            mended_at=mended_at,
        )
        self._open.append(strike)
        self.counts[name] += 1

    def _heed(self, curve: Curve) -> None:
        if self._field.mend():
            for strike in self._open:
                strike.mended_at = min(strike.mended_at, time.time())
        for strike in [one for one in self._open if self._is_over(curve, one)]:
            self._open.remove(strike)
            self._close(curve, strike)
            if not self._open:
                self._due = time.monotonic() + self._gap()
        for strike in self._open:
            if time.time() - max(strike.at, min(strike.mended_at, time.time())) > 2 * self._plan.bound:
                self._violated(self._field.job, f"{strike.name} was not over after {2 * self._plan.bound:g} s")
                self._clear()
                return

    def _is_over(self, curve: Curve, strike: Strike) -> bool:
        start = curve.start_after(strike.at)
        if start:
            return curve.steps_since(start.at) >= _SETTLED_STEPS
        if time.time() < strike.mended_at:
            return False
        late = time.time() - strike.mended_at > _LATE_SECONDS
        return (late or not strike.kind.restarts) and curve.steps_since(strike.mended_at) >= _SETTLED_STEPS

    def _close(self, curve: Curve, strike: Strike) -> None:
        start = curve.start_after(strike.at)
        if start is None:
            cost = Cost(kind=strike.name, rung="nothing", alone=strike.alone, down=curve.longest_pause(strike.at))
        else:
            step = curve.step_after(start.at, attempt=start.attempt)
            assert step is not None, "a start counts once a step came after it"
            status, why = self._status(), ""
            rung = _rung(status, strike)
            if start.attempt > strike.attempt:
                rung = "an attempt"
                ended = (one for one in status["attempts"] if one["number"] == strike.attempt)
                why = next((one.get("notInPlace", "") for one in ended), "")
            cost = Cost(
                kind=strike.name,
                rung=rung,
                alone=strike.alone,
                down=step.at - strike.at,
                start=start.at - strike.at,
                why=why,
            )
        self.costs.append(cost)
        done = sum(self.counts.values())
        beside = "" if cost.alone else ", beside others"
        why = f": {cost.why}" if cost.why else ""
        self._say(f"  {done}/{self._plan.faults} {cost.kind}: {cost.rung}, {cost.down:.1f} s{beside}{why}")

    # The job

    @contextmanager
    def _job(self, name: str, shape: Shape, *, pace: float) -> Iterator[Curve]:
        self._jobs.apply(name, steps=self._plan.steps, every=EVERY, pace=pace, **job(shape))
        try:
            yield Curve(self._jobs.output / name / "metrics.jsonl")
        finally:
            self._field.mend(everything=True)
            self._jobs.delete(name)

    def _status(self) -> dict[str, Any]:
        """The job's; an API server on a busy machine may answer late."""
        until = time.monotonic() + self._plan.bound
        while True:
            try:
                return self._jobs.status(self._field.job)
            except ClusterError:
                if time.monotonic() >= until:
                    raise
                time.sleep(1)

    def _fingerprint(self, name: str) -> str:
        files = sorted((self._jobs.output / name / "model").rglob("*.safetensors"))
        assert files, f"{name} exported no model"
        return " ".join(hashlib.sha256(path.read_bytes()).hexdigest() for path in files)

    def _violated(self, name: str, words: str) -> None:
        self.violations.append(f"{name}: {words}")
        self._say(f"VIOLATION {name}: {words}")


def _rung(status: dict[str, Any], strike: Strike) -> str:
    """How the attempt went on after a fault, by its first round that ended since."""
    ended = (
        one["rung"]
        for one in status.get("rounds", ())
        if one["attempt"] == strike.attempt and one["round"] >= strike.round and one["rung"] in _RUNGS
    )
    if rung := next(ended, None):
        return _RUNGS[rung]
    return "a new pod" if _incarnation(status) > strike.incarnation else "new ranks"


def _incarnation(status: dict[str, Any]) -> int:
    """The highest number of a pod of the newest attempt."""
    return next((attempt.get("incarnation", 1) for attempt in reversed(status.get("attempts", ()))), 1)


def _words(status: dict[str, Any]) -> str:
    return f"{status.get('phase')} {status.get('reason')}: {status.get('message')}"
