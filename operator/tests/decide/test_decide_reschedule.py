"""A gang that waits for nodes is made anew when one comes back that its pods keep off; once, and never for nothing."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from gang_worlds import KUEUE, VOLCANO
from jobs import job, spec
from world_writes import Killed
from worlds import World, condition

from oarlock_api.contract.node_affinity import kept_off
from oarlock_api.history import AvoidedNode
from oarlock_operator.decide import decide
from oarlock_operator.manifests.pod import pod
from oarlock_operator.model.node_maintenance import Maintenance
from oarlock_operator.model.observed_nodes import Node, Pool
from oarlock_operator.model.plan import Need, Plan, plan_of
from oarlock_operator.pods.pod_facts import RawPod, read_pod

CORDONED = Node(name="node-1", boot_id="boot-1", maintenance=Maintenance("cordoned", enforced=True))
MENDED = replace(CORDONED, maintenance=None)
NO_ROOM = "0/3 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 2 Insufficient nvidia.com/gpu"
POOL = Pool(size=20, schedulable=20)


def waiting(*, cordon: bool = True, spares: bool = True, **world: Any) -> World:
    """Attempt 2 has one of its two nodes; node-1, whose GPU broke in attempt 1, is avoided."""
    here = World(spares=spares, may_cordon=cordon, pool=POOL, **world)
    here.running(step=20)
    here.end(1, 80, xid=79)
    here.one_pass()
    here.nodes = {"node-1": CORDONED if cordon else MENDED}
    here.settle()
    here.kubelets()
    here.settle()
    assert (here.job.status.attempt, here.cordoned) == (2, {"node-1"} if cordon else set())
    here.now += timedelta(seconds=20)
    place(here)
    here.settle()
    return here


def place(here: World) -> None:
    """The scheduler finds a node for rank 0 alone."""
    number = here.job.status.attempt
    first, second = f"flux-{number}-0", f"flux-{number}-1"
    here.pods[first] = replace(here.pods[first], scheduled=True, node="node-0")
    here.pods[second] = replace(here.pods[second], obstacle=NO_ROOM)


def rescheduled(here: World) -> bool:
    here.settle()
    return here.job.status.attempt == 3


def test_a_node_that_a_person_gives_back_is_used_by_the_gang_that_waits_for_it_at_no_budgets_cost() -> None:
    here = waiting()
    before = here.job.status
    assert condition(here, "Scheduled") == ("False", "NotEnoughHealthyNodes")
    here.nodes = {"node-1": MENDED}
    assert rescheduled(here)
    status = here.job.status
    assert status.attempts[-1].reason == "NodeReturned"
    assert (status.restarts, status.restart_count) == (before.restarts, before.restart_count)
    assert status.avoided_nodes == ()
    assert status.recovery.not_before_time is None, "nobody waits for what is there"
    here.kubelets()
    here.settle()
    assert sorted(here.pods) == ["flux-3-0", "flux-3-1"]
    assert not here.pods["flux-3-1"].keeps_off


def test_of_two_nodes_that_broke_the_one_that_is_given_back_is_enough() -> None:
    """The second one was avoided only: a job has one node cordoned at a time."""
    here = waiting()
    here.pods["flux-2-1"] = replace(here.pods["flux-2-1"], scheduled=True, node="node-2", obstacle="")
    here.running(step=30)
    here.end(1, 80, xid=79)
    here.settle()
    here.kubelets()
    here.settle()
    place(here)
    here.settle()
    assert here.job.status.message is not None
    assert here.job.status.message.startswith(
        "avoided: node-1 (GPUFault in attempt 1), node-2 (GPUFault in attempt 2). Repair one and"
    )
    here.nodes = {"node-1": MENDED, "node-2": Node(name="node-2")}
    here.settle()
    assert here.job.status.attempts[-1].reason == "NodeReturned"
    assert [node.name for node in here.job.status.avoided_nodes] == ["node-2"]


def test_a_gang_of_which_nothing_is_placed_has_no_place_to_lose_and_does_not_wait_for_room() -> None:
    here = waiting(spares=False)
    here.pods["flux-2-0"] = replace(here.pods["flux-2-0"], scheduled=False, node="", obstacle=NO_ROOM)
    here.nodes = {"node-1": MENDED}
    assert rescheduled(here)
    assert here.job.status.attempts[-1].reason == "NodeReturned"


def test_a_cordon_that_a_pass_entered_before_it_was_cut_off_is_given_back_as_any() -> None:
    here = waiting()
    (entry,), (avoided,) = here.job.status.cordoned_nodes, here.job.status.avoided_nodes
    assert avoided.since_time
    earlier = entry.model_copy(update={"time": avoided.since_time - timedelta(seconds=1)})
    here.job = replace(here.job, status=here.job.status.model_copy(update={"cordoned_nodes": (earlier,)}))
    here.nodes = {"node-1": MENDED}
    assert rescheduled(here)


def test_its_event_names_the_node() -> None:
    here = waiting()
    here.nodes = {"node-1": MENDED}
    events = [event for _ in range(2) for event in here.one_pass().events]
    assert [event.message for event in events if event.reason == "NodeReturned"] == [
        "node-1 may be used again, and there is room for all 2 pods: they are made anew"
    ]


@pytest.mark.parametrize(
    ("seconds", "back"), [(-300, False), (0, True), (300, False)], ids=["before", "since", "still to come"]
)
def test_a_node_that_nobody_cordoned_is_given_back_by_the_time_that_a_person_writes_on_it(
    seconds: int,
    back: bool,  # noqa: FBT001
) -> None:
    here = waiting(cordon=False)
    assert condition(here, "Scheduled") == ("False", "NotEnoughHealthyNodes")
    here.nodes = {"node-1": replace(MENDED, given_back=here.now + timedelta(seconds=seconds))}
    assert rescheduled(here) == back
    assert [node.name for node in here.job.status.avoided_nodes] == ([] if back else ["node-1"])


@pytest.mark.parametrize(
    ("window", "seconds", "back"), [(600, 0, True), (864_000, -300, False)], ids=["shorter now", "longer now"]
)
def test_since_when_a_node_is_avoided_does_not_change_with_the_window(
    window: int,
    seconds: int,
    back: bool,  # noqa: FBT001
) -> None:
    here = waiting(cordon=False)
    spec = here.job.spec
    assert spec
    recovery = spec.recovery.model_copy(update={"window_seconds": window})
    here.job = replace(here.job, spec=spec.model_copy(update={"recovery": recovery}))
    here.nodes = {"node-1": replace(MENDED, given_back=here.now + timedelta(seconds=seconds))}
    assert rescheduled(here) == back


def test_a_node_that_was_booted_anew_comes_back_without_any_cordon() -> None:
    here = waiting(cordon=False)
    here.job = replace(
        here.job,
        status=here.job.status.model_copy(
            update={
                "avoided_nodes": tuple(
                    entry.model_copy(update={"boot_id": "boot-1"}) for entry in here.job.status.avoided_nodes
                )
            }
        ),
    )
    assert not rescheduled(here)
    here.nodes = {"node-1": replace(MENDED, boot_id="boot-2")}
    assert rescheduled(here)


def test_what_was_said_of_avoided_nodes_goes_with_the_last_pods_that_wait_for_one() -> None:
    here = waiting()
    assert here.job.status.reason == "NotEnoughHealthyNodes"
    here.pods["flux-2-1"] = replace(here.pods["flux-2-1"], scheduled=True, node="node-2", obstacle="")
    here.settle()
    assert (here.job.status.reason, here.job.status.message) == ("GPUFault", None)


def test_while_the_node_is_cordoned_or_only_avoided_the_gang_waits_on() -> None:
    for cordon in (True, False):
        here = waiting(cordon=cordon)
        here.now += timedelta(seconds=300)
        assert not rescheduled(here)
        assert condition(here, "Scheduled") == ("False", "NotEnoughHealthyNodes")


def test_room_is_looked_for_again_soon_because_no_event_tells_of_it() -> None:
    here = waiting(spares=False)
    here.nodes = {"node-1": MENDED}
    here.settle()
    asked = decide(here.observe())
    assert isinstance(asked, Need)
    assert 0 < (plan_of(asked).again_seconds or 0) <= 30
    here.spares = True
    assert rescheduled(here)


def test_without_room_for_all_nobody_gives_up_a_place_but_the_node_is_not_called_avoided_any_more() -> None:
    here = waiting(spares=False)
    here.nodes = {"node-1": MENDED}
    assert not rescheduled(here)
    assert condition(here, "Scheduled") == ("False", "Unschedulable")
    assert isinstance(decide(here.observe()), Need), "asked for again"
    here.spares = True
    assert rescheduled(here)


def test_one_node_that_came_back_makes_the_gang_anew_once_only() -> None:
    here = waiting()
    here.nodes = {"node-1": MENDED}
    assert rescheduled(here)
    here.kubelets()
    here.settle()
    place(here)
    here.now += timedelta(seconds=300)
    here.settle()
    assert here.job.status.attempt == 3
    assert isinstance(decide(here.observe()), Plan)


def test_a_node_that_breaks_again_and_that_the_brakes_leave_uncordoned_does_not_come_back() -> None:
    here = waiting()
    here.nodes = {"node-1": MENDED}
    assert rescheduled(here)
    here.kubelets()
    here.running(step=30)
    here.end(1, 80, xid=79)
    here.settle()
    here.kubelets()
    here.settle()
    assert here.job.status.attempt == 4
    place(here)
    here.now += timedelta(seconds=300)
    here.settle()
    assert here.job.status.attempt == 4
    assert [node.name for node in here.job.status.avoided_nodes] == ["node-1"]


def test_what_the_job_itself_keeps_off_is_no_node_that_came_back() -> None:
    """By its affinity, or by pod.patch: new pods would keep off it as well."""
    off = {"key": "metadata.name", "operator": "NotIn", "values": ["node-7"]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": [off]}]}}
    for more in (
        {"scheduling": {"affinity": {"nodeAffinity": required}}},
        {"pod": {"patch": {"affinity": {"nodeAffinity": required}}}},
    ):
        here = waiting(job=job(spec=spec(**more)))
        here.nodes = {"node-1": MENDED}
        place(here)
        here.settle()
        reschedulings = here.job.status.attempt - 2
        assert reschedulings == (1 if "scheduling" in more else 0), "a patch has the last word, also against avoiding"
        if reschedulings:
            here.kubelets()
            here.settle()
            place(here)
            here.settle()
            assert here.job.status.attempt == 3


@pytest.mark.parametrize(
    ("systems", "scheduling"), [(KUEUE, {"queue": "team"}), (VOLCANO, {"gang": "Volcano"})], ids=["Kueue", "Volcano"]
)
def test_a_gang_that_would_lose_its_place_in_a_queue_is_left_alone(systems: Any, scheduling: Any) -> None:
    here = waiting(systems=systems, job=job(spec=spec(scheduling=scheduling)))
    here.nodes = {"node-1": MENDED}
    assert not rescheduled(here)


def test_a_kill_after_any_write_ends_in_the_same_gang() -> None:
    def life(kill: int) -> World:
        here = waiting()
        here.nodes = {"node-1": MENDED}
        here.kill_at = here.writes + kill if kill else None
        for _ in range(3):
            try:
                here.settle()
            except Killed:
                here.kill_at = None
            here.kubelets()
        return here

    for kill in range(9):
        here = life(kill)
        assert sorted(here.pods) == ["flux-3-0", "flux-3-1"], kill
        assert len([one for one in here.job.status.attempts if one.reason == "NodeReturned"]) == 1


def terms(*names_of_terms: tuple[str, ...]) -> Any:
    def field(name: str) -> Any:
        return {"key": "metadata.name", "operator": "NotIn", "values": [name]}

    found = [{"matchFields": [field(name) for name in names]} for names in names_of_terms]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": found}}}


@pytest.mark.parametrize(
    ("affinity", "off"),
    [
        (None, set()),
        ({"podAntiAffinity": {}}, set()),
        (terms(("a", "b")), {"a", "b"}),
        (terms(("a", "b"), ("b", "c")), {"b"}),
        ({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}, set()),
    ],
    ids=["none", "others", "two", "in every term", "preferences"],
)
def test_an_affinity_keeps_off_the_nodes_that_each_of_its_terms_names(affinity: Any, off: set[str]) -> None:
    assert kept_off(affinity or {}) == off


@pytest.mark.parametrize(
    ("more", "off"),
    [
        ({}, {"node-1"}),
        ({"scheduling": {"affinity": terms(("node-7",), ("node-8",))}}, {"node-1"}),
        ({"pod": {"patch": {"affinity": terms(("node-7",))}}}, set()),
    ],
    ids=["avoided", "beside its own", "a patch has the last word"],
)
def test_a_waiting_pod_tells_which_avoided_nodes_it_keeps_off_and_not_what_a_webhook_keeps_it_off(
    more: dict[str, Any], off: set[str]
) -> None:
    """Such a node would seem to come back for ever: new pods' manifests do not name it."""
    avoided = [AvoidedNode(name="node-1"), AvoidedNode(name="node-2", strict=False)]
    manifest = pod(job(), spec(**more), attempt=2, rank=0, image="", avoided=avoided)
    node_affinity = manifest["spec"]["affinity"]["nodeAffinity"]
    for term in node_affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]:
        term["matchFields"].append({"key": "metadata.name", "operator": "NotIn", "values": ["node-9"]})
    assert read_pod(msgspec.convert(manifest, RawPod)).keeps_off == off
    manifest["spec"]["nodeName"] = "node-3"
    assert not read_pod(msgspec.convert(manifest, RawPod)).keeps_off
