"""A ServiceAccount with the rights of rendered objects: it has those, and what it asks for beyond them is told."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oarlock_local.account import Account
from oarlock_local.cluster import Cluster
from oarlock_local.errors import ClusterError

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


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


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
    wait_until(lambda: "kube-root-ca.crt" in listed())
    assert "configmap/rower" not in listed()
    wait_until(lambda: account.complaint() == "")
    for _ in range(2):
        with pytest.raises(ClusterError, match="cannot list resource"):
            control_plane.kubectl(*as_rower, "get", "deployments.apps")
    beyond = "rower asked for what the chart does not grant: list deployments.apps (requests: 2)"
    wait_until(lambda: account.complaint() == beyond)
