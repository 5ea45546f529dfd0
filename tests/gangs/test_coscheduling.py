"""Gangs that the real plugin Coscheduling places: whole, or no pod of them. There are three nodes with two GPUs each."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.e2e.jobs import Jobs
from tests.gangs.coscheduling import NAME
from tests.gangs.held import holding, tell, wait_for_run, wait_until_gone
from tests.gangs.lost_pods import goes_on, is_replaced, is_replaced_by_the_spare, losing_a_node, newest, training

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


@pytest.mark.parametrize("rank", [1, 0])
@pytest.mark.usefixtures("coscheduling")
def test_a_lost_pod_alone_is_made_anew_and_placed_beside_those_that_stand_by(jobs: Jobs, rank: int) -> None:
    name = f"lost-{rank}"
    with training(jobs, name, elsewhere=True, gang="Coscheduling", schedulerName=NAME):
        is_replaced(jobs, name, rank)


@pytest.mark.usefixtures("coscheduling")
def test_the_pod_of_a_lost_node_is_made_anew_while_the_old_one_is_still_counted(jobs: Jobs) -> None:
    with training(jobs, "cut", gang="Coscheduling", schedulerName=NAME):
        before = newest(jobs, "cut")
        with losing_a_node(jobs, "cut") as rank:
            goes_on(jobs, "cut", rank, before=before)


@pytest.mark.usefixtures("coscheduling")
def test_a_spare_is_of_its_gang_s_group_and_so_is_the_pod_that_is_lost_and_made_anew_as_the_next_one(
    jobs: Jobs,
) -> None:
    with training(jobs, "spared", gpus=1, spares=1, gang="Coscheduling", schedulerName=NAME):
        is_replaced_by_the_spare(jobs, "spared")
