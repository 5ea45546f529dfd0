"""The chart as the real helm renders it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from oarlock_local import chart

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts/oarlock"
EVERYTHING: dict[str, Any] = {
    "replicas": 2,
    "cordon": True,
    "gang": dict.fromkeys(("kueue", "volcano", "coscheduling", "kai", "native"), True),
    "image": {"digest": f"sha256:{'0' * 64}"},
    "imagePullSecrets": [{"name": "registry"}],
    "settings": {"PROGRESS_SECONDS": 5, "CORDON_WINDOW_SECONDS": 604800},
    "argoWorkflows": {"serviceAccounts": [{"namespace": "default", "name": "workflow"}]},
    "podAnnotations": {"example.com/a": "b"},
    "podLabels": {"example.com/c": "d"},
    "priorityClassName": "system-cluster-critical",
    "runtimeClassName": "sandboxed",
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "tolerations": [{"operator": "Exists"}],
    "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"}
    ],
    "networkPolicy": {
        "enabled": True,
        "metricsFrom": [{"namespaceSelector": {}}],
        "apiServer": [{"ipBlock": {"cidr": "10.0.0.0/8"}}],
    },
    "monitoring": {
        "operator": "ServiceMonitor",
        "jobs": True,
        "labels": {"release": "prometheus"},
        "rules": {"enabled": True, "runbookUrl": "https://docs.example.com/NAME.html"},
        "dashboard": {"enabled": True, "annotations": {"grafana_folder": "Training"}},
    },
    "admissionPolicy": {
        "enabled": True,
        "imageRegistries": ["registry.example.com/"],
        "nfsServers": ["nfs.example.com"],
        "maxNodes": 8,
        "namespaceSelector": {"matchLabels": {"team": "ml"}},
    },
    "extraObjects": [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "{{ .Release.Name }}-extra", "namespace": "{{ .Release.Namespace }}"},
        }
    ],
}
"""Values with every switch on."""


def render(
    helm_program: Path, values: dict[str, Any] | None = None, *, release: str = "oarlock"
) -> list[dict[str, Any]]:
    """The objects of a release in the namespace oarlock. Raises ChartError."""
    return chart.render(CHART, helm_program, release=release, namespace="oarlock", values=values or {})


def one(objects: list[dict[str, Any]], kind: str, name: str | None = None) -> dict[str, Any]:
    """The object of that kind, which must be the only one of its name."""
    found = [item for item in objects if item["kind"] == kind and name in (None, item["metadata"]["name"])]
    assert len(found) == 1, f"{len(found)} objects {kind} {name or ''}"
    return found[0]
