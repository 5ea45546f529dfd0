"""Nodes that are out of service for a job, or should be, and what a person does about each: nobody else does it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from oarlock.clock import parsed
from oarlock.explain.pods import Pod
from oarlock.facts.model import Facts, Object
from oarlock.parts import objects, part
from oarlock_api.contract.node_marks import GIVEN_BACK, ONLY_A_CLAIM
from oarlock_api.contract.wire import text

MOST = 4
"""Nodes that are named of a kind."""
_UNCORDON = re.compile(r"`oarlock uncordon [^`]+`")
_GPU = "nvidia.com/gpu"


def not_cordoned(facts: Facts) -> dict[str, str]:
    """Nodes with a broken GPU that take pods of others, and why nobody has cordoned them."""
    return {name: why for name, why in _open(facts).items() if not is_claim(why)}


def claimed(facts: Facts) -> dict[str, str]:
    """Nodes of which a program says that a GPU is broken, and why that is no more than a claim."""
    return {name: why for name, why in _open(facts).items() if is_claim(why)}


def is_claim(not_cordoned: str) -> bool:
    """Whether a node is not cordoned since any program may have said what speaks against it."""
    return ONLY_A_CLAIM in not_cordoned


def _open(facts: Facts) -> dict[str, str]:
    cordoned = _cordoned(facts)
    told = {
        name: text(entry.get("notCordoned"), 1024).replace("`", "'")
        for name, entry in _avoided(facts).items()
        if name not in cordoned
    }
    return {name: why for name, why in told.items() if why}


def what_to_do(facts: Facts, pods: Sequence[Pod], *, told: str) -> list[str]:
    """A sentence for each node, but for those that `told` says how to give back. `pods`: those of the current attempt."""
    found = (*_about_cordons(facts, pods), *_about_refusals(facts), *_about_claims(facts), *_about_places(facts, pods))
    known = set(_UNCORDON.findall(told))
    return [one for one in found if "kubectl cordon" in one or not known & set(_UNCORDON.findall(one))]


def _about_cordons(facts: Facts, pods: Sequence[Pod]) -> Iterator[str]:
    told = objects(_status(facts), "cordonedNodes")
    cordoned, ours = _cordoned(facts), {text(one.get("name"), 253) for one in told if one.get("doneTime")}
    for name in sorted(cordoned & ours)[:MOST]:
        yield f"{name} is still cordoned: repair it, then `oarlock uncordon {name}`."
    if any(pod.unplaced for pod in pods):
        for name in sorted(cordoned - ours & _with_gpus(facts))[:MOST]:
            yield f"{name} is cordoned: once it is well, `oarlock uncordon {name}`."


def _about_refusals(facts: Facts) -> Iterator[str]:
    for name, why in sorted(not_cordoned(facts).items())[:MOST]:
        yield (
            f"{name} is broken and not cordoned, so that other jobs may be placed there: {why}. Look at it, and "
            f"`kubectl cordon {name}`; once it is well, `oarlock uncordon {name}`."
        )


def _about_claims(facts: Facts) -> Iterator[str]:
    for name, why in sorted(claimed(facts).items())[:MOST]:
        yield f"A program that the site does not vouch for says that a GPU of {name} is broken ({why}): look at the node."


def _about_places(facts: Facts, pods: Sequence[Pod]) -> Iterator[str]:
    """Of nodes that pods without a place keep off."""
    waiting = [pod for pod in pods if pod.unplaced]
    off = {name for pod in waiting for name in pod.keeps_off} - _cordoned(facts)
    made_off = {name for pod in waiting for name in pod.avoided}
    avoided, refused = _avoided(facts), not_cordoned(facts)
    for name in sorted(off & avoided.keys() - refused.keys())[:MOST]:
        why = text(avoided[name].get("reason"), 200).replace("`", "'")
        yield f"The job avoids {name}{f' ({why})' if why else ''}: once it is well, `oarlock uncordon {name}`."
    if back := sorted(off & made_off - avoided.keys() & _known(facts))[:MOST]:
        yield f"{', '.join(back)} may be used again: the pods are made anew for it once all of them find room."


def _status(facts: Facts) -> Object:
    return part(facts.job or {}, "status")


def _avoided(facts: Facts) -> dict[str, Object]:
    """The strict entries that a person has not given back since, and whose time is not over."""
    nodes = {text(node["metadata"].get("name"), 253): node for node in facts.nodes}
    now = parsed(facts.time)
    found = {}
    for entry in objects(_status(facts), "avoidedNodes"):
        name = text(entry.get("name"), 253)
        annotations = part(part(nodes.get(name, {}), "metadata"), "annotations")
        since, given = parsed(text(entry.get("sinceTime"), 40)), parsed(text(annotations.get(GIVEN_BACK), 40))
        until = parsed(text(entry.get("untilTime"), 40))
        over = (since and given and given >= since) or (until and now and until <= now)
        if entry.get("strict", True) and not over:
            found[name] = entry
    return found


def _cordoned(facts: Facts) -> set[str]:
    return {
        text(node["metadata"].get("name"), 253)
        for node in facts.nodes
        if (node.get("spec") or {}).get("unschedulable") is True
    }


def _known(facts: Facts) -> set[str]:
    return {text(node["metadata"].get("name"), 253) for node in facts.nodes}


def _with_gpus(facts: Facts) -> set[str]:
    """Nodes that have what the job's pods ask for, or do not say what they have."""
    spec = (facts.job or {}).get("spec") or {}
    resource = (spec.get("pod") or {}).get("gpuResource") or _GPU
    return {
        text(node["metadata"].get("name"), 253)
        for node in facts.nodes
        if str(((node.get("status") or {}).get("capacity") or {resource: ""}).get(resource, "0")) != "0"
    }
