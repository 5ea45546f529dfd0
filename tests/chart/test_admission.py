"""The site's policy, as the API server itself judges by it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oarlock_local.cluster import Cluster
from oarlock_local.errors import ClusterError
from oarlock_local.patience import eventually
from tests.chart.demands import refusal
from tests.chart.rendering import render

pytestmark = pytest.mark.cluster
NAMESPACE = "policed"
POLICY = {
    "enabled": True,
    "imageRegistries": ["registry.example.com/", "mirror.example.com/ml/"],
    "nfsServers": ["nfs.example.com"],
    "maxNodes": 8,
    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}},
}
CLAIM = {"persistentVolumeClaim": {"claimName": "output"}}


def job(**spec: Any) -> str:
    body: dict[str, Any] = {
        "apiVersion": "oarlock.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": "judged", "namespace": NAMESPACE},
        "spec": {
            "nodes": 2,
            "output": CLAIM,
            "custom": {"command": ["true"]},
            "pod": {"image": "registry.example.com/trainer:1"},
            **spec,
        },
    }
    return json.dumps(body)


@pytest.fixture(scope="module")
def policed(helm_program: Path, serving: Cluster) -> Iterator[Cluster]:
    """A namespace with the policy, once it is in force."""
    objects = [
        item
        for item in render(helm_program, {"admissionPolicy": POLICY}, release="policed")
        if item["kind"].startswith("ValidatingAdmission")
    ]
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": [namespace, *objects]})
    serving.kubectl("apply", "--server-side", "-f", "-", stdin=listed)
    eventually(lambda: "at most" in refusal(serving, job(nodes=9)), "the policy")
    yield serving
    serving.kubectl("delete", "-f", "-", "--wait=false", stdin=listed)


def patched(**pod: Any) -> dict[str, Any]:
    return {"pod": {"image": "registry.example.com/trainer:1", "patch": pod}}


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        pytest.param({"nodes": 9}, "at most", id="too many nodes"),
        pytest.param({"pod": {"image": "docker.io/x:1"}}, "images of TrainingJobs come from", id="another registry"),
        *(
            pytest.param({"pod": {"image": image}}, "images of TrainingJobs come from", id=f"the look-alike {image}")
            for image in (
                "registry.example.com.evil.example.org/x:1",
                "registry.example.community/x:1",
                "registry.example.com:8443/x:1",
                "Registry.example.com/x:1",
                "evil.example.org/registry.example.com/x:1",
                "mirror.example.com/mlx/x:1",
                "mirror.example.com/ml:1",
                # What a runtime completes: both are Docker Hub's.
                "registry.example.com:1",
                "registry/x:1",
            )
        ),
        pytest.param(
            patched(initContainers=[{"name": "x", "image": "docker.io/x:1"}]), "images", id="an image in a patch"
        ),
        pytest.param(
            {
                "pod": {
                    "image": "registry.example.com/trainer:1",
                    "volumes": [{"name": "m", "image": {"reference": "docker.io/model:1"}}],
                }
            },
            "images",
            id="an image as a volume",
        ),
        pytest.param({"output": {"nfs": {"server": "elsewhere", "path": "/x"}}}, "NFS", id="another NFS server"),
        pytest.param(
            patched(volumes=[{"name": "n", "nfs": {"server": "elsewhere", "path": "/x"}}]),
            "NFS",
            id="another NFS server in a patch",
        ),
    ],
)
def test_a_job_against_the_sites_rules_is_refused_in_words(spec: dict[str, Any], words: str, policed: Cluster) -> None:
    assert words in refusal(policed, job(**spec))


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({}, id="an allowed image"),
        pytest.param(
            {"nodes": 8, "output": {"nfs": {"server": "nfs.example.com", "path": "/x"}}}, id="an allowed server"
        ),
        pytest.param(patched(nodeName=None, volumes=[{"name": "e", "emptyDir": {}}]), id="other volumes"),
    ],
)
def test_a_job_within_the_sites_rules_is_taken(spec: dict[str, Any], policed: Cluster) -> None:
    assert refusal(policed, job(**spec)) == ""


def test_a_job_from_before_the_policy_can_still_be_labelled_and_not_changed(
    helm_program: Path, policed: Cluster
) -> None:
    objects = render(helm_program, {"admissionPolicy": POLICY}, release="policed")
    binding = next(item for item in objects if item["kind"] == "ValidatingAdmissionPolicyBinding")
    policed.kubectl("delete", "validatingadmissionpolicybinding", binding["metadata"]["name"])
    eventually(lambda: not refusal(policed, job(nodes=9, suspend=True)), "the policy's end")
    policed.kubectl("create", "-f", "-", stdin=job(nodes=9, suspend=True))
    policed.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(binding))
    eventually(lambda: "at most" in refusal(policed, job(nodes=9)), "the policy")
    where = ("trainingjob", "judged", "-n", NAMESPACE)
    policed.kubectl("label", *where, "example.com/a=b")
    with pytest.raises(ClusterError, match="at most"):
        policed.kubectl("patch", *where, "--type=merge", "-p", '{"spec": {"suspend": false}}')
