"""The operator may die after any write, and the world may do anything meanwhile: the invariants of recovery hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jobs import job, spec
from world_writes import Killed, incarnation
from worlds import World

from oarlock_local.pytest_tiers import examples
from oarlock_operator.decide.slow_rank import AGAIN
from oarlock_operator.model.node_maintenance import Maintenance
from oarlock_operator.model.observation import Defaults
from oarlock_operator.model.observed_nodes import Node, Pool


def living(world: World) -> list[int]:
    """Ranks of the current attempt that may still do something."""
    return [p.rank for p in world.pods.values() if p.attempt == world.job.status.attempt and not p.stopped]


def wish(world: World, *, suspend: bool) -> None:
    """Somebody edits spec.suspend."""
    raw = world.job.spec.to_manifest() if world.job.spec else {}
    world.job = replace(world.job, spec=spec(**{**raw, "suspend": suspend}))


def lose_node(world: World) -> None:
    """The node of one running pod is not heard from any more."""
    for pod in world.pods.values():
        if pod.attempt == world.job.status.attempt and not pod.stopped and pod.node:
            world.nodes[pod.node] = Node(name=pod.node, ready=False, unreachable=True, boot_id="1")
            return


def node_not_ready(world: World) -> None:
    """A kubelet says that its node is not ready: it may still stop what runs there."""
    if 1 in living(world) and (node := world.pod(1).node):
        world.nodes[node] = Node(name=node, ready=False, boot_id="1")
        world.progress = None


def live_on(world: World, act: str) -> None:
    """One thing that happens outside the operator."""
    if act.isdigit():
        if ranks := living(world):
            world.end(ranks[-1], int(act))
    else:
        HAPPENINGS[act](world)


def break_gpu(world: World, code: int, xid: int) -> None:
    """A GPU's driver speaks, and its pod ends for it."""
    if ranks := living(world):
        world.end(ranks[-1], code, xid=xid, uuid="GPU-5")


def vanish(world: World) -> None:
    """Somebody deletes a pod by force."""
    ranks = living(world)
    gone = [name for name, pod in world.pods.items() if ranks and (pod.attempt, pod.rank) == (attempt(world), ranks[0])]
    for name in gone:
        del world.pods[name]
    world.progress = None


def attempt(world: World) -> int:
    return world.job.status.attempt


def wait(world: World, seconds: int) -> None:
    # Kubelets work in this world: a pod that is told to stop does. Dead ones have a test of their own.
    world.kubelets()
    world.now += timedelta(seconds=seconds)


def step(world: World) -> None:
    if 0 in living(world):
        world.step(10)


def mark(world: World, *, spares: bool) -> None:
    world.spares = spares
    world.nodes = {
        **world.nodes,
        "node-1": Node(name="node-1", boot_id="1", maintenance=Maintenance("cordoned", enforced=True)),
    }


def slow(world: World, pod: int) -> None:
    """Rank 0 calls a rank slow while another node is free."""
    if 0 in living(world):
        world.step(10)
        world.progress = replace(world.progress, slow_pod=pod) if world.progress else None
        world.spares = True


def kill_pod(world: World, rank: int) -> None:
    """A pod is killed with its agent, which says nothing."""
    if rank in living(world):
        world.end(rank, 137, with_report=False)
        world.progress = None


def lead_on(world: World) -> None:
    """The gang is whole: its leader begins another round where one ended for a lost pod, and tells of its first step."""
    replacing = world.job.status.recovery.replacing
    here = {(pod.rank, pod.incarnation) for pod in world.pods.values() if pod.started and not pod.stopped}
    if not replacing or not all((one.rank, one.incarnation) in here for one in replacing):
        return
    for one in replacing:
        world.end_round(82, rank=one.rank, step=10, resumed_step=5, lost_pod=True)
    if 0 in living(world):
        world.step(6)


