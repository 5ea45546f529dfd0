"""The operator's own ServiceAccount, for an operator outside of the chart's pod: with the chart's rights and no others.

What it asks for beyond them the API server refuses, and the audit log tells.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import yaml

from oarlock_local.cluster import Cluster
from oarlock_local.rights import Right, asked, granted, not_had

_KINDS = (
    "ServiceAccount",
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
    # What it may do with nodes, within its right to patch them.
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
)
_PART = "app.kubernetes.io/component"
"""Label that tells the operator's account from the page's, which has no rights."""


@dataclass(frozen=True, slots=True)
class Account:
    """A ServiceAccount that a release of the chart brings, and what the release lets it do."""

    cluster: Cluster
    name: str
    namespace: str
    rights: frozenset[Right]

    @classmethod
    def of(cls, cluster: Cluster, objects: Sequence[dict[str, Any]]) -> Self:
        """The operator's account among the objects that the chart rendered; they must hold one."""
        accounts = [item["metadata"] for item in objects if item["kind"] == "ServiceAccount"]
        (metadata,) = [each for each in accounts if (each.get("labels") or {}).get(_PART) != "web"]
        name, rights = metadata["name"], granted(objects, metadata["name"])
        return cls(cluster, name, metadata["namespace"], frozenset(rights))

    @classmethod
    def made(cls, cluster: Cluster, objects: Sequence[dict[str, Any]]) -> Self:
        """The same, once it and its roles are on the cluster. Its namespace must be there. Raises ClusterError."""
        cluster.apply(item for item in objects if item["kind"] in _KINDS)
        return cls.of(cluster, objects)

    def write_kubeconfig(self, path: Path, *, like: Path | None = None) -> Path:
        """Write a kubeconfig as this account, for the API server of `like`, by default the cluster's own."""
        config = yaml.safe_load((like or self.cluster.kubeconfig).read_text())
        token = self.cluster.kubectl("create", "token", self.name, "-n", self.namespace, "--duration=24h").strip()
        config["users"] = [{"name": config["users"][0]["name"], "user": {"token": token}}]
        path.write_text(yaml.safe_dump(config))
        return path

    def asked(self) -> Counter[Right]:
        """What it has asked the API server for, and how often."""
        return asked(self.cluster.audit_log, f"system:serviceaccount:{self.namespace}:{self.name}")

    def lacked(self) -> Counter[Right]:
        """What it has asked for without a right to it, whatever the namespace and name, and how often."""
        return not_had(self.rights, self.asked())

    def complaint(self) -> str:
        """What a test has against the rights, empty where it is nothing: what was lacked, or that nothing was asked."""
        if not self.asked():
            return f"{self.name} has asked the API server for nothing: was it the operator's account?"
        lacked = [f"{right} (requests: {times})" for right, times in sorted(self.lacked().items())]
        return f"{self.name} asked for what the chart does not grant: {', '.join(lacked)}" if lacked else ""
