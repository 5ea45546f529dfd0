"""The scheduler of scheduler-plugins beside a local cluster, with the plugin Coscheduling, as long as the block lives."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from oarlock_local import definitions
from oarlock_local.binaries import COSCHEDULING
from oarlock_local.build import built
from oarlock_local.cluster import Cluster
from oarlock_local.ports import free_port
from tests.gangs.program import answers, running, serve

NAME = "scheduler-plugins-scheduler"
"""What pods call it by."""


@contextmanager
def running_coscheduling(cluster: Cluster, folder: Path) -> Iterator[None]:
    """Run that scheduler for the cluster for the length of the block. `folder` takes its files.

    Raises SourceMissing where its definitions cannot be had, and BuildError.
    """
    program, port = built(COSCHEDULING), free_port("127.0.0.1")
    serve(cluster, definitions.coscheduling())
    config = folder / "scheduler.json"
    plugin = [{"name": "Coscheduling"}]
    profile = {
        "schedulerName": NAME,
        "plugins": {
            "multiPoint": {"enabled": plugin},
            "queueSort": {"enabled": plugin, "disabled": [{"name": "*"}]},
        },
    }
    settings = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"kubeconfig": str(cluster.kubeconfig)},
        "profiles": [profile],
    }
    config.write_text(json.dumps(settings))
    command = [str(program), f"--config={config}", "--bind-address=127.0.0.1", f"--secure-port={port}", "-v=3"]
    with running(command, folder / "scheduler.log") as started:
        started.wait("it to be ready", lambda: answers(f"https://127.0.0.1:{port}/healthz"))
        yield
