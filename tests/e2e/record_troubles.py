"""Do every trouble of `troubles` to jobs on a local cluster, and keep what the API server says as JSON, for the pure tests.

    python -m tests.e2e.record_troubles client/tests/explain/facts [NAME...]

Run it after an upgrade of Kubernetes; the words in the fixtures are those of the real components.
"""

# ruff: noqa: T201 - whoever runs it wants to see how far it is
from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from oarlock.facts import Facts
from oarlock_local.api import ApiServer
from oarlock_local.binaries import HELM
from oarlock_local.build import built
from oarlock_local.cluster import running
from oarlock_local.demo.inputs import make_inputs
from oarlock_local.demo.install import install_operator
from oarlock_local.demo.output import make_output
from oarlock_local.launch import default_shares
from tests.e2e.conftest import MANY_FAULTS, ROOT
from tests.e2e.in_trouble import Told, told
from tests.e2e.jobs import Jobs
from tests.e2e.troubles import TROUBLES


def main(folder: Path, names: list[str]) -> int:
    """Returns how many of them `why` did not tell: those are kept too, as NAME.wrong.json."""
    chosen = [one for one in TROUBLES if not names or one.name in names]
    folder.mkdir(parents=True, exist_ok=True)
    wrong = 0
    with tempfile.TemporaryDirectory() as state:
        shares = [*default_shares(), ROOT]
        with running("record", nodes=3, gpus=2, shares=shares, state=Path(state)) as cluster:
            output = make_output(cluster, ROOT, make_inputs())
            install_operator(cluster, ROOT, built(HELM), values=MANY_FAULTS)
            with ApiServer(cluster.kubeconfig) as api:
                for one in told(Jobs(cluster, output, api), chosen):
                    print(f"{one.trouble.name}: {'told' if one.right else 'NOT TOLD'}: {one.answer}", flush=True)
                    keep(folder, one)
                    wrong += not one.right
    return wrong


def keep(folder: Path, one: Told) -> None:
    node = one.node if one.trouble.node is not None or one.trouble.place else ""
    text = json.dumps({"cause": one.trouble.cause, "node": node, "facts": slim(one.facts)}, indent=1)
    (folder / f"{one.trouble.name}{'' if one.right else '.wrong'}.json").write_text(text + "\n")


def slim(known: Facts) -> dict[str, Any]:
    """Without what no explanation reads: a fixture is looked at by people."""
    facts: dict[str, Any] = json.loads(json.dumps(known.to_json()))
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
