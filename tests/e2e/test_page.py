"""The page as the chart installs it, in a pod of a real node: no token of its own, and what one with a token may see."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from oarlock_api.contract.history import METRICS
from oarlock_api.contract.layout import OWNER, Owner
from oarlock_local.cluster import Cluster
from oarlock_local.demo.install import NAMESPACE
from tests.e2e.jobs import Jobs

pytestmark = pytest.mark.nodes
PAGE = "deployment/oarlock-web"
ASK = """
import sys, urllib.request
token, path = sys.argv[1:]
request = urllib.request.Request("http://localhost:8080/jobs/default" + path, headers={"Authorization": "Bearer " + token})
try:
    print(urllib.request.urlopen(request).read().decode())
except urllib.error.HTTPError as error:
    print(error.read().decode())
"""


def write_output(folder: Path, uid: str) -> None:
    """What a job would have left there: whose it is, and the figures of 33 steps."""
    (folder / OWNER).parent.mkdir(parents=True)
    (folder / OWNER).write_text(Owner(job_uid=uid, attempt=1).to_json())
    rows = ({"step": step, "loss": 1 / step, "attempt": 1} for step in range(1, 34))
    (folder / METRICS).write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def test_the_page_in_its_pod_shows_who_has_a_token_what_he_may_read(jobs: Jobs, local_cluster: Cluster) -> None:
    def in_pod(*command: str) -> str:
        return local_cluster.kubectl("exec", "-n", NAMESPACE, PAGE, "--", *command)

    jobs.apply("quiet-job", nodes=1, suspend=True)
    for name in ("sees", "outsider"):
        local_cluster.kubectl("create", "serviceaccount", name)
    local_cluster.kubectl("create", "rolebinding", "sees", "--clusterrole=view", "--serviceaccount=default:sees")
    sees, outsider = (local_cluster.kubectl("create", "token", name).strip() for name in ("sees", "outsider"))
    uid = local_cluster.kubectl("get", "trainingjob", "quiet-job", "-o", "jsonpath={.metadata.uid}")
    write_output(jobs.output / "quiet-job", uid)
    assert "quiet-job" in in_pod("python", "-c", ASK, sees, "")
    assert "33 steps" in in_pod("python", "-c", ASK, sees, "/quiet-job/curve"), "as its output has them"
    refused = in_pod("python", "-c", ASK, outsider, "")
    assert "cannot list resource" in refused
    assert "quiet-job" not in refused
    assert "33 steps" not in in_pod("python", "-c", ASK, outsider, "/quiet-job/curve")
    assert "Read-only" in in_pod("sh", "-c", "touch /outputs/0/quiet-job/mine 2>&1; true")
    assert "secrets" not in in_pod("sh", "-c", "ls /var/run /run 2>&1; true"), "no token is mounted"
    jobs.delete("quiet-job")
