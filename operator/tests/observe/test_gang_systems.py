"""Discovery of gang systems: the best version, only with its groups served, and only where they may be made."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from jobs import job

from oarlock_api.scheduling import Gang
from oarlock_api.status import Resolved, TrainingJobStatus
from oarlock_operator.kube.api_error import ApiError, NotFound
from oarlock_operator.model.observation import GangSystems
from oarlock_operator.observe.gang_systems import FRESH_SECONDS, KNOWN_SECONDS, GangReader
from oarlock_operator.observe.groups import read_groups


class Served:
    """An API server that serves `resources` (API -> plurals), and lets nobody touch the groups of `forbidden`."""

    def __init__(self, resources: dict[str, tuple[str, ...]], *, forbidden: str = "", **lists: Any) -> None:
        self.resources, self.forbidden, self.lists = resources, forbidden, lists
        self.asked: list[str] = []

    async def get(self, path: str) -> dict[str, Any]:
        self.asked.append(path)
        if path == "/apis":
            return {"groups": [{"versions": [{"groupVersion": api} for api in self.resources]}]}
        if (api := path.removeprefix("/apis/")) in self.resources:
            return {"resources": [{"name": name} for name in self.resources[api]]}
        raise NotFound(404, "NotFound", path)

    async def create(self, _path: str, body: dict[str, Any]) -> dict[str, Any]:
        asked = body["spec"]["resourceAttributes"]
        assert (asked["verb"], asked["resource"]) == ("create", "podgroups")
        return {"status": {"allowed": asked["group"] != self.forbidden}}

    async def list(self, path: str, **_: str) -> list[dict[str, Any]]:
        if (plural := path.rpartition("/")[2]) in self.lists:
            found: list[dict[str, Any]] = self.lists[plural]
            return found
        raise ApiError(403, "Forbidden", path)


async def discovered(served: Served) -> GangSystems:
    return await GangReader(served).read(choosing=True)  # type: ignore[arg-type]


async def test_of_the_versions_that_serve_groups_the_best_is_taken() -> None:
    found = await discovered(
        Served(
            {
                "scheduling.k8s.io/v1": ("priorityclasses",),
                "scheduling.k8s.io/v1alpha2": ("podgroups", "workloads"),
                "scheduling.k8s.io/v1alpha3": ("podgroups",),
                "scheduling.k8s.io/v1beta1": ("workloads",),
                "kueue.x-k8s.io/v1beta1": ("localqueues",),
            }
        )
    )
    assert found.apis == {Gang.NATIVE: "scheduling.k8s.io/v1alpha3", Gang.KUEUE: "kueue.x-k8s.io/v1beta1"}


async def test_a_system_whose_groups_may_not_be_made_is_known_but_not_used() -> None:
    apis = {"scheduling.volcano.sh/v1beta1": ("podgroups",), "scheduling.x-k8s.io/v1alpha1": ("podgroups",)}
    found = await discovered(Served(apis, forbidden="scheduling.volcano.sh"))
    assert set(found.apis) == {Gang.COSCHEDULING}
    assert found.forbidden == {Gang.VOLCANO}


async def test_topologies_of_kai_are_known_by_their_levels_where_they_may_be_read() -> None:
    apis = {"scheduling.run.ai/v2alpha2": ("podgroups",), "kai.scheduler/v1alpha1": ("topologies",)}
    topology = {"metadata": {"name": "network"}, "spec": {"levels": [{"nodeLabel": "zone"}, {"nodeLabel": "rack"}]}}
    assert (await discovered(Served(apis, topologies=[topology]))).topologies == {"zone": "network", "rack": "network"}
    assert (await discovered(Served(apis))).topologies == {}


async def test_many_jobs_that_start_at_once_ask_once_later_ones_anew_and_those_that_have_chosen_hardly_ever() -> None:
    served, now = Served({}), 100.0
    reader = GangReader(served, clock=lambda: now)  # type: ignore[arg-type]
    for _ in range(3):
        await reader.read(choosing=True)
    assert served.asked == ["/apis"]
    now += FRESH_SECONDS
    await reader.read(choosing=False)
    assert served.asked == ["/apis"]
    await reader.read(choosing=True)
    assert served.asked == ["/apis", "/apis"]
    now += KNOWN_SECONDS
    await reader.read(choosing=False)
    assert served.asked == ["/apis", "/apis", "/apis"]


async def test_a_server_that_serves_the_system_of_a_job_only_after_its_start_is_asked_again_soon() -> None:
    served, now = Served({}), 100.0
    reader = GangReader(served, clock=lambda: now)  # type: ignore[arg-type]
    assert (await reader.read(choosing=False, used=Gang.VOLCANO)).apis == {}
    served.resources = {"scheduling.volcano.sh/v1beta1": ("podgroups",)}
    assert (await reader.read(choosing=False, used=Gang.VOLCANO)).apis == {}, "not at each look"
    now += FRESH_SECONDS
    assert set((await reader.read(choosing=False, used=Gang.VOLCANO)).apis) == {Gang.VOLCANO}
    read = len(served.asked)
    now += FRESH_SECONDS
    await reader.read(choosing=False, used=Gang.VOLCANO)
    assert len(served.asked) == read


async def test_a_workload_that_kueue_cannot_convert_holds_up_no_recovery_a_group_that_is_ours_is_asked_for_again() -> (
    None
):
    served = Served({})

    async def broken(path: str, **_: str) -> dict[str, Any]:
        raise ApiError(500, "InternalError", f"conversion webhook for {path} failed")

    served.get = served.list = broken  # type: ignore[method-assign, assignment]
    queued = job(status=TrainingJobStatus(attempt=2, resolved=Resolved(gang="Kueue")))
    systems = GangSystems(apis={gang: f"{gang}/v1" for gang in Gang})
    assert await read_groups(served, queued, systems) == ()  # type: ignore[arg-type]
    ours = job(status=TrainingJobStatus(attempt=2, resolved=Resolved(gang="Volcano")))
    with pytest.raises(ApiError):
        await read_groups(served, ours, systems)  # type: ignore[arg-type]


async def test_groups_tell_their_attempt_and_why_they_wait_and_those_that_may_not_be_read_are_none() -> None:
    of = job(status=TrainingJobStatus(attempt=2, resolved=Resolved(gang="Volcano")))
    systems = GangSystems(apis={Gang.VOLCANO: "scheduling.volcano.sh/v1beta1"})
    metadata = {"name": "flux-uid-1-2", "uid": "g", "labels": {"oarlock.dev/attempt": "2"}}
    served = Served({}, podgroups=[{"metadata": metadata, "status": {"phase": "Pending"}}])
    (group,) = await read_groups(served, of, systems)  # type: ignore[arg-type]
    assert (group.attempt, group.ours, group.deleting) == (2, True, False)
    assert group.waits
    assert await read_groups(Served({}), of, systems) == ()  # type: ignore[arg-type]
    assert await read_groups(served, of, GangSystems()) == ()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("admitted", "let_in"),
    [
        ({"status": "True", "lastTransitionTime": "2026-01-01T12:30:00Z"}, datetime(2026, 1, 1, 12, 30, tzinfo=UTC)),
        ({"status": "False", "lastTransitionTime": "2026-01-01T12:30:00Z"}, None),
        ({"status": "True", "lastTransitionTime": None}, None),
        ({"status": "True"}, None),
        ({}, None),
    ],
)
async def test_a_workload_tells_since_when_it_is_admitted(admitted: dict[str, Any], let_in: datetime | None) -> None:
    queued = job(status=TrainingJobStatus(attempt=2, resolved=Resolved(gang="Kueue")))
    workload = {"metadata": {"name": "w", "uid": "w"}, "status": {"conditions": [{"type": "Admitted", **admitted}]}}

    async def get(_path: str) -> dict[str, Any]:
        return workload

    served = Served({})
    served.get = get  # type: ignore[method-assign]
    (group,) = await read_groups(served, queued, GangSystems(apis={Gang.KUEUE: "kueue.x-k8s.io/v1beta2"}))  # type: ignore[arg-type]
    assert (group.let_in, group.waits) == (let_in, "")
