"""Helm 4 waits for a TrainingJob by its condition Ready, as Flux does: by kstatus, which knows nothing of the kind."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from oarlock_api.status import ConditionType
from oarlock_local.cluster import Cluster

pytestmark = pytest.mark.cluster

JOB = """
apiVersion: oarlock.dev/v1alpha1
kind: TrainingJob
metadata: {name: waited-for}
spec:
  nodes: 1
  suspend: true
  output: {persistentVolumeClaim: {claimName: output}}
  custom: {command: ["true"]}
  pod: {image: example.test/none}
"""
ON_ITS_WAY = {ConditionType.READY: "False", ConditionType.RECONCILING: "True", ConditionType.STALLED: "False"}
READY = {ConditionType.READY: "True", ConditionType.RECONCILING: "False", ConditionType.STALLED: "False"}
FAILED = {ConditionType.READY: "False", ConditionType.RECONCILING: "False", ConditionType.STALLED: "True"}


def say(cluster: Cluster, conditions: dict[ConditionType, str]) -> None:
    """What the operator would write."""
    known = [
        {"type": kind, "status": status, "reason": "Test", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        for kind, status in conditions.items()
    ]
    patch = json.dumps({"status": {"observedGeneration": 1, "conditions": known}})
    cluster.kubectl("patch", "tj", "waited-for", "-n", "waiting", "--subresource=status", "--type=merge", "-p", patch)


def test_helm_waits_until_a_job_is_ready_and_no_longer_once_it_has_failed(
    helm_program: Path, serving: Cluster, tmp_path: Path
) -> None:
    chart = tmp_path / "chart"
    (chart / "templates").mkdir(parents=True)
    (chart / "Chart.yaml").write_text("apiVersion: v2\nname: job\nversion: 0.1.0\n")
    (chart / "templates" / "job.yaml").write_text(JOB)

    def waits() -> subprocess.CompletedProcess[str]:
        command = [str(helm_program), "upgrade", "--install", "job", str(chart), "-n", "waiting", "--create-namespace"]
        command += ["--wait", "--timeout", "2s", "--kubeconfig", str(serving.kubeconfig)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    nobody_has_looked = waits()
    assert nobody_has_looked.returncode != 0
    assert "waited-for" in nobody_has_looked.stderr
    for conditions, ended_well in ((ON_ITS_WAY, False), (READY, True), (FAILED, False)):
        say(serving, conditions)
        assert (waits().returncode == 0) == ended_well, conditions
    serving.kubectl("delete", "namespace", "waiting", "--wait=false")
