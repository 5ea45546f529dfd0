"""A small API server in memory, as the transport of a Cluster: names, uids, resourceVersions and their conflicts."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

import msgspec

from oarlock_operator.kube.api_error import Conflict, NotFound
from oarlock_operator.kube.decoding import Page

Json = dict[str, Any]
T = TypeVar("T")


class MemoryApi:
    """Objects by path. `before` sees each request first and may wait, or raise what the server would answer."""

    def __init__(self) -> None:
        self.objects: dict[str, Json] = {}
        self.requests: list[tuple[str, str]] = []
        self.before: Callable[[str, str], Awaitable[None]] | None = None
        self._version = 0

    async def get(self, path: str, **_: str) -> Json:
        await self._asked("GET", path)
        return copy.deepcopy(self._there(path))

    async def pages_of(self, kind: type[T], path: str, **_: str) -> AsyncIterator[Page[T]]:
        """One page; a path with a slash behind it is not asked for."""
        await self._asked("LIST", path)
        found = [body for name, body in self.objects.items() if name.rpartition("/")[0] == path]
        yield Page(items=tuple(msgspec.convert(body, kind) for body in found))

    async def list(self, path: str, **_: str) -> list[Json]:
        await self._asked("LIST", path)
        return [copy.deepcopy(body) for name, body in self.objects.items() if name.rpartition("/")[0] == path]

    async def create(self, path: str, body: Json) -> Json:
        if "metadata" not in body:  # a question
            await self._asked("POST", path)
            return {}
        metadata = body["metadata"]
        name = f"{path}/{metadata.get('name') or metadata['generateName'] + str(len(self.objects))}"
        await self._asked("POST", name)
        if name in self.objects:
            raise Conflict(409, "AlreadyExists", f"{name} already exists")
        return self._store(name, {**body, "metadata": {**body["metadata"], "uid": f"uid-{self._version}"}})

    async def make(self, path: str, body: Json) -> None:
        await self.create(path, body)

    async def replace(self, path: str, body: Json) -> Json:
        await self._asked("PUT", path)
        if self._there(path)["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"]:
            raise Conflict(409, "Conflict", f"{path} has been modified")
        return self._store(path, body)

    async def merge(self, path: str, patch: Json) -> Json:
        await self._asked("PATCH", path)
        known = self._there(path)
        if patch.get("metadata", {}).get("uid", known["metadata"]["uid"]) != known["metadata"]["uid"]:
            raise Conflict(409, "Conflict", "the uid in the precondition is another")
        return self._store(path, _merged(known, patch))

    async def delete(self, path: str, *, uid: str, version: str = "", grace_seconds: int | None = None) -> None:
        """Like Cluster.delete: one that is gone, is another object, or has changed since `version` counts as done."""
        await self._asked("DELETE", f"{path}?grace={grace_seconds}")
        there = self.objects.get(path, {}).get("metadata", {})
        if there.get("uid") == uid and version in ("", there.get("resourceVersion", "")):
            del self.objects[path]

    def put(self, path: str, **parts: Any) -> Json:
        """What somebody else made."""
        return self._store(path, {"metadata": {"name": path.rpartition("/")[2], "uid": f"other-{path}"}, **parts})

    def names(self) -> list[str]:
        return sorted(path.rpartition("/")[2] for path in self.objects)

    def _there(self, path: str) -> Json:
        if path not in self.objects:
            raise NotFound(404, "NotFound", f"{path} not found")
        return self.objects[path]

    def _store(self, path: str, body: Json) -> Json:
        self._version += 1
        stored = copy.deepcopy(body)
        stored["metadata"]["resourceVersion"] = str(self._version)
        self.objects[path] = stored
        return copy.deepcopy(stored)

    async def _asked(self, verb: str, path: str) -> None:
        self.requests.append((verb, path))
        if self.before:
            await self.before(verb, path)


def _merged(known: Any, patch: Any) -> Any:
    """RFC 7386: objects are merged key by key, null takes a key away, everything else replaces."""
    if not isinstance(patch, dict):
        return patch
    result = dict(known) if isinstance(known, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merged(result.get(key), value)
    return result
