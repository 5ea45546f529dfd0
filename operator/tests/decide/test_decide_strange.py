"""Decisions about pods that do what nobody wants: never stop, are evicted, disappear, or tell nonsense."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from jobs import job, spec
from world_writes import Killed, told_to_stop
from worlds import World

from oarlock_api.contract.figures import FIGURES
from oarlock_api.contract.rounds import RoundEnd
from oarlock_operator.decide import decide
from oarlock_operator.model.observation import Ending
from oarlock_operator.model.plan import CreatePods


def stuck() -> World:
    """Attempt 2 is decided, and a pod of attempt 1 never stops."""
    world = World()
    world.running()
    world.end(1, 81)
    world.one_pass()
    assert world.pods["flux-1-0"].deleting
    world.now += timedelta(seconds=36)
    return world


def create_beside(world: World) -> None:
    """A pass that may create pods beside the stuck one, which World forbids without reason."""
    pod = world.pods["flux-1-0"]
    plan = decide(world.observe())
    del world.pods["flux-1-0"]
    if plan.status:
        world.write_status(plan.status)
    for action in plan.actions:
        world.apply(action)
    world.pods[pod.name] = pod


def test_a_new_gang_beside_a_pod_that_never_stops_is_followed_to_its_first_step() -> None:
    world = stuck()
    create_beside(world)
    world.settle()
    world.start_all()
    world.settle()
    world.step(11, resumed=10)
    world.now += timedelta(seconds=11)
    world.settle()
    status = world.job.status
    assert world.pods["flux-1-0"].deleting, "it never stops"
    assert (status.phase, status.attempt, status.recovery.stage) == ("Running", 2, None)
    assert status.attempts[1].created_time is not None


def test_pods_beside_one_that_never_stops_are_made_even_if_the_operator_died_before_it_made_them() -> None:
    world = stuck()
    plan = decide(world.observe())
    assert plan.status is not None
    world.write_status(plan.status)
    again = decide(world.observe())
    assert any(isinstance(action, CreatePods) for action in again.actions)


def test_a_pod_that_never_stops_is_told_once() -> None:
    world = stuck()
    told = []
    for _ in range(5):
        told += [event.reason for event in decide(world.observe()).events]
        create_beside(world)
        world.now += timedelta(seconds=1)
    assert told.count("PodNotStopping") == 1


def test_a_stray_pod_of_another_attempt_does_not_blind_a_gang_that_trains() -> None:
    world = World()
    world.running(step=5)
    world.now += timedelta(hours=1)
    stray = replace(world.pods["flux-1-1"], name="flux-0-1", uid="stray", attempt=0)
    world.pods[stray.name] = stray
    world.step(50)
    world.one_pass()
    assert world.pods["flux-0-1"].deleting
    assert world.job.status.progress is not None
    assert world.job.status.progress.step == 50


def evict(world: World) -> None:
    name = f"flux-{world.job.status.attempt}-1"
    world.pods[name] = replace(world.pods[name], ending=Ending(137), disrupted="EvictionByEvictionAPI")
    world.settle()
    world.kubelets()
    world.now += timedelta(seconds=1)
    world.settle()


def test_evictions_cost_no_budget_and_are_followed_ever_more_slowly() -> None:
    world = World(job=job(spec=spec(recovery={"maxApplicationRestarts": 0, "maxInfrastructureRestarts": 0})))
    for count in range(1, 5):
        world.running()
        evict(world)
        status = world.job.status
        assert (status.attempt, status.restarts.voluntary) == (count + 1, count)
        assert status.restarts.application == status.restarts.infrastructure == 0
        assert (f"flux-{count + 1}-0" in world.pods) == (count == 1), "the first at once, the others after a while"
        world.now += timedelta(seconds=400)
    assert world.job.status.attempts[-1].reason == "Evicted"


def test_leaving_on_request_costs_no_budget() -> None:
    world = World(job=job(spec=spec(recovery={"maxInfrastructureRestarts": 0})))
    world.running()
    for rank in (0, 1):
        world.end(rank, 86)
    world.settle()
    assert (world.job.status.attempt, world.job.status.restarts.voluntary) == (2, 1)


def test_a_pod_that_disappears_is_named_at_once_although_a_peer_says_it_lost_somebody() -> None:
    world = World()
    world.running()
    world.end(0, 82)
    del world.pods["flux-1-1"]
    world.one_pass()
    status = world.job.status
    assert status.attempt == 2
    assert status.attempts[1].reason == "PodDisappeared"
    assert status.last_fault is not None
    assert (status.last_fault.rank, status.last_fault.victims) == (1, 1)


@pytest.mark.parametrize(
    "nonsense",
    [
        {"seconds_per_step": 1e308, "total_steps": 2**62},
        {"seconds_per_step": -5.0},
        {"mfu": 1e308},
        {"step": -(2**62), "seconds_per_step": 1.0},
        {"total_steps": -1},
        {"first_step_at": "9999-12-31T23:59:59+00:00", "started_at": "0001-01-01T00:00:00+00:00"},
        {"first_step_at": "yesterday"},
        {"resumed_from_step": -7},
    ],
)
def test_nonsense_in_a_pod_s_status_never_breaks_a_pass(nonsense: dict[str, Any]) -> None:
    world = World()
    world.settle()
    world.start_all()
    world.settle()
    world.step(5)
    assert world.progress is not None
    figures = {name: value for name, value in nonsense.items() if name in FIGURES}
    others = {name: value for name, value in nonsense.items() if name not in FIGURES}
    world.progress = replace(world.progress, figures=replace(world.progress.figures, **figures), **others)
    world.now += timedelta(seconds=11)
    world.settle()
    progress = world.job.status.progress
    assert progress is not None
    assert progress.eta_seconds is None or 0 <= progress.eta_seconds <= 10 * 365 * 86400


ROUND = RoundEnd(number=1, ended_at="2026-01-01T12:00:00+00:00", rank=1, code=82, why="")


@pytest.mark.parametrize(
    ("rounds", "reason"),
    [
        (
            [RoundEnd(number=10**6, ended_at="", rank=10**6 - 1, code=255, why="\0", step=2**62, resumed_step=0)],
            "ApplicationRestartsExhausted",
        ),
        ([replace(ROUND, number=10**6, resumed_step=0)], "InfrastructureRestartsExhausted"),
        ([replace(ROUND, down_seconds=1e308, resumed_step=2**62)], "Training"),
        ([replace(ROUND, ended_at="0001-01-01T00:00:00+00:00"), replace(ROUND, number=2, ended_at="9999")], "Training"),
    ],
)
def test_nonsense_about_rounds_never_breaks_a_pass_and_costs_no_more_than_a_job(
    rounds: list[RoundEnd], reason: str
) -> None:
    world = World()
    world.settle()
    world.start_all()
    world.ended[1] = rounds
    world.step(5)
    world.now += timedelta(seconds=11)
    world.settle()
    status = world.job.status
    assert status.reason == reason
    assert status.attempt == 1
    assert max(status.restarts.application, status.restarts.infrastructure) < 10**6


def test_a_job_whose_pods_the_api_server_calls_invalid_fails_with_its_words_and_leaves_none_behind() -> None:
    world = World()
    world.one_pass()
    world.refusal = 'Pod "flux-1-0" is invalid: spec.volumes[5].name: Duplicate value: "tmp"'
    world.settle()
    world.kubelets()
    world.settle()
    status = world.job.status
    assert (status.phase, status.reason) == ("Failed", "InvalidManifest")
    assert "Duplicate value" in (status.message or "")
    assert not [pod for pod in world.pods.values() if not pod.stopped]


@pytest.mark.parametrize("pod", [{}, {"patch": {"tolerationz": []}}], ids=["no patch", "a patch"])
def test_what_the_api_server_refuses_leads_to_the_patch_where_there_is_one(pod: dict[str, object]) -> None:
    world = World(job=job(spec=spec(pod=pod)))
    world.refusal = 'strict decoding error: unknown field "spec.tolerationz"'
    world.settle()
    assert ("spec.pod.patch" in (world.job.status.message or "")) == bool(pod)


def test_progress_forgets_evictions_so_that_a_rare_one_waits_for_nothing() -> None:
    world = World()
    for count in range(1, 4):
        world.running(step=100 * count, resumed=100 * count - 50, saved=100 * count)
        evict(world)
        assert world.job.status.restarts.voluntary == 1
        assert world.job.status.recovery.not_before_time is None


def test_progress_is_written_though_the_last_one_was_by_a_clock_that_was_ahead() -> None:
    world = World()
    world.running()
    world.now -= timedelta(hours=1)
    world.step(7)
    world.one_pass()
    assert world.job.status.progress is not None
    assert (world.job.status.progress.step, world.job.status.progress.update_time) == (7, world.now)


def test_pods_that_are_told_late_because_the_operator_was_away_have_their_time_to_stop() -> None:
    world = World()
    world.running()
    world.end(1, 1)
    world.kill_at = world.writes + 1
    with contextlib.suppress(Killed):
        world.one_pass()
    assert (world.job.status.attempt, world.pods["flux-1-0"].deleting) == (2, False)
    world.now += timedelta(minutes=10)
    world.settle()
    assert world.pods["flux-1-0"].deleting
    assert not [name for name in world.pods if name.startswith("flux-2")]
    assert not world.job.status.avoided_nodes, "nothing speaks against its node"
    world.kubelets()
    world.settle()
    assert sorted(world.pods) == ["flux-2-0", "flux-2-1"]


def test_a_pod_that_was_evicted_with_time_to_save_has_the_short_grace_of_a_fault_once_its_gang_is_dead() -> None:
    world = World()
    world.running()
    world.pods["flux-1-0"] = told_to_stop(world.pods["flux-1-0"], 3600, now=world.now)
    world.end(1, 1)
    world.one_pass()
    assert world.pods["flux-1-0"].grace_seconds == 5
    writes = world.writes
    world.one_pass()
    assert world.writes == writes, "once"
    world.now += timedelta(seconds=36)
    world.settle()
    assert "flux-2-0" in world.pods
    assert [node.name for node in world.job.status.avoided_nodes] == ["node-0"]


def test_a_fault_grace_of_nothing_takes_no_pod_away_while_it_runs() -> None:
    world = World(job=job(spec=spec(recovery={"faultGracePeriodSeconds": 0})))
    world.running()
    world.end(1, 1)
    world.settle()
    assert world.pods["flux-1-0"].deleting, "its kubelet stops it"
    assert not [name for name in world.pods if name.startswith("flux-2")]


def test_a_backoff_that_a_clock_set_that_was_ahead_is_not_waited_for() -> None:
    world = World(job=job(spec=spec(recovery={"maxApplicationRestarts": 9, "maxRestartsWithoutProgress": 9})))
    for _ in range(2):
        world.crash()
    world.running()
    world.end(0, 1)
    world.settle()
    world.kubelets()
    world.settle()
    assert world.pods == {}, "the third crash is waited after"
    world.now -= timedelta(hours=1)
    world.settle()
    assert len(world.pods) == 2
