"""The GPUs of all nodes as a grid of health: a square each, with a sign where something speaks against it."""

from __future__ import annotations

from collections.abc import Sequence

from oarlock.report.links import Links
from oarlock.report.markup import Html, cut, element, joined
from oarlock.report.parts import at, row, section, table
from oarlock.report.words import DASH, whole
from oarlock.web.drawn.health import Against, Health, Node

ROOMY = 16
"""Nodes; more of them are shown without their badges, and by the part of their names that differs."""
MANY = 200
"""Nodes; of more of them those that nothing speaks against are folded away."""
MOST_NODES = 1024
MOST_ROWS = 100
_STEP, _SIDE = 12, 10
"""Pixels from one GPU to the next, and of one."""
OF_NODES = (Health.CORDONED, Health.NOT_READY, Health.AVOIDED)
SIGNS = {
    Health.FAULTY: "M2 2l6 6M8 2l-6 6",
    Health.STRUCK: "M5 2v3.6M5 7.6v.8",
    Health.CORDONED: "M2 5h6",
    Health.NOT_READY: "M5 2a3 3 0 1 0 .01 0",
    Health.AVOIDED: "M2.5 7.5l5-5",
}
"""A cross, an exclamation mark, a bar, a ring, a stroke: shapes that need no colour to be told apart."""
MEANINGS = {
    Health.WELL: "nothing speaks against it",
    Health.STRUCK: "it has restarted this job",
    Health.FAULTY: "the last fault was on it",
    Health.CORDONED: "node cordoned",
    Health.AVOIDED: "node avoided",
    Health.NOT_READY: "node not ready",
}
WORDS = {Health.STRUCK: "strike", Health.CORDONED: "cordon", Health.AVOIDED: "avoided node"}
"""Of the glossary."""
_COLUMNS = ("Node", "GPU", "Since (UTC)", "Evidence")


def gpus(nodes: Sequence[Node], *, wanted: int = 0, links: Links | None = None) -> Html:
    """The section. `wanted` is how many nodes the job asks for: names of some may not be known."""
    links = links or Links()
    if not nodes:
        return section("GPUs", element("p", "No pod of this job has a node yet.", class_="dim"))
    here = [one for one in nodes if one.here][:MOST_NODES]
    gone = [one for one in nodes if not one.here]
    compact = len(here) > ROOMY
    short = _shortened([one.name for one in here]) if compact else {}
    unknown = wanted - len(here) if here and wanted > len(here) else 0
    told = [(node, one) for node in (*here, *gone) for one in node.against]
    drawn = [_node(one, short.get(one.name, one.name), links, compact=compact) for one in here]
    style = "nodes compact" if compact else "nodes"
    well: list[Html] = []
    if len(here) > MANY:
        well = [one for one, node in zip(drawn, here, strict=True) if not node.against]
        drawn = [one for one, node in zip(drawn, here, strict=True) if node.against]
    left = (_node(one, one.name, links, compact=False) for one in gone[:ROOMY])
    return section(
        "GPUs",
        element("p", _sentence(here, gone), class_="dim"),
        element("ul", *drawn, class_=style) if drawn else None,
        element(
            "details",
            element("summary", f"{len(well):,} nodes that nothing speaks against"),
            element("ul", *well, class_=style),
        )
        if well
        else None,
        element("p", _unnamed(unknown), class_="dim") if unknown else None,
        element("h3", "Not of the ", links.word("gang", "gang"), " any more") if gone else None,
        element("ul", *left, class_="nodes") if gone else None,
        element("p", f"and {len(gone) - ROOMY:,} more", class_="dim") if len(gone) > ROOMY else None,
        _legend({one.health for _, one in told}, links),
        _table(told, links),
    )


def _sentence(here: Sequence[Node], gone: Sequence[Node]) -> str:
    marked = sum(bool(one.against) for one in here)
    total = sum(one.gpus for one in here)
    first = f"{total:,} GPUs on {len(here):,} node{'s' if len(here) != 1 else ''}: "
    if not here:
        first = ""
    elif not marked:
        first += "nothing speaks against any of them."
    else:
        first += f"something speaks against {marked:,} of the nodes."
    left = (
        f" {len(gone):,} more {'are kept off, or were left' if len(gone) != 1 else 'is kept off, or was left'}."
        if gone
        else ""
    )
    return (first + left).strip()


def _shortened(names: Sequence[str]) -> dict[str, str]:
    """Each name without what all of them begin and end with, up to a separator: dgx-a-0017.cluster.local is 0017."""
    begin = _shared(names)
    end = len(names[0]) - _shared([name[::-1] for name in names]) if names else 0
    cut_off = names[0][end:] if names else ""
    return {name: name[begin:].removesuffix(cut_off) or name for name in names}


