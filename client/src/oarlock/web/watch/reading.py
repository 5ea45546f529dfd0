"""What facts are gathered from, answered by lists that are watched: they cost no request, and are shared by who may see them.

Each list is watched once for its namespace, whoever looks at whichever of its jobs; pods are watched for each job, since
those of all may be many.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any
from urllib.parse import parse_qs, unquote

from oarlock.errors import NotFoundError, RefusedError
from oarlock.facts.cluster import Read, trimmed
from oarlock.facts.model import Object
from oarlock.parts import objects, part
from oarlock.web.ask import Ask
from oarlock.web.watch.feed import Key, Watched
from oarlock.web.watch.jobs import KnownJob, job_of
from oarlock_api.contract.names import PLURAL

NODES = "/api/v1/nodes"
_PATH = re.compile(
    r"(?P<list>(?:/apis/[^/]+/[^/]+|/api/v1)(?:/namespaces/(?P<namespace>[^/]+))?/(?P<kind>[a-z]+))(?:/(?P<name>[^/]+))?"
)


def reader(ask: Ask) -> Read:
    """The Read of facts.from_cluster. It raises as Ask.watched does, and NotFoundError where a named object is not there."""
    lists = _Lists(ask)

    def read(path: str) -> Object:
        where, _, said = path.partition("?")
        found = _PATH.fullmatch(unquote(where))
        if found is None:
            raise NotFoundError(f"{path} is no path of a list or an object")
        namespace, name, kind = found["namespace"] or "", found["name"], found["kind"]
        if name and kind == PLURAL:
            job: KnownJob = _one(lists, job_of(namespace, name), namespace, name)
            return job.object
        query = {key: values[-1] for key, values in parse_qs(said).items()}
        watched = nodes() if found["list"] == NODES else Watched(found["list"], labels=query.get("labelSelector", ""))
        if name:
            one: Object = _one(lists, watched, namespace, name)
            return one
        if selector := query.get("fieldSelector", ""):
            return {"items": _events(lists, found["list"], selector)}
        return {"items": list(lists.of(watched).values())}

    return read


def nodes() -> Watched:
    """All nodes, without what changes with each of their heartbeats."""
    return Watched(NODES, keep=_quiet)


class _Lists:
    """Each list once for a drawing, also where it is refused: what may not be read would be asked for again for each name."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._lock = threading.Lock()
        self._asked: dict[Watched, Future[Mapping[Key, Any]]] = {}

    def of(self, watched: Watched) -> Mapping[Key, Any]:
        """Its objects. Raises as Ask.watched does. Any thread may ask; they wait for the first of them."""
        with self._lock:
            answer, first = self._asked.get(watched), False
            if answer is None:
                answer, first = self._asked.setdefault(watched, Future()), True
        if first:
            try:
                answer.set_result(self._ask.watched(watched).objects)
            except BaseException as error:
                answer.set_exception(error)  # whoever waits for it gets it, too
                raise
        return answer.result()


def _events(lists: _Lists, path: str, selector: str) -> list[Object]:
    """Those about one object: from the namespace's, or, where these are too many, by a watch of their own."""
    name = selector.removeprefix("involvedObject.name=")
    try:
        found = lists.of(Watched(path)).values()
    except RefusedError:
        found = lists.of(Watched(path, fields=selector)).values()
    return [one for one in found if part(one, "involvedObject").get("name") == name]


def _one(lists: _Lists, watched: Watched, namespace: str, name: str) -> Any:
    found = lists.of(watched).get((namespace, name))
    if found is None:
        raise NotFoundError(f"{name} is not there")
    return found


def _quiet(node: Mapping[str, Any]) -> Object:
    found = trimmed(node)
    metadata = {key: value for key, value in part(found, "metadata").items() if key != "resourceVersion"}
    told = [
        {key: value for key, value in one.items() if key != "lastHeartbeatTime"}
        for one in objects(part(found, "status"), "conditions")
    ]
    return {**found, "metadata": metadata, "status": {**part(found, "status"), "conditions": told}}
