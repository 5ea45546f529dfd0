"""A kind is there as soon as apply_crd returns, however soon it is used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from oarlock_local.cluster import Cluster
from oarlock_local.crd import apply_crd
from oarlock_local.errors import ClusterError

pytestmark = pytest.mark.cluster


def definition(folder: Path, plural: str) -> Path:
    version: dict[str, Any] = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object"}},
    }
    names = {"plural": plural, "singular": plural[:-1], "kind": plural[:-1].capitalize()}
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.oars.test"},
        "spec": {"group": "oars.test", "scope": "Namespaced", "names": names, "versions": [version]},
    }
    path = folder / f"{plural}.yaml"
    path.write_text(yaml.safe_dump(crd))
    return path


@pytest.mark.parametrize("plural", ["oars", "blades", "looms"])
def test_objects_of_a_new_kind_can_be_made_at_once(plural: str, control_plane: Cluster, tmp_path: Path) -> None:
    """With kubectl wait this failed now and then: a definition has no conditions at first."""
    apply_crd(control_plane, definition(tmp_path, plural))
    body = {"apiVersion": "oars.test/v1", "kind": plural[:-1].capitalize(), "metadata": {"name": "first"}}
    control_plane.kubectl("create", "-f", "-", stdin=json.dumps(body))
    assert control_plane.kubectl("get", plural, "-o", "name").endswith("/first\n")


def test_a_kind_that_is_never_served_is_told_with_where_to_look(control_plane: Cluster, tmp_path: Path) -> None:
    path = definition(tmp_path, "sculls")
    raw = yaml.safe_load(path.read_text())
    raw["spec"]["names"]["kind"] = "Oar"  # taken, if it was made before, and never accepted then
    raw["spec"]["names"]["listKind"] = "OarList"
    apply_crd(control_plane, definition(tmp_path, "oars"))
    path.write_text(yaml.safe_dump(raw))
    with pytest.raises(ClusterError, match=r"kubectl describe crd sculls\.oars\.test"):
        apply_crd(control_plane, path, seconds=1)
