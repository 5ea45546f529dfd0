"""From the API server's bytes straight to structures, of each object only what somebody reads.

Nothing that a tenant can write breaks more than its own object: what is too deep for a parser is cut at a depth that no
job may have, a spec that is too large is not parsed at all, and of a list the objects that can be read are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from typing import Any, Generic, TypeVar

import msgspec

from oarlock_api.bounds import MOST_BYTES, MOST_LEVELS
from oarlock_operator.kube.api_error import ApiError, Malformed, refusal

Json = dict[str, Any]
T = TypeVar("T")

KEPT_LEVELS = 3 * MOST_LEVELS
"""What is cut here is still deeper than a job may be."""
WHOLE_BYTES = 2 * MOST_BYTES
"""Larger objects are parsed part by part: as dictionaries they may take twenty times their bytes."""
UNREAD = "specBytes"
"""In place of the fields of a spec that is too large to be parsed: how many bytes it has."""

_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)


class Chunk(msgspec.Struct, frozen=True):
    """A list's own metadata."""

    resource_version: str = msgspec.field(default="", name="resourceVersion")
    next_chunk: str = msgspec.field(default="", name="continue")


class Page(msgspec.Struct, Generic[T], frozen=True):
    """One chunk of a list."""

    metadata: Chunk = Chunk()
    items: tuple[T, ...] = ()


class _Page(msgspec.Struct, Generic[T], frozen=True):
    """As the server writes it: of nobody's metadata it makes a list of null."""

    metadata: Chunk = Chunk()
    items: tuple[T, ...] | None = ()


class WatchEvent(msgspec.Struct, frozen=True):
    """One line of a watch."""

    what: str = msgspec.field(default="", name="type")
    object: msgspec.Raw = msgspec.Raw(b"{}")

    def check(self) -> None:
        """Raise ApiError where the event is the server's own error."""
        if self.what == "ERROR":
            problem = decoded(self.object, _Problem, "an error")
            raise refusal(problem.code, bytes(self.object).decode(errors="replace"))

    def read(self, kind: type[T]) -> T:
        """The object, of it only what `kind` names. Raises ApiError, also where the event is the server's own error."""
        self.check()
        return decoded(self.object, kind, "an event's object")


class _Problem(msgspec.Struct, frozen=True):
    code: int = 0


class _SpecHead(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Of a spec that is too large, what says whose it is."""

    managed_by: str | msgspec.UnsetType = msgspec.UNSET


def decoded(data: bytes | msgspec.Raw, kind: Callable[..., T], what: str) -> T:
    """`data` as `kind`. Raises Malformed, naming `what`."""
    decoder = _decoder(kind)
    try:
        try:
            found: T = decoder.decode(data)
        except RecursionError:
            found = decoder.decode(shallow(bytes(data)))
    except msgspec.MsgspecError as error:
        raise Malformed(f"{what} cannot be read: {error}") from error
    return found


@cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


def decoded_page(
    kind: type[T], data: bytes, what: str, *, unreadable: Callable[[msgspec.Raw, ApiError], None]
) -> Page[T]:
    """One chunk of a list of `kind`, without those objects that go to `unreadable`. Raises Malformed."""
    of_kind: Any = kind
    try:
        whole: _Page[T] = decoded(data, _Page[of_kind], what)
        return Page(metadata=whole.metadata, items=whole.items or ())
    except Malformed:
        page = decoded(data, _Page[msgspec.Raw], what)
    items = []
    for raw in page.items or ():
        try:
            items.append(decoded(raw, kind, f"an object in {what}"))
        except Malformed as error:
            unreadable(raw, error)
    return Page(metadata=page.metadata, items=tuple(items))


def parsed(data: bytes, what: str) -> Json:
    """An object as a dictionary. Of a large one without managedFields, and without a spec that is too large.

    Raises Malformed.
    """
    try:
        if len(data) <= WHOLE_BYTES:
            found = _loads(data)
        else:
            found = {name: _part(name, raw) for name, raw in decoded(data, dict[str, msgspec.Raw], what).items()}
    except ValueError as error:
        raise Malformed(f"{what} is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise Malformed(f"{what} is no object")
    return found


def _part(name: str, raw: msgspec.Raw) -> Any:
    if name == "metadata":
        fields = decoded(raw, dict[str, msgspec.Raw], "metadata")
        return {field: _loads(bytes(value)) for field, value in fields.items() if field != "managedFields"}
    if name == "spec" and len(bytes(raw)) > MOST_BYTES:
        head = decoded(raw, _SpecHead, "a spec")
        return {**msgspec.to_builtins(head), UNREAD: len(bytes(raw))}
    return _loads(bytes(raw))


def _loads(data: bytes) -> Any:
    try:
        return json.loads(data)
    except RecursionError:
        return json.loads(shallow(data))


def shallow(data: bytes, *, levels: int = KEPT_LEVELS) -> bytes:
    """The same JSON with `null` for what lies deeper than `levels`. Without recursion; of no JSON it makes no JSON."""
    kept, level, start = bytearray(), 0, 0
    for token in _TOKEN.finditer(data):
        mark = data[token.start()]
        if mark in b"[{":
            level += 1
            if level == levels + 1:
                kept += data[start : token.start()] + b"null"
        elif mark in b"]}":
            if level == levels + 1:
                start = token.end()
            level -= 1
    return bytes(kept + data[start:]) if level == 0 else data[:0]
