"""The verbs of `oarlock`, one after the other, on a real cluster with a real job."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from oarlock.cluster import Cluster, connect
from oarlock.errors import ForbiddenError
from oarlock.leader import find_leader
from tests.e2e.jobs import EXAMPLE, Jobs

pytestmark = [pytest.mark.nodes, pytest.mark.timeout(400)]

Oarlock = Callable[..., "subprocess.CompletedProcess[str]"]
PROGRAM = str(Path(sys.executable).with_name("oarlock"))


@pytest.fixture
def oarlock(jobs: Jobs) -> Oarlock:
    """The command as people have it, and the exit code that it must end with."""
    environment = {**os.environ, "KUBECONFIG": str(jobs.cluster.kubeconfig), "COLUMNS": "200"}

    def call(*arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        ended = subprocess.run(
            [PROGRAM, *arguments], env=environment, capture_output=True, text=True, check=False, timeout=240
        )
        assert ended.returncode == code, (arguments, ended)
        assert not code or ended.stderr.rpartition("oarlock: ")[2].count("\n") == 1, ended
        return ended

    return call


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    job = yaml.safe_load(EXAMPLE.read_text())
    job["metadata"]["name"] = "verbs"
    job["spec"]["training"]["optimizer"]["learningRate"] = 0.001
    job["spec"]["training"].update(steps=5000, checkpoint={"intervalSteps": 10, "keep": 3})
    path = tmp_path / "verbs.yaml"
    path.write_text(json.dumps(job))
    return path


@pytest.fixture
def followed(jobs: Jobs) -> Iterator[Callable[[], list[dict[str, Any]]]]:
    """`oarlock logs verbs -f` beside the test, which has made the job: what it has printed, once it has ended."""
    environment = {**os.environ, "KUBECONFIG": str(jobs.cluster.kubeconfig)}
    lines: list[dict[str, Any]] = []
    processes: list[subprocess.Popen[str]] = []

    def start() -> Callable[[], list[dict[str, Any]]]:
        command = [PROGRAM, "logs", "verbs", "-f", "-o", "jsonl"]
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        processes.append(process)

        def read() -> None:
            assert process.stdout
            lines.extend(json.loads(line) for line in process.stdout)

        reader = threading.Thread(target=read)
        reader.start()

        def end() -> list[dict[str, Any]]:
            reader.join(timeout=60)
            assert process.wait(timeout=10) == 0
            return lines

        return end

    yield start
    for process in processes:
        process.kill()
        process.wait()


def test_a_verb_after_the_other_does_to_a_real_job_what_it_says(
    jobs: Jobs, oarlock: Oarlock, manifest: Path, followed: Callable[[], Callable[[], list[dict[str, Any]]]]
) -> None:
    def trains(attempt: int) -> None:
        jobs.wait("verbs", f"a step of attempt {attempt}", lambda status: _trains(status, attempt))

    oarlock("submit", "-f", str(manifest), "--dry-run")
    assert jobs.phase("verbs") == ""
    oarlock("submit", "-f", str(manifest))
    log = followed()
    trains(1)

    (row,) = [one for one in json.loads(oarlock("ls", "-o", "json").stdout)["items"] if one["name"] == "verbs"]
    assert (row["phase"], row["nodes"], row["gpus"]) == ("Running", 2, 4)
    assert row["loss"] > 0
    assert "verbs" in oarlock("top").stdout
    assert "Running" in oarlock("get", "verbs").stdout
    assert json.loads(oarlock("get", "verbs", "-o", "json").stdout)["kind"] == "TrainingJob"
    assert "pod/verbs-1-0" in oarlock("events", "verbs").stdout
    assert oarlock("faults", "verbs").stdout == ""
    assert oarlock("nodes").stdout.count(" yes ") >= 3
    told = oarlock("logs", "verbs").stdout
    assert "[1/0] " in told
    assert "[1/1] " in told
    assert "[1/0] " not in oarlock("logs", "verbs", "--rank", "1").stdout
    _tells_figures_and_pictures_from_within(connect(kubeconfig=str(jobs.cluster.kubeconfig)))
    assert "2 s" in oarlock("wait", "verbs", "--timeout", "2", code=2).stderr

    oarlock("suspend", "verbs")
    oarlock("wait", "verbs", "--timeout", "120", code=3)
    oarlock("logs", "verbs", "--attempt", "1", code=8)
    oarlock("resume", "verbs")
    trains(2)
    oarlock("resize", "verbs", "--nodes", "1", "--timeout", "120")
    trains(3)
    assert len(jobs.pods("verbs")) == 1
    step = jobs.status("verbs")["latestCheckpoint"]["step"]
    assert "newest checkpoint" in oarlock("stop", "verbs", "--timeout", "120").stdout
    assert max(at for at, _ in jobs.checkpoints("verbs")) >= step
    oarlock("get", "verbs", code=4)

    lines = log()
    assert {line["attempt"] for line in lines if line["kind"] == "line"} == {1, 2, 3}
    assert {line["rank"] for line in lines if line["attempt"] == 1 and line["kind"] == "line"} == {0, 1}
    assert lines[-1]["text"] == "verbs was deleted"


def _tells_figures_and_pictures_from_within(cluster: Cluster) -> None:
    """To who may forward ports; who comes by the pod network, as the API server's own proxy does, is a stranger."""
    leader = find_leader(cluster, namespace="default", job="verbs")
    attempt, steps = leader.figures(since=1)
    assert attempt == 1
    assert [one.figures.step for one in steps] == list(range(2, 2 + len(steps)))
    assert leader.pictures() == ""
    with pytest.raises(ForbiddenError, match="from within"):
        cluster.text("/api/v1/namespaces/default/pods/verbs-1-0:9400/proxy/figures")


def _trains(status: dict[str, Any], attempt: int) -> bool:
    saved = Path((status.get("latestCheckpoint") or {}).get("path", "")).name
    return status.get("attempt") == attempt and "stage" not in status["recovery"] and saved.endswith(f"-a{attempt}")
