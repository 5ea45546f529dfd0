"""The example's workflow at the size of a test, given to Argo and watched through the API."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from oarlock_local.api import ApiServer
from oarlock_local.cluster import Cluster
from tests.e2e.jobs import EXAMPLE, Jobs

ROOT = Path(__file__).parents[2]
WORKFLOW = ROOT / "examples/argo-workflow.yaml"
ACCOUNT = "oarlock-workflow"
PATIENCE = 900.0
TO_BE_NUMBERS = re.compile(r": (\{\{[^}]+\}\})$", re.MULTILINE)
QUOTED_NUMBERS = re.compile(r'"number(\{\{[^}]+\}\})"')


def smaller(path: Path) -> dict[str, Any]:
    """The workflow of a file, its jobs with the small pods of the demo's job and little to compute."""
    workflow: dict[str, Any] = yaml.safe_load(path.read_text())
    for template in workflow["spec"]["templates"]:
        if template.get("resource", {}).get("action") == "apply":
            template["resource"]["manifest"] = _smaller_job(template["resource"]["manifest"])
    return workflow


def _smaller_job(manifest: str) -> str:
    # What Argo fills in as a number is no YAML before.
    job = yaml.safe_load(TO_BE_NUMBERS.sub(r': "number\1"', manifest))
    demo = yaml.safe_load(EXAMPLE.read_text())["spec"]
    spec, training = job["spec"], job["spec"]["training"]
    spec |= {"gpusPerNode": 1, "pod": demo["pod"], "output": {**spec["output"], "minFree": demo["output"]["minFree"]}}
    training["resolution"] = demo["training"]["resolution"]
    if "optimizer" in training:
        # YAML 1.1 reads 1.0e-5 as a string, YAML 1.2 as a number.
        training["optimizer"]["learningRate"] = float(training["optimizer"]["learningRate"])
        training |= {"batchSize": demo["training"]["batchSize"], "checkpoint": {"intervalSteps": 10, "keep": 3}}
    return QUOTED_NUMBERS.sub(r"\1", json.dumps(job))


@dataclass(frozen=True, slots=True)
class Workflows:
    """The workflows of a cluster on which Argo and the operator run."""

    cluster: Cluster
    jobs: Jobs
    api: ApiServer
    program: Path
    """Argo's CLI."""

    def argo(self, *arguments: str, stdin: str | None = None) -> str:
        """What a command of Argo's CLI prints."""
        done = subprocess.run(
            [self.program, *arguments],
            env={**os.environ, "KUBECONFIG": str(self.cluster.kubeconfig)},
            check=False,
            capture_output=True,
            text=True,
            input=stdin,
        )
        assert done.returncode == 0, f"argo {' '.join(arguments)}: {done.stderr}"
        return done.stdout

    def submit(self, *, entrypoint: str = "pipeline", **values: str) -> str:
        """Make the example's workflow, with these values of its parameters; returns its name."""
        parameters = [f"--parameter={name}={value}" for name, value in values.items()]
        command = ["submit", "-", "--output=name", f"--entrypoint={entrypoint}", *parameters]
        return self.argo(*command, stdin=json.dumps(smaller(WORKFLOW))).strip()

    def status(self, name: str) -> dict[str, Any]:
        """What Argo says of a workflow."""
        found = self.api.get(f"/apis/argoproj.io/v1alpha1/namespaces/default/workflows/{name}")
        status: dict[str, Any] = found.get("status") or {}
        return status

    def wait(self, name: str, what: str, until: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        """The workflow's status as soon as a condition on it holds."""
        deadline = time.monotonic() + PATIENCE
        while not until(status := self.status(name)):
            assert time.monotonic() < deadline, f"{name}: {what} did not come: {json.dumps(status)[:4000]}"
            time.sleep(0.5)
        return status

    def wait_for_end(self, name: str) -> dict[str, Any]:
        """The status of the finished workflow."""
        return self.wait(name, "the end", lambda status: "finishedAt" in status and status["finishedAt"])

    def job(self, name: str) -> dict[str, Any]:
        """A TrainingJob, as soon as there is one that the operator has seen."""
        deadline = time.monotonic() + PATIENCE
        while True:
            found: dict[str, Any] = (
                self.api.find(f"/apis/oarlock.dev/v1alpha1/namespaces/default/trainingjobs/{name}") or {}
            )
            if "status" in found:
                return found
            assert time.monotonic() < deadline, f"no {name} came"
            time.sleep(0.5)

    def wait_for_argos_pod(self, name: str, *, after: str = "") -> dict[str, Any]:
        """The pod of Argo that watches over a job of the workflow, as soon as one runs that is not the one of UID `after`."""
        selector = f"workflows.argoproj.io/workflow={name},workflows.argoproj.io/completed=false"
        deadline = time.monotonic() + PATIENCE
        while True:
            pods = self.api.get(f"/api/v1/namespaces/default/pods?labelSelector={selector}")["items"]
            for pod in pods:
                if pod["status"]["phase"] == "Running" and pod["metadata"]["uid"] != after:
                    running: dict[str, Any] = pod
                    return running
            assert time.monotonic() < deadline, f"{name}: no pod of Argo runs: {json.dumps(pods)[:4000]}"
            time.sleep(0.5)


def phases(status: dict[str, Any]) -> dict[str, str]:
    """The phases of a workflow's steps and of each attempt at one, as `train` and `train(0)`; no exit handlers."""
    return {name: node["phase"] for name, node in _steps(status)}


def outputs(status: dict[str, Any]) -> dict[str, dict[str, str]]:
    """The output parameters of a workflow's steps."""
    return {
        name: {each["name"]: each["value"] for each in node.get("outputs", {}).get("parameters", [])}
        for name, node in _steps(status)
    }


def messages(status: dict[str, Any]) -> dict[str, str]:
    """What Argo says of a workflow's steps, and of each attempt at one."""
    return {name: node.get("message", "") for name, node in _steps(status)}


def _steps(status: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for node in status["nodes"].values():
        if node["type"] in ("Pod", "Retry") and ".onExit" not in node["name"]:
            # A workflow that begins with a step has that step's node under its own name.
            attempt = node["displayName"].partition("(")
            yield node["templateName"] + "".join(attempt[1:]), node
