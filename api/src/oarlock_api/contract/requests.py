"""What a person may ask of a job that trains, and how far that is: the annotation, /status' query and its answer. Pure.

    kubectl annotate --overwrite trainingjob flux oarlock.dev/request="drill 1"
    -> the operator writes status.request, and asks rank 0's agent with each of its questions until that answers
    -> /status?request=drill.1 (signed as the question is) -> "request": {"id": "1", "state": "Done", ...}

An id is served once: whoever wants a second save gives a second id.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from oarlock_api.contract.names import GROUP
from oarlock_api.contract.wire import finite, integer, number, text

REQUEST_ANNOTATION = f"{GROUP}/request"
"""Annotation of a job: what is asked of it, as `VERB ID`."""
MAX_ID = 40
"""Characters: a question of /status with a request is read up to 256 characters, its proofs take most of them."""
MEANT = "Oarlock-Request"
"""Header, of any value, of a question that may carry a request: a web page can set none for an address of another site."""
_ID = re.compile(rf"[A-Za-z0-9._-]{{1,{MAX_ID}}}")


class Verb(StrEnum):
    """What may be asked."""

    SAVE = "save"
    """A checkpoint at the next step; training goes on while it is written."""
    DRILL = "drill"
    """The same as at an eviction: training stands still until the checkpoint is there, and goes on then. It is timed."""
    STACKS = "stacks"
    """The Python stacks of all ranks, into the pods' logs and the history; ranks that hang or have made no step, too."""


def in_words(verb: str) -> str:
    """What a sentence calls a request of this verb: the save, the last request for stacks."""
    return {"save": "save", "drill": "drill", "stacks": "request for stacks"}.get(verb, "request")


class RequestState(StrEnum):
    """How far a request is."""

    ASKED = "Asked"
    """The gang was asked, or is about to be."""
    DONE = "Done"
    REFUSED = "Refused"
    """It was never begun; the message says why."""
    FAILED = "Failed"
    """It was begun, and came to nothing."""


@dataclass(frozen=True, slots=True)
class Request:
    """One wish."""

    verb: Verb
    id: str

    def __str__(self) -> str:
        """As the query of /status has it."""
        return f"{self.verb}.{self.id}"


def parse_annotation(value: str) -> Request | None:
    """`VERB ID`; None where it is neither."""
    verb, _, name = value.strip().partition(" ")
    return _request(verb, name.strip())


def parse_query(value: str) -> Request | None:
    """`VERB.ID`; None where it is neither."""
    verb, _, name = value.partition(".")
    return _request(verb, name)


def _request(verb: str, name: str) -> Request | None:
    return Request(Verb(verb), name) if verb in frozenset(Verb) and _ID.fullmatch(name) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """What an agent says of the last request that it was asked. `seconds`: from the request to the checkpoint `step`.

    Of stacks there is no step.
    """

    id: str
    state: str
    step: int | None = None
    seconds: float | None = None
    message: str = ""

    def to_fields(self) -> dict[str, Any]:
        """As JSON writes it."""
        return {
            "id": self.id[:MAX_ID],
            "state": self.state,
            "step": self.step,
            "seconds": finite(self.seconds),
            "message": self.message[:512],
        }


def parse_answered(raw: object) -> Answered | None:
    """Read what JSON says; None where it names no request."""
    if not isinstance(raw, Mapping) or not (name := text(raw.get("id"), MAX_ID)):
        return None
    return Answered(
        id=name,
        state=text(raw.get("state"), 32),
        step=integer(raw.get("step")),
        seconds=number(raw.get("seconds")),
        message=text(raw.get("message"), 512),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Drill:
    """How long it took from a notice to the checkpoint `step`, when that was last tried."""

    step: int
    seconds: float

    def to_fields(self) -> dict[str, Any]:
        """As JSON writes it."""
        return {"step": self.step, "seconds": finite(self.seconds)}


def parse_drill(raw: object) -> Drill | None:
    """Read what JSON says; None where step or seconds are missing."""
    if not isinstance(raw, Mapping):
        return None
    step, seconds = integer(raw.get("step")), number(raw.get("seconds"))
    return None if step is None or seconds is None or seconds < 0 else Drill(step=step, seconds=seconds)
