"""The models: spelling, round trips, strictness of the spec and tolerance of the status."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from oarlock_api.location import S3Location
from oarlock_api.naming import camel_case
from oarlock_api.spec import TrainingJobSpec
from oarlock_api.status import ConditionType, TrainingJobStatus
from oarlock_api.training import Training
from oarlock_api.training_rules import LOCATIONS
from oarlock_api.trainingjob import TrainingJob
from oarlock_api.weights import Lora, Method

if TYPE_CHECKING:
    from conftest import Manifest

MakeJob = Callable[..., "Manifest"]


@pytest.mark.parametrize(
    ("attribute", "spelling"),
    [
        ("gpus_per_node", "gpusPerNode"),
        ("s3_connections", "s3Connections"),
        ("gpu_seconds", "gpuSeconds"),
        ("wasted_gpu_seconds", "wastedGPUSeconds"),
        ("gpu_uuid", "gpuUUID"),
        ("pod_uid", "podUid"),
        ("ttl_seconds_after_finished", "ttlSecondsAfterFinished"),
        ("vae_batch_size", "vaeBatchSize"),
        ("url_secret_ref", "urlSecretRef"),
    ],
)
def test_attributes_are_spelled_as_kubernetes_spells_fields(attribute: str, spelling: str) -> None:
    assert camel_case(attribute) == spelling


def test_what_is_written_is_read_as_the_same_job(common_job: Manifest) -> None:
    job = TrainingJob.model_validate(common_job)
    assert TrainingJob.model_validate(job.to_manifest()) == job
    assert job.spec.training is not None
    assert job.spec.training.batch_size == 8
    assert job.spec.training.optimizer.learning_rate == 1e-5


def test_groups_are_made_in_python_by_their_attributes() -> None:
    assert Lora(rank=32).to_manifest()["quantizeBase"] == "None"
    assert Training.model_fields["method"].default is Method.FULL


def test_a_parsed_job_does_not_change(common_job: Manifest) -> None:
    spec = TrainingJob.model_validate(common_job).spec
    with pytest.raises(ValidationError, match="frozen"):
        spec.nodes = 8  # type: ignore[misc]


def test_a_spec_with_an_unknown_field_is_refused_with_its_path(make_job: MakeJob) -> None:
    with pytest.raises(ValidationError, match=r"training\.batchsize"):
        TrainingJobSpec.model_validate(make_job({"training": {"batchsize": 8}})["spec"])


@pytest.mark.parametrize(
    "changes", [{"nodes": "4"}, {"nodes": 4.5}, {"nodes": True}, {"suspend": "yes"}, {"nodes": {}}]
)
def test_a_value_of_another_type_is_refused_and_never_converted(make_job: MakeJob, changes: Manifest) -> None:
    with pytest.raises(ValidationError):
        TrainingJobSpec.model_validate(make_job(changes)["spec"])


def test_a_status_of_a_later_version_is_read_without_what_is_unknown() -> None:
    status = TrainingJobStatus.model_validate(
        {"phase": "Hibernating", "mood": "good", "progress": {"step": 3, "feeling": 1}, "attempts": [{"number": 2}]}
    )
    assert status.phase == "Hibernating"
    assert status.progress is not None
    assert status.progress.step == 3
    assert "mood" not in status.to_manifest()


def test_the_status_is_written_in_the_words_of_the_api() -> None:
    time = datetime(2026, 11, 21, 12, 1, 7, tzinfo=UTC)
    status = TrainingJobStatus.model_validate(
        {
            "wasted_gpu_seconds": 7,
            "strikes": [{"gpu_uuid": "GPU-1", "last_time": time}],
            "last_fault": {"time": time, "fault_class": "GPU", "gpu": {"uuid": "GPU-1"}},
        }
    )
    written = status.to_manifest()
    assert written["wastedGPUSeconds"] == 7
    assert written["strikes"] == [
        {"gpuUUID": "GPU-1", "count": 1, "hardwareCount": 0, "lastTime": "2026-11-21T12:01:07Z"}
    ]
    assert written["lastFault"]["class"] == "GPU"


def test_a_time_without_zone_is_refused() -> None:
    with pytest.raises(ValidationError, match="timezone"):
        TrainingJobStatus.model_validate({"startTime": "2026-11-21T12:01:07"})


@given(loss=st.floats())
def test_a_loss_that_is_not_finite_can_not_be_written(loss: float) -> None:
    finite = loss == loss and abs(loss) != float("inf")  # noqa: PLR0124 - NaN is what differs from itself
    try:
        TrainingJobStatus.model_validate({"progress": {"loss": loss}})
    except ValidationError:
        assert not finite
    else:
        assert finite


@given(
    nodes=st.integers(1, 4096),
    steps=st.integers(1, 10**9),
    learning_rate=st.floats(min_value=1e-12, max_value=1),
    suspend=st.booleans(),
    environment=st.dictionaries(st.from_regex(r"\A[A-Z]{1,8}\Z"), st.text(max_size=20), max_size=5),
)
def test_any_job_survives_being_written_and_read(
    *, nodes: int, steps: int, learning_rate: float, suspend: bool, environment: dict[str, str]
) -> None:
    spec = TrainingJobSpec.model_validate(
        {
            "nodes": nodes,
            "suspend": suspend,
            "output": {"nfs": {"server": "nfs", "path": "/x"}},
            "pod": {"env": [{"name": f"X_{name}", "value": value} for name, value in environment.items()]},
            "training": {
                "model": {"family": "Flux1", "path": "/model"},
                "steps": steps,
                "optimizer": {"learningRate": learning_rate},
                "data": {"datasets": [{"name": "a", "source": {"path": "/a"}}]},
            },
        }
    )
    assert TrainingJobSpec.model_validate(spec.to_manifest()) == spec


def test_the_rule_about_connections_knows_every_s3_location_of_the_training() -> None:
    assert set(_places(Training, "")) == set(LOCATIONS)


def _places(model: type[BaseModel], path: str) -> Iterator[str]:
    for name, field in model.model_fields.items():
        here = f"{path}.{name}".removeprefix(".")
        is_list = "tuple" in str(field.annotation).split("[")[0]
        for kind in _models(field.annotation):
            if kind is S3Location:
                yield here
            else:
                yield from _places(kind, f"{here}[]" if is_list else here)


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)


def test_the_conditions_of_a_job_are_those_that_people_wait_for() -> None:
    assert {"Finished", "Succeeded", "Failed", "Suspended"} <= set(ConditionType)


def test_a_quantity_may_be_a_number_as_in_kubernetes(make_job: MakeJob) -> None:
    spec = TrainingJobSpec.model_validate(make_job({"output": {"minFree": 1000}})["spec"])
    assert spec.output.min_free == "1000"
