"""Kueue's own controller beside a local cluster: its definitions, its webhooks and its program, as long as the block lives.

Everything comes from Kueue's Go module. Two things differ from an installation with a pod: the API server finds the webhooks
by a Service that leads to this machine, and what the webhooks' Secret holds is put into their folder by us, not by a kubelet.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from oarlock_local import definitions
from oarlock_local.api import ApiServer
from oarlock_local.cluster import Cluster
from oarlock_local.ports import free_port
from oarlock_local.sources import KUEUE
from tests.gangs.program import answers, running

NAMESPACE = "kueue-system"
SERVICE = "kueue-webhook-service"
SECRET = "kueue-webhook-server-cert"  # noqa: S105 - a name
CONVERTED = {"clusterqueues", "cohorts", "localqueues", "multikueueclusters", "workloads"}
"""Kinds whose versions Kueue's webhook converts."""
OURS = ([""], ["kueue.x-k8s.io"])
"""Groups whose webhooks are needed: pods, and Kueue's own."""
NOT_ITSELF = {
    "matchExpressions": [
        {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", NAMESPACE]}
    ]
}
"""Namespaces that Kueue's manifests leave alone."""


@contextmanager
def running_kueue(cluster: Cluster, program: Path, folder: Path) -> Iterator[None]:
    """Run Kueue for the cluster for the length of the block; it is ready when the block begins. `folder` takes its files.

    Raises SourceMissing where Kueue's manifests cannot be had.
    """
    port, probes = free_port(cluster.host_address), free_port("127.0.0.1")
    _install(cluster, port)
    certificates = folder / "certificates"
    certificates.mkdir()
    config = folder / "kueue.yaml"
    config.write_text(json.dumps(_configuration(cluster, certificates, port=port, probes=probes)))
    command = [str(program), "--config", str(config), "--kubeconfig", str(cluster.kubeconfig), "--zap-log-level=2"]
    with running(command, folder / "kueue.log") as started:
        try:
            started.wait("its certificates", lambda: _put_certificates(cluster, certificates))
            started.wait("it to be ready", lambda: answers(f"http://127.0.0.1:{probes}/readyz"))
            yield
        finally:
            # Pods could be made no more once nobody answers for their webhooks.
            _uninstall(cluster)


def _install(cluster: Cluster, port: int) -> None:
    where = {"namespace": NAMESPACE, "name": SERVICE, "port": port}
    kinds = definitions.kueue()
    for kind in kinds:
        if kind["spec"]["names"]["plural"] in CONVERTED:
            webhook = {"clientConfig": {"service": {**where, "path": "/convert"}}, "conversionReviewVersions": ["v1"]}
            kind["spec"]["conversion"] = {"strategy": "Webhook", "webhook": webhook}
    manifests = KUEUE.fetch() / "config/components/webhook/manifests.yaml"
    hooks: list[dict[str, Any]] = list(yaml.safe_load_all(manifests.read_text()))
    for each in hooks:
        each["metadata"]["name"] = f"kueue-{each['metadata']['name']}"
        each["webhooks"] = [hook for hook in each["webhooks"] if hook["rules"][0]["apiGroups"] in OURS]
        for hook in each["webhooks"]:
            hook["clientConfig"]["service"].update(where)
            hook["namespaceSelector"] = NOT_ITSELF
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    to_us = {"type": "ExternalName", "externalName": cluster.host_address}
    items = [namespace, *kinds, _named("Secret", SECRET), _named("Service", SERVICE, spec=to_us), *hooks]
    body = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=body)


def _uninstall(cluster: Cluster) -> None:
    for kind in ("mutating", "validating"):
        cluster.kubectl("delete", f"{kind}webhookconfiguration", f"kueue-{kind}-webhook-configuration")


def _configuration(cluster: Cluster, certificates: Path, *, port: int, probes: int) -> dict[str, Any]:
    return {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "namespace": NAMESPACE,
        "health": {"healthProbeBindAddress": f"127.0.0.1:{probes}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": cluster.host_address, "port": port, "certDir": str(certificates)},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": True, "webhookServiceName": SERVICE, "webhookSecretName": SECRET},
        "integrations": {"frameworks": ["pod"]},
        "featureGates": {"VisibilityOnDemand": False},
    }


def _put_certificates(cluster: Cluster, folder: Path) -> bool:
    """What a kubelet does with the Secret, once Kueue has filled it."""
    with ApiServer(cluster.kubeconfig) as api:
        secret = api.get(f"/api/v1/namespaces/{NAMESPACE}/secrets/{SECRET}")
    data = secret.get("data") or {}
    for name, text in data.items():
        (folder / name).write_bytes(base64.b64decode(text))
    return "tls.crt" in data


def _named(kind: str, name: str, **fields: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": NAMESPACE}, **fields}
