"""A release of the chart on a cluster, by the real helm, and what is there of it."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oarlock_local.cluster import Cluster
from tests.chart.rendering import CHART

OVER_KUBECTLS_API = {"helm 4": ("--take-ownership", "--force-conflicts"), "helm 3": ("--take-ownership",)}
"""Options where the API was brought by kubectl: helm 4 writes some numbers otherwise, which the server calls a conflict."""
NOT_LISTED = ("events", "events.events.k8s.io", "componentstatuses")
"""What says nothing of a release: what happened stays for an hour."""


@dataclass(frozen=True, slots=True)
class Release:
    """One release, in a namespace of the same name."""

    cluster: Cluster
    name: str

    def install(self, helm_program: Path, values: dict[str, Any], *options: str, chart: Path = CHART) -> str:
        """Helm's words after an install."""
        return self._helm(helm_program, "install", str(chart), "--create-namespace", *options, values=values)

    def upgrade(self, helm_program: Path, values: dict[str, Any], *options: str) -> str:
        """Helm's words after an upgrade to the chart of this checkout."""
        return self._helm(helm_program, "upgrade", str(CHART), *options, values=values)

    def uninstall(self, helm_program: Path) -> str:
        """Helm's words after an uninstall, once the operator's pods are gone, for which helm 4 does not wait."""
        words = self._helm(helm_program, "uninstall", "--wait", "--timeout", "120s")
        operator = ("deployments,replicasets,pods", "-l", f"app.kubernetes.io/instance={self.name}")
        self.cluster.kubectl("wait", "--for=delete", *operator, "-n", self.name, "--timeout=120s")
        return words

    def objects(self) -> set[str]:
        """KIND/NAME of everything on the cluster that is part of the release or has its name, but for Helm's own."""
        listed = self.cluster.kubectl("api-resources", "--verbs=list", "-o", "name").split()
        kinds = ",".join(kind for kind in listed if kind not in NOT_LISTED)
        found = self.cluster.kubectl("get", kinds, "-A", "-o", "name", "-l", f"app.kubernetes.io/instance={self.name}")
        own = self.cluster.kubectl("get", "leases,configmaps,secrets", "-n", self.name, "-o", "name")
        rest = {name for name in own.split() if name != "configmap/kube-root-ca.crt" and "sh.helm.release" not in name}
        return {*found.split(), *rest}

    def _helm(self, program: Path, verb: str, *rest: str, values: dict[str, Any] | None = None) -> str:
        command = [
            str(program),
            "--kubeconfig",
            str(self.cluster.kubeconfig),
            "--namespace",
            self.name,
            verb,
            self.name,
        ]
        fed = ["--values", "-"] if values is not None else []
        result = subprocess.run(
            [*command, *rest, *fed], input=json.dumps(values or {}), check=False, capture_output=True, text=True
        )
        assert result.returncode == 0, f"helm {verb}: {result.stderr}"
        return result.stdout
