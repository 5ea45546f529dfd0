"""One run: storms and calms, until the time is over or something is found."""

from __future__ import annotations

import asyncio
import sys
import time

from tests.chaos import calm
from tests.chaos.field import Field
from tests.chaos.judge import Judge
from tests.chaos.storm import Storm

STORM_SECONDS = 60
TOLD_SECONDS = 10
COLLECTED_SECONDS = 90
"""What Kubernetes' garbage collector gets, which asks a killed API server again after a minute at most."""
KEPT_VERSIONS = 20_000
"""How far back lives that have ended are remembered."""


class Run:
    """A run and what it has seen."""

    def __init__(self, field: Field, judge: Judge, *, minutes: float, patience: float, keep_going: bool) -> None:
        self.field, self.judge, self.storm = field, judge, Storm(field)
        self._keep_going, self._patience = keep_going, patience
        self._began = time.monotonic()
        self._ends = self._began + minutes * 60

    async def play(self) -> None:
        """All of it."""
        while self._goes_on(self._ends):
            await self._storm(min(time.monotonic() + STORM_SECONDS, self._ends))
            await calm.mend(self.field)
            await calm.collected(self.field, self._tend, seconds=COLLECTED_SECONDS)
            for words in await calm.settled(self.field.history, self._tend, seconds=self._patience):
                self.judge.say(f"stuck: {self._patience:g} s after all was calm {words}")
            await calm.clear(self.field.client, self.field.history)
            self.field.history.forget(self.field.history.reached.get("pods", 0) - KEPT_VERSIONS)
            self._tell()
        await asyncio.sleep(2)

    def _goes_on(self, until: float) -> bool:
        return time.monotonic() < until and (self._keep_going or not self.judge.found)

    async def _storm(self, until: float) -> None:
        told = time.monotonic()
        while self._goes_on(until):
            await self.storm.step()
            self._tend()
            if time.monotonic() - told > TOLD_SECONDS:
                told = time.monotonic()
                self._tell()
            await asyncio.sleep(self.field.chance.uniform(0.02, 0.3))

    def _tend(self) -> None:
        operators = self.field.operators
        operators.tend()
        while operators.complaints:
            self.judge.say(f"process: {operators.complaints.pop()}")

    def _tell(self) -> None:
        history, ledger, did = self.field.history, self.judge.ledger, self.field.operators.counts
        say(
            f"{time.monotonic() - self._began:5.0f} s: {sum(self.storm.counts.values())} steps, "
            f"{len(history.living())} jobs, {len(history.bodies)} pods, "
            f"{sum(len(risen) for risen in history.attempts.values())} attempts, "
            f"{sum(each.used for each in ledger.planted)} cordons for {len(ledger.planted)} broken GPUs, operators "
            f"killed {did['kill']}, frozen {did['freeze']}, ended {did['end']} times; "
            f"{len(self.judge.found)} violations"
        )


def say(words: str) -> None:
    """To whoever waits in front of it."""
    sys.stdout.write(f"{words}\n")
    sys.stdout.flush()
