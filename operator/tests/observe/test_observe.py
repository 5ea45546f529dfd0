"""Observing: what the API says of a job and its pods, reduced to facts, however odd it is."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from jobs import START, spec
from memory_api import Json, MemoryApi
from raw_nodes import node
from raw_pods import REPORT, as_raw, container, pod

from oarlock_api.contract.names import Label
from oarlock_api.contract.report import Gpu
from oarlock_api.contract.rounds import LostPod
from oarlock_api.contract.status import PodStatus
from oarlock_api.scheduling import Gang
from oarlock_operator.kube.api_error import ApiError
from oarlock_operator.kube.decoding import Page
from oarlock_operator.model.observation import Defaults, GangSystems, Observation, Pod
from oarlock_operator.observe.gang_systems import GangReader
from oarlock_operator.observe.memory import Memory
from oarlock_operator.observe.observe import Sources, observe
from oarlock_operator.pods.pod_facts import RawPod


def job(**parts: Any) -> Json:
    return {"metadata": {"namespace": "default", "name": "flux", "uid": "uid-1"}, "spec": spec().to_manifest(), **parts}


class Listing(MemoryApi):
    """With lists by one label."""

    async def list(self, path: str, *, labelSelector: str = "") -> list[Json]:  # noqa: N803 - the API's own spelling
        self.requests.append(("LIST", path))
        found = [body for name, body in self.objects.items() if name.startswith(path + "/")]
        if "," in labelSelector:
            return []
        label, valued, value = labelSelector.partition("=")
        labels = [body["metadata"].get("labels", {}) for body in found]
        fits = [(label in of and (not valued or of[label] == value)) or not label for of in labels]
        return [body for body, fit in zip(found, fits, strict=True) if fit]

    async def pages_of(self, kind: type[Any], path: str, **query: str) -> AsyncIterator[Page[Any]]:
        yield Page(items=[msgspec.convert(raw, kind) for raw in await self.list(path, **query)])

    async def list_of(self, kind: type[RawPod], path: str, **query: str) -> list[RawPod]:
        return [msgspec.convert(raw, kind) for raw in await self.list(path, **query)]


class Silent:
    """A progress reader without news, or with these; `answers` are the uids of agents that live."""

    def __init__(self, *answers: str, news: PodStatus | None = None) -> None:
        self.answers, self.news = answers, news

    async def read(self, _job: object, _pods: object, _memory: object) -> tuple[PodStatus | None, dict[str, float]]:
        return self.news, {}

    async def answering(self, _job: object, pods: Sequence[Pod], _memory: object) -> frozenset[str]:
        return frozenset(pod.uid for pod in pods if pod.uid in self.answers)


async def look(
    api: MemoryApi,
    memory: Memory | None = None,
    *,
    answers: tuple[str, ...] = (),
    systems: GangSystems | None = None,
    news: PodStatus | None = None,
) -> Observation | None:
    sources = Sources(
        cluster=api,  # type: ignore[arg-type]
        progress=Silent(*answers, news=news),  # type: ignore[arg-type]
        gangs=GangReader(api, clock=lambda: 0.0, _known=systems),  # type: ignore[arg-type]
        clock=lambda: START,
    )
    seen = await observe(sources, memory or Memory(), ("default", "flux"), defaults=Defaults("i"), waited=0.0)
    return seen[0] if seen else None


def cluster_with(*pods: Json) -> MemoryApi:
    api = Listing()
    api.objects["/apis"] = {"groups": []}
    api.objects["/apis/oarlock.dev/v1alpha1/namespaces/default/trainingjobs/flux"] = job()
    for raw in pods:
        api.objects[f"/api/v1/namespaces/default/pods/{raw['metadata']['uid']}"] = raw
    return api


async def test_a_job_that_is_gone_is_nothing_to_look_at() -> None:
    assert await look(Listing()) is None


async def test_only_pods_that_the_job_owns_count_whatever_their_labels_say() -> None:
    copied = pod(name="debug-copy", uid="copied", ownerReferences=[{"uid": "somebody-else"}])
    stray = pod(name="stray", uid="stray", ownerReferences=None)
    memory = Memory()
    memory.terminated.note(as_raw(name="stray", uid="seen", ownerReferences=[]), deleted=True)
    o = await look(cluster_with(pod(), copied, stray), memory)
    assert o is not None
    assert [seen.name for seen in o.pods] == ["flux-2-1"]


async def test_what_the_watch_saw_of_a_pod_that_is_gone_is_added_and_a_living_pod_is_read_live() -> None:
    memory = Memory()
    ended = {"containerStatuses": container(terminated={"exitCode": 80, "message": REPORT.to_json()})}
    memory.terminated.note(as_raw(ended), deleted=True)
    memory.terminated.note(as_raw(ended, uid="alive"), deleted=False)
    o = await look(cluster_with(pod(uid="alive")), memory)
    assert o is not None
    assert {seen.uid: (seen.gone, seen.stopped) for seen in o.pods} == {
        "alive": (False, False),
        "pod-uid": (True, True),
    }
    assert next(seen for seen in o.pods if seen.gone).ending.report == REPORT  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("owners", "selector", "seen"),
    [
        ([{"uid": "uid-1"}], {"oarlock.dev/attempt": "2"}, (True, 2, False)),
        ([{"uid": "another"}], {"app": "web"}, (False, 0, False)),
        ([{"uid": "gone", "kind": "TrainingJob", "name": "flux"}], None, (False, 0, True)),
        (None, None, (False, 0, False)),
    ],
)
async def test_a_service_of_the_job_s_name_is_told_with_its_owner_and_attempt(
    owners: object, selector: object, seen: tuple[bool, int, bool]
) -> None:
    api = cluster_with()
    api.objects["/api/v1/namespaces/default/services/flux"] = {
        "metadata": {"uid": "s", "ownerReferences": owners},
        "spec": {"selector": selector},
    }
    o = await look(api)
    assert o is not None
    assert o.service is not None
    assert (o.service.ours, o.service.attempt, o.service.leaving) == seen


async def test_a_node_in_trouble_is_read_live_and_its_pods_are_asked() -> None:
    one, two = placed("n1", uid="one"), placed("n2", uid="two")
    two["metadata"]["labels"] = {**two["metadata"]["labels"], Label.RANK: "2"}
    api = cluster_with(one, two)
    api.objects["/apis/oarlock.dev/v1alpha1/namespaces/default/trainingjobs/flux"] = job(status={"attempt": 2})
    api.objects["/api/v1/nodes/n1"] = node(ready="Unknown")
    memory = Memory()
    for name in ("n1", "n2"):
        memory.troubled.note(node(name), deleted=True)
    o = await look(api, memory, answers=("one",))
    assert o is not None
    assert {name: (seen.exists, seen.unreachable) for name, seen in o.nodes.items()} == {
        "n1": (True, True),
        "n2": (False, False),
    }
    assert o.answering == {"one"}
    by_uid = {seen.uid: seen for seen in o.pods}
    assert (o.on_lost_node(by_uid["one"]), o.on_lost_node(by_uid["two"])) == (False, True)


@pytest.mark.parametrize(
    ("ready", "asked"),
    [
        pytest.param("Unknown", set(), id="the answer would change nothing, and the next pod waits for it"),
        pytest.param("False", {"one"}, id="its kubelet may stop it"),
    ],
)
async def test_a_pod_that_another_replaces_is_not_asked_where_nobody_can_stop_it(ready: str, asked: set[str]) -> None:
    api = cluster_with(placed("n1", uid="one"))
    replacing = [{"rank": 1, "incarnation": 2}]
    status = {"attempt": 2, "recovery": {"stage": "Replace", "replacing": replacing}}
    api.objects["/apis/oarlock.dev/v1alpha1/namespaces/default/trainingjobs/flux"] = job(status=status)
    api.objects["/api/v1/nodes/n1"] = node(ready=ready)
    memory = Memory()
    memory.troubled.note(node("n1", ready=ready), deleted=False)
    o = await look(api, memory, answers=("one",))
    assert o is not None
    assert o.answering == asked


TAINT = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}


@pytest.mark.parametrize(
    ("there", "answers", "lost"),
    [
        pytest.param("True", (), False, id="a node that works is evicted from, and not lost"),
        pytest.param("Unknown", ("one",), True, id="one that is not heard from is lost"),
        pytest.param(None, (), True, id="and so is one that is gone"),
        pytest.param("forbidden", (), True, id="without rights on nodes, one whose pod does not answer is lost"),
        pytest.param("forbidden", ("one",), False, id="without rights on nodes, one whose pod answers works"),
    ],
)
async def test_the_node_of_a_pod_that_a_taint_takes_is_read_though_no_watch_saw_it_in_trouble(
    there: str | None,
    answers: tuple[str, ...],
    lost: bool,  # noqa: FBT001
) -> None:
    raw = placed("n1", uid="one")
    raw["status"]["conditions"] = [TAINT]
    api = cluster_with(raw)
    api.objects["/apis/oarlock.dev/v1alpha1/namespaces/default/trainingjobs/flux"] = job(status={"attempt": 2})
    if there in ("True", "Unknown"):
        api.objects["/api/v1/nodes/n1"] = node(ready=there)

    async def refuse(_verb: str, path: str) -> None:
        if there == "forbidden" and "/nodes/" in path:
            raise ApiError(403, "Forbidden", "no rights on nodes")

    api.before = refuse
    o = await look(api, answers=answers)
    assert o is not None
    assert o.on_lost_node(o.pods[0]) is lost


def placed(on: str, *, uid: str) -> Json:
    raw = pod({"podIP": "10.0.0.1", "containerStatuses": container(running={})}, uid=uid)
    raw["spec"] = {**(raw.get("spec") or {}), "nodeName": on}
    return raw


@pytest.mark.parametrize(("lost", "asked"), [((1, 2), {"uid-1", "uid-2"}), ((1,), set())])
async def test_where_rank_0_has_lost_all_others_they_are_asked_themselves(
    lost: tuple[int, ...], asked: set[str]
) -> None:
    gang = [placed(f"n{rank}", uid=f"uid-{rank}") for rank in range(3)]
    for rank, raw in enumerate(gang):
        raw["metadata"] |= {"name": f"flux-2-{rank}", "labels": {**raw["metadata"]["labels"], Label.RANK: str(rank)}}
    api = cluster_with(*gang)
    api.objects["/apis/oarlock.dev/v1alpha1/namespaces/default/trainingjobs/flux"] = job(status={"attempt": 2})
    silent = tuple(LostPod(rank=rank, incarnation=1, code=82, why="silent for 5 s") for rank in lost)
    news = PodStatus("uid-1", "uid-0", 2, 0, "Training", START.isoformat(), lost=silent)
    o = await look(api, answers=("uid-0", "uid-1", "uid-2"), news=news)
    assert o is not None
    assert o.answering == asked


async def test_a_pod_of_an_earlier_job_of_the_same_name_lingers_and_one_copied_by_hand_does_not() -> None:
    earlier = {"uid": "uid-0", "kind": "TrainingJob", "name": "flux"}
    old = pod(name="flux-1-0", uid="old", ownerReferences=[earlier])
    copied = pod(name="debug-copy", uid="copied", ownerReferences=None)
    o = await look(cluster_with(old, copied))
    assert o is not None
    assert o.lingering == ("flux-1-0",)


async def test_healthy_nodes_are_not_read() -> None:
    o = await look(cluster_with(placed("n1", uid="one")))
    assert o is not None
    assert o.nodes == {}


@pytest.mark.parametrize(("attempt", "read"), [(3, set()), (2, {"bad", "node-b"})])
async def test_of_pods_that_are_gone_only_the_current_attempts_have_nodes_worth_a_look(
    attempt: int, read: set[str]
) -> None:
    report = replace(REPORT, gpu=Gpu(index=5, uuid="GPU-5", serial="165")).to_json()
    memory = Memory()
    memory.terminated.note(
        as_raw({"containerStatuses": container(terminated={"exitCode": 80, "message": report})}), deleted=True
    )
    api = cluster_with()
    status = {"attempt": attempt, "avoidedNodes": [{"name": "bad"}]}
    api.objects["/apis/oarlock.dev/v1alpha1/namespaces/default/trainingjobs/flux"] = job(status=status)
    await look(api, memory)
    assert {path.rpartition("/")[2] for verb, path in api.requests if "/nodes/" in path} == read


async def test_where_a_node_is_in_trouble_the_avoided_ones_are_read_too_as_a_new_pod_may_go_there() -> None:
    status = {"attempt": 2, "avoidedNodes": [{"name": "mended"}]}
    for troubled, read in (False, set()), (True, {"n1", "mended"}):
        api, memory = cluster_with(placed("n1", uid="one")), Memory()
        api.objects["/apis/oarlock.dev/v1alpha1/namespaces/default/trainingjobs/flux"] = job(status=status)
        if troubled:
            memory.troubled.note(node("n1"), deleted=True)
        await look(api, memory)
        assert {path.rpartition("/")[2] for _, path in api.requests if "/nodes/" in path} == read, api.requests


GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"
VOLCANO = GangSystems(apis={Gang.VOLCANO: "scheduling.volcano.sh/v1beta1"})


def group(attempt: int) -> Json:
    labels = {"oarlock.dev/job-uid": "uid-1", "oarlock.dev/attempt": str(attempt)}
    return {"metadata": {"name": f"flux-{attempt}", "uid": f"group-{attempt}", "labels": labels}}


def recovered(stage: str | None = None, **status: Any) -> MemoryApi:
    """A job under Volcano whose second attempt trains; the group of the first is left."""
    api = cluster_with()
    told = {"attempt": 2, "resolved": {"gang": "Volcano"}, "recovery": {"stage": stage} if stage else {}, **status}
    api.objects["/apis/oarlock.dev/v1alpha1/namespaces/default/trainingjobs/flux"] = job(status=told)
    api.objects |= {f"{GROUPS}/{attempt}": group(attempt) for attempt in (1, 2)}
    return api


async def groups_seen(api: MemoryApi, memory: Memory, *, systems: GangSystems = VOLCANO) -> list[int] | None:
    """Attempts whose groups a look found; None where it asked for none."""
    api.requests.clear()
    o = await look(api, memory, systems=systems)
    assert o is not None
    return [found.attempt for found in o.groups] if ("LIST", GROUPS) in api.requests else None


async def test_a_group_that_outlived_the_recovery_is_found_until_it_is_gone_and_then_none_is_asked_for() -> None:
    api, memory = recovered(), Memory()
    first = {"oarlock.dev/job": "flux", "oarlock.dev/job-uid": "uid-1", "oarlock.dev/attempt": "1"}
    memory.terminated.note(as_raw(name="flux-1-0", uid="first", labels=first), deleted=True)
    for _ in range(2):
        assert await groups_seen(api, memory) == [1, 2]
    del api.objects[f"{GROUPS}/1"]
    assert await groups_seen(api, memory) == [2]
    assert await groups_seen(api, memory) is None
    assert await groups_seen(api, Memory()) == [2], "an operator that starts anew looks once"


@pytest.mark.parametrize(
    "status",
    [{"stage": "Suspended"}, {"completionTime": "2026-01-01T12:00:00Z"}],
    ids=["suspended", "finished"],
)
async def test_a_job_of_which_nothing_runs_is_asked_for_groups_until_none_is_left(status: dict[str, str]) -> None:
    api, memory = recovered(**status), Memory()
    assert await groups_seen(api, memory) == [1, 2]
    for attempt in (1, 2):
        del api.objects[f"{GROUPS}/{attempt}"]
        assert await groups_seen(api, memory) is not None
    assert await groups_seen(api, memory) is None


async def test_groups_that_are_not_served_at_the_moment_are_not_known_to_be_gone() -> None:
    api, memory = recovered("Suspended"), Memory()
    assert await groups_seen(api, memory, systems=GangSystems()) is None
    assert await groups_seen(api, memory) == [1, 2]


async def test_while_a_gang_starts_what_its_queue_says_is_asked_for_each_time() -> None:
    api, memory = recovered("Schedule"), Memory()
    del api.objects[f"{GROUPS}/1"]
    for _ in range(3):
        assert await groups_seen(api, memory) == [2]
