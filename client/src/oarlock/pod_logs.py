"""A job's pods, and how the lines that a kubelet keeps of them are asked for and read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from oarlock.checked_name import checked_name
from oarlock.cluster import Cluster
from oarlock.logs import LogLine, Wanted
from oarlock_api.contract.names import Label
from oarlock_api.pod_patch import TRAINER_CONTAINER

Json = Mapping[str, Any]
_STAMP = re.compile(r"([0-9-]{10}T[0-9:]{8})(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})")


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod of the job."""

    name: str
    namespace: str
    uid: str
    job_uid: str
    attempt: int
    rank: int
    incarnation: int
    started: bool
    ended: bool
    waits: str

    @property
    def log_path(self) -> str:
        """Where the API server has its log."""
        return (
            f"/api/v1/namespaces/{checked_name(self.namespace, 'namespace')}/pods/{checked_name(self.name, 'pod')}/log"
        )


def pods_of(cluster: Cluster, *, namespace: str, job: str, uid: str, wanted: Wanted) -> list[Pod]:
    """The job's pods of the wanted ranks, by attempt and rank; none of another job that had its name before.

    Raises OarlockError.
    """
    selector = f"{Label.JOB}={job},{Label.JOB_UID}={uid}"
    if wanted.ranks is not None:
        selector += f",{Label.RANK} in ({','.join(map(str, sorted(wanted.ranks)))})"
    found = cluster.items(f"/api/v1/namespaces/{checked_name(namespace, 'namespace')}/pods", labelSelector=selector)
    pods = [_pod(raw, namespace=namespace, job_uid=uid) for raw in found]
    wanted_pods = [pod for pod in pods if wanted.incarnation in (None, pod.incarnation)]
    return sorted(wanted_pods, key=lambda pod: (pod.attempt, pod.rank, pod.incarnation))


def log_query(wanted: Wanted) -> dict[str, str]:
    """The query for a pod's log, with a stamp before each line."""
    query = {"timestamps": "true", "container": TRAINER_CONTAINER}
    if wanted.since is not None:
        query["sinceSeconds"] = str(max(1, int(wanted.since.total_seconds())))
    if wanted.tail is not None:
        query["tailLines"] = str(wanted.tail)
    return query


def log_line(pod: Pod, raw: bytes) -> LogLine:
    """A line of a pod's log. What the kubelet says itself has no stamp: it is text as a whole, and its time is empty."""
    line = raw.decode(errors="replace").rstrip("\r")
    stamp, _, text = line.partition(" ")
    time = _utc(stamp)
    of_pod = LogLine(text=text if time else line, time=time, attempt=pod.attempt, rank=pod.rank, pod=pod.name)
    return replace(of_pod, incarnation=pod.incarnation)


def _utc(stamp: str) -> str:
    """A kubelet's stamp in UTC, for nodes may have other zones; empty if it is none."""
    if not (found := _STAMP.fullmatch(stamp)):
        return ""
    try:
        second = datetime.fromisoformat(found[1] + found[3]).astimezone(UTC)
    except (ValueError, OverflowError):
        return ""
    return f"{second:%Y-%m-%dT%H:%M:%S}{found[2] or ''}Z"


def _pod(raw: Json, *, namespace: str, job_uid: str) -> Pod:
    metadata, status = raw["metadata"], raw.get("status") or {}
    labels = metadata.get("labels") or {}
    containers = status.get("containerStatuses") or []
    state = next((one.get("state") or {} for one in containers if one.get("name") == TRAINER_CONTAINER), {})
    waiting = state.get("waiting") or {}
    unplaced: Json = next((one for one in status.get("conditions") or [] if one.get("status") == "False"), {})
    waits = (
        waiting.get("message") or waiting.get("reason") or unplaced.get("message") or status.get("phase") or "Pending"
    )
    return Pod(
        name=metadata["name"],
        namespace=namespace,
        uid=metadata["uid"],
        job_uid=job_uid,
        attempt=_number(labels.get(Label.ATTEMPT)),
        rank=_number(labels.get(Label.RANK)),
        incarnation=_number(labels.get(Label.INCARNATION)) or 1,
        started="running" in state or "terminated" in state,
        ended="terminated" in state or status.get("phase") in {"Succeeded", "Failed"},
        waits=" ".join(str(waits).split()),
    )


def _number(label: object) -> int:
    return int(label) if isinstance(label, str) and label.isdecimal() else 0
