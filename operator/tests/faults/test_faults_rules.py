"""spec.recovery.rules: the first that fits decides, and none of them cordons."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from jobs import START, gpu_report, job, report, spec
from worlds import World, condition

from oarlock_operator.model.observation import Ending, Pod
from oarlock_operator.model.observed_nodes import Node, Pool
from oarlock_operator.model.plan import CordonNode, DeletePods

POOL = Pool(size=20, schedulable=20)


def broken(code: int, rule: dict[str, Any], **gpu: Any) -> World:
    """A gang in which rank 1 ended, under one rule."""
    rules = [{"name": "mine", **rule}]
    world = World(job=job(spec=spec(recovery={"rules": rules})), may_cordon=True, pool=POOL)
    world.running()
    world.end(1, code, **gpu)
    return world


@pytest.mark.parametrize(
    ("when", "fits"),
    [
        ({"xids": [79]}, True),
        ({"xids": [48]}, False),
        ({"classes": ["GPU"]}, True),
        ({"classes": ["Hang"]}, False),
        ({"exitCodes": [80]}, True),
        ({"exitCodes": [1]}, False),
        ({"nodeNames": ["node-1"]}, True),
        ({"nodeNames": ["node-0"]}, False),
        ({"xids": [79], "nodeNames": ["node-0"]}, False),
    ],
    ids=str,
)
def test_a_rule_is_about_the_faults_that_fit_all_it_names(when: dict[str, Any], fits: bool) -> None:  # noqa: FBT001
    world = broken(80, {"when": when, "action": "Fail"}, xid=79)
    world.one_pass()
    assert (world.job.status.recovery.stage == "Stopping") == fits


def test_a_rule_that_forgives_keeps_the_node() -> None:
    world = broken(80, {"when": {"xids": [79]}, "action": "RestartProcess"}, xid=79)
    plan = world.one_pass()
    assert not [action for action in plan.actions if isinstance(action, CordonNode)]
    assert world.job.status.avoided_nodes == ()
    assert world.job.status.restarts.infrastructure == 1
    fault = world.job.status.last_fault
    assert fault is not None
    assert fault.action == "started again (rule mine)"
    assert "(rule mine: RestartProcess)" in world.job.status.message


def test_a_rule_that_avoids_never_cordons() -> None:
    world = broken(1, {"when": {"exitCodes": [1]}, "action": "AvoidNode"})
    plan = world.one_pass()
    assert not [action for action in plan.actions if isinstance(action, CordonNode)]
    assert [(node.name, node.strict) for node in world.job.status.avoided_nodes] == [("node-1", True)]


def test_a_rule_that_ignores_costs_no_budget() -> None:
    world = broken(1, {"when": {"classes": ["Application"]}, "action": "Ignore"})
    world.one_pass()
    restarts = world.job.status.restarts
    assert (world.job.status.attempt, restarts.application, restarts.voluntary) == (2, 0, 1)


def test_what_would_end_the_job_may_be_tried_again_within_the_programs_budget() -> None:
    world = broken(85, {"when": {"classes": ["Configuration"]}, "action": "RestartProcess"})
    world.one_pass()
    assert (world.job.status.attempt, world.job.status.restarts.application) == (2, 1)


def test_the_first_fitting_rule_wins() -> None:
    rules = [
        {"name": "first", "when": {"exitCodes": [1]}, "action": "AvoidNode"},
        {"name": "second", "when": {"exitCodes": [1]}, "action": "Fail"},
    ]
    world = World(job=job(spec=spec(recovery={"rules": rules})))
    world.running()
    world.end(1, 1)
    world.one_pass()
    assert world.job.status.attempt == 2


def test_a_rule_about_victims_does_not_reach_past_the_cause() -> None:
    world = broken(82, {"when": {"classes": ["PeerLost"]}, "action": "Fail"})
    world.end(0, 1)
    world.one_pass()
    assert world.job.status.attempt == 2, "rank 0 was the cause"


def test_one_ecc_fault_and_many_victims_cordon_one_node_and_name_its_gpu() -> None:
    world = World(job=job(spec=spec(nodes=32)), may_cordon=True, pool=Pool(size=64, schedulable=64))
    world.running()
    for rank in range(32):
        world.end(rank, 82)
    name = "flux-1-17"
    pod: Pod = world.pods[name]
    said = gpu_report(pod, code=80, at=START.replace(year=2027), xid=48, uuid="GPU-17")  # the last one to speak
    world.pods[name] = Pod(
        program=world.pods[name].program,
        **{field: getattr(pod, field) for field in ("name", "uid", "attempt", "rank", "node", "scheduled", "started")},
        ending=Ending(80, report=said),
    )
    plan = world.one_pass()
    assert [action.node for action in plan.actions if isinstance(action, CordonNode)] == ["node-17"]
    fault = world.job.status.last_fault
    assert fault is not None
    assert fault.gpu is not None
    assert (fault.gpu.uuid, fault.xid, fault.victims, fault.verdict) == ("GPU-17", 48, 31, "ReplaceNode")


def warns(*rules: dict[str, Any]) -> World:
    """A gang that trains, and one GPU of it that is too hot; each rule is the job's own."""
    named = [{"name": f"rule-{number}", **rule} for number, rule in enumerate(rules)]
    world = World(job=job(spec=spec(recovery={"rules": named})), may_cordon=True, pool=POOL)
    world.running()
    uid = world.pods["flux-1-1"].uid
    world.warnings = {uid: "GPU 5 was slowed down for heat"}
    world.held = {uid: ("thermalSlowdown",)}
    return world


