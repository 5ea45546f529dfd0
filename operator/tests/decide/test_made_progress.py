"""One rule of progress for rounds, lost pods and attempts: no fault repeats for ever, and who comes further goes on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jobs import job, spec
from replacing import KEYED
from worlds import World

from oarlock_api.contract.status import MemoryStatus
from oarlock_operator.decide.made_progress import Furthest, furthest

NODES = 4
FRUITLESS = 3
"""Rounds in a row without a later step, after which a leader has its gang leave."""


@pytest.mark.parametrize(
    ("counted", "kept", "began", "result"),
    [
        (None, [10, None], 0, Furthest(10, new=True)),
        (None, [10], 10, Furthest(10)),
        (None, [], 10, Furthest(10)),
        (None, [10], None, Furthest(None)),
        (50, [10, 49], 10, Furthest(50)),
        (50, [50], 10, Furthest(50)),
        (50, [10, 51], 10, Furthest(51, new=True)),
    ],
    ids=[
        "beyond the beginning",
        "no further than that",
        "nothing known",
        "nobody knows where it began",
        "an attempt before came further",
        "as far",
        "further",
    ],
)
def test_progress_is_what_lies_beyond_all_that_has_counted(
    counted: int | None, kept: list[int | None], began: int | None, result: Furthest
) -> None:
    assert furthest(counted, kept, began=began) == result


@dataclass
class Training:
    """A gang that saves every `saves` steps and has every `held`-th in memory; 0 is never. It trains in a played world."""

    world: World
    saves: int
    held: int
    began: int = 0
    """Step of the current round's beginning."""
    attempt_began: int = 0
    fruitless: int = 0

    def checkpoint(self, step: int) -> int:
        return step // self.saves * self.saves if self.saves else 0

    def in_memory(self, step: int) -> int:
        return step // self.held * self.held if self.held else 0

    def tell(self, step: int) -> None:
        """Rank 0's agent tells what it knows at this step, and the operator looks."""
        world = self.world
        world.now += timedelta(seconds=11)
        world.step(step, resumed=self.attempt_began, saved=self.checkpoint(step) or None)
        if (kept := self.in_memory(step)) and world.progress:
            memory = MemoryStatus(kept, world.now.isoformat(), copied=True)
            world.progress = replace(world.progress, memory=memory)
        world.one_pass()

    def fail(self, step: int, code: int) -> None:
        """The ranks of a pod end so at this step; a new round follows, or a new attempt."""
        self.tell(step)
        resumed = max(self.checkpoint(step), self.in_memory(step))
        self.fruitless = 0 if resumed > self.began else self.fruitless + 1
        if self.fruitless == FRUITLESS or self.over():
            self.world.end(1, code)
            self.next_attempt(step)
            return
        self.world.end_round(code, step=step, resumed_step=resumed)
        self.began = resumed
        self.tell(resumed + 1)

    def lose(self, step: int) -> None:
        """A pod is killed with its agent at this step; the next round goes on from memory, or a new attempt follows."""
        self.tell(step)
        self.world.progress = None
        self.world.end(1, 137, with_report=False)
        self.world.one_pass()
        if self.world.job.status.recovery.stage != "Replace":
            self.next_attempt(step)
            return
        self.world.start_all()
        self.began = max(self.checkpoint(step), self.in_memory(step))
        self.world.end_round(82, rank=1, step=step, resumed_step=self.began, lost_pod=True)
        self.tell(self.began + 1)

    def next_attempt(self, step: int) -> None:
        """All pods go, and with them what is in memory."""
        world = self.world
        world.progress = None
        world.settle()
        world.kubelets()
        world.now += timedelta(seconds=400)
        world.settle()
        self.began = self.attempt_began = self.checkpoint(step)
        self.fruitless = 0
        if not self.over():
            world.running(step=self.began + 1, resumed=self.began, **self.saved(self.began))

    def saved(self, step: int) -> dict[str, int]:
        return {"saved": self.checkpoint(step)} if self.checkpoint(step) else {}

    def over(self) -> bool:
        return self.world.job.status.completion_time is not None or self.world.job.status.recovery.stage == "Stopping"


def training(*, saves: int, held: int) -> Training:
    memory = {"memory": {"everySteps": held}} if held else {}
    world = World(job=job(spec=spec(nodes=NODES, recovery={"inPlace": "Auto", **memory})), defaults=KEYED)
    world.running(step=1)
    return Training(world, saves, held)


def happen(gang: Training, what: str, step: int) -> None:
    if what == "a killed pod":
        gang.lose(step)
    else:
        gang.fail(step, int(what))


FAULTS = ["1", "81", "83", "a killed pod"]
STEPS = st.integers(2, 90)


@settings(max_examples=25)
@given(
    faults=st.lists(st.sampled_from(FAULTS), min_size=1, max_size=3), step=STEPS, saves=STEPS, held=st.just(0) | STEPS
)
def test_faults_that_come_back_at_the_same_step_end_the_job_however_its_state_is_kept(
    faults: list[str], step: int, saves: int, held: int
) -> None:
    gang = training(saves=saves, held=held)
    for count in range(60):
        if gang.over():
            break
        happen(gang, faults[count % len(faults)], step)
    assert gang.over(), gang.world.job.status.restarts


@settings(max_examples=25)
@given(faults=st.lists(st.tuples(st.sampled_from(FAULTS), st.integers(2, 9)), min_size=5, max_size=20))
def test_a_job_that_keeps_what_it_trained_in_memory_outlives_all_faults_without_a_checkpoint_and_in_one_attempt(
    faults: list[tuple[str, int]],
) -> None:
    gang = training(saves=0, held=1)
    step = 1
    for what, further in faults:
        step += further
        happen(gang, what, step)
        assert not gang.over(), gang.world.job.status.message
    assert gang.world.job.status.attempt == 1


@settings(max_examples=15)
@given(
    faults=st.lists(st.tuples(st.sampled_from(["1", "81", "83"]), st.integers(2, 9)), min_size=5, max_size=12),
)
def test_attempts_of_which_each_saved_more_are_never_too_many(faults: list[tuple[str, int]]) -> None:
    gang = training(saves=1, held=0)
    step = 1
    for what, further in faults:
        step += further
        gang.tell(step)
        gang.world.end(1, int(what))
        gang.next_attempt(step)
        assert not gang.over(), gang.world.job.status.message
