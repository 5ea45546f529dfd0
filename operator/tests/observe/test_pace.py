"""A dead gang is looked at at once; routine looks take a bounded share of a core, whatever the gang's size."""

from __future__ import annotations

import pytest

from oarlock_operator.model.job_memory import JobMemory
from oarlock_operator.observe import pace
from oarlock_operator.observe.memory import Memory
from oarlock_operator.observe.pace import (
    FIGURES_A_SECOND,
    LONGEST,
    LONGEST_FIGURES,
    MINOR,
    MOST_QUEUED,
    SHARE,
    SHORTEST,
)


def test_the_end_of_a_pod_of_the_living_gang_is_looked_at_at_once_however_costly_a_look_is() -> None:
    memory = JobMemory(attempt=2, look_seconds=10.0)
    assert pace.delay(memory, attempt=2, ended=True) == 0.0
    assert pace.delay(memory, attempt=1, ended=True) > 0.0, "an older gang's pods are expected to end"
    assert pace.delay(memory, attempt=2, ended=False) > 0.0


@pytest.mark.parametrize(("seconds", "delay"), [(0.0, SHORTEST), (0.1, SHARE * 0.1), (100.0, LONGEST)])
def test_other_looks_wait_in_proportion_to_what_one_costs(seconds: float, delay: float) -> None:
    assert pace.delay(JobMemory(attempt=1, look_seconds=seconds), attempt=1, ended=False) == delay


def test_while_many_jobs_wait_each_gathers_more_but_a_dead_gang_never_waits() -> None:
    memory = JobMemory()
    assert pace.delay(memory, attempt=1, ended=False, waiting=100) == 5.0
    assert pace.delay(memory, attempt=1, ended=False, waiting=100_000) == MOST_QUEUED
    assert pace.delay(memory, attempt=1, ended=True, waiting=100_000) == 0.0


def test_a_job_that_was_not_looked_at_yet_waits_least() -> None:
    assert pace.delay(JobMemory(), attempt=1, ended=False) == SHORTEST


def test_counts_alone_are_written_now_and_then() -> None:
    assert pace.until_next_minor(JobMemory(), now=100.0) == 0.0
    written = JobMemory(written="5", written_at=100.0)
    assert pace.until_next_minor(written, now=100.5) == MINOR - 0.5
    assert pace.until_next_minor(written, now=103.0) == 0.0


@pytest.mark.parametrize(
    ("jobs", "seconds"), [(1, 1 / FIGURES_A_SECOND), (100, 10.0), (1000, 100.0), (10_000, LONGEST_FIGURES)]
)
def test_all_jobs_that_train_share_so_many_writes_a_second(jobs: int, seconds: float) -> None:
    memory = Memory()
    for number in range(jobs):
        memory.of(("default", f"job-{number}")).trains = True
        memory.of(("default", f"starting-{number}")).trains = False
    assert pace.figures_seconds(memory.training()) == seconds
    memory.of(("default", "job-0")).trains = False
    for number in range(1, jobs):
        memory.forget(("default", f"job-{number}"))
    assert pace.figures_seconds(memory.training()) == 0.0
