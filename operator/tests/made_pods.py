"""Pods as the operator makes them, for tests of what stands in them."""

from __future__ import annotations

from typing import Any

from jobs import job, spec

from oarlock_operator.manifests.pod import pod


def made(rank: int = 0, attempt: int = 1, **changes: Any) -> dict[str, Any]:
    return pod(job(), spec(**changes), attempt=attempt, rank=rank, image="trainer:1")


def container(manifest: dict[str, Any]) -> dict[str, Any]:
    return manifest["spec"]["containers"][0]


def environment(manifest: dict[str, Any]) -> dict[str, Any]:
    names = [item["name"] for item in container(manifest)["env"]]
    assert len(names) == len(set(names)), "a variable is set twice"
    return {item["name"]: item.get("value", item.get("valueFrom")) for item in container(manifest)["env"]}
