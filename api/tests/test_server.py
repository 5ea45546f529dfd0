"""What a real API server does with jobs that exist: immutability, defaults, status, columns, selection."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from oarlock_api.crd import custom_resource_definition
from oarlock_api.manifest import load
from oarlock_api.spec import TrainingJobSpec
from oarlock_api.status import TrainingJobStatus
from oarlock_local.patience import eventually

if TYPE_CHECKING:
    from conftest import ApiServer, Manifest

pytestmark = pytest.mark.cluster

MakeJob = Callable[..., "Manifest"]

STARTED = "2026-11-21T12:00:00Z"
LATER = "2026-11-21T12:00:01Z"
FULL_STATUS: Manifest = load((Path(__file__).parent / "status.yaml").read_text())


def suspended_condition(status: str) -> Manifest:
    return {
        "startTime": STARTED,
        "conditions": [
            {"type": "Suspended", "status": status, "reason": "Requested", "lastTransitionTime": STARTED},
        ],
    }


@pytest.fixture
def stored(api: ApiServer, make_job: MakeJob) -> Iterator[Callable[..., str]]:
    """Store a job and return its name."""
    names: list[str] = []

    def store(changes: Manifest | None = None, *, status: Manifest | None = None) -> str:
        name = f"job-{len(names)}"
        answer = api.create(make_job(changes, name=name), dry_run=False)
        assert answer.is_success, answer.text
        names.append(name)
        if status is not None:
            assert api.patch_status(name, status).is_success
        return name

    yield store
    for name in names:
        api.client.delete(f"{api.jobs}/{name}")


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"output": {"nfs": {"path": "/exports/other"}}}, "spec.output is immutable"),
        ({"output": {"directory": "elsewhere"}}, "spec.output is immutable"),
        ({"output": {"minFree": "1Gi"}}, "spec.output is immutable"),
        ({"managedBy": "kueue.x-k8s.io/multikueue"}, "spec.managedBy is immutable"),
    ],
    ids=["another place", "a directory added later", "another field added later", "another controller"],
)
def test_output_and_controller_never_change_not_even_while_suspended(
    api: ApiServer, stored: Callable[..., str], spec: Manifest, words: str
) -> None:
    answer = api.patch(stored({"suspend": True}), {"spec": spec})
    assert answer.status_code == 422, answer.text
    assert words in answer.json()["message"]


POD_SHAPING: dict[str, Manifest] = {
    "nodes": {"nodes": 8},
    "GPUs": {"gpusPerNode": 4},
    "spares that are added later": {"nodes": 2, "spares": 1, "recovery": {"inPlace": "Auto"}},
    "training": {"training": {"batchSize": 4}},
    "a part of training that is added later": {"training": {"initFrom": {"path": "/output/other"}}},
    "pod": {"pod": {"hostNetwork": True}},
    "a patch that is added later": {"pod": {"patch": {"shareProcessNamespace": True}}},
    "scheduling": {"scheduling": {"queue": "research"}},
    "a suspension and a change in one": {"suspend": True, "nodes": 8},
}


@pytest.mark.parametrize("spec", POD_SHAPING.values(), ids=POD_SHAPING)
def test_what_makes_the_pods_does_not_change_while_the_job_is_active(
    api: ApiServer, stored: Callable[..., str], spec: Manifest
) -> None:
    answer = api.patch(stored(), {"spec": spec})
    assert answer.status_code == 422, answer.text
    assert "set spec.suspend to true, wait for the condition Suspended" in answer.json()["message"]


def test_a_job_does_not_become_another_kind_of_job_while_it_is_active(
    api: ApiServer, stored: Callable[..., str]
) -> None:
    changes = {"spec": {"training": None, "custom": {"command": ["train"]}, "pod": {"image": "image"}}}
    assert "set spec.suspend to true" in api.patch(stored(), changes).json()["message"]
    assert api.patch(stored({"suspend": True}), changes).is_success


@pytest.mark.parametrize(
    "status", [suspended_condition("False"), {"startTime": STARTED}], ids=["condition is False", "no condition yet"]
)
def test_what_makes_the_pods_does_not_change_while_a_suspended_job_still_has_pods(
    api: ApiServer, stored: Callable[..., str], status: Manifest
) -> None:
    answer = api.patch(stored({"suspend": True}, status=status), {"spec": {"nodes": 8}})
    assert answer.status_code == 422, answer.text
    assert "wait for the condition Suspended" in answer.json()["message"]


def test_nobody_passes_a_change_of_the_spec_off_as_a_write_of_the_status(
    api: ApiServer, stored: Callable[..., str]
) -> None:
    change = {"spec": {"nodes": 8}, "status": {"lastReconcileTime": LATER}}
    name = stored(status={"startTime": STARTED, "lastReconcileTime": STARTED})
    assert api.patch(name, change).status_code == 422
    answer = api.patch_status(name, change["status"])
    assert answer.is_success, answer.text
    assert answer.json()["spec"]["nodes"] == 1


@pytest.mark.parametrize(
    "status", [None, {"phase": "Suspended"}, suspended_condition("True")], ids=["new", "never started", "stopped"]
)
@pytest.mark.parametrize("resume", [{}, {"suspend": False}], ids=["stays suspended", "resumes with the change"])
def test_what_makes_the_pods_changes_while_suspended_and_stopped(
    api: ApiServer, stored: Callable[..., str], status: Manifest | None, resume: Manifest
) -> None:
    answer = api.patch(stored({"suspend": True}, status=status), {"spec": {"nodes": 8, **resume}})
    assert answer.is_success, answer.json()["message"]


@pytest.mark.parametrize(
    "spec",
    [
        {"suspend": True},
        {"recovery": {"maxInfrastructureRestarts": 100}},
        {"recovery": {"rules": [{"name": "a", "when": {"xids": [79]}, "action": "Fail"}]}},
        {"preflight": {"collective": True}},
        {"webhooks": [{"name": "chat", "url": "https://chat.example"}]},
        {"startupDeadlineSeconds": 60},
        {"activeDeadlineSeconds": 60},
        {"ttlSecondsAfterFinished": 60},
    ],
    ids=lambda spec: next(iter(spec)),
)
def test_what_a_person_steers_with_changes_at_any_time(
    api: ApiServer, stored: Callable[..., str], spec: Manifest
) -> None:
    answer = api.patch(stored(status={"startTime": STARTED, "phase": "Running"}), {"spec": spec})
    assert answer.is_success, answer.json()["message"]


def test_the_server_fills_in_what_the_models_fill_in(api: ApiServer, make_job: MakeJob) -> None:
    given = make_job()
    answered = api.create(given).json()["spec"]
    assert answered["suspend"] is False
    assert TrainingJobSpec.model_validate(answered) == TrainingJobSpec.model_validate(given["spec"])
    written = TrainingJobSpec.model_validate(given["spec"]).to_manifest()
    again = api.create({**given, "spec": written})
    assert again.is_success, again.json()["message"]


def test_an_unknown_field_is_dropped_where_nobody_asked_to_be_strict(api: ApiServer, make_job: MakeJob) -> None:
    answer = api.create(make_job({"training": {"batchsize": 8}}), validation="Warn")
    assert "batchsize" not in answer.json()["spec"]["training"]
    assert "spec.training.batchsize" in answer.headers["warning"]


def test_the_status_of_the_models_is_stored_whole_and_strictly(api: ApiServer, stored: Callable[..., str]) -> None:
    status = TrainingJobStatus.model_validate(FULL_STATUS)
    name = stored()
    answer = api.patch_status(name, status.to_manifest())
    assert answer.is_success, answer.text
    assert TrainingJobStatus.model_validate(answer.json()["status"]) == status
    assert answer.json()["spec"]["nodes"] == 1


def test_the_tested_status_has_every_field_of_the_models() -> None:
    assert set(FULL_STATUS) == {field.alias for field in TrainingJobStatus.model_fields.values()}


def test_a_status_is_not_written_through_the_job_itself(api: ApiServer, stored: Callable[..., str]) -> None:
    assert api.patch(stored(), {"status": {"phase": "Succeeded"}}).json()["status"] == {"observedGeneration": -1}


def test_kubectl_shows_phase_nodes_steps_and_restarts(api: ApiServer, stored: Callable[..., str]) -> None:
    name = stored(status=FULL_STATUS)
    table = _table(api, name)
    columns = [column["name"] for column in table["columnDefinitions"] if column["priority"] == 0]
    assert columns == ["Name", "Phase", "Nodes", "Step", "S/Step", "Restarts", "Age"]
    assert _cells(table)[:6] == [name, "Running", "4/4", "120/300", 4.41, 1]


def test_kubectl_shows_more_when_asked_for_wide_columns(api: ApiServer, stored: Callable[..., str]) -> None:
    table = _table(api, stored(status=FULL_STATUS))
    wide = [column["name"] for column in table["columnDefinitions"] if column["priority"] == 1]
    assert wide == ["Round", "ETA", "Loss", "Checkpoint", "Reason", "Last-Fault"]
    assert _cells(table)[-5:] == ["5h20m", 0.31, 100, "Training", "gpu-07 GPU 5 XID 79"]


def _table(api: ApiServer, name: str) -> Any:
    accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
    return api.client.get(f"{api.jobs}/{name}", headers={"Accept": accept}).json()


def _cells(table: Any) -> list[Any]:
    return list(table["rows"][0]["cells"])


@pytest.mark.parametrize(
    ("selector", "expected"),
    [("status.phase=Running", "job-1"), ("spec.suspend=true", "job-0")],
    ids=["phase", "suspend"],
)
def test_jobs_are_selected_by_phase_and_by_suspension(
    api: ApiServer, stored: Callable[..., str], selector: str, expected: str
) -> None:
    stored({"suspend": True})
    stored(status={"phase": "Running"})
    items = api.client.get(api.jobs, params={"fieldSelector": selector}).json()["items"]
    assert [item["metadata"]["name"] for item in items] == [expected]


def test_the_crd_is_structural_and_all_names_are_taken_into_use(api: ApiServer) -> None:
    name = custom_resource_definition()["metadata"]["name"]
    crd = api.client.get(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}").json()
    conditions = {entry["type"]: entry["status"] for entry in crd["status"]["conditions"]}
    assert conditions == {"NamesAccepted": "True", "Established": "True"}
    assert crd["status"]["acceptedNames"]["shortNames"] == ["tj"]
    assert crd["status"]["acceptedNames"]["categories"] == ["all"]


def test_kubectl_explain_shows_a_field_with_simpletuners_word(api: ApiServer) -> None:
    described = _published(api)["properties"]["spec"]["properties"]["training"]["properties"]["batchSize"]
    assert described["description"] == "Samples per GPU and micro-batch. SimpleTuner: train_batch_size."
    assert described["default"] == 1


def _published(api: ApiServer) -> Manifest:
    """The schema that kubectl explain reads; the server publishes it some moments after it took the CRD into use."""

    def published() -> Manifest | None:
        answer = api.client.get("/openapi/v3/apis/oarlock.dev/v1alpha1")
        return (
            answer.json()["components"]["schemas"].get("dev.oarlock.v1alpha1.TrainingJob")
            if answer.is_success
            else None
        )

    return eventually(published, "the schema")
