"""The workflow that the Python example makes is the one of the YAML example, for other jobs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

if TYPE_CHECKING:
    from oarlock_local.cluster import Cluster

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = ("preprocess", "lora", "evaluate")


@pytest.fixture(scope="module")
def made() -> str:
    """What the example prints."""
    command = [sys.executable, "argo_hera.py", *(f"{name}.yaml" for name in FILES)]
    return subprocess.run(command, cwd=EXAMPLES, check=True, capture_output=True, text=True).stdout


def templates(text: str) -> dict[str, dict[str, Any]]:
    return {template["name"]: template for template in yaml.safe_load(text)["spec"]["templates"]}


@pytest.mark.cluster
def test_a_real_api_server_takes_the_workflow_and_the_jobs_in_it(made: str, argo: Cluster) -> None:
    argo.kubectl("create", "--dry-run=server", "--validate=strict", "-f", "-", stdin=made)
    jobs = [templates(made)[name]["resource"]["manifest"] for name in FILES]
    text = "---\n".join(jobs).replace("{{workflow.name}}", "flux-x7k2p")
    argo.kubectl("create", "--dry-run=server", "--validate=strict", "-f", "-", stdin=text)


def test_its_steps_wait_and_are_tried_again_as_those_of_the_yaml_example(made: str) -> None:
    expected = templates((EXAMPLES / "argo-workflow.yaml").read_text())["train"]
    for name in FILES:
        step = templates(made)[name]
        assert {**step["resource"], "manifest": ""} == {**expected["resource"], "manifest": ""}
        assert step["retryStrategy"] == expected["retryStrategy"]


def test_it_ends_by_suspending_what_did_not_succeed(made: str) -> None:
    here, there = templates(made), templates((EXAMPLES / "argo-workflow.yaml").read_text())
    assert yaml.safe_load(here["suspend"]["resource"]["manifest"]) == yaml.safe_load(
        there["suspend"]["resource"]["manifest"]
    )
    [handlers] = here["release"]["steps"]
    assert [each["name"] for each in handlers] == list(FILES)
    shape = {key: value for key, value in there["release"]["steps"][0][0].items() if key not in ("name", "arguments")}
    for each in handlers:
        assert {key: value for key, value in each.items() if key not in ("name", "arguments")} == shape
