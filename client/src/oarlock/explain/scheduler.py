"""The scheduler's sentence made plain: which nodes lack what, and what that comes to.

0/3 nodes are available: 1 Insufficient nvidia.com/gpu, 2 node(s) had untolerated taint(s) {spot: true}.
preemption: 0/3 nodes are available: ...
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from oarlock.explain import words
from oarlock.explain.causes import Cause
from oarlock.facts.model import Object

_SENTENCE = re.compile(
    r"(?P<free>\d+)/(?P<all>\d+) nodes are available: (?P<why>.*?)(?:\.(?:\s|$)|\s*preemption:|$)", re.DOTALL
)
_PART = re.compile(r"(?P<count>\d+) (?P<what>.+?)(?=, \d+ |$)", re.DOTALL)
_TAINT = re.compile(r"\{(?P<key>[^:}]+)(?:: (?P<value>[^}]*))?\}")
_INSUFFICIENT = "Insufficient "
_TAINTS = (Cause.TAINTED, Cause.NODES_NOT_READY)
_CORDON = "node.kubernetes.io/unschedulable"
_CLAIM = re.compile(r'persistentvolumeclaim "(?P<name>[^"]+)" not found')

Part = tuple[int, str]
"""Of the sentence: how many nodes, and what they lack."""
Known = tuple[int, str, Cause]


@dataclass(frozen=True, slots=True)
class Hindrance:
    """Why pods have no node: the cause that speaks for most nodes, a plain sentence, and what each of the nodes lacks.

    `nodes` are those that the cause is about, as far as the nodes themselves show it; `taint` is the key of the one taint.
    """

    cause: Cause
    message: str
    details: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    taint: str = ""

    @property
    def node(self) -> str:
        """The one node; empty where it is none, or several."""
        return self.nodes[0] if len(self.nodes) == 1 else ""


def explain(said: str, nodes: Sequence[Object]) -> Hindrance:
    """Read what the scheduler says of a pod. `nodes` name the nodes that it counts, where they could be read."""
    if cause := words.of_scheduling(said):
        claim = _CLAIM.search(said)
        return Hindrance(cause, f"the claim {claim['name']} is not there" if claim else _first_sentence(said))
    found = _SENTENCE.search(said)
    parts = [(int(part["count"]), part["what"].strip()) for part in _PART.finditer(found["why"])] if found else []
    parts = [exact for count, what in parts for exact in _with_its_taints(count, what, nodes)]
    known = [(count, what, cause) for count, what in parts if (cause := words.of_nodes(what))]
    if not found or not known:
        return Hindrance(Cause.UNSCHEDULABLE, said[:1024])
    if len(nodes) >= int(found["all"]):
        known = _of_nodes_that_have_it(known, nodes)
    own = [one for one in known if _is_own(one[1])] or known
    cause = max(own, key=lambda one: (_weight(one[2]), one[0]))[2]
    named = {node for _, what, each in own if each is cause for node in _where(what, each, nodes)}
    keys = {taint["key"] for _, what, each in own if each is cause for taint in _TAINT.finditer(what)}
    return Hindrance(
        cause,
        f"of {found['all']} nodes none takes a pod",
        details=tuple(_plain(count, what, each, nodes) for count, what, each in own),
        nodes=tuple(sorted(named)),
        taint=keys.pop() if len(keys) == 1 else "",
    )


def _with_its_taints(count: int, what: str, nodes: Sequence[Object]) -> Iterator[Part]:
    """A part of newer schedulers, which do not say which taint, as older ones said it; where no other node can be meant."""
    # A cordoned node is counted as such, whatever its taints are.
    tainted = [taints for node in nodes if not _is_cordoned(node) and (taints := _taints(node))]
    if "untolerated taint" not in what or _TAINT.search(what) or len(tainted) != count:
        yield count, what
        return
    told = Counter(" ".join(f"{{{one['key']}: {one.get('value') or ''}}}" for one in taints) for taints in tainted)
    yield from ((number, f"node(s) had untolerated taint(s) {taints}") for taints, number in told.items())


def _of_nodes_that_have_it(parts: Sequence[Known], nodes: Sequence[Object]) -> list[Known]:
    """The parts without nodes that never had what they lack: any node without GPUs has too few. `nodes` are all there are."""
    told = {name for _, what, cause in parts for name in _where(what, cause, nodes)}
    # Nobody knows which nodes such a part counts; as many of those that lack something may be among them.
    unclear = sum(
        count for count, what, cause in parts if not what.startswith(_INSUFFICIENT) and not _where(what, cause, nodes)
    )
    found = []
    for count, what, cause in parts:
        left = count
        if what.startswith(_INSUFFICIENT):
            resource = what.removeprefix(_INSUFFICIENT)
            without = sum(_lacks(node, resource) for node in nodes if _name(node) not in told)
            having = sum(not _lacks(node, resource) for node in nodes)
            left = min(count - max(0, without - unclear), having) if having else count
        if left > 0:
            found.append((left, what, cause))
    return found if any(_is_own(what) for _, what, _ in found) else list(parts)


def _is_own(what: str) -> bool:
    """A control plane's taint is how clusters are; what keeps the other nodes away is the trouble."""
    return "control-plane" not in what


