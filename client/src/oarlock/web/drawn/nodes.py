"""The nodes: which are cordoned, for which job and on what evidence; the brakes; what jobs hold against nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from oarlock.explain.out_of_service import is_claim
from oarlock.report.markup import Child, Html, cut, element, joined
from oarlock.report.parts import at, filled, row, section, table
from oarlock.report.words import DASH, duration, whole
from oarlock.rows import EventRow, FaultRow, NodeRow
from oarlock.web.ask import Region, View
from oarlock.web.drawn.cordons import Brakes, CordonedNode, Held, keeps_off
from oarlock.web.drawn.glossary import word
from oarlock.web.drawn.words import time_ago

MOST = 500
_CORDONED = ("Node", "Since", "For", "GPU", "Evidence", "Action")
_NODE = ("Node", "GPUs", "State", "Last cordon", "For", "Used again since (UTC)")
_HELD = ("Node", "What", "Job", "GPU", "Since (UTC)", "Evidence", "Action")
_WOULD = ("When (UTC)", "Job", "What it says")
_WORDS = {
    "LastFault": "the last fault was on it",
    "Strike": "its GPU has restarted the job",
    "Cordoned": "cordoned for the job",
    "Avoided": "the job's pods keep off it",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What the caller may read; each `no_` says why something is not known, and is empty where it is.

    `reset` is the command that resets the breaker. `would` are Events of cordons that were only told of, or refused, with
    the namespace of each.
    """

    nodes: Sequence[CordonedNode] = ()
    no_nodes: str = ""
    brakes: Brakes | None = None
    no_brakes: str = ""
    reset: str = ""
    held: Sequence[Held] = ()
    no_held: str = ""
    would: Sequence[tuple[str, EventRow]] = ()


Offer = Callable[[NodeRow], Html | None]
"""What can be done with a node, as a link."""


def nodes(known: Known, *, offer: Offer | None = None) -> View:
    """The whole view."""
    parts = {
        "part-cordoned": (_cordoned(known, offer),),
        "part-brakes": (_brakes(known),),
        "part-would": (_would(known.would),),
        "part-held": (_held(known, offer),),
        "part-nodes": (_all(known),),
    }
    region = Region("nodes", {name: element("div", *inner, id=name) for name, inner in parts.items()})
    return View(title="Nodes", body=joined(element("h1", "Nodes"), region.html()), regions=(region,))


def _cordoned(known: Known, offer: Offer | None) -> Html:
    if known.no_nodes:
        words = (
            f"You may not read nodes ({known.no_nodes}). What follows is what the statuses of jobs say that you may read; "
            "a node that somebody cordoned for another reason is not in them."
        )
        return section("Cordoned", element("p", words))
    off = [one for one in known.nodes if one.row.cordoned]
    by_us = [one for one in off if one.row.by_oarlock]
    total = sum(bool(one.row.gpus) for one in known.nodes)
    words = f"{len(by_us):,} of {total:,} nodes with GPUs {'is' if len(by_us) == 1 else 'are'} cordoned by Oarlock"
    others = len(off) - len(by_us)
    words += f", {others:,} by somebody else." if others else "."
    head = word("cordon", "Cordoned")
    if not off:
        return section("Cordoned", element("p", words, class_="dim"), head=head)
    heads = {"Evidence": word("evidence", "Evidence")}
    rows = (
        row(_CORDONED, _cordon(one, offer), id=f"node-{one.row.name}")
        for one in [*by_us, *(one for one in off if one not in by_us)][:MOST]
    )
    return section("Cordoned", element("p", words, class_="dim"), table(_CORDONED, rows, heads), head=head)


def _cordon(one: CordonedNode, offer: Offer | None) -> list[Child]:
    known = one.row
    if not known.by_oarlock:
        return [known.name, DASH, "by somebody else", DASH, DASH, offer(known) if offer else DASH]
    return [
        known.name,
        time_ago(known.time),
        element("span", _job(known.job), f", attempt {one.attempt}" if one.attempt is not None else None),
        one.gpu or DASH,
        cut(known.reason or DASH, 600),
        offer(known) if offer else DASH,
    ]


def _job(said: str | None) -> Html | str:
    namespace, _, name = (said or "").partition("/")
    if not namespace or not name:
        return cut(said or DASH, 300)
    return element("a", said, href=f"/jobs/{quote(namespace, safe='')}/{quote(name, safe='')}")


def _brakes(known: Known) -> Html:
    heading = "Brakes"
    if known.brakes is None:
        return section(heading, element("p", f"Not known: {known.no_brakes}.", class_="dim"))
    brakes = known.brakes
    within = f" within {duration(brakes.window_seconds)}" if brakes.window_seconds else ""
    if brakes.allowed is None:
        words = f"{brakes.counted:,} {_cordons(brakes.counted)} count{within}. "
        words += "How many are allowed is not known: the operator writes it down with each cordon."
        bar = None
    else:
        words = f"{brakes.counted:,} of {brakes.allowed:,} {_cordons(brakes.allowed)} that are allowed{within}"
        words += f"; of each namespace at most {brakes.share:,}." if brakes.share is not None else "."
        done = min(brakes.counted, brakes.allowed)
        bar = element(
            "progress", words, value=str(done), max=str(max(brakes.allowed, 1)), aria_label="cordons that count"
        )
    spent = [f"{name}: {count:,}" for name, count in sorted((brakes.by_namespace or {}).items())]
    latched = None
    if brakes.breaker:
        latched = element(
            "p",
            element("strong", "The ", word("breaker"), " is latched: nothing is cordoned until somebody resets it. "),
            f"{brakes.breaker}. ",
            "To reset it: ",
            element("code", known.reset),
            class_="warn",
        )
    return section(
        heading,
        latched,
        element("p", words),
        element("p", bar, class_="progress") if bar else None,
        element("p", f"Of these, by namespace: {', '.join(spent[:20])}.", class_="dim") if spent else None,
        head=word("brakes", heading),
    )


