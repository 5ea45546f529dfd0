"""The page: its head with the policy for its content, the summary, and the sections below it."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib.resources import files

from oarlock.explain import explain
from oarlock.explain.causes import named
from oarlock.explain.settings import spec_of
from oarlock.facts import Facts
from oarlock.report import tables
from oarlock.report.curves import curves
from oarlock.report.gallery import gallery
from oarlock.report.markup import Child, Html, cut, element, joined, with_code
from oarlock.report.pictures import Gallery
from oarlock.report.settings import settings
from oarlock.report.timeline import timeline
from oarlock.report.words import DASH, duration, figure, when, whole
from oarlock.story import Story
from oarlock_api.contract.figures import parse_line
from oarlock_api.contract.wire import integer, text

_GOOD = {"Running", "Succeeded"}
_BAD = {"Failed"}


def report(facts: Facts, pictures: Gallery | None = None) -> str:
    """The page as text. The same facts and pictures give the same page."""
    story = explain(facts)
    style = _file("style.css")
    script = _file("slider.js") if pictures and pictures.steps else ""
    title = f"{story.namespace}/{story.name}" if story.namespace else story.name
    may_run = _hash(script) if script else "'none'"
    policy = (
        f"default-src 'none'; style-src {_hash(style)}; script-src {may_run}; "
        "img-src data: 'self' file:; base-uri 'none'; form-action 'none'"
    )
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="referrer", content="no-referrer"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", f"{title}: {story.now.phase}"),
        element("style", Html(style)),
    )
    body = element(
        "body",
        element(
            "main",
            _summary(title, story, facts),
            curves(story.curve),
            timeline(story),
            gallery(pictures) if pictures else None,
            tables.faults(story),
            tables.cordons(story.cordons),
            tables.attempts(story),
            tables.chain(story.chain),
            settings(story, facts),
            tables.unknown(story.unknown),
        ),
        element("footer", f"As known at {when(story.time)} UTC. All times are UTC.", class_="dim"),
        element("script", Html(script)) if script else None,
    )
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


def _summary(title: str, story: Story, facts: Facts) -> Html:
    now = story.now
    style = "good" if now.phase in _GOOD or now.cause == "Succeeded" else "bad" if now.phase in _BAD else "plain"
    cause = named(now.cause)
    step, total = _steps(story, facts)
    rows: list[tuple[str, Child]] = [
        ("Step", f"{whole(step)} of {whole(total)}" if total else whole(step)),
        ("Loss", figure(_last([point.loss for point in story.curve]))),
        ("Seconds per step", figure(_last([point.seconds_per_step for point in story.curve]))),
        ("GPUs", _gpus(facts)),
        ("Attempts", whole(story.attempts[-1].number) if story.attempts else DASH),
        ("Time left", duration(now.eta_seconds) if now.phase == "Running" else DASH),
    ]
    figures = element("dl", *(element("div", element("dt", name), element("dd", value)) for name, value in rows))
    share = None
    if step is not None and total:
        bar = element("progress", f"{min(step / total, 1):.0%}", value=str(min(step, total)), max=str(total))
        share = element("p", bar, class_="progress")
    seen = story.trouble.evidence if story.trouble and story.trouble.cause == now.cause else ()
    evidence = [
        element("li", f"{one.source}: {cut(one.text, 1024)}") for one in seen[:3] if one.text not in now.message
    ]
    return element(
        "header",
        element("h1", cut(title, 400), element("span", now.phase, class_=f"badge {style}")),
        element("p", element("strong", now.cause), f", {cause.meaning}" if cause else None, class_="cause"),
        element("p", cut(now.message, 1500)) if now.message else None,
        element("ul", *evidence, class_="evidence") if evidence else None,
        element("p", element("span", "Next: ", class_="dim"), with_code(now.next), class_="next") if now.next else None,
        share,
        figures,
        element("p", joined("Output: ", element("code", story.directory)), class_="dim") if story.directory else None,
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


def _gpus(facts: Facts) -> str:
    """Nodes x GPUs on each, as the job asks for them, or as its last attempt was begun with."""
    told = spec_of(facts)
    if not told and facts.output:
        started = (line for line in reversed(facts.output.history) if text(line.get("type")) == "AttemptStarted")
        told = next((data for line in started if (data := line.get("data") or {}).get("nodes")), {})
    nodes, each = integer(told.get("nodes")), integer(told.get("gpusPerNode"))
    if nodes is None or each is None:
        return DASH
    return f"{nodes * each:,} ({nodes:,} \u00d7 {each})"


def _file(name: str) -> str:
    return files("oarlock.report").joinpath(name).read_text(encoding="utf-8")


def _hash(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
