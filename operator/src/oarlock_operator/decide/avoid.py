"""The avoid-list: nodes that this job's next pods keep off, by their own node affinity, without any right on nodes.

A node that looks unlucky (lost once, refused a pod once) is avoided as long as another one is free; a second time, or with
evidence against its hardware, it is avoided strictly. An entry ends after recovery.windowSeconds, when the node was booted
anew, or when a person gives it back: by uncordoning it, or where nobody cordoned it, by an annotation (cordon_marks.py).
"""

from __future__ import annotations

from datetime import datetime, timedelta

from oarlock_api.history import AvoidedNode
from oarlock_operator.decide.draft import Draft
from oarlock_operator.model.observation import Observation

LIMIT = 64


def avoid(o: Observation, draft: Draft, node: str, *, why: str, strict: bool, hardens: bool = True) -> bool:
    """Put a node on the list. The same `why` again changes nothing, so that a pass may be repeated: then False.

    `hardens`: the second time is strict. Not so for warnings, which a whole rack may show for days, for what may be the
    program's own, nor for the word of rank 0's agent alone.
    """
    if not node:
        return False
    known = {entry.name: entry for entry in draft.status.avoided_nodes}
    before = known.get(node)
    if before is not None and before.reason == why:
        return False
    seen = o.nodes.get(node)
    known[node] = AvoidedNode(
        name=node,
        reason=why,
        strict=strict or (before is not None and (hardens or before.strict)),
        since_time=o.now,
        until_time=o.now + timedelta(seconds=o.spec.recovery.window_seconds),
        boot_id=seen.boot_id or None if seen else None,
    )
    newest = sorted(known.values(), key=lambda entry: entry.until_time or o.now)[-LIMIT:]
    draft.set(avoided_nodes=tuple(sorted(newest, key=lambda entry: entry.name)))
    return True


def note_not_cordoned(draft: Draft, node: str, why: str) -> None:
    """Write down why a node that a report speaks against stays open to others: Events are gone after an hour."""
    entries = draft.status.avoided_nodes
    noted = (
        entry.model_copy(update={"not_cordoned": why[:1024]}) if entry.name == node else entry for entry in entries
    )
    draft.set(avoided_nodes=tuple(noted))


def is_in_force(entry: AvoidedNode, *, now: datetime) -> bool:
    """Whether the time of an entry is not over."""
    return entry.until_time is None or entry.until_time > now


def prune(o: Observation, draft: Draft) -> None:
    """Drop entries whose time is over, or whose node was booted anew, or given back by a person."""
    kept = tuple(
        entry
        for entry in draft.status.avoided_nodes
        if is_in_force(entry, now=o.now) and not _booted_anew(o, entry) and not _given_back(o, draft, entry)
    )
    if kept != draft.status.avoided_nodes:
        draft.set(avoided_nodes=kept)


def _given_back(o: Observation, draft: Draft, entry: AvoidedNode) -> bool:
    """Whether a person says that the node is mended, since this entry: uncordoned what was seen cordoned, or wrote so."""
    seen = o.nodes.get(entry.name)
    if entry.until_time is None or seen is None or not seen.ready or seen.maintenance is not None:
        return False
    # An earlier release has not written it down; and the window may have been edited since.
    put_down = entry.since_time or entry.until_time - timedelta(seconds=o.spec.recovery.window_seconds)
    # One that is still to come would end what nobody has seen yet.
    if seen.given_back is not None and put_down <= seen.given_back <= o.now:
        return True
    # Avoided once more, it may not have been cordoned once more: the brakes are many. And a cordon that failed, or that
    # is still to come, was never given back. When it was decided tells nothing: it may have been entered by a pass that
    # was cut off before the node was put down here.
    cordons = [known for known in draft.status.cordoned_nodes if known.name == entry.name]
    return any(known.done_time is not None and known.done_time >= put_down for known in cordons)


def _booted_anew(o: Observation, entry: AvoidedNode) -> bool:
    seen = o.nodes.get(entry.name)
    return bool(seen and entry.boot_id and seen.boot_id and seen.boot_id != entry.boot_id)
