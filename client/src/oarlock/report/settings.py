"""The job's settings as a table that is folded away."""

from __future__ import annotations

from oarlock.facts.model import Facts
from oarlock.report.markup import Html, cut, element
from oarlock.report.words import when, whole
from oarlock.story import Story
from oarlock_api.contract.wire import integer, text

MOST_ROWS = 400


def settings(story: Story, facts: Facts) -> Html:
    """The section; what is not known is said in it."""
    heading = element("h2", "Settings", id="settings")
    if not story.settings:
        words = element("p", "The job's object is not at hand, and its output does not keep them.", class_="dim")
        return element("section", heading, words, aria_labelledby="settings")
    body = [
        element("tr", element("th", element("code", one.path), scope="row"), element("td", cut(one.value, 400)))
        for one in story.settings[:MOST_ROWS]
    ]
    notes = []
    if facts.job is None and (kept := facts.output.spec if facts.output else None):
        told = (
            f"As attempt {whole(integer(kept.get('attempt')))} began with them at {when(text(kept.get('time'), 40))}."
        )
        notes.append(element("p", told, class_="dim"))
    if len(story.settings) > MOST_ROWS:
        notes.append(element("p", f"{len(story.settings) - MOST_ROWS:,} more are left out.", class_="dim"))
    table = element("table", element("tbody", *body))
    folded = element(
        "details",
        element("summary", f"{len(story.settings):,} fields of the job"),
        element("div", table, class_="wide", tabindex="0"),
    )
    return element("section", heading, folded, *notes, aria_labelledby="settings")
