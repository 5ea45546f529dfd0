"""A GPU that restarts gangs again and again: the first time is free, the second within a day is its node's fault."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from jobs import START, job, spec
from worlds import World, condition

from oarlock_operator.model.observed_nodes import Node, NodeStrike, Pool
from oarlock_operator.model.plan import CordonNode, NoteStrike, Plan

POOL = Pool(size=20, schedulable=20)


def struck(world: World, *, uuid: str = "GPU-5", xid: int = 94, rank: int = 1) -> Plan:
    """A rank's GPU ends the attempt with a fault that it survives; returns what follows until its peers have left."""
    world.end(rank, 81, uuid=uuid, xid=xid)
    before = dict(world.pods)
    first = world.one_pass()
    world.kubelets()
    remembered = {name: replace(pod, gone=True) for name, pod in before.items() if name not in world.pods}
    world.pods |= remembered  # the operator's watch saw them go
    second = world.one_pass()
    world.pods = {name: pod for name, pod in world.pods.items() if name not in remembered}
    return Plan(actions=(*first.actions, *second.actions), events=(*first.events, *second.events))


def again(world: World) -> None:
    """The next gang trains."""
    world.kubelets()
    world.settle()
    world.running()


def world() -> World:
    one = World(job=job(spec=spec(recovery={"maxRestartsWithoutProgress": 50})), may_cordon=True, pool=POOL)
    one.running()
    return one


def cordoned(plan: Plan) -> list[str]:
    return [action.node for action in plan.actions if isinstance(action, CordonNode)]


def test_the_first_fault_of_a_gpu_restarts_the_gang_and_blames_no_node() -> None:
    one = world()
    plan = struck(one)
    assert cordoned(plan) == []
    assert one.job.status.avoided_nodes == ()
    assert [(strike.gpu_uuid, strike.count) for strike in one.job.status.strikes] == [("GPU-5", 1)]
    (noted,) = [action for action in plan.actions if isinstance(action, NoteStrike)]
    assert noted.strike.job, "another job's is another one"
    assert noted.strike.job != one.job.uid, "everybody reads nodes"
    fault = one.job.status.last_fault
    assert fault is not None
    assert (fault.verdict, fault.xid, fault.action) == ("RestartProcess", 94, "started again")


def test_the_second_fault_of_the_same_gpu_within_a_day_takes_its_node() -> None:
    one = world()
    struck(one)
    again(one)
    assert cordoned(struck(one)) == ["node-1"]
    assert one.job.status.avoided_nodes[0].strict
    fault = one.job.status.last_fault
    assert fault is not None
    assert (fault.verdict, fault.action) == ("ReplaceNode", "started again, elsewhere")
    assert "time 2 within 24 h for this GPU" in fault.evidence[0]


def test_another_gpu_of_the_node_begins_its_own_count() -> None:
    one = world()
    struck(one)
    again(one)
    assert cordoned(struck(one, uuid="GPU-6")) == []
    assert {strike.gpu_uuid: strike.count for strike in one.job.status.strikes} == {"GPU-5": 1, "GPU-6": 1}


def test_a_day_later_the_first_one_is_forgotten() -> None:
    one = world()
    struck(one)
    again(one)
    one.now += timedelta(hours=25)
    assert cordoned(struck(one)) == []


@pytest.mark.parametrize("xid", [13, 31, 94])
def test_what_the_gpu_did_to_another_job_counts_too(xid: int) -> None:
    one = world()
    before = NodeStrike("GPU-5", START - timedelta(hours=3), "uid-of-another", xid)
    one.nodes["node-1"] = Node(name="node-1", strikes=(before,))
    assert cordoned(struck(one, xid=xid)) == ["node-1"]


@pytest.mark.parametrize(("xid", "blamed"), [(13, []), (31, []), (94, ["node-1"])])
def test_a_job_that_is_made_again_under_its_name_is_the_same_program_on_the_same_gpu(
    xid: int, blamed: list[str]
) -> None:
    before = world()
    noted = next(action for action in struck(before, xid=xid).actions if isinstance(action, NoteStrike))
    one = World(job=replace(job(), uid="uid-of-the-next"), may_cordon=True, pool=POOL)
    one.running()
    one.nodes["node-1"] = Node(name="node-1", strikes=(noted.strike,))
    assert cordoned(struck(one, xid=xid)) == blamed


