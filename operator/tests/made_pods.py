"""Pods as the operator makes them, for tests of what stands in them."""

from __future__ import annotations

from typing import Any

from jobs import job, spec

from oarlock_api.contract.history import OperatorNotes
from oarlock_api.contract.job_file import JobFile, parse_job_file
from oarlock_api.contract.kept_spec import settings
from oarlock_operator.manifests.config import job_file
from oarlock_operator.manifests.pod import pod


def made(
    rank: int = 0, attempt: int = 1, incarnation: int = 1, *, surge: bool = False, **changes: Any
) -> dict[str, Any]:
    """A pod; a later `incarnation` follows one that is dead, in a gang whose lost pods are made anew one by one."""
    the_job, the_spec = job(), spec(**changes)
    told = job_file(the_job, the_spec, attempt).to_json()
    image, history = "trainer:1", OperatorNotes(image="trainer:1").to_json()
    kept = settings(the_spec.to_manifest())
    return pod(
        the_job,
        the_spec,
        attempt=attempt,
        rank=rank,
        image=image,
        told=told,
        cluster_id="lab",
        history=history,
        settings=kept,
        backoff="20 600",
        incarnation=incarnation,
        follows_the_dead=incarnation > 1,
        surge=surge,
        replaces_pods=incarnation > 1,
        made_from="hash" if incarnation > 1 else "",
    )


def told(manifest: dict[str, Any]) -> JobFile:
    """job.json, from where the pod's volume takes it."""
    volume = next(one for one in manifest["spec"]["volumes"] if one["name"] == "oarlock-config")
    source, *_ = volume["projected"]["sources"]
    (item,) = source["downwardAPI"]["items"]
    assert item["path"] == "job.json"
    key = item["fieldRef"]["fieldPath"].removeprefix("metadata.annotations['").removesuffix("']")
    return parse_job_file(manifest["metadata"]["annotations"][key])


def container(manifest: dict[str, Any]) -> dict[str, Any]:
    return manifest["spec"]["containers"][0]


def environment(manifest: dict[str, Any]) -> dict[str, Any]:
    names = [item["name"] for item in container(manifest)["env"]]
    assert len(names) == len(set(names)), "a variable is set twice"
    return {item["name"]: item.get("value", item.get("valueFrom")) for item in container(manifest)["env"]}
