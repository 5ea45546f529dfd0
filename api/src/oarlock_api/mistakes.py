"""What is wrong with a job, field by field, in words that say what to write instead.

pydantic says of a misspelled field only that it is not permitted, and of a list with a wrong entry also that it is too
short: it counts the entries that are right.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, get_args

from pydantic import BaseModel

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pydantic import ValidationError

_UNKNOWN = "extra_forbidden"
_ALIKE = 0.7
"""difflib's ratio: batchsize is 0.9 like batchSize, and steps 0.6 like repeats."""


def mistakes(error: ValidationError, model: type[BaseModel], *, below: str) -> list[str]:
    """One sentence for each mistake, `below` the field of the job that `model` stands for: below.datasets[0].name: ..."""
    found = error.errors(include_url=False)
    places = [problem["loc"] for problem in found]
    return [
        _unknown(model, problem["loc"], below=below)
        if problem["type"] == _UNKNOWN
        else f"{_path(below, problem['loc'])}: {problem['msg']}"
        for problem in found
        if problem["type"] != "too_short" or not any(_is_below(place, problem["loc"]) for place in places)
    ]


def unknown_fields(error: ValidationError, model: type[BaseModel], *, below: str) -> list[tuple[str, str]]:
    """Of each field that the model does not have: its own name, and the sentence of `mistakes` for it."""
    return [
        (str(problem["loc"][-1]), _unknown(model, problem["loc"], below=below))
        for problem in error.errors(include_url=False)
        if problem["type"] == _UNKNOWN
    ]


def _unknown(model: type[BaseModel], place: Sequence[int | str], *, below: str) -> str:
    return f"{_path(below, place)}: {_words(model, place)}"


def _words(model: type[BaseModel], place: Sequence[int | str]) -> str:
    *parents, name = place
    known = sorted(_fields(model, parents))
    # Upper and lower case are what is mistaken most.
    lower = {one.lower(): one for one in known}
    alike = difflib.get_close_matches(str(name).lower().replace("_", ""), lower, n=1, cutoff=_ALIKE)
    if alike:
        return f"there is no such field; did you mean {lower[alike[0]]}?"
    return f"there is no such field; there are {', '.join(known)}" if known else "there is no such field"


def _fields(model: type[BaseModel], parents: Sequence[int | str]) -> set[str]:
    """Names of the fields that a group below `model` has; nothing where it is none."""
    models = {model}
    for parent in parents:
        if isinstance(parent, str):
            models = {
                below
                for one in models
                for name, field in one.model_fields.items()
                if parent in (field.alias, name)
                for below in _models(field.annotation)
            }
    return {field.alias or name for one in models for name, field in one.model_fields.items()}


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models within a type: of an optional group, or of a list of groups."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models(inner)


def _path(below: str, place: Sequence[int | str]) -> str:
    return below + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)


def _is_below(place: Sequence[int | str], other: Sequence[int | str]) -> bool:
    return len(place) > len(other) and tuple(place[: len(other)]) == tuple(other)
