"""The chart as the real helm renders it."""

from __future__ import annotations

import json
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from oarlock_local.binaries import KUBERNETES_VERSION

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


class Refused(Exception):  # noqa: N818
    """Helm does not render these values; its words are the message."""


def render(
    helm_program: Path, values: dict[str, Any] | None = None, *, release: str = "oarlock"
) -> list[dict[str, Any]]:
    """The objects of a release in the namespace oarlock. Raises Refused."""
    text = _rendered(helm_program, json.dumps(values or {}), release)
    return [item for item in yaml.load_all(text, yaml.CSafeLoader) if item]


@cache
def _rendered(helm_program: Path, values: str, release: str) -> str:
    command = [str(helm_program), "template", release, str(CHART), "--namespace", "oarlock", "--values", "-"]
    # Helm 3, built without its release's flags, takes itself for one of Kubernetes 1.20.
    command += ["--kube-version", KUBERNETES_VERSION]
    result = subprocess.run(command, check=False, capture_output=True, text=True, input=values)
    if result.returncode != 0:
        raise Refused(result.stderr)
    return result.stdout


def one(objects: list[dict[str, Any]], kind: str, name: str | None = None) -> dict[str, Any]:
    """The object of that kind, which must be the only one of its name."""
    found = [item for item in objects if item["kind"] == kind and name in (None, item["metadata"]["name"])]
    assert len(found) == 1, f"{len(found)} objects {kind} {name or ''}"
    return found[0]