HOLD = {"verdict": "Hold", "probes": ["thermalSlowdown", "powerBrake"]}
NEVER_ENDS = {"when": {"verdict": "Hold"}, "action": "RestartProcess"}


def leave(world: World, *, step: int) -> None:
    """The pods of the gang that is told to go save at `step`, say so, and are gone."""
    world.held = {}
    for name, pod in world.pods.items():
        if not pod.stopped:
            said = replace(report(pod, code=86, at=world.now), step=step, checkpoint_step=step)
            world.pods[name] = replace(pod, ready=False, ending=Ending(86, report=said))
    world.settle()
    world.kubelets()
    world.settle()


def saved(world: World) -> tuple[int | None, int | None]:
    """The step that was reached, and that of the newest checkpoint, as the status tells them."""
    progress, newest = world.job.status.progress, world.job.status.latest_checkpoint
    return progress.step if progress else None, newest.step if newest else None


def warn(world: World, *, step: int = 1) -> None:
    """From wherever it is to training, from the newest checkpoint on, and then to a GPU of rank 1 that is braked."""
    world.now += timedelta(seconds=400)
    world.running(step=step, resumed=saved(world)[1] or 0)
    pod = next(pod for pod in world.pods.values() if pod.attempt == world.job.status.attempt and pod.rank == 1)
    world.held, world.warnings = {pod.uid: ("powerBrake",)}, {pod.uid: "GPU 5 was braked"}


def test_attempts_that_a_rule_ends_for_a_warning_save_and_are_not_counted_as_in_vain() -> None:
    world = World(job=job(spec=spec(recovery={"rules": [{"name": "mine", **NEVER_ENDS}]})))
    for attempt in range(1, 7):
        warn(world, step=attempt * 10)
        world.one_pass()
        assert world.job.status.recovery.stage == "Drain"
        leave(world, step=attempt * 10)
    restarts = world.job.status.restarts
    assert (world.job.status.attempt, restarts.infrastructure, restarts.without_progress) == (7, 6, 0)


def test_restarts_for_warnings_wait_ever_longer_and_the_first_does_not() -> None:
    world = World(job=job(spec=spec(recovery={"rules": [{"name": "mine", **NEVER_ENDS}]})))
    waits = []
    for _ in range(3):
        warn(world)
        world.one_pass()
        not_before = world.job.status.recovery.not_before_time
        waits.append((not_before - world.now).total_seconds() if not_before else 0.0)
        leave(world, step=1)
    assert waits[0] == 0.0
    assert 5 <= waits[1] <= 10
    assert 10 <= waits[2] <= 20


def test_a_gang_that_finds_no_other_node_than_the_one_that_warns_trains_on_there() -> None:
    world = warns({"when": HOLD, "action": "AvoidNode"})
    world.one_pass()
    leave(world, step=10)
    warn(world, step=20)
    world.settle()
    assert (world.job.status.attempt, world.job.status.recovery.stage) == (2, None)
    assert condition(world, "Degraded") == ("True", "GPUWarning")


def test_pods_save_where_a_warning_uses_the_budget_up() -> None:
    recovery = {"rules": [{"name": "mine", **NEVER_ENDS}], "maxInfrastructureRestarts": 0}
    world = World(job=job(spec=spec(recovery=recovery)))
    warn(world)
    plan = world.one_pass()
    assert world.job.status.reason == "InfrastructureRestartsExhausted"
    assert {action.grace_seconds for action in plan.actions if isinstance(action, DeletePods)} == {None}
    leave(world, step=55)
    assert world.job.status.phase == "Failed"
    assert saved(world) == (55, 55)


def test_pods_of_a_gang_that_is_dead_get_no_longer_a_grace_where_an_earlier_one_only_warned() -> None:
    recovery = {"rules": [{"name": "mine", **NEVER_ENDS}], "maxInfrastructureRestarts": 1}
    world = World(job=job(spec=spec(recovery=recovery)))
    warn(world)
    world.one_pass()
    leave(world, step=0)
    world.running()
    world.end(1, 81)
    plan = world.one_pass()
    assert world.job.status.reason == "InfrastructureRestartsExhausted"
    assert {action.grace_seconds for action in plan.actions if isinstance(action, DeletePods)} == {5}


