"""The history of a job, below its output: what lies where, and the lines of its story. Read by people with `cat` and `zcat`.

    <output>/metrics.jsonl                                      figures of every step, written by rank 0
    <output>/.oarlock/history/story.jsonl                       what happened, one JSON object a line
    <output>/.oarlock/history/story.1.jsonl                     older lines, where the story grew too long
    <output>/.oarlock/history/spec.json                         the job's settings (kept_spec)
    <output>/.oarlock/history/logs/<attempt>-<job>/<rank>.log.gz    what a pod printed; <rank>.1.log.gz is older
    <output>/.oarlock/history/faults/<attempt>-<job>-<rank>.jsonl   what befell another pod than rank 0's, as its agent saw it
    <output>/.oarlock/history/stacks/<attempt>-<job>-<rank>-<time>.txt

`<job>` is the beginning of the job's uid: a job that is deleted and made again counts its attempts from 1. `<rank>` is the
pod's rank, as in its name. Writers only append, so what a crash leaves is a torn last line, or a torn last gzip member:
readers leave that out. Each file has one writer, for storage that several nodes append to may lose what one of them writes;
the story has rank 0's agent, so only where an old attempt's node is cut off may it have two for a while. Plain data without
pydantic: agents run in images of others.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from oarlock_api.contract.beneath import Beneath, beneath
from oarlock_api.contract.layout import PRIVATE
from oarlock_api.contract.regular_file import read_regular
from oarlock_api.contract.wire import WireError, encodable, integer, parse_object, text

HISTORY = f"{PRIVATE}/history"
METRICS = "metrics.jsonl"
STORY, OLDER_STORY = "story.jsonl", "story.1.jsonl"
LOGS, STACKS, FAULTS = "logs", "stacks", "faults"
STORY_VERSION = 1
MAX_LINE = 16 * 1024
"""Bytes of a line, with its newline."""
MAX_NOTES = 8 * 1024
"""Bytes of what the operator tells a pod."""
MAX_STORY = 4 * 1024 * 1024
"""Bytes of story.jsonl; then it becomes story.1.jsonl, and the one before is deleted."""
MAX_READ = 16 * MAX_STORY
"""Bytes of the story and of all faults that are read: what a job's program writes there fills no reader's memory."""

_ATTEMPT = re.compile(r"([0-9]{1,9})-([0-9a-z]{1,8})(-.*)?")
_LOG = re.compile(r"([0-9]{1,9})(\.1)?\.log\.gz")
_STACKS = re.compile(r"([0-9]{1,9})-([0-9a-z]{1,8})-([0-9]{1,9})-([0-9TZ]+)\.txt")


class StoryType(StrEnum):
    """What a line tells. Readers leave out types that they do not know."""

    ATTEMPT_STARTED = "AttemptStarted"
    """data: nodes (count), gpusPerNode, image. The line of a pod's own: its rank and node stand in it."""
    GANG_COMPLETE = "GangComplete"
    """data: nodes (rank, as text -> node's name; empty where it is not told)."""
    RESUMED = "Resumed"
    """data: step; absent where training began anew."""
    STAGE = "Stage"
    """A phase of the pod is over. data: name (PodPhase), seconds, step."""
    CHECKPOINT = "Checkpoint"
    """data: step, path, stallSeconds."""
    CHECK = "Check"
    """A check before the start that warned or failed. reason: its result; data: name, milliseconds."""
    DEGRADED = "Degraded"
    """It trains, and something is wrong. reason: Degradation, message empty where it is over."""
    SLOW_RANK = "SlowRank"
    """As Degraded, of a rank that is slower than the others: the message names it, its pod, its lag, and why. Rank and node
    of the line are those of its pod."""
    DRILL = "Drill"
    """A save as at an eviction. data: seconds (from the notice to the committed checkpoint), step."""
    FAULT = "Fault"
    """The agent's verdict over its pod. reason: failure class; data: as in the fault report (contract.report)."""
    ROUND_ENDED = "RoundEnded"
    """A fault ended a round, and all ranks start anew in their living pods (contract.rounds). Rank and node are those of the
    pod whose fault it was. reason: failure class; data: round, code, step (the last that was done), silentSeconds (until a
    hang was found), lostPod (it was lost, and another one took its place)."""
    RANKS_RESTARTED = "RanksRestarted"
    """The first new step after it. data: round (the one that ended), step (that the next one began with), downSeconds,
    startWaitSeconds, fromMemory (as contract.rounds has them)."""
    STACKS = "Stacks"
    """At a hang, or on request: then with words. data: files, below the history's folder."""
    DECISION = "Decision"
    """What the operator decided about the line's attempt, and told a later one. reason: why the attempt ended. data: of the
    attempt startTime, endTime, notInPlace, nodeNames, replacedNodeNames, resumedFromStep, lostSteps, gpuSeconds,
    stageMilliseconds; of its end: fault (as status.lastFault; its action names the rule), avoidedNodes and cordonedNodes
    (node's name -> why).
    """
    ENDED = "Ended"
    """The pod's end. reason: failure class, Succeeded or LeftOnRequest; data: code, step, checkpointStep."""
    NOTE = "Note"
    """About the history itself, such as what it lacks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoryLine:
    """One thing that happened. `time` is RFC 3339 in UTC on the writer's clock, `job` the job's uid, `rank` the pod's."""

    time: str
    type: str
    attempt: int
    job: str = ""
    rank: int | None = None
    node: str = ""
    reason: str = ""
    message: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        """One line without its newline. What would make it too long goes: first the data, then the message's tail."""
        told = {"version": STORY_VERSION, "time": self.time, "type": self.type, "attempt": self.attempt}
        more = {"job": self.job, "rank": self.rank, "node": self.node, "reason": self.reason, "message": self.message}
        told |= {name: value for name, value in more.items() if value not in ("", None)}
        line = _line(told | ({"data": dict(self.data)} if self.data else {}))
        if len(line.encode()) < MAX_LINE:
            return line
        return _line({name: value[:1024] if isinstance(value, str) else value for name, value in told.items()})


