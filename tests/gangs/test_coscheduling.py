"""Gangs that the real plugin Coscheduling places: whole, or no pod of them. There are three nodes with two GPUs each."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.e2e.jobs import Jobs
from tests.gangs.coscheduling import NAME
from tests.gangs.held import holding, tell, wait_for_run, wait_until_gone

pytestmark = [pytest.mark.nodes, pytest.mark.timeout(600)]


@pytest.fixture
def hold(jobs: Jobs, coscheduling: None) -> Iterator[Callable[..., None]]:  # noqa: ARG001 - it has to run
    """Makes jobs that keep what they get until they are told to end."""
    with holding(jobs, gang="Coscheduling", schedulerName=NAME) as hold:
        yield hold


def test_a_gang_that_does_not_fit_takes_no_node_gives_way_and_comes_in_whole_later(
    jobs: Jobs, hold: Callable[..., None]
) -> None:
    hold("running")
    status = wait_for_run(jobs, "running")
    assert status["resolved"] == {**status["resolved"], "gang": "Coscheduling", "schedulerName": NAME}
    assert len(jobs.nodes("running")) == 2
    hold("big", placementTimeoutSeconds=10)
    status = jobs.wait("big", "its timeout", lambda status: status.get("reason") == "PlacementTimeout")
    assert status["message"].startswith("0 of 2 pods found a node within placementTimeoutSeconds (10)")
    assert status["restarts"]["infrastructure"] == status["restarts"]["application"] == 0
    tell(jobs, "running", "done")
    assert jobs.wait_for_end("running")["phase"] == "Succeeded"
    jobs.wait("big", "its nodes", lambda status: (status.get("ranks") or {}).get("ready") == 2)
    tell(jobs, "big", "done")
    assert jobs.wait_for_end("big")["phase"] == "Succeeded"
    wait_until_gone(jobs, "podgroups.scheduling.x-k8s.io", "running", "big")
