"""Where the names, words and commands of a drawing lead. In a report, which is a file, nowhere."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from oarlock.explain.advice import pieces
from oarlock.report.markup import Child, Html, element, joined
from oarlock.story import Story

_TOKEN = re.compile(r"[A-Za-z0-9][\w.-]*")
_A_NAME = re.compile(r"[\d.-]")
"""A node that is called `worker` is no name in a sentence: the word stands there, too."""
FEW = 16
"""Nodes."""


class Links:
    """Leads nowhere. `nodes` are the names that are known to be nodes'."""

    def __init__(self, nodes: Iterable[str] = ()) -> None:
        self._nodes = frozenset(name for name in nodes if _A_NAME.search(name))

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

    def said(self, text: str) -> Html:
        """A sentence with nodes' names in it: each leads to its node where it stands first."""
        return joined(*self._with_nodes(text))

    def advice(self, text: str, *, attempt: int | None = None, beside: str = "") -> Html:
        """What to do: a sentence with commands. `beside` is a node whose name stands beside it already."""
        links = Links() if beside else self
        told = [links.said(one) if isinstance(one, str) else self.command(one, attempt=attempt) for one in pieces(text)]
        return joined(*told)

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