def parse_line(line: str) -> StoryLine:
    """Read a line. Unknown fields, types and versions are tolerated.

    Raises WireError where it is none, such as the torn last one.
    """
    raw = parse_object(line, max_bytes=MAX_LINE)
    attempt, kind = integer(raw.get("attempt")), text(raw.get("type"), 64)
    if attempt is None or not kind:
        raise WireError("type or attempt is missing")
    data = raw.get("data")
    return StoryLine(
        time=text(raw.get("time"), 40),
        type=kind,
        attempt=attempt,
        job=text(raw.get("job"), 64),
        rank=integer(raw.get("rank")),
        node=text(raw.get("node"), 253),
        reason=text(raw.get("reason"), 253),
        message=text(raw.get("message"), 8192),
        data=data if isinstance(data, dict) else {},
    )


def parse_story(body: str) -> list[StoryLine]:
    """All lines that can be read, in the order in which they were written."""
    found = []
    for line in body.split("\n"):
        try:
            found.append(parse_line(line))
        except WireError:
            continue
    return found


def read_story(output: Path | Beneath, *, most: int = MAX_READ) -> list[StoryLine]:
    """The story of what stands in this output directory, the faults of all its pods included, in the order of time.

    Empty where there is none. Raises OSError where it can't be read, or is no regular file. Of files that are longer than
    any writer of ours leaves them, the ends are read; and where there are more than `most` bytes, the newest story's first.
    """
    folder = beneath(output) / HISTORY
    found: list[StoryLine] = []
    left = most
    for path in (folder / STORY, folder / OLDER_STORY, *sorted(_entries(folder / FAULTS), key=str)):
        try:
            content = read_regular(path, most=min(left, 2 * MAX_STORY), from_end=True)
        except FileNotFoundError:
            continue
        lines = parse_story(content.decode(errors="replace"))
        found = lines + found if path.name == OLDER_STORY else found + lines  # of one moment, in the order of writing
        left -= len(content)
    return sorted(found, key=lambda line: line.time)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorNotes:
    """What the operator tells the next attempt of those before it (environment.Variable.HISTORY of rank 0's pod).

    `image` is the trainer's, `decisions` lines of type Decision, the oldest first.
    """

    image: str = ""
    decisions: tuple[StoryLine, ...] = ()

    def to_json(self) -> str:
        """One line of at most MAX_NOTES bytes: the oldest decisions go. Without `$`, which Kubernetes would expand."""
        kept = self.decisions
        while True:
            lines = [json.loads(line.to_json()) for line in kept]
            written = json.dumps({"image": self.image[:512], "decisions": lines}, separators=(",", ":"))
            if len(written) <= MAX_NOTES or not kept:
                return written.replace("$", "\\u0024")
            kept = kept[1:]


