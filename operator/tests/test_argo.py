"""What Argo makes of a job's status, by its own libraries: conditions of Argo Workflows, health of Argo CD.

The conditions and the script are those of the examples; the statuses are those that decisions write.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from jobs import job, spec
from worlds import World

from oarlock_api.contract.figures import Figures
from oarlock_local.binaries import ARGO_RULES
from oarlock_local.build import built
from oarlock_local.errors import BuildError

EXAMPLES = Path(__file__).parents[2] / "examples"
EMPTY: dict[str, Any] = {"apiVersion": "oarlock.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"generation": 1}}

pytestmark = pytest.mark.skipif(shutil.which("go") is None, reason="Argo's libraries are Go: needs a Go compiler")


def seen(world: World) -> dict[str, Any]:
    """The job as the API server shows it."""
    assert world.job.spec is not None
    return {
        **EMPTY,
        "metadata": {"generation": world.job.generation},
        "spec": world.job.spec.to_manifest(),
        "status": world.job.status.to_manifest(),
    }


def never_started() -> dict[str, Any]:
    return {**EMPTY, "spec": spec().to_manifest()}


def without_an_end() -> dict[str, Any]:
    """A status of which the scalars are missing, as a write of somebody else could leave it."""
    world = World()
    world.running(step=5)
    body = seen(world)
    for name in ("succeeded", "failed", "phase"):
        body["status"].pop(name, None)
    return body


def refused() -> dict[str, Any]:
    world = World(rival="other")
    world.settle()
    return seen(world)


def pending() -> dict[str, Any]:
    world = World(hindrance="quota exceeded")
    world.one_pass()
    return seen(world)


def starting() -> dict[str, Any]:
    world = World()
    world.settle()
    return seen(world)


def running() -> dict[str, Any]:
    world = World()
    world.running(step=5)
    return seen(world)


def between_rounds() -> dict[str, Any]:
    """Its ranks start anew in their pods, for the second time."""
    world = World()
    world.running(step=5)
    for _ in range(2):
        world.end_round(137)
        world.step(3)
        world.one_pass()
    assert world.progress is not None
    world.progress = replace(world.progress, figures=Figures())
    world.one_pass()
    return seen(world)


def recovering() -> dict[str, Any]:
    world = World()
    world.running(step=5)
    world.crash()
    world.settle()
    return seen(world)


def suspended() -> dict[str, Any]:
    world = World(job=job(spec=spec(suspend=True)))
    world.settle()
    return seen(world)


def suspending() -> dict[str, Any]:
    world = World()
    world.running(step=5)
    world.job = replace(world.job, spec=spec(suspend=True), generation=2)
    world.one_pass()
    return seen(world)


def resumed_and_not_seen_yet() -> dict[str, Any]:
    world = World(job=job(spec=spec(suspend=True)))
    world.settle()
    world.job = replace(world.job, spec=spec(), generation=2)
    return seen(world)


def succeeded() -> dict[str, Any]:
    world = World()
    world.running(step=100, saved=100)
    for rank in range(2):
        world.end(rank, 0)
    world.settle()
    return seen(world)


def failed() -> dict[str, Any]:
    world = World()
    world.running(step=5)
    world.end(0, 85)
    world.settle()
    world.kubelets()
    world.settle()
    return seen(world)


def failed_and_then_suspended() -> dict[str, Any]:
    """What the exit handler of a workflow leaves."""
    body = failed()
    return {**body, "metadata": {"generation": 2}, "spec": {**body["spec"], "suspend": True}}


STATES: list[tuple[Callable[[], dict[str, Any]], str | None, str, str]] = [
    (never_started, None, "waiting", "Progressing"),
    (without_an_end, None, "waiting", "Progressing"),
    (pending, "Starting", "waiting", "Progressing"),
    (starting, "Starting", "waiting", "Progressing"),
    (running, "Running", "waiting", "Healthy"),
    (between_rounds, "Running", "waiting", "Healthy"),
    (recovering, "Recovering", "waiting", "Progressing"),
    (suspending, "Running", "waiting", "Healthy"),
    (suspended, "Suspended", "waiting", "Suspended"),
    (resumed_and_not_seen_yet, "Suspended", "waiting", "Progressing"),
    (succeeded, "Succeeded", "succeeded", "Healthy"),
    (failed, "Failed", "failed", "Degraded"),
    (failed_and_then_suspended, "Failed", "failed", "Degraded"),
    (refused, "Failed", "failed", "Degraded"),
]
"""A state, its phase, what a workflow's step makes of it, what Argo CD shows."""


