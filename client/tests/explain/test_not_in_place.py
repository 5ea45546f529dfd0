"""Why a fault had all pods made anew stands beside it, from the job's status and from its history."""

from __future__ import annotations

from situations import condition, facts, job, last_fault, line, output

from oarlock.explain import explain
from oarlock.report import tables

WHY = "a new pod would meet the same storage"
SAID = "the output is full"


def test_it_stands_beside_the_fault_in_the_chain_and_on_the_page() -> None:
    fault = last_fault("Storage", SAID, reason="StorageFault", rank=1, action="started again")
    attempts = [
        {"number": 1, "startTime": "2026-11-23T10:01:00Z", "endReason": "StorageFault", "notInPlace": WHY},
        {"number": 2, "startTime": "2026-11-23T10:31:00Z", "reason": "StorageFault"},
    ]
    running = job("Running", condition("Accepted", "True", "Accepted"), attempts=attempts, lastFault=fault)
    story = explain(facts(running))
    (moment,) = [one for one in story.chain if one.what == "StorageFault"]
    assert moment.text == f"pod 1: {SAID}; all pods were made anew: {WHY}"
    assert f"started again; all pods were made anew: {WHY}" in str(tables.faults(story))


def test_a_history_alone_tells_it_too() -> None:
    lines = [
        line("AttemptStarted", rank=0),
        line("Fault", rank=1, time="10:10:00", reason="Storage", message=SAID),
        line("Decision", time="10:10:05", reason="StorageFault", data={"notInPlace": WHY}),
        line("AttemptStarted", attempt=2, time="10:11:00", rank=0),
    ]
    first, _ = explain(facts(None, output=output(*lines))).attempts
    assert first.not_in_place == WHY
