"""Gangs with spares, or that go on with fewer nodes, under an operator that may die after any write: what always holds.

Their leader is played: it goes on with whoever is there, as the agents' would.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jobs import job, spec
from world_writes import Killed
from worlds import World

from oarlock_api.contract.rounds import LostPod
from oarlock_local.pytest_tiers import examples
from oarlock_operator.model.observation import Defaults, Pod
from oarlock_operator.model.observed_nodes import Node, Pool

KEYED = Defaults(trainer_image="trainer:test", cluster_id="lab", keys=(b"k" * 32,))
NODES = 3
TRAINING = spec().to_manifest(defaults=False)["training"] | {"effectiveBatch": 12}
GANGS: dict[str, dict[str, Any]] = {
    "a spare": {"spares": 1},
    "elastic": {"elastic": {"minNodes": 1}, "training": TRAINING},
    "elastic, and a spare": {"spares": 1, "elastic": {"minNodes": 2}, "training": TRAINING},
}


@dataclass
class Gang(World):
    """A world whose gang has a leader. `members` are its rounds' newest, by attempt."""

    members: dict[int, tuple[int, ...]] = field(default_factory=dict)
    trained: dict[int, str] = field(default_factory=dict)
    """Rank -> uid of the pod that has its place."""
    met: dict[tuple[int, int], int] = field(default_factory=dict)
    """(attempt, rank) -> the newest pod of it that the leader was linked to. It can lose no other."""
    losses: int = 0

    def here(self) -> dict[int, Pod]:
        """Rank -> the pod that works, of the attempt."""
        number = self.job.status.attempt
        pods = sorted((pod for pod in self.pods.values() if pod.attempt == number), key=lambda pod: pod.incarnation)
        newest = {pod.rank: pod for pod in pods}
        lost = {node.name for node in self.nodes.values() if not node.ready}
        works = {rank: pod for rank, pod in newest.items() if pod.started and not (pod.stopped or pod.deleting)}
        return {rank: pod for rank, pod in works.items() if pod.node not in lost}

    def place(self, pod: Pod) -> str:
        """A node that works."""
        names = (f"node-{pod.rank}", *(f"spare-{pod.rank}-{count}" for count in range(99)))
        return next(name for name in names if (known := self.nodes.get(name)) is None or known.ready)

    def lead(self) -> None:
        """Rank 0's agent begins a round where it can and has to, and tells of it."""
        number, here = self.job.status.attempt, self.here()
        self.progress = None
        if 0 not in here or not number:
            return
        self.met |= {(number, rank): pod.incarnation for rank, pod in here.items()}
        before = self.members.setdefault(number, tuple(range(NODES)))
        now = self.chosen(here, before)
        anew = any(here[rank].uid != known for rank in before if rank in here and (known := self.trained.get(rank)))
        if now and (now != before or anew):
            gone = [rank for rank in before if rank not in here or here[rank].uid != self.trained.get(rank)]
            size = {"nodes": len(now)} if len(now) != len(before) else {}
            spare = len(now) <= len(before) and not {*now} <= {*before}
            if gone:
                self.end_round(82, rank=gone[0], step=10, resumed_step=5, lost_pod=True, spare=spare, **size)
            else:
                self.end_round(86, rank=0, step=10, resumed_step=10, **size)
            self.members[number] = now
        if now:
            self.trained = {rank: here[rank].uid for rank in now}
        self.step(12)
        lost = [
            (rank, self.met[number, rank])
            for rank in range(self.size())
            if rank not in here and (number, rank) in self.met
        ]
        told = tuple(LostPod(rank=rank, incarnation=count, code=82, why="silent") for rank, count in lost)
        usual = tuple(range(NODES))
        if self.progress:
            members = self.members[number]
            self.progress = replace(self.progress, members=() if members == usual else members, lost=told[:9])

    def chosen(self, here: Collection[int], before: tuple[int, ...]) -> tuple[int, ...]:
        """Who trains next: whoever is there keeps its place, and others come in."""
        wanted = self.job.spec
        least = wanted.elastic.min_nodes if wanted and wanted.elastic else NODES
        size = min(NODES, len(here))
        if size < least:
            return ()
        stay = [rank for rank in before if rank in here][:size]
        return tuple(sorted([*stay, *[rank for rank in sorted(here) if rank not in stay][: size - len(stay)]]))

    def size(self) -> int:
        """Pods of the attempt."""
        return (
            next((one.node_count for one in self.job.status.attempts if one.number == self.job.status.attempt), NODES)
            or NODES
        )


def killed(rank: int) -> Callable[[Gang], None]:
    def act(world: Gang) -> None:
        if rank in world.here():
            world.losses += 1
            world.end(rank, 137, with_report=False)
            world.progress = None

    return act


def node_lost(rank: int) -> Callable[[Gang], None]:
    def act(world: Gang) -> None:
        if pod := world.here().get(rank):
            world.losses += 1
            world.nodes[pod.node] = Node(name=pod.node, ready=False, unreachable=True, boot_id="1")
            world.progress = None

    return act


def vanishes(rank: int) -> Callable[[Gang], None]:
    def act(world: Gang) -> None:
        if rank in world.here():
            world.losses += 1
            number = world.job.status.attempt
            world.pods = {name: p for name, p in world.pods.items() if (p.attempt, p.rank) != (number, rank)}
            world.progress = None

    return act


def waits(world: Gang) -> None:
    world.kubelets()
    world.now += timedelta(seconds=61)


def starts(world: Gang) -> None:
    world.kubelets()
    world.start_all()


def heals(world: Gang) -> None:
    world.nodes = {name: Node(name=name, boot_id="2") for name in world.nodes}


