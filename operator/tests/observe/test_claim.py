"""Before a pod is made, its job's output and names are that job's alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from jobs import job, spec
from worlds import World

from oarlock_api.status import TrainingJobStatus
from oarlock_operator.kube.api_error import NotFound
from oarlock_operator.kube.decoding import Page
from oarlock_operator.manifests.ownership import output_mark
from oarlock_operator.manifests.pod import pod as pod_manifest
from oarlock_operator.model.observation import Job, ServiceSeen
from oarlock_operator.observe.output_conflicts import lingering, rival
from oarlock_operator.observe.outputs import Outputs
from oarlock_operator.pods.pod_facts import Metadata

Json = dict[str, Any]


class Listing:
    """A cluster with jobs and pods. `asked`: what for."""

    def __init__(self, jobs: list[Json], pods: list[Json]) -> None:
        self.jobs = {raw["metadata"]["name"]: raw for raw in jobs}
        self.pods = pods
        self.asked: list[str] = []

    async def pages_of(self, kind: type[Any], path: str, **_: str) -> AsyncIterator[Page[Any]]:
        self.asked.append(path)
        found = self.pods if path.endswith("/pods") else self.jobs.values()
        yield Page(items=tuple(msgspec.convert(raw, kind) for raw in found))

    async def list(self, path: str, *, labelSelector: str) -> list[Json]:  # noqa: N803 - the API's own spelling
        self.asked.append(path)
        mark, other = (part.split("=") for part in labelSelector.split(","))
        assert other[0].endswith("!")
        return [
            item
            for item in self.pods
            if (labels := item["metadata"]["labels"]).get(mark[0]) == mark[1]
            and labels.get(other[0].removesuffix("!")) != other[1]
        ]

    async def get(self, path: str) -> Json:
        self.asked.append(path)
        if (name := path.rpartition("/")[2]) not in self.jobs:
            raise NotFound(404, "NotFound", path)
        return self.jobs[name]


def written(of: Job, *, made: str = "2026-01-01T00:00:00Z", **status: Any) -> Json:
    """A job that has begun."""
    assert of.spec is not None
    return {
        "metadata": {"namespace": "default", "name": of.name, "uid": of.uid, "creationTimestamp": made},
        "spec": of.spec.to_manifest(),
        "status": {"attempt": 1, **status},
    }


def running_pod(of: Job, phase: str = "Running") -> Json:
    assert of.spec is not None
    return {**pod_manifest(of, of.spec, attempt=1, rank=0, image="i"), "status": {"phase": phase}}


MINE = job()
OTHER = job(name="other", uid="uid-2", spec=spec(output={**MINE.spec.output.to_manifest(), "directory": "flux"}))
ELSEWHERE = job(name="other", uid="uid-2")


async def known(here: Listing) -> Outputs:
    """What an operator knows that has just begun."""
    outputs = Outputs()
    await outputs.complete(here, "default")  # type: ignore[arg-type]
    here.asked.clear()
    return outputs


async def rival_of(*jobs: Json) -> str:
    """Whom the first of `jobs` gives way to."""
    here = Listing(list(jobs), [])
    return await rival(here, MINE, jobs[0], await known(here))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (written(OTHER, made="2025-12-31T00:00:00Z"), "other"),
        (written(OTHER, made="2026-01-02T00:00:00Z"), ""),
        (written(OTHER, made="2026-01-02T00:00:00Z", startTime="2026-01-02T00:00:01Z"), "other"),
        (written(OTHER, made="2025-12-31T00:00:00Z", completionTime="2026-01-01T00:00:00Z"), ""),
        (written(ELSEWHERE, made="2025-12-31T00:00:00Z"), ""),
    ],
    ids=["made first", "made later", "started first", "finished", "another directory"],
)
async def test_of_two_jobs_with_one_output_one_has_it(other: Json, expected: str) -> None:
    assert await rival_of(written(MINE), other) == expected


async def test_a_job_that_has_started_keeps_its_output_against_an_older_one_that_has_not() -> None:
    mine = written(MINE, startTime="2026-01-01T00:00:01Z")
    assert await rival_of(mine, written(OTHER, made="2025-12-31T00:00:00Z")) == ""


@pytest.mark.parametrize(
    ("pod", "lingers"),
    [
        (running_pod(OTHER), True),
        (running_pod(OTHER, "Failed"), False),
        (running_pod(ELSEWHERE), False),
        (running_pod(MINE), False),
        (running_pod(job(uid="uid-0")), True),
    ],
    ids=["same output", "same output, ended", "another output", "our own", "an earlier job of our name"],
)
async def test_pods_that_may_still_write_linger(pod: Json, lingers: bool) -> None:  # noqa: FBT001
    here = Listing([], [pod])
    outputs = await known(here)
    assert bool(await lingering(here, MINE, outputs)) == lingers  # type: ignore[arg-type]
    assert bool(here.asked) == lingers, "where nobody can linger nobody is asked"


@pytest.mark.parametrize(
    ("facts", "orphan"),
    [
        ({}, True),
        ({"ownerReferences": [{"uid": "uid-0"}]}, False),
        ({"deletionTimestamp": "2026-01-01T00:00:00Z"}, False),
    ],
)
async def test_a_pod_without_an_owner_that_nobody_deletes_is_left_for_good(facts: Json, *, orphan: bool) -> None:
    pod = running_pod(OTHER)
    pod["metadata"].pop("ownerReferences", None)
    pod["metadata"] |= facts
    here = Listing([], [pod])
    assert list((await lingering(here, MINE, await known(here))).values()) == [orphan]  # type: ignore[arg-type]


async def test_a_job_whose_output_is_nobody_else_s_asks_nobody() -> None:
    here = Listing([written(MINE), written(ELSEWHERE)], [running_pod(ELSEWHERE), running_pod(MINE)])
    outputs = await known(here)
    assert await rival(here, MINE, written(MINE), outputs) == ""  # type: ignore[arg-type]
    assert await lingering(here, MINE, outputs) == {}  # type: ignore[arg-type]
    await outputs.complete(here, "default")  # type: ignore[arg-type]
    assert here.asked == []


async def test_an_operator_that_begins_anew_knows_of_a_suspended_job_that_has_no_object_left() -> None:
    suspended = written(OTHER, made="2025-12-31T00:00:00Z", startTime="2025-12-31T00:00:01Z")
    assert await rival_of(written(MINE), suspended) == "other"


async def test_a_job_that_has_not_begun_is_nobody_s_rival() -> None:
    assert await rival_of(written(MINE), written(OTHER, made="2025-12-31T00:00:00Z", attempt=0)) == ""


async def test_of_two_jobs_that_begin_side_by_side_the_later_look_sees_the_other() -> None:
    here, outputs = Listing([], []), Outputs()
    await outputs.complete(here, "default")  # type: ignore[arg-type]
    outputs.note_job(MINE)
    assert outputs.others(MINE) == []
    outputs.note_job(OTHER)
    assert (outputs.others(MINE), outputs.others(OTHER)) == (["other"], ["flux"])


async def test_a_job_that_was_finished_deleted_or_given_to_another_controller_is_no_longer_asked_for() -> None:
    outputs = Outputs()
    over = TrainingJobStatus.model_validate({"completionTime": "2026-01-01T00:00:00Z"})
    for end in ({"status": over}, {"deleting": True}, {"managed_by": "example.com/other"}):
        outputs.note_job(OTHER)
        assert outputs.others(MINE) == ["other"]
        outputs.note_job(replace(OTHER, **end))  # type: ignore[arg-type]
        assert outputs.others(MINE) == []
    outputs.note_job(OTHER)
    here = Listing([], [])
    assert await rival(here, MINE, written(MINE), outputs) == ""  # type: ignore[arg-type]
    assert outputs.others(MINE) == [], "it is gone, and asked for once"


async def test_a_job_that_cannot_be_read_any_more_keeps_its_output() -> None:
    outputs = Outputs()
    outputs.note_job(OTHER)
    outputs.note_job(replace(OTHER, spec=None))
    assert outputs.others(MINE) == ["other"]


async def test_pods_are_known_from_when_they_are_made_until_they_are_gone() -> None:
    here, outputs = Listing([], []), Outputs()
    assert outputs.pods_of(("default", "flux")) is None, "not known yet"
    await outputs.complete(here, "default")  # type: ignore[arg-type]
    assert outputs.pods_of(("default", "flux")) == frozenset()
    made = running_pod(job(uid="uid-0"))
    outputs.note_made([made])
    metadata = msgspec.convert(made["metadata"], Metadata)
    assert outputs.pods_of(("default", "flux")) == {"flux-1-0"}
    assert outputs.may_linger(MINE)
    outputs.note_pod(metadata, "Failed", gone=False)
    assert not outputs.may_linger(MINE), "it writes no more"
    assert outputs.pods_of(("default", "flux")) == {"flux-1-0"}, "it still has its name"
    outputs.note_pod(metadata, "Failed", gone=True)
    assert outputs.pods_of(("default", "flux")) == frozenset()


async def test_a_job_that_has_all_its_pods_keeps_its_output_against_one_that_has_not() -> None:
    mine = written(MINE, made="2025-12-31T00:00:00Z", startTime="2026-01-01T00:00:01Z")
    other = written(OTHER, startTime="2026-01-01T00:00:02Z", attempts=[{"number": 1, "createdTime": "2026-01-01"}])
    assert await rival_of(mine, other) == "other"


def test_jobs_share_a_mark_exactly_if_they_write_to_the_same_place() -> None:
    elsewhere = job(spec=spec(output={"persistentVolumeClaim": {"claimName": "another"}}))
    mounted = job(spec=spec(output={**MINE.spec.output.to_manifest(), "mountPath": "/data"}))
    assert output_mark(MINE) == output_mark(OTHER) == output_mark(mounted)
    assert len({output_mark(MINE), output_mark(ELSEWHERE), output_mark(elsewhere)}) == 3


def test_nothing_is_made_while_a_predecessors_pods_run_and_the_reason_is_told() -> None:
    world = World(lingering=("flux-1-0",), orphans=("flux-1-0",))
    world.settle()
    assert not world.pods
    assert world.job.status.reason == "WaitingForPredecessor"
    assert "kubectl -n default delete pod flux-1-0" in (world.job.status.message or "")
    world.lingering = world.orphans = ()
    world.settle()
    assert sorted(world.pods) == ["flux-1-0", "flux-1-1"]
    assert world.job.status.reason == "Starting"


def test_a_predecessor_that_never_goes_is_looked_at_ever_less_often() -> None:
    world = World(lingering=("flux-1-0",))
    world.settle()
    looks = []
    for _ in range(3):
        looks.append(world.one_pass().again_seconds or 0)
        world.now += timedelta(seconds=60)
    assert looks[0] <= 1
    assert looks == sorted(looks)
    world.now += timedelta(hours=1)
    assert world.one_pass().again_seconds == 10


def test_the_service_of_a_deleted_job_of_the_same_name_is_waited_for_and_is_no_name_taken() -> None:
    world = World(service=ServiceSeen("old", ours=False, attempt=1, leaving=True))
    world.settle()
    assert world.job.status.completion_time is None
    assert not world.pods
    world.service = None
    world.settle()
    assert sorted(world.pods) == ["flux-1-0", "flux-1-1"]


def test_a_job_whose_output_is_anothers_ends_and_names_the_other() -> None:
    world = World(rival="other")
    world.settle()
    status = world.job.status
    assert (status.phase, status.reason) == ("Failed", "OutputInUse")
    assert "other" in (status.message or "")
    assert not world.pods


def test_a_job_that_runs_is_not_disturbed_by_a_later_look_at_its_neighbours() -> None:
    world = World()
    world.running()
    world.rival = "other"
    world.settle()
    assert world.job.status.phase == "Running"
    assert world.job.status.attempt == 1
