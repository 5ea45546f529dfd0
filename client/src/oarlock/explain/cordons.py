"""Nodes that were taken out of service for a job, and whether they still are, as the nodes themselves say.

The status keeps a cordon also after a person has ended it, so that nobody cordons for the same fault again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from oarlock.clock import parsed
from oarlock.facts.model import Facts, Object
from oarlock.parts import objects, part
from oarlock.story import Cordon
from oarlock_api.contract.asked_by import ASKED_BY_ANNOTATION, parse_asked_by
from oarlock_api.contract.node_marks import GIVEN_BACK
from oarlock_api.contract.wire import integer, text

SAME_PATCH = timedelta(seconds=5)
"""Between the two times that one change of a node writes."""


def cordons(facts: Facts) -> tuple[Cordon, ...]:
    """All that the status tells."""
    status = part(facts.job or {}, "status")
    nodes = {text(one["metadata"].get("name"), 253): one for one in facts.nodes}
    return tuple(_cordon(one, nodes.get(text(one.get("name"), 253))) for one in objects(status, "cordonedNodes"))


def _cordon(told: Object, node: Object | None) -> Cordon:
    cordon = Cordon(
        node=text(told.get("name"), 253),
        reason=text(told.get("reason"), 1024),
        time=text(told.get("time"), 40),
        done_time=text(told.get("doneTime"), 40),
        attempt=integer(told.get("attempt")),
        gpu_uuid=text(part(told, "gpu").get("uuid"), 64),
    )
    if node is None or not cordon.done_time:
        return cordon
    if (node.get("spec") or {}).get("unschedulable") is True:
        return replace(cordon, stands=True)
    annotations = node["metadata"].get("annotations") or {}
    ended, done = parsed(text(annotations.get(GIVEN_BACK), 40)), parsed(cordon.done_time)
    if (
        not ended or not done or ended < done
    ):  # of an earlier cordon, or ended by `kubectl uncordon`, which leaves no time
        return replace(cordon, stands=False)
    time = text(annotations.get(GIVEN_BACK), 40)
    return replace(cordon, stands=False, given_back_time=time, given_back_by=who_gave_back(annotations))


def who_gave_back(annotations: Mapping[str, Any]) -> str:
    """Whom a node's annotations name beside the time when it was given back last; empty where they name nobody.

    The page writes both in one change; from a shell a node is given back without a name.
    """
    asked, given = parse_asked_by(annotations.get(ASKED_BY_ANNOTATION)), parsed(text(annotations.get(GIVEN_BACK), 40))
    then = parsed(asked.time) if asked else None
    return asked.by if asked and then and given and abs(given - then) < SAME_PATCH else ""
