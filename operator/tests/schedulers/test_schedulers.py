"""Gang systems: what each makes of one job, field by field, and which one Auto chooses."""

from __future__ import annotations

from typing import Any

import pytest
from jobs import job, spec

from oarlock_api.history import AvoidedNode
from oarlock_api.scheduling import Gang
from oarlock_api.status import Resolved
from oarlock_operator import schedulers
from oarlock_operator.manifests.grouping import Grouping
from oarlock_operator.manifests.pod import pod
from oarlock_operator.model.observation import GangSystems
from oarlock_operator.schedulers.system import GangRequest

RACK, ZONE = "topology.example/rack", "topology.kubernetes.io/zone"
EVERYTHING = GangSystems(
    apis={gang: system.apis[0] for gang, system in schedulers.SYSTEMS.items() if system.apis},
    topologies={RACK: "network"},
)
GANG = {"matchLabels": {"oarlock.dev/job-uid": "uid-1", "oarlock.dev/attempt": "3"}}
ASKED = {"resources": {"requests": {"cpu": "8", "memory": "64Gi"}}}


def made(gang: Gang, systems: GangSystems = EVERYTHING, **scheduling: Any) -> tuple[Grouping, dict[str, Any]]:
    """The grouping of attempt 3 of a job of four nodes, and the pod of its rank 1."""
    wanted = spec(nodes=4, gpusPerNode=8, pod=ASKED, scheduling={"gang": gang.value, **scheduling})
    of = job(spec=wanted)
    resolved = Resolved(gang=gang.value, scheduler_name=wanted.scheduling.scheduler_name)
    if resolved.scheduler_name is None:
        resolved = Resolved(gang=gang.value, scheduler_name=schedulers.SYSTEMS[gang].scheduler)
    grouping = schedulers.grouping(GangRequest(job=of, spec=wanted, attempt=3, size=4, systems=systems), resolved)
    return grouping, pod(of, wanted, attempt=3, rank=1, image="i", grouping=grouping)


def foreign(entries: dict[str, str]) -> dict[str, str]:
    """Labels or annotations that are not Oarlock's own."""
    return {key: value for key, value in entries.items() if not key.startswith(("oarlock.dev/", "app.kubernetes.io/"))}


def test_without_a_gang_system_the_pods_are_as_they_were_and_near_by_affinity() -> None:
    grouping, plain = made(Gang.NONE)
    assert grouping == Grouping()
    assert not plain["spec"].keys() & {"schedulerName", "schedulingGroup", "affinity"}
    _, near = made(Gang.NONE, topology={"requiredKey": RACK})
    assert near["spec"]["affinity"]["podAffinity"] == {
        "requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": RACK, "labelSelector": GANG}]
    }


def test_preferred_keys_weigh_less_and_less() -> None:
    _, near = made(Gang.NONE, topology={"preferredKeys": [RACK, ZONE]})
    assert near["spec"]["affinity"]["podAffinity"] == {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 100, "podAffinityTerm": {"topologyKey": RACK, "labelSelector": GANG}},
            {"weight": 90, "podAffinityTerm": {"topologyKey": ZONE, "labelSelector": GANG}},
        ]
    }


