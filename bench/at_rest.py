"""What many training jobs cost while nothing happens: CPU of the operator and of the API server, at one pod a job.

    .venv/bin/python bench/at_rest.py [--jobs 1000] [--seconds 120]

Every pod answers /status with a step that is always new, on a loopback address of its own, so that figures are written as
often as they may be. No kubelet runs: one Node has room for all pods, and its status and theirs are written here. Prints a
line, writes bench/results/at_rest.json.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from aiohttp import web
from connection import CORE, JOBS, MERGE, Connection, Json
from contenders import make_claim, operator
from process_costs import all_cpu_seconds, cpu_seconds, peak_mib

from oarlock_api.contract.figures import Figures
from oarlock_api.contract.names import API_VERSION, KIND, Label
from oarlock_api.contract.status import PodStatus
from oarlock_local.cluster import running
from oarlock_local.crd import apply_crd
from oarlock_local.objects import GPU_RESOURCE

ROOT = Path(__file__).parents[1]
PORT = 9400
NODE = "/api/v1/nodes/all"
HEARTBEAT_SECONDS = 10


class Pods:
    """The pods of all jobs, and what their agents say."""

    def __init__(self, api: Connection) -> None:
        self._api = api
        self._known: dict[str, Json] = {}
        self._begun = time.monotonic()

    async def start(self, wanted: int) -> None:
        """Have the pods run, each as soon as it is there, until so many do."""
        begun: set[str] = set()
        async for _, event in self._api.watch(f"{CORE}/pods"):
            pod = event["object"]
            if pod["spec"].get("nodeName") and pod["metadata"]["uid"] not in begun:
                begun.add(pod["metadata"]["uid"])
                number = len(self._known)
                address = f"127.1.{number // 250}.{number % 250 + 1}"
                self._known[address] = pod["metadata"]
                await self._run(pod["metadata"]["name"], address)
            if len(self._known) == wanted:
                return

    async def _run(self, name: str, address: str) -> None:
        state = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
        container = {"name": "trainer", "image": "x", "imageID": "", "ready": True, "restartCount": 0, "state": state}
        conditions = [{"type": kind, "status": "True"} for kind in ("PodScheduled", "Ready")]
        status: dict[str, Any] = {"phase": "Running", "podIP": address, "conditions": conditions}
        status |= {"podIPs": [{"ip": address}], "containerStatuses": [container]}
        await self._api.call("PATCH", f"{CORE}/pods/{name}/status", {"status": status}, content=MERGE)

    async def tell(self, request: web.Request) -> web.Response:
        """What one of their agents answers."""
        assert request.transport is not None  # noqa: S101 - it asks
        metadata = self._known.get(request.transport.get_extra_info("sockname")[0])
        if metadata is None:
            # Somebody else's business on this machine.
            raise web.HTTPNotFound
        now = datetime.now(UTC).isoformat()
        said = PodStatus(
            job_uid=metadata["labels"][Label.JOB_UID],
            pod_uid=metadata["uid"],
            attempt=1,
            rank=0,
            phase="Training",
            heartbeat_at=now,
            started_at=now,
            first_step_at=now,
            figures=Figures(
                step=int(time.monotonic() - self._begun),
                total_steps=1_000_000,
                loss=0.5,
                seconds_per_step=1.0,
            ),
        )
        return web.Response(text=said.to_json())


async def _keep_a_node(api: Connection) -> None:
    """A node that takes all pods, and the heartbeats of its kubelet, until cancelled."""
    await api.call("POST", "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "all"}})
    room = {"cpu": "9999", "memory": "99Ti", "pods": "9999", GPU_RESOURCE: "9999"}
    while True:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": now}
        status = {"capacity": room, "allocatable": room, "conditions": [ready]}
        await api.call("PATCH", f"{NODE}/status", {"status": status}, content=MERGE)
        await asyncio.sleep(HEARTBEAT_SECONDS)


async def measure(jobs: int, seconds: float, stack: ExitStack) -> Json:
    """Costs of so many jobs in so long."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    cluster = stack.enter_context(running("at-rest", nodes=0, state=folder))
    apply_crd(cluster, ROOT / "crds/trainingjobs.yaml")
    async with Connection(cluster.kubeconfig) as api:
        pods, app = Pods(api), web.Application()
        app.router.add_get("/{path:.*}", pods.tell)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "0.0.0.0", PORT).start()  # noqa: S104 - all of 127.0.0.0/8
        kubelet = asyncio.create_task(_keep_a_node(api))
        await make_claim(api)
        program = stack.enter_context(operator(api, cluster.kubeconfig, folder / "operator.log", profile=None))
        starting = asyncio.create_task(pods.start(jobs))
        for number in range(jobs):
            await api.call("POST", JOBS, _job(number))
        await starting
        while (training := await _training(api)) < jobs:
            print(f"{training} train")
            await asyncio.sleep(5)
        server = [int(pid) for pid in _pids("kube-apiserver", str(folder))]
        # All figures are written at their new pace by now.
        await asyncio.sleep(jobs / 10)
        pid, before, begun = program.process.pid, all_cpu_seconds(server), time.monotonic()
        ours, calls = cpu_seconds(pid), program.calls()
        await asyncio.sleep(seconds)
        took = time.monotonic() - begun
        asked = program.calls() - calls
        result = {
            "jobs": jobs,
            "seconds": round(took),
            "operatorCores": round((cpu_seconds(pid) - ours) / took, 3),
            "operatorPeakMiB": round(peak_mib(pid)),
            "apiServerCores": round((all_cpu_seconds(server) - before) / took, 3),
            "requestsPerSecond": {verb: round(count / took, 1) for verb, count in sorted(asked.items())},
        }
        kubelet.cancel()
        await runner.cleanup()
        return result


def _pids(program: str, folder: str) -> list[str]:
    found = subprocess.run(["pgrep", "-f", f"{program}.*{folder}"], capture_output=True, text=True, check=False)
    return found.stdout.split()


def _job(number: int) -> Json:
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": f"job-{number}"},
        "spec": {
            "nodes": 1,
            "gpusPerNode": 1,
            "output": {"persistentVolumeClaim": {"claimName": "out"}},
            "custom": {"command": ["train"]},
            "pod": {"image": "registry.example.com/mine:1"},
        },
    }


async def _training(api: Connection) -> int:
    found = json.loads(await api.call("GET", JOBS))
    return sum("progress" in (job.get("status") or {}) for job in found["items"])


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=120)
    options = parser.parse_args()
    with ExitStack() as stack:
        result = asyncio.run(measure(options.jobs, options.seconds, stack))
    sys.stdout.write(json.dumps(result) + "\n")
    results = ROOT / "bench/results"
    results.mkdir(exist_ok=True)
    (results / "at_rest.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
