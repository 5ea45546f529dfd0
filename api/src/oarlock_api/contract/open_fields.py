"""A section of the spec in two parts: what the job sets, and what it leaves open.

A program of an older release must refuse a field that it does not know where the job sets it, and may pass over one that
the job leaves at its default: a field that a release adds has a default that does what was done before.
"""

from __future__ import annotations

from typing import Any


def left_open(whole: Any, given: Any) -> Any:
    """What of `whole` is not in `given`, as a part of the same form; None where that is nothing.

    Lists of groups are taken apart, entry by entry; all other lists are values.
    """
    if isinstance(whole, dict) and isinstance(given, dict):
        below = {name: left_open(value, given[name]) if name in given else value for name, value in whole.items()}
        return {name: value for name, value in below.items() if value is not None} or None
    if isinstance(whole, list) and isinstance(given, list) and len(whole) == len(given):
        entries = [left_open(one, other) for one, other in zip(whole, given, strict=True)]
        return [entry or {} for entry in entries] if any(entries) else None
    return None


def joined(given: Any, left: Any) -> Any:
    """The whole of both parts; where both have a value, what is given holds."""
    if isinstance(given, dict) and isinstance(left, dict):
        return {name: joined(given[name], left.get(name)) if name in given else left[name] for name in left | given}
    if isinstance(given, list) and isinstance(left, list) and len(given) == len(left):
        return [joined(one, other) for one, other in zip(given, left, strict=True)]
    return given


def dropped(left: Any, given: Any, place: tuple[int | str, ...]) -> bool:
    """Take out of `left` the value at `place`, as pydantic names places; False where the job sets it."""
    *parents, name = place
    for part in parents:
        left = _below(left, part)
        given = _below(given, part)
    if not isinstance(left, dict) or name not in left or (isinstance(given, dict) and name in given):
        return False
    del left[name]
    return True


def _below(group: Any, part: int | str) -> Any:
    if isinstance(part, int):
        return group[part] if isinstance(group, list) and part < len(group) else None
    return group.get(part) if isinstance(group, dict) else None
