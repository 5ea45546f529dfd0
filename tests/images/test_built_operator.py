"""The operator's image, built from its Dockerfile, in a pod as the chart makes it."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from oarlock_local import patience
from oarlock_local.demo.install import NAMESPACE
from tests.e2e.jobs import Jobs
from tests.images import builder
from tests.images.conftest import OPERATOR_IMAGE, Loaded

pytestmark = [pytest.mark.nodes, pytest.mark.timeout(900)]
DEPLOYMENT, PAGE = "deployment/oarlock-operator", "deployment/oarlock-web"


def test_a_job_trains_under_the_operator_of_the_image(jobs: Jobs, operator_image: Loaded) -> None:
    used = jobs.cluster.kubectl("get", DEPLOYMENT, "-n", NAMESPACE, "-o", "jsonpath={..containers[*].image}")
    assert used == operator_image.name
    jobs.apply("small", nodes=1, steps=20, every=10)
    status = jobs.wait_for_end("small")
    assert (status["phase"], status["attempt"], status["progress"]["step"]) == ("Succeeded", 1, 20), status


def test_it_can_write_nothing_and_is_not_root(jobs: Jobs) -> None:
    shell = ["exec", "-n", NAMESPACE, DEPLOYMENT, "--"]
    assert jobs.cluster.kubectl(*shell, "id", "-u").strip() == "65532"
    tried = jobs.cluster.kubectl(*shell, "sh", "-c", "touch /tmp/x /opt/oarlock/x 2>&1; true")
    assert tried.count("Read-only file system") == 2


def test_it_holds_no_compiler_and_no_torch(jobs: Jobs) -> None:
    look = "command -v gcc cc g++; find /opt /usr -path '*-packages/torch*' -prune"
    assert jobs.cluster.kubectl("exec", "-n", NAMESPACE, DEPLOYMENT, "--", "sh", "-c", look) == ""


def test_the_page_runs_from_it_without_a_token(jobs: Jobs) -> None:
    jobs.cluster.kubectl("rollout", "status", PAGE, "-n", NAMESPACE, patience.KUBECTL)
    look = "ls /var/run/secrets 2>&1; python -c 'import urllib.request as u; print(u.urlopen(\"http://localhost:8080/login\").status)'"
    said = jobs.cluster.kubectl("exec", "-n", NAMESPACE, PAGE, "--", "sh", "-c", look)
    assert "No such file" in said
    assert said.split()[-1] == "200"


def test_its_labels_tell_the_version(builder_name: str) -> None:
    labels = builder.inspect(builder_name, OPERATOR_IMAGE)["Labels"]
    assert labels["org.opencontainers.image.version"] == OPERATOR_IMAGE.rpartition(":")[2]
    assert labels["org.opencontainers.image.revision"]


def test_another_pod_of_it_takes_over(jobs: Jobs, tell: Callable[[str], None]) -> None:
    began = time.monotonic()
    jobs.cluster.kubectl("delete", "pod", "-n", NAMESPACE, "-l", "app.kubernetes.io/component=operator", "--now")
    gone = time.monotonic()
    jobs.cluster.kubectl("rollout", "status", DEPLOYMENT, "-n", NAMESPACE, patience.KUBECTL)
    ready = time.monotonic()
    tell(
        f"{OPERATOR_IMAGE}: a deleted pod was gone after {gone - began:.1f} s, another Ready {ready - gone:.1f} s later"
    )
    jobs.apply("second", nodes=1, steps=5, every=5)
    assert jobs.wait_for_end("second")["phase"] == "Succeeded"
