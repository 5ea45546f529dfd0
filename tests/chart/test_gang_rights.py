"""Rights on gang systems' objects: none by default, each with its key, and no more than what the operator asks for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.chart.rendering import render

GROUPS = {
    "volcano": "scheduling.volcano.sh",
    "coscheduling": "scheduling.x-k8s.io",
    "kai": "scheduling.run.ai",
    "native": "scheduling.k8s.io",
}


def granted(objects: list[dict[str, Any]]) -> dict[str, set[str]]:
    """API group/resource -> verbs, of the roles for gangs."""
    roles = [item for item in objects if item["metadata"]["name"].endswith("-operator-gang") and "rules" in item]
    return {
        f"{rule['apiGroups'][0]}/{rule['resources'][0]}": set(rule["verbs"]) for role in roles for rule in role["rules"]
    }


def test_nothing_is_granted_unless_a_gang_system_is_switched_on(helm_program: Path) -> None:
    objects = render(helm_program)
    assert not [item["metadata"]["name"] for item in objects if item["metadata"]["name"].endswith("-operator-gang")]


@pytest.mark.parametrize("key", GROUPS)
def test_each_system_brings_the_rights_on_its_own_groups_and_no_others(helm_program: Path, key: str) -> None:
    found = granted(render(helm_program, {"gang": {key: True}}))
    assert found.pop(f"{GROUPS[key]}/podgroups") == {"get", "list", "create", "delete"}
    assert found == ({"kai.scheduler/topologies": {"list"}} if key == "kai" else {})


def test_kueue_is_read_only_and_in_namespaces_nothing_is_granted_for_the_cluster(helm_program: Path) -> None:
    objects = render(helm_program, {"gang": {"kueue": True, "kai": True}, "namespaces": ["a", "b"]})
    gang = [item for item in objects if item["metadata"]["name"].endswith("-operator-gang")]
    assert {item["kind"] for item in gang} == {"Role", "RoleBinding"}
    assert {item["metadata"]["namespace"] for item in gang} == {"a", "b"}
    assert granted(objects)["kueue.x-k8s.io/workloads"] == {"get"}
    assert "kai.scheduler/topologies" not in granted(objects)
