"""What the process remembers of a job ends with the job; nothing of another job of the same name is taken for its own."""

from __future__ import annotations

from dataclasses import replace

from observe.test_gone import KEY, Operator, serving

from oarlock_operator.model.job_memory import Heard, JobMemory
from oarlock_operator.observe.memory import Memory

FULL = JobMemory(
    uid="uid-1",
    attempt=2,
    look_seconds=0.1,
    trains=True,
    written="7",
    written_at=1.0,
    heard={"pod": Heard()},
    answers={},
    keys={"pod": b"key"},
    no_spares_at=1.0,
    groups_settled=(2, True),
    refusal="invalid",
    hindrance="quota",
)


def test_a_new_job_of_the_same_name_begins_with_an_empty_memory() -> None:
    memory = Memory({KEY: replace(FULL)})
    assert memory.met(KEY, "uid-1") == FULL
    assert memory.met(KEY, "uid-2") == JobMemory(uid="uid-2")


def test_whatever_is_remembered_of_a_job_names_it_until_a_look_finds_it_gone() -> None:
    memory = Memory()
    memory.met(KEY, "uid-1")
    assert memory.keys() == {KEY}, "no watch need tell of its end: the resync has it looked at"
    memory.forget(KEY)
    assert memory.keys() == set()


def test_of_a_job_that_is_gone_nothing_stays_but_that_it_has_gone() -> None:
    memory = Memory({KEY: replace(FULL)})
    memory.forget(KEY)
    assert memory.jobs == {}
    assert memory.gone.holds("uid-1")


def test_of_a_finished_job_only_its_name_and_its_groups_are_remembered() -> None:
    memory = Memory({KEY: replace(FULL)})
    memory.forget(KEY, finished=True)
    assert memory.of(KEY) == JobMemory(uid="uid-1", groups_settled=(2, True))
    assert memory.expects(KEY)


def test_only_the_last_version_that_was_written_here_is_no_news() -> None:
    operator = Operator(serving())
    memory = operator.reconciler.memory.of(KEY)
    for memory.written, looks in (("9", 0), ("8", 1)):
        operator.hear_of_the_job("MODIFIED")
        assert len(operator.queue) == looks
