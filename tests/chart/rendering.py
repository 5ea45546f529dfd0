"""The chart as the real helm renders it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from oarlock_local import chart

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts/oarlock"
VERSION: str = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
NAMED: dict[str, Any] = {
    "image": {"repository": "registry.example.com/oarlock/operator"},
    "trainerImage": "registry.example.com/oarlock/trainer:0.1.0",
}
"""The least that the chart asks for."""
EVERYTHING: dict[str, Any] = {
    "replicas": 3,
    "cordon": True,
    "gang": dict.fromkeys(("kueue", "volcano", "coscheduling", "kai", "native"), True),
    "jobNetworkPolicies": {"enabled": True, "statusFrom": [{"namespaceSelector": {}}]},
    "gangKeys": {"enabled": True, "existingSecret": "keys"},
    "image": {
        "repository": "registry.example.com/oarlock/operator",
        "digest": f"sha256:{'0' * 64}",
        "pullPolicy": "Always",
    },
    "trainerImage": "registry.example.com/oarlock/trainer:9",
    "imagePullSecrets": [{"name": "registry"}],
    "settings": {"PROGRESS_SECONDS": 7, "CORDON_WINDOW_SECONDS": 604800},
    "resources": {"requests": {"cpu": "57m", "memory": "129Mi"}, "limits": {"memory": "513Mi"}},
    "argoWorkflows": {"serviceAccounts": [{"namespace": "default", "name": "workflow"}]},
    "podAnnotations": {"example.com/a": "b"},
    "podLabels": {"example.com/c": "d"},
    "priorityClassName": "system-cluster-critical",
    "runtimeClassName": "sandboxed",
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "tolerations": [{"operator": "Exists"}],
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "example.com/gpu", "operator": "DoesNotExist"}]}]
            }
        }
    },
    "topologySpreadConstraints": [
        {"maxSkew": 2, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"}
    ],
    "networkPolicy": {
        "enabled": True,
        "metricsFrom": [{"namespaceSelector": {}}],
        "apiServer": [{"ipBlock": {"cidr": "10.0.0.0/8"}}],
        "apiServerPorts": [6444],
        "dashboardFrom": [{"podSelector": {"matchLabels": {"app": "gateway"}}}],
    },
    "dashboard": {
        "enabled": True,
        "hosts": ["page.example.com"],
        "actions": True,
        "outputs": [
            {"namespace": "team-a", "nfs": {"server": "nfs.example.com", "path": "/exports/team-a"}},
            {"namespace": "team-b", "claimName": "training-output", "mountClaim": "output-of-team-b"},
        ],
        "resources": {"limits": {"memory": "321Mi"}},
        "ingress": {
            "enabled": True,
            "className": "public",
            "tlsSecret": "certificate",
            "annotations": {"example.com/e": "f"},
        },
        "httpRoute": {"enabled": True, "parentRefs": [{"name": "outer"}]},
    },
    "monitoring": {
        "operator": "ServiceMonitor",
        "jobs": True,
        "labels": {"release": "prometheus"},
        "interval": "17s",
        "rules": {"enabled": True, "runbookUrl": "https://docs.example.com/NAME.html"},
        "dashboard": {
            "enabled": True,
            "labels": {"example.com/dashboards": "ours"},
            "annotations": {"grafana_folder": "Training"},
        },
    },
    "admissionPolicy": {
        "enabled": True,
        "imageRegistries": ["registry.example.com/"],
        "nfsServers": ["nfs.example.com"],
        "maxNodes": 77,
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
"""Values with every switch on, and no value at its default, but for those that exclude another."""


def render(
    helm_program: Path, values: dict[str, Any] | None = None, *, release: str = "oarlock"
) -> list[dict[str, Any]]:
    """The objects of a release in the namespace oarlock, with images named unless the values do. Raises ChartError."""
    return chart.render(CHART, helm_program, release=release, namespace="oarlock", values={**NAMED, **(values or {})})


def one(objects: list[dict[str, Any]], kind: str, name: str | None = None) -> dict[str, Any]:
    """The object of that kind, which must be the only one of its name."""
    found = [item for item in objects if item["kind"] == kind and name in (None, item["metadata"]["name"])]
    assert len(found) == 1, f"{len(found)} objects {kind} {name or ''}"
    return found[0]
