"""What another release, or the job's own program, wrote with other types is left out, and the rest is told."""

from __future__ import annotations

from typing import Any

import pytest
from situations import condition, facts, job, last_fault, line, node, output, pod

from oarlock.explain import explain
from oarlock.report import report

STRANGE = (
    None,
    0,
    "x",
    [],
    {},
    [None],
    [{}],
    ["x"],
    [{"number": None}],
    {"x": None},
    -1,
    10**40,
    "9999-12-31T23:59:59Z",
)
ATTEMPT = {
    "number": 1,
    "startTime": "2026-11-23T10:01:00Z",
    "endTime": "2026-11-23T10:10:00Z",
    "endReason": "GPUFault",
    "nodeNames": ["node-1"],
    "removedNodeNames": ["node-1"],
    "stageMilliseconds": {"schedule": 900, "firstStep": 2000},
    "lostSteps": 3,
    "resumedFromStep": 7,
    "fault": last_fault("GPU", "it broke", nodeName="node-1", gpuIndex=2),
}
STATUS = {
    "attempts": [ATTEMPT, {"number": 2, "startTime": "2026-11-23T10:11:00Z"}],
    "avoidedNodes": [{"name": "node-1", "reason": "it broke", "sinceTime": "2026-11-23T10:10:00Z", "strict": True}],
    "cordonedNodes": [{"name": "node-1", "time": "2026-11-23T10:10:00Z", "doneTime": "2026-11-23T10:10:01Z"}],
    "lastFault": last_fault("GPU", "it broke", nodeName="node-1", gpu={"index": 2}),
    "rounds": [{"attempt": 2, "round": 1, "endedTime": "2026-11-23T10:12:00Z", "exitCode": 1}],
    "curve": [{"step": 1, "loss": 0.5, "attempt": 1}],
    "recovery": {"stage": "Drain"},
    "progress": {"step": 5, "totalSteps": 9},
}
PATHS = [
    *((name,) for name in (*STATUS, "conditions", "phase", "attempt", "reason", "message")),
    *(("attempts", 0, name) for name in ATTEMPT if name != "startTime"),
    *(("avoidedNodes", 0, name) for name in ("name", "reason", "sinceTime", "strict", "notCordoned")),
    *(("lastFault", name) for name in ("evidence", "gpu", "nodeName", "class", "rank", "time")),
]


def with_strange(raw: Any, path: tuple[str | int, ...], value: object) -> Any:
    if not path:
        return value
    if isinstance(raw, list):
        return [with_strange(one, path[1:], value) if place == path[0] else one for place, one in enumerate(raw)]
    return {**raw, path[0]: with_strange(raw.get(path[0]), path[1:], value)}


@pytest.mark.parametrize("path", PATHS, ids=lambda path: ".".join(map(str, path)))
def test_a_strange_value_in_a_status_keeps_nothing_else_from_being_told(path: tuple[str | int, ...]) -> None:
    whole = job("Running", condition("Accepted", "True", "Accepted"), attempt=2, **STATUS)
    for value in STRANGE:
        known = facts(with_strange(whole, ("status", *path), value), pods=[pod(1, attempt=2)], nodes=[node("node-1")])
        story = explain(known)
        assert story.now.phase
        assert "flux" in report(known)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("GangComplete", "nodes"),
        ("AttemptStarted", "image"),
        ("AttemptStarted", "nodes"),
        ("Stage", "name"),
        ("Stage", "seconds"),
        ("Resumed", "step"),
        ("Checkpoint", "step"),
        ("Fault", "code"),
        ("Fault", "gpu"),
        ("Fault", "evidence"),
        ("Ended", "code"),
        ("Decision", "rule"),
        ("RoundEnded", "round"),
        ("RanksRestarted", "step"),
    ],
)
def test_a_strange_value_in_the_history_keeps_nothing_else_from_being_told(kind: str, name: str) -> None:
    for value in (*STRANGE, {"9" * 5000: "node-1"}, {"0": ["node-1"]}):
        lines = [line("AttemptStarted", rank=0, node="node-1"), line(kind, rank=1, data={"round": 1, name: value})]
        known = facts(None, output=output(*lines))
        story = explain(known)
        assert [one.number for one in story.attempts] == [1]
        assert "flux" in report(known)
