"""Where all pods are made anew though recovery.inPlace is Auto, the attempt's record and the Event say why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from jobs import job, spec
from replacing import KEYED
from worlds import World


def gang(*, nodes: int = 4, step: int | None = 20, in_place: str = "Auto", keyed: bool = True) -> World:
    world = World(job=job(spec=spec(nodes=nodes, recovery={"inPlace": in_place})))
    if keyed:
        world.defaults = KEYED
    world.running(step=step)
    return world


def told(world: World) -> tuple[str | None, str]:
    """What the record of the first attempt says, and the Event by which the second starts."""
    events = world.one_pass().events
    assert world.job.status.attempt == 2
    record = next(one for one in world.job.status.attempts if one.number == 1)
    return record.not_in_place, next(event.message for event in events if "Attempt 2 starts" in event.message)


def kill(world: World, *ranks: int) -> None:
    for rank in ranks:
        world.end(rank, 137, with_report=False)


def fail_a_check(world: World) -> None:
    world.end(1, 87)


def fail_storage(world: World) -> None:
    world.end(1, 84)


def fail_the_program(world: World) -> None:
    world.end(1, 1)


def change_the_operator(world: World) -> None:
    world.defaults = replace(KEYED, status_from=("10.0.0.0/8",), trainer_image="trainer:next")
    assert world.job.spec
    world.job = replace(world.job, spec=world.job.spec.model_copy(update={"gpus_per_node": 1}))
    kill(world, 1)


def lose_too_many(world: World) -> None:
    kill(world, 0, 1, 2, 3)


def preempt(world: World) -> None:
    kill(world, 1)
    world.pods["flux-1-1"] = replace(world.pods["flux-1-1"], disrupted="PreemptionByScheduler")


def stay_though_asked_to_go(world: World) -> None:
    kill(world, 1)
    world.pods["flux-1-3"] = replace(world.pods["flux-1-3"], deleting=True)


def kill_once_more(world: World) -> None:
    counts = world.job.status.restarts.model_copy(update={"application": 1})
    world.job = replace(world.job, status=world.job.status.model_copy(update={"restarts": counts}))
    kill(world, 1)


def start_again(world: World) -> None:
    kill(world, 1)
    world.pods["flux-1-3"] = replace(world.pods["flux-1-3"], started=False)


@pytest.mark.parametrize(
    ("break_it", "why"),
    [
        (fail_the_program, "its agents had given up starting ranks anew in their pods"),
        (fail_storage, "a new pod would meet the same storage"),
        (fail_a_check, "a new pod would most likely fail the same check"),
        (lose_too_many, "4 pods were lost at once, and at most 3 are made anew by themselves"),
        (stay_though_asked_to_go, "a pod that was asked to go has not left in time"),
        (preempt, "whoever takes a pod to make room has the whole gang go"),
        (
            kill_once_more,
            "the program has cost a restart before, without progress since, and later starts wait",
        ),
        (start_again, "flux-1-3 did not stand by"),
        (change_the_operator, "the job or the operator has changed since, and a new pod would not fit the others"),
    ],
)
def test_it_is_said_why_not_one_pod_alone_is_made_anew(break_it: Callable[[World], None], why: str) -> None:
    world = gang()
    break_it(world)
    recorded, event = told(world)
    assert recorded == why
    assert event.endswith(f"all pods made anew: {why}.")


def test_a_gang_that_cannot_have_single_pods_made_anew_says_what_it_lacks() -> None:
    for world, why in (
        (gang(nodes=1), "the gang has no other pod"),
        (gang(keyed=False), "gangs have no key"),
        (gang(step=None), "the attempt had made no step yet"),
    ):
        kill(world, 0)
        assert told(world)[0] == why


def test_others_that_waited_in_vain_are_told_as_such() -> None:
    world = gang()
    kill(world, 2)
    world.one_pass()
    for rank in (0, 1, 3):
        world.end(rank, 82)
    world.now += timedelta(seconds=2)  # the cause has had its time to speak up
    assert told(world)[0] == "the others waited no longer for the pod that was to be made anew"


def test_where_nothing_starts_in_place_nothing_is_said_of_it() -> None:
    world = gang(in_place="Never")
    fail_the_program(world)
    recorded, event = told(world)
    assert recorded is None
    assert "all pods made anew" not in event
