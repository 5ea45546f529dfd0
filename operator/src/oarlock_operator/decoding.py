"""From the API server's bytes straight to structures, of each object only what somebody reads."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Generic, TypeVar

import msgspec

from oarlock_operator.api_error import ApiError, refusal

T = TypeVar("T")


class Chunk(msgspec.Struct, frozen=True):
    """A list's own metadata."""

    resource_version: str = msgspec.field(default="", name="resourceVersion")
    next_chunk: str = msgspec.field(default="", name="continue")


class Page(msgspec.Struct, Generic[T], frozen=True):
    """One chunk of a list."""

    metadata: Chunk = Chunk()
    items: tuple[T, ...] = ()


class WatchEvent(msgspec.Struct, frozen=True):
    """One line of a watch."""

    what: str = msgspec.field(default="", name="type")
    object: msgspec.Raw = msgspec.Raw(b"{}")

    def read(self, kind: type[T]) -> T:
        """The object, of it only what `kind` names. Raises ApiError, also where the event is the server's own error."""
        if self.what == "ERROR":
            problem = decoded(self.object, _Problem, "an error")
            raise refusal(problem.code, bytes(self.object).decode(errors="replace"))
        return decoded(self.object, kind, "an event's object")


class _Problem(msgspec.Struct, frozen=True):
    code: int = 0


def decoded(data: bytes | msgspec.Raw, kind: Callable[..., T], what: str) -> T:
    """`data` as `kind`. Raises ApiError, naming `what`."""
    try:
        found: T = _decoder(kind).decode(data)
    except msgspec.MsgspecError as error:
        raise ApiError(0, "Malformed", f"{what} cannot be read: {error}") from error
    return found


@cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


def decoded_page(kind: type[T], data: bytes, what: str) -> Page[T]:
    """One chunk of a list of `kind`. Raises ApiError."""
    of_kind: Any = kind
    return decoded(data, Page[of_kind], what)
