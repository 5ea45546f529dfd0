"""Whom the demo's buttons strike, and what they say comes of it, by what a cluster has."""

from __future__ import annotations

from typing import Any

import pytest

from oarlock_local.demo.aims import Aims
from oarlock_local.errors import ClusterError


def pod(name: str, node: str, *, rank: int = 0, phase: str = "Running", **metadata: Any) -> dict[str, Any]:
    labels = {"oarlock.dev/rank": str(rank)}
    return {
        "metadata": {"name": name, "labels": labels, **metadata},
        "spec": {"nodeName": node},
        "status": {"phase": phase},
    }


def node(name: str, *, ready: str = "True", cordoned: bool = False) -> dict[str, Any]:
    spec = {"unschedulable": True} if cordoned else {}
    return {"metadata": {"name": name}, "spec": spec, "status": {"conditions": [{"type": "Ready", "status": ready}]}}


GANG = [pod("flux-2-1", "node-3", rank=1), pod("flux-2-0", "node-1", rank=0)]


def test_a_cut_strikes_no_node_of_the_operator_who_is_to_act() -> None:
    aims = Aims.of(GANG, nodes=[], operators=[pod("operator", "node-3"), pod("gone", "node-1", phase="Failed")])
    assert (aims.first.pod, aims.last.pod, aims.apart.pod) == ("flux-2-0", "flux-2-1", "flux-2-0")
    everywhere = Aims.of(GANG, nodes=[], operators=[pod("a", "node-1"), pod("b", "node-3")])
    assert everywhere.apart.pod == "flux-2-1"


@pytest.mark.parametrize(
    ("third", "words"),
    [
        (node("node-2"), "the job goes on with node-2: "),
        (node("node-2", cordoned=True), "the job waits, for no other node takes pods: "),
        (node("node-2", ready="Unknown"), "the job waits, for no other node takes pods: "),
    ],
)
def test_it_is_said_whether_another_node_can_take_the_place_of_one(third: dict[str, Any], words: str) -> None:
    assert Aims.of(GANG, nodes=[node("node-1"), third, node("node-3")], operators=[]).goes_on.startswith(words)


def test_a_job_that_does_not_run_cannot_be_struck() -> None:
    for gone in ([], [pod("flux-1-0", "node-1", phase="Failed")], [pod("flux-1-0", "node-1", deletionTimestamp="x")]):
        with pytest.raises(ClusterError, match="wait until it trains again"):
            Aims.of(gone, nodes=[], operators=[])
