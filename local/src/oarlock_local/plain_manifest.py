"""The operator as one file for `kubectl apply`, rendered from the chart.

`python -m oarlock_local.plain_manifest` writes deploy/base/operator.yaml, with the chart's default values; it builds Helm
first where that was never built.
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
# kubectl apply -k takes it with the API, its namespace and the names of your images: docs/install.md.
"""
_OF_HELM = re.compile(r"^ *(?:app\.kubernetes\.io/managed-by: Helm|# Source: .*)\n", re.MULTILINE)


def plain_manifest(root: Path, helm_program: Path) -> str:
    """The file of the checkout `root`: all objects but the API, which is a file of its own beside it."""
    version = yaml.safe_load((root / "charts/oarlock/Chart.yaml").read_text())["appVersion"]
    values = {
        "image": {"repository": f"{REGISTRY}/operator"},
        "trainerImage": f"{REGISTRY}/trainer:{version}",
        "crds": {"enabled": False},
    }
    return _HEADER + without_helm(root, helm_program, values)


def without_helm(root: Path, helm_program: Path, values: Mapping[str, Any]) -> str:
    """What the chart renders with these values, without Helm's marks of what it manages."""
    text = rendered(root / "charts/oarlock", helm_program, release=RELEASE, namespace=NAMESPACE, values=values)
    return _OF_HELM.sub("", text)


def main() -> None:
    """Write the file of this checkout."""
    root = Path(__file__).parents[3]
    (root / "deploy/base/operator.yaml").write_text(plain_manifest(root, built(HELM)))


if __name__ == "__main__":
    main()
