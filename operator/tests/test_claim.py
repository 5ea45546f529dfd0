"""Before a pod is made, its job's output and names are that job's alone."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from jobs import job, spec
from worlds import World

from oarlock_api.spec import TrainingJobSpec
from oarlock_operator.manifests.ownership import output_mark
from oarlock_operator.manifests.pod import pod as pod_manifest
from oarlock_operator.manifests.service import service
from oarlock_operator.neighbours import lingering, rival
from oarlock_operator.observation import Job, ServiceSeen

Json = dict[str, Any]


class Listing:
    """A cluster with jobs, their Services, and pods."""

    def __init__(self, jobs: list[Json], pods: list[Json]) -> None:
        self._jobs = {raw["metadata"]["name"]: raw for raw in jobs}
        self._found = {"services": [service_of(raw) for raw in jobs], "pods": pods}

    async def list(self, path: str, *, labelSelector: str) -> list[Json]:  # noqa: N803 - the API's own spelling
        mark, other = (part.split("=") for part in labelSelector.split(","))
        assert other[0].endswith("!")
        return [
            item
            for item in self._found[path.rpartition("/")[2]]
            if (labels := item["metadata"]["labels"]).get(mark[0]) == mark[1]
            and labels.get(other[0].removesuffix("!")) != other[1]
        ]

    async def get(self, path: str) -> Json:
        return self._jobs[path.rpartition("/")[2]]


def service_of(raw: Json) -> Json:
    metadata = raw["metadata"]
    of = job(name=metadata["name"], uid=metadata["uid"], spec=TrainingJobSpec.model_validate(raw["spec"]))
    return service(of, 1)


def written(of: Job, *, made: str = "2026-01-01T00:00:00Z", **status: Any) -> Json:
    assert of.spec is not None
    return {
        "metadata": {"name": of.name, "uid": of.uid, "creationTimestamp": made},
        "spec": of.spec.to_manifest(),
        "status": status,
    }


def running_pod(of: Job, phase: str = "Running") -> Json:
    assert of.spec is not None
    return {**pod_manifest(of, of.spec, attempt=1, rank=0, image="i"), "status": {"phase": phase}}


MINE = job()
OTHER = job(name="other", uid="uid-2", spec=spec(output={**MINE.spec.output.to_manifest(), "directory": "flux"}))
ELSEWHERE = job(name="other", uid="uid-2")


async def rival_of(*jobs: Json) -> str:
    """Whom the first of `jobs` gives way to."""
    return await rival(Listing(list(jobs), []), MINE, jobs[0])  # type: ignore[arg-type]


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
    assert bool(await lingering(Listing([], [pod]), MINE)) == lingers  # type: ignore[arg-type]


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
    world = World(lingering=("flux-1-0",))
    world.settle()
    assert not world.pods
    assert world.job.status.reason == "WaitingForPredecessor"
    assert "flux-1-0" in (world.job.status.message or "")
    world.lingering = ()
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
