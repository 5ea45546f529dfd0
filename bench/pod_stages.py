"""The stages of a pod that is made anew while the others of its gang stand by: by the API server, and by the agents' logs."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from threading import Thread
from typing import Any

import httpx
from tests.e2e.jobs import Jobs

from oarlock_local.api import ApiServer, credentials
from oarlock_local.errors import ClusterError

STAGES = ("found", "intent", "made", "running", "listens", "round")
"""Until the status names the fault's time; until it says that a pod is made anew, or a new attempt is; until the API server
has the new pod; until it is Running; until its agent listens, before its imports; until the next round begins."""
_TRIES = 5
_JOBS = "/apis/oarlock.dev/v1alpha1/namespaces/default/trainingjobs"
_PODS = "/api/v1/namespaces/default/pods"


class PodStages:
    """`at` has the stages that were heard of, in seconds since the epoch, by this machine's clock.

    `old` are the UIDs of the pods that are there before the fault. One job is hit once.
    """

    def __init__(self, old: set[str]) -> None:
        self.at: dict[str, float] = {}
        self._old = old

    def note(self, thing: dict[str, Any]) -> None:
        """Take in what a watch says of the job, or of one of its pods."""
        status = thing.get("status") or {}
        if thing["kind"] == "TrainingJob":
            if status["recovery"].get("stage") in ("Replace", "Drain"):
                self.at.setdefault("intent", time.time())
                if said := (status.get("lastFault") or {}).get("time"):
                    self.at.setdefault("found", _seconds(said))
        elif thing["metadata"]["uid"] not in self._old:
            self.at.setdefault("made", time.time())
            if status.get("phase") == "Running":
                self.at.setdefault("running", time.time())

    def read_logs(self, jobs: Jobs, name: str) -> None:
        """Add what the agents have logged since a pod was made."""
        for pod in jobs.pods(name):
            with suppress(ClusterError):  # of a node that is off nothing can be read
                # A kubelet that is busy says nothing at times.
                logs = (jobs.cluster.kubectl("logs", pod) for _ in range(_TRIES))
                for line in next(filter(None, logs), "").splitlines():
                    if not line.startswith('{"time"'):
                        continue
                    said = json.loads(line)
                    words = said.get("message", "")
                    stage = "listens" if words == "listening" else words.partition(" ")[0]
                    if stage in ("listens", "round") and (at := _seconds(said["time"])) > self.at.get("made", at):
                        self.at.setdefault(stage, at)


@contextmanager
def watching(jobs: Jobs, api: ApiServer, name: str) -> Iterator[PodStages]:
    """Watch a job and its pods for the length of the block."""
    pods = api.get(f"{_PODS}?labelSelector=oarlock.dev/job={name}")["items"]
    stages = PodStages({pod["metadata"]["uid"] for pod in pods})
    server, context = credentials(jobs.cluster.kubeconfig)
    with httpx.Client(base_url=server, verify=context, timeout=None, trust_env=False) as http:  # noqa: S113 - watches
        for path in (f"{_JOBS}?fieldSelector=metadata.name={name}", f"{_PODS}?labelSelector=oarlock.dev/job={name}"):
            stream = http.send(http.build_request("GET", f"{path}&watch=1"), stream=True)
            Thread(target=_follow, args=(stream, stages), daemon=True).start()
        yield stages


def _follow(stream: httpx.Response, stages: PodStages) -> None:
    with suppress(httpx.HTTPError, httpx.StreamError):  # the block is over
        for line in stream.iter_lines():
            stages.note(json.loads(line)["object"])


def _seconds(time: str) -> float:
    return datetime.fromisoformat(time).timestamp()
