"""Do every trouble of `troubles` to jobs on a local cluster, and keep what the API server says as JSON, for the pure tests.

    python -m tests.e2e.record_troubles client/tests/explain/facts [NAME...]

Run it after an upgrade of Kubernetes; the words in the fixtures are those of the real components.
"""

# ruff: noqa: T201 - whoever runs it wants to see how far it is
from __future__ import annotations

import json
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx

from oarlock.explain import explain
from oarlock.facts import Facts
from oarlock.facts.cluster import RefusedError, from_cluster
from oarlock.facts.folder import NoOutputError, read_output
from oarlock_local.api import ApiServer
from oarlock_local.binaries import HELM
from oarlock_local.build import built
from oarlock_local.cluster import running
from oarlock_local.demo.inputs import make_inputs
from oarlock_local.demo.install import install_operator
from oarlock_local.demo.output import make_output
from oarlock_local.errors import ClusterError
from oarlock_local.launch import default_shares
from tests.e2e.conftest import MANY_FAULTS, ROOT
from tests.e2e.jobs import Jobs
from tests.e2e.troubles import TROUBLES, Trouble, apply

PATIENCE = 200.0


class Reader:
    """GET as the administrator of a local cluster."""

    def __init__(self, kubeconfig: Path) -> None:
        self._api = ApiServer(kubeconfig)

    def __call__(self, path: str) -> str:
        try:
            answer = self._api._http.get(path)
        except httpx.TransportError as error:
            raise RefusedError(0, repr(error)) from error
        if not answer.is_success:
            raise RefusedError(answer.status_code, answer.text)
        return answer.text


def main(folder: Path, names: list[str]) -> int:
    chosen = [one for one in TROUBLES if not names or one.name in names]
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as state:
        shares = [*default_shares(), ROOT]
        with running("record", nodes=3, gpus=2, shares=shares, state=Path(state)) as cluster:
            output = make_output(cluster, ROOT, make_inputs())
            install_operator(cluster, ROOT, built(HELM), values=MANY_FAULTS)
            with ApiServer(cluster.kubeconfig) as api:
                return record(Jobs(cluster, output, api), chosen, folder)


def record(jobs: Jobs, chosen: list[Trouble], folder: Path) -> int:
    read = Reader(jobs.cluster.kubeconfig)
    for one in chosen:
        try:
            apply(jobs, one)
        except ClusterError as error:
            print(f"{one.name}: NOT APPLIED: {error}")
    waiting, began = {one.name: one for one in chosen}, time.monotonic()
    where: dict[str, dict[int, str]] = {}
    seen: dict[str, str] = {}
    while waiting and time.monotonic() - began < PATIENCE:
        for name, one in list(waiting.items()):
            facts = gather(read, jobs, one)
            if not any(facts["pods"]) and one.strike and name not in where:
                continue
            nodes = nodes_of(facts)
            if one.strike and name not in where:
                if trains(facts, one):
                    where[name] = nodes
                    one.strike(jobs, nodes)
                continue
            story = explain(Facts.of(facts))
            found = story.trouble.cause if story.trouble else story.now.cause
            place = story.trouble.node if story.trouble else story.now.node
            seen[name] = f"{found} @ {place}: {story.now.cause}: {story.now.message[:200]}"
            expected_node = where.get(name, nodes).get(one.node, "") if one.node is not None else ""
            right_node = one.node is None or (place and place == (expected_node or place))
            if found == one.cause and right_node and settled(facts, one):
                keep(folder, one, facts, expected_node or place)
                print(f"{time.monotonic() - began:6.1f} s {name}: {seen[name]}", flush=True)
                del waiting[name]
        time.sleep(0.5)
    for name, one in waiting.items():
        facts = gather(read, jobs, one)
        keep(folder, one, facts, "?", suffix=".wrong")
        print(f"NOT SEEN {name}: wants {one.cause} at {where.get(name)}, sees {seen.get(name)}", flush=True)
    return len(waiting)


def settled(facts: dict[str, Any], one: Trouble) -> bool:
    """Whether the operator has judged what was struck: its word is a fixture's best part."""
    status = (facts["job"] or {}).get("status") or {}
    if one.over or not one.strike:
        return not one.over or "completionTime" in status
    return status.get("attempt", 0) > 1 or "completionTime" in status


def trains(facts: dict[str, Any], one: Trouble) -> bool:
    status = (facts["job"] or {}).get("status") or {}
    step: int = (status.get("progress") or {}).get("step", 0)
    return step > 2 and len(nodes_of(facts)) == one.spec.get("nodes", 1)


def nodes_of(facts: dict[str, Any]) -> dict[int, str]:
    return {
        int(pod["metadata"]["labels"]["oarlock.dev/rank"]): pod["spec"]["nodeName"]
        for pod in facts["pods"]
        if pod["spec"].get("nodeName")
    }


def gather(read: Reader, jobs: Jobs, one: Trouble) -> dict[str, Any]:
    try:
        output, _ = read_output(jobs.output / one.name)
    except NoOutputError:
        output = None
    return from_cluster(read, namespace=one.namespace, name=one.name, now=datetime.now(UTC), output=output).to_json()


def keep(folder: Path, one: Trouble, facts: dict[str, Any], node: str, suffix: str = "") -> None:
    text = json.dumps(
        {"cause": one.cause, "node": node if one.node is not None else "", "facts": slim(facts)}, indent=1
    )
    (folder / f"{one.name}{suffix}.json").write_text(text + "\n")


def slim(facts: dict[str, Any]) -> dict[str, Any]:
    """Without what no explanation reads: a fixture is looked at by people."""
    for pod in facts["pods"]:
        spec = pod["spec"]
        pod["spec"] = {
            "nodeName": spec.get("nodeName"),
            "containers": [{"name": c["name"], "image": c["image"]} for c in spec["containers"]],
        }
        pod["metadata"] = {k: v for k, v in pod["metadata"].items() if k in KEPT}
        for statuses in ("containerStatuses", "initContainerStatuses"):
            for status in pod["status"].get(statuses) or []:
                for key in ("resources", "allocatedResources", "volumeMounts", "user", "imageID", "containerID"):
                    status.pop(key, None)
    for node in facts["nodes"]:
        node["metadata"] = {"name": node["metadata"]["name"], "labels": {}}
        conditions = [one for one in node["status"].get("conditions", []) if one["type"] == "Ready"]
        node["status"] = {"conditions": conditions, "allocatable": node["status"].get("allocatable")}
    events = [*facts["events"]]
    for event in events:
        event["metadata"] = {"name": event["metadata"]["name"]}
    facts["events"] = events[-24:]
    if facts["job"]:
        facts["job"]["metadata"] = {k: v for k, v in facts["job"]["metadata"].items() if k in KEPT}
        facts["job"]["spec"] = {
            k: v for k, v in facts["job"]["spec"].items() if k in ("nodes", "gpusPerNode", "suspend")
        }
    if facts["output"]:
        facts["output"]["metrics"] = []
        facts["output"]["folder"] = f"/mnt/nfs/{facts['name']}"
    return facts


KEPT = ("name", "namespace", "uid", "labels", "creationTimestamp", "deletionTimestamp", "generation")

if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
