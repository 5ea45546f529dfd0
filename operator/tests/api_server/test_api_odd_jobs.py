"""Jobs that no parser takes, against a real API server: each is told why, and no other job notices."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from gangs import JOBS, SETTINGS, Gang
from processes import Api, operator

from oarlock_local.patience import eventually

if TYPE_CHECKING:
    from oarlock_local.cluster import Cluster

pytestmark = pytest.mark.cluster

Create = Callable[[str], str]


@pytest.fixture
def create(api: Api) -> Iterator[Create]:
    """Makes jobs with a pod.patch that is given as JSON; they are gone after the test, whose fellows could not list them."""
    made: list[str] = []

    def one(patch: str) -> str:
        made.append(f"odd-{uuid.uuid4().hex[:8]}")
        spec: dict[str, Any] = {
            "nodes": 2,
            "output": {"persistentVolumeClaim": {"claimName": "out"}},
            "custom": {"command": ["true"]},
            "pod": {"image": "x", "patch": "PATCH"},
        }
        body = {
            "apiVersion": "oarlock.dev/v1alpha1",
            "kind": "TrainingJob",
            "metadata": {"name": made[-1]},
            "spec": spec,
        }
        api.send("POST", JOBS, json.dumps(body).replace('"PATCH"', patch).encode())
        return made[-1]

    yield one
    for name in made:
        api.send("DELETE", f"{JOBS}/{name}")


def nested(levels: int) -> str:
    return '{"x":' + '{"a":' * levels + "{}" + "}" * levels + "}"


def told(control_plane: Cluster, name: str) -> str:
    """Phase, reason and message of a job, read by a program that takes any depth."""
    path = "{.status.phase} {.status.reason} {.status.conditions[?(@.type=='Accepted')].status} {.status.message}"
    return control_plane.kubectl("get", "trainingjob", name, "-o", f"jsonpath={path}")


def test_a_job_that_is_too_deep_is_told_so_and_costs_no_other_job_anything(
    api: Api, as_operator: Path, control_plane: Cluster, tmp_path: Path, create: Create
) -> None:
    log = tmp_path / "operator.log"
    deep = [create(nested(levels)) for levels in (900, 1_600, 9_990)]
    with operator(as_operator, log, *SETTINGS, "--resync-seconds", "1"):
        Gang(api).wait_for_pods("1-0", "1-1")
        for name in deep:
            eventually(lambda name=name: told(control_plane, name).startswith("Failed ") or None, "the verdict")
            verdict = told(control_plane, name)
            assert verdict.startswith("Failed InvalidSpec False "), verdict
            assert "nested more than 32 levels deep: write it flatter" in verdict
        late = create(nested(9_990))
        eventually(lambda: told(control_plane, late).startswith("Failed InvalidSpec ") or None, "the verdict")
        Gang(api).wait_for_pods("1-0", "1-1")
    said = log.read_text()
    assert "a part of the process" not in said
    assert "unexpectedly" not in said


@pytest.mark.deep
def test_a_job_that_is_too_large_is_told_so_and_costs_no_other_job_anything(
    api: Api, as_operator: Path, control_plane: Cluster, tmp_path: Path, create: Create
) -> None:
    """As large as the API server takes it; as lists it would be thirty megabytes."""
    fat = [create('{"x":[' + ",".join(["[]"] * 400_000) + "]}") for _ in range(8)]
    log = tmp_path / "operator.log"
    with operator(as_operator, log, *SETTINGS) as process:
        for name in fat:
            eventually(
                lambda name=name: told(control_plane, name).startswith("Failed InvalidSpec ") or None, "the verdict"
            )
            assert "at most 131072 are read" in told(control_plane, name)
        Gang(api).wait_for_pods("1-0", "1-1")
        peak = next(line for line in Path(f"/proc/{process.pid}/status").read_text().splitlines() if "VmHWM" in line)
        assert int(peak.split()[1]) < 256 * 1024, peak
