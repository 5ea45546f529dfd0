"""The scheduler's sentence made plain: which nodes lack what, and what that comes to.

0/3 nodes are available: 1 Insufficient nvidia.com/gpu, 2 node(s) had untolerated taint(s) {spot: true}.
preemption: 0/3 nodes are available: ...
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from oarlock.explain import words
from oarlock.explain.causes import Cause
from oarlock.facts.model import Object

_SENTENCE = re.compile(
    r"(?P<free>\d+)/(?P<all>\d+) nodes are available: (?P<why>.*?)(?:\.(?:\s|$)|\s*preemption:|$)", re.DOTALL
)
_PART = re.compile(r"(?P<count>\d+) (?P<what>.+?)(?=, \d+ |$)", re.DOTALL)
_TAINT = re.compile(r"\{(?P<key>[^:}]+)(?:: (?P<value>[^}]*))?\}")
_CORDON = "node.kubernetes.io/unschedulable"
_CLAIM = re.compile(r'persistentvolumeclaim "(?P<name>[^"]+)" not found')


@dataclass(frozen=True, slots=True)
class Hindrance:
    """Why pods have no node: the cause that speaks for most nodes, a plain sentence, and a node where it is one."""

    cause: Cause
    message: str
    node: str = ""


def explain(said: str, nodes: Sequence[Object]) -> Hindrance:
    """Read what the scheduler says of a pod. `nodes` name the nodes that it counts, where they could be read."""
    if cause := words.of_scheduling(said):
        claim = _CLAIM.search(said)
        return Hindrance(cause, f"the claim {claim['name']} is not there" if claim else _first_sentence(said))
    found = _SENTENCE.search(said)
    parts = [(int(part["count"]), part["what"].strip()) for part in _PART.finditer(found["why"])] if found else []
    known = [(count, what, cause) for count, what in parts if (cause := words.of_nodes(what))]
    if not found or not known:
        return Hindrance(Cause.UNSCHEDULABLE, said[:1024])
    # A control plane's taint is how clusters are; what keeps the other nodes away is the trouble.
    own = [one for one in known if "control-plane" not in one[1]] or known
    cause = max(own, key=lambda one: (_weight(one[2]), one[0]))[2]
    named = {node for count, what, each in own if each is cause for node in _where(what, each, nodes, count=count)}
    told = "; ".join(_plain(count, what, each, nodes) for count, what, each in own)
    return Hindrance(
        cause, f"of {found['all']} nodes none takes a pod: {told}", node=named.pop() if len(named) == 1 else ""
    )


def _first_sentence(said: str) -> str:
    """Of `0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims. not found`, what the pod has."""
    _, found, why = said.partition(" nodes are available: ")
    return (why if found else said).partition(". ")[0][:1024]


def _weight(cause: Cause) -> int:
    """What is told where nodes lack different things: a claim before GPUs, these before what keeps some nodes off."""
    order = (
        Cause.NODES_UNSCHEDULABLE,
        Cause.AFFINITY,
        Cause.NOT_ENOUGH_RESOURCES,
        Cause.TAINTED,
        Cause.NOT_ENOUGH_GPUS,
    )
    return order.index(cause) if cause in order else len(order)


def _plain(count: int, what: str, cause: Cause, nodes: Sequence[Object]) -> str:
    where = sorted(_where(what, cause, nodes, count=count))
    names = f" ({', '.join(where[:8])}{', ...' if len(where) > 8 else ''})" if where else ""
    subject = f"{count} node{'' if count == 1 else 's'}{names}"
    lacks = "has" if count == 1 else "have"
    if what.startswith("Insufficient "):
        return f"{subject} {lacks} too little free {what.removeprefix('Insufficient ')}"
    if cause is Cause.TAINTED:
        told = [_taint(found["key"], found["value"]) for found in _TAINT.finditer(what)] or sorted(
            {
                _taint(taint["key"], taint.get("value"))
                for node in nodes
                if _name(node) in where
                for taint in _taints(node)
            }
        )
        return (
            f"{subject} {lacks} the taint {', '.join(told)}"
            if told
            else f"{subject} {lacks} a taint that is not tolerated"
        )
    if cause is Cause.NODES_UNSCHEDULABLE:
        return f"{subject} {'is' if count == 1 else 'are'} cordoned"
    if what.startswith("Too many pods"):
        return f"{subject} {lacks} as many pods as a node may have"
    return f"{subject} {what.removeprefix('node(s) ')}"


def _taint(key: str, value: str | None) -> str:
    return f"{key}={value.strip()}" if value and value.strip() else key


def _where(what: str, cause: Cause, nodes: Sequence[Object], *, count: int) -> set[str]:
    """Names of the nodes that such a part counts, as far as the nodes themselves show it."""
    if cause is Cause.NODES_UNSCHEDULABLE:
        return {_name(node) for node in nodes if (node.get("spec") or {}).get("unschedulable")}
    if cause is Cause.TAINTED:
        keys = {found["key"] for found in _TAINT.finditer(what)}
        tainted = {
            _name(node) for node in nodes if any(not keys or taint.get("key") in keys for taint in _taints(node))
        }
        # Newer schedulers do not say which taint: then it is told only where no other node could be meant.
        return tainted if keys or len(tainted) == count else set()
    return set()


def _taints(node: Object) -> list[Object]:
    """Taints that keep pods away, but for that of a cordon, which is told as such."""
    taints: list[Object] = (node.get("spec") or {}).get("taints") or []
    return [one for one in taints if one.get("effect") != "PreferNoSchedule" and one.get("key") != _CORDON]


def _name(node: Object) -> str:
    name: str = node["metadata"]["name"]
    return name
