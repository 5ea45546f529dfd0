"""What a calm waits for before anybody is called stuck."""

from __future__ import annotations

from typing import Any

from tests.chaos.calm import left_behind


def made(name: str, owner: str, *, kind: str = "TrainingJob", going: bool = False) -> dict[str, Any]:
    metadata: dict[str, Any] = {"namespace": "red", "name": name, "ownerReferences": [{"kind": kind, "uid": owner}]}
    return {"metadata": {**metadata, **({"deletionTimestamp": "2026-01-01T00:00:00Z"} if going else {})}}


def test_what_a_job_that_is_gone_owns_and_nobody_deletes_is_left_behind() -> None:
    objects = [
        made("one-1-0", "gone"),
        made("two-1-0", "lives"),
        made("three-1-0", "gone", going=True),
        made("slice", "gone", kind="Service"),
        {"metadata": {"namespace": "red", "name": "nobodys"}},
    ]
    assert left_behind([("pods", one) for one in objects], {"lives"}) == ["/api/v1/namespaces/red/pods/one-1-0"]
