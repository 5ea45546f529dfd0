"""How it stands: phase, the sentence that matters with what to do next, how far it is, and what it lost on the way."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from oarlock import in_words
from oarlock.clock import parsed
from oarlock.explain.attempts import last_trouble
from oarlock.explain.causes import named
from oarlock.explain.settings import spec_of
from oarlock.facts import Facts
from oarlock.parts import part
from oarlock.report.links import Links
from oarlock.report.markup import Child, Html, cut, element, joined
from oarlock.report.words import DASH, duration, figure, instant, when, whole
from oarlock.story import Story
from oarlock_api.contract.figures import parse_line
from oarlock_api.contract.wire import integer, text

_GOOD = {"Running", "Succeeded"}
_BAD = {"Failed"}
MOST_EVIDENCE = 3
MOST_DETAILS = 20
_UNITS = (("hours", 3600), ("minutes", 60), ("seconds", 1))
_SMALL = 10
"""Below it, a count has a decimal."""


def title_of(story: Story) -> str:
    """Namespace and name."""
    return f"{story.namespace}/{story.name}" if story.namespace else story.name


def summary(story: Story, facts: Facts, links: Links | None = None) -> Html:
    """The header."""
    links = links or Links()
    now = story.now
    style = "good" if now.phase in _GOOD or now.cause == "Succeeded" else "bad" if now.phase in _BAD else "plain"
    cause = named(now.cause)
    meaning = cause.meaning if cause else ""
    step, total = _steps(story, facts)
    told = [
        _entry("Step", whole(step), f"of {whole(total)}" if total else ""),
        _entry("Loss", figure(_last([point.loss for point in story.curve]))),
        _entry("Seconds per step", figure(_last([point.seconds_per_step for point in story.curve]))),
        _time_left(story),
        _last_fault(story, links),
        _gpus(facts),
        _entry(links.word("attempt", "Attempts"), whole(story.attempts[-1].number) if story.attempts else DASH),
        _goodput(facts, links),
    ]
    figures = element("dl", *told)
    share = None
    if step is not None and total:
        bar = element("progress", f"{min(step / total, 1):.0%}", value=str(min(step, total)), max=str(total))
        share = element("p", bar, class_="progress")
    seen = story.trouble.evidence if story.trouble and story.trouble.cause == now.cause else ()
    details = [element("li", links.said(cut(one, 600), in_full=True)) for one in now.details[:MOST_DETAILS]]
    next_ = links.advice(now.next, attempt=story.trouble.attempt if story.trouble else None)
    evidence = [
        element("li", f"{in_words.source(one.source)}: ", links.said(cut(one.text, 1024), in_full=True))
        for one in seen[:MOST_EVIDENCE]
        if one.text not in now.message
    ]
    return element(
        "header",
        element("h1", cut(title_of(story), 400), element("span", now.phase, class_=f"badge {style}")),
        element("p", element("strong", now.cause), f", {meaning}" if meaning else None, class_="cause"),
        element("p", links.said(cut(now.message, 1500), in_full=True)) if now.message not in ("", meaning) else None,
        element("ul", *details, class_="details") if details else None,
        _rests_on(evidence, folded=bool(details)),
        element("p", element("span", "Next: ", class_="dim"), next_, class_="next") if now.next else None,
        share,
        figures,
        element("p", joined("Output: ", element("code", story.directory)), class_="dim") if story.directory else None,
    )


def _rests_on(evidence: Sequence[Html], *, folded: bool) -> Html | None:
    """Others' own words; folded away where our reading of them stands above."""
    if not evidence:
        return None
    told = element("ul", *evidence, class_="evidence")
    return element("details", element("summary", "What it rests on"), told) if folded else told


def _time_left(story: Story) -> Html:
    left = story.now.eta_seconds if story.now.phase == "Running" else None
    now = parsed(story.time)
    if left is None or now is None:
        return _entry("Time left", duration(left))
    try:
        over = now + timedelta(seconds=left)
    except OverflowError:
        return _entry("Time left", duration(left))
    return _entry("Time left", duration(left), f"until {over:%b} {over.day}, {over:%H:%M} UTC")


def _last_fault(story: Story, links: Links) -> Html:
    """That of the newest attempt that met one, whether it ended the attempt or a round."""
    fault = last_trouble(story.attempts)
    if fault is None:
        return _entry("Last fault", DASH)
    now, then = instant(story.time), instant(fault.time)
    ago = f"{duration(now - then)} ago" if now is not None and then is not None and now > then else when(fault.time)
    where = f"on {fault.node}" if fault.node else ""
    told = " ".join(one for one in (ago if fault.time else "", where) if one)
    return _entry("Last fault", cut(fault.cause, 100), links.said(cut(told, 300)), title=cut(fault.message, 600))


def _goodput(facts: Facts, links: Links) -> Html:
    """The share of the GPUs' time that made progress: without recovery, and without steps that were done again."""
    status = part(facts.job or {}, "status")
    name = links.word("goodput", "Goodput")
    held, wasted = integer(status.get("gpuSeconds")), integer(status.get("wastedGPUSeconds")) or 0
    if not held:
        return _entry(name, DASH)
    useful = max(held - wasted, 0)
    unit, size = next(((unit, size) for unit, size in _UNITS if held >= size), _UNITS[-1])
    of = f"of {_count(held / size)} GPU {unit}"
    if not useful:
        return _entry(name, DASH, title=f"none {of} made progress")
    return _entry(name, f"{useful / held:.1%}", of, title=f"{_count(useful / size)} {of} made progress")


def _count(value: float) -> str:
    """With one decimal where it is small."""
    return f"{value:,.1f}" if value < _SMALL else f"{value:,.0f}"


def _entry(name: Child, value: str, more: str = "", title: str | None = None) -> Html:
    """A figure, and in small what it is of."""
    return element(
        "div", element("dt", name), element("dd", value, element("small", more) if more else None, title=title)
    )


def _steps(story: Story, facts: Facts) -> tuple[int | None, int | None]:
    """The step that was done last, and how many there are to be: by the status, else by the output."""
    last = story.curve[-1].step if story.curve else None
    step = story.now.step if story.now.step is not None else last
    if facts.job is None and last is not None:
        step = max(last, step or 0)
    total = story.now.total_steps
    if total is None and facts.output and facts.output.metrics:
        known = (parse_line(row).total_steps for row in reversed(facts.output.metrics))
        total = next((one for one in known if one is not None), None)
    return step, total


def _last(values: Sequence[float | None]) -> float | None:
    return next((value for value in reversed(values) if value is not None), None)


def _gpus(facts: Facts) -> Html:
    """Nodes x GPUs on each, as the job asks for them, or as its last attempt was begun with."""
    told = spec_of(facts)
    if not told and facts.output:
        started = (line for line in reversed(facts.output.history) if text(line.get("type")) == "AttemptStarted")
        told = next((data for line in started if (data := part(line, "data")).get("nodes")), {})
    nodes, each = integer(told.get("nodes")), integer(told.get("gpusPerNode"))
    if nodes is None or each is None:
        return _entry("GPUs", DASH)
    return _entry("GPUs", whole(nodes * each), f"{whole(nodes)} \u00d7 {each}")
