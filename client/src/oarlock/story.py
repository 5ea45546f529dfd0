"""A job's story: what `explain` makes of facts, and what `oarlock why`, the report and the page are drawn from.

Plain data. Times are RFC 3339 in UTC, as whoever saw it wrote them; what is not known is empty or None.
`to_json` is the answer of `oarlock why -o json`, described by docs/why-v1.schema.json.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from oarlock_api.contract.dataclass_json import to_fields

VERSION = 1
"""Of the JSON. It grows when a field changes its meaning; new fields do not change it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What something rests on, verbatim and bounded. `source` says who said it, such as `Event FailedScheduling`."""

    source: str
    text: str
    time: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """One thing that went wrong, or stands in the way. `cause` is a word of the table of causes (docs/why.md).

    `message` is one sentence for people, `details` what it comes to, one thing each, and `next` what to do about it, in which
    commands stand between backticks, as they can be copied. `rank` is the pod's number in the gang, `first_rank` the
    training rank that it began with. `fault_class`, `exit_code`, `verdict` and `action` are as the operator and the pod's
    report have them.
    """

    cause: str
    message: str
    time: str = ""
    attempt: int | None = None
    rank: int | None = None
    node: str = ""
    pod: str = ""
    gpu: int | None = None
    gpu_uuid: str = ""
    xid: int | None = None
    fault_class: str = ""
    exit_code: int | None = None
    first_rank: int | None = None
    verdict: str = ""
    action: str = ""
    victims: int | None = None
    details: tuple[str, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    next: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A part of an attempt's start: Detect, Decide, Drain, Queue, Schedule, Start, FirstStep, or the trainer's own."""

    name: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a rank's pod was."""

    rank: int
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """A start of all ranks that a fault ended, and the next one followed in the same attempt. `fault` is that fault.

    `replaced`: a pod of it was made anew, where otherwise the next one had the same pods. `rung`: the API's, how much was
    made anew, where it is booked; `nodes` those of the next round, where they are fewer than the job asks for.

    `number` counts within the attempt. `resumed_from_step` is the step that the next round began with, `lost_steps` how many
    were done again, `down_seconds` the time from the fault to the next round's first new step; of that, a hang took
    `silent_seconds` until it was found, and then `start_wait_seconds` passed until the next round's ranks were started.
    `from_memory`: it began with a state that the nodes had in memory; None: not told.
    """

    number: int
    fault: Trouble
    resumed_from_step: int | None = None
    lost_steps: int | None = None
    down_seconds: float | None = None
    silent_seconds: float | None = None
    start_wait_seconds: float | None = None
    from_memory: bool | None = None
    replaced: bool = False
    rung: str = ""
    nodes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One try of the gang. `reason` is why it was begun, empty for the first; `end_reason` why it ended.

    `first_step_time` is when its first optimizer step was done, empty where it made none, or nobody says so.

    `node_names` are its nodes; `replaced_node_names` those that it is on no more, as a pod there was lost and made anew.

    `faults` are those that ended it, the root cause first; `rounds` ended within it, and it went on. `decision` is what was
    decided about it when it ended, with the rule that matched; `not_in_place` why all its pods were made anew then, though
    its job has lost pods and ranks start anew by themselves.
    """

    number: int
    start_time: str = ""
    first_step_time: str = ""
    end_time: str = ""
    reason: str = ""
    end_reason: str = ""
    image: str = ""
    places: tuple[Place, ...] = ()
    node_names: tuple[str, ...] = ()
    removed_node_names: tuple[str, ...] = ()
    replaced_node_names: tuple[str, ...] = ()
    resumed_from_step: int | None = None
    lost_steps: int | None = None
    last_step: int | None = None
    stages: tuple[Stage, ...] = ()
    faults: tuple[Trouble, ...] = ()
    rounds: tuple[Round, ...] = ()
    decision: str = ""
    not_in_place: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cordon:
    """A node that was taken out of service for this job. `done_time` is empty while it is not.

    `stands`: whether it still is; None where the node is not known. `given_back_time` is when a person uncordoned it, and
    `given_back_by` who, as far as the node says so.
    """

    node: str
    reason: str = ""
    time: str = ""
    done_time: str = ""
    attempt: int | None = None
    gpu_uuid: str = ""
    stands: bool | None = None
    given_back_time: str = ""
    given_back_by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One line of the chain, in the order of time. `what` is a CamelCase word: a cause, a stage, or an Event's reason."""

    time: str
    what: str
    text: str
    attempt: int | None = None
    rank: int | None = None
    node: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One step of the curve. `time` is when it was done, or is reckoned from a step that says so; empty where none does."""

    step: int
    loss: float | None = None
    seconds_per_step: float | None = None
    attempt: int | None = None
    time: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnseenLoss:
    """The loss on a data set that is not trained on, with the weights after this step. `time` as in Point."""

    data_set: str
    step: int
    loss: float
    attempt: int | None = None
    time: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Now:
    """How it stands. `cause` is a word of the table of causes: of what holds the job up, or of all being well.

    `message` says it in a sentence, `details` what it comes to, `next` what to do; `node` and `rank` where, if it is in one
    place.
    """

    phase: str
    cause: str
    message: str
    next: str
    node: str = ""
    rank: int | None = None
    step: int | None = None
    total_steps: int | None = None
    eta_seconds: int | None = None
    details: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One field of the job's spec, such as training.optimizer.learningRate. What looks secret is struck out."""

    path: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """What could not be had, and why: the story may lack what it would have told."""

    what: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """All of it. `trouble` is what the question is about: what holds the job up now, else the last fault that it met.

    `trouble` is None where nothing went wrong. `avoided` are nodes that the job's pods keep off.
    """

    version: int
    namespace: str
    name: str
    time: str
    now: Now
    uid: str = ""
    directory: str = ""
    trouble: Trouble | None = None
    attempts: tuple[Attempt, ...] = ()
    cordons: tuple[Cordon, ...] = ()
    avoided: tuple[str, ...] = ()
    chain: tuple[Moment, ...] = ()
    curve: tuple[Point, ...] = ()
    unseen: tuple[UnseenLoss, ...] = ()
    settings: tuple[Setting, ...] = ()
    unknown: tuple[Unknown, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As JSON: names in camelCase; what is not known is left out."""
        plain: dict[str, Any] = json.loads(json.dumps(to_fields(self)))
        return plain
