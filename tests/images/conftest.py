"""One real node with nothing but the built images: the operator installed by helm, the trainer where a test asks for it.

They are built by `make images`, which takes minutes and gigabytes: `make images-test` names their builder in
OARLOCK_IMAGES_BUILDER, and without it these tests are skipped.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version

import pytest

from oarlock_local.api import ApiServer
from oarlock_local.binaries import HELM
from oarlock_local.build import built
from oarlock_local.cluster import Cluster, running
from oarlock_local.demo.inputs import make_inputs
from oarlock_local.demo.install import install_operator, operators_account
from oarlock_local.demo.output import make_output
from oarlock_local.launch import default_shares
from oarlock_local.machine import why_no_nodes
from tests.e2e.jobs import Jobs
from tests.images import builder
from tests.images.dockerfile import ROOT

PREFIX = os.environ.get("OARLOCK_IMAGES_PREFIX") or "oarlock"
"""What the images' names begin with: a registry and a path, or a path."""
OPERATOR_IMAGE, TRAINER_IMAGE = (f"{PREFIX}/{part}:{version('oarlock-operator')}" for part in ("operator", "trainer"))
_FIGURES = pytest.StashKey[list[str]]()


@dataclass(frozen=True, slots=True)
class Loaded:
    """An image that pods of the cluster can use."""

    name: str
    """As pods name it."""
    built: str
    """As its builder names it."""


@pytest.fixture(scope="session")
def tell(pytestconfig: pytest.Config) -> Callable[[str], None]:
    """Put a figure into the lines at the end of the run."""
    return pytestconfig.stash.setdefault(_FIGURES, []).append


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for line in config.stash.get(_FIGURES, []):
        terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def builder_name() -> str:
    name = os.environ.get("OARLOCK_IMAGES_BUILDER")
    if not name:
        pytest.skip("needs images that were built: run `make images-test`")
    return name


@pytest.fixture(scope="session")
def one_node(builder_name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One node, because an image with CUDA's libraries takes ten gigabytes on each."""
    del builder_name
    if reason := why_no_nodes():
        pytest.skip(reason)
    shares = [*default_shares(), ROOT]
    with running("images", nodes=1, gpus=2, shares=shares, state=tmp_path_factory.mktemp("clusters")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def load(
    one_node: Cluster, builder_name: str, tmp_path_factory: pytest.TempPathFactory, tell: Callable[[str], None]
) -> Callable[[str], Loaded]:
    """Bring a built image into the cluster."""

    def loaded(image: str) -> Loaded:
        archive = tmp_path_factory.mktemp("archive") / "image.tar"
        name = builder.save(builder_name, image, archive)
        began = time.monotonic()
        one_node.load(archive)
        seconds, size = time.monotonic() - began, archive.stat().st_size / 1e6
        archive.unlink()
        tell(f"{image}: {size:.0f} MB of layers, unpacked on a node in {seconds:.1f} s")
        return Loaded(name, image)

    return loaded


@pytest.fixture(scope="session")
def operator_image(load: Callable[[str], Loaded]) -> Loaded:
    return load(OPERATOR_IMAGE)


@pytest.fixture(scope="session")
def trainer_image(load: Callable[[str], Loaded]) -> Loaded:
    return load(TRAINER_IMAGE)


@pytest.fixture(scope="session")
def jobs(one_node: Cluster, operator_image: Loaded) -> Iterator[Jobs]:
    """Jobs on the cluster, with the operator of the built image, installed as a person does it."""
    output = make_output(one_node, ROOT, make_inputs())
    repository, _, tag = operator_image.name.rpartition(":")
    values = {
        "image": {"repository": repository, "tag": tag},
        "trainerImage": TRAINER_IMAGE,
        "settings": {"PROGRESS_SECONDS": 1},
        "dashboard": {"enabled": True},
    }
    install_operator(one_node, ROOT, built(HELM), values=values)
    with ApiServer(one_node.kubeconfig) as api:
        yield Jobs(one_node, output, api)
    assert operators_account(one_node, ROOT, built(HELM), values=values).complaint() == ""


@pytest.fixture(scope="session")
def shell(jobs: Jobs, trainer_image: Loaded) -> Iterator[Callable[..., str]]:
    """Run a command in a pod of the image, as restricted as a job's, but by a user that the image does not know."""
    container = {
        "name": "tools",
        "image": trainer_image.name,
        "command": ["sleep", "infinity"],
        "securityContext": {
            "runAsUser": 4242,
            "runAsNonRoot": True,
            "readOnlyRootFilesystem": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    }
    spec = {
        "containers": [container],
        "volumes": [{"name": "tmp", "emptyDir": {}}],
        "terminationGracePeriodSeconds": 0,
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "tools"}, "spec": spec}
    jobs.cluster.kubectl("apply", "-f", "-", stdin=json.dumps(pod))
    jobs.cluster.kubectl("wait", "--for=condition=Ready", "pod/tools", "--timeout=300s")
    yield lambda *command: jobs.cluster.kubectl("exec", "tools", "--", *command)
    jobs.cluster.kubectl("delete", "pod", "tools", "--wait=false")