def test_what_it_did_yesterday_or_another_gpu_did_does_not() -> None:
    one = world()
    old = (NodeStrike("GPU-5", START - timedelta(hours=30), "x", 94), NodeStrike("GPU-6", START, "x", 94))
    one.nodes["node-1"] = Node(name="node-1", strikes=old)
    assert cordoned(struck(one)) == []


@pytest.mark.parametrize("xid", [13, 31])
def test_what_programs_mostly_cause_takes_no_node_for_one_job_alone(xid: int) -> None:
    one = world()
    for _ in range(4):
        assert cordoned(struck(one, xid=xid)) == []
        again(one)
        one.now += timedelta(hours=1)
    assert not any(node.strict for node in one.job.status.avoided_nodes)
    assert one.fleet.effects == []


def shared(one: World, xid: int) -> Plan:
    """All ranks end with it, the second one while the first is being looked at."""
    one.end(1, 81, uuid="GPU-1", xid=xid)
    first = one.one_pass()
    one.end(0, 81, attempt=one.job.status.attempt - 1, uuid="GPU-0", xid=xid)
    second = one.one_pass()
    return Plan(actions=(*first.actions, *second.actions))


@pytest.mark.parametrize("xid", [31, 94])
def test_what_all_ranks_meet_in_one_attempt_is_the_programs_however_often(xid: int) -> None:
    one = world()
    for _ in range(2):
        plan = shared(one, xid)
        assert cordoned(plan) == []
        assert not any(isinstance(action, NoteStrike) for action in plan.actions), "nobody else hears of it"
        again(one)
    assert one.job.status.avoided_nodes == ()
    fault = one.job.status.last_fault
    assert fault is not None
    assert "the program's own" in fault.evidence[0]


def test_a_pod_that_was_evicted_while_it_met_the_same_shows_that_it_is_the_programs() -> None:
    one = world()
    mark = NodeStrike("GPU-1", one.now - timedelta(hours=1), "another job", 31)
    one.nodes["node-1"] = Node(name="node-1", strikes=(mark,))
    one.end(0, 81, uuid="GPU-0", xid=31)
    one.pods["flux-1-0"] = replace(one.pods["flux-1-0"], disrupted="EvictionByEvictionAPI", deleting=True)
    one.end(1, 81, uuid="GPU-1", xid=31)
    plan = one.one_pass()
    assert cordoned(plan) == []
    assert one.job.status.avoided_nodes == ()


def test_what_programs_mostly_cause_is_no_strike_where_a_pod_went_unheard() -> None:
    """It may have met the same, and then it was the program: an operator that was away can't know."""
    one = world()
    one.end(1, 81, uuid="GPU-5", xid=31)
    del one.pods["flux-1-0"]
    plan = one.one_pass()
    assert not any(isinstance(action, NoteStrike) for action in plan.actions)
    assert one.job.status.strikes == ()


def test_what_programs_mostly_cause_is_no_strike_where_a_spare_that_trained_went_unheard() -> None:
    one = World(job=job(spec=spec(spares=1, recovery={"inPlace": "Auto"})), may_cordon=True, pool=POOL)
    one.defaults = replace(one.defaults, keys=(b"k" * 32,))
    one.running()
    one.step(20)
    assert one.progress is not None
    one.progress = replace(one.progress, members=(0, 2))
    one.one_pass()
    one.progress = None
    assert one.job.status.standby == (1,)
    one.end(0, 81, uuid="GPU-5", xid=31)
    del one.pods["flux-1-2"]
    plan = one.one_pass()
    assert not any(isinstance(action, NoteStrike) for action in plan.actions)
    one.settle()
    assert one.job.status.strikes == ()


@pytest.mark.parametrize("xid", [31, 94])
def test_what_follows_the_rank_from_gpu_to_gpu_is_the_programs(xid: int) -> None:
    one = world()
    for uuid in ("GPU-5", "GPU-6", "GPU-5", "GPU-6"):
        assert cordoned(struck(one, uuid=uuid, xid=xid)) == []
        again(one)
        one.now += timedelta(hours=1)
    assert one.job.status.avoided_nodes == ()