def _lacks(node: Object, resource: str) -> bool:
    """Whether it has nothing of a resource, free or not; where it does not say what it has, it may."""
    known = (node.get("status") or {}).get("allocatable")
    return known is not None and str(known.get(resource, "0")) == "0"


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
        Cause.NODES_NOT_READY,
        Cause.NOT_ENOUGH_GPUS,
    )
    return order.index(cause) if cause in order else len(order)


def _plain(count: int, what: str, cause: Cause, nodes: Sequence[Object]) -> str:
    where = sorted(_where(what, cause, nodes))
    names = f" ({', '.join(where[:8])}{', ...' if len(where) > 8 else ''})" if where else ""
    subject = f"{count} node{'' if count == 1 else 's'}{names}"
    lacks = "has" if count == 1 else "have"
    if what.startswith(_INSUFFICIENT):
        return f"{subject} {lacks} too little free {what.removeprefix(_INSUFFICIENT)}"
    if cause in _TAINTS:
        told = ", ".join(_taint(found["key"], found["value"]) for found in _TAINT.finditer(what))
        return f"{subject} {lacks} the taint {told}" if told else f"{subject} {lacks} a taint that is not tolerated"
    if cause is Cause.NODES_UNSCHEDULABLE:
        return f"{subject} {'is' if count == 1 else 'are'} cordoned"
    if what.startswith("Too many pods"):
        return f"{subject} {lacks} as many pods as a node may have"
    return f"{subject} {what.removeprefix('node(s) ')}"


def _taint(key: str, value: str | None) -> str:
    return f"{key}={value.strip()}" if value and value.strip() else key


def _where(what: str, cause: Cause, nodes: Sequence[Object]) -> set[str]:
    """Names of the nodes that such a part counts, as far as the nodes themselves show it."""
    if cause is Cause.NODES_UNSCHEDULABLE:
        return {_name(node) for node in nodes if _is_cordoned(node)}
    if cause in _TAINTS:
        keys = {found["key"] for found in _TAINT.finditer(what)}
        return {_name(node) for node in nodes if any(taint.get("key") in keys for taint in _taints(node))}
    return set()


def _is_cordoned(node: Object) -> bool:
    return bool((node.get("spec") or {}).get("unschedulable"))


def _taints(node: Object) -> list[Object]:
    """Taints that keep pods away, but for that of a cordon, which is told as such."""
    taints: list[Object] = (node.get("spec") or {}).get("taints") or []
    return [one for one in taints if one.get("effect") != "PreferNoSchedule" and one.get("key") != _CORDON]


def _name(node: Object) -> str:
    name: str = node["metadata"]["name"]
    return name
