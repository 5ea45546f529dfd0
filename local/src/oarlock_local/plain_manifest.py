"""The operator, and the page, as a file each for `kubectl apply`, rendered from the chart.

`python -m oarlock_local.plain_manifest` writes them below deploy/, with the chart's default values but for what switches the
page on; it builds Helm first where that was never built.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from oarlock_local.binaries import HELM
from oarlock_local.build import built
from oarlock_local.chart import rendered

REGISTRY = "registry.invalid/oarlock"
"""Stands for the registry of whoever installs: a host that nobody can have (RFC 2606)."""
RELEASE = NAMESPACE = "oarlock"
_HEADER = """\
# Made from charts/oarlock by `python -m oarlock_local.plain_manifest`: change the chart, not this file.
# How kubectl alone applies it, with the names of your images: docs/install.md.
"""
_PAGE = re.compile(r"^---\n# Source: oarlock/templates/web\.yaml\n", re.MULTILINE)
_OF_HELM = re.compile(r"^ *(?:app\.kubernetes\.io/managed-by: Helm|# Source: .*)\n", re.MULTILINE)


def plain_manifests(root: Path, helm_program: Path) -> dict[str, str]:
    """The files of the checkout `root` by their places in it: all objects but the API, which is a file of its own."""
    version = yaml.safe_load((root / "charts/oarlock/Chart.yaml").read_text())["appVersion"]
    values = {
        "image": {"repository": f"{REGISTRY}/operator"},
        "trainerImage": f"{REGISTRY}/trainer:{version}",
        "crds": {"enabled": False},
    }
    operator = without_helm(root, helm_program, values)
    return {
        "deploy/base/operator.yaml": _HEADER + operator,
        "deploy/dashboard/dashboard.yaml": _HEADER + _page(root, helm_program, values),
    }


def _page(root: Path, helm_program: Path, values: Mapping[str, Any]) -> str:
    """What is there besides where the page is switched on."""
    text = _rendered(root, helm_program, {**values, "dashboard": {"enabled": True}})
    parts = re.split(r"^(?=---$)", text, flags=re.MULTILINE)
    return _OF_HELM.sub("", "".join(part for part in parts if _PAGE.match(part)))


def without_helm(root: Path, helm_program: Path, values: Mapping[str, Any]) -> str:
    """What the chart renders with these values, without Helm's marks of what it manages."""
    return _OF_HELM.sub("", _rendered(root, helm_program, values))


def _rendered(root: Path, helm_program: Path, values: Mapping[str, Any]) -> str:
    return rendered(root / "charts/oarlock", helm_program, release=RELEASE, namespace=NAMESPACE, values=values)


def main() -> None:
    """Write the files of this checkout."""
    root = Path(__file__).parents[3]
    for name, text in plain_manifests(root, built(HELM)).items():
        (root / name).write_text(text)


if __name__ == "__main__":
    main()