def test_a_topology_is_added_to_the_users_own_affinity() -> None:
    own = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "x"}]}}
    _, near = made(Gang.NONE, affinity=own, topology={"requiredKey": RACK})
    terms = near["spec"]["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert [term["topologyKey"] for term in terms] == ["x", RACK]


def test_kueue_gets_a_group_of_plain_pods() -> None:
    grouping, member = made(Gang.KUEUE, queue="team", queuePriorityClassName="high", topology={"requiredKey": RACK})
    assert grouping.group is None, "Kueue makes its Workload itself"
    assert foreign(member["metadata"]["labels"]) == {
        "kueue.x-k8s.io/queue-name": "team",
        "kueue.x-k8s.io/pod-group-name": "flux-uid-1-3",
        "kueue.x-k8s.io/priority-class": "high",
    }
    assert member["metadata"]["annotations"] == {
        "kueue.x-k8s.io/pod-group-total-count": "4",
        "kueue.x-k8s.io/pod-group-pod-index-label": "oarlock.dev/rank",
        "kueue.x-k8s.io/retriable-in-group": "false",
        "kueue.x-k8s.io/role-hash": "main",
        "kueue.x-k8s.io/podset-required-topology": RACK,
    }
    assert "affinity" not in member["spec"], "Kueue assigns the nodes"


def test_of_preferred_keys_kueue_takes_the_first() -> None:
    _, member = made(Gang.KUEUE, queue="team", topology={"preferredKeys": [RACK, ZONE]})
    assert member["metadata"]["annotations"]["kueue.x-k8s.io/podset-preferred-topology"] == RACK


def test_volcano_gets_a_pod_group_with_all_that_the_gang_asks_for() -> None:
    grouping, member = made(Gang.VOLCANO, queue="team", queuePriorityClassName="high")
    assert grouping.group is not None
    assert grouping.group == {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": grouping.group["metadata"],
        "spec": {
            "minMember": 4,
            "minResources": {"cpu": "32", "memory": str(4 * 64 * 2**30), "nvidia.com/gpu": "32"},
            "queue": "team",
            "priorityClassName": "high",
        },
    }
    assert member["spec"]["schedulerName"] == "volcano"
    assert member["metadata"]["annotations"] == {"scheduling.k8s.io/group-name": "flux-uid-1-3"}


@pytest.mark.parametrize(
    ("topology", "tier"),
    [
        ({"requiredKey": "leaf"}, {"mode": "hard", "highestTierName": "leaf"}),
        ({"preferredKeys": [RACK, "spine"]}, {"mode": "soft", "highestTierName": "spine"}),
        ({"requiredKey": RACK}, None),
    ],
)
def test_volcano_knows_tiers_by_name_and_labels_by_affinity(topology: dict[str, Any], tier: dict[str, str]) -> None:
    grouping, member = made(Gang.VOLCANO, topology=topology)
    assert grouping.group is not None
    assert grouping.group["spec"].get("networkTopology") == tier
    assert ("podAffinity" in member["spec"].get("affinity", {})) == (tier is None)


def test_coscheduling_gets_a_pod_group_and_a_label_under_the_schedulers_own_name() -> None:
    grouping, member = made(Gang.COSCHEDULING, schedulerName="together", topology={"requiredKey": RACK})
    assert grouping.group is not None
    assert (grouping.group["apiVersion"], grouping.group["spec"]) == ("scheduling.x-k8s.io/v1alpha1", {"minMember": 4})
    assert foreign(member["metadata"]["labels"]) == {"scheduling.x-k8s.io/pod-group": "flux-uid-1-3"}
    assert member["spec"]["schedulerName"] == "together"
    assert "podAffinity" in member["spec"]["affinity"]


def test_kai_gets_a_pod_group_in_a_queue_and_its_podgrouper_keeps_off() -> None:
    grouping, member = made(Gang.KAI, queue="team", priorityClassName="train", topology={"requiredKey": RACK})
    assert grouping.group is not None
    assert grouping.group["apiVersion"] == "scheduling.run.ai/v2alpha2"
    assert grouping.group["spec"] == {
        "minMember": 4,
        "queue": "team",
        "priorityClassName": "train",
        "topologyConstraint": {"topology": "network", "requiredTopologyLevel": RACK},
    }
    assert foreign(member["metadata"]["labels"]) == {"kai.scheduler/queue": "team"}
    assert member["metadata"]["annotations"] == {
        "pod-group-name": "flux-uid-1-3",
        "kai.scheduler/skip-podgrouper": "true",
    }
    assert member["spec"]["schedulerName"] == "kai-scheduler"


def test_a_label_that_no_topology_of_kai_has_becomes_affinity() -> None:
    grouping, member = made(Gang.KAI, queue="team", topology={"preferredKeys": [ZONE]})
    assert grouping.group is not None
    assert "topologyConstraint" not in grouping.group["spec"]
    assert "podAffinity" in member["spec"]["affinity"]


@pytest.mark.parametrize(
    ("version", "mode"), [("v1beta1", {"all": {}}), ("v1alpha3", {"all": {}}), ("v1alpha2", "PodGroup")]
)
def test_kubernetes_gets_a_pod_group_of_the_version_that_it_serves(version: str, mode: object) -> None:
    served = GangSystems(apis={Gang.NATIVE: f"scheduling.k8s.io/{version}"})
    grouping, member = made(Gang.NATIVE, served, priorityClassName="high", topology={"requiredKey": RACK})
    assert grouping.group is not None
    assert grouping.group["apiVersion"] == f"scheduling.k8s.io/{version}"
    assert grouping.group["spec"] == {
        "schedulingPolicy": {"gang": {"minCount": 4}},
        "disruptionMode": mode,
        "priorityClassName": "high",
        "schedulingConstraints": {"topology": [{"key": RACK}]},
    }
    assert member["spec"]["schedulingGroup"] == {"podGroupName": "flux-uid-1-3"}
    assert "schedulerName" not in member["spec"], "the cluster's default one"


def test_a_gang_of_kubernetes_is_never_placed_one_by_one_where_no_pod_groups_are_served_any_more() -> None:
    grouping, member = made(Gang.NATIVE, GangSystems())
    assert grouping.group is not None, "the API server refuses it, and says why"
    assert member["spec"]["schedulingGroup"] == {"podGroupName": "flux-uid-1-3"}


def test_a_group_is_the_attempts_own_and_goes_with_the_job() -> None:
    grouping, _ = made(Gang.VOLCANO)
    assert grouping.group is not None
    metadata = grouping.group["metadata"]
    assert metadata["name"] == "flux-uid-1-3"
    assert metadata["labels"]["oarlock.dev/attempt"] == "3"
    assert metadata["ownerReferences"][0]["uid"] == "uid-1"


@pytest.mark.parametrize("gang", schedulers.SYSTEMS)
def test_all_ranks_look_alike_to_every_system(gang: Gang) -> None:
    wanted = spec(nodes=4, gpusPerNode=8, scheduling={"topology": {"requiredKey": RACK}})
    avoided = (AvoidedNode(name="bad"),)
    of = job(spec=wanted)
    request = GangRequest(job=of, spec=wanted, attempt=3, size=4, systems=EVERYTHING)
    grouping = schedulers.grouping(request, Resolved(gang=gang.value))

    def shape(rank: int) -> dict[str, Any]:
        member = pod(of, wanted, attempt=3, rank=rank, image="i", avoided=avoided, grouping=grouping)
        del member["metadata"]["name"], member["metadata"]["labels"]["oarlock.dev/rank"], member["spec"]["hostname"]
        del member["spec"]["containers"][0]["env"]
        return member

    assert shape(0) == shape(3)


SERVED = {
    "nothing": (),
    "Volcano": (Gang.VOLCANO,),
    "Coscheduling": (Gang.COSCHEDULING,),
    "Native": (Gang.NATIVE,),
    "all": tuple(EVERYTHING.apis),
}


@pytest.mark.parametrize(
    ("served", "scheduling", "expected"),
    [
        ("nothing", {}, Gang.NONE),
        ("nothing", {"queue": "team"}, Gang.KUEUE),
        ("Native", {}, Gang.NATIVE),
        ("Volcano", {}, Gang.VOLCANO),
        ("Coscheduling", {}, Gang.NONE),
        ("Coscheduling", {"schedulerName": "together"}, Gang.COSCHEDULING),
        ("all", {}, Gang.VOLCANO),
        ("all", {"queue": "team"}, Gang.KUEUE),
        ("all", {"schedulerName": "default-scheduler"}, Gang.NATIVE),
        ("all", {"schedulerName": "volcano"}, Gang.VOLCANO),
        ("all", {"schedulerName": "kai-scheduler"}, Gang.NONE),
        ("all", {"gang": "None"}, Gang.NONE),
        ("nothing", {"gang": "Volcano"}, Gang.VOLCANO),
    ],
)
def test_auto_takes_what_the_cluster_has_and_a_name_is_taken_at_its_word(
    served: str, scheduling: dict[str, Any], expected: Gang
) -> None:
    systems = GangSystems(apis={gang: EVERYTHING.apis[gang] for gang in SERVED[served]})
    assert schedulers.chosen(spec(scheduling=scheduling).scheduling, systems) is expected


def test_what_is_missing_is_named_with_what_to_do() -> None:
    wanted = spec(scheduling={"gang": "Volcano"}).scheduling
    assert "install Volcano" in schedulers.unavailable(wanted, GangSystems())
    forbidden = schedulers.unavailable(wanted, GangSystems(forbidden=frozenset({Gang.VOLCANO})))
    assert "set gang.volcano in the chart's values" in forbidden
    queue = schedulers.unavailable(spec(scheduling={"queue": "team"}).scheduling, GangSystems())
    assert "install Kueue (scheduling.queue is set: team)" in queue
    assert not schedulers.unavailable(spec().scheduling, GangSystems())
    assert not schedulers.unavailable(wanted, EVERYTHING)


@pytest.mark.parametrize(
    ("label", "scheduling", "fits"),
    [
        (None, {"queue": "team"}, True),
        ("team", {"queue": "team"}, True),
        ("team", {"queue": "team", "gang": "Volcano"}, False),
        ("team", {}, False),
        ("other", {"queue": "team"}, False),
    ],
)
def test_a_queues_label_on_the_job_says_the_same_or_is_refused(
    label: str | None,
    scheduling: dict[str, Any],
    fits: bool,  # noqa: FBT001
) -> None:
    labels = {"kueue.x-k8s.io/queue-name": label} if label else {}
    of = job(spec=spec(scheduling=scheduling), labels=labels)
    assert (not schedulers.other_queue(of, spec(scheduling=scheduling).scheduling)) == fits


@pytest.mark.parametrize(
    ("gang", "status", "words"),
    [
        (Gang.VOLCANO, {}, ""),
        (Gang.VOLCANO, {"phase": "Inqueue"}, ""),
        (Gang.VOLCANO, {"phase": "Pending"}, "Volcano has not let the group in yet"),
        (Gang.VOLCANO, {"phase": "Pending", "conditions": [{"status": "True", "message": "no quota"}]}, "no quota"),
        (Gang.KAI, {}, ""),
        (Gang.KAI, {"schedulingConditions": [{"reasons": [{"reason": "Unschedulable", "message": "x"}]}]}, ""),
        (Gang.KAI, {"schedulingConditions": [{"reasons": [{"reason": "OverLimit", "message": "32 > 16"}]}]}, "32 > 16"),
        (Gang.KUEUE, {}, ""),
        (Gang.KUEUE, {"conditions": [{"type": "QuotaReserved", "status": "False", "message": "8 more"}]}, "8 more"),
        (Gang.KUEUE, {"conditions": [{"type": "QuotaReserved", "status": "True", "message": "done"}]}, ""),
    ],
)
def test_a_group_says_why_its_queue_holds_it_back(gang: Gang, status: dict[str, Any], words: str) -> None:
    assert schedulers.SYSTEMS[gang].waits({"status": status}) == words
