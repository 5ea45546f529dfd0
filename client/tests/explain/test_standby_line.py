"""Spares that wait, and nodes that are lacking, are told in one line beside what the job does."""

from __future__ import annotations

from typing import Any

import pytest
from situations import condition, facts, job, last_fault, unplaced

from oarlock.explain import explain

ATTEMPT = {"number": 1, "startTime": "2026-11-23T10:00:00Z"}


def told(spec: dict[str, Any], *, phase: str = "Running", **status: Any) -> tuple[str, ...]:
    known = job(phase, **status)
    return explain(facts({**known, "spec": {**known["spec"], **spec}})).now.details


@pytest.mark.parametrize(
    ("spec", "status", "line"),
    [
        ({"nodes": 4, "spares": 1}, {"standby": [4], "pods": 5, "spares": 1}, "1 of 1 spare waits for a place"),
        ({"nodes": 4, "spares": 2}, {"standby": [4, 5], "pods": 6, "spares": 0}, "0 of 2 spares wait for a place"),
        ({"nodes": 4, "elastic": {"minNodes": 2}}, {"standby": [1], "pods": 4}, "3 of 4 nodes train"),
        (
            {"nodes": 4, "spares": 1, "elastic": {"minNodes": 2}},
            {"standby": [1, 4], "pods": 5},
            "3 of 4 nodes train, 0 of 1 spare waits for a place",
        ),
    ],
)
def test_a_job_that_trains_tells_how_many_nodes_do_and_how_many_spares_wait(
    spec: dict[str, Any], status: dict[str, Any], line: str
) -> None:
    attempts = [{**ATTEMPT, "nodeCount": status["pods"]}]
    assert told(spec, standby=status["standby"], attempts=attempts, ranks={"spares": status.get("spares")}) == (line,)


def test_nothing_is_told_of_a_job_that_asks_for_neither_or_does_not_train() -> None:
    assert told({"nodes": 4}) == ()
    assert told({"nodes": 4, "spares": 1}, phase="Starting", standby=[4]) == ()
    assert told({"nodes": 4, "elastic": {"minNodes": 2}}, standby=[]) == ()


def test_the_loss_of_a_pod_that_the_round_does_without_is_no_end_of_an_attempt_that_trains_on() -> None:
    said = "pod flux-1-2-i4 is gone and left no word"
    fault = last_fault("PeerLost", said, rank=2)
    going_on = job("Running", attempts=[ATTEMPT], lastFault={**fault, "reason": "PodDisappeared"})
    story = explain(facts(going_on))
    assert story.attempts[-1].faults == ()
    assert story.trouble is None


def test_a_gang_that_trains_on_fewer_nodes_is_told_as_that_and_not_as_one_that_waits_for_a_node() -> None:
    said = "trains on 2 of 3 nodes: flux-1-2 waits for a node: 0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
    lacks = condition("Degraded", "True", "FewerNodes", said)
    shrunk = job("Running", lacks, attempts=[ATTEMPT], standby=[2])
    story = explain(facts(shrunk, pods=[unplaced("0/3 nodes are available: 3 Insufficient nvidia.com/gpu.", 2)]))
    assert (story.now.cause, story.now.message) == ("FewerNodes", said)
