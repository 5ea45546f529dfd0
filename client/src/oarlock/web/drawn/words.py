"""Times and phases, as all views show them."""

from __future__ import annotations

from oarlock.report.markup import Html, element
from oarlock.report.words import DASH, when

GOOD, BAD = frozenset({"Running", "Succeeded"}), frozenset({"Failed"})


def phase_badge(phase: str) -> Html:
    """The phase; green where all is well, red where the job has failed."""
    tone = " good" if phase in GOOD else " bad" if phase in BAD else ""
    return element("span", phase, class_=f"badge{tone}")


def time_ago(time: str | None) -> Html:
    """A time in RFC 3339. live.js shows how long ago it was, and goes on with it; without a script it is UTC."""
    return element("time", when(time), datetime=time, data_ago=True) if time else element("span", DASH)
