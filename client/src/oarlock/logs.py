"""Lines of logs, and which of them are wanted. `live_logs` reads them from pods, `kept_logs` from an output."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

LINE, NOTE = "line", "note"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """One line. `time` is RFC 3339 by the node's clock; `kind`: `line`, or `note` for what this reader says itself."""

    text: str
    kind: str = LINE
    time: str = ""
    attempt: int | None = None
    rank: int | None = None
    pod: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which lines. `rank` is a pod's number, as in its name; `grep` a regular expression."""

    rank: int | None = None
    attempt: int | None = None
    previous: bool = False
    since: timedelta | None = None
    grep: str | None = None


def instant(time: str) -> tuple[str, str]:
    """A time of the kubelet as what can be compared: its fraction may have any number of digits."""
    second, _, fraction = time.removesuffix("Z").partition(".")
    return second, fraction.ljust(9, "0")
