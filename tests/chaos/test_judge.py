"""The judge sees what must never happen, and nothing where it has not: histories as the API server's watches tell them."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from tests.chaos.calm import unsettled
from tests.chaos.history import CORDONED, History, JobSeen
from tests.chaos.judge import Judge
from tests.chaos.reports import Ledger, Planted

Json = dict[str, Any]
START = "2026-01-01T12:00:00Z"
LATER = "2026-01-01T12:00:30Z"
MARK = json.dumps({"job": "red/one", "attempt": 1})


class Told:
    """A judge, and the watches that tell it one thing after the other."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.judge = Judge(History(), self.ledger, teardown=4, most=2, window=timedelta(minutes=1))
        self.version = 0
        self.late = False
        """Whether what comes is told by a list, of a time that nobody saw."""

    def _tell(self, kind: str, what: str, metadata: Json, **more: Any) -> None:
        self.version += 1
        body = {"metadata": {**metadata, "resourceVersion": str(self.version)}, **more}
        self.judge.event(kind, {"type": what, "object": body, "late": self.late})

    def job(self, attempt: int, phase: str = "Running", uid: str = "job", **more: Any) -> None:
        metadata = {"namespace": "red", "name": "one", "uid": uid}
        self._tell("jobs", "MODIFIED", metadata, spec={"nodes": 1}, status={"attempt": attempt, "phase": phase}, **more)

    def job_is_deleted(self) -> None:
        metadata = {"namespace": "red", "name": "one", "uid": "job"}
        self._tell("jobs", "DELETED", metadata, spec={"nodes": 1}, status={"attempt": 1, "phase": "Running"})

    def pod(self, attempt: int, what: str = "MODIFIED", *, job: str = "job", at: str = START, **told: Any) -> None:
        labels = {"job": "one", "job-uid": job, "attempt": str(attempt), "rank": "0"}
        metadata = {
            "namespace": "red",
            "name": f"one-{attempt}-0",
            "uid": f"{job}-pod-{attempt}",
            "creationTimestamp": at,
            "labels": {f"oarlock.dev/{name}": value for name, value in labels.items()},
            **({"deletionTimestamp": told["deleted_at"]} if "deleted_at" in told else {}),
        }
        self._tell("pods", what, metadata, spec={"nodeName": "n"}, status={"phase": told.get("phase", "Running")})

    def node(self, what: str = "MODIFIED", *, off: bool = False, mark: str = "", **told: str) -> None:
        metadata = {"name": "n", "uid": told.get("uid", "n1"), "annotations": {CORDONED: mark} if mark else {}}
        conditions = [{"type": "Ready", "status": told.get("ready", "True")}]
        self._tell("nodes", what, metadata, spec={"unschedulable": off}, status={"conditions": conditions})

    def end(self) -> list[str]:
        """What was found, once every watch has come as far as it must."""
        self.version += 10
        for kind in ("pods", "jobs", "nodes"):
            self._tell(kind, "BOOKMARK", {})
        self.judge.event("pods", {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(self.version)}}})
        return [words.partition(":")[0] for words in self.judge.found]


@pytest.fixture
def told() -> Told:
    """A job whose first attempt runs on a node."""
    told = Told()
    told.node("ADDED")
    told.job(1)
    told.pod(1, "ADDED")
    return told


def test_nothing_is_found_in_an_orderly_life(told: Told) -> None:
    told.job(2, "Recovering")
    told.pod(1, deleted_at=START)
    told.pod(1, "DELETED", phase="Failed", deleted_at=START)
    told.pod(2, "ADDED")
    told.pod(2, phase="Succeeded")
    told.job(2, "Succeeded")
    assert told.end() == []


def test_a_second_gang_beside_a_living_pod_is_found(told: Told) -> None:
    told.job(2, "Recovering")
    told.pod(2, "ADDED")
    assert told.end() == ["two gangs"]


def test_a_gang_beside_a_pod_of_an_earlier_job_of_the_name_is_found(told: Told) -> None:
    told.job(1, uid="again")
    told.pod(1, "ADDED", job="again")
    assert told.end() == ["two gangs"]


@pytest.mark.parametrize(
    ("deleted_at", "found"), [(START, []), (LATER, ["two gangs"])], ids=["overdue", "in its grace"]
)
def test_a_pod_counts_as_lost_once_its_grace_and_the_teardown_are_over(
    deleted_at: str, found: list[str], told: Told
) -> None:
    told.pod(1, deleted_at=deleted_at)
    told.job(2, "Recovering")
    told.pod(2, "ADDED", at="2026-01-01T12:00:10Z")
    assert told.end() == found


@pytest.mark.parametrize("how", ["silent", "gone", "another machine"])
def test_a_pod_that_was_asked_to_go_counts_as_lost_with_its_node(how: str, told: Told) -> None:
    told.pod(1, deleted_at=LATER)
    told.job(2, "Recovering")
    if how == "silent":
        told.node(ready="Unknown")
    else:
        told.node("DELETED")
        if how == "another machine":
            told.node("ADDED", uid="n2")
    told.pod(2, "ADDED")
    assert told.end() == []


