"""The chart, rendered by the real helm, and its rights on a real API server."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from oarlock_local.crd import apply_crd

if TYPE_CHECKING:
    from oarlock_local.cluster import Cluster

CHART = Path(__file__).parents[2] / "charts/oarlock"
ACCOUNT = "system:serviceaccount:oarlock:oarlock-operator"


def render(helm_program: Path, *values: str, release: str = "oarlock") -> list[dict[str, Any]]:
    sets = [part for value in values for part in ("--set", value)]
    command = [str(helm_program), "template", release, str(CHART), "--namespace", "oarlock", *sets]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [item for item in yaml.safe_load_all(text) if item]


def kinds(objects: list[dict[str, Any]]) -> list[str]:
    return sorted(item["kind"] for item in objects)


def test_helm_finds_nothing_to_complain_of(helm_program: Path) -> None:
    result = subprocess.run(
        [str(helm_program), "lint", "--strict", str(CHART)], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout


def test_by_default_the_operator_works_in_all_namespaces(helm_program: Path) -> None:
    found = kinds(render(helm_program))
    assert found == [
        "ClusterRole",
        "ClusterRoleBinding",
        "Deployment",
        "Role",
        "RoleBinding",
        "ServiceAccount",
    ]


def test_with_namespaces_named_it_gets_roles_there_and_nothing_cluster_wide(helm_program: Path) -> None:
    objects = render(helm_program, "namespaces={a,b}")
    assert not [item for item in objects if item["kind"].startswith("Cluster")]
    roles = {item["metadata"]["namespace"] for item in objects if item["kind"] == "Role"}
    assert roles == {"oarlock", "a", "b"}
    container = next(item for item in objects if item["kind"] == "Deployment")["spec"]["template"]["spec"][
        "containers"
    ][0]
    env = {item["name"]: item["value"] for item in container["env"]}
    assert env["OARLOCK_OPERATOR_NAMESPACES"] == '["a","b"]'


def test_the_operators_pod_is_restricted(helm_program: Path) -> None:
    pod = next(item for item in render(helm_program) if item["kind"] == "Deployment")["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["containers"][0]["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


@pytest.mark.cluster
def test_the_api_server_takes_it_and_grants_what_is_used_and_no_more(
    helm_program: Path, control_plane: Cluster
) -> None:
    apply_crd(control_plane, CHART.parents[1] / "crds/trainingjobs.yaml")
    namespace = yaml.safe_dump({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "oarlock"}})
    control_plane.kubectl("apply", "-f", "-", stdin=namespace)
    text = yaml.safe_dump_all(render(helm_program))
    control_plane.kubectl("apply", "--server-side", "-f", "-", stdin=text)

    def may(verb: str, resource: str, *more: str) -> bool:
        answer = subprocess.run(
            [
                control_plane.kubectl_path,
                "--kubeconfig",
                control_plane.kubeconfig,
                "auth",
                "can-i",
                verb,
                resource,
                f"--as={ACCOUNT}",
                *more,
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        return answer.stdout.strip() == "yes"

    used = [
        ("list", "trainingjobs.oarlock.dev", "-A"),
        ("delete", "trainingjobs.oarlock.dev", "-n", "default"),
        ("watch", "nodes"),
        ("update", "trainingjobs.oarlock.dev", "--subresource=status", "-n", "default"),
        ("create", "pods", "-n", "default"),
        ("delete", "pods", "-n", "default"),
        ("list", "services", "-n", "default"),
        ("patch", "services", "-n", "default"),
        ("create", "configmaps", "-n", "default"),
        ("create", "events", "-n", "default"),
        ("list", "events", "-n", "default"),
        ("update", "leases.coordination.k8s.io/oarlock-operator", "-n", "oarlock"),
    ]
    unused = [
        ("get", "secrets", "-A"),
        ("patch", "nodes"),
        ("update", "trainingjobs.oarlock.dev", "-n", "default"),
        ("create", "pods", "--subresource=exec", "-n", "default"),
        ("delete", "services", "-n", "default"),
        ("update", "leases.coordination.k8s.io/another", "-n", "oarlock"),
        ("get", "leases.coordination.k8s.io", "-n", "default"),
    ]
    assert [check for check in used if not may(*check)] == []
    assert [check for check in unused if may(*check)] == []
