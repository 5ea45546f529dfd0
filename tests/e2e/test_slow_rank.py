"""A node whose processors are taken from its pods: its rank is told with node and cause, and the gang leaves it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oarlock_api.contract.history import STACKS, StoryType, read_story
from oarlock_api.contract.names import Label
from oarlock_local.cgroups import hierarchies, is_v2, tree_name
from oarlock_local.patience import eventually
from tests.e2e.command import Command
from tests.e2e.jobs import SMALL, Jobs

pytestmark = [pytest.mark.nodes, pytest.mark.timeout(400)]

NAME = "slow"
PERIOD, QUOTA = 20_000, 2_000
"""Microseconds: a tenth of a processor for all pods of a node, in pieces that are smaller than a forward pass here."""
RUNTIME: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "List",
    "items": [
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingAdmissionPolicy",
            "metadata": {"name": NAME},
            "spec": {
                "failurePolicy": "Fail",
                "reinvocationPolicy": "Never",
                "matchConstraints": {
                    "objectSelector": {"matchLabels": {Label.JOB: NAME}},
                    "resourceRules": [
                        {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
                    ],
                },
                "mutations": [
                    {
                        "patchType": "ApplyConfiguration",
                        "applyConfiguration": {
                            "expression": 'Object{spec: Object.spec{runtimeClassName: "host-userland"}}'
                        },
                    }
                ],
            },
        },
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingAdmissionPolicyBinding",
            "metadata": {"name": NAME},
            "spec": {"policyName": NAME},
        },
    ],
}


@pytest.fixture
def oarlock(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.setenv("KUBECONFIG", str(jobs.cluster.kubeconfig))
    return Command({**os.environ, "COLUMNS": "200"})


@pytest.fixture(scope="module")
def runtime(jobs: Jobs) -> Iterator[None]:
    """The job's pods get the runtime of these nodes from the cluster: of one that they name, no room can be judged."""
    policies = "mutatingadmissionpolicybindings", "mutatingadmissionpolicies"
    jobs.cluster.kubectl("apply", "-f", "-", stdin=json.dumps(RUNTIME))
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "probe", "labels": {Label.JOB: NAME}},
        "spec": {"containers": [{"name": "probe", "image": "probe"}]},
    }
    dry = ("create", "--dry-run=server", "-o", "jsonpath={.spec.runtimeClassName}", "-f", "-")
    eventually(lambda: jobs.cluster.kubectl(*dry, stdin=json.dumps(pod)), "the policy in force")
    yield
    for kind in policies:
        jobs.cluster.kubectl("delete", kind, NAME, "--ignore-not-found")


@pytest.fixture(scope="module")
def trains(jobs: Jobs, runtime: None) -> Iterator[dict[str, Any]]:  # noqa: ARG001
    """The status of a job of two nodes, of three."""
    jobs.apply(NAME, pod={"runtimeClassName": None}, **SMALL)
    yield jobs.wait_for_checkpoint_of(NAME, 1)
    jobs.delete(NAME)


@pytest.fixture
def limited() -> Iterator[dict[Path, str]]:
    """Files of the kernel that limit a node, and what stood there before."""
    before: dict[Path, str] = {}
    yield before
    for path, text in reversed(before.items()):
        path.write_text(text)


def limit(jobs: Jobs, node: str, before: dict[Path, str]) -> None:
    """Take most of the processors from all pods of a node: a limit above theirs, which none of them sees."""
    tree = tree_name(jobs.cluster.spec.slot, node)
    if is_v2():
        (folder,) = hierarchies()
        limits = {folder / tree / "cpu.max": f"{QUOTA} {PERIOD}"}
    else:
        folder = next(one for one in hierarchies() if (one / tree / "cpu.cfs_quota_us").exists())
        limits = {folder / tree / "cpu.cfs_period_us": str(PERIOD), folder / tree / "cpu.cfs_quota_us": str(QUOTA)}
    for path, text in limits.items():
        before[path] = path.read_text()
        path.write_text(text)


def test_a_slow_rank_is_told_with_node_and_cause_and_its_gang_leaves_that_node(
    jobs: Jobs, oarlock: Command, trains: dict[str, Any], limited: dict[Path, str]
) -> None:
    assert trains["attempt"] == 1
    slow = jobs.cluster.kubectl("get", "pod", f"{NAME}-1-1", "-o", "jsonpath={.spec.nodeName}")
    said = f"rank 1, in pod {NAME}-1-1 on {slow}, takes "

    def is_told(status: dict[str, Any]) -> bool:
        told = [one["message"] for one in status["conditions"] if one["type"] == "Degraded"]
        return any(words.startswith(said) and "CPU share: for " in words for words in told)

    limit(jobs, slow, limited)
    jobs.wait(NAME, "the slow rank", is_told)
    jobs.wait(NAME, "the Event, which follows the status", lambda _: jobs.events(NAME, "SlowRank"))
    story = json.loads(oarlock("why", NAME, "-o", "json").out)
    assert (story["trouble"]["cause"], story["trouble"]["node"]) == ("SlowRank", slow)
    assert "CPU share: for " in story["trouble"]["message"]
    assert jobs.status(NAME)["attempt"] == 1, "by default it is only told"
    jobs.change(NAME, recovery={"slowRank": "Migrate"})
    status = jobs.wait(NAME, "the next attempt", lambda status: status["attempt"] == 2)
    assert status["reason"] == "SlowRank"
    jobs.wait_for_checkpoint_of(NAME, 2)
    assert slow not in jobs.nodes(NAME)
    assert "unschedulable" not in json.loads(jobs.cluster.kubectl("get", "node", slow, "-o", "json"))["spec"]
    story = json.loads(oarlock("why", NAME, "-o", "json").out)
    assert any(one["what"] == "SlowRank" and "CPU share" in one["text"] for one in story["chain"])
    lines = [one for one in read_story(jobs.output / NAME) if one.type == StoryType.SLOW_RANK]
    assert any((one.rank, one.node) == (1, slow) and "CPU share: for " in one.message for one in lines)


@pytest.mark.usefixtures("trains")
def test_a_gang_that_trains_says_where_its_ranks_are_and_trains_on(jobs: Jobs, oarlock: Command) -> None:
    attempt = jobs.status(NAME)["attempt"]
    said = oarlock("stacks", NAME).out
    assert [line for line in said.splitlines() if line.startswith("rank ")] == [
        f"rank {rank}, in {NAME}-{attempt}-{rank}:" for rank in (0, 1)
    ]
    assert "in loop" in said, "the ranks' own program"
    (told,) = [one for one in read_story(jobs.output / NAME) if one.type == StoryType.STACKS]
    assert [name.partition("/")[0] for name in told.data["files"]] == [STACKS] * 2
    assert jobs.status(NAME)["attempt"] == attempt
