"""JobSet as a contender: its own controller, definitions and webhooks, from its Go module, asked by JobSets of minimal pods.

One ReplicatedJob of one Indexed Job, the whole of which is made anew when a pod fails. The webhooks are its release's, so
they are part of what is measured; the API server calls them on this machine, with the certificate that it has itself.
"""

from __future__ import annotations

import base64
import json
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import yaml
from connection import Connection, Json
from contenders import minimal_spec

from oarlock_local.binaries import JOBSET
from oarlock_local.build import built
from oarlock_local.cluster import Cluster
from oarlock_local.ports import free_port
from oarlock_local.processes import start_logged, stop
from oarlock_local.sources import JOBSET as SOURCE

PATH = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets"
LABEL = "jobset.sigs.k8s.io/jobset-name"
"""Label of every pod of a JobSet: its name."""
HOST = "127.0.0.1"
START_SECONDS = 120


class JobSet:
    """JobSet's controller, asked by JobSets."""

    name = "jobset"

    def __init__(self, api: Connection, process: subprocess.Popen[Any], *, claim: bool) -> None:
        self.api = api
        self.process = process
        self._claim = claim

    async def submit(self, job: str, nodes: int) -> None:
        """Create a JobSet."""
        await self.api.call("POST", PATH, job_set(job, nodes, claim=self._claim))

    async def delete(self, job: str) -> None:
        """Delete it; the garbage collector deletes the rest."""
        await self.api.call("DELETE", f"{PATH}/{job}", {"propagationPolicy": "Background"})

    def calls(self) -> Counter[str]:
        """Not counted."""
        return Counter()

    def waits(self) -> Counter[float]:
        """Not counted."""
        return Counter()


def job_set(name: str, nodes: int, *, claim: bool) -> Json:
    """A JobSet of `nodes` pods with eight GPUs each, restarted as a whole."""
    job = {
        "completionMode": "Indexed",
        "completions": nodes,
        "parallelism": nodes,
        "backoffLimit": 0,
        "template": {"spec": minimal_spec(claim=claim)},
    }
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": {"maxRestarts": 1000},
            "replicatedJobs": [{"name": "gang", "replicas": 1, "template": {"spec": job}}],
        },
    }


@contextmanager
def jobset(api: Connection, cluster: Cluster, folder: Path, *, claim: bool = False) -> Iterator[JobSet]:
    """Run JobSet's controller for the length of the block; `folder` takes its files."""
    port, probes = free_port(HOST), free_port(HOST)
    # The API server's own certificate is good for this address, and trusted by the cluster's authority.
    theirs, ours = cluster.spec.folder.certificates, folder / "jobset-certificates"
    ours.mkdir()
    for kind in ("crt", "key"):
        (ours / f"tls.{kind}").write_bytes((theirs / f"apiserver.{kind}").read_bytes())
    config = folder / "jobset.yaml"
    config.write_text(json.dumps(_configuration(ours, port=port, probes=probes)))
    _apply(cluster, [_definition()])
    cluster.kubectl("wait", "--for=condition=Established", "crd/jobsets.jobset.x-k8s.io", "--timeout=120s")
    command = [str(built(JOBSET)), "--config", str(config), "--kubeconfig", str(cluster.kubeconfig)]
    log = folder / "jobset.log"
    process = start_logged([*command, "--zap-log-level=error"], log)
    try:
        _await_ready(process, log, f"http://{HOST}:{probes}/readyz")
        _apply(cluster, _webhooks(f"https://{HOST}:{port}", theirs / "ca.crt"))
        yield JobSet(api, process, claim=claim)
    finally:
        stop(process)


def _configuration(certificates: Path, *, port: int, probes: int) -> Json:
    return {
        "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": f"{HOST}:{probes}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": HOST, "port": port, "certDir": str(certificates)},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        # As its own chart sets them: with fewer it would wait for itself.
        "clientConnection": {"qps": 500, "burst": 500},
    }


def _definition() -> Json:
    """The kind, as its release has it."""
    file = SOURCE.fetch() / "config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml"
    found: Json = yaml.load(file.read_text(), Loader=yaml.CSafeLoader)
    return found


def _webhooks(url: str, authority: Path) -> list[Json]:
    """The release's, at an address of this machine; those for pods see JobSets' alone, as its patches say."""
    folder = SOURCE.fetch() / "config/components/webhook/manifests.yaml"
    found: list[Json] = list(yaml.safe_load_all(folder.read_text()))
    bundle = base64.b64encode(authority.read_bytes()).decode()
    for each in found:
        each["metadata"]["name"] = f"jobset-{each['metadata']['name']}"
        for hook in each["webhooks"]:
            path = hook["clientConfig"]["service"]["path"]
            hook["clientConfig"] = {"url": url + path, "caBundle": bundle}
            if hook["rules"][0]["resources"] == ["pods"]:
                hook["objectSelector"] = {"matchExpressions": [{"key": LABEL, "operator": "Exists"}]}
    return found


def _apply(cluster: Cluster, items: list[Json]) -> None:
    body = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=body)


def _await_ready(process: subprocess.Popen[Any], log: Path, url: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"JobSet did not start:\n{log.read_text()[-3000:]}")
        try:
            if httpx.get(url, timeout=5, trust_env=False).is_success:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.2)