def test_a_warning_is_no_cause_where_something_broke_at_the_same_time() -> None:
    world = warns({"when": HOLD, "action": "AvoidNode"})
    first = world.pods["flux-1-0"].uid
    world.held, world.warnings = {first: ("powerBrake",)}, {first: "GPU 5 was braked"}
    world.nodes = {"node-1": Node(name="node-1", exists=False, ready=False)}
    world.one_pass()
    assert world.job.status.reason == "NodeLost"


def test_a_rule_about_warnings_moves_the_gang_and_its_pods_save_first() -> None:
    world = warns({"when": HOLD, "action": "AvoidNode"})
    plan = world.one_pass()
    assert (world.job.status.attempt, world.job.status.reason) == (2, "GPUWarning")
    assert [(node.name, node.strict) for node in world.job.status.avoided_nodes] == [("node-1", False)]
    assert not [action for action in plan.actions if isinstance(action, CordonNode)]
    assert world.job.status.restarts.infrastructure == 1
    fault = world.job.status.last_fault
    assert fault
    assert fault.action == "started again, rather elsewhere (rule rule-0)"
    assert (fault.verdict, fault.node_name, fault.fault_class) == ("Hold", "node-1", "GPU")
    deleted = [action for action in world.one_pass().actions if isinstance(action, DeletePods)]
    assert {action.grace_seconds for action in (*plan.actions, *deleted) if isinstance(action, DeletePods)} == {None}


def test_a_rule_about_warnings_ends_the_job_and_its_pods_save_first() -> None:
    world = warns({"when": HOLD, "action": "Fail"})
    plan = world.one_pass()
    assert (world.job.status.recovery.stage, world.job.status.reason) == ("Stopping", "GPUWarning")
    assert {action.grace_seconds for action in plan.actions if isinstance(action, DeletePods)} == {None}
    leave(world, step=55)
    assert (world.job.status.phase, world.job.status.reason) == ("Failed", "GPUWarning")
    assert saved(world) == (55, 55)


@pytest.mark.parametrize(
    "rules",
    [
        [],
        [{"when": {"classes": ["GPU"]}, "action": "Fail"}],
        [{"when": {"nodeNames": ["node-1"]}, "action": "Fail"}],
        [{"when": {"probes": ["thermalSlowdown"]}, "action": "Fail"}],
        [{"when": {"verdict": "ReplaceNode"}, "action": "Fail"}],
        [{"when": {"verdict": "Hold", "probes": ["nvlinkErrors"]}, "action": "Fail"}],
        [{"when": {"verdict": "Hold", "nodeNames": ["node-0"]}, "action": "Fail"}],
        [{"when": HOLD, "action": "Ignore"}, {"when": {"verdict": "Hold"}, "action": "Fail"}],
    ],
    ids=str,
)
def test_a_gpu_that_warns_goes_on_unless_a_rule_asks_for_that_verdict(rules: list[dict[str, Any]]) -> None:
    world = warns(*rules)
    world.one_pass()
    assert (world.job.status.attempt, world.job.status.recovery.stage) == (1, None)


@pytest.mark.parametrize(
    ("when", "fits"),
    [
        ({"verdict": "ReplaceNode"}, True),
        ({"verdict": "RestartProcess"}, False),
        ({"verdict": "Hold"}, False),
        ({"probes": ["xid"]}, True),
        ({"probes": ["ecc"]}, False),
    ],
    ids=str,
)
def test_a_rule_is_about_what_the_fault_calls_for_and_which_probe_told_it(when: dict[str, Any], fits: bool) -> None:  # noqa: FBT001
    world = broken(80, {"when": when, "action": "Fail"}, xid=79)
    world.one_pass()
    assert (world.job.status.recovery.stage == "Stopping") == fits


def test_a_rule_about_warnings_is_bounded_like_any_fault_of_a_node() -> None:
    rules = [{"name": "strict", "when": {"verdict": "Hold"}, "action": "RestartProcess"}]
    limits = {"rules": rules, "maxInfrastructureRestarts": 2, "maxRestartsWithoutProgress": 100}
    world = World(job=job(spec=spec(recovery=limits)))
    for _ in range(10):
        if world.job.status.completion_time is not None:
            break
        world.now += timedelta(seconds=400)
        world.running()
        world.held = {pod.uid: ("powerBrake",) for pod in world.pods.values()}
        world.one_pass()
        world.held = {}
        world.kubelets()
        world.settle()
    assert world.job.status.reason == "InfrastructureRestartsExhausted"
