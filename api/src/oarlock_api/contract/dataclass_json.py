"""Frozen dataclasses as JSON: short when written, strict when read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from oarlock_api.contract.wire import WireError
from oarlock_api.naming import camel_case

T = TypeVar("T")


def to_fields(value: Any, *, name: Callable[[str], str] = camel_case) -> dict[str, Any]:
    """The fields of a dataclass that are not as its reader takes them anyway. `name` gives the wire's name of a field."""
    return {
        name(field.name): _plain(getattr(value, field.name))
        for field in fields(value)
        if getattr(value, field.name) != _default(field)
    }


def from_fields(kind: type[T], raw: object, *, where: str = "", name: Callable[[str], str] = camel_case) -> T:
    """A dataclass from what to_fields has written; `where` is what its place is called in errors.

    Raises WireError where a field is unknown or missing, or a value has a type that is not the field's.
    """
    if not isinstance(raw, Mapping):
        raise WireError(f"job.json has a value of a wrong type: {where}")
    known = {name(field.name): field for field in fields(kind)}  # type: ignore[arg-type]
    below = f"{where}." if where else ""
    if unknown := sorted(below + one for one in raw.keys() - known):
        raise WireError(f"job.json has fields that this image does not know: {', '.join(unknown)}: use a newer image")
    if missing := [below + one for one, field in known.items() if _default(field) is MISSING and one not in raw]:
        raise WireError(f"job.json is incomplete: {', '.join(missing)} is missing")
    hints = get_type_hints(kind)
    return kind(**{known[one].name: _typed(hints[known[one].name], value, below + one) for one, value in raw.items()})


def _default(field: Field[Any]) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return to_fields(value)
    return [_plain(one) for one in value] if isinstance(value, tuple) else value


def _typed(hint: Any, value: object, where: str) -> Any:
    outer, inner = get_origin(hint), get_args(hint)
    if outer in (Union, UnionType):  # X | None: None is never written
        return _typed(inner[0], value, where)
    if outer is tuple and isinstance(value, list):
        return tuple(_typed(inner[0], one, f"{where}[{place}]") for place, one in enumerate(value))
    if is_dataclass(hint):
        return from_fields(hint, value, where=where)  # type: ignore[arg-type]
    kind = outer or hint
    if issubclass(kind, Enum) and isinstance(value, str):
        try:
            return kind(value)
        except ValueError as error:
            raise WireError(f"job.json has a value that this image does not know: {where} is {value!r}") from error
    # True and False are integers to Python, and to nobody else.
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise WireError(f"job.json has a value of a wrong type: {where}")
    return value
