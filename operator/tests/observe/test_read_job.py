"""Reading a job: a spec that does not fit is told, and so is a status that does not fit."""

from __future__ import annotations

from typing import Any

import pytest
from jobs import spec

from oarlock_operator.observe.job_facts import read_job


def job(**parts: Any) -> dict[str, Any]:
    return {"metadata": {"namespace": "default", "name": "flux", "uid": "uid-1"}, "spec": spec().to_manifest(), **parts}


def test_a_job_is_read_with_its_spec_and_status() -> None:
    read = read_job(job(status={"attempt": 3, "phase": "Running", "fieldOfALaterVersion": 1}))
    assert (read.spec, read.problem, read.status.attempt, read.deleting) == (spec(), "", 3, False)


def test_a_job_that_is_being_deleted_says_so() -> None:
    raw = job()
    raw["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert read_job(raw).deleting


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({}, ["spec.output: Field required"]),
        (None, ["spec.output: Field required"]),
        ({**spec().to_manifest(), "nodes": 0, "colour": "red"}, ["spec.nodes: ", "spec.colour: "]),
        ({**spec().to_manifest(), "output": {}}, ["spec.output: ", "set exactly one of"]),
    ],
)
def test_a_spec_that_does_not_fit_is_told_field_by_field_and_never_raised(bad: Any, words: list[str]) -> None:
    read = read_job(job(spec=bad))
    assert read.spec is None
    assert all(word in read.problem for word in words), read.problem


REFERS = {"env": [{"name": "RENDEZVOUS", "value": "tcp://$(MASTER_ADDR):1"}]}


def test_a_job_of_an_earlier_release_is_read_though_a_new_one_would_be_refused_and_says_so() -> None:
    given = {**spec().to_manifest(), "pod": REFERS}
    new, known = read_job(job(spec=given)), read_job(job(spec=given, status={"attempt": 3}))
    assert new.spec is None
    assert known.spec is not None
    assert known.spec.pod.env[0].value == "tcp://$(MASTER_ADDR):1"
    assert known.problem == new.problem
    assert "RENDEZVOUS refers to $(MASTER_ADDR)" in known.problem


def test_what_the_operator_cannot_work_with_is_refused_of_a_job_that_trains_as_well() -> None:
    given = {**spec().to_manifest(), "pod": REFERS, "output": {}}
    assert read_job(job(spec=given, status={"attempt": 3})).spec is None


def deep(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    ("pod", "words"),
    [
        ({"patch": deep(40)}, "spec.pod.patch is nested more than 32 levels deep: write it flatter"),
        ({"patch": {"a": "x" * 200_000}}, "spec has "),
        ({"resources": {"limits": {"nvidia.com/gpu": 8}}}, "spec.gpusPerNode asks for nvidia.com/gpu; remove it from"),
    ],
    ids=["too deep", "too large", "asked for twice"],
)
def test_what_is_wrong_is_one_sentence_that_names_the_place_once(pod: dict[str, Any], words: str) -> None:
    read = read_job(job(spec={**spec().to_manifest(), "pod": pod}))
    assert read.problem.startswith(words)
    assert read.problem.count("spec") == 1


def test_a_status_whose_attempt_cannot_be_read_is_told_and_nothing_is_guessed() -> None:
    read = read_job(job(status={"attempt": "three"}))
    assert read.unreadable.startswith("status.attempt: ")


@pytest.mark.parametrize(
    ("written", "managed_by"),
    [
        ({}, "oarlock.dev/operator"),
        ({"managedBy": None}, "oarlock.dev/operator"),
        ({"managedBy": "kueue.x-k8s.io/multikueue"}, "kueue.x-k8s.io/multikueue"),
        ({"managedBy": "kueue.x-k8s.io/multikueue", "fieldOfALaterVersion": 1}, "kueue.x-k8s.io/multikueue"),
    ],
)
def test_who_works_on_a_job_is_read_whether_or_not_its_spec_can_be(written: dict[str, Any], managed_by: str) -> None:
    assert read_job(job(spec={**spec().to_manifest(), **written})).managed_by == managed_by
