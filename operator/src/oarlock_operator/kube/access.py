"""What this process may do: the API server says it, before anything is tried in vain."""

from __future__ import annotations

from oarlock_operator.kube.cluster import Cluster


async def may(cluster: Cluster, verb: str, resource: str, *, group: str = "", namespace: str = "") -> bool:
    """Whether this process has a right, in a namespace or in all. Raises ApiError."""
    wish = {"group": group, "resource": resource, "verb": verb, "namespace": namespace}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": wish},
    }
    answer = await cluster.create("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)
    return bool((answer.get("status") or {}).get("allowed"))
