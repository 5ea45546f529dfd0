"""Nodes that a pod keeps off by their names: how the operator writes those that a job avoids, and how they are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def not_on(node: str) -> dict[str, Any]:
    """A requirement of `matchFields`. The API takes exactly one value for a field."""
    return {"key": "metadata.name", "operator": "NotIn", "values": [node]}


def kept_off(affinity: Mapping[str, Any]) -> frozenset[str]:
    """Names of the nodes that a pod's affinity keeps it off by their names, whichever of its terms holds."""
    required = (affinity.get("nodeAffinity") or {}).get(REQUIRED) or {}
    terms = [
        {
            name
            for field in term.get("matchFields") or []
            if (field.get("key"), field.get("operator")) == ("metadata.name", "NotIn")
            for name in field.get("values") or []
        }
        for term in required.get("nodeSelectorTerms") or []
    ]
    return frozenset(set.intersection(*terms)) if terms else frozenset()
