"""A dead gang is looked at at once; routine looks take a bounded share of a core, whatever the gang's size."""

from __future__ import annotations

import pytest

from oarlock_operator.pace import FIGURES_A_SECOND, LONGEST, LONGEST_FIGURES, MINOR, MOST_QUEUED, SHARE, SHORTEST, Pace

KEY = ("default", "flux")


def test_the_end_of_a_pod_of_the_living_gang_is_looked_at_at_once_however_costly_a_look_is() -> None:
    pace = Pace()
    pace.note(KEY, attempt=2, seconds=10.0)
    assert pace.delay(KEY, attempt=2, ended=True) == 0.0
    assert pace.delay(KEY, attempt=1, ended=True) > 0.0, "an older gang's pods are expected to end"
    assert pace.delay(KEY, attempt=2, ended=False) > 0.0


@pytest.mark.parametrize(("seconds", "delay"), [(0.0, SHORTEST), (0.1, SHARE * 0.1), (100.0, LONGEST)])
def test_other_looks_wait_in_proportion_to_what_one_costs(seconds: float, delay: float) -> None:
    pace = Pace()
    pace.note(KEY, attempt=1, seconds=seconds)
    assert pace.delay(KEY, attempt=1, ended=False) == delay


def test_while_many_jobs_wait_each_gathers_more_but_a_dead_gang_never_waits() -> None:
    pace = Pace()
    assert pace.delay(KEY, attempt=1, ended=False, waiting=100) == 5.0
    assert pace.delay(KEY, attempt=1, ended=False, waiting=100_000) == MOST_QUEUED
    assert pace.delay(KEY, attempt=1, ended=True, waiting=100_000) == 0.0


def test_a_job_that_was_not_looked_at_yet_waits_least() -> None:
    assert Pace().delay(KEY, attempt=1, ended=False) == SHORTEST


def test_counts_alone_are_written_now_and_then() -> None:
    pace = Pace()
    assert pace.until_next_minor(KEY, now=100.0) == 0.0
    pace.wrote(KEY, "5", now=100.0)
    assert pace.until_next_minor(KEY, now=100.5) == MINOR - 0.5
    assert pace.until_next_minor(KEY, now=103.0) == 0.0


def test_only_the_last_version_that_was_written_here_is_no_news() -> None:
    pace = Pace()
    pace.wrote(KEY, "5", now=0.0)
    assert pace.own(KEY, "5")
    assert not pace.own(KEY, "6")
    pace.forget(KEY)
    assert not pace.own(KEY, "5")


@pytest.mark.parametrize(
    ("jobs", "seconds"), [(1, 1 / FIGURES_A_SECOND), (100, 10.0), (1000, 100.0), (10_000, LONGEST_FIGURES)]
)
def test_all_jobs_that_train_share_so_many_writes_a_second(jobs: int, seconds: float) -> None:
    pace = Pace()
    for number in range(jobs):
        pace.note(("default", f"job-{number}"), attempt=1, seconds=0.0, trains=True)
        pace.note(("default", f"starting-{number}"), attempt=1, seconds=0.0, trains=False)
    assert pace.figures_seconds() == seconds
    pace.note(("default", "job-0"), attempt=2, seconds=0.0, trains=False)
    for number in range(1, jobs):
        pace.forget(("default", f"job-{number}"))
    assert pace.figures_seconds() == 0.0