def ranks_fail(world: World, code: int) -> None:
    """The ranks of the gang end, and start anew in their pods; its leader tells when it is asked next."""
    if {0, 1} <= {*living(world)} and all(world.pod(rank).started for rank in (0, 1)):
        reached = 5 * world.job.status.attempt
        world.end_round(code, step=reached + 5, resumed_step=reached)
        world.step(reached)


def members(world: World, *ranks: int) -> None:
    """The round that rank 0 tells of has these pods, where they are there."""
    if {*ranks} <= {*living(world)}:
        world.step(12)
        world.progress = replace(world.progress, members=ranks) if world.progress else None


def heal(world: World) -> None:
    world.nodes = {name: Node(name=name, boot_id="2") for name in world.nodes}


HAPPENINGS: dict[str, Callable[[World], None]] = {
    "start": World.start_all,
    "kubelets": World.kubelets,
    "wait": lambda world: wait(world, 61),
    "an hour": lambda world: wait(world, 3600),
    "step": step,
    "vanish": vanish,
    "suspend": lambda world: wish(world, suspend=True),
    "resume": lambda world: wish(world, suspend=False),
    "lose a node": lose_node,
    "a node is not ready": node_not_ready,
    "nodes are well": heal,
    "a GPU breaks": lambda world: break_gpu(world, 80, 79),
    "a GPU errs": lambda world: break_gpu(world, 81, 31),
    "cordon": lambda world: mark(world, spares=False),
    "cordon, and a spare": lambda world: mark(world, spares=True),
    "a slow rank": lambda world: slow(world, 1),
    "rank 0 is slow": lambda world: slow(world, 0),
    "ranks crash": lambda world: ranks_fail(world, 1),
    "ranks are told to restart": lambda world: ranks_fail(world, 81),
    "ranks blame a node": lambda world: ranks_fail(world, 80),
    "the clock steps back": lambda world: setattr(world, "now", world.now - timedelta(seconds=90)),
    "a pod is killed": lambda world: kill_pod(world, 1),
    "rank 0 is killed": lambda world: kill_pod(world, 0),
    "the gang is whole": lead_on,
    "a spare takes a place": lambda world: members(world, 0, 2),
    "they go on without rank 1": lambda world: members(world, 0),
    "quota": lambda world: setattr(world, "hindrance", "exceeded quota"),
    "no quota": lambda world: setattr(world, "hindrance", ""),
}
CODES = ["0", "1", "80", "81", "82", "83", "84", "85", "86", "87", "88"]
ROUNDS = ["ranks crash", "ranks are told to restart", "ranks blame a node"]
OTHERS = [
    "start",
    "kubelets",
    "wait",
    "an hour",
    "step",
    "vanish",
    "suspend",
    "resume",
    "the clock steps back",
    "1",
    "82",
]
ACTS = st.lists(st.sampled_from([*HAPPENINGS, *CODES]), max_size=16)
BUDGETS = {"maxApplicationRestarts": 2, "maxInfrastructureRestarts": 2, "slowRank": "Migrate"}


REPLACES = {"inPlace": "Auto"}
KEYED = Defaults(trainer_image="trainer:test", cluster_id="lab", keys=(b"k" * 32,))
"""With both, lost pods are made anew one by one."""


ELASTIC = {
    "elastic": {"minNodes": 1},
    "training": spec().to_manifest(defaults=False)["training"] | {"effectiveBatch": 8},
}
GANGS: dict[str, dict[str, Any]] = {
    "made anew as a whole": {"recovery": {"inPlace": "Never"}},
    "made anew one by one": {"recovery": REPLACES},
    "with a spare": {"recovery": REPLACES, "spares": 1},
    "elastic": {"recovery": REPLACES, **ELASTIC},
    "elastic, with a spare": {"recovery": REPLACES, "spares": 1, **ELASTIC},
}
"""What jobs may ask for."""


