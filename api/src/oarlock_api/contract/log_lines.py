"""A line of a kept log: `<time> <stream> <text>`, the time RFC 3339 in UTC on the pod's clock, with milliseconds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from oarlock_api.contract.beneath import Beneath
from oarlock_api.contract.gzip_members import MAX_MEMBER, read_pieces

_INCARNATION = re.compile(r"incarnation ([0-9]{1,7}) of this pod begins")


class LogStream(StrEnum):
    """Where a line comes from."""

    OUT = "out"
    """Standard output of the pod's ranks."""
    ERR = "err"
    """Their standard error."""
    AGENT = "agent"
    """The agent's own log: a JSON object."""
    NOTE = "note"
    """About the log itself: what it lacks, and why."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line. A line that is none of this form has neither time nor stream."""

    time: str
    stream: str
    text: str


def stamped(content: bytes, *, stream: LogStream, time: str) -> bytes:
    """Whole lines as a log keeps them. `content` ends with a newline."""
    head = f"{time} {stream} ".encode()
    return head + content[:-1].replace(b"\n", b"\n" + head) + b"\n"


def parse_log_line(line: str) -> LogLine:
    """Read a line, without its newline."""
    time, _, rest = line.partition(" ")
    stream, _, words = rest.partition(" ")
    if stream in frozenset(LogStream) and time[10:11] == "T" and time.endswith("Z"):
        return LogLine(time, stream, words)
    return LogLine("", "", line)


def incarnation_begins(number: int) -> str:
    """The note before what a later pod of a rank within its attempt prints: all of them share a log."""
    return f"incarnation {number} of this pod begins"


def begun_incarnation(line: LogLine) -> int | None:
    """Its number, where that is what a line says."""
    found = _INCARNATION.fullmatch(line.text) if line.stream == LogStream.NOTE else None
    return int(found[1]) if found else None


TORN = "some lines are lost here: a crash, or the storage, tore what was written"


def read_log(files: Iterable[Path | Beneath]) -> Iterator[LogLine]:
    """The lines of a pod's log, of its files in their order (history.find_logs has them so). Raises OSError.

    Where something is lost there is a line of the stream NOTE without a time.
    """
    for path in files:
        rest = ""
        for content in read_pieces(path):
            text, begin = rest + (content or b"\n").decode(errors="replace"), 0
            while (end := text.find("\n", begin)) >= 0 or len(text) - begin > MAX_MEMBER:
                end = end if end >= 0 else len(text)  # a line without an end is no longer than that either
                if end > begin:
                    yield parse_log_line(text[begin:end])
                begin = end + 1
            rest = text[begin:]
            if content is None:
                yield LogLine("", LogStream.NOTE, TORN)
        if rest:
            yield parse_log_line(rest)
