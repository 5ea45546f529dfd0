"""What is granted and what was asked for, held against each other."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from oarlock_local.rights import Right, asked, never_used, not_had

PODS = {Right("", "pods", verb) for verb in ("get", "create")}
USED = Counter(Right("", "pods", verb, "default", "a") for verb in ("get", "create"))


def event(number: int, *, user: str = "us", **about: str) -> dict[str, Any]:
    return {"auditID": str(number), "user": {"username": user}, "verb": "get", "objectRef": about}


def test_a_verb_that_is_added_or_removed_is_noticed() -> None:
    patch = Right("", "pods", "patch")
    assert (never_used(PODS, USED), not_had(PODS, USED)) == (set(), Counter())
    assert never_used({*PODS, patch}, USED) == {patch}
    twice = USED + Counter({replace(patch, namespace=name, name="b"): 1 for name in ("default", "other")})
    assert not_had(PODS, twice) == {patch: 2}
    assert str(patch) == "patch pods"


def test_a_right_in_another_namespace_or_to_another_name_is_none() -> None:
    for field in ("namespace", "name"):
        elsewhere = {replace(right, **{field: "other"}) for right in PODS}
        assert (never_used(elsewhere, USED), set(not_had(elsewhere, USED))) == (elsewhere, PODS)


def test_of_the_log_a_users_own_requests_count_once_each_and_a_line_half_written_not(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    lines = [
        event(1, resource="pods", namespace="default", name="a"),
        event(1, resource="pods", namespace="default", name="a"),
        event(2, resource="pods", namespace="default", name="a"),
        event(3, user="another", resource="nodes"),
        event(4, resource="podgroups", apiGroup="scheduling.k8s.io", subresource="status"),
        event(5, resource="selfsubjectaccessreviews", apiGroup="authorization.k8s.io"),
        {**event(6), "objectRef": None},
    ]
    log.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"auditID"')
    status = Right("scheduling.k8s.io", "podgroups/status", "get")
    assert asked(log, "us") == {Right("", "pods", "get", "default", "a"): 2, status: 1}
    assert str(status) == "get podgroups/status.scheduling.k8s.io"