def _shared(names: Sequence[str]) -> int:
    """How many characters all of them begin with, the last a separator."""
    low, high = min(names, default=""), max(names, default="")
    same = next((place for place, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), len(low))
    return max(low.rfind("-", 0, same), low.rfind(".", 0, same)) + 1


def _node(node: Node, short: str, links: Links, *, compact: bool) -> Html:
    """A node that is well is a name and a line of dashes: there may be a thousand of them.

    Where there are many, the names of those that are well lead nowhere: nobody steps by keyboard through a thousand links.
    """
    name = element("span", short if compact else links.node(node.name), class_="name")
    pod = element("span", f"pod {whole(node.rank)}", class_="dim") if node.rank is not None and not compact else None
    if not node.against:
        wide = node.gpus * _STEP
        dashes = element("path", d=f"M0 5h{wide - 2}", class_="dashes")
        drawn = element("svg", dashes, width=wide, height=_SIDE, aria_hidden="true")
        return element("li", name, drawn, pod, title=node.name if compact else None)
    # The node's own state is a word, or a sign behind its GPUs' squares.
    own = next((one.health for one in node.against if one.health in OF_NODES), None)
    said = _said(node)
    drawn = element(
        "svg",
        element("title", said),
        *_squares(node),
        _sign(own, node.gpus * _STEP + 2) if own and compact else None,
        width=(node.gpus + bool((own and compact) or _unplaced(node))) * _STEP + 2,
        height=_SIDE,
        role="img",
    )
    badge = element("span", own.replace("-", " "), class_=f"badge {own}") if own and not compact else None
    if compact:
        return element("li", element("a", name, drawn, href="#against"))
    if not node.here:  # their table stands right below
        return element("li", name, drawn, badge)
    return element("li", name, element("a", drawn, pod, badge, href="#against"))


def _squares(node: Node) -> list[Html]:
    """The GPUs in order; a frame behind them for one of which the index is not known."""
    drawn = []
    for index in range(node.gpus):
        x = index * _STEP
        worst = max((one.health for one in node.of_gpu(index)), key=lambda one: one.weight, default=Health.WELL)
        drawn.append(element("path", d=f"M{x} 0h{_SIDE}v{_SIDE}h-{_SIDE}z", class_=f"gpu {worst}"))
        if worst is not Health.WELL:
            drawn.append(_sign(worst, x, on=True))
    if unplaced := _unplaced(node):
        x = node.gpus * _STEP + 2
        frame = element(
            "path", d=f"M{x}.5 .5h{_SIDE - 1}v{_SIDE - 1}h-{_SIDE - 1}z", class_=f"gpu open {unplaced.health}"
        )
        drawn += [frame, _sign(unplaced.health, x)]
    return drawn


def _unplaced(node: Node) -> Against | None:
    """What speaks against a GPU of which the index is not known."""
    return next((one for one in node.against if one.uuid and one.index is None), None)


def _sign(health: Health, x: int, *, on: bool = False) -> Html:
    """`on`: upon a square of that colour."""
    style = "sign on" if on else f"sign {health}"
    return element("path", d=SIGNS[health], transform=f"translate({x} 0)", class_=style)


def _said(node: Node) -> str:
    words = [f"GPU {one.index}: {one.words}" if one.index is not None else one.words for one in node.against[:4]]
    return cut(f"{node.name}: {'; '.join(words)}", 600)


def _legend(shown: set[Health], links: Links) -> Html:
    keys = []
    for health, meaning in MEANINGS.items():
        if health is not Health.WELL and health not in shown:
            continue
        square = element("path", d=f"M0 0h{_SIDE}v{_SIDE}h-{_SIDE}z", class_=f"gpu {health}")
        sign = _sign(health, 0, on=True) if health in SIGNS else None
        key = element("svg", square, sign, viewBox="0 0 10 10", class_="key", aria_hidden="true")
        keys.append(element("li", key, links.word(WORDS[health], meaning) if health in WORDS else meaning))
    return element("ul", *keys, class_="legend")


def _unnamed(nodes: int) -> str:
    return (
        "1 more node, whose name is not known." if nodes == 1 else f"{nodes:,} more nodes, whose names are not known."
    )


def _table(told: Sequence[tuple[Node, Against]], links: Links) -> Html | None:
    if not told:
        return None
    rows = (
        row(_COLUMNS, [links.node(node.name), _gpu(one), at(one.time), links.beside(cut(one.words, 600))])
        for node, one in sorted(told[: MOST_ROWS * 2], key=lambda each: -each[1].health.weight)[:MOST_ROWS]
    )
    more = (
        element("p", f"{len(told) - MOST_ROWS:,} more are left out.", class_="dim") if len(told) > MOST_ROWS else None
    )
    return joined(element("h3", "What speaks against them", id="against"), table(_COLUMNS, rows), more)


def _gpu(one: Against) -> str:
    named = f"{one.index}" if one.index is not None else ""
    return ", ".join(each for each in (named, one.uuid) if each) or DASH
