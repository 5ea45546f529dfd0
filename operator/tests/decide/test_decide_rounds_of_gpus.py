"""A GPU that asks for new processes costs a round, and its strikes are counted as those of attempts are."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from jobs import job, spec
from worlds import World

from oarlock_api.contract.struck_gpu import StruckGpu
from oarlock_operator.model.observation import Program
from oarlock_operator.model.observed_nodes import Node, NodeStrike, Pool
from oarlock_operator.model.plan import CordonNode, NoteStrike, Plan

POOL = Pool(size=20, schedulable=20)


def world(**recovery: object) -> World:
    one = World(
        job=job(spec=spec(recovery={"inPlace": "Auto", "maxRestartsWithoutProgress": 50, **recovery})),
        may_cordon=True,
        pool=POOL,
    )
    one.defaults = replace(one.defaults, keys=(b"k" * 32,))
    one.running()
    return one


def struck(one: World, *, uuid: str = "GPU-5", xid: int = 94, other_gpus: bool = False) -> Plan:
    """A round ends by this GPU, and the next one trains; returns what follows."""
    gpu = StruckGpu(index=5, uuid=uuid, xid=xid)
    one.end_round(81, rank=1, why=f"GPU 5 ({uuid}) XID {xid}", gpu=gpu, other_gpus=other_gpus)
    one.step(20)
    plans = [one.one_pass() for _ in range(3)]
    return Plan(
        actions=tuple(action for plan in plans for action in plan.actions),
        events=tuple(event for plan in plans for event in plan.events),
    )


def cordoned(plan: Plan) -> list[str]:
    return [action.node for action in plan.actions if isinstance(action, CordonNode)]


def test_the_first_strike_of_a_gpu_costs_a_round_and_blames_no_node() -> None:
    one = world()
    plan = struck(one)
    status = one.job.status
    assert (status.attempt, status.round, status.avoided_nodes) == (1, 2, ())
    assert [(s.gpu_uuid, s.count, s.last_attempt, s.last_round) for s in status.strikes] == [("GPU-5", 1, 1, 1)]
    assert [a.node for a in plan.actions if isinstance(a, NoteStrike)], "other jobs hear of it"
    fault = status.last_fault
    assert fault is not None
    assert (fault.verdict, fault.xid, fault.gpu and fault.gpu.uuid) == ("RestartProcess", 94, "GPU-5")
    assert fault.action == "ranks started again in their pods"
    assert status.restarts.infrastructure == 1


def test_the_second_strike_within_a_day_takes_its_node_and_starts_the_gang_elsewhere() -> None:
    one = world()
    struck(one)
    plan = struck(one)
    assert cordoned(plan) == ["node-1"]
    (avoided,) = one.job.status.avoided_nodes
    assert (avoided.name, avoided.strict) == ("node-1", True)
    one.kubelets()
    one.settle()
    assert one.job.status.attempt == 2
    assert one.job.status.strikes[0].count == 2, "what its pods say when they are told to go is no third one"


def test_a_strike_of_a_round_and_one_that_ends_the_attempt_are_two() -> None:
    one = world()
    struck(one)
    one.end(1, 81, uuid="GPU-5", xid=94)
    for _ in range(3):
        one.one_pass()
        one.kubelets()
    assert one.job.status.strikes[0].count == 2
    assert [node.name for node in one.job.status.avoided_nodes] == ["node-1"]


@pytest.mark.parametrize("xid", [31, 94])
def test_what_other_gpus_met_in_the_same_round_is_the_programs_however_often(xid: int) -> None:
    one = world()
    plans = [struck(one, xid=xid, other_gpus=True) for _ in range(3)]
    assert not any(isinstance(action, NoteStrike | CordonNode) for plan in plans for action in plan.actions)
    assert (one.job.status.attempt, one.job.status.avoided_nodes) == (1, ())
    assert "the program's own" in (one.job.status.rounds[-1].message or "")


def test_what_follows_the_rank_from_gpu_to_gpu_is_the_programs() -> None:
    one = world()
    for uuid in ("GPU-5", "GPU-6", "GPU-5"):
        assert cordoned(struck(one, uuid=uuid)) == []
    assert one.job.status.attempt == 1


def test_what_programs_mostly_cause_on_one_gpu_again_and_again_starts_the_gang_rather_elsewhere() -> None:
    one = world()
    struck(one, xid=31)
    assert cordoned(struck(one, xid=31)) == []
    (avoided,) = one.job.status.avoided_nodes
    assert (avoided.name, avoided.strict, one.job.status.attempt) == ("node-1", False, 2)


def test_what_the_gpu_did_to_another_job_counts_too() -> None:
    one = world()
    before = NodeStrike("GPU-5", one.now - timedelta(hours=3), "uid-of-another", 31)
    one.nodes["node-1"] = Node(name="node-1", strikes=(before,))
    assert cordoned(struck(one, xid=31)) == ["node-1"]


def test_a_rule_of_the_jobs_own_decides_and_nothing_is_counted() -> None:
    one = world(rules=[{"name": "known", "when": {"xids": [94]}, "action": "Ignore"}])
    struck(one)
    status = one.job.status
    assert (status.strikes, status.restarts.infrastructure) == ((), 0)
    assert "rule known" in (status.rounds[0].message or "")


@pytest.mark.parametrize(
    "odd",
    [
        pytest.param({"keyed": False}, id="no key"),
        pytest.param({"images": ("somebody/else:1",)}, id="another program than rank 0's"),
    ],
)
def test_rank_0_is_not_believed_about_a_driver_in_a_pod_that_it_cannot_know(odd: dict[str, object]) -> None:
    one = world()
    for name, pod in one.pods.items():
        if pod.rank == 1 or "keyed" in odd:
            one.pods[name] = replace(pod, program=replace(pod.program, **odd))
    struck(one)
    assert one.job.status.strikes == ()
    assert one.job.status.round == 2, "the round itself is booked"


def test_what_happened_before_a_pod_was_placed_was_not_its_nodes() -> None:
    one = world()
    later = replace(one.pods["flux-1-1"], placed_at=one.now + timedelta(seconds=1))
    one.pods["flux-1-1"] = later
    struck(one)
    assert one.job.status.strikes == ()


def test_a_pod_whose_program_nobody_vouches_for_takes_no_node_from_others() -> None:
    one = world()
    for name, pod in one.pods.items():
        one.pods[name] = replace(pod, program=Program(images=("somebody/else:1",), keyed=True))
    struck(one)
    plan = struck(one)
    assert cordoned(plan) == []
    assert "CordonRefused" in [event.reason for event in plan.events]
    assert one.job.status.avoided_nodes[0].strict, "its own gang keeps off it"


def test_a_node_that_could_not_be_written_hears_of_the_strike_a_little_later() -> None:
    one = world()
    struck(one)
    noted = [a for a in one.one_pass().actions if isinstance(a, NoteStrike)]
    assert [a.node for a in noted] == ["node-1"]
    one.now += timedelta(minutes=2)
    assert not [a for a in one.one_pass().actions if isinstance(a, NoteStrike)]
