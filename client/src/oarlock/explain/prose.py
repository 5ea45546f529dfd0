"""A story in words for people: the chain, then how it stands now, and what to do next. Five to twenty-five lines.

Times are in UTC. What others wrote stands in it without control characters.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence

from oarlock import in_words
from oarlock.story import Moment, Story
from oarlock.terminal import escaped

MOST_MOMENTS = 16
"""Of a chain that is longer, the first and the last are shown."""
MOST_EVIDENCE = 3
MOST_DETAILS = 4
_INDENT = 10
_COMMAND = re.compile("`[^`]*`")
_GLUE = "\x00"
"""In the place of a space; `escaped` leaves none of these."""


def prose(story: Story, *, width: int = 110) -> str:
    """The whole answer of `oarlock why`, without a newline at its end."""
    return "\n".join(_lines(story, width))


def _lines(story: Story, width: int) -> Iterator[str]:
    now = story.now
    where = f"{story.namespace}/{story.name}" if story.namespace else story.name
    step = (
        f", step {now.step:,}" + (f" of {now.total_steps:,}" if now.total_steps else "") if now.step is not None else ""
    )
    yield escaped(f"{where}: {now.phase}{step}")
    yield ""
    day = ""
    for moment in _shown(story.chain):
        if moment is None:
            yield f"{'...':<{_INDENT}}"
            continue
        if moment.time[:10] != day:
            day = moment.time[:10]
            yield f"{day} (UTC)"
        yield from _wrapped(moment.time[11:19], f"{moment.what}: {moment.text}", width)
    yield ""
    yield from _wrapped("Now", f"{now.cause}: {now.message}", width)
    for detail in now.details[:MOST_DETAILS]:
        yield from _wrapped("", f"- {detail}", width)
    told = story.trouble
    if told and told.cause == now.cause:
        for one in [one for one in told.evidence if one.text not in now.message][:MOST_EVIDENCE]:
            yield from _wrapped("", f"{in_words.source(one.source)}: {one.text}", width)
    yield from _wrapped("Next", now.next, width, most=6)
    if story.unknown:
        yield from _wrapped("Unknown", "; ".join(f"{one.what} ({one.why})" for one in story.unknown), width)


def _shown(chain: Sequence[Moment]) -> list[Moment | None]:
    if len(chain) <= MOST_MOMENTS:
        return list(chain)
    return [*chain[:4], None, *chain[4 - MOST_MOMENTS :]]


def _wrapped(head: str, body: str, width: int, most: int = 3) -> Iterator[str]:
    """At most so many lines; the JSON has all of it. A command stays in one line, as far as it fits, to be copied."""
    text = _COMMAND.sub(lambda found: found[0].replace(" ", _GLUE), escaped(" ".join(body.split())))
    wrap = textwrap.TextWrapper(width - _INDENT, max_lines=most, placeholder=" ...", break_on_hyphens=False)
    for place, line in enumerate(wrap.wrap(text) or [""]):
        yield f"{head if place == 0 else '':<{_INDENT}}{line.replace(_GLUE, ' ')}".rstrip()
