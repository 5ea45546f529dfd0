"""The nodes: `?namespace=team` asks for what the jobs of one namespace say. What may not be read is said, and is no error."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from oarlock.cluster import jobs_path
from oarlock.errors import ForbiddenError, NotFoundError, OarlockError, UnknownCallerError
from oarlock.names import is_name
from oarlock.parts import part
from oarlock.rows import EventRow, NodeRow, event_rows
from oarlock.web.ask import Ask, Page, View
from oarlock.web.drawn.actions import uncordon_link
from oarlock.web.drawn.cordons import Brakes, CordonedNode, Held
from oarlock.web.drawn.nodes import Known, nodes
from oarlock.web.watch.feed import Watched
from oarlock.web.watch.reading import NODES
from oarlock_api.contract.node_marks import BREAKER, LEDGER

ONLY_TOLD = ("CordonDryRun", "CordonRefused")
"""Reasons of Events: a dry run's, and a brake's."""
T = TypeVar("T")


def draw(ask: Ask) -> View:
    """The page."""
    namespace = _namespace(ask)
    read = Watched(NODES, keep=CordonedNode.of)
    found, no_nodes = _asked(lambda: list(ask.watched(read).objects.values()))
    rows = [one for one in found or [] if one is not None]
    held, no_held = _asked(lambda: _holds(ask, namespace))
    would, _ = _asked(lambda: _would(ask, namespace))
    brakes, no_brakes = _asked(lambda: _brakes(ask, None if no_nodes else sum(bool(one.row.gpus) for one in rows)))
    known = Known(
        nodes=rows,
        no_nodes=no_nodes,
        brakes=brakes,
        no_brakes=no_brakes,
        reset=f"kubectl delete configmap {BREAKER} -n {ask.settings.operator_namespace}",
        held=held or [],
        no_held=no_held,
        would=would or [],
    )
    offer = partial(uncordon_link, namespace=ask.query("namespace"))
    return nodes(known, offer=offer if ask.settings.actions else None)


def avoiding(ask: Ask, node: NodeRow) -> list[str] | None:
    """The jobs that keep off a node, as namespace/name; None where the caller may not read what jobs there are."""
    held, _ = _asked(lambda: _holds(ask, _namespace(ask)))
    return None if held is None else sorted(f"{one.namespace}/{one.job}" for one in held if one.avoids(node))


def _namespace(ask: Ask) -> str | None:
    namespace = ask.query("namespace") or ask.settings.namespace
    if namespace and not is_name(namespace):
        raise NotFoundError(f"{namespace[:80]!r} can be no namespace's name: look at the address")
    return namespace


def _holds(ask: Ask, namespace: str | None) -> list[Held]:
    return _everywhere(ask, namespace, lambda one: Watched(jobs_path(one), keep=Held.of))


def _asked(read: Callable[[], T]) -> tuple[T | None, str]:
    """What was read, or why it was not."""
    try:
        return read(), ""
    except UnknownCallerError:
        raise
    except ForbiddenError as error:
        return None, str(error).partition(": ")[0][:300]
    except OarlockError as error:
        return None, str(error)[:300]


def _everywhere(ask: Ask, namespace: str | None, watched: Callable[[str | None], Watched]) -> list[Any]:
    """Of all namespaces, or where that may not be read, of the one that is meant."""
    try:
        return list(ask.watched(watched(None)).objects.values())
    except ForbiddenError:
        if namespace is None:
            raise
        return list(ask.watched(watched(namespace)).objects.values())


def _would(ask: Ask, namespace: str | None) -> list[tuple[str, EventRow]]:
    found = []
    for reason in ONLY_TOLD:

        def of(where: str | None, reason: str = reason) -> Watched:
            inside = f"/namespaces/{where}" if where else ""
            return Watched(f"/api/v1{inside}/events", fields=f"reason={reason}")

        found += _everywhere(ask, namespace, of)
    return [row for event in found if event.get("reason") in ONLY_TOLD for row in _row(event)]


def _row(event: Mapping[str, Any]) -> list[tuple[str, EventRow]]:
    about = part(event, "involvedObject")
    return [(str(about.get("namespace") or ""), row) for row in event_rows([event], job=str(about.get("name") or ""))]


def _brakes(ask: Ask, count: int | None) -> Brakes:
    where = f"/api/v1/namespaces/{ask.settings.operator_namespace}/configmaps"

    def one(name: str) -> Any:
        found = ask.watched(Watched(where, fields=f"metadata.name={name}")).objects
        return found.get((ask.settings.operator_namespace, name))

    return Brakes.of(one(LEDGER), one(BREAKER), now=ask.now, nodes=count)


PAGES = (Page(path="/nodes", draw=draw, tab="Nodes"),)
