"""The memory of GPUs on their nodes: an annotation with the times at which each has restarted a gang, for a day.

It outlives jobs and operators. One GPU's times are few and the annotation is bounded, so that a node that fails all day
stays small. What cannot be read counts as nothing: the annotation is a hint, and anybody with rights on nodes may edit it.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from oarlock_operator.decide.repeated_gpu_faults import WINDOW
from oarlock_operator.kube.api_error import NotFound
from oarlock_operator.kube.cluster import Cluster, Json
from oarlock_operator.model.cordon_marks import published_gpus
from oarlock_operator.model.observed_nodes import NodeStrike

STRIKES = "oarlock.dev/gpu-strikes"
LIMIT = 64


def read_strikes(node: Json) -> tuple[NodeStrike, ...]:
    """What a node's annotation says."""
    said = (node["metadata"].get("annotations") or {}).get(STRIKES)
    if not said:
        return ()
    try:
        entries: list[dict[str, Any]] = json.loads(said)
        found = [_strike(entry) for entry in entries[:LIMIT]]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return ()
    return tuple(strike for strike in found if strike.time.tzinfo is not None)


def _strike(entry: dict[str, Any]) -> NodeStrike:
    time, job, xid = datetime.fromisoformat(entry["time"]), str(entry.get("job") or ""), entry.get("xid")
    return NodeStrike(str(entry["gpu"])[:64], time, job[:64], xid if isinstance(xid, int) else None)


async def note_strike(cluster: Cluster, node: str, strike: NodeStrike) -> bool:
    """Add one, and drop what is older than a day; whether it was new. Not of a GPU that is not among those it publishes.

    Raises ApiError; a Conflict means that somebody wrote meanwhile.
    """
    path = f"/api/v1/nodes/{node}"
    try:
        there = await cluster.get(path)
    except NotFound:
        return False
    known = read_strikes(there)
    published = published_gpus(there["metadata"].get("annotations"))
    if strike in known or (published and strike.gpu_uuid not in published):
        return False
    kept = [one for one in known if strike.time - one.time < WINDOW]
    value = json.dumps(
        [
            {"gpu": one.gpu_uuid, "time": one.time.isoformat(), "job": one.job, "xid": one.xid}
            for one in [*kept, strike][-LIMIT:]
        ]
    )
    metadata = {"resourceVersion": there["metadata"]["resourceVersion"], "annotations": {STRIKES: value}}
    await cluster.merge(path, {"metadata": metadata})
    return True
