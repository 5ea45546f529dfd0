"""Every file of examples/ is taken by a real API server, with no field that it does not know."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from oarlock_api.manifest import load_all
from oarlock_local.errors import ClusterError

if TYPE_CHECKING:
    from oarlock_local.cluster import Cluster

ROOT = Path(__file__).parents[2]
FOREIGN = {"argoproj.io/v1alpha1": "argo", "kueue.x-k8s.io/v1beta2": "kueue"}
"""Other projects' kinds, and the fixture that has them served."""
FILES = sorted((ROOT / "examples").glob("*.yaml"))


def documents(path: Path) -> list[dict[str, Any]]:
    return load_all(path.read_text())


@pytest.mark.cluster
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_real_api_server_takes_it_and_knows_every_field(
    path: Path, server: Cluster, request: pytest.FixtureRequest
) -> None:
    for group in {each["apiVersion"] for each in documents(path)} & FOREIGN.keys():
        request.getfixturevalue(FOREIGN[group])
    generated = any("generateName" in each["metadata"] for each in documents(path))
    verb = ("create",) if generated else ("apply", "--server-side", "--force-conflicts")
    # A dry run passes admission and the schema, and keeps nothing.
    server.kubectl(*verb, "--dry-run=server", "--validate=strict", "-f", str(path))


@pytest.mark.cluster
def test_a_field_that_argo_does_not_know_is_refused(argo: Cluster, tmp_path: Path) -> None:
    wrong = tmp_path / "workflow.yaml"
    wrong.write_text((ROOT / "examples/argo-workflow.yaml").read_text().replace("mergeStrategy:", "mergestrategy:"))
    with pytest.raises(ClusterError, match="unknown field"):
        argo.kubectl("create", "--dry-run=server", "--validate=strict", "-f", str(wrong))


@pytest.mark.cluster
def test_a_field_that_kueue_does_not_know_is_refused(kueue: Cluster, tmp_path: Path) -> None:
    wrong = tmp_path / "kueue.yaml"
    wrong.write_text((ROOT / "examples/kueue.yaml").read_text().replace("nominalQuota:", "quota:"))
    with pytest.raises(ClusterError, match="not declared in schema"):
        kueue.kubectl("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", str(wrong))


def test_the_list_of_examples_names_each() -> None:
    folder = ROOT / "examples"
    table = [line.split("|")[1] for line in (folder / "README.md").read_text().splitlines() if line.startswith("| ")]
    named = {name.strip() for cell in table[2:] for name in cell.split(",")}
    assert named >= {path.name for path in folder.iterdir() if path.suffix in (".yaml", ".py", ".ipynb")}


def test_no_file_hides_a_module_of_the_standard_library() -> None:
    assert not (ROOT / "examples/operator.py").exists()
