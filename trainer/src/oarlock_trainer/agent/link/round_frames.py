"""Reports and orders of rounds as frames of the link. Pure; like protocol.py, which reads and writes all others.

An order's members may be a thousand: so each is told whether it is one of them, and which pods they are only where those are
not 0..nodes-1 in order, as runs of consecutive ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from oarlock_api.contract.rounds import MAX_MEMBERS
from oarlock_api.contract.struck_gpu import parse_struck_gpu
from oarlock_api.contract.wire import integer, text
from oarlock_trainer.agent.link.words import plain
from oarlock_trainer.agent.rounds.membership import MOST_RUNS, runs
from oarlock_trainer.agent.rounds.model import Fault, Order, Place, Report, Round, Wanted
from oarlock_trainer.checkpoint.memory.held import Held

_MOST_HELD = 4
"""Steps in a member's memory that it tells of: it keeps two."""
_MOST_PARTS = 8
"""Runs of places whose parts it has of one: two of them, or all."""
_MAX_STEP = 2**53
_WANTED = (Wanted.TRAIN, Wanted.STAND_BY, Wanted.LEAVE, Wanted.YIELD)
"""By their numbers in a frame, which are older than YIELD."""


@dataclass(frozen=True, slots=True)
class Ordered:
    """An order, as one member is told of it. `yours`: it is one of its members. `heard`: the newest report of it.

    In an order that was read from a frame nobody's agent is named, and members that are 0..nodes-1 in order are left out.
    """

    order: Order
    yours: bool
    heard: int

    def to(self, rank: int, agent: str, *, nodes: int) -> Order:
        """The order as this agent, in the pod of this rank, is to obey it. `nodes` are the job's."""
        if self.order.wanted not in (Wanted.TRAIN, Wanted.YIELD) or not (self.yours or self.order.members):
            return self.order
        ranks = tuple(place.rank for place in self.order.members) or range(nodes)
        members = tuple(Place(one, agent if self.yours and one == rank else "") for one in ranks)
        return replace(self.order, members=members)


def values_of(frame: Report | Ordered) -> dict[str, Any]:
    """What the frame says. Who reports is known by the connection."""
    return _of_report(frame) if isinstance(frame, Report) else _of_order(frame)


def _of_report(report: Report) -> dict[str, Any]:
    fault = report.fault
    values: dict[str, Any] = {
        "kind": "report",
        "sequence": report.sequence,
        "incarnation": report.incarnation,
        "round": [report.round.term, report.round.number],
        "running": report.running,
        "able": report.able,
        "finished": report.finished,
        "step": report.step,
        "held": [[step, size, runs(places)[:_MOST_PARTS]] for step, size, places in report.held[:_MOST_HELD]],
        "followsTheDead": report.follows_the_dead,
        "saved": report.saved,
        "leaving": report.leaving,
    }
    if fault:
        values |= {"code": fault.code, "why": plain(fault.why), "sure": fault.sure}
        values |= {"gpu": fault.gpu.to_fields()} if fault.gpu else {}
    return values


def report_of(raw: dict[str, Any]) -> Report | None:
    """The report in a frame, of rank -1 and no agent; None where it is none."""
    sequence, incarnation = integer(raw.get("sequence")), integer(raw.get("incarnation"))
    round_, step, code = _round(raw.get("round")), integer(raw.get("step")), integer(raw.get("code"))
    saved = integer(raw.get("saved", -1))
    if sequence is None or incarnation is None or round_ is None or step is None:
        return None
    fault = None
    if code is not None and 0 < code < 256:
        why = plain(text(raw.get("why"), 1024))
        fault = Fault(code, why, sure=raw.get("sure") is not False, gpu=parse_struck_gpu(raw.get("gpu")))
    return Report(
        rank=-1,
        agent="",
        incarnation=incarnation,
        sequence=sequence,
        round=round_,
        running=raw.get("running") is not False,
        able=raw.get("able") is True,
        finished=raw.get("finished") is True,
        fault=fault,
        step=min(step, _MAX_STEP),
        held=_held(raw.get("held")),
        follows_the_dead=raw.get("followsTheDead") is True,
        saved=-1 if saved is None else min(saved, _MAX_STEP),
        leaving=raw.get("leaving") is True,
    )


def _of_order(ordered: Ordered) -> dict[str, Any]:
    order = ordered.order
    values = {
        "kind": "order",
        "round": [order.round.term, order.round.number],
        "wanted": _WANTED.index(order.wanted),
        "yours": ordered.yours,
        "heard": ordered.heard,
        "step": order.step,
        "code": order.code,
        "why": plain(order.why),
        **({"holds": True} if order.holds else {}),
        **({"madeBy": order.made_by} if order.made_by else {}),
    }
    return values | ({"members": runs(place.rank for place in order.members)} if order.members else {})


def order_of(raw: dict[str, Any]) -> Ordered | None:
    """The order in a frame, or None."""
    round_, wanted, heard = _round(raw.get("round")), integer(raw.get("wanted")), integer(raw.get("heard"))
    code = integer(raw.get("code"))
    if round_ is None or wanted is None or not 0 <= wanted < len(_WANTED) or code is None or not 0 <= code < 256:
        return None
    members = _members(raw.get("members", []))
    if members is None:
        return None
    why = plain(text(raw.get("why"), 1024))
    step, holds, made_by = integer(raw.get("step")), raw.get("holds") is True, integer(raw.get("madeBy", 0))
    if made_by is None or not 0 <= made_by <= MAX_MEMBERS:
        return None
    order = Order(round_, _WANTED[wanted], members, step, code, why, holds, made_by)
    return Ordered(order, yours=raw.get("yours") is True, heard=heard or 0)


def _round(raw: object) -> Round | None:
    numbers = [integer(one) for one in raw] if isinstance(raw, list) and len(raw) == 2 else []
    term, number = numbers if len(numbers) == 2 else (None, None)
    return Round(term, number) if term is not None and number is not None and term >= 0 and number >= 0 else None


def _members(raw: object) -> tuple[Place, ...] | None:
    """Who has the places that a frame names as runs; None where those can be no members of a round."""
    ranks = _numbers(raw, MOST_RUNS)
    return None if ranks is None else tuple(Place(rank, "") for rank in ranks)


def _numbers(raw: object, most: int) -> list[int] | None:
    """What so many runs name at most, each once; None where it is no such list."""
    if not isinstance(raw, list) or len(raw) > most:
        return None
    found: list[int] = []
    for pair in raw:
        first, count = (integer(one) for one in pair) if isinstance(pair, list) and len(pair) == 2 else (None, None)
        if first is None or count is None or first < 0 or not 0 < count <= MAX_MEMBERS - len(found):
            return None
        found += range(first, first + count)
    return found if len(set(found)) == len(found) else None


def _held(raw: object) -> tuple[Held, ...]:
    found = []
    for told in raw[:_MOST_HELD] if isinstance(raw, list) else ():
        if isinstance(told, list) and len(told) == 3:
            step, size, places = integer(told[0]), integer(told[1]), _numbers(told[2], _MOST_PARTS)
            if step is not None and size is not None and 0 < size <= MAX_MEMBERS and places is not None:
                found.append(Held(step, size, tuple(places)))
    return tuple(found)