def test_nothing_is_found_in_a_time_that_nobody_saw(told: Told) -> None:
    told.late = True
    told.pod(2, "ADDED")
    told.pod(1, phase="Failed")
    told.job(2, "Recovering")
    told.node(off=True, mark=MARK)
    told.late = False
    assert told.end() == []


def test_an_attempt_that_falls_is_found(told: Told) -> None:
    told.job(0)
    assert told.end() == ["attempts"]


def test_a_pod_before_its_attempt_is_in_the_status_is_found(told: Told) -> None:
    told.pod(1, phase="Failed")
    told.pod(2, "ADDED")
    told.job(2)
    assert told.end() == ["order"]


@pytest.mark.parametrize("phase", ["Succeeded", "Failed", "Suspended"])
def test_an_end_with_a_living_pod_is_found(phase: str, told: Told) -> None:
    told.job(1, phase)
    assert told.end() == ["ends"]


def test_a_cordon_pays_for_one_report_of_that_very_node(told: Told) -> None:
    told.ledger.planted.append(Planted("red/one", 1, "n", "n1"))
    told.node(off=True, mark=MARK)
    assert told.end() == []
    told.ledger.uncordoned_by_hand.add("n1")
    told.node()
    told.node(off=True, mark=MARK)
    assert told.end() == ["cordons"]


@pytest.mark.parametrize(
    "planted",
    [[], [Planted("red/one", 2, "n", "n1")], [Planted("red/one", 1, "n", "n0")]],
    ids=["none", "later", "gone"],
)
def test_a_cordon_without_a_true_report_of_its_attempt_and_machine_is_found(planted: list[Planted], told: Told) -> None:
    told.ledger.planted = planted
    told.node(off=True, mark=MARK)
    assert told.end() == ["cordons"]


def test_more_cordons_within_a_window_than_are_allowed_are_found(told: Told) -> None:
    for number in range(3):
        told.ledger.planted.append(Planted("red/one", 1, "n", f"m{number}"))
        told.node("ADDED", uid=f"m{number}")
        told.node(uid=f"m{number}", off=True, mark=MARK)
        assert told.end() == (["brakes"] if number == 2 else [])


def test_a_cordon_counts_although_its_node_is_replaced_and_its_job_deleted(told: Told) -> None:
    told.job(1)
    for number in range(3):
        told.ledger.planted.append(Planted("red/one", 1, "n", f"m{number}"))
        told.node("ADDED", uid=f"m{number}")
        told.node(uid=f"m{number}", off=True, mark=MARK)
        if number == 0:
            told.job_is_deleted()
            told.node("DELETED", uid="m0", off=True, mark=MARK)
            told.job(1)
    assert told.end() == ["brakes"]


def test_what_a_person_gave_back_is_not_cordoned_again_for_the_mark_that_is_still_there(told: Told) -> None:
    told.ledger.planted.append(Planted("red/one", 1, "n", "n1"))
    told.node(off=True, mark=MARK)
    told.ledger.uncordoned_by_hand.add("n1")
    told.node(mark=MARK)
    told.node(off=True, mark=MARK)
    assert told.end() == ["cordons"]


def test_a_persons_cordon_stays_theirs(told: Told) -> None:
    told.ledger.cordoned_by_hand.add("n1")
    told.node(off=True)
    assert told.end() == []
    told.ledger.planted.append(Planted("red/one", 1, "n", "n1"))
    told.node(off=True, mark=MARK)
    assert told.end() == ["cordons"]


def test_nobody_but_a_person_uncordons(told: Told) -> None:
    told.ledger.cordoned_by_hand.add("n1")
    told.node(off=True)
    told.node()
    assert told.end() == ["uncordons"]


def seen(phase: str, message: str = "") -> JobSeen:
    """A job of one node and one pod, whose condition Scheduled says why it waits."""
    condition = {"type": "Scheduled", "status": "False", "reason": "Unschedulable", "message": message}
    body = {"metadata": {}, "spec": {"nodes": 1}, "status": {"conditions": [condition]}}
    return JobSeen(version=9, name="red/one", uid="job", attempt=1, phase=phase, body=body)


@pytest.mark.parametrize("job", [seen("Running"), seen("Pending", "no room")], ids=["runs", "waits and says for what"])
def test_a_job_that_has_come_to_something_is_not_stuck(job: JobSeen, told: Told) -> None:
    assert unsettled(told.judge.history, job) == ""


@pytest.mark.parametrize("phase", ["", "Starting", "Pending", "Suspended", "Succeeded"])
def test_a_job_that_has_not_is(phase: str, told: Told) -> None:
    assert unsettled(told.judge.history, seen(phase)).startswith("red/one is ")
