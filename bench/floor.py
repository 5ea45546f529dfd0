"""The floor: the least that starts and restarts gangs on an API server. No product: no status, no conditions, no budgets.

    python bench/floor.py KUBECONFIG NAME TEMPLATE [STATUS]

It follows ConfigMaps with the label `floor=NAME`. Each becomes a headless Service and `data.nodes` pods like TEMPLATE
(JSON); when a pod has failed all are deleted, and when they are gone written anew; they go with their ConfigMap. An
operator can come near to its times, and not below them. It prints `ready` when it listens.

With STATUS (JSON), it follows TrainingJobs of that label instead, and writes that status into each, once, before anything
else: what it costs that users ask by a TrainingJob and are answered in it, and nothing besides.
"""

from __future__ import annotations

import asyncio
import copy
import json
import signal
import sys
from pathlib import Path

from connection import CORE, JOBS, Connection, Json, RefusedError

PARALLEL = 16
POD_LABEL = "floor-gang"
ASKED_LABEL = "floor"


class Gang:
    """One gang: what is to be there, and what is seen to be there."""

    def __init__(self, api: Connection, template: Json, name: str, nodes: int, *, answer: Json | None = None) -> None:
        """`template`: a pod with the labels that all have; `answer`: the TrainingJob with the status to be written first."""
        self.api = api
        self.answer = answer
        self.template = template
        self.name = name
        self.nodes = nodes
        self.attempt = 0
        self.pods: set[str] = set()
        self.empty = asyncio.Event()

    async def start(self) -> None:
        """Write the Service and the pods."""
        if self.answer:
            await self.api.call("PUT", f"{JOBS}/{self.name}/status", self.answer)
        await asyncio.gather(self.api.call("POST", f"{CORE}/services", self._service()), self._create())

    async def restart(self) -> None:
        """Delete the pods, wait until the last is gone, write them anew."""
        self.empty.clear()
        await self._delete()
        await self.empty.wait()
        await self._create()

    async def end(self) -> None:
        """Delete everything."""
        await asyncio.gather(self._delete(), self.api.call("DELETE", f"{CORE}/services/{self.name}"))

    async def _create(self) -> None:
        self.attempt += 1
        await asyncio.gather(*(self.api.call("POST", f"{CORE}/pods", self._pod(i)) for i in range(self.nodes)))

    async def _delete(self) -> None:
        await asyncio.gather(*(self._delete_one(name) for name in sorted(self.pods)))

    async def _delete_one(self, name: str) -> None:
        try:
            await self.api.call("DELETE", f"{CORE}/pods/{name}", {"gracePeriodSeconds": 5})
        except RefusedError as error:
            if error.status != 404:
                raise

    def _pod(self, rank: int) -> Json:
        pod = copy.copy(self.template)
        name = f"{self.name}-{self.attempt}-{rank}"
        pod["metadata"] = {
            **pod["metadata"],
            "name": name,
            "labels": {**self.template["metadata"]["labels"], POD_LABEL: self.name, "rank": str(rank)},
        }
        pod["spec"] = {**pod["spec"], "hostname": f"{self.name}-{rank}", "subdomain": self.name}
        return pod

    def _service(self) -> Json:
        return {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": self.name},
            "spec": {
                "clusterIP": "None",
                "publishNotReadyAddresses": True,
                "selector": {POD_LABEL: self.name},
                "ports": [{"name": "rendezvous", "port": 29500}],
            },
        }


class Floor:
    """All gangs."""

    def __init__(self, api: Connection, name: str, template: Json, status: Json | None) -> None:
        self.api = api
        self.name = name
        self.template = template
        self.status = status
        self.gangs: dict[str, Gang] = {}
        self.restarting: set[str] = set()

    async def follow_requests(self, tasks: asyncio.TaskGroup) -> None:
        """Start and end gangs as their ConfigMaps come and go."""
        async for _, event in self.api.watch(
            JOBS if self.status else f"{CORE}/configmaps", f"{ASKED_LABEL}={self.name}"
        ):
            asked = event["object"]
            name = asked["metadata"]["name"]
            if event["type"] == "ADDED":
                nodes = int((asked["spec"] if self.status else asked["data"])["nodes"])
                answer = self._answer(asked) if self.status else None
                gang = Gang(self.api, self.template, name, nodes, answer=answer)
                self.gangs[name] = gang
                tasks.create_task(gang.start())
            elif event["type"] == "DELETED":
                tasks.create_task(self.gangs.pop(name).end())

    def _answer(self, asked: Json) -> Json:
        known = {part: asked["metadata"][part] for part in ("name", "namespace", "uid", "resourceVersion")}
        return {**{part: asked[part] for part in ("apiVersion", "kind")}, "metadata": known, "status": self.status}

    async def follow_pods(self, tasks: asyncio.TaskGroup) -> None:
        """Know which pods there are, and restart the gang of one that has failed."""
        async for _, event in self.api.watch(f"{CORE}/pods", f"{ASKED_LABEL}={self.name}"):
            pod = event["object"]
            name, gang = pod["metadata"]["name"], self.gangs.get(pod["metadata"]["labels"][POD_LABEL])
            if gang is None:
                continue
            if event["type"] == "DELETED":
                gang.pods.discard(name)
                if not gang.pods:
                    gang.empty.set()
                continue
            gang.pods.add(name)
            failed = pod["status"].get("phase") == "Failed" and name.startswith(f"{gang.name}-{gang.attempt}-")
            if failed and gang.name not in self.restarting:
                self.restarting.add(gang.name)
                tasks.create_task(self._restart(gang))

    async def _restart(self, gang: Gang) -> None:
        await gang.restart()
        self.restarting.discard(gang.name)


async def main(kubeconfig: Path, name: str, template: Json, status: Json | None = None) -> None:
    """Work until SIGTERM."""
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asyncio.current_task().cancel)  # type: ignore[union-attr]
    async with Connection(kubeconfig, parallel=PARALLEL) as api, asyncio.TaskGroup() as tasks:
        floor = Floor(api, name, template, status)
        tasks.create_task(floor.follow_requests(tasks))
        tasks.create_task(floor.follow_pods(tasks))
        print("ready", flush=True)


if __name__ == "__main__":
    try:
        files = [json.loads(Path(file).read_text()) for file in sys.argv[3:5]]
        asyncio.run(main(Path(sys.argv[1]), sys.argv[2], *files))
    except asyncio.CancelledError:
        sys.exit(0)
