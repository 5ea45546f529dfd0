"""Who trains and who stands by, in a line: nodes that are lacking, and spares that wait for a place."""

from __future__ import annotations

from oarlock.clock import parsed
from oarlock.facts.model import Object
from oarlock.parts import objects, part
from oarlock_api.contract.wire import integer, text


def standing_by(job: Object) -> str:
    """What is told of them; empty where all nodes train, and the job asks for no spares."""
    spec, status = part(job, "spec"), part(job, "status")
    nodes, asked = integer(spec.get("nodes")), integer(spec.get("spares")) or 0
    idle = status.get("standby")
    if nodes is None or not (asked or spec.get("elastic")) or status.get("phase") != "Running":
        return ""
    # Of a gang without pods beyond its nodes, each that stands by is one that does not train.
    lacking = len(idle) - _beyond(status, nodes) if isinstance(idle, list) else 0
    said = [f"{nodes - lacking} of {nodes} nodes train"] if 0 < lacking < nodes else []
    if asked:
        ready = integer(part(status, "ranks").get("spares")) or 0
        said.append(f"{ready} of {asked} {'spare waits' if asked == 1 else 'spares wait'} for a place")
    return ", ".join(said)


def surging(job: Object, *, now: str) -> tuple[str, ...]:
    """Pods that were asked to go and train on until their next ones are ready. `now`: RFC 3339."""
    status = part(job, "status")
    here = parsed(now)
    if status.get("phase") != "Running" or here is None:
        return ()
    told = objects(part(status, "recovery"), "surging")
    held = [one for one in told if (until := parsed(text(one.get("holdUntilTime"), 40))) and until > here]
    ranks = (integer(one.get("rank")) for one in held)
    return tuple(
        f"pod {rank} was asked to go, and trains on until its next one is ready" for rank in ranks if rank is not None
    )


def _beyond(status: Object, nodes: int) -> int:
    """Pods that the current attempt was begun with beyond its nodes."""
    attempts = status.get("attempts")
    newest = attempts[-1] if isinstance(attempts, list) and attempts else {}
    pods = integer(newest.get("nodeCount")) if isinstance(newest, dict) else None
    return max(0, (pods or nodes) - nodes)
