"""What must not be told: words of another job, of an earlier trouble, of nodes that do not count, of a program alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from situations import (
    HUNG,
    JOB,
    LOST_PEER,
    NOW,
    PREEMPTION,
    RUNS,
    UID,
    ended,
    event,
    facts,
    gpu,
    job,
    last_fault,
    node,
    pod,
    reading,
    report,
    unplaced,
    waiting,
)  # fmt: skip

from oarlock.explain import explain
from oarlock.explain.causes import Cause
from oarlock.explain.prose import prose
from oarlock.facts import Facts
from oarlock.story import Trouble

HEALTHY = job("Running", RUNS, attempt=2)
RESTARTED = "pod flux-1-1 on node-2: rank 8: KeyError: 'mask'. Attempt 2 starts in 12 s."
MOUNT = 'MountVolume.SetUp failed for volume "output" : mount failed: exit status 32'


def trouble_of(known: Facts) -> Trouble:
    found = explain(known).trouble
    assert found is not None
    return found


def about(told: Mapping[str, Any], **more: str) -> dict[str, Any]:
    """An Event about an object of this uid."""
    return {**told, "involvedObject": {**told["involvedObject"], **more}}


def holding(name: str, gpus: int, *taints: Mapping[str, str], cordoned: bool = False) -> dict[str, Any]:
    """A node with so many GPUs."""
    has = {"cpu": "64", **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    return {**node(name, *taints, cordoned=cordoned), "status": {"allocatable": has}}


def killed(said: str = "", **metadata: str) -> dict[str, Any]:
    """A pod whose agent was killed; `said` are the last lines of its log."""
    ended = {"exitCode": 137, "reason": "Error", "finishedAt": "2026-11-23T10:29:00Z", "message": said}
    state = {"terminated": ended}
    told = pod(0, node="node-1", phase="Failed", containerStatuses=[{"name": "trainer", "state": state}])
    return {**told, "metadata": {**told["metadata"], **metadata}}


def failed(reason: str, message: str) -> dict[str, Any]:
    return job(
        "Failed",
        reason=reason,
        message=message,
        completionTime=NOW,
        attempts=[{"number": 1, "startTime": "2026-11-23T10:01:00Z", "endReason": "Hang"}],
        lastFault=last_fault("Hang", f"pod flux-1-1 on node-2: {HUNG}", nodeName="node-2", rank=1),
    )


@pytest.mark.parametrize(
    "told",
    [
        about(event("ApplicationError", RESTARTED), uid="an earlier job"),
        event("ApplicationError", RESTARTED, time="2026-11-23T09:59:00Z"),
    ],
    ids=["by its uid", "by its time"],
)
def test_an_event_of_a_deleted_job_of_the_same_name_is_not_told(told: dict[str, Any]) -> None:
    story = explain(facts(HEALTHY, pods=[pod(0, node="node-1", attempt=2)], events=[told]))
    assert story.trouble is None


def test_an_event_of_the_job_itself_is_told() -> None:
    told = about(event("ApplicationError", RESTARTED), uid=UID)
    assert trouble_of(facts(HEALTHY, events=[told])).cause == "ApplicationError"


def test_an_event_in_the_chain_is_of_this_job() -> None:
    older = about(event("Suspended", "nothing runs"), uid="an earlier job")
    assert "Suspended" not in [one.what for one in explain(facts(HEALTHY, events=[older])).chain]


def test_an_event_of_a_former_pod_of_the_same_name_is_not_told_of_the_new_one() -> None:
    older = about(event("FailedMount", MOUNT, kind="Pod", name="flux-1-1"), uid="a former pod")
    known = facts(job(), pods=[pod(0, node="node-1"), pod(1, node="node-2")], events=[older])
    assert explain(known).now.cause == "Starting"


def test_a_pod_of_a_deleted_job_of_the_same_name_is_not_told() -> None:
    older = ended(report(83, HUNG), node="node-2")
    older["metadata"]["labels"]["oarlock.dev/job-uid"] = "an earlier job"
    assert explain(facts(job(), pods=[older])).trouble is None


NOT_READY = {"key": "node.kubernetes.io/not-ready", "value": "", "effect": "NoSchedule"}
CONTROL = {"key": "node-role.kubernetes.io/control-plane", "value": "", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("said", "nodes"),
    [
        ("2 node(s) had untolerated taint {node.kubernetes.io/not-ready: }", ()),
        ("2 node(s) had untolerated taint(s) {node.kubernetes.io/disk-pressure: }", ()),
        ("2 node(s) had untolerated taint(s)", (node("node-1", CONTROL), node("node-2", NOT_READY))),
    ],
)
def test_nobody_is_told_to_tolerate_a_broken_node(said: str, nodes: tuple[dict[str, Any], ...]) -> None:
    told = trouble_of(facts(job(), pods=[unplaced(f"0/2 nodes are available: {said}.{PREEMPTION}")], nodes=nodes))
    assert (told.cause, told.node) == ("NodesNotReady", "node-2" if nodes else "")
    assert "Do not tolerate" in told.next


def test_who_set_a_taint_is_asked_before_it_is_tolerated() -> None:
    assert Cause.TAINTED.next.startswith("Ask who set")


@pytest.mark.parametrize(
    ("said", "nodes", "cause"),
    [
        (
            "2 Insufficient nvidia.com/gpu, 1 node(s) were unschedulable",
            [holding("cpu-1", 0), holding("cpu-2", 0), holding("node-1", 8, cordoned=True)],
            "NodesCordoned",
        ),
        (
            "2 Insufficient nvidia.com/gpu, 3 Insufficient cpu",
            [holding("cpu-1", 0), holding("cpu-2", 0), holding("node-1", 8)],
            "NotEnoughResources",
        ),
        (
            "1 Insufficient nvidia.com/gpu, 2 node(s) didn't match Pod's node affinity/selector",
            [holding("cpu-1", 0), holding("cpu-2", 0), holding("node-1", 8)],
            "NotEnoughGPUs",
        ),
        (
            "1 Insufficient nvidia.com/gpu, 1 node(s) had untolerated taint(s)",
            [holding("cpu-1", 0), holding("control", 0, CONTROL)],
            "NotEnoughGPUs",
        ),
    ],
    ids=["the one with GPUs is cordoned", "free GPUs, no CPU", "CPU nodes do not match", "no GPU at all"],
)
def test_nodes_without_gpus_are_not_short_of_them(said: str, nodes: list[dict[str, Any]], cause: str) -> None:
    known = facts(job(), pods=[unplaced(f"0/{len(nodes)} nodes are available: {said}.{PREEMPTION}")], nodes=nodes)
    assert trouble_of(known).cause == cause


def test_only_nodes_that_have_gpus_are_counted() -> None:
    nodes = [holding("cpu-1", 0), holding("cpu-2", 0), holding("node-1", 8)]
    said = f"0/3 nodes are available: 3 Insufficient nvidia.com/gpu.{PREEMPTION}"
    found = trouble_of(facts(job(), pods=[unplaced(said)], nodes=nodes))
    assert found.details == ("1 node has too little free nvidia.com/gpu",)


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        ("rank 0: ValueError: could not parse 'nan' in column height", "ApplicationError"),
        ("rank 0: RuntimeError: the loss was not finite for 10 steps: lower optimizer.learningRate", "NonFiniteLoss"),
        ("rank 0: step 12 loss = nan", "NonFiniteLoss"),
    ],
)
def test_a_nan_is_the_losss_only_where_a_loss_is_named(said: str, cause: str) -> None:
    assert trouble_of(facts(job("Recovering"), pods=[ended(report(1, said), node="node-2")])).cause == cause


def test_nobody_is_told_to_delete_checkpoints() -> None:
    assert "delete" not in Cause.NON_FINITE_LOSS.next


@pytest.mark.parametrize(("pulling", "cause"), [("10:58:00", "Starting"), ("10:56:00", "MountFailed")])
def test_a_mount_that_failed_before_the_image_was_pulled_is_over(pulling: str, cause: str) -> None:
    events = [
        event("FailedMount", MOUNT, kind="Pod", name="flux-1-1", time="2026-11-23T10:57:00Z"),
        event("Pulling", "Pulling image", kind="Pod", name="flux-1-1", time=f"2026-11-23T{pulling}Z"),
    ]
    assert explain(facts(job(), pods=[pod(1, node="node-2")], events=events)).now.cause == cause


@pytest.mark.parametrize(("attempt", "rank", "code"), [(2, 1, 83), (1, 7, 83), (1, 1, 1)])
def test_a_report_that_does_not_fit_its_pod_is_not_believed(attempt: int, rank: int, code: int) -> None:
    told = ended(report(83, HUNG), node="node-2", exitCode=code)
    told["metadata"]["labels"] |= {"oarlock.dev/attempt": str(attempt), "oarlock.dev/rank": str(rank)}
    found = trouble_of(facts(job("Recovering", attempt=attempt), pods=[told]))
    assert (found.cause, found.exit_code, found.rank) == ("Hang" if code == 83 else "ApplicationError", code, rank)
    assert found.first_rank is None
    assert not [one for one in found.evidence if one.source.startswith("report")]


def test_a_broken_gpu_is_to_be_repaired_only_where_a_driver_speaks() -> None:
    claimed = report(80, "GPU 3: broken", gpu=gpu(), evidence=(reading("webhook", "broken"),))
    proven = report(80, "GPU 3: XID 79", gpu=gpu(), evidence=(reading("xid", "79"),))
    said = [trouble_of(facts(job("Recovering"), pods=[ended(one, node="node-2")])).next for one in (claimed, proven)]
    assert ["repair the GPU of node-2" in one for one in said] == [False, True]
    attempts = [{"number": 1, "startTime": "2026-11-23T10:00:00Z", "endReason": "GPUFault"}]
    fault = last_fault("GPU", "pod flux-1-1 on node-2: GPU 3: broken", nodeName="node-2", rank=1)
    known = facts(job("Recovering", attempts=attempts, lastFault=fault), pods=[ended(claimed, node="node-2")])
    assert "no driver" in trouble_of(known).next


def test_a_pod_that_is_killed_because_its_grace_is_over_hides_no_cause() -> None:
    deleting = killed(deletionTimestamp=NOW)
    assert trouble_of(facts(job("Recovering"), pods=[deleting])).cause == "KilledAfterGrace"
    assert trouble_of(facts(job("Recovering"), pods=[killed()])).cause == "ProcessKilled"
    both = facts(job("Recovering"), pods=[deleting, ended(report(83, HUNG), node="node-2")])
    assert trouble_of(both).cause == "Hang"


def test_a_pod_that_was_killed_with_its_agent_is_told_in_one_sentence_without_the_last_lines_of_its_log() -> None:
    log = '55Z", "level": "INFO"}\n{"message": "ranks started", "ranks": 2}'
    trouble = trouble_of(facts(job("Recovering"), pods=[killed(log)]))
    assert trouble.message == "pod flux-1-0 ended with code 137"
    (evidence,) = trouble.evidence
    assert (evidence.source, evidence.text) == ("pod flux-1-0", "ended with code 137")


def test_a_resumed_job_is_told_what_keeps_it_suspended() -> None:
    resumed = job("Suspended", reason="GangUnavailable", message="the cluster does not serve Kueue's Workloads")
    assert explain(facts(resumed)).now.cause == "GangUnavailable"
    suspended = {**resumed, "spec": {"suspend": True}}
    assert explain(facts(suspended)).now.cause == "Suspended"


@pytest.mark.parametrize(
    ("reason", "message", "cause"),
    [
        ("QueueMismatch", "its label says team-b, scheduling.queue team-a", "QueueMismatch"),
        ("NameTaken", "the Service flux belongs to somebody else", "NameTaken"),
        ("Hang", f"pod flux-1-1 on node-2: {HUNG}", "Hang"),
        ("NoProgress", "4 attempts in a row made no progress. The last fault: another one", "Hang"),
    ],
)
def test_an_end_is_the_last_faults_only_where_it_says_so(reason: str, message: str, cause: str) -> None:
    assert trouble_of(facts(failed(reason, message))).cause == cause


HOOK = (
    "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: "
    'error running prestart hook #0: exec: "nvidia-container-runtime-hook": executable file not found in $PATH'
)
PROGRAM = 'failed to create containerd task: exec: "oarlock-agent": executable file not found in $PATH'


@pytest.mark.parametrize(("said", "cause"), [(HOOK, "ContainerNotStarted"), (PROGRAM, "ProgramMissing")])
def test_a_hook_that_is_missing_is_the_nodes_and_not_the_images(said: str, cause: str) -> None:
    assert trouble_of(facts(job(), pods=[waiting("RunContainerError", said)])).cause == cause


def test_words_of_a_job_turn_no_terminal_round_and_times_have_a_zone() -> None:
    said = f"rank 0: {LOST_PEER}\x1b[2J\u202e"
    told = prose(explain(facts(job("Recovering"), pods=[ended(report(82, said), node="node-2")])))
    assert "\x1b" not in told
    assert "\u202e" not in told
    assert r"\x1b[2J" in told
    assert "2026-11-23 (UTC)" in told
    assert JOB in told
