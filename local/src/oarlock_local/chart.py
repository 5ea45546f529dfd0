"""A Helm chart as the real helm renders it."""

import json
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from oarlock_local.binaries import KUBERNETES_VERSION
from oarlock_local.errors import ChartError

_NOTHING: Mapping[str, Any] = MappingProxyType({})


def render(
    chart: Path, helm_program: Path, *, release: str, namespace: str, values: Mapping[str, Any] = _NOTHING
) -> list[dict[str, Any]]:
    """The objects of a release of the chart, for this package's Kubernetes. Raises ChartError."""
    text = rendered(chart, helm_program, release=release, namespace=namespace, values=values)
    return [item for item in yaml.load_all(text, yaml.CSafeLoader) if item]


def rendered(
    chart: Path, helm_program: Path, *, release: str, namespace: str, values: Mapping[str, Any] = _NOTHING
) -> str:
    """The same as text, with the chart's comments. Raises ChartError."""
    return _rendered(chart, helm_program, release, namespace, json.dumps(dict(values)))


@cache
def _rendered(chart: Path, helm_program: Path, release: str, namespace: str, values: str) -> str:
    command = [str(helm_program), "template", release, str(chart), "--namespace", namespace, "--values", "-"]
    # Helm 3, built without its release's flags, takes itself for one of Kubernetes 1.20.
    command += ["--kube-version", KUBERNETES_VERSION]
    result = subprocess.run(command, check=False, capture_output=True, text=True, input=values)
    if result.returncode != 0:
        raise ChartError(result.stderr)
    return result.stdout
