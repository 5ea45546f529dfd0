"""The state that nodes have in memory, in one line: which step, how old, and whether it survives the loss of a node."""

from __future__ import annotations

from oarlock.clock import parsed
from oarlock.facts.model import Object
from oarlock.parts import part
from oarlock_api.contract.wire import integer, text

_MINUTE = 60
_COPIED = {
    True: ", and each node's part is on another node, too",
    False: ", and not every node's part is on another node: the loss of a node goes back to a checkpoint",
}


def in_memory(job: Object, *, now: str) -> str:
    """What is told of it; empty where none is kept. `now`: RFC 3339."""
    held = part(part(job, "status"), "memory")
    step = integer(held.get("step"))
    if step is None:
        return ""
    copied = held.get("copied")
    several = (integer(part(job, "spec").get("nodes")) or 1) > 1
    where = _COPIED[copied] if isinstance(copied, bool) else ", each node's part on that node alone" if several else ""
    return f"step {step:,} is in the nodes' memory{_age(text(held.get('saveTime'), 40), now)}{where}"


def _age(then: str, now: str) -> str:
    saved, here = parsed(then), parsed(now)
    if saved is None or here is None:
        return ""
    seconds = max(0, round((here - saved).total_seconds()))
    return f", {seconds} s old" if seconds < 2 * _MINUTE else f", {seconds // _MINUTE} min old"
