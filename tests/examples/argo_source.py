"""Argo's own source as a Go module: where the schema of its Workflows comes from, so that no copy of it judges ours."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml

MODULE = "github.com/argoproj/argo-workflows/v3@v3.7.4"
SUM = "h1:oA/DxaSsjb6fMYaygf7JVQgnsF+ZzlfUPy5kIfLsCic="
"""The module's checksum, as a go.sum would hold it."""
DEFINITION = "manifests/base/crds/full/argoproj.io_workflows.yaml"
OF_SPEC = ("arguments", "entrypoint", "onExit", "serviceAccountName", "templates")
OF_TEMPLATE = ("inputs", "name", "outputs", "resource", "retryStrategy", "steps")


class SourceMissing(Exception):  # noqa: N818
    """The source cannot be had here; the message says why."""


def workflow_definition() -> dict[str, Any]:
    """Argo's CustomResourceDefinition of a Workflow, of which only the fields are left that our examples have.

    All of it is a megabyte, most of it pods', and takes an API server half a minute. Raises SourceMissing.
    """
    text = (_source() / DEFINITION).read_text()
    definition: dict[str, Any] = yaml.load(text, Loader=yaml.CSafeLoader)
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"].pop("status")
    spec = _only(schema["properties"]["spec"], OF_SPEC)
    _only(spec["properties"]["templates"]["items"], OF_TEMPLATE)
    return definition


def _only(schema: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    schema["properties"] = {name: schema["properties"][name] for name in names}
    return schema


def _source() -> Path:
    if shutil.which("go") is None:
        raise SourceMissing("Argo's schema comes as a Go module: needs Go")
    command = ["go", "mod", "download", "-json", MODULE]
    try:
        got = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    except subprocess.TimeoutExpired as error:
        raise SourceMissing(f"{' '.join(command)} does not end here") from error
    if got.returncode != 0:
        raise SourceMissing(f"go mod download {MODULE}: {got.stdout}{got.stderr}")
    told = json.loads(got.stdout)
    assert told["Sum"] == SUM, f"{MODULE} is not what it was: {told['Sum']}"
    return Path(told["Dir"])