@pytest.fixture(scope="session")
def rules() -> Path:
    try:
        return built(ARGO_RULES)
    except BuildError as error:
        if "main.go" in str(error):
            raise  # our own part of it
        pytest.skip(str(error))


def steps() -> dict[str, dict[str, Any]]:
    """The steps of the example's workflow that make a job."""
    workflow = yaml.safe_load((EXAMPLES / "argo-workflow.yaml").read_text())
    templates = {template["name"]: template for template in workflow["spec"]["templates"]}
    return {name: each for name, each in templates.items() if each.get("resource", {}).get("action") == "apply"}


def judged(rules: Path, body: dict[str, Any], *arguments: str) -> str:
    command = [str(rules), *arguments]
    answer = subprocess.run(command, input=json.dumps(body), capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout.strip()


def conditions() -> set[tuple[str, str]]:
    """Of all steps, and the form by the phase."""
    written = {
        (each["resource"]["successCondition"], each["resource"]["failureCondition"]) for each in steps().values()
    }
    return written | {("status.phase == Succeeded", "status.phase == Failed")}


@pytest.mark.parametrize(("state", "phase", "verdict", "health"), STATES, ids=[each[0].__name__ for each in STATES])
def test_argo_reads_each_state_of_a_job_as_it_is_meant(
    rules: Path, state: Callable[[], dict[str, Any]], phase: str | None, verdict: str, health: str
) -> None:
    body = state()
    assert body.get("status", {}).get("phase") == phase
    for success, failure in conditions():
        assert judged(rules, body, "wait", success, failure) == verdict
    script = yaml.safe_load((EXAMPLES / "argo-cd-health.yaml").read_text())["data"]
    told = json.loads(judged(rules, body, "health", script["resource.customizations.health.oarlock.dev_TrainingJob"]))
    assert told["status"] == health
    assert told["message"]


def test_a_condition_that_says_not_running_would_fail_a_job_that_nobody_has_looked_at(rules: Path) -> None:
    """Why the examples have none: a selector's `!=` holds for what is not there."""
    assert judged(rules, never_started(), "wait", "status.succeeded == 1", "status.phase != Running") == "failed"


def test_every_step_makes_its_job_again_without_harm_and_hands_over_what_may_be_missing() -> None:
    assert list(steps()) == ["preprocess", "train", "judge"]
    for name, template in steps().items():
        assert f'name: "{{{{workflow.name}}}}-{name}"' in template["resource"]["manifest"]
        assert template["resource"]["setOwnerReference"] is True
        assert all("default" in each["valueFrom"] for each in template["outputs"]["parameters"])


@pytest.mark.parametrize(
    ("status", "message", "again"),
    [
        pytest.param("Error", "pod deleted", True, id="lost with its node"),
        pytest.param("Failed", "main: Error (exit code 64): context canceled", True, id="drained"),
        pytest.param("Failed", "The node was low on resource: memory.", True, id="evicted by the kubelet"),
        pytest.param("Failed", "main: OOMKilled (exit code 137)", True, id="out of memory"),
        pytest.param(
            "Failed",
            "main: Error (exit code 64): failure condition '{status.failed == [1]}' evaluated true",
            False,
            id="the job has failed",
        ),
        pytest.param(
            "Failed", "main: Error (exit code 64): The resource has been deleted", False, id="the job was deleted"
        ),
    ],
)
def test_a_step_is_tried_again_for_what_happens_to_argos_own_pod_and_not_for_what_happens_to_the_job(
    rules: Path, status: str, message: str, *, again: bool
) -> None:
    scope = {"lastRetry": {"status": status, "message": message, "exitCode": "-1", "duration": "1"}, "retries": "0"}
    for template in steps().values():
        strategy = template["retryStrategy"]
        assert strategy["retryPolicy"] == "Always"  # the expression decides
        assert json.loads(judged(rules, scope, "retry", strategy["expression"])) is again


def test_what_a_workflow_hands_on_is_there_with_the_end_and_not_after_it() -> None:
    world = World()
    world.running(step=100, saved=100)
    for rank in range(2):
        world.end(rank, 0)
    while not world.job.status.succeeded:
        assert world.job.status.phase != "Succeeded"
        world.one_pass()
    output = seen(world)["status"]["output"]
    assert output["path"] == "/output/flux"
    assert output["relativePath"] == "flux"
    assert output["model"] == "/output/flux/model"
    assert output["dataManifest"] == "/output/flux/reports/data.json"
    assert output["metrics"]["loss"] > 0
    assert seen(world)["status"]["latestCheckpoint"]["path"].startswith("/output/flux/checkpoints/step-100-")
