"""pod.patch and pod.resources where CEL cannot look: what the models refuse, and that nulls live as long as the job."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import ValidationError

from oarlock_api.rules import ACCEPTED
from oarlock_api.spec import TrainingJobSpec
from oarlock_api.trainingjob import TrainingJob

if TYPE_CHECKING:
    from conftest import ApiServer, Manifest

MakeJob = Callable[..., "Manifest"]

NULLS: dict[str, Any] = {
    "affinity": None,
    "securityContext": {"fsGroup": None, "supplementalGroups": [1, 2]},
    "containers": [{"name": "trainer", "readinessProbe": None, "env": [{"name": "A", "value": None}]}],
    "volumes": [{"name": "tmp", "emptyDir": None}],
}


def patched(make_job: MakeJob, patch: dict[str, Any]) -> Manifest:
    job = make_job()
    job["spec"]["pod"] = {"patch": patch}
    return job


def parse(make_job: MakeJob, patch: dict[str, Any]) -> Any:
    pod = TrainingJobSpec.model_validate(patched(make_job, patch)["spec"]).pod
    assert pod.patch is not None
    return pod.patch


@pytest.mark.parametrize(
    ("patch", "where"),
    [
        ({"$patch": "replace"}, "$patch"),
        ({"containers": [{"name": "trainer", "$patch": "delete"}]}, "containers.0.$patch"),
        ({"volumes": [{"name": "tmp", "$retainKeys": ["name"]}]}, "volumes.0.$retainKeys"),
        ({"$setElementOrder/containers": [{"name": "trainer"}]}, "$setElementOrder/containers"),
        (
            {"containers": [{"name": "a", "lifecycle": {"x": [{"$patch": "delete"}]}}]},
            "containers.0.lifecycle.x.0.$patch",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_directive_is_refused_with_its_place_and_what_to_write_instead(
    make_job: MakeJob, patch: dict[str, Any], where: str
) -> None:
    with pytest.raises(ValidationError) as refused:
        parse(make_job, patch)
    assert f"{where} is a directive, and pod.patch knows none: a null takes a key away" in str(refused.value)


@pytest.mark.parametrize(
    ("container", "value", "reference"),
    [
        ("trainer", "tcp://$(MASTER_ADDR):1", "MASTER_ADDR"),
        ("trainer", "$$$(NUM_MACHINES)", "NUM_MACHINES"),
        ("trainer", "$$(MASTER_ADDR) $MASTER_ADDR", ""),
        ("trainer", "rank $(MACHINE_RANK) of $(OARLOCK_JOB) in $(HOME)", ""),
        ("side", "rank $(MACHINE_RANK)", "MACHINE_RANK"),
        ("side", "$(MASTER_ADDR)", "MASTER_ADDR"),
        ("side", "$(HOME)", ""),
    ],
)
@pytest.mark.parametrize("kind", ["containers", "initContainers"])
def test_a_reference_that_kubernetes_would_leave_as_it_stands_is_refused_of_a_new_job(
    kind: str, container: str, value: str, reference: str, make_job: MakeJob
) -> None:
    """Kubernetes fills in what is set before in the same container, and nothing else."""
    patch = {kind: [{"name": container, "env": [{"name": "A", "value": value}]}]}
    if not reference:
        assert parse(make_job, patch).as_given() == patch
        return
    with pytest.raises(ValidationError) as refused:
        parse(make_job, patch)
    assert f"container {container}: A refers to $({reference}), which is not set there" in str(refused.value)
    TrainingJobSpec.model_validate(patched(make_job, patch)["spec"], context=ACCEPTED)


def test_a_patch_is_written_as_it_was_given_with_its_nulls(make_job: MakeJob) -> None:
    assert parse(make_job, NULLS).as_given() == NULLS
    job = TrainingJob.model_validate(patched(make_job, NULLS))
    assert job.to_manifest()["spec"]["pod"]["patch"] == NULLS
    assert TrainingJob.model_validate(job.to_manifest()) == job


GUARDED = {
    "hostname": None,
    "hostNetwork": None,
    "containers": [{"name": "trainer", "command": None, "env": None}, {"name": "side", "image": None}],
}


def test_a_null_takes_nothing_away_that_is_guarded(make_job: MakeJob) -> None:
    assert parse(make_job, GUARDED).as_given() == {"containers": [{"name": "trainer"}, {"name": "side"}]}
    assert parse(make_job, {"containers": None, "volumes": None}).as_given() == {}


@pytest.mark.parametrize("side", ["requests", "limits"])
def test_gpus_are_not_asked_for_twice(make_job: MakeJob, side: str) -> None:
    pod = {"gpuResource": "amd.com/gpu", "resources": {side: {"amd.com/gpu": 8, "cpu": 1}}}
    with pytest.raises(ValidationError, match=r"gpusPerNode asks for amd\.com/gpu; remove it from pod\.resources"):
        TrainingJobSpec.model_validate(make_job({"pod": pod})["spec"])
    TrainingJobSpec.model_validate(make_job({"pod": {**pod, "gpuResource": "nvidia.com/gpu"}})["spec"])


@pytest.mark.cluster
def test_the_api_server_keeps_the_nulls_of_a_patch_and_drops_those_of_guarded_leaves(
    api: ApiServer, make_job: MakeJob
) -> None:
    kept = api.create(patched(make_job, NULLS))
    assert kept.is_success, kept.text
    assert kept.json()["spec"]["pod"]["patch"] == NULLS
    dropped = api.create(patched(make_job, GUARDED))
    assert dropped.is_success, dropped.text
    assert parse(make_job, dropped.json()["spec"]["pod"]["patch"]).as_given() == {
        "containers": [{"name": "trainer"}, {"name": "side"}]
    }


@pytest.mark.cluster
def test_a_patch_with_nulls_is_applied_as_it_stands(api: ApiServer, make_job: MakeJob) -> None:
    answer = api.client.patch(
        f"{api.jobs}/minimal",
        json=patched(make_job, NULLS),
        headers={"Content-Type": "application/apply-patch+yaml"},
        params={"fieldManager": "kubectl", "dryRun": "All", "fieldValidation": "Strict"},
    )
    assert answer.is_success, answer.text
    assert answer.json()["spec"]["pod"]["patch"] == NULLS
