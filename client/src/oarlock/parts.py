"""What stands in an object that another release, or another program, wrote: what has another type counts as absent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Json = Mapping[str, Any]


def part(raw: Json, name: str) -> Json:
    """The object that stands there; empty where none does."""
    found = raw.get(name)
    return found if isinstance(found, dict) else {}


def objects(raw: Json, name: str) -> list[Json]:
    """The objects of the list that stands there."""
    found = raw.get(name)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def texts(raw: Json, name: str) -> list[str]:
    """The strings of the list that stands there."""
    found = raw.get(name)
    return [one for one in found if isinstance(one, str)] if isinstance(found, list) else []
