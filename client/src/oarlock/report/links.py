"""Where the names, words and commands of a drawing lead. In a report, which is a file, nowhere."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from oarlock.explain.advice import pieces
from oarlock.report.markup import Child, Html, element, joined
from oarlock.story import Attempt, Story

_TOKEN = re.compile(r"[A-Za-z0-9][\w.-]*")
_A_NAME = re.compile(r"[\d.-]")
"""A node that is called `worker` is no name in a sentence: the word stands there, too."""
FEW = 16
"""Nodes."""
_SENTENCE = 20
"""Characters from which on words about an XID are longer than its name and a link."""


@dataclass(frozen=True, slots=True)
class Xid:
    """A GPU's fault by its short name: the driver's number, and the row that tells of it in full."""

    number: int
    node: str
    row: str


class Links:
    """Leads nowhere but within a drawing. `nodes` are the names that are known to be nodes'.

    `xids`: sentences that the row of a fault has already, and what is said in their place elsewhere.
    """

    def __init__(self, nodes: Iterable[str] = (), *, xids: Mapping[str, Xid] | None = None) -> None:
        self._nodes = frozenset(name for name in nodes if _A_NAME.search(name))
        self._xids = xids or {}
        longest = sorted(self._xids, key=len, reverse=True)
        self._sentences = re.compile("|".join(map(re.escape, longest))) if longest else None

    def node(self, name: str) -> Child:
        """A node's name."""
        return name

    def command(self, line: list[str], *, attempt: int | None = None) -> Html:  # noqa: ARG002 - others lead to it
        """A command for a shell; `attempt` is the one that it is about."""
        return element("code", " ".join(line))

    def log(self, attempt: int, *, pod: int | None = None, time: str = "") -> str | None:  # noqa: ARG002 - the same
        """Where the log of an attempt is shown: of one pod and about a time, where they are known."""
        return None

    def word(self, name: str, said: str) -> Child:  # noqa: ARG002 - others lead to it
        """A word of the glossary, as it is said there."""
        return said

    def said(self, text: str, *, in_full: bool = False) -> Html:
        """A sentence with nodes' names in it: each leads to its node where it stands first.

        What a fault's row tells of an XID is its name there, which leads to the row; `in_full`: it stays a sentence.
        """
        return joined(*(self._with_nodes(text) if in_full else self._with_xids(text)))

    def beside(self, text: str) -> Html:
        """A sentence that stands beside the name of its node: only an XID leads somewhere."""
        return joined(*self._with_xids(text, beside=True))

    def advice(self, text: str, *, attempt: int | None = None, beside: str = "") -> Html:
        """What to do: a sentence with commands. `beside` is a node whose name stands beside it already."""
        links = Links() if beside else self
        told = [links.said(one) if isinstance(one, str) else self.command(one, attempt=attempt) for one in pieces(text)]
        return joined(*told)

    def _with_xids(self, text: str, *, beside: bool = False) -> Iterator[Child]:
        done = 0
        for found in self._sentences.finditer(text) if self._sentences else ():
            xid = self._xids[found[0]]
            around = text[: found.start()] + text[found.end() :]
            where = f" on {xid.node}" if xid.node and xid.node not in around and not beside else ""
            yield from self._others(text[done : found.start()], beside=beside)
            yield element("a", f"XID {xid.number}{where}", href=f"#{xid.row}")
            done = found.end()
        yield from self._others(text[done:], beside=beside)

    def _others(self, text: str, *, beside: bool) -> Iterator[Child]:
        return iter((text,)) if beside else self._with_nodes(text)

    def _with_nodes(self, text: str) -> Iterator[Child]:
        done, linked = 0, set[str]()
        for found in _TOKEN.finditer(text):
            name = found[0].rstrip(".-")
            if name in self._nodes - linked:
                linked.add(name)
                yield text[done : found.start()]
                yield self.node(name)
                done = found.start() + len(name)
        yield text[done:]


def xids_of(story: Story, shown: Iterable[Attempt]) -> dict[str, Xid]:
    """What a story says again and again of XIDs, where the fault of its attempt is `shown` in full.

    Words that fit several faults are left out: nobody could say which one is meant.
    """
    found: dict[str, set[Xid]] = {}
    for one in story.attempts:
        for fault in one.faults[:1]:
            if fault.xid is not None:
                told = [each for each in story.cordons if (each.attempt, each.node) == (one.number, fault.node)]
                # The operator's reason of a cordon: why, a colon, and the evidence.
                for words in (fault.message, *(each.reason.partition(": ")[2] for each in told)):
                    found.setdefault(words, set()).add(Xid(fault.xid, fault.node, f"fault-{one.number}"))
    rows = {f"fault-{one.number}" for one in shown}
    sure = {words: next(iter(xids)) for words, xids in found.items() if len(words) >= _SENTENCE and len(xids) == 1}
    return {words: xid for words, xid in sure.items() if xid.row in rows}


def nodes_of(story: Story) -> set[str]:
    """Names of the nodes that a story tells of; where they are many, of those alone that something is told about.

    Each becomes a link wherever it stands, and nobody steps by keyboard through a thousand.
    """
    told = {story.now.node, *story.avoided, *(one.node for one in story.cordons)}
    used: set[str] = set()
    for one in story.attempts:
        told |= {
            *one.removed_node_names,
            *(fault.node for fault in one.faults[:1]),
            *(each.fault.node for each in one.rounds),
        }
        used |= {*one.node_names, *(place.node for place in one.places)}
    return (told | used if len(used) <= FEW else told) - {""}
