"""Ranks that start anew inside their pods are charged as a new attempt would be, once; and what went back is counted back."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from jobs import job, spec
from world_writes import Killed
from worlds import World

from oarlock_api.contract.figures import Figures
from oarlock_api.contract.rounds import MAX_ROUNDS
from oarlock_operator.model.plan import DeletePods, Event, EventType

GPUS = 4


def trained(step: int = 20, **recovery: object) -> World:
    """A gang at this step, which began with nothing."""
    world = World(job=job(spec=spec(recovery=recovery)))
    world.running(step=step)
    return world


def told(world: World, step: int = 20, **progress: int) -> list[Event]:
    """The operator hears of what its leader knows; all Events of it."""
    world.step(step, **progress)
    events: list[Event] = []
    for _ in range(3):
        events += world.one_pass().events
        world.now += timedelta(seconds=11)
    return events


def crashed(world: World, code: int = 1) -> None:
    """The attempt ends, too, and the next one's backoff is over."""
    world.end(1, code)
    world.progress = None
    world.settle()
    world.kubelets()
    world.now += timedelta(seconds=400)
    world.settle()


def test_a_round_is_booked_once_with_what_an_attempt_would_cost_and_one_event() -> None:
    world = trained()
    ended = world.now
    world.end_round(1, rank=1, step=25)
    events = told(world, 25)
    (one,) = world.job.status.rounds
    assert (one.attempt, one.round, one.rung, one.reason) == (1, 1, "RestartRanks", "ApplicationError")
    assert (one.rank, one.node_name, one.exit_code, one.ended_time) == (1, "node-1", 1, ended)
    assert one.message == "pod flux-1-1 on node-1: rank 3 raised ValueError"
    assert world.job.status.restarts.application == 1
    assert world.job.status.restarts.without_progress == 1
    assert [(event.type, event.reason) for event in events] == [(EventType.WARNING, "RanksRestarted")]
    assert "Round 2 of attempt 1 starts" in events[0].message
    status = world.job.status
    assert (status.attempt, status.round, status.restart_count, status.phase) == (1, 2, 0, "Running")
    fault = status.last_fault
    assert fault is not None
    assert (fault.fault_class, fault.rank, fault.action) == ("Application", 1, "ranks started again in their pods")


@pytest.mark.parametrize(("after", "phase"), [("suspend", "Suspended"), ("deadline", "Failed")])
def test_a_gang_that_is_to_stop_while_its_ranks_start_anew_stops_as_any_other_and_is_charged_nothing(
    after: str, phase: str
) -> None:
    """Whatever its pods say of what ended the ranks: nothing follows from it any more."""
    world = trained()
    told(world, saved=10)
    assert world.progress is not None
    world.progress = replace(world.progress, figures=Figures())  # it stands by
    stops = {"suspend": True} if after == "suspend" else {"activeDeadlineSeconds": 60}
    world.job = replace(world.job, spec=spec(**stops))
    world.now += timedelta(seconds=120)
    world.one_pass()
    world.end(1, 137)  # what had ended the ranks
    world.end(0, 86)
    world.settle()
    world.kubelets()
    world.settle()
    status = world.job.status
    assert (status.phase, status.attempt, status.rounds) == (phase, 1, ())
    assert (status.restarts.application, status.restarts.without_progress) == (0, 0)
    assert status.latest_checkpoint is not None
    assert status.latest_checkpoint.step == 10


def test_rounds_use_a_budget_up_as_attempts_do() -> None:
    world = trained(maxApplicationRestarts=2, maxRestartsWithoutProgress=9)
    for _ in range(2):
        world.end_round(1)
        told(world)
        assert world.job.status.recovery.stage is None
    world.end_round(1)
    world.step(20)
    plan = world.one_pass()
    assert world.job.status.reason == "ApplicationRestartsExhausted"
    assert any(isinstance(action, DeletePods) for action in plan.actions)
    assert [one.round for one in world.job.status.rounds] == [1, 2, 3]
    world.kubelets()
    world.settle()
    assert world.job.status.phase == "Failed"


def test_attempts_and_rounds_are_charged_to_one_budget() -> None:
    world = trained(maxApplicationRestarts=2, maxRestartsWithoutProgress=9)
    world.end_round(1)
    told(world)
    crashed(world)
    world.running(step=3)
    world.end_round(1)
    told(world, 3)
    assert world.job.status.reason == "ApplicationRestartsExhausted"
    assert [(one.attempt, one.round) for one in world.job.status.rounds] == [(1, 1), (2, 1)]


