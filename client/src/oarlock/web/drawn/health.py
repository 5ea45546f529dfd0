"""What speaks against the GPUs and nodes of a job, by its status, its faults and the nodes themselves. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from oarlock.clock import parsed
from oarlock.explain.attempts import last_trouble
from oarlock.explain.causes import Part, named
from oarlock.explain.settings import spec_of
from oarlock.facts import Facts
from oarlock.parts import objects, part, texts
from oarlock.story import Story
from oarlock_api.contract.node_marks import CORDONED, GIVEN_BACK
from oarlock_api.contract.wire import integer, text

MOST_GPUS = 16
"""Of a node."""


class Health(StrEnum):
    """The worst of what is known of a GPU or a node, from the best on."""

    WELL = "well"
    AVOIDED = "avoided"
    STRUCK = "struck"
    NOT_READY = "not-ready"
    CORDONED = "cordoned"
    FAULTY = "faulty"

    @property
    def weight(self) -> int:
        """Order of severity."""
        return list(Health).index(self)


@dataclass(frozen=True, slots=True)
class Against:
    """One thing that speaks against a node, or a GPU of it. `index` is None where it is not known which GPU it is."""

    health: Health
    words: str
    time: str = ""
    index: int | None = None
    uuid: str = ""
    times: int = 1


@dataclass(frozen=True, slots=True)
class Node:
    """A node with its GPUs. `here`: it is one of the newest attempt's; `rank` is that of its pod, where that is known."""

    name: str
    rank: int | None
    gpus: int
    here: bool = True
    against: tuple[Against, ...] = ()

    @property
    def health(self) -> Health:
        """The worst."""
        return max((one.health for one in self.against), key=lambda one: one.weight, default=Health.WELL)

    def of_gpu(self, index: int) -> tuple[Against, ...]:
        """What speaks against one GPU."""
        return tuple(one for one in self.against if one.index == index)


def nodes_of(facts: Facts, story: Story) -> list[Node]:
    """Those of the newest attempt by rank, then those that something speaks against."""
    newest = story.attempts[-1] if story.attempts else None
    ranks = {place.node: place.rank for place in newest.places} if newest else {}
    # The status has names in the order of the alphabet: which rank is where, only pods and the history tell.
    here = dict.fromkeys((*ranks, *(newest.node_names if newest else ())))
    found: dict[str, list[Against]] = {name: [] for name in here}
    indices = _indices(story)
    for name, against in _all(facts, story, indices):
        found.setdefault(name, []).append(against)
    gpus = min(integer(spec_of(facts).get("gpusPerNode")) or 8, MOST_GPUS)
    return [
        Node(
            name=name,
            rank=ranks.get(name),
            gpus=gpus,
            here=name in here,
            against=tuple(sorted(set(against), key=lambda one: (-one.health.weight, one.time))),
        )
        for name, against in found.items()
    ]


def _all(facts: Facts, story: Story, indices: Mapping[str, int]) -> Iterator[tuple[str, Against]]:
    status = part(facts.job or {}, "status")
    fault = part(status, "lastFault")
    mended = _mended(facts, story)
    name, time = text(fault.get("nodeName"), 253), text(fault.get("time"), 40)
    if _speaks_against_hardware(fault, story) and name and not mended(name, time):
        gpu = part(fault, "gpu")
        uuid, index = text(gpu.get("uuid"), 64), integer(gpu.get("index"))
        words = "; ".join(text(one, 300) for one in texts(fault, "evidence")[:2])
        words = words or text(fault.get("reason") or fault.get("class"), 64)
        yield name, Against(Health.FAULTY, words, time, index, uuid)
    places = {place.rank: place.node for one in story.attempts for place in one.places}
    for strike in objects(status, "strikes"):
        uuid, rank = text(strike.get("gpuUUID"), 64), integer(strike.get("rank"))
        name = text(strike.get("nodeName"), 253) or places.get(-1 if rank is None else rank, "")
        if name:
            times, xid = integer(strike.get("count")) or 1, integer(strike.get("xid"))
            words = f"it has restarted the job {'once' if times == 1 else f'{times} times'}"
            words += f", the last time with XID {xid}" if xid is not None else ""
            time = text(strike.get("lastTime"), 40)
            yield name, Against(Health.STRUCK, words, time, indices.get(uuid), uuid, times)
    for cordon in story.cordons:
        if cordon.node and cordon.stands is not False:
            done = "cordoned" if cordon.done_time else "to be cordoned"
            time = cordon.done_time or cordon.time
            yield cordon.node, Against(Health.CORDONED, f"{done}: {cordon.reason}", time)
    for avoided in objects(status, "avoidedNodes"):
        name, time = text(avoided.get("name"), 253), text(avoided.get("sinceTime"), 40)
        if name and not mended(name, time):
            words = f"the job's pods keep off it: {text(avoided.get('reason'), 300)}".rstrip(": ")
            yield name, Against(Health.AVOIDED, words, time)
    for node in facts.nodes:
        yield from _of_node(node)


def _mended(facts: Facts, story: Story) -> Callable[[str, str], bool]:
    """Whether a person gave the node back after this time: what a status told of it before speaks against it no more.

    Strikes do: the operator counts them on.
    """
    ended: dict[str, list[str]] = {}
    for node in facts.nodes:
        metadata = part(node, "metadata")
        ended.setdefault(text(metadata.get("name"), 253), []).append(
            text(part(metadata, "annotations").get(GIVEN_BACK), 40)
        )
    for cordon in story.cordons:
        if cordon.stands is False:
            ended.setdefault(cordon.node, []).append(cordon.done_time)

    def mended(name: str, time: str) -> bool:
        then = parsed(time)
        return any(then and (end := parsed(one)) and end >= then for one in ended.get(name, ()))

    return mended


def _of_node(node: Mapping[str, Any]) -> Iterator[tuple[str, Against]]:
    """What the node itself says now."""
    metadata = part(node, "metadata")
    name = text(metadata.get("name"), 253)
    ready = next((one for one in objects(part(node, "status"), "conditions") if one.get("type") == "Ready"), None)
    if ready and ready.get("status") != "True":
        words = f"not ready: {text(ready.get('message'), 300) or text(ready.get('reason'), 128)}"
        yield name, Against(Health.NOT_READY, words, text(ready.get("lastTransitionTime"), 40))
    if part(node, "spec").get("unschedulable") is True and CORDONED not in part(metadata, "annotations"):
        yield name, Against(Health.CORDONED, "cordoned, and not by Oarlock")


def _speaks_against_hardware(fault: Mapping[str, Any], story: Story) -> bool:
    if not fault:
        return False
    if part(fault, "gpu"):
        return True
    last = last_trouble(story.attempts)
    cause = named(last.cause) if last else None
    node = text(fault.get("nodeName"), 253)
    return bool(cause and last and cause.part is Part.ENDED_BY_HARDWARE and last.node == node)


def _indices(story: Story) -> dict[str, int]:
    """UUID -> index, as faults have named them."""
    faults = (fault for one in story.attempts for fault in one.faults)
    return {fault.gpu_uuid: fault.gpu for fault in faults if fault.gpu_uuid and fault.gpu is not None}
