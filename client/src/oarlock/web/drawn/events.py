"""Events of the job, its pods and its claim, the newest first."""

from __future__ import annotations

from oarlock.facts import Facts
from oarlock.report.links import Links
from oarlock.report.markup import Html, cut, element
from oarlock.report.parts import at, row, section, table
from oarlock.rows import event_rows

MOST = 100
_COLUMNS = ("Last seen (UTC)", "Reason", "About", "What it says")


def events(facts: Facts, links: Links) -> Html:
    """The section; that there are none is said in it."""
    found = event_rows([dict(one) for one in facts.events], job=facts.name)
    if not found:
        words = "There are none: the API server keeps them for an hour."
        denied = next((one.why for one in facts.missing if one.what == "Events"), "")
        return section("Events", element("p", f"They could not be had: {denied}." if denied else words, class_="dim"))
    rows = (
        row(
            _COLUMNS,
            [
                at(one.time),
                element("strong", cut(one.reason, 100)) if one.type == "Warning" else cut(one.reason, 100),
                cut(one.about, 200),
                links.said(cut(one.message, 600) + (f" ({one.count} times)" if one.count > 1 else "")),
            ],
        )
        for one in reversed(found[-MOST:])
    )
    more = (
        element("p", f"{len(found) - MOST:,} earlier ones are left out.", class_="dim") if len(found) > MOST else None
    )
    return section("Events", table(_COLUMNS, rows), more)
