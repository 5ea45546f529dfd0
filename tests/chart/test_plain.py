"""deploy/: Oarlock by kubectl alone is what the chart brings."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from oarlock_local import chart
from oarlock_local.build import binaries
from oarlock_local.cluster import Cluster
from oarlock_local.demo.install import VALUES
from oarlock_local.plain_manifest import REGISTRY, plain_manifests
from tests.chart.rendering import CHART, ROOT, VERSION

MANAGED_BY = "app.kubernetes.io/managed-by"
INSTALL = ROOT / "docs/install.md"
CRD = "CustomResourceDefinition"
API = "trainingjobs.oarlock.dev"
Objects = dict[tuple[str, str], dict[str, Any]]


def by_name(objects: list[dict[str, Any]]) -> Objects:
    """Objects by kind and name, without what only Helm needs, and with environments that do not depend on their order."""
    for item in objects:
        (item["metadata"].get("labels") or {}).pop(MANAGED_BY, None)
        if item["kind"] == "Deployment":
            pod = item["spec"]["template"]
            pod["metadata"]["labels"].pop(MANAGED_BY, None)
            for container in pod["spec"]["containers"]:
                container["env"].sort(key=lambda variable: variable["name"])
    return {(item["kind"], item["metadata"]["name"]): item for item in objects}


@pytest.fixture(scope="module")
def kubectl() -> Path:
    return binaries(nodes=False) / "kubectl"


def built(kubectl: Path, folder: Path) -> list[dict[str, Any]]:
    """What `kubectl apply -k` applies."""
    command = [str(kubectl), "kustomize", str(folder)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return list(yaml.load_all(text, yaml.CSafeLoader))


def test_the_page_on_installing_names_both_images(kubectl: Path, tmp_path: Path) -> None:
    (yours,) = re.findall(r"^```yaml\n(.*?kind: Kustomization.*?)^```$", INSTALL.read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "oarlock").symlink_to(ROOT)
    (tmp_path / "kustomization.yaml").write_text(yours)
    text = json.dumps(built(kubectl, tmp_path))
    assert REGISTRY in (ROOT / "deploy/base/operator.yaml").read_text()
    assert REGISTRY not in text
    assert f"registry.example.com/oarlock/operator:{VERSION}" in text
    assert f"registry.example.com/oarlock/trainer:{VERSION}" in text


def test_the_operator_s_file_alone_by_which_it_is_removed_and_rolled_back_leaves_the_api_and_its_jobs(
    kubectl: Path, tmp_path: Path
) -> None:
    for name in ("deploy/base", "crds"):
        shutil.copytree(ROOT / name, tmp_path / "oarlock" / name)
    whole, alone = "oarlock/deploy/base", "oarlock/deploy/base/operator.yaml"
    assert f"`kubectl delete -f {alone}`" in INSTALL.read_text()
    kinds = {}
    for resource in (whole, alone):
        (tmp_path / "kustomization.yaml").write_text(f"resources: [{resource}]")
        kinds[resource] = {item["kind"] for item in built(kubectl, tmp_path)}
    assert kinds[whole] - kinds[alone] == {"CustomResourceDefinition", "Namespace"}


def test_an_api_server_takes_every_object(serving: Cluster) -> None:
    dry = ("--server-side", "--dry-run=server", "--validate=strict", "--force-conflicts")
    for folder, objects in (("base", 15), ("dashboard", 3)):
        told = serving.kubectl("apply", *dry, "-k", str(ROOT / "deploy" / folder))
        assert len(told.splitlines()) == objects


def test_the_folder_of_the_api_is_applied_as_it_is(serving: Cluster) -> None:
    told = serving.kubectl("apply", "--dry-run=server", "-f", str(ROOT / "crds"))
    assert told.startswith("customresourcedefinition.apiextensions.k8s.io/trainingjobs.oarlock.dev")
    assert len(told.splitlines()) == 1


def test_the_files_are_what_the_chart_renders(helm_program: Path) -> None:
    rendered = plain_manifests(ROOT, helm_program)
    written = {name: (ROOT / name).read_text() for name in rendered}
    assert written == rendered, "run .venv/bin/python -m oarlock_local.plain_manifest"


def test_the_file_of_the_page_holds_the_page_and_nothing_of_the_operator(kubectl: Path) -> None:
    found = built(kubectl, ROOT / "deploy/dashboard")
    assert {(item["kind"], item["metadata"]["name"]) for item in found} == {
        (kind, "oarlock-web") for kind in ("ServiceAccount", "Service", "Deployment")
    }


def test_the_demo_gets_the_same_by_kubectl_as_by_helm(kubectl: Path, helm_program: Path) -> None:
    by_kubectl = by_name(built(kubectl, ROOT / "deploy/local"))
    by_helm = by_name(chart.render(CHART, helm_program, release="oarlock", namespace="oarlock", values=VALUES))
    assert by_kubectl.pop(("Namespace", "oarlock"))
    # Of one file in both; each program writes some of its numbers otherwise.
    assert by_kubectl.pop((CRD, API))
    assert by_helm.pop((CRD, API))
    assert by_kubectl == by_helm
