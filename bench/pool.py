"""What a look at all nodes costs the operator: before a cordon (the pool), and before a gang moves (the spares).

    python bench/pool.py [--nodes 5000] [--kilobytes 16]

A server in a process of its own serves made-up nodes, most of whose bytes are names of images as on real ones, in the chunks
that the operator asks for; 1000 jobs stand beside them. Measured are the seconds of a look and the peak of the whole process.
The API server's own time to encode its nodes comes on top.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import resource
import statistics
import time
from multiprocessing.connection import Connection
from typing import Any
from urllib.parse import parse_qs, urlsplit

from aiohttp import web
from kubernetes.aio.client import Configuration

from oarlock_operator.kube.cluster import Cluster
from oarlock_operator.model.observed_nodes import Brakes
from oarlock_operator.nodes.node_facts import PlacementFacts
from oarlock_operator.nodes.pool import PoolReader

LOOKS = 5


def node(number: int, kilobytes: int) -> dict[str, Any]:
    """One with eight GPUs, as a kubelet tells of it."""
    heartbeat = {"lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    kinds = ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
    amounts = {"cpu": "192", "memory": "2113407752Ki", "nvidia.com/gpu": "8", "pods": "250", "ephemeral-storage": "9Ti"}
    labels = {f"feature.node.kubernetes.io/cpu-{flag}": "true" for flag in range(40)}
    body = {
        "metadata": {"name": f"gpu-{number}", "uid": f"uid-{number}", "labels": labels},
        "spec": {"podCIDR": "10.0.0.0/24"},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": kind, "status": str(kind == "Ready"), **heartbeat} for kind in kinds],
        },
    }
    missing = kilobytes * 1024 - len(json.dumps(body))
    images = [
        {"names": [f"registry.example.com/team/image@sha256:{'0' * 64}"], "sizeBytes": 1} for _ in range(missing // 135)
    ]
    return {**body, "status": {**body["status"], "images": images}}


def job(number: int) -> dict[str, Any]:
    """One that trains, of 4 KB."""
    status = {"attempt": 1, "message": "x" * 4000, "cordonedNodes": []}
    return {"metadata": {"name": f"job-{number}", "namespace": "default"}, "spec": {}, "status": status}


def serve(count: int, kilobytes: int, tell: Connection) -> None:
    """An API server with nodes and jobs, and nothing else."""
    objects = {
        "/api/v1/nodes": [json.dumps(node(n, kilobytes)) for n in range(count)],
        "/apis/oarlock.dev/v1alpha1/trainingjobs": [json.dumps(job(n)) for n in range(1000)],
    }

    async def answer(request: web.Request) -> web.Response:
        found = objects.get(request.path)
        if found is None:
            return web.json_response({"kind": "Status", "code": 404, "reason": "NotFound"}, status=404)
        query = parse_qs(urlsplit(request.path_qs).query)
        start, limit = int(query.get("continue", ["0"])[0]), int(query["limit"][0])
        end = start + limit
        metadata = json.dumps({"continue": str(end) if end < len(found) else ""})
        text = f'{{"metadata": {metadata}, "items": [{",".join(found[start:end])}]}}'
        return web.Response(body=text.encode(), content_type="application/json")

    async def run() -> None:
        app = web.Application()
        app.router.add_get("/{path:.*}", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        tell.send(runner.addresses[0][1])
        await asyncio.Event().wait()

    asyncio.run(run())


async def measure(port: int) -> None:
    """Look a few times and print the medians."""
    cluster = Cluster(Configuration(host=f"http://127.0.0.1:{port}"))
    before = _peak()
    pool = PoolReader(cluster=cluster, brakes=Brakes(namespace="oarlock"))
    taken: dict[str, list[float]] = {"the pool": [], "nodes for spares": []}
    worked: dict[str, list[float]] = {what: [] for what in taken}
    for _ in range(LOOKS):
        started, cpu = time.monotonic(), time.process_time()
        found = await pool.read()
        taken["the pool"].append(time.monotonic() - started)
        worked["the pool"].append(time.process_time() - cpu)
        started, cpu = time.monotonic(), time.process_time()
        async for page in cluster.pages_of(PlacementFacts, "/api/v1/nodes"):
            for each in page.items:
                each.as_json()
        taken["nodes for spares"].append(time.monotonic() - started)
        worked["nodes for spares"].append(time.process_time() - cpu)
    await cluster.close()
    for what, seconds in taken.items():
        cpu = statistics.median(worked[what])
        print(f"{what}: {statistics.median(seconds):.2f} s ({min(seconds):.2f}-{max(seconds):.2f}), {cpu:.2f} s of CPU")
    print(f"{found.size} nodes; the process began with {before} MiB and had {_peak()} MiB at its peak")


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--kilobytes", type=int, default=16)
    options = parser.parse_args()
    ours, theirs = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    server = context.Process(target=serve, args=(options.nodes, options.kilobytes, theirs), daemon=True)
    server.start()
    asyncio.run(measure(ours.recv()))
    server.terminate()


if __name__ == "__main__":
    main()
