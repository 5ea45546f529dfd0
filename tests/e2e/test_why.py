"""`oarlock why` of real jobs in real trouble, and of one whose pods, object, namespace and operator are gone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from oarlock.cli.main import app
from oarlock_local import patience
from oarlock_local.cluster import Cluster
from oarlock_local.demo.install import NAMESPACE, RELEASE
from tests.e2e.in_trouble import Told, told
from tests.e2e.jobs import OPERATORS, Jobs
from tests.e2e.troubles import TROUBLES

pytestmark = [pytest.mark.nodes, pytest.mark.timeout(400)]

QUICK = [one for one in TROUBLES if one.quick]


@pytest.fixture(scope="module")
def answers(jobs: Jobs) -> Iterator[dict[str, Told]]:
    """What `why` said of each trouble, as soon as it was right, or at the last."""
    yield {one.trouble.name: one for one in told(jobs, QUICK)}
    for one in QUICK:
        jobs.cluster.kubectl(
            "delete", "trainingjob", one.name, "-n", one.namespace, "--ignore-not-found", "--wait=false"
        )
    jobs.cluster.kubectl("taint", "node", "node-3", "spot-")
    jobs.cluster.kubectl("delete", "validatingwebhookconfiguration", "guard", "--ignore-not-found")
    for node in jobs.cluster.nodes:
        jobs.cluster.fault("mend-gpu", node)
        jobs.cluster.kubectl("uncordon", node)
        jobs.cluster.kubectl("annotate", "node", node, "oarlock.dev/cordoned-", "oarlock.dev/gpu-strikes-")


@pytest.fixture
def no_operator(local_cluster: Cluster) -> Iterator[None]:
    """Nobody reconciles."""
    scale = ("scale", f"deployment/{RELEASE}-operator", "-n", NAMESPACE)
    local_cluster.kubectl(*scale, "--replicas=0")
    local_cluster.kubectl("wait", "--for=delete", "pod", "-l", OPERATORS, "-n", NAMESPACE, patience.KUBECTL)
    yield
    local_cluster.kubectl(*scale, "--replicas=1")
    local_cluster.kubectl("rollout", "status", f"deployment/{RELEASE}-operator", "-n", NAMESPACE, patience.KUBECTL)


def test_of_all_troubles_but_one_at_most_cause_and_node_are_named(answers: dict[str, Told]) -> None:
    wrong = [
        f"{name}: {one.trouble.cause} on {one.node} is told as {one.answer}"
        for name, one in answers.items()
        if not one.right
    ]
    assert len(answers) >= 24
    assert wrong == [], "\n".join(wrong)


def test_the_command_says_the_same(jobs: Jobs, answers: dict[str, Told]) -> None:
    never_starts = answers["quota"].trouble
    there = ["-n", never_starts.namespace, "--kubeconfig", str(jobs.cluster.kubeconfig)]
    said = json.loads(run("why", never_starts.name, *there, "-o", "json"))
    assert (said["now"]["cause"], said["trouble"]["cause"]) == ("QuotaExceeded", "QuotaExceeded")
    assert "exceeded quota" in said["trouble"]["evidence"][0]["text"]
    assert "QuotaExceeded" in run("why", never_starts.name, *there)


@pytest.mark.usefixtures("no_operator")
def test_pods_job_namespace_and_operator_may_go_and_the_output_still_tells_the_whole_story(
    jobs: Jobs, answers: dict[str, Told], tmp_path: Path
) -> None:
    fault = answers["xid"]
    folder: Path = jobs.cluster.volume("training-output", "seen") / "xid"
    jobs.cluster.kubectl("delete", "namespace", "seen", patience.KUBECTL)
    story = json.loads(run("why", "--path", str(folder), "-o", "json"))
    assert (story["namespace"], story["name"], story["now"]["phase"]) == ("seen", "xid", "Gone")
    assert {"path": "custom.command", "value": "python3"} in story["settings"]
    met = [
        (one["cause"], one.get("node"), one.get("gpu"))
        for attempt in story["attempts"]
        for one in attempt.get("faults", ())[:1]
    ]
    assert ("GPUFault", fault.node, 0) in met, json.dumps(story["attempts"], indent=1)
    assert len(story["attempts"]) >= 2
    assert "GPUFault" in run("why", "--path", str(folder))
    run("report", "--path", str(folder), "--file", str(tmp_path / "xid.html"))
    for page in (tmp_path / "xid.html", folder / "reports/index.html"):  # a person's, and the job's own
        told = page.read_text()
        missing = [
            words for words in ("seen/xid", "GPUFault", fault.node, "XID 79", "custom.command") if words not in told
        ]
        assert missing == [], page


def run(*arguments: str) -> str:
    answer = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert answer.exit_code == 0, answer.output
    return answer.stdout