def play(acts: list[str], kills: list[int], *, gang: str = "", **recovery: object) -> World:
    """A world in which all that happened, with the operator killed now and then; every write is checked by World."""
    asked = GANGS.get(gang, {})
    wanted = spec(
        **{**asked, "recovery": BUDGETS | asked.get("recovery", {}) | recovery},
        scheduling={"placementTimeoutSeconds": 600},
    )
    world = World(job=job(spec=wanted), defaults=KEYED, may_cordon=True, pool=Pool(size=20, schedulable=20))
    for number, act in enumerate(acts):
        if world.job.status.completion_time is None:
            live_on(world, act)
        if number < len(kills):
            world.kill_at = world.writes + kills[number]
            try:
                world.settle(passes=4)
            except Killed:
                world.progress = None
            world.kill_at = None
        world.settle()
    return world


@settings(max_examples=examples(400), deadline=None)
@given(acts=ACTS, kills=st.lists(st.integers(1, 6), max_size=16), gang=st.sampled_from([*GANGS]))
def test_whatever_happens_attempts_rise_gangs_never_overlap_and_ends_are_clean(
    acts: list[str], kills: list[int], gang: str
) -> None:
    # The checks stand in World, after every single write.
    world = play(acts, kills, gang=gang)
    status = world.job.status
    assert status.attempt <= len(acts) + 1, "every attempt has its cause"
    moves = [one.start_time for one in status.attempts if one.reason == "SlowRank" and one.start_time]
    assert all(later - earlier >= AGAIN for earlier, later in pairwise(moves)), "for slow ranks it moves once a day"


@settings(max_examples=examples(100), deadline=None)
@given(
    acts=st.lists(st.sampled_from([*ROUNDS, *ROUNDS, *OTHERS]), min_size=2, max_size=12),
    kills=st.lists(st.integers(1, 6), max_size=14),
)
def test_rounds_are_booked_once_and_bounded_by_the_budgets_of_attempts(acts: list[str], kills: list[int]) -> None:
    world = play(["wait", "start", *acts], kills)
    status = world.job.status
    booked = [(one.attempt, one.round) for one in status.rounds]
    happened = [(number, one.number) for number, ends in world.ended.items() for one in ends]
    assert booked == sorted({*booked}), "a round is booked once, in its order"
    assert {*booked} <= {*happened}
    charged = status.restarts.application + status.restarts.infrastructure
    assert charged <= status.restart_count + len(happened), "nothing is charged that did not happen"
    assert max(status.restarts.application, status.restarts.infrastructure) <= 2, "budgets bound rounds and attempts"


LOSSES = ["a pod is killed", "rank 0 is killed", "vanish", "lose a node", "a node is not ready", "a GPU breaks"]
COMES_UP = ["start", "step", "wait"]


@settings(max_examples=examples(300), deadline=None)
@given(
    acts=st.lists(st.sampled_from([*LOSSES, *LOSSES, *ROUNDS, *OTHERS, "start", "the gang is whole"]), max_size=12),
    kills=st.lists(st.integers(1, 6), max_size=15),
)
def test_lost_pods_are_replaced_at_the_cost_of_one_start_each_and_each_replacement_ends(
    acts: list[str], kills: list[int]
) -> None:
    # Never two living pods of one rank, and numbers that only grow: World looks after every single write.
    world = play([*COMES_UP, *acts], kills, **REPLACES)
    status = world.job.status
    lost = sum(act not in COMES_UP for act in acts)
    ended = sum(len(ends) for ends in world.ended.values())
    charged = status.restarts.application + status.restarts.infrastructure
    assert charged <= lost + ended, "nothing is charged that did not happen"
    assert max(status.restarts.application, status.restarts.infrastructure) <= 2, "budgets bound replacements too"
    world.progress = None
    world.nodes = {name: Node(name=name, boot_id="9") for name in world.nodes}
    for _ in range(4):
        world.start_all()
        wait(world, 361)
        world.silent = {pod.uid: 361.0 for pod in world.pods.values() if pod.rank == 0}
        world.settle()
    assert world.job.status.recovery.stage != "Replace", "a standby that nobody ends"


