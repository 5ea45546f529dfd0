"""pod.patch over a finished pod spec: what kubectl's strategic merge would make of it, and nothing is changed in place."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jobs import job, spec

from oarlock_operator.manifests.patch import patched
from oarlock_operator.manifests.pod import pod

BASE: dict[str, Any] = {
    "hostname": "flux-0",
    "tolerations": [{"key": "a"}, {"key": "b"}],
    "securityContext": {"runAsUser": 1000, "fsGroup": 1000},
    "imagePullSecrets": [{"name": "one"}],
    "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["a"]}],
    "topologySpreadConstraints": [{"topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule", "maxSkew": 1}],
    "volumes": [{"name": "tmp", "emptyDir": {}}, {"name": "output", "nfs": {"server": "s"}}],
    "containers": [
        {
            "name": "trainer",
            "command": ["oarlock-trainer", "agent"],
            "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
            "ports": [{"name": "status", "containerPort": 9400}],
            "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
            "resources": {"limits": {"cpu": "1"}, "claims": [{"name": "nic"}]},
        }
    ],
}


def trainer(**changes: Any) -> dict[str, Any]:
    return {"containers": [{"name": "trainer", **changes}]}


# Name of the case -> (patch, path into the result, what stands there).
CASES: dict[str, tuple[dict[str, Any], str, Any]] = {
    "a new key is added": ({"priority": 5}, "priority", 5),
    "maps merge": ({"securityContext": {"fsGroup": 7}}, "securityContext", {"runAsUser": 1000, "fsGroup": 7}),
    "a null takes a key away": ({"securityContext": {"fsGroup": None}}, "securityContext", {"runAsUser": 1000}),
    "a null takes a list away": ({"tolerations": None}, "tolerations", None),
    "a null in what is new is nothing": ({"affinity": {"nodeAffinity": None}}, "affinity", {}),
    "a list without merge key is replaced": ({"tolerations": [{"key": "c"}]}, "tolerations", [{"key": "c"}]),
    "an empty list replaces one without merge key": ({"tolerations": []}, "tolerations", []),
    "an empty list changes nothing of one with a merge key": (
        {"imagePullSecrets": []},
        "imagePullSecrets",
        [{"name": "one"}],
    ),
    "secrets by name": (
        {"imagePullSecrets": [{"name": "two"}]},
        "imagePullSecrets",
        [{"name": "one"}, {"name": "two"}],
    ),
    "aliases by address, their names replaced": (
        {"hostAliases": [{"ip": "10.0.0.1", "hostnames": ["b"]}]},
        "hostAliases",
        [{"ip": "10.0.0.1", "hostnames": ["b"]}],
    ),
    "spread constraints by key and strictness": (
        {
            "topologySpreadConstraints": [
                {"topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule", "maxSkew": 2},
                {"topologyKey": "rack", "whenUnsatisfiable": "ScheduleAnyway", "maxSkew": 1},
            ]
        },
        "topologySpreadConstraints",
        [
            {"topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule", "maxSkew": 2},
            {"topologyKey": "rack", "whenUnsatisfiable": "ScheduleAnyway", "maxSkew": 1},
        ],
    ),
    "another source of a volume": (
        {"volumes": [{"name": "tmp", "emptyDir": None, "hostPath": {"path": "/nvme"}}]},
        "volumes",
        [{"name": "tmp", "hostPath": {"path": "/nvme"}}, {"name": "output", "nfs": {"server": "s"}}],
    ),
    "a variable by name, in its place": (
        trainer(env=[{"name": "A", "value": "9"}, {"name": "C", "value": "3"}]),
        "containers.0.env",
        [{"name": "A", "value": "9"}, {"name": "B", "value": "2"}, {"name": "C", "value": "3"}],
    ),
    "a mount by place": (
        trainer(volumeMounts=[{"mountPath": "/tmp", "subPath": "x"}, {"mountPath": "/y", "name": "y"}]),
        "containers.0.volumeMounts",
        [{"name": "tmp", "mountPath": "/tmp", "subPath": "x"}, {"mountPath": "/y", "name": "y"}],
    ),
    "a port by number, TCP unless it says otherwise": (
        trainer(ports=[{"containerPort": 9400, "hostIP": "::"}, {"containerPort": 9400, "protocol": "UDP"}]),
        "containers.0.ports",
        [
            {"name": "status", "containerPort": 9400, "hostIP": "::"},
            {"containerPort": 9400, "protocol": "UDP"},
        ],
    ),
    "claims by name": (
        trainer(resources={"claims": [{"name": "gpu"}]}),
        "containers.0.resources",
        {"limits": {"cpu": "1"}, "claims": [{"name": "nic"}, {"name": "gpu"}]},
    ),
    "a list that has a merge key elsewhere is replaced": (
        {"volumes": [{"name": "p", "projected": {"sources": [{"name": "a"}, {"name": "a"}]}}]},
        "volumes.2.projected.sources",
        [{"name": "a"}, {"name": "a"}],
    ),
    "a sidecar comes after the trainer": (
        {"containers": [{"name": "side", "image": "i", "env": [{"name": "A", "value": None}]}]},
        "containers.1",
        {"name": "side", "image": "i", "env": [{"name": "A"}]},
    ),
    "init containers begin a list": (
        {"initContainers": [{"name": "first", "image": "i"}]},
        "initContainers",
        [{"name": "first", "image": "i"}],
    ),
}


def at(value: Any, path: str) -> Any:
    for part in path.split("."):
        value = value[int(part)] if isinstance(value, list) else value.get(part)
    return value


@pytest.mark.parametrize(("patch", "path", "expected"), CASES.values(), ids=CASES)
def test_a_patch_is_merged_as_kubectl_would_merge_it(patch: dict[str, Any], path: str, expected: Any) -> None:
    result = patched(BASE, patch)
    assert at(result, path) == expected
    untouched = BASE.keys() - patch.keys()
    assert {key: result[key] for key in untouched} == {key: BASE[key] for key in untouched}
    assert result["containers"][0]["command"] == ["oarlock-trainer", "agent"]


anything = st.recursive(
    st.one_of(st.none(), st.integers(0, 3), st.sampled_from(["trainer", "A", "/tmp"])),
    lambda below: st.one_of(
        st.lists(below, max_size=3),
        st.dictionaries(st.sampled_from([*BASE, "name", "env", "ports", "containerPort"]), below, max_size=4),
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from([*BASE, "x"]), anything, max_size=4))
def test_a_patch_of_any_shape_raises_nothing_changes_nothing_and_stays_when_applied_twice(
    patch: dict[str, Any],
) -> None:
    base, given_patch = copy.deepcopy(BASE), copy.deepcopy(patch)
    once = patched(base, patch)
    assert (base, patch) == (BASE, given_patch)
    json.dumps(once)
    assert patched(once, patch) == once


@pytest.mark.parametrize("rank", [0, 1, 31])
def test_a_job_s_patch_is_the_last_word_on_every_rank(rank: int) -> None:
    env = [{"name": "NCCL_DEBUG", "value": "WARN"}]
    patch = {
        "terminationGracePeriodSeconds": 5,
        "affinity": None,
        "containers": [
            {"name": "trainer", "readinessProbe": None, "securityContext": {"privileged": True}, "env": env}
        ],
    }
    mine = {"env": [{"name": "NCCL_DEBUG", "value": "INFO"}], "terminationGracePeriodSeconds": 300}
    plain = pod(job(), spec(pod=mine), attempt=1, rank=rank, image="i")["spec"]
    made = pod(job(), spec(pod={**mine, "patch": patch}), attempt=1, rank=rank, image="i")["spec"]
    container, before = made["containers"][0], plain["containers"][0]
    assert (made["terminationGracePeriodSeconds"], "affinity" in made) == (5, False)
    assert "readinessProbe" not in container
    assert container["securityContext"] == {**before["securityContext"], "privileged": True}
    assert container["env"] == [*before["env"][:-1], *env]
    kept = ("hostname", "subdomain", "restartPolicy", "volumes", "tolerations")
    assert {key: made[key] for key in kept} == {key: plain[key] for key in kept}
    assert {key: container[key] for key in ("command", "ports", "volumeMounts")} == {
        key: before[key] for key in ("command", "ports", "volumeMounts")
    }
