"""A status that another release wrote: understood as far as this one can, and kept in all else.

What does not fit is set aside, field by field, and decisions are made as if it were not there: a list that is longer than
here is read to our length, a value that is no longer known is the safe one. What is written is the status as it was found,
with the changes of this pass in it, so that what was set aside survives. Only without the attempt's number, the budgets, the
stage or the end can nobody decide anything: then nothing is, and the job says so.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import cache
from typing import Any

from annotated_types import MaxLen
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from oarlock_api.history import RecoveryStage
from oarlock_api.naming import camel_case
from oarlock_api.rules import ListMap
from oarlock_api.scheduling import Gang
from oarlock_api.status import TrainingJobStatus

Json = dict[str, Any]
Place = tuple[int | str, ...]
ESSENTIAL = {"attempt", "restarts", "recovery", "completionTime"}
"""Whoever went on without these could end, double or repeat a gang that trains."""
MOST_ROUNDS = 16
"""What is set aside may leave its group without a field that it must have, and so on outwards."""
_STAGES = frozenset(stage.value for stage in RecoveryStage)
_GANGS = frozenset(gang.value for gang in Gang) - {Gang.AUTO.value}


class UnreadableStatusError(ValueError):
    """A status of which not even the essential can be read. The message says where."""


def read_status(raw: object) -> TrainingJobStatus:
    """A status as this release understands it. Raises UnreadableStatusError."""
    known: object = {} if raw is None else raw
    for _ in range(MOST_ROUNDS):
        try:
            return _with_known_values(TrainingJobStatus.model_validate(known))
        except ValidationError as error:
            mistakes = error.errors(include_url=False, include_context=True, include_input=False)
        for mistake in mistakes:
            if not mistake["loc"] or mistake["loc"][0] in ESSENTIAL:
                raise UnreadableStatusError(f"{'.'.join(map(str, ('status', *mistake['loc'])))}: {mistake['msg']}")
        known = copy.deepcopy(known)
        gone: list[Place] = []
        # From the end, so that the places of those before stay what they are.
        for mistake in sorted(mistakes, key=lambda mistake: _order(mistake["loc"]), reverse=True):
            if not any(mistake["loc"][: len(place)] == place for place in gone):
                gone += _set_aside(known, mistake)
    raise UnreadableStatusError("status: it is of a shape that this release does not know")


def _with_known_values(status: TrainingJobStatus) -> TrainingJobStatus:
    """An unknown stage counts as the first of a start: nothing is skipped, and its deadlines run. An unknown gang as none."""
    changes: dict[str, Any] = {}
    if status.recovery.stage is not None and status.recovery.stage not in _STAGES:
        changes["recovery"] = status.recovery.model_copy(update={"stage": RecoveryStage.SCHEDULE.value})
    if status.resolved and status.resolved.gang and status.resolved.gang not in _GANGS:
        changes["resolved"] = status.resolved.model_copy(update={"gang": Gang.NONE.value})
    return status.model_copy(update=changes) if changes else status


def _order(place: Place) -> tuple[tuple[bool, int | str], ...]:
    return tuple((isinstance(part, int), part) for part in place)


def _set_aside(known: Any, mistake: ErrorDetails) -> list[Place]:
    """Shorten what is too long; take away what is there and wrong, or the group that lacks something. What is gone then."""
    holder, value = None, known
    place: Place = ()
    for part in mistake["loc"]:
        inside = isinstance(value, dict) and part in value
        if not inside and not (isinstance(value, list) and isinstance(part, int) and part < len(value)):
            break
        holder, value, place = value, value[part], (*place, part)
    if holder is None:
        return []
    last = place[-1]
    most = mistake.get("ctx", {}).get("max_length")
    if isinstance(most, int) and isinstance(value, list):
        # The newest are the last, where a list has an order in time.
        holder[last] = value[-most:]
    elif isinstance(most, int) and isinstance(value, str):
        holder[last] = value[:most]
    else:
        del holder[last]
        return [place]
    return []


def overlaid(raw: object, *, before: TrainingJobStatus, after: TrainingJobStatus) -> Json:
    """The status as it was found, with what this pass changed in it. `before`: as it was understood."""
    found = raw if isinstance(raw, dict) else {}
    was, wanted = before.to_manifest(), after.to_manifest()
    lists = {
        name: _written_list(found[name], was.get(name, []), wanted[name], key, most)
        for name, key, most in _keyed_lists()
        if isinstance(found.get(name), list) and name in wanted and was.get(name) != wanted[name]
    }
    return {**_written_group(found, was, wanted), **lists}


def _written(found: Any, was: Any, wanted: Any) -> Any:
    if was == wanted:
        return found
    groups = isinstance(found, dict) and isinstance(was, dict) and isinstance(wanted, dict)
    return _written_group(found, was, wanted) if groups else wanted


def _written_group(found: Json, was: Json, wanted: Json) -> Json:
    """What was never understood stays; of the rest, what was taken away goes."""
    kept = {name: value for name, value in found.items() if name not in was or name in wanted}
    ours = {
        name: _written(found[name], was.get(name), value) if name in found else value for name, value in wanted.items()
    }
    return {**kept, **ours}


def _written_list(found: Sequence[Any], was: Sequence[Json], wanted: Sequence[Json], key: str, most: int) -> list[Any]:
    """Item by item. A list that this release changes has no more items than it knows to be allowed."""
    there = {item[key]: item for item in found if isinstance(item, dict) and isinstance(item.get(key), str | int)}
    known = {item[key]: item for item in was}
    ours = [_written(there.get(item[key], item), known.get(item[key], {}), item) for item in wanted]
    named = [*known, *(item[key] for item in wanted)]
    unread = [item for item in found if not (isinstance(item, dict) and item.get(key) in named)]
    return [*ours, *unread][:most]


@cache
def _keyed_lists() -> tuple[tuple[str, str, int], ...]:
    """The lists whose items have a key: their name, the key, and how long they may be."""
    found = []
    for name, field in TrainingJobStatus.model_fields.items():
        keys = [camel_case(each.key) for each in field.metadata if isinstance(each, ListMap)]
        bounds = [each.max_length for each in field.metadata if isinstance(each, MaxLen)]
        if keys and bounds:
            found.append((camel_case(name), keys[0], bounds[0]))
    return tuple(found)