@settings(max_examples=examples(200), deadline=None)
@given(acts=ACTS, kills=st.lists(st.integers(1, 6), max_size=16), gang=st.sampled_from([*GANGS]))
def test_from_any_state_a_job_that_is_left_in_peace_reaches_its_end(
    acts: list[str], kills: list[int], gang: str
) -> None:
    world = play(acts, kills, gang=gang)
    wish(world, suspend=False)
    world.hindrance, world.progress = "", None
    for _ in range(12):
        if world.job.status.completion_time is not None:
            break
        # Fair: nodes come back, kubelets stop what they are told to, what waits is waited for, what runs finishes.
        world.nodes = {name: Node(name=name, boot_id="9") for name in world.nodes}
        world.kubelets()
        world.now += timedelta(seconds=301)
        world.settle()
        world.start_all()
        world.settle()
        for rank in living(world):
            world.end(rank, 0)
        world.settle()
    assert world.job.status.phase in ("Succeeded", "Failed")
    assert not living(world)


Step = Callable[[World], None]
"""One thing that happens to a job. It may be repeated, because the operator may die in the midst of what follows from it."""


def started(world: World) -> None:
    world.kubelets()
    world.start_all()


def crashed(world: World) -> None:
    if world.job.status.attempt == 1 and 1 in living(world):
        world.end(1, 1)


def gpu_broken(world: World) -> None:
    if world.job.status.attempt == 1 and 1 in living(world):
        world.end(1, 80, xid=79)


def gpu_erred(world: World) -> None:
    """The same GPU in the first attempt and in the second."""
    remembered = world.nodes.get("node-1", Node(name="")).strikes
    if world.job.status.attempt <= 2 and 1 in living(world) and len(remembered) < 2:
        world.end(1, 81, xid=94, uuid="GPU-5")


def node_lost(world: World) -> None:
    if world.job.status.attempt == 1 and not world.nodes:
        lose_node(world)


def succeeded(world: World) -> None:
    for rank in living(world):
        world.end(rank, 0)


def slowed(world: World) -> None:
    if world.job.status.attempt == 1:
        slow(world, 1)


def waited(world: World) -> None:
    world.kubelets()
    world.now += timedelta(seconds=61)


def unheard(world: World) -> None:
    """Rank 0's agent does not answer, and its pod runs on."""
    waited(world)
    world.silent = {pod.uid: 61.0 for pod in world.pods.values() if pod.rank == 0}


def suspended(world: World) -> None:
    wish(world, suspend=True)


def resumed(world: World) -> None:
    world.kubelets()
    wish(world, suspend=False)


def retired(world: World) -> None:
    world.now += timedelta(seconds=301)


def round_crashed(world: World) -> None:
    ranks_fail(world, 1)


def round_hung(world: World) -> None:
    ranks_fail(world, 83)


def made_a_step(world: World) -> None:
    if world.job.status.recovery.stage == "FirstStep":
        world.step(5)


def pod_killed(world: World) -> None:
    if incarnation(world.job.status) == 1:
        kill_pod(world, 1)


def leader_killed(world: World) -> None:
    if incarnation(world.job.status) == 1:
        kill_pod(world, 0)


def pods_node_lost(world: World) -> None:
    if incarnation(world.job.status) == 1 and not world.nodes:
        world.progress = None
        lose_node(world)


def whole(world: World) -> None:
    world.kubelets()
    world.start_all()
    if not world.ended:
        lead_on(world)


IN_PLACE: dict[str, object] = {"recovery": {"inPlace": "Auto"}}
TRAINS = (started, made_a_step)

