"""What ranks tell their node's agent: one JSON line per event, over a pipe that the rank inherits.

Telling never costs a training step: a line is one atomic write of at most PIPE_BUF bytes into a non-blocking pipe, so
that several ranks share the pipe without a lock, and a full or broken pipe is no error of the rank. Only events that
the agent acts on (ENDURING) wait up to a second for room. Without an agent (OARLOCK_AGENT_FD unset) nothing is sent.

    channel.send(Event.STEP, step=12, total=100, loss=0.31, secondsPerStep=4.4)
"""

from __future__ import annotations

import json
import operator
import os
import select
import signal
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from oarlock_api.contract.wire import WireError, finite, integer, parse_object

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

AGENT_FD = "OARLOCK_AGENT_FD"
"""Environment variable with the number of the inherited file descriptor."""

SAVE_SIGNAL = signal.SIGUSR1
"""Asks a rank for a checkpoint at the next step. Blocked in a rank until its program unblocks it, as StopRequest does: what
comes before waits, and a program that knows nothing of it is not disturbed."""
DRILL_SIGNAL = signal.SIGRTMIN
"""The same, for a checkpoint as at an eviction: training stands still until it is there."""
MAX_LINE = select.PIPE_BUF
"""Longest line, newline included: POSIX writes that much into a pipe in one piece (4096 bytes on Linux)."""

_LONGEST_WAIT = 1.0


class Event(StrEnum):
    """What can be told, with its fields. A field that is not known is left out; a number that is not finite is null."""

    PHASE = "phase"
    """name: a value of contract.status.PodPhase."""
    STEP = "step"
    """The line of contract.figures, and <part>Seconds for each contract.status.StepPart. Every rank tells of its steps
    (step, total), or it counts as hung; the other figures come from rank 0 alone."""
    WORKING = "working"
    """No fields. Work that is no step goes on (see heartbeat.py)."""
    WAITING = "waiting"
    """No fields. Nothing to do until other ranks are ready, however long that takes; ends with the next event."""
    RESUMED = "resumed"
    """step: the last step that the loaded checkpoint holds."""
    CHECKPOINT = "checkpoint"
    """step, path (absolute), savedAt (RFC 3339), stallSeconds: a checkpoint was committed."""
    MEMORY = "memory"
    """step, savedAt (RFC 3339), copied (true, false, or absent), as in contract.status.MemoryStatus."""
    DRILL = "drill"
    """step, seconds: a drill's checkpoint was committed, so long after the step before it had ended."""
    PLAN = "plan"
    """effectiveBatch, zeroStage, memoryBytes, as in contract.status.PlanStatus."""
    DEGRADED = "degraded"
    """reason: a value of contract.status.Degradation; message: a sentence that says what to do; empty: it is over. Of a slow
    rank also slowRank and pod, its number and its pod's rank: its node's agent says what to do."""
    MODEL = "model"
    """path: absolute, of the exported model."""
    FAILURE = "failure"
    """code: the exit code that follows; summary: one sentence for people. A rank's last words: a second later the
    agent ends the gang, whether the rank has exited by then or not."""
    CHECK = "check"
    """name, result (a contract.status.CheckResult), milliseconds, detail: a check of spec.preflight that the ranks do."""
    NOTE = "note"
    """message: shown in /status until the next one."""


ENDURING = frozenset(
    {
        Event.PHASE,
        Event.WAITING,
        Event.RESUMED,
        Event.CHECKPOINT,
        Event.MEMORY,
        Event.DRILL,
        Event.PLAN,
        Event.DEGRADED,
        Event.MODEL,
        Event.FAILURE,
        Event.CHECK,
    }
)
"""Events that would be missed: they wait a moment for room. A lost step is followed by the next one."""


@dataclass(frozen=True, slots=True)
class Message:
    """One received line. `rank` is the sender's global rank."""

    event: str
    rank: int
    fields: Mapping[str, Any]


def send(event: str, **fields: Any) -> None:
    """Tell the agent. Never raises and never blocks for longer than a second, whatever the agent does."""
    number = os.environ.get(AGENT_FD, "")
    if not number.isdecimal():
        return
    try:
        _write(int(number), encode(event, _own_rank(), fields), enduring=event in ENDURING)
    except (OSError, ValueError, RecursionError):
        return  # the agent is gone, or the descriptor is no pipe: training is not to end for that


@contextmanager
def waiting() -> Iterator[None]:
    """Within this the rank waits for others, however long that takes: its agent does not take it for hung.

    What is raised within ends the wait by itself: the event that tells of it.
    """
    send(Event.WAITING)
    yield
    send(Event.WORKING)


def tell(words: str) -> None:
    """Tell people: in /status, where the next note takes its place, and in the log."""
    send(Event.NOTE, message=words)
    sys.stderr.write(f"{words}\n")


def encode(event: str, rank: int, fields: Mapping[str, Any]) -> bytes:
    """One line of at most MAX_LINE bytes; what is too long loses the tail of its longest texts, then all fields."""
    values: dict[str, Any] = {key: _plain(value) for key, value in fields.items()}
    while len(line := _line(event, rank, values)) > MAX_LINE:
        texts = {key: value for key, value in values.items() if isinstance(value, str) and len(value) > 1}
        if not texts:
            return _line(event, rank, {})
        longest = max(texts, key=lambda key: len(texts[key]))
        values[longest] = texts[longest][: len(texts[longest]) * 3 // 4]
    return line


def decode(line: bytes) -> Message | None:
    """Read one line, or None for what is none of ours: a rank can write anything into an inherited descriptor."""
    try:
        raw = parse_object(line.decode(errors="replace"), max_bytes=MAX_LINE * 4)
    except WireError:
        return None
    event, rank = raw.pop("event", None), integer(raw.pop("rank", None))
    return Message(event, rank, raw) if isinstance(event, str) and rank is not None else None


def _own_rank() -> int:
    rank = os.environ.get("RANK", "")
    return int(rank) if rank.isdecimal() else 0


def _line(event: str, rank: int, values: Mapping[str, Any]) -> bytes:
    text = json.dumps({**values, "event": str(event), "rank": rank}, ensure_ascii=False, separators=(",", ":"))
    return text.encode(errors="replace") + b"\n"


def _plain(value: Any) -> Any:
    """Value as JSON knows it: scalars of numpy and torch become numbers, anything else its text."""
    if value is None or isinstance(value, bool | int | str):
        return value
    for read in (operator.index, float):
        try:
            number: int | float = read(value)
        except (TypeError, ValueError, OverflowError, RuntimeError):
            continue
        return finite(number)
    return str(value)


def _write(descriptor: int, line: bytes, *, enduring: bool) -> None:
    os.set_blocking(descriptor, False)
    try:
        os.write(descriptor, line)
    except BlockingIOError:
        if enduring and select.select([], [descriptor], [], _LONGEST_WAIT)[1]:
            os.write(descriptor, line)
