"""A status that another release wrote: read, decided about and written, nothing of it is lost, and nothing raises."""

from __future__ import annotations

import copy
from dataclasses import replace
from datetime import timedelta
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import World, condition

from oarlock_local.pytest_tiers import examples
from oarlock_operator.decide import decide
from oarlock_operator.observe.other_release import ESSENTIAL, UnreadableStatusError, overlaid, read_status

Json = dict[str, Any]
KEYS = {
    "attempts": "number",
    "avoidedNodes": "name",
    "strikes": "gpuUUID",
    "cordonedNodes": "name",
    "conditions": "type",
}


def faulty(world: World) -> None:
    world.running(step=5, saved=4)
    world.end(1, 81, xid=31)
    world.settle()
    world.kubelets()


@cache
def worlds() -> tuple[World, ...]:
    """One job, in all that it may be busy with."""
    training, recovering, failing, suspending, broken = (World() for _ in range(5))
    training.running(step=5, saved=4)
    faulty(recovering)
    recovering.running(step=9, resumed=4)
    faulty(broken)
    broken.running(step=9, resumed=4)
    broken.end(0, 80, xid=79, attempt=2)
    failing.running()
    failing.end(0, 85)
    failing.one_pass()
    suspending.running(step=5, saved=4)
    assert suspending.job.spec is not None
    suspending.job = replace(suspending.job, spec=suspending.job.spec.model_copy(update={"suspend": True}))
    suspending.one_pass()
    return training, recovering, failing, suspending, broken


Place = tuple[Any, ...]


def groups(value: Any, place: Place = ()) -> list[Place]:
    """Places of all groups of fields; items of lists are named by their key."""
    found = [place]
    for name, below in value.items():
        if isinstance(below, dict):
            found += groups(below, (*place, name))
        elif name in KEYS and not place:
            for item in below:
                found += groups(item, (name, item[KEYS[name]]))
    return found


def at(value: Any, place: Place) -> Any:
    """What stands at a place, None where nothing does any more."""
    for index, part in enumerate(place):
        if isinstance(value, list):
            key = KEYS.get(place[index - 1], "")
            value = next((item for item in value if isinstance(item, dict) and item.get(key) == part), None)
        else:
            value = value.get(part) if isinstance(value, dict) else None
    return value


ODD = st.sampled_from([{"tomorrow": 1}, [1, 2], "Tomorrow", 7.5, True, "x" * 9000, -1])


@st.composite
def of_tomorrow(draw: st.DrawFn, status: Json, release: int) -> tuple[Json, list[tuple[Place, str]]]:
    """A status as a later release may write it, and the fields that this release has never heard of."""
    status = copy.deepcopy(status)
    places = groups(status)
    added = []
    for number in range(draw(st.integers(1, 4))):
        group = draw(st.sampled_from(places))
        at(status, group)[f"tomorrow{release}{number}"] = copy.deepcopy(draw(ODD))
        added.append((group, f"tomorrow{release}{number}"))
    for _ in range(draw(st.integers(0, 4))):
        group = draw(st.sampled_from(places))
        fields = at(status, group)
        keyed = KEYS.get(group[0]) if group else None
        if leaves := [name for name, value in fields.items() if not isinstance(value, dict | list) and name != keyed]:
            name = draw(st.sampled_from(sorted(leaves)))
            if (group[0] if group else name) not in ESSENTIAL:
                fields[name] = copy.deepcopy(draw(ODD))
            elif name == "stage":
                fields[name] = "Tomorrow"
    for name in draw(st.lists(st.sampled_from(sorted(KEYS)), max_size=2, unique=True)):
        item = status[name][0] if status.get(name) else {}
        key = KEYS[name]
        # Older than what stands there, where they have an order.
        more = [
            {**item, key: n - 100 * (release + 1) if name == "attempts" else f"more-{release}{n}", "tomorrow": n}
            for n in range(80)
        ]
        status[name] = [*more, *status.get(name, [])]
    return status, added


@settings(deadline=None, max_examples=examples(300))
@given(st.data())
def test_what_a_later_release_wrote_is_kept_through_a_pass_and_never_raises(data: st.DataObject) -> None:
    world = data.draw(st.sampled_from(worlds()))
    raw = world.job.status.to_manifest()
    for release in range(2):
        raw, added = data.draw(of_tomorrow(raw, release))
    before = read_status(raw)
    assert (before.attempt, before.restarts) == (world.job.status.attempt, world.job.status.restarts)
    seen = replace(
        world.observe(),
        job=replace(world.job, status=before),
        now=world.now + timedelta(seconds=data.draw(st.sampled_from([0, 11, 400]))),
    )
    plan = decide(seen)
    if plan.status is None:
        return
    wrote = overlaid(raw, before=before, after=plan.status)
    was, wanted = before.to_manifest(), plan.status.to_manifest()
    for place, name in added:
        # What a decision takes away, goes with all that is in it; what could not be read at all is made anew.
        if isinstance(group := at(wrote, place), dict) and isinstance(at(was, place), dict):
            assert group.get(name) == at(raw, place)[name], (place, at(was, place), at(wanted, place), group)
    for name in raw:
        if was.get(name) == wanted.get(name):
            assert wrote[name] == raw[name], name
    again = read_status(wrote)
    assert (again.attempt, again.restarts) == (plan.status.attempt, plan.status.restarts)


