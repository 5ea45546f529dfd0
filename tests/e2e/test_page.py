"""The page as the chart installs it, in a pod of a real node: no token of its own, and what one with a token may see."""

from __future__ import annotations

import pytest

from oarlock_local.cluster import Cluster
from oarlock_local.demo.install import NAMESPACE
from tests.e2e.jobs import Jobs

pytestmark = pytest.mark.nodes
PAGE = "deployment/oarlock-web"
ASK = """
import sys, urllib.request
request = urllib.request.Request("http://localhost:8080/jobs/default", headers={"Authorization": "Bearer " + sys.argv[1]})
print(urllib.request.urlopen(request).read().decode())
"""


def test_the_page_in_its_pod_shows_who_has_a_token_what_he_may_read(jobs: Jobs, local_cluster: Cluster) -> None:
    def in_pod(*command: str) -> str:
        return local_cluster.kubectl("exec", "-n", NAMESPACE, PAGE, "--", *command)

    jobs.apply("quiet-job", nodes=1, suspend=True)
    for name in ("sees", "outsider"):
        local_cluster.kubectl("create", "serviceaccount", name)
    local_cluster.kubectl("create", "rolebinding", "sees", "--clusterrole=view", "--serviceaccount=default:sees")
    sees, outsider = (local_cluster.kubectl("create", "token", name).strip() for name in ("sees", "outsider"))
    assert "quiet-job" in in_pod("python", "-c", ASK, sees)
    refused = in_pod("python", "-c", ASK, outsider)
    assert "cannot list resource" in refused
    assert "quiet-job" not in refused
    assert "secrets" not in in_pod("sh", "-c", "ls /var/run /run 2>&1; true"), "no token is mounted"
    jobs.delete("quiet-job")
