"""What the tests of the API share: TrainingJobs to start from, and a client of a real API server."""

from __future__ import annotations

import base64
import copy
import json
import ssl
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from hypothesis import HealthCheck, settings

from oarlock_api.crd import custom_resource_definition
from oarlock_api.manifest import load
from oarlock_local import patience
from oarlock_local.patience import eventually

# A machine that is busy draws slowly, and that is no failure of what is tested.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

Manifest = dict[str, Any]

COMMON_JOB = """
apiVersion: oarlock.dev/v1alpha1
kind: TrainingJob
metadata: {name: flux-full}
spec:
  nodes: 4
  output:
    persistentVolumeClaim: {claimName: training-output}
  training:
    model: {family: Flux1, path: /output/models/FLUX.1-dev}
    steps: 10000
    batchSize: 8
    optimizer: {learningRate: 1e-05}
    s3Connections:
    - {name: default, endpoint: https://ACCOUNT.r2.cloudflarestorage.com, credentialsSecretRef: {name: r2}}
    data:
      textEmbeds: {s3: {bucket: embeds, prefix: text/}}
      datasets:
      - name: photos
        source: {s3: {bucket: photos}}
        metadata: {parquet: {location: {s3: {bucket: photos, prefix: photos.parquet}}}}
        captions: {strategy: Parquet}
"""

MINIMAL_JOB = """
apiVersion: oarlock.dev/v1alpha1
kind: TrainingJob
metadata: {name: minimal}
spec:
  output: {nfs: {server: 10.0.0.100, path: /exports/output}}
  training:
    model: {family: Flux1, path: /output/model}
    steps: 10
    data: {datasets: [{name: photos, source: {path: /output/photos}}]}
"""


def merge(base: Any, changes: Any) -> Any:
    """JSON merge patch: None removes, lists are replaced."""
    if not isinstance(changes, dict):
        return changes
    merged = dict(base) if isinstance(base, dict) else {}
    for key, value in changes.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge(merged.get(key), value)
    return merged


@pytest.fixture
def common_job() -> Manifest:
    return load(COMMON_JOB)


@pytest.fixture
def make_job() -> Callable[..., Manifest]:
    """The smallest job with a merge patch over its spec."""

    def make(changes: Manifest | None = None, *, name: str = "minimal") -> Manifest:
        job = copy.deepcopy(load(MINIMAL_JOB))
        job["metadata"]["name"] = name
        job["spec"] = merge(job["spec"], changes or {})
        return job

    return make


class ApiServer:
    """TrainingJobs of one namespace of a real API server."""

    def __init__(self, client: httpx.Client, namespace: str) -> None:
        self.client = client
        self.namespace = namespace
        self.jobs = f"/apis/oarlock.dev/v1alpha1/namespaces/{namespace}/trainingjobs"

    def create(self, job: Manifest, *, dry_run: bool = True, validation: str = "Strict") -> httpx.Response:
        """Create a job, by default without keeping it."""
        return self.client.post(
            self.jobs,
            json=job,
            params={"fieldValidation": validation, "fieldManager": "tests"} | ({"dryRun": "All"} if dry_run else {}),
        )

    def patch(self, name: str, changes: Manifest, *, dry_run: bool = True) -> httpx.Response:
        """Apply a merge patch to a job, by default without keeping it."""
        return self.client.patch(
            f"{self.jobs}/{name}",
            content=json.dumps(changes),
            headers={"Content-Type": "application/merge-patch+json"},
            params={"fieldValidation": "Strict"} | ({"dryRun": "All"} if dry_run else {}),
        )

    def patch_status(self, name: str, status: Manifest) -> httpx.Response:
        """Write a job's status as the operator does."""
        return self.client.patch(
            f"{self.jobs}/{name}/status",
            content=json.dumps({"status": status}),
            headers={"Content-Type": "application/merge-patch+json"},
            params={"fieldValidation": "Strict"},
        )


@pytest.fixture(scope="session")
def api_client(control_plane: Any) -> Iterator[httpx.Client]:
    """A client with the kubeconfig's certificates, on a server that serves the CRD of the models."""
    with _client(Path(control_plane.kubeconfig)) as client:
        _install(client, custom_resource_definition())
        yield client


@pytest.fixture(scope="session")
def api(api_client: httpx.Client) -> Iterator[ApiServer]:
    namespace = api_client.post(
        "/api/v1/namespaces",
        json={"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "api-"}},
    ).json()["metadata"]["name"]
    yield ApiServer(api_client, namespace)
    api_client.delete(f"/api/v1/namespaces/{namespace}")


def _client(kubeconfig: Path) -> httpx.Client:
    config = yaml.safe_load(kubeconfig.read_text())
    context = next(entry for entry in config["contexts"] if entry["name"] == config["current-context"])["context"]
    cluster = next(entry for entry in config["clusters"] if entry["name"] == context["cluster"])["cluster"]
    user = next(entry for entry in config["users"] if entry["name"] == context["user"])["user"]
    tls = ssl.create_default_context(cadata=_content(cluster, "certificate-authority", kubeconfig))
    with tempfile.TemporaryDirectory() as folder:  # the ssl module reads a certificate from files only
        pair = Path(folder) / "client.pem"
        pair.write_text(_content(user, "client-key", kubeconfig) + _content(user, "client-certificate", kubeconfig))
        tls.load_cert_chain(pair)
    return httpx.Client(base_url=cluster["server"], verify=tls, timeout=patience.SECONDS, trust_env=False)


def _content(entry: Manifest, key: str, kubeconfig: Path) -> str:
    if inline := entry.get(f"{key}-data"):
        return base64.b64decode(inline).decode()
    return (kubeconfig.parent / entry[key]).read_text()


def _install(client: httpx.Client, crd: Manifest) -> None:
    name = crd["metadata"]["name"]
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}"
    applied = client.patch(
        path,
        content=json.dumps(crd),
        headers={"Content-Type": "application/apply-patch+yaml"},
        params={"fieldManager": "tests", "force": "true", "fieldValidation": "Strict"},
    )
    assert applied.is_success, applied.text
    eventually(
        lambda: client.get("/apis/oarlock.dev/v1alpha1/trainingjobs").is_success,
        lambda: f"{name} is served: {client.get(path).json().get('status')}",
    )
