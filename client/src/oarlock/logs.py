"""Lines of logs, and which of them are wanted. `live_logs` reads them from pods, `kept_logs` from an output."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import timedelta

from oarlock_api.contract.wire import WireError, parse_object

MOST_JSON = 256 * 1024
"""Bytes of a line that may be an object."""
LINE, NOTE = "line", "note"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """One line. `time` is RFC 3339 by the node's clock; `kind`: `line`, or `note` for what this reader says itself.

    `incarnation` is above 1 where its pod was made anew within its attempt.
    """

    text: str
    kind: str = LINE
    time: str = ""
    attempt: int | None = None
    rank: int | None = None
    pod: str = ""
    incarnation: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which lines. `rank` is a pod's number, as in its name, `ranks` are several; `grep` is a regular expression.

    `tail`: of each pod only so many of its last lines at first; of attempts that begin while they are followed, all.
    `longest`: characters of a line; what is more of it is cut.
    """

    rank: int | None = None
    ranks: frozenset[int] | None = None
    attempt: int | None = None
    incarnation: int | None = None
    previous: bool = False
    since: timedelta | None = None
    grep: str | None = None
    tail: int | None = None
    longest: int | None = None

    def takes(self, rank: int) -> bool:
        """Whether this pod's lines are meant."""
        return self.rank in (None, rank) and (self.ranks is None or rank in self.ranks)

    def cut(self, line: LogLine) -> LogLine:
        """The line, no longer than it may be."""
        if self.longest is None or len(line.text) <= self.longest:
            return line
        return replace(line, text=_shortened_object(line.text, self.longest) or shortened(line.text, self.longest))


def _shortened_object(text: str, most: int) -> str:
    """A JSON object whose texts are cut, so that it is one still; empty where it is none, or too long in any case."""
    if not text.startswith("{"):
        return ""
    try:
        said = parse_object(text, max_bytes=MOST_JSON)
    except WireError:
        return ""
    for share in (2, 4, 8):
        cut = {key: shortened(value, most // share) if isinstance(value, str) else value for key, value in said.items()}
        if len(told := json.dumps(cut, ensure_ascii=False)) <= most:
            return told
    return ""


def shortened(text: str, most: int) -> str:
    """At most so many characters of a text, and how many more it has."""
    return text if len(text) <= most else f"{text[:most]}\u2026 ({len(text) - most:,} more characters)"


def instant(time: str) -> tuple[str, str]:
    """A time of the kubelet as what can be compared: its fraction may have any number of digits."""
    second, _, fraction = time.removesuffix("Z").partition(".")
    return second, fraction.ljust(9, "0")
