"""Argo's own source as a Go module: where the schema of its Workflows comes from, so that no copy of it judges ours."""

from __future__ import annotations

from typing import Any

import yaml

from oarlock_local.sources import ARGO_WORKFLOWS

DEFINITION = "manifests/base/crds/full/argoproj.io_workflows.yaml"
OF_SPEC = ("arguments", "entrypoint", "onExit", "serviceAccountName", "templates")
OF_TEMPLATE = ("inputs", "name", "outputs", "resource", "retryStrategy", "steps")


def workflow_definition() -> dict[str, Any]:
    """Argo's CustomResourceDefinition of a Workflow, of which only the fields are left that our examples have.

    All of it is a megabyte, most of it pods', and takes an API server half a minute. Raises SourceMissing.
    """
    text = (ARGO_WORKFLOWS.fetch() / DEFINITION).read_text()
    definition: dict[str, Any] = yaml.load(text, Loader=yaml.CSafeLoader)
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"].pop("status")
    spec = _only(schema["properties"]["spec"], OF_SPEC)
    _only(spec["properties"]["templates"]["items"], OF_TEMPLATE)
    return definition


def _only(schema: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    schema["properties"] = {name: schema["properties"][name] for name in names}
    return schema