@pytest.mark.parametrize(("code", "budget"), [(1, "application"), (83, "application"), (81, "infrastructure")])
def test_a_round_is_charged_by_whose_fault_it_was(code: int, budget: str) -> None:
    world = trained()
    world.end_round(code)
    told(world)
    counts = world.job.status.restarts
    assert {name: getattr(counts, name) for name in ("application", "infrastructure")} == {
        "application": 0,
        "infrastructure": 0,
        budget: 1,
    }


def test_rounds_without_a_newer_checkpoint_end_the_job_and_one_with_it_forgets_them() -> None:
    world = trained(maxApplicationRestarts=99, maxRestartsWithoutProgress=2)
    for saved in (0, 10, 10, 10):
        world.end_round(1, step=25, resumed_step=saved)
        told(world, 25, **({"saved": saved} if saved else {}))
    assert world.job.status.restarts.without_progress == 2, "the second one had made a checkpoint, and those after none"
    world.end_round(1, step=25, resumed_step=10)
    told(world, 25, saved=10)
    assert [one.round for one in world.job.status.rounds] == [1, 2, 3, 4, 5]
    assert world.job.status.reason == "NoProgress"
    assert "attempts and rounds in a row" in (world.job.status.message or "")


@pytest.mark.parametrize("looks", ["before", "after"])
def test_rounds_that_go_further_each_time_are_progress_whenever_the_operator_looks(looks: str) -> None:
    """The next round goes on from memory, with no newer checkpoint; the operator hears of it before that, or after."""
    world = trained(maxApplicationRestarts=2, maxRestartsWithoutProgress=2)
    for step in range(200, 1400, 200):
        world.end_round(1, step=step, resumed_step=None)
        if looks == "before":
            told(world, step)
        world.learn(resumed_step=step)
        told(world, step + 1)
    status = world.job.status
    assert (status.phase, status.attempt, len(status.rounds)) == ("Running", 1, 6)
    assert (status.restarts.application, status.restarts.without_progress) == (1, 0)


def attempts_that_fail_at_step_150(world: World) -> None:
    """Each goes on from the checkpoint of step 100, and has three rounds more, from memory, until its leader gives up."""
    for begins in (0, *[100] * 11):
        world.running(step=149, resumed=begins, saved=100)
        for _ in range(3):
            world.end_round(81, step=150, resumed_step=149)
            told(world, 149, resumed=begins, saved=100)
        if world.job.status.completion_time or world.job.status.recovery.stage == "Stopping":
            return
        crashed(world, 81)


def test_a_fault_that_comes_back_at_the_same_step_ends_the_job_though_each_attempt_has_that_step_in_memory_anew() -> (
    None
):
    world = trained(inPlace="Auto", memory={"everySteps": 1})
    attempts_that_fail_at_step_150(world)
    assert world.job.status.reason == "NoProgress"
    assert world.job.status.attempt <= 3
    assert world.job.status.restarts.progress_step == 149


def test_a_step_from_memory_that_an_attempt_before_came_to_is_no_progress_and_a_later_one_is() -> None:
    world = trained(maxApplicationRestarts=99, maxRestartsWithoutProgress=9)
    world.end_round(1, step=50, resumed_step=49)
    told(world, 49)
    assert world.job.status.restarts.without_progress == 0
    crashed(world)
    world.running(step=49)
    for resumed, without in ((49, 2), (50, 0), (50, 1)):
        world.end_round(1, step=51, resumed_step=resumed)
        told(world, resumed)
        assert world.job.status.restarts.without_progress == without, resumed


def test_a_job_that_was_resumed_may_have_been_taken_back_and_makes_progress_from_there() -> None:
    world = trained(maxApplicationRestarts=99, maxRestartsWithoutProgress=9)
    world.end_round(1, step=50, resumed_step=49)
    told(world, 49)
    for suspend in (True, False):
        world.job = replace(world.job, spec=spec(suspend=suspend))
        world.settle()
        world.kubelets()
        world.settle()
    world.running(step=25, resumed=20)
    for resumed, without in ((30, 0), (30, 1)):
        world.end_round(1, step=31, resumed_step=resumed)
        told(world, resumed)
        assert world.job.status.restarts.without_progress == without, resumed


def test_a_round_is_charged_once_it_is_known_where_the_next_one_began_or_when_that_ends_before() -> None:
    world = trained(maxApplicationRestarts=99, maxRestartsWithoutProgress=2)
    charged = []
    for _ in range(4):
        world.end_round(1, step=25, resumed_step=None)
        told(world, 25)
        charged.append(world.job.status.restarts.without_progress)
    assert charged == [0, 1, 2, 2]
    assert world.job.status.reason == "NoProgress", "none of them ever began"


