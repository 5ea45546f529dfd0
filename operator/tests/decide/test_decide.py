"""Decisions, one promise a test: how a gang starts, runs, breaks, and how its job is refused."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from jobs import job
from worlds import World, condition

from oarlock_operator.decide import decide
from oarlock_operator.model.observation import ServiceSeen


def test_a_new_job_gets_a_service_and_one_pod_per_node() -> None:
    world = World()
    world.settle()
    assert sorted(world.pods) == ["flux-1-0", "flux-1-1"]
    assert world.service == ServiceSeen("service-1", ours=True, attempt=1)
    assert world.job.status.phase == "Starting"


def test_the_first_write_is_the_status_so_that_intent_precedes_action() -> None:
    world = World()
    world.one_pass()
    assert world.log[0].startswith("status attempt=1")
    assert world.log[1:] == ["service", "pod flux-1-0", "pod flux-1-1"]


def test_all_conditions_are_present_from_the_first_write() -> None:
    world = World()
    world.one_pass()
    kinds = {c.type for c in world.job.status.conditions}
    assert kinds == {
        "Accepted",
        "Suspended",
        "StorageReady",
        "Scheduled",
        "Running",
        "Recovering",
        "Degraded",
        "Succeeded",
        "Failed",
        "Finished",
        "Ready",
        "Reconciling",
        "Stalled",
    }


def test_training_is_running_with_its_figures_in_status() -> None:
    world = World()
    world.running(step=20, saved=10)
    status = world.job.status
    assert status.phase == "Running"
    assert status.summary.nodes == "2/2"
    assert status.summary.step == "20/100"
    assert status.progress is not None
    assert status.progress.eta_seconds == 40
    assert status.latest_checkpoint is not None
    assert status.latest_checkpoint.relative_path == "flux/checkpoints/step-10-a1"
    assert status.attempts[0].stage_milliseconds.first_step == 4000


def test_a_crashed_rank_restarts_the_gang_under_a_new_attempt() -> None:
    world = World()
    world.running(step=20, saved=10)
    world.end(1, 1)
    world.one_pass()
    assert world.job.status.attempt == 2, "the next attempt is written down"
    assert world.pods["flux-1-0"].deleting, "what still runs is deleted"
    assert "flux-1-1" in world.pods, "what ended keeps its evidence until the blame is written"
    assert not any(pod.attempt == 2 for pod in world.pods.values()), "nothing new while the old gang runs"
    world.kubelets()
    world.settle()
    assert sorted(world.pods) == ["flux-2-0", "flux-2-1"]
    assert world.service is not None
    assert world.service.attempt == 2
    status = world.job.status
    assert status.phase == "Recovering"
    assert status.restarts.application == 1
    assert status.attempts[1].reason == "ApplicationError"
    assert status.last_fault is not None
    assert status.last_fault.rank == 1


def test_after_a_restart_the_lost_steps_and_the_stages_are_told() -> None:
    world = World()
    world.running(step=20, saved=10)
    world.end(1, 1)
    world.one_pass()
    world.kubelets()
    world.running(step=11, resumed=10)
    record = world.job.status.attempts[1]
    assert (record.resumed_from_step, record.lost_steps) == (10, 10)
    stages = record.stage_milliseconds
    assert None not in (stages.detect, stages.decide, stages.drain, stages.schedule, stages.start, stages.first_step)
    assert world.job.status.phase == "Running"


def test_peers_that_lost_a_peer_are_victims_and_never_the_cause() -> None:
    world = World()
    world.running()
    world.end(0, 82)
    world.now += timedelta(milliseconds=200)
    world.end(1, 1)
    world.one_pass()
    fault = world.job.status.last_fault
    assert fault is not None
    assert (fault.rank, fault.fault_class, fault.victims) == (1, "Application", 1)


def test_a_victim_alone_waits_a_moment_for_the_cause_and_then_restarts() -> None:
    world = World()
    world.running()
    world.end(0, 82)
    world.one_pass()
    assert world.job.status.attempt == 1
    world.now += timedelta(seconds=2)
    world.one_pass()
    assert world.job.status.attempt == 2
    assert world.job.status.restarts.infrastructure == 1


def test_a_cause_that_speaks_long_after_its_victims_noticed_is_still_heard() -> None:
    """Whoever hangs dumps its stacks first, while its peers lose it at once."""
    world = World()
    world.running()
    world.end(0, 82)
    world.now += timedelta(seconds=5)
    world.ended_seconds = 0.1
    world.one_pass()
    assert world.job.status.attempt == 1
    world.end(1, 83)
    world.one_pass()
    status = world.job.status
    assert (status.attempt, status.reason, status.restarts.application) == (2, "Hang", 1)


@pytest.mark.parametrize(
    ("code", "reason"), [(85, "ConfigurationError"), (88, "OutputInUse")], ids=["configuration", "fenced"]
)
def test_what_no_restart_can_mend_fails_at_once_with_its_reason(code: int, reason: str) -> None:
    world = World()
    world.running()
    world.end(0, code)
    world.one_pass()
    assert world.job.status.attempt == 1
    assert world.job.status.completion_time is None, "not before its pods have stopped"
    world.kubelets()
    world.settle()
    status = world.job.status
    assert (status.phase, status.reason, status.failed) == ("Failed", reason, 1)
    assert "rank 1 raised ValueError" in (status.message or "")
    assert status.restarts.application == 0


def test_the_configuration_error_outranks_a_crash_of_another_rank() -> None:
    world = World()
    world.running()
    world.end(0, 1)
    world.now += timedelta(milliseconds=10)
    world.end(1, 85)
    world.settle()
    assert world.job.status.reason == "ConfigurationError"


def test_a_pod_that_disappears_restarts_the_gang() -> None:
    world = World()
    world.running()
    del world.pods["flux-1-1"]
    world.one_pass()
    status = world.job.status
    assert status.attempt == 2
    assert status.restarts.infrastructure == 1
    assert status.attempts[1].reason == "PodDisappeared"


def test_a_job_that_cannot_work_fails_at_once_and_says_why() -> None:
    world = World(job=job(spec=None, problem="spec.nodes: too many"))
    world.settle()
    status = world.job.status
    assert (status.phase, status.reason) == ("Failed", "InvalidSpec")
    assert not world.pods
    assert condition(world, "Accepted") == ("False", "InvalidSpec")
    assert status.completion_time is not None


def test_a_service_of_somebody_else_is_never_taken() -> None:
    world = World(service=ServiceSeen("other", ours=False, attempt=0))
    world.settle()
    assert world.job.status.reason == "NameTaken"
    assert world.service == ServiceSeen("other", ours=False, attempt=0)


def test_a_job_of_another_controller_is_left_alone() -> None:
    world = World(job=job(spec=None, problem="spec.tomorrow: not known", managed_by="kueue.x-k8s.io/multikueue"))
    world.settle()
    assert world.writes == 0


def test_a_finished_job_is_left_alone() -> None:
    world = World()
    world.crash(85)
    writes = world.writes
    world.settle()
    assert world.writes == writes


def test_progress_is_written_no_oftener_than_the_setting_says() -> None:
    world = World()
    world.running(step=5)
    world.step(6)
    world.now += timedelta(seconds=1)
    assert decide(world.observe()).status is None
    world.now += timedelta(seconds=10)
    assert decide(world.observe()).status is not None


def test_the_more_jobs_train_the_more_seldom_figures_are_written_but_who_is_silent_is_asked_as_often_as_ever() -> None:
    world = World()
    world.running(step=5)
    world.defaults = replace(world.defaults, figures_seconds=100.0)
    world.step(6)
    world.now += timedelta(seconds=50)
    plan = decide(world.observe())
    assert (plan.status, plan.again_seconds) == (None, 100.0)
    world.silent = {"uid": 5.0}
    assert decide(world.observe()).again_seconds == world.defaults.progress_seconds
    world.now += timedelta(seconds=50)
    assert decide(world.observe()).status is not None


def test_the_same_observation_gives_the_same_plan() -> None:
    world = World()
    world.crash()
    world.running()
    world.end(0, 1)
    assert decide(world.observe()) == decide(world.observe())


def test_a_first_attempt_that_goes_on_from_a_checkpoint_says_so() -> None:
    world = World()
    world.settle()
    world.start_all()
    world.settle()
    world.step(11, resumed=10)
    events = world.one_pass().events
    assert [event.message for event in events if event.reason == "ResumedFromCheckpoint" and "step 10" in event.message]


def test_a_status_that_differs_in_counts_only_is_a_minor_one() -> None:
    world = World()
    world.running(step=20)
    assert not world.one_pass().minor or world.one_pass().status is None
    world.pods["flux-1-1"] = replace(world.pods["flux-1-1"], ready=False)
    plan = decide(world.observe())
    assert plan.status is not None
    assert plan.minor
    world.end(1, 1)
    assert not decide(world.observe()).minor
