"""What could be had about one job, as it was read: nothing is interpreted here, and what could not be had is said.

Objects of the API are dictionaries as the API server wrote them, lines of the history as the leader's agent wrote them.
So facts can be kept as JSON and explained later, or elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """Something that was looked for and not found: that, too, is a fact. `why` is one line, such as the server's words."""

    what: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """What lies below a job's output directory.

    `folder` is where it was read. `owner` is the fence. `history` are the lines of the story, `reports` the fault reports of
    all pods by attempt and rank, `spec` the settings as oarlock_api.contract.kept_spec has them, `metrics` lines of
    metrics.jsonl, bounded and evenly spread. `checkpoints` have step, attempt, savedAt and committed. `finished` is what the
    owner's job has left at its end, where it came to that.
    """

    folder: str
    owner: Object | None = None
    history: tuple[Object, ...] = ()
    reports: tuple[Object, ...] = ()
    spec: Object | None = None
    checkpoints: tuple[Object, ...] = ()
    metrics: tuple[Object, ...] = ()
    finished: Object | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Everything that `explain` may use. `time` is when it was gathered, RFC 3339 in UTC.

    `job` is the TrainingJob; `events` are those of the job, its pods and its groups, the oldest first; `pods` are its pods of
    all attempts; `nodes` those that the job's pods were or should be on, and those that its status names; `groups` are the
    objects of gang systems that hold its pods (Workload, PodGroup); `claims` the PersistentVolumeClaims that it mounts.
    `phase` is how the job stands, where its own agent gathered the facts: Running, Succeeded or Ended; else empty.
    """

    namespace: str
    name: str
    time: str
    job: Object | None = None
    events: tuple[Object, ...] = ()
    pods: tuple[Object, ...] = ()
    nodes: tuple[Object, ...] = ()
    groups: tuple[Object, ...] = ()
    claims: tuple[Object, ...] = ()
    output: Output | None = None
    phase: str = ""
    missing: tuple[Missing, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values, under the names of the fields."""
        return asdict(self)

    @classmethod
    def of(cls, raw: Object) -> Facts:
        """Read what to_json has written. Fields of other releases are left out."""
        known = {field.name: raw[field.name] for field in fields(cls) if field.name in raw}
        lists = {name: tuple(value) for name, value in known.items() if isinstance(value, (list, tuple))}
        output = known.get("output")
        return cls(
            **{
                **known,
                **lists,
                "output": _output(output) if output else None,
                "missing": tuple(Missing(what=one["what"], why=one["why"]) for one in known.get("missing", ())),
            }
        )


def _output(raw: Object) -> Output:
    known: dict[str, Any] = {field.name: raw[field.name] for field in fields(Output) if field.name in raw}
    for name, value in known.items():
        known[name] = tuple(value) if isinstance(value, (list, tuple)) else value
    return Output(**known)
