"""A ServiceAccount with the rights of rendered objects: it has those, and what it asks for beyond them is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from oarlock_local.account import Account
from oarlock_local.cluster import Cluster
from oarlock_local.errors import ClusterError
from oarlock_local.patience import eventually

pytestmark = pytest.mark.cluster
NAME = {"name": "rower", "namespace": "default"}
OBJECTS: list[dict[str, Any]] = [
    {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": NAME},
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": NAME,
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}],
    },
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": NAME,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "rower"},
        "subjects": [{"kind": "ServiceAccount", **NAME}],
    },
    # No part of its rights, and not made.
    {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "rower", "namespace": "default"}},
]


def test_what_is_asked_for_beyond_the_rights_is_refused_and_told_with_how_often(
    control_plane: Cluster, tmp_path: Path
) -> None:
    account = Account.made(control_plane, OBJECTS)
    assert account.complaint() == "rower has asked the API server for nothing: was it the operator's account?"
    as_rower = ("--kubeconfig", str(account.write_kubeconfig(tmp_path / "kubeconfig")), "-n", "default")

    def listed() -> str:
        try:
            return control_plane.kubectl(*as_rower, "get", "configmaps", "-o", "name")
        except ClusterError:
            return ""

    # The server hears of new roles in a moment, and may write its log in the moment after the answer.
    eventually(lambda: "kube-root-ca.crt" in listed(), "the certificate")
    assert "configmap/rower" not in listed()
    eventually(lambda: account.complaint() == "", "what it asked for within its rights")
    for _ in range(2):
        with pytest.raises(ClusterError, match="cannot list resource"):
            control_plane.kubectl(*as_rower, "get", "deployments.apps")
    beyond = "rower asked for what the chart does not grant: list deployments.apps (requests: 2)"
    eventually(lambda: account.complaint() == beyond, beyond)
