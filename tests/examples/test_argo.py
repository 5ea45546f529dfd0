"""The example's workflow, step by step with the commands and the rights that Argo's executor has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from oarlock_api.trainingjob import TrainingJob
from oarlock_local.errors import ClusterError
from oarlock_local.patience import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from oarlock_local.cluster import Cluster

ROOT = Path(__file__).parents[2]
ACCOUNT = "system:serviceaccount:default:oarlock-workflow"
WORKFLOW = yaml.safe_load((ROOT / "examples/argo-workflow.yaml").read_text())
TEMPLATES = {template["name"]: template for template in WORKFLOW["spec"]["templates"]}
NAME = "flux-x7k2p"
ENDS = {
    "status": {"succeeded": 1, "phase": "Succeeded", "output": {"path": f"/output/{NAME}-train", "model": "/output/m"}}
}

pytestmark = pytest.mark.cluster


def filled_in(text: str, **inputs: str) -> str:
    """What Argo makes of a template's text before a pod gets it."""
    known = {
        f"workflow.parameters.{each['name']}": each["value"] for each in WORKFLOW["spec"]["arguments"]["parameters"]
    }
    known |= {f"inputs.parameters.{name}": value for name, value in inputs.items()} | {"workflow.name": NAME}
    for name, value in known.items():
        text = text.replace(f"{{{{{name}}}}}", value)
    assert "{{" not in text, text
    return text


def manifest(step: str, **inputs: str) -> str:
    return filled_in(TEMPLATES[step]["resource"]["manifest"], **inputs)


@pytest.fixture(scope="module")
def kubectl(server: Cluster) -> Callable[..., str]:
    """kubectl with the rights of examples/argo-role.yaml and no others."""
    server.kubectl("apply", "-f", str(ROOT / "examples/argo-role.yaml"))

    def run(*arguments: str, stdin: str | None = None) -> str:
        return server.kubectl(f"--as={ACCOUNT}", *arguments, stdin=stdin)

    return run


def test_the_role_is_enough_for_all_that_the_executor_does_and_for_nothing_else(
    kubectl: Callable[..., str], control_plane: Cluster
) -> None:
    job = f"trainingjob/{NAME}-train"
    try:
        made = json.loads(kubectl("apply", "-o", "json", "-f", "-", stdin=manifest("train")))
        again = json.loads(kubectl("apply", "-o", "json", "-f", "-", stdin=manifest("train")))
        assert again["metadata"]["uid"] == made["metadata"]["uid"], "a step that is tried again makes a second job"
        control_plane.kubectl("patch", job, "--subresource=status", "--type=merge", "-p", json.dumps(ENDS))
        outputs = {
            each["name"]: kubectl("get", job, "-o", f"jsonpath={each['valueFrom']['jsonPath']}")
            for each in TEMPLATES["train"]["outputs"]["parameters"]
        }
        assert outputs == {"model": "/output/m", "checkpoint": ""}
        patch = filled_in(TEMPLATES["suspend"]["resource"]["manifest"], step="train")
        patched = json.loads(kubectl("patch", job, "--type", "merge", "-p", patch, "-o", "json"))
        assert patched["spec"]["suspend"] is True
        resumed = json.loads(kubectl("apply", "-o", "json", "-f", "-", stdin=manifest("train")))
        assert resumed["spec"]["suspend"] is False, "a workflow that is tried again leaves its job suspended"
        for verb in (["delete", job], ["get", "pods"]):
            with pytest.raises(ClusterError, match=r"cannot (delete|list) resource"):
                kubectl(*verb)
    finally:
        control_plane.kubectl("delete", job, "--ignore-not-found", "--wait=false")


def test_the_role_is_enough_to_name_the_workflow_as_owner_where_owners_are_guarded(
    kubectl: Callable[..., str], argo: Cluster
) -> None:
    argo.kubectl("create", "-f", "-", stdin=json.dumps({**WORKFLOW, "metadata": {"name": NAME}}))
    try:
        uid = argo.kubectl("get", "workflow", NAME, "-o", "jsonpath={.metadata.uid}")
        body = yaml.safe_load(manifest("train"))
        owner = {"apiVersion": WORKFLOW["apiVersion"], "kind": "Workflow", "name": NAME, "uid": uid}
        body["metadata"]["ownerReferences"] = [{**owner, "blockOwnerDeletion": True}]

        def is_taken() -> bool:
            try:
                kubectl("create", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump(body))
            except ClusterError as error:
                # The server asks twice a minute which kinds there are.
                if "cannot find RESTMapping" not in str(error):
                    raise
                return False
            return True

        eventually(is_taken, "the job")
    finally:
        argo.kubectl("delete", "workflow", NAME)


@pytest.mark.parametrize("step", ["preprocess", "train", "judge"])
def test_each_steps_job_is_one_that_argo_finds_and_a_real_api_server_takes(
    step: str, kubectl: Callable[..., str]
) -> None:
    text = manifest(step, model=f"/output/{NAME}-train/model")
    body: dict[str, Any] = yaml.safe_load(text)
    assert body["metadata"] == {"name": f"{NAME}-{step}", "labels": {"workflows.argoproj.io/workflow": NAME}}
    kubectl("create", "--dry-run=server", "--validate=strict", "-f", "-", stdin=text)


def test_training_finds_the_embeddings_where_preprocessing_put_them() -> None:
    jobs = [TrainingJob.model_validate(_numbers(yaml.safe_load(manifest(step)))) for step in ("preprocess", "train")]
    places = [
        job.spec.training and (job.spec.training.data.text_embeds, job.spec.training.data.image_embeds) for job in jobs
    ]
    assert places[0] == places[1]
    assert jobs[0].spec.output.directory == jobs[1].spec.output.directory, "both take their own name"


def _numbers(body: dict[str, Any]) -> dict[str, Any]:
    body["spec"]["training"].pop("optimizer", None)  # YAML 1.1 reads 1.0e-5 as a string
    return body