SCENARIOS: dict[str, tuple[dict[str, object], tuple[Step, ...]]] = {
    "start and success": ({}, (started, succeeded)),
    "crash": ({}, (started, crashed, waited, started, succeeded)),
    "broken gpu": ({}, (started, gpu_broken, waited, started, succeeded)),
    "gpu erring twice": ({}, (started, gpu_erred, waited, started, gpu_erred, waited, started, succeeded)),
    "rounds": ({}, (started, round_crashed, round_hung, crashed, waited, started, round_crashed, succeeded)),
    "node loss": ({}, (started, node_lost, waited, started, succeeded)),
    "slow rank": ({"recovery": {"slowRank": "Migrate"}}, (started, slowed, waited, started, succeeded)),
    "suspend and resume": ({}, (started, suspended, waited, resumed, started, succeeded)),
    "suspended in a recovery": ({}, (started, crashed, suspended, waited, resumed, started, succeeded)),
    "replaced pod": (IN_PLACE, (*TRAINS, pod_killed, whole, succeeded)),
    "replaced leader": (IN_PLACE, (*TRAINS, leader_killed, whole, succeeded)),
    "replaced on another node": (IN_PLACE, (*TRAINS, pods_node_lost, whole, succeeded, waited)),
    "replaced in vain": (IN_PLACE, (*TRAINS, pod_killed, *[unheard] * 7, waited, started, succeeded)),
    "deadline": ({"activeDeadlineSeconds": 60}, (started, waited, waited)),
    "retention": ({"ttlSecondsAfterFinished": 300}, (started, succeeded, retired)),
}


def run(name: str, kill_at: int | None) -> World:
    changes, steps = SCENARIOS[name]
    pool = Pool(size=20, schedulable=20)
    world = World(job=job(spec=spec(**changes)), defaults=KEYED, kill_at=kill_at, may_cordon=True, pool=pool)
    for step in (lambda _: None, *steps):
        step(world)
        try:
            world.settle()
        except Killed:
            # A new process finds what is there.
            world.settle()
    return world


@cache
def undisturbed(name: str) -> World:
    return run(name, None)


def last_state(world: World) -> dict[str, object]:
    status = world.job.status
    return {
        "phase": status.phase,
        "reason": status.reason,
        "attempts": [(a.number, a.reason, a.end_time is not None) for a in status.attempts],
        "rounds": [(one.attempt, one.round, one.reason, one.lost_steps) for one in status.rounds],
        "restarts": status.restarts.model_dump(exclude={"window_start_time"}),
        "avoided": [node.name for node in status.avoided_nodes],
        "cordoned": sorted(world.cordoned),
        "strikes": [strike.count for strike in status.strikes],
        "remembered": {name: len(node.strikes) for name, node in world.nodes.items()},
        # Not by name: what may have been made by the process that was killed gets a greater number.
        "pods": sorted((pod.attempt, pod.rank) for pod in world.pods.values()),
        "deleted": world.deleted,
    }


@pytest.mark.parametrize(
    ("name", "kill_at"),
    [(name, k) for name in SCENARIOS for k in range(1, undisturbed(name).writes + 1)],
)
def test_a_kill_after_any_write_leads_to_the_same_end_without_an_extra_attempt(name: str, kill_at: int) -> None:
    assert last_state(run(name, kill_at)) == last_state(undisturbed(name))


def test_the_scenarios_end_as_their_names_say() -> None:
    ends = {name: (undisturbed(name).job.status.phase, undisturbed(name).job.status.attempt) for name in SCENARIOS}
    assert ends == {
        "start and success": ("Succeeded", 1),
        "crash": ("Succeeded", 2),
        "rounds": ("Succeeded", 2),
        "node loss": ("Succeeded", 2),
        "broken gpu": ("Succeeded", 2),
        "gpu erring twice": ("Succeeded", 3),
        "slow rank": ("Succeeded", 2),
        "suspend and resume": ("Succeeded", 2),
        "suspended in a recovery": ("Succeeded", 3),
        "replaced pod": ("Succeeded", 1),
        "replaced leader": ("Succeeded", 1),
        "replaced on another node": ("Succeeded", 1),
        "replaced in vain": ("Succeeded", 2),
        "deadline": ("Failed", 1),
        "retention": ("Succeeded", 1),
    }
    assert undisturbed("retention").deleted
    assert {name for name in SCENARIOS if undisturbed(name).cordoned} == {"broken gpu", "gpu erring twice"}