def _cordons(count: int) -> str:
    return "cordon" if count == 1 else "cordons"


def _would(found: Sequence[tuple[str, EventRow]]) -> Html | None:
    """Events last an hour: an empty list says little, and is left out."""
    if not found:
        return None
    rows = (
        row(_WOULD, [at(one.time), _job(f"{namespace}/{one.about.partition('/')[2]}"), cut(one.message, 600)])
        for namespace, one in sorted(found, key=lambda each: each[1].time, reverse=True)[:MOST]
    )
    return section("Told of, and not done", table(_WOULD, rows))


def _held(known: Known, offer: Offer | None) -> Html:
    heading = "What jobs hold against nodes"
    if known.no_held:
        return section(heading, element("p", f"Not known: {known.no_held}.", class_="dim"))
    told = [(held, one) for held in known.held for one in held.rows]
    if not told:
        return section(heading, element("p", "Nothing, as far as you may read their statuses.", class_="dim"))
    told.sort(key=lambda each: (each[1].node or "", each[1].time or ""), reverse=False)
    nodes = {one.row.name: one.row for one in known.nodes}
    columns = _HELD if offer else _HELD[:-1]
    # Links of jobs lead to a node's row: here, where there is none of its own.
    first = {each[1].node: each for each in reversed(told[:MOST]) if each[1].node not in nodes}
    names, cells = filled(columns, [_hold(*each, nodes.get(each[1].node or ""), offer) for each in told[:MOST]])
    rows = (
        row(names, drawn, id=f"node-{each[1].node}" if first.get(each[1].node) is each else None)
        for each, drawn in zip(told[:MOST], cells, strict=True)
    )
    more = element("p", f"{len(told) - MOST:,} more are left out.", class_="dim") if len(told) > MOST else None
    told_of = (word("strike", "strikes"), ", cordons, and ", word("avoided node", "avoided nodes"))
    intro = element("p", "Last faults, ", *told_of, ", as the statuses of jobs have them.", class_="dim")
    return section(heading, intro, table(names, rows), more)


def _hold(held: Held, one: FaultRow, node: NodeRow | None, offer: Offer | None) -> list[Child]:
    what = _WORDS.get(one.kind, one.kind) + (f", {one.count} times" if one.count > 1 else "")
    if one.kind == "Cordoned" and node and not node.cordoned:
        what = "was cordoned for the job, and is uncordoned"
    cells: list[Child] = [
        one.node,
        what,
        _job(f"{held.namespace}/{held.job}"),
        one.gpu or DASH,
        at(one.time or ""),
        cut(one.message, 600) or DASH,
    ]
    if offer:
        # A cordoned one has its link above.
        cells.append(offer(node) if node and not node.cordoned and keeps_off(one, node) else DASH)
    return cells


def _all(known: Known) -> Html | None:
    """Nodes with GPUs that are not cordoned, those that need a look first; where there are many, folded away."""
    found = [one for one in known.nodes if not one.row.cordoned]
    if not found:
        return None
    broken = {one.row.name: why for one in found if (why := _not_cordoned(known, one.row))}
    found.sort(key=lambda one: (one.row.name not in broken, one.row.ready, one.row.name))
    rows = (row(_NODE, _node(one, broken.get(one.row.name, "")), id=f"node-{one.row.name}") for one in found[:MOST])
    more = element("p", f"{len(found) - MOST:,} more are left out.", class_="dim") if len(found) > MOST else None
    unready = sum(not one.row.ready for one in found)
    words = f"{len(found):,} nodes that take pods" + (f", {unready:,} of them not ready" if unready else "")
    sure = sum(not is_claim(why) for why in broken.values())
    words += f", {sure:,} of them broken and not cordoned" if sure else ""
    heads = {"Used again since (UTC)": word("used again", "Used again since (UTC)")}
    folded = element(
        "details", element("summary", words), table(_NODE, rows, heads), more, open=len(found) <= 16 or bool(broken)
    )
    return section("Other nodes with GPUs", folded)


def _not_cordoned(known: Known, node: NodeRow) -> str:
    """Why a node with a broken GPU still takes pods, as the jobs say that keep off it."""
    against = (one for held in known.held for one in held.rows if one.node == node.name and keeps_off(one, node))
    return next((one.not_cordoned for one in against if one.not_cordoned), "")


def _node(known: CordonedNode, not_cordoned: str) -> list[Child]:
    one = known.row
    state: Child = "ready" if one.ready else element("strong", "not ready")
    if is_claim(not_cordoned):
        says = ", a program that the site does not vouch for says that a GPU of it is broken"
        state = element("span", state, says, f" ({cut(not_cordoned, 300)}): look at it.")
    elif not_cordoned:
        why = f": {cut(not_cordoned, 300)}. Look at it, and "
        remedy = element("code", f"kubectl cordon {one.name}")
        state = element("span", state, ", ", element("strong", "broken and not cordoned"), why, remedy, ".")
    by = f" by {cut(known.by, 300)}" if known.by else ""
    back = element("span", at(one.given_back), by) if one.given_back else DASH
    last = at(one.time) if one.time else DASH
    return [one.name, whole(one.gpus), state, last, _job(one.job) if one.job else DASH, back]