ACTS: dict[str, Callable[[Gang], None]] = {
    **{f"{rank} is killed": killed(rank) for rank in range(4)},
    **{f"the node of {rank} is lost": node_lost(rank) for rank in range(4)},
    **{f"{rank} vanishes": vanishes(rank) for rank in range(4)},
    "they start": starts,
    "the leader goes on": Gang.lead,
    "the leader is heard no more": lambda world: setattr(world, "progress", None),
    "a minute": waits,
    "nodes are well": heals,
}
OFTEN = ["they start", "the leader goes on", "the leader goes on"]


def gang(kind: str) -> Gang:
    recovery = {"inPlace": "Auto", "maxInfrastructureRestarts": 4, "maxApplicationRestarts": 2, "backoffSeconds": 1}
    world = Gang(job=job(spec=spec(nodes=NODES, recovery=recovery, **GANGS[kind])), defaults=KEYED)
    world.may_cordon, world.pool = True, Pool(size=20, schedulable=20)
    world.settle()
    world.start_all()
    world.settle()
    world.lead()
    world.settle()
    return world


def live(world: Gang, act: str, kill: int | None) -> None:
    """Something happens, and the operator sees to it; it may be killed meanwhile, and started again."""
    if world.job.status.completion_time is None:
        ACTS[act](world)
    if kill is not None:
        world.kill_at = world.writes + kill
        try:
            world.settle(passes=4)
        except Killed:
            world.progress = None
        world.kill_at = None
    world.settle()


@settings(max_examples=examples(100), deadline=None)
@given(
    kind=st.sampled_from([*GANGS]),
    acts=st.lists(st.sampled_from([*ACTS, *OFTEN]), max_size=14),
    kills=st.lists(st.integers(1, 6), max_size=14),
)
def test_each_loss_is_charged_once_at_most_and_in_the_end_all_pods_are_there_again(
    kind: str, acts: list[str], kills: list[int]
) -> None:
    # That no name is given twice, nor two pods of a rank live, is held by World at every write.
    world = gang(kind)
    for number, act in enumerate(acts):
        live(world, act, kills[number] if number < len(kills) else None)
    counts = world.job.status.restarts
    assert counts.application + counts.infrastructure <= world.losses, "nothing is charged that did not happen"
    assert counts.voluntary == counts.evictions == 0, "nobody asked for anything"
    for _ in range(8):
        for act in ("nodes are well", "a minute", "they start", "the leader goes on"):
            live(world, act, None)
    status = world.job.status
    if status.completion_time is None:
        assert (status.recovery.stage, status.recovery.replacing) == (None, ())
        assert sorted(world.here()) == list(range(world.size()))
        assert len(status.standby) == world.size() - NODES, "the gang is whole"


SCENARIOS: dict[str, tuple[str, tuple[str, ...]]] = {
    "a spare takes a place": (
        "a spare",
        ("the node of 1 is lost", "the leader goes on", "a minute", "they start", "the leader goes on"),
    ),
    "the leader is quicker": ("a spare", ("1 is killed", "a minute", "they start", "the leader goes on")),
    "a spare is lost": ("a spare", ("3 is killed", "a minute", "they start", "the leader goes on")),
    "fewer nodes, then all": (
        "elastic",
        (
            "the node of 2 is lost",
            "the leader goes on",
            "a minute",
            "they start",
            "the leader goes on",
            "the leader goes on",
        ),
    ),
    "one after the other": (
        "elastic",
        (
            "the node of 2 is lost",
            "the leader goes on",
            "the node of 1 is lost",
            "the leader goes on",
            "a minute",
            "they start",
            "the leader goes on",
            "the leader goes on",
        ),
    ),
}


def run(name: str, kill_at: int | None) -> Gang:
    kind, acts = SCENARIOS[name]
    world = gang(kind)
    world.kill_at = None if kill_at is None else world.writes + kill_at
    for act in acts:
        ACTS[act](world)
        try:
            world.settle()
        except Killed:
            world.settle()
    return world


@cache
def undisturbed(name: str) -> tuple[Gang, int]:
    return (world := run(name, None)), world.writes - gang(SCENARIOS[name][0]).writes


def last_state(world: Gang) -> dict[str, object]:
    status = world.job.status
    return {
        "state": (status.phase, status.reason, status.attempt, status.recovery.stage, status.standby),
        "replacing": [one.rank for one in status.recovery.replacing],
        "rounds": [(one.round, one.rung, one.rank, one.node_count) for one in status.rounds],
        "restarts": status.restarts.model_dump(exclude={"window_start_time"}),
        "pods": sorted((pod.attempt, pod.rank, pod.stopped) for pod in world.pods.values() if not pod.deleting),
    }


@pytest.mark.parametrize(
    ("name", "kill_at"), [(name, k) for name in SCENARIOS for k in range(1, undisturbed(name)[1] + 1)]
)
def test_a_kill_after_any_write_leads_to_the_same_end(name: str, kill_at: int) -> None:
    assert last_state(run(name, kill_at)) == last_state(undisturbed(name)[0])


def test_the_scenarios_end_as_their_names_say() -> None:
    booked = {name: [one.rung for one in undisturbed(name)[0].job.status.rounds] for name in SCENARIOS}
    assert booked == {
        "a spare takes a place": ["TakeSpare"],
        "the leader is quicker": ["ReplacePod"],
        "a spare is lost": [],
        "fewer nodes, then all": ["Shrink", "Grow"],
        "one after the other": ["Shrink", "Shrink", "Grow"],
    }
    assert {undisturbed(name)[0].job.status.attempt for name in SCENARIOS} == {1}
