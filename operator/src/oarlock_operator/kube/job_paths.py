"""Where TrainingJobs are in the Kubernetes API."""

from __future__ import annotations

from collections.abc import Sequence

from oarlock_api.contract.names import API_VERSION, PLURAL


def job_path(namespace: str, name: str) -> str:
    """API path of a TrainingJob."""
    return f"/apis/{API_VERSION}/namespaces/{namespace}/{PLURAL}/{name}"


def job_collections(namespaces: Sequence[str]) -> list[str]:
    """API paths of the TrainingJobs that the operator works on: in the namespaces named, else everywhere."""
    named = [f"/apis/{API_VERSION}/namespaces/{name}/{PLURAL}" for name in namespaces]
    return named or [f"/apis/{API_VERSION}/{PLURAL}"]