def test_a_charge_that_waited_is_made_once() -> None:
    world = trained()
    world.end_round(1, step=25, resumed_step=None)
    told(world, 25)
    assert world.job.status.restarts.application == 0
    world.learn(resumed_step=0)
    told(world, 26)
    told(world, 27)
    assert (world.job.status.restarts.application, world.job.status.restarts.without_progress) == (1, 1)


def test_an_attempt_made_progress_only_beyond_what_its_last_round_began_with() -> None:
    world = trained(maxApplicationRestarts=2, maxRestartsWithoutProgress=9)
    world.end_round(1, step=25, resumed_step=20)
    told(world, 25, saved=20)
    assert world.job.status.restarts.application == 1, "the first round's checkpoint forgets what was before it"
    world.end(1, 1)
    world.settle()
    assert world.job.status.restarts.application == 2


def test_rounds_that_are_told_no_more_are_charged_by_their_number() -> None:
    world = trained(maxApplicationRestarts=99, maxRestartsWithoutProgress=99)
    for _ in range(MAX_ROUNDS + 5):
        world.end_round(1)
    told(world)
    assert world.job.status.restarts.application == MAX_ROUNDS + 5
    assert [one.round for one in world.job.status.rounds] == list(range(6, 14))
    assert world.job.status.round == 14


def test_the_last_ten_rounds_are_kept_and_none_is_charged_again_for_it() -> None:
    world = trained(maxApplicationRestarts=99, maxRestartsWithoutProgress=99)
    for _ in range(15):
        world.end_round(1)
        told(world)
    assert [one.round for one in world.job.status.rounds] == list(range(6, 16))
    assert world.job.status.restarts.application == 15


def test_what_another_attempt_tells_is_not_booked() -> None:
    world = trained()
    world.end_round(1)
    world.step(20)
    assert world.progress is not None
    world.progress = replace(world.progress, attempt=7)
    world.one_pass()
    assert world.job.status.rounds == ()


def test_a_rank_that_no_pod_has_is_booked_without_a_node() -> None:
    world = trained()
    world.end_round(1, rank=999)
    told(world)
    (one,) = world.job.status.rounds
    assert (one.rank, one.node_name) == (999, None)


def test_a_time_that_is_to_come_or_cannot_be_read_is_when_it_was_heard() -> None:
    world = trained()
    world.end_round(1)
    world.learn(ended_at="9999-12-31T23:59:59+00:00")
    world.end_round(1)
    world.learn(ended_at="yesterday")
    world.step(20)
    now = world.now
    world.one_pass()
    assert [one.ended_time for one in world.job.status.rounds] == [now, now]


# Rules of the job's own, and what no restart mends


def rule(action: str) -> dict[str, object]:
    return {"rules": [{"name": "mine", "when": {"exitCodes": [1]}, "action": action}]}


def test_a_rule_that_fails_the_job_ends_it_with_the_round() -> None:
    world = trained(**rule("Fail"))
    world.end_round(1)
    world.step(20)
    world.one_pass()
    world.kubelets()
    world.settle()
    assert (world.job.status.phase, world.job.status.reason) == ("Failed", "ApplicationError")
    assert len(world.job.status.rounds) == 1


def test_a_rule_that_ignores_a_fault_costs_its_round_no_budget() -> None:
    world = trained(**rule("Ignore"))
    world.end_round(1)
    told(world)
    counts = world.job.status.restarts
    assert (counts.application, counts.infrastructure, counts.voluntary) == (0, 0, 1)
    assert world.job.status.attempt == 1


def test_a_rule_that_avoids_the_node_has_the_gang_start_elsewhere_charged_once() -> None:
    world = trained(**rule("AvoidNode"))
    world.end_round(1)
    told(world)
    world.kubelets()
    world.settle()
    status = world.job.status
    assert (status.attempt, status.round) == (2, 1)
    assert [node.name for node in status.avoided_nodes] == ["node-1"]
    assert (status.restarts.application, status.restart_count) == (1, 1)
    assert [(one.attempt, one.round) for one in status.rounds] == [(1, 1)]


def test_a_leaders_word_cordons_no_node() -> None:
    world = trained()
    world.may_cordon = True
    world.end_round(80)
    told(world)
    assert not world.job.status.cordoned_nodes
    assert [node.name for node in world.job.status.avoided_nodes] == ["node-1"]


def test_a_fault_that_no_restart_mends_ends_the_job() -> None:
    world = trained()
    world.end_round(85, why="unknown field")
    world.step(20)
    world.one_pass()
    assert world.job.status.reason == "ConfigurationError"


# Training goes back


