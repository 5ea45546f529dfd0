"""Times and phases, as all views show them."""

from __future__ import annotations

from oarlock.report.markup import Html, element
from oarlock.report.words import DASH, when

TONES = {"Running": "good", "Succeeded": "good", "Failed": "bad", "Recovering": "warn"}


def phase_badge(phase: str) -> Html:
    """The phase; green where all is well, amber where the job is being mended, red where it has failed."""
    return element("span", phase, class_=f"badge {TONES.get(phase, '')}".rstrip())


def time_ago(time: str | None) -> Html:
    """A time in RFC 3339. live.js shows how long ago it was, and goes on with it; without a script it is UTC."""
    return element("time", when(time), datetime=time, data_ago=True) if time else element("span", DASH)
