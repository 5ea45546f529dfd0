"""Evictions and endings by request cost no budget; but whatever ends attempts, the job makes progress, or it fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jobs import job, spec
from world_writes import told_to_stop
from worlds import World, condition

from oarlock_operator.model.observation import Ending
from oarlock_operator.model.observed_nodes import Node

OVERRUN = "Pod ephemeral local storage usage exceeds the total limit of containers 8Gi."
CUSTOM = {"training": None, "custom": {"command": ["python", "train.py"]}, "pod": {"image": "mine:1"}}


def change(world: World, rank: int, **changes: object) -> None:
    name = f"flux-{world.job.status.attempt}-{rank}"
    world.pods[name] = replace(world.pods[name], **changes)  # type: ignore[arg-type]


def overran(world: World) -> None:
    change(world, 1, own_limit=OVERRUN, ending=Ending(137, "Error"))


def left_unasked(world: World) -> None:
    for rank in (0, 1):
        world.end(rank, 86)


def evicted(world: World) -> None:
    """Both save, as the agents of a gang do of which one is told to go."""
    change(world, 1, disrupted="EvictionByEvictionAPI", deleting=True)
    left_unasked(world)


def tainted(world: World) -> None:
    change(world, 1, disrupted="DeletionByTaintManager", tainted=True, deleting=True)
    left_unasked(world)


def short_of_memory(world: World) -> None:
    change(world, 0, disrupted="TerminationByKubelet", ending=Ending(None, "Evicted"))


def disappeared(world: World) -> None:
    del world.pods[f"flux-{world.job.status.attempt}-1"]


def node_gone(world: World) -> None:
    change(world, 1, node_lost=True, deleting=True)


def exits(code: int) -> Callable[[World], None]:
    return lambda world: world.end(0, code)


ENDINGS: dict[str, Callable[[World], None]] = {
    "overran": overran,
    "left unasked": left_unasked,
    "evicted": evicted,
    "tainted": tainted,
    "node short of memory": short_of_memory,
    "disappeared": disappeared,
    "node gone": node_gone,
    **{f"exits with {code}": exits(code) for code in (1, 80, 81, 82, 83, 84, 85, 86, 87, 88, 137)},
}


def live_through(world: World, endings: Sequence[str], *, training: Sequence[bool]) -> None:
    """Attempt after attempt ends so, whether it trained before or not; none of them saves anything."""
    for ending, trains in zip(endings, training, strict=True):
        if world.job.status.completion_time is not None:
            return
        if trains:
            world.running()
        else:
            world.settle()
            world.start_all()
            world.settle()
        ENDINGS[ending](world)
        next_gang(world, after=world.job.status.attempt)


def next_gang(world: World, *, after: int) -> None:
    """Until it is made, or never will be: a victim's word alone is waited after, then the pods' end, then the backoff."""
    for seconds in (2, 301, 301):
        world.settle()
        world.kubelets()
        world.settle()
        if any(pod.attempt > after for pod in world.pods.values()):
            return
        world.now += timedelta(seconds=seconds)


@pytest.mark.parametrize("custom", [{}, CUSTOM], ids=["built in", "custom"])
@pytest.mark.parametrize("ending", sorted(set(ENDINGS)))
def test_no_way_of_ending_is_repeated_for_ever(ending: str, custom: dict[str, object]) -> None:
    world = World(job=job(spec=spec(**custom)))
    live_through(world, [ending] * 40, training=[True] * 40)
    assert world.job.status.phase == "Failed", f"attempt {world.job.status.attempt}"
    assert world.job.status.attempt <= 31


@settings(deadline=None, max_examples=25)
@given(
    rules=st.sampled_from([[], [{"name": "all", "when": {"exitCodes": [1, 81, 84, 86]}, "action": "Ignore"}]]),
    life=st.lists(st.tuples(st.sampled_from(sorted(ENDINGS)), st.booleans()), min_size=80, max_size=80),
)
def test_whatever_ends_attempts_a_job_makes_progress_or_fails(rules: object, life: list[tuple[str, bool]]) -> None:
    world = World(job=job(spec=spec(recovery={"rules": rules})))
    live_through(world, [ending for ending, _ in life], training=[trains for _, trains in life])
    assert world.job.status.phase == "Failed", world.job.status.restarts


@pytest.mark.parametrize("ending", ["evicted", "tainted", "node short of memory"])
def test_evictions_cost_no_budget_and_thirty_in_a_row_without_a_checkpoint_end_the_job(ending: str) -> None:
    world = World(job=job(spec=spec(recovery={"maxApplicationRestarts": 0, "maxInfrastructureRestarts": 0})))
    live_through(world, [ending] * 30, training=[True] * 30)
    assert (world.job.status.attempt, world.job.status.restarts.evictions) == (31, 30)
    world.running()
    ENDINGS[ending](world)
    world.settle()
    world.kubelets()
    world.settle()
    assert (world.job.status.phase, world.job.status.reason) == ("Failed", "NoProgress")


def test_a_gang_that_saves_when_it_is_evicted_may_be_evicted_for_ever() -> None:
    world = World()
    for count in range(1, 41):
        world.running(step=100 * count, resumed=100 * count - 50, saved=100 * count)
        evicted(world)
        world.settle()
        world.kubelets()
        world.now += timedelta(seconds=1)
        world.settle()
    assert (world.job.status.attempt, world.job.status.restarts.evictions) == (41, 0)


def test_a_pod_that_broke_its_own_limit_is_the_applications_fault_and_its_kubelets_words_are_told() -> None:
    world = World()
    world.running()
    overran(world)
    world.one_pass()
    status = world.job.status
    assert (status.reason, status.restarts.application, status.restarts.voluntary) == ("LimitExceeded", 1, 0)
    assert OVERRUN in (status.message or "")
    assert status.last_fault is not None
    assert status.last_fault.fault_class == "Application"


def test_a_program_that_ends_as_on_request_though_nobody_asked_made_no_progress() -> None:
    world = World(job=job(spec=spec(**CUSTOM, recovery={"maxRestartsWithoutProgress": 2})))
    live_through(world, ["left unasked"] * 3, training=[True] * 3)
    assert (world.job.status.phase, world.job.status.reason) == ("Failed", "NoProgress")


def train_under_a_taint(node: Node | None, *, answers: bool) -> World:
    """A pod that trains is deleted for a NoExecute taint, with five minutes to save."""
    world = World()
    world.running()
    world.pods["flux-1-1"] = told_to_stop(world.pods["flux-1-1"], 300, now=world.now)
    change(world, 1, disrupted="DeletionByTaintManager", tainted=True)
    if node is not None:
        world.nodes["node-1"] = node
    world.answering = frozenset(pod.uid for pod in world.pods.values()) if answers else frozenset()
    world.one_pass()
    return world


@pytest.mark.parametrize(
    ("node", "answers"),
    [(Node(name="node-1"), False), (Node(name="node-1"), True), (None, True)],
    ids=["the node is ready", "and the pod answers", "no right on nodes, and the pod answers"],
)
def test_a_taint_on_a_node_that_works_leaves_the_gang_its_grace_to_save(node: Node | None, answers: bool) -> None:  # noqa: FBT001
    world = train_under_a_taint(node, answers=answers)
    assert world.job.status.attempt == 1
    assert not world.pods["flux-1-0"].deleting
    left_unasked(world)
    world.settle()
    status = world.job.status
    assert (status.attempt, status.attempts[-1].reason) == (2, "Evicted")
    assert (status.restarts.voluntary, status.restarts.infrastructure) == (1, 0)
    assert not status.avoided_nodes


@pytest.mark.parametrize(
    ("node", "answers"),
    [
        (Node(name="node-1", ready=False, unreachable=True), True),
        (Node(name="node-1", exists=False, ready=False), False),
        (None, False),
    ],
    ids=["unreachable for longer than is tolerated", "gone", "no right on nodes, and no answer"],
)
def test_a_taint_on_a_node_that_does_not_work_is_a_lost_node(node: Node | None, answers: bool) -> None:  # noqa: FBT001
    world = train_under_a_taint(node, answers=answers)
    assert (world.job.status.attempt, world.job.status.reason) == (2, "NodeLost")


def test_a_job_that_was_evicted_says_so_while_it_waits() -> None:
    world = World()
    world.running()
    evicted(world)
    world.settle()
    assert condition(world, "Recovering") == ("True", "Evicted")