def parse_notes(body: str) -> OperatorNotes:
    """Read them; what cannot be read is left out."""
    try:
        raw = parse_object(body, max_bytes=2 * MAX_NOTES)
    except WireError:
        return OperatorNotes()
    listed = raw.get("decisions")
    lines = [json.dumps(one) for one in listed] if isinstance(listed, list) else []
    decisions = tuple(line for line in parse_story("\n".join(lines)) if line.type == StoryType.DECISION)
    return OperatorNotes(image=text(raw.get("image"), 512), decisions=decisions)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptLogs:
    """Where an attempt's logs lie. `job` is the beginning of its job's uid; `files`: rank -> its files, oldest first."""

    attempt: int
    job: str
    files: Mapping[int, tuple[Beneath, ...]]


def attempt_folder(attempt: int, job_uid: str) -> str:
    """Name of an attempt's folder below LOGS, and how the names of its stacks begin."""
    return f"{attempt}-{re.sub('[^0-9a-z]', '', job_uid.lower())[:6] or '0'}"


def faults_name(attempt: int, job_uid: str, rank: int) -> str:
    """Name of a pod's own faults below FAULTS."""
    return f"{attempt_folder(attempt, job_uid)}-{rank}.jsonl"


def log_name(rank: int, *, older: bool = False) -> str:
    """Name of a pod's log below its attempt's folder."""
    return f"{rank}.1.log.gz" if older else f"{rank}.log.gz"


def stacks_name(attempt: int, job_uid: str, rank: int, time: str) -> str:
    """Name of a file of stacks below STACKS; `time` is RFC 3339."""
    second = re.sub("[^0-9T]", "", time[: len("2026-11-23T10:00:00")])
    return f"{attempt_folder(attempt, job_uid)}-{rank}-{second}Z.txt"


def parse_attempt_folder(name: str) -> tuple[int, str] | None:
    """(attempt, beginning of the job's uid) by a name below LOGS, FAULTS or STACKS; None for any other name."""
    found = _ATTEMPT.fullmatch(name)
    return (int(found[1]), found[2]) if found else None


def find_logs(output: Path | Beneath) -> list[AttemptLogs]:
    """The logs of all attempts that still have some, oldest first by when they were written last. Raises OSError."""
    found: list[tuple[float, AttemptLogs]] = []
    for folder in _entries(beneath(output) / HISTORY / LOGS):
        if known := parse_attempt_folder(folder.name):
            named = [(name, path) for path in _entries(folder) if (name := _LOG.fullmatch(path.name))]
            oldest_first = sorted(named, key=lambda one: (int(one[0][1]), one[0][2] is None))
            files: dict[int, tuple[Beneath, ...]] = {}
            for name, path in oldest_first:
                files[int(name[1])] = (*files.get(int(name[1]), ()), path)
            written = max((path.stat().st_mtime for _, path in named), default=0.0)
            found.append((written, AttemptLogs(attempt=known[0], job=known[1], files=files)))
    return [logs for _, logs in sorted(found, key=lambda one: (one[0], one[1].attempt))]


def find_stacks(output: Path) -> list[Path]:
    """All files of stacks, oldest first by their names' times. Raises OSError."""
    folder = Beneath(output) / HISTORY / STACKS
    found = [(known[4], path) for path in _entries(folder) if (known := _STACKS.fullmatch(path.name))]
    return [Path(str(path)) for _, path in sorted(found, key=lambda one: (one[0], one[1].name))]


def _entries(folder: Beneath) -> Iterable[Beneath]:
    return folder.iterdir() if folder.is_dir() else ()


def _line(told: Mapping[str, Any]) -> str:
    return encodable(json.dumps(told, ensure_ascii=False, separators=(",", ":"), default=str))
