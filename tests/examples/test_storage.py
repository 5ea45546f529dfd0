"""The storage of the examples on a real API server: what binds, and what Pod Security takes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from oarlock_api.manifest import load_all
from oarlock_api.trainingjob import TrainingJob
from oarlock_local import patience
from oarlock_local.errors import ClusterError
from oarlock_operator.manifests.pod import pod
from oarlock_operator.model.observation import Job

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oarlock_local.cluster import Cluster

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMESPACE = "restricted"

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def restricted(server: Cluster) -> Iterator[Cluster]:
    """The API server, with a namespace that enforces the strictest level."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}}
    server.kubectl("apply", "-f", "-", stdin=json.dumps(body))
    # A namespace's own account is made a moment after it, and pods are refused until then.
    server.kubectl("wait", "--for=create", "serviceaccount/default", "-n", NAMESPACE, patience.KUBECTL)
    yield server
    server.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


def pod_of(example: str) -> str:
    """Rank 0's pod of an example's job, as the operator makes it."""
    body: dict[str, Any] = next(
        each for each in load_all((EXAMPLES / example).read_text()) if each["kind"] == "TrainingJob"
    )
    job = TrainingJob.model_validate(body)
    seen = Job(namespace=NAMESPACE, name=body["metadata"]["name"], uid="uid", generation=1, spec=job.spec)
    return json.dumps(pod(seen, job.spec, attempt=1, rank=0, image="trainer:1"))


def test_a_restricted_namespace_takes_the_pods_of_a_claim(restricted: Cluster) -> None:
    restricted.kubectl("create", "--dry-run=server", "-f", "-", stdin=pod_of("claim.yaml"))


def test_a_restricted_namespace_refuses_output_nfs_in_the_words_that_the_operator_knows(restricted: Cluster) -> None:
    with pytest.raises(ClusterError, match='restricted volume type "nfs"'):
        restricted.kubectl("create", "--dry-run=server", "-f", "-", stdin=pod_of("nfs.yaml"))


def test_the_claim_of_the_nfs_volume_is_bound_to_it_and_to_no_other(server: Cluster) -> None:
    volume = ("-f", str(EXAMPLES / "nfs-volume.yaml"))
    server.kubectl("apply", *volume)
    try:
        bound = "--for=jsonpath={.status.phase}=Bound"
        server.kubectl("wait", bound, "persistentvolumeclaim/training-output", patience.KUBECTL)
        path = "jsonpath={.spec.volumeName}"
        assert server.kubectl("get", "persistentvolumeclaim", "training-output", "-o", path) == "training-output"
    finally:
        server.kubectl("delete", *volume, "--wait=false")
