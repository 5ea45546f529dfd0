"""Where names and commands of a job's page lead: nodes to their rows, commands to the views and actions that do the same."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from urllib.parse import quote

from oarlock.names import is_name
from oarlock.report.links import Links, Xid
from oarlock.report.markup import Child, Html, element
from oarlock.rows import JobRow
from oarlock.web.drawn.actions import ACTIONS, button, job_address
from oarlock.web.drawn.glossary import word
from oarlock.web.drawn.logs import address_of


def node_address(name: str, namespace: str = "") -> str:
    """Where a node is told of; by the jobs of that namespace to whoever may not know all."""
    return f"/nodes{_of(namespace)}#node-{quote(name, safe='')}"


def _of(namespace: str) -> str:
    return f"?namespace={quote(namespace, safe='')}" if namespace else ""


class PageLinks(Links):
    """Of a job. With its `row`, what can be done is a link to the page that asks first.

    `free` are nodes that nothing keeps from jobs now: there is nothing to uncordon. `avoided` are those that jobs avoid and
    nobody has cordoned.
    """

    def __init__(
        self,
        nodes: Iterable[str] = (),
        *,
        namespace: str = "",
        job: str = "",
        row: JobRow | None = None,
        free: Iterable[str] = (),
        avoided: Iterable[str] = (),
        xids: Mapping[str, Xid] | None = None,
    ) -> None:
        super().__init__(nodes, xids=xids)
        self._namespace, self._job, self._row = namespace, job, row
        self._free, self._avoided = frozenset(free), frozenset(avoided)
        self._told: set[str] = set()

    def node(self, name: str) -> Child:
        """To its row among the nodes."""
        return element("a", name, href=node_address(name, self._namespace)) if is_name(name) else name

    def word(self, name: str, said: str) -> Child:
        """To what it means, where it stands first."""
        if name in self._told:
            return said
        self._told.add(name)
        return word(name, said)

    def log(self, attempt: int, *, pod: int | None = None, time: str = "") -> str | None:
        """Of that pod, until a minute after that time."""
        return address_of(self._namespace, self._job, attempt, pod=pod, time=time)

    def command(self, line: list[str], *, attempt: int | None = None) -> Html:
        """To what does the same here; what the page cannot do stays a command."""
        match line:
            case ["oarlock", "uncordon", node] if node in self._free:
                return element("span", f"uncordon {node} (done: it takes pods)")
            case ["oarlock", "uncordon", node] if self._row and is_name(node):
                word = f"Use {node} again" if node in self._avoided else f"Uncordon {node}"
                return button(word, f"/nodes/{quote(node)}/uncordon{_of(self._namespace)}")
            case ["oarlock", "nodes"]:
                return element("a", "The nodes' page", href=f"/nodes{_of(self._namespace)}")
            case ["oarlock", "logs", *_] if attempt:
                return element("a", "Its log", href=self.log(attempt))
            case ["oarlock", verb, *_] if self._row:
                fitting = [one for one in ACTIONS if one.path == verb and one.fits(self._row)]
                return button(fitting[0].word, f"{job_address(self._row)}/{verb}") if fitting else super().command(line)
        return super().command(line)
