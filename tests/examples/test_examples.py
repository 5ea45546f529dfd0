"""Every file of examples/ is taken by a real API server, with no field that it does not know."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from oarlock_api.manifest import load_all
from oarlock_local.errors import ClusterError

if TYPE_CHECKING:
    from oarlock_local.cluster import Cluster

ROOT = Path(__file__).parents[2]
WORKFLOWS = "argoproj.io/v1alpha1"
FILES = sorted((ROOT / "examples").glob("*.yaml"))


def documents(path: Path) -> list[dict[str, Any]]:
    return load_all(path.read_text())


@pytest.fixture(scope="module")
def served(server: Cluster) -> set[str]:
    """The groups and versions that the API server knows, but for Argo's."""
    return set(server.kubectl("api-versions").split())


@pytest.mark.cluster
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_real_api_server_takes_it_and_knows_every_field(
    path: Path, server: Cluster, served: set[str], request: pytest.FixtureRequest
) -> None:
    asked = {each["apiVersion"] for each in documents(path)}
    if WORKFLOWS in asked:
        request.getfixturevalue("argo")
    missing = asked - served - {WORKFLOWS}
    generated = any("generateName" in each["metadata"] for each in documents(path))
    verb = ("create",) if generated else ("apply", "--server-side", "--force-conflicts")
    # A dry run passes admission and the schema, and keeps nothing.
    ask = (*verb, "--dry-run=server", "--validate=strict", "-f")
    if not missing:
        server.kubectl(*ask, str(path))
        return
    known = [each for each in documents(path) if each["apiVersion"] not in missing]
    server.kubectl(*ask, "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": known}))
    pytest.skip(f"all but what needs the definitions of {', '.join(sorted(missing))}")


@pytest.mark.cluster
def test_a_field_that_argo_does_not_know_is_refused(argo: Cluster, tmp_path: Path) -> None:
    wrong = tmp_path / "workflow.yaml"
    wrong.write_text((ROOT / "examples/argo-workflow.yaml").read_text().replace("mergeStrategy:", "mergestrategy:"))
    with pytest.raises(ClusterError, match="unknown field"):
        argo.kubectl("create", "--dry-run=server", "--validate=strict", "-f", str(wrong))


def test_the_list_of_examples_names_each() -> None:
    folder = ROOT / "examples"
    table = [line.split("|")[1] for line in (folder / "README.md").read_text().splitlines() if line.startswith("| ")]
    named = {name.strip() for cell in table[2:] for name in cell.split(",")}
    assert named >= {path.name for path in folder.iterdir() if path.suffix in (".yaml", ".py")}


def test_no_file_hides_a_module_of_the_standard_library() -> None:
    assert not (ROOT / "examples/operator.py").exists()
