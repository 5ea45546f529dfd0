"""Whose reports are believed: those of pods that really are as the operator makes them, whatever their job says."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
from decide.test_decide_brakes import ANOTHER, POOL, broken, cordons, refused
from jobs import job
from world_writes import program_of
from worlds import World

from oarlock_operator.model.plan import CreatePods

DEFAULTS = {
    "terminationMessagePath": "/dev/termination-log",
    "imagePullPolicy": "IfNotPresent",
    "readinessProbe": {"httpGet": {"path": "/healthz", "port": "status", "scheme": "HTTP"}, "timeoutSeconds": 1},
    "args": [],
}


def made_otherwise(world: World, **changes: Any) -> None:
    """The pod of rank 1 runs something else than the operator would have given it."""
    plan = next(action for action in world.one_pass().actions if isinstance(action, CreatePods))
    manifest = copy.deepcopy(plan.manifests[1])
    metadata, (trainer,) = manifest["metadata"], manifest["spec"]["containers"]
    trainer |= changes.get("container", {})
    trainer["env"] += changes.get("env", [])
    metadata["annotations"] |= changes.get("annotations", {})
    manifest["spec"] |= changes.get("spec", {})
    manifest["spec"]["containers"] += changes.get("beside", [])
    volumes = changes.get("volumes", {})
    manifest["spec"]["volumes"] = [one | volumes.get(one["name"], {}) for one in manifest["spec"]["volumes"]]
    world.pods[metadata["name"]] = replace(world.pods[metadata["name"]], program=program_of(manifest))


@pytest.mark.parametrize(
    ("changes", "believed"),
    [
        pytest.param({}, True, id="as the operator makes it"),
        pytest.param({"container": DEFAULTS}, True, id="with what the API server adds"),
        pytest.param({"env": [{"name": "AWS_ROLE_ARN", "value": "x"}]}, True, id="with a cloud's role"),
        pytest.param({"container": {"image": "somebody/else:1"}}, False, id="another image"),
        pytest.param({"container": {"command": ["sh", "-c", "lie"]}}, False, id="another command"),
        pytest.param({"container": {"args": ["--help"]}}, False, id="other arguments"),
        pytest.param({"container": {"terminationMessagePath": "/output/x"}}, False, id="last words of others"),
        pytest.param({"env": [{"name": "LD_PRELOAD", "value": "x"}]}, False, id="a preloaded library"),
        pytest.param({"beside": [ANOTHER]}, False, id="a container beside it"),
        pytest.param({"spec": {"initContainers": [ANOTHER]}}, False, id="a container before it"),
        pytest.param({"spec": {"ephemeralContainers": [ANOTHER]}}, False, id="a container that came later"),
        pytest.param({"spec": {"shareProcessNamespace": True}}, False, id="processes of others"),
        pytest.param({"annotations": {"oarlock.dev/job": '{"custom": {"command": ["sh"]}}'}}, False, id="told more"),
        pytest.param({"volumes": {"oarlock-config": {"projected": {"sources": []}}}}, False, id="told by another"),
    ],
)
def test_a_pod_that_is_not_as_the_operator_makes_it_is_not_believed_whatever_the_job_says(
    changes: dict[str, Any],
    believed: bool,  # noqa: FBT001
) -> None:
    world = World(job=job(), may_cordon=True, pool=POOL)
    made_otherwise(world, **changes)
    broken(world=world)
    if believed:
        assert cordons(world.one_pass()) == ["node-1"]
    else:
        assert "only a claim" in refused(world)
