"""A line of a log as people read it: one line of text, its level and its time. Pure.

The trainer prints JSON: the log of its agent, and rank 0's figures of each step. Those become words. What else a pod prints,
also JSON of a program of one's own, stays as it is but for what a terminal would obey. The whole line is in `-o json`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from oarlock.clock import parsed
from oarlock.logs import MOST_JSON, LogLine, shortened
from oarlock.terminal import escaped
from oarlock_api.contract.figures import FIGURES
from oarlock_api.contract.wire import WireError, integer, number, parse_object, text

LONGEST = 2000
"""Characters of a line."""
_ANSI = re.compile(r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-_]?")
_AGENT = frozenset({"time", "level", "job", "attempt", "rank", "message"})
"""What each line of the agent's has."""

_RANK_0 = frozenset(row.line for row in FIGURES.values()) | {
    "time", "attempt", "lossByNoise", "seconds", "startSeconds", "evaluationLoss", "validation",
}  # fmt: skip
"""All that rank 0's lines may have. One with more is another program's, or a later release's: words would leave it out."""


class Level(StrEnum):
    """What people should notice. All else has none."""

    NONE = ""
    WARNING = "WARNING"
    ERROR = "ERROR"


_LEVELS = {
    "warn": Level.WARNING, "warning": Level.WARNING, "error": Level.ERROR, "critical": Level.ERROR, "fatal": Level.ERROR,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Readable:
    """One line. `time` is RFC 3339 in UTC, empty where nobody says it; `text` has neither it nor the level."""

    text: str
    level: Level = Level.NONE
    time: str = ""

    def __str__(self) -> str:
        """Level and text."""
        return f"{self.level} {self.text}" if self.level else self.text

    @property
    def clock(self) -> str:
        """Its time of the day, in UTC."""
        return self.time[11:19]


def readable(line: LogLine) -> Readable:
    """The line in words. Raises nothing, whatever a pod has printed."""
    said = _object(line.text)
    stamp = text(said.get("time"), 40)
    time = line.time or (stamp if stamp.endswith("Z") and parsed(stamp) else "")
    level = next((found for key in ("level", "levelname", "severity") if (found := _level(said.get(key)))), Level.NONE)
    if said.keys() >= _AGENT and all(isinstance(said[name], str) for name in ("level", "job", "message")):
        words: str | None = _of_agent(said)
    elif (
        "time" in said
        and said.keys() <= _RANK_0
        and integer(said.get("attempt")) is not None
        and integer(said.get("step")) is not None
    ):
        words, level = _of_figures(said)
    else:
        words = None
    return Readable(shortened(cleaned(line.text if words is None else words), LONGEST), level, time)


def is_found(pattern: re.Pattern[str], line: LogLine) -> bool:
    """Whether a pattern is in a line as it was printed, or as people read it."""
    return bool(pattern.search(line.text) or (line.text.startswith("{") and pattern.search(str(readable(line)))))


def cleaned(words: str) -> str:
    """Text on one line, without colours and orders to a terminal; of a line that was drawn anew, what came last."""
    words = _ANSI.sub("", words).rstrip("\r\n")
    if "\r" in words:
        drawn = [piece for piece in words.split("\r") if piece.strip()]  # a progress bar clears its line at last
        # Marked, so that nobody hides what stood there.
        words = f"\u2026 {drawn[-1]}" if len(drawn) > 1 else "".join(drawn)
    return escaped(" | ".join(part.strip() for part in words.split("\n")) if "\n" in words else words)


def _object(line: str) -> Mapping[str, Any]:
    if not (line.startswith("{") and line.rstrip().endswith("}")):
        return {}
    try:
        return parse_object(line, max_bytes=MOST_JSON)
    except WireError:
        return {}


def _level(said: object) -> Level:
    return _LEVELS.get(said.lower(), Level.NONE) if isinstance(said, str) else Level.NONE


def _of_agent(said: Mapping[str, Any]) -> str:
    """Its message, then what else it says: `rank 3 ended (code 83)`; stacks and tracebacks stand behind."""
    more = {key: value for key, value in said.items() if key not in _AGENT and value not in (None, "")}
    if "check" in more:  # its sentence says which, and the level how it went
        more = {key: value for key, value in more.items() if key not in ("check", "result")}
    long = [value for value in more.values() if isinstance(value, str) and "\n" in value]
    short = [
        f"{value} ms" if key == "milliseconds" else f"{_spaced(key)} {value}"
        for key, value in more.items()
        if value not in long
    ]
    words = [str(said["message"]), f"({', '.join(short)})" if short else "", *long]
    return " ".join(part for part in words if part)


def _spaced(key: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", key).lower()


def _of_figures(said: Mapping[str, Any]) -> tuple[str | None, Level]:
    """A line of metrics.jsonl in words, None where it is none that is known."""
    step = f"step {said['step']:,}"
    if isinstance(start := said.get("startSeconds"), dict):
        return _of_start(step, start), Level.NONE
    if isinstance(losses := said.get("evaluationLoss"), dict):
        return (
            f"{step}: loss on unseen data: {', '.join(f'{name} {loss}' for name, loss in losses.items())}",
            Level.NONE,
        )
    if isinstance(made := said.get("validation"), dict):
        return _of_validation(step, made)
    if "loss" not in said or "secondsPerStep" not in said:
        return None, Level.NONE
    total, loss, skipped = integer(said.get("total")), number(said["loss"]), integer(said.get("skippedUpdates"))
    parts = [
        f"{step} of {total:,}" if total else step,
        "loss is not finite" if loss is None else f"loss {_figure(loss, 4)}",
        *(
            form.format(value if "%" in form else _figure(value))
            for key, form in _FIGURES.items()
            if (value := number(said.get(key))) is not None
        ),
    ]
    waits = number(said.get("dataWaitShare")) or 0
    parts += [f"waits for data {waits:.0%}"] if waits >= 0.01 else []
    parts += [f"{skipped:,} updates skipped so far"] if skipped else []
    return ", ".join(parts), Level.WARNING if loss is None else Level.NONE


_FIGURES = {
    "secondsPerStep": "{} s/step",
    "imagesPerSecond": "{} images/s",
    "mfu": "MFU {:.0%}",
    "learningRate": "learning rate {}",
    "gradientNorm": "gradient norm {}",
}
"""Of a step's line, beside its loss."""


def _figure(value: float, digits: int = 3) -> str:
    """So many significant digits; whole, where they are thousands."""
    return f"{value:,.0f}" if 999.5 <= abs(value) < 1e9 else f"{value:.{digits}g}"


def _of_start(step: str, start: Mapping[str, Any]) -> str:
    seconds = {part: value for part, given in start.items() if (value := number(given)) is not None}
    each = ", ".join(f"{_spaced(part)} {value:.1f} s" for part, value in seconds.items())
    return f"{step}: the start took {sum(seconds.values()):.1f} s ({each})"


def _of_validation(step: str, made: Mapping[str, Any]) -> tuple[str, Level]:
    failed, left_out = integer(made.get("failed")), integer(made.get("leftOut"))
    parts = [f"{integer(made.get('pictures')) or 0:,} pictures in {number(made.get('seconds')) or 0:.1f} s"]
    parts += [f"{failed:,} failed"] if failed else []
    parts += [f"{left_out:,} left out"] if left_out else []
    return f"{step}: validation made {', '.join(parts)}", Level.WARNING if failed else Level.NONE