def test_a_gpu_that_strikes_whatever_rank_it_has_is_the_gpus() -> None:
    one = world()
    struck(one, rank=1)
    again(one)
    # The ranks have changed places.
    one.pods["flux-2-0"] = replace(one.pods["flux-2-0"], node="node-1")
    assert cordoned(struck(one, rank=0)) == ["node-1"]


def test_a_job_without_gpus_or_of_a_program_that_nobody_vouches_for_writes_no_strike_on_a_node() -> None:
    for changes in ({"gpusPerNode": 0}, {"pod": {"image": "somebody/else:1"}}):
        one = World(job=job(spec=spec(**changes)), may_cordon=True, pool=POOL)
        one.running()
        assert not any(isinstance(action, NoteStrike) for action in struck(one).actions)


def test_a_fault_is_counted_once_however_often_it_is_looked_at() -> None:
    one = world()
    one.end(1, 81, xid=94)
    for _ in range(5):
        one.one_pass()
    one.kubelets()
    one.settle()
    assert [strike.count for strike in one.job.status.strikes] == [1]
    assert len(one.nodes["node-1"].strikes) == 1


def test_a_programs_own_word_against_a_gpu_is_no_strike() -> None:
    one = world()
    for _ in range(2):
        one.end(1, 81)
        assert cordoned(one.one_pass()) == []
        again(one)
    assert one.job.status.strikes == ()


def test_without_the_right_to_write_nodes_the_job_remembers_by_itself() -> None:
    one = replace(world(), may_cordon=False)
    assert not any(isinstance(action, NoteStrike) for action in struck(one).actions)
    again(one)
    struck(one)
    assert (one.job.status.avoided_nodes[0].name, one.job.status.avoided_nodes[0].strict) == ("node-1", True)


def test_a_gpu_that_warns_is_shown_and_its_node_rather_avoided_by_the_next_attempt() -> None:
    one = world()
    one.warnings = {one.pods["flux-1-1"].uid: "GPU 5 (GPU-5) remaps a memory row at its next reset"}
    one.one_pass()
    assert condition(one, "Degraded") == ("True", "GPUWarning")
    assert (one.job.status.attempt, one.job.status.avoided_nodes) == (1, ())
    one.end(0, 1)
    one.one_pass()
    (avoided,) = one.job.status.avoided_nodes
    assert (avoided.name, avoided.strict) == ("node-1", False)


def test_warnings_of_a_whole_rack_never_shut_its_nodes_out() -> None:
    one = world()
    for _ in range(3):
        one.warnings = {pod.uid: "GPU 0 was braked by its power supply" for pod in one.pods.values()}
        one.end(0, 81)
        one.one_pass()
        one.warnings = {}
        again(one)
    assert not any(node.strict for node in one.job.status.avoided_nodes)


def test_a_strike_that_is_told_in_the_teardown_counts_for_its_own_attempt() -> None:
    one = world()
    one.end(0, 82)
    one.one_pass()
    one.now += timedelta(seconds=2)
    one.one_pass()
    assert one.job.status.attempt == 2
    one.end(1, 81, attempt=1, xid=94, uuid="GPU-5")  # after the next attempt was written down
    one.settle()
    assert [(strike.count, strike.last_attempt) for strike in one.job.status.strikes] == [(1, 1)]
    again(one)
    assert cordoned(struck(one)) == ["node-1"]


def test_a_job_that_wants_no_cordons_writes_nothing_on_nodes() -> None:
    one = World(job=job(spec=spec(recovery={"cordon": "Never"})), may_cordon=True, pool=POOL)
    one.running()
    assert not any(isinstance(action, NoteStrike) for action in struck(one).actions)
    assert [strike.count for strike in one.job.status.strikes] == [1]


def test_a_cause_that_no_restart_mends_ends_the_job_also_when_it_is_told_late() -> None:
    one = world()
    one.end(0, 82)
    one.one_pass()
    one.now += timedelta(seconds=2)
    one.one_pass()
    one.end(1, 85, attempt=1)
    one.settle()
    assert (one.job.status.phase, one.job.status.reason) == ("Failed", "ConfigurationError")
