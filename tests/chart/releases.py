"""A release of the chart on a cluster, by the real helm, and what is there of it."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oarlock_local import patience
from oarlock_local.cluster import Cluster
from tests.chart.rendering import CHART

OVER_KUBECTLS_API = {"helm 4": ("--take-ownership", "--force-conflicts"), "helm 3": ("--take-ownership",)}
"""Options where the API was brought by kubectl: helm 4 writes some numbers otherwise, which the server calls a conflict."""
NOT_LISTED = ("events", "events.events.k8s.io", "componentstatuses")
"""What says nothing of a release: what happened stays for an hour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """One release in a namespace."""

    cluster: Cluster
    name: str
    namespace: str

    def install(self, helm_program: Path, values: dict[str, Any], *options: str, chart: Path = CHART) -> str:
        """Helm's words after an install."""
        return self._done(helm_program, "install", str(chart), "--create-namespace", *options, values=values)

    def upgrade(self, helm_program: Path, values: dict[str, Any], *options: str) -> str:
        """Helm's words after an upgrade to the chart of this checkout."""
        return self._done(helm_program, "upgrade", str(CHART), *options, values=values)

    def refusal(self, helm_program: Path, values: dict[str, Any], *options: str) -> str:
        """What helm has against an install of the chart of this checkout, or an upgrade to it; it must have something."""
        result = self._helm(helm_program, "upgrade", str(CHART), "--install", *options, values=values)
        assert result.returncode != 0, result.stdout
        return result.stderr

    def uninstall(self, helm_program: Path) -> str:
        """Helm's words after an uninstall, once the operator's pods are gone, for which helm 4 does not wait."""
        words = self._done(helm_program, "uninstall", "--wait", "--timeout", "120s")
        operator = ("deployments,replicasets,pods", "-l", f"app.kubernetes.io/instance={self.name}")
        self.cluster.kubectl("wait", "--for=delete", *operator, "-n", self.namespace, patience.KUBECTL)
        return words

    def objects(self) -> set[str]:
        """KIND/NAME of everything on the cluster that is part of the release or has its name, but for Helm's own."""
        listed = self.cluster.kubectl("api-resources", "--verbs=list", "-o", "name").split()
        kinds = ",".join(kind for kind in listed if kind not in NOT_LISTED)
        found = self.cluster.kubectl("get", kinds, "-A", "-o", "name", "-l", f"app.kubernetes.io/instance={self.name}")
        own = self.cluster.kubectl("get", "leases,configmaps,secrets", "-n", self.namespace, "-o", "name")
        rest = {name for name in own.split() if name != "configmap/kube-root-ca.crt" and "sh.helm.release" not in name}
        return {*found.split(), *rest}

    def _done(self, program: Path, verb: str, *rest: str, values: dict[str, Any] | None = None) -> str:
        result = self._helm(program, verb, *rest, values=values)
        assert result.returncode == 0, f"helm {verb}: {result.stderr}"
        return result.stdout

    def _helm(
        self, program: Path, verb: str, *rest: str, values: dict[str, Any] | None = None
    ) -> subprocess.CompletedProcess[str]:
        where = ["--kubeconfig", str(self.cluster.kubeconfig), "--namespace", self.namespace]
        fed = ["--values", "-"] if values is not None else []
        command = [str(program), *where, verb, self.name, *rest, *fed]
        return subprocess.run(command, input=json.dumps(values or {}), check=False, capture_output=True, text=True)
