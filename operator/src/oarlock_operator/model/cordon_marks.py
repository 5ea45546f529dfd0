"""What Oarlock writes on a node that it cordons: for whom, when, and on what evidence. And what a node says of its GPUs.

A mark that a person has ended by uncordoning is kept under another name until the next one: so that nobody cordons for the
same fault again. A node that was never cordoned is given back by an annotation. Anybody with rights on nodes may edit all of
them; what cannot be read counts as nothing. What the brakes count stands in a ledger of its own (nodes/cordon_ledger.py).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from oarlock_api.contract.node_marks import CORDONED, ENDED, GIVEN_BACK
from oarlock_operator.model.observed_nodes import CordonMark
from oarlock_operator.model.plan import CordonNode

Json = dict[str, Any]

GPUS = "oarlock.dev/gpus"
"""Annotation that a site may write: UUIDs or serial numbers of the node's GPUs, with commas between."""
MOST_GPUS = 64
_BETWEEN = re.compile(r"[,\s]+")


def write_mark(job: str, action: CordonNode) -> str:
    """The annotation's value. The reason holds facts alone: everybody who may read nodes reads it."""
    return json.dumps(
        {
            "job": job,
            "attempt": action.attempt,
            "reason": action.reason[:1024],
            **({"gpu": action.gpu.to_manifest()} if action.gpu else {}),
            "time": action.time.isoformat(),
            "at": action.at.isoformat(),
            "giveBack": f"kubectl uncordon {action.node}",
        }
    )


def standing_mark(node: str, annotations: Mapping[str, str] | None) -> CordonMark | None:
    """The mark of a cordon, None where there is none, or where it cannot be read."""
    return _mark(node, (annotations or {}).get(CORDONED))


def last_mark(node: str, annotations: Mapping[str, str] | None) -> CordonMark | None:
    """The last mark of this node, also of a cordon that a person has ended."""
    return standing_mark(node, annotations) or _mark(node, (annotations or {}).get(ENDED))


def published_gpus(annotations: Mapping[str, str] | None) -> frozenset[str]:
    """The GPUs that the node publishes; none where it does not."""
    said = (annotations or {}).get(GPUS) or ""
    return frozenset([name for name in _BETWEEN.split(said) if name][:MOST_GPUS])


def given_back(annotations: Mapping[str, str] | None) -> datetime | None:
    """Since when a person says that the node is mended; None where nobody does, or no time with a time zone is said."""
    try:
        time = datetime.fromisoformat((annotations or {}).get(GIVEN_BACK) or "")
    except ValueError:
        return None
    return time if time.tzinfo else None


def _mark(node: str, said: str | None) -> CordonMark | None:
    if said is None:
        return None
    try:
        mark: Json = json.loads(said)
        time = datetime.fromisoformat(mark["time"])
        # When it was written counts for the brakes, when it was decided tells which one it is.
        at = datetime.fromisoformat(mark.get("at") or mark["time"])
        return CordonMark(node, str(mark["job"]), time, at) if time.tzinfo and at.tzinfo else None
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