@pytest.mark.parametrize(
    ("status", "place"),
    [
        ({"attempt": "three"}, "status.attempt: "),
        ({"attempt": 3, "restarts": {"application": {"used": 1}}}, "status.restarts.application: "),
        ({"attempt": 3, "restarts": [1, 2]}, "status.restarts: "),
        ({"attempt": 3, "recovery": {"stage": {"name": "Drain"}}}, "status.recovery.stage: "),
        ({"attempt": 3, "completionTime": "yesterday"}, "status.completionTime: "),
        ([], "status: "),
    ],
)
def test_without_attempt_budgets_stage_or_end_a_status_cannot_be_read_and_it_is_said_where(
    status: object, place: str
) -> None:
    with pytest.raises(UnreadableStatusError) as refused:
        read_status(status)
    assert str(refused.value).startswith(place)


def test_of_an_item_that_lacks_what_it_must_have_the_others_are_read() -> None:
    nodes = [{"name": "a"}, {"reason": "Hot", "strict": {"until": "repair"}}, {"name": "b", "bootId": 5}, {"name": "c"}]
    read = read_status({"attempt": 1, "avoidedNodes": nodes})
    assert [node.name for node in read.avoided_nodes] == ["a", "b", "c"]


def later_release(world: World, **status: Any) -> Json:
    """The status as a later release left it; the world goes on with what this one understands."""
    raw = {**world.job.status.to_manifest(), **status}
    world.job = replace(world.job, status=read_status(raw))
    return raw


@pytest.mark.parametrize("stage", ["Provision", "Rebalance"])
def test_a_gang_in_an_unknown_stage_starts_and_trains(stage: str) -> None:
    world = World()
    world.settle()
    raw = later_release(world, recovery={"stage": stage, "stageStartTime": world.now.isoformat()})
    unchanged = overlaid(raw, before=world.job.status, after=world.job.status)
    assert unchanged["recovery"]["stage"] == stage, "whoever wrote it finds it again"
    world.start_all()
    world.settle()
    world.step(1)
    world.now += timedelta(seconds=11)
    world.settle()
    assert (world.job.status.phase, world.job.status.recovery.stage) == ("Running", None)


def test_a_gang_of_an_unknown_system_is_left_in_peace_and_recovers_without_a_group() -> None:
    world = World()
    world.running()
    raw = later_release(world, resolved={"image": "trainer:2", "gang": "Workload", "schedulerName": "theirs"})
    world.end(1, 1)
    world.settle()
    world.kubelets()
    world.settle()
    assert (world.job.status.attempt, sorted(world.pods)) == (2, ["flux-2-0", "flux-2-1"])
    kept = overlaid(raw, before=read_status(raw), after=world.job.status)
    assert kept["resolved"]["gang"] == "Workload"


def test_a_condition_that_a_later_release_added_stays_as_it_is() -> None:
    world = World()
    world.settle()
    theirs = {
        "type": "Profiled",
        "status": "True",
        "reason": "Fast",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    raw = later_release(world, conditions=[*world.job.status.to_manifest()["conditions"], theirs])
    before = world.job.status
    world.start_all()
    world.settle()
    assert theirs in overlaid(raw, before=before, after=world.job.status)["conditions"]
    assert condition(world, "Accepted")[0] == "True"


def test_a_list_that_is_longer_than_ours_is_written_within_our_bounds_once_it_changes_and_not_before() -> None:
    world = World()
    world.running()
    old = [{"number": number, "tomorrow": number} for number in range(-20, 1)]
    raw = later_release(world, attempts=[*old, *world.job.status.to_manifest()["attempts"]])
    before = world.job.status
    assert len(before.attempts) == 10
    kept = overlaid(raw, before=before, after=before.model_copy(update={"phase": "Starting"}))
    assert kept["attempts"] == raw["attempts"]
    world.end(1, 1)
    world.settle()
    changed = overlaid(raw, before=before, after=world.job.status)["attempts"]
    assert [one["number"] for one in changed] == [-7, -6, -5, -4, -3, -2, -1, 0, 1, 2]
    assert [one.get("tomorrow") for one in changed[:3]] == [-7, -6, -5]