def test_what_is_known_later_is_filled_in_once_and_counts_as_wasted() -> None:
    world = trained()
    wasted = world.job.status.wasted_gpu_seconds
    world.now += timedelta(seconds=60)
    world.end_round(1, step=30, resumed_step=None)
    told(world, 30)
    assert world.job.status.rounds[0].resumed_from_step is None
    world.learn(resumed_step=10, down_seconds=2.5, start_wait_seconds=0.5, from_memory=True)
    told(world, 11)
    told(world, 12)
    one = world.job.status.rounds[0]
    assert (one.resumed_from_step, one.lost_steps, one.down_seconds) == (10, 20, 2.5)
    assert (one.resumed_from_memory, one.start_wait_seconds) == (True, 0.5)
    assert world.job.status.wasted_gpu_seconds - wasted == (2.5 + 20 * 0.5) * GPUS


def test_a_leader_can_have_no_more_wasted_than_its_attempt_has_lasted() -> None:
    world = trained()
    wasted = world.job.status.wasted_gpu_seconds
    world.end_round(1, step=2**40, resumed_step=0, down_seconds=1e300)
    told(world)
    made = world.job.status.attempts[-1].created_time
    assert made is not None
    assert world.job.status.wasted_gpu_seconds - wasted <= (world.now - made).total_seconds() * GPUS


def test_a_round_before_the_first_step_is_a_part_of_the_start_and_wasted_with_it_alone() -> None:
    world = World()
    world.settle()
    world.start_all()
    world.settle()
    world.now += timedelta(seconds=10)
    world.end_round(1, step=0, resumed_step=0, down_seconds=3.0)
    world.step(1)
    assert world.progress is not None
    later = world.now + timedelta(seconds=3)
    world.progress = replace(
        world.progress, started_at=(later - timedelta(seconds=10)).isoformat(), first_step_at=later.isoformat()
    )
    for _ in range(3):
        world.one_pass()
        world.now += timedelta(seconds=11)
    assert world.job.status.attempts[-1].stage_milliseconds.first_step == 10_000
    assert world.job.status.wasted_gpu_seconds == 10 * GPUS
    assert world.job.status.rounds[0].down_seconds == 3.0


def test_an_attempt_that_is_first_heard_of_between_two_rounds_began_where_its_next_one_does() -> None:
    world = World()
    world.settle()
    world.start_all()
    world.settle()
    world.end_round(1, step=90)
    world.step(90, resumed=40)
    assert world.progress is not None
    world.progress = replace(world.progress, figures=Figures(), resumed_from_step=None)
    world.one_pass()
    assert world.job.status.attempts[-1].resumed_from_step is None
    told(world, 41, resumed=40)
    assert world.job.status.attempts[-1].resumed_from_step == 40


def test_the_next_attempts_lost_steps_count_from_where_its_last_round_was() -> None:
    world = trained()
    world.step(80, saved=40)
    world.one_pass()
    world.end_round(1, step=85, resumed_step=40)
    world.step(41, saved=40)
    world.one_pass()  # sooner than figures are written again
    crashed(world)
    world.running(step=41, resumed=40)
    assert world.job.status.rounds[0].lost_steps == 45
    assert world.job.status.attempts[-1].lost_steps in (0, 1), "not once more what the round had lost"


def test_the_curve_and_the_progress_go_back_with_the_ranks_and_on_again() -> None:
    world = trained()
    for step in (40, 60, 80):
        told(world, step)
    world.end_round(1, step=81, resumed_step=40)
    told(world, 50)
    assert world.job.status.progress is not None
    assert world.job.status.progress.step == 50
    told(world, 90)
    assert [point.step for point in world.job.status.curve] == [20, 40, 50, 90]


def test_ranks_that_start_anew_are_no_hang_while_their_agents_answer() -> None:
    world = trained()
    world.end_round(1, step=20)
    world.step(20)
    for _ in range(20):
        world.now += timedelta(seconds=60)
        world.one_pass()
    assert (world.job.status.attempt, world.job.status.phase) == (1, "Running")


# An operator that dies, or was away


def test_a_kill_after_any_write_books_each_round_once() -> None:
    def life(kill: int | None) -> World:
        world = trained(maxApplicationRestarts=9, maxRestartsWithoutProgress=9)
        world.kill_at = world.writes + kill if kill else None
        for code in (1, 81, 83):
            world.end_round(code, step=20, resumed_step=0)
            for _ in range(2):
                try:
                    told(world)
                except Killed:
                    world.kill_at = None
        return world

    undisturbed = life(None)
    writes = undisturbed.writes - trained().writes
    for kill in range(1, writes + 1):
        status = life(kill).job.status
        assert (status.restarts.application, status.restarts.infrastructure) == (2, 1), kill
        assert [one.round for one in status.rounds] == [1, 2, 3]
