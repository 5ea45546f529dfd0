"""The page: its head with the policy for its content, the summary, and the sections below it."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files

from oarlock.explain import explain
from oarlock.facts import Facts
from oarlock.report import tables
from oarlock.report.curves import curves
from oarlock.report.gallery import gallery
from oarlock.report.links import Links, xids_of
from oarlock.report.markup import Html, element
from oarlock.report.pictures import Gallery
from oarlock.report.settings import settings
from oarlock.report.summary import summary, title_of
from oarlock.report.timeline import timeline
from oarlock.report.unseen import unseen
from oarlock.report.words import when


def report(facts: Facts, pictures: Gallery | None = None) -> str:
    """The page as text. The same facts and pictures give the same page."""
    story = explain(facts)
    links = Links(xids=xids_of(story, tables.with_faults(story)))
    style = _file("style.css")
    script = _file("slider.js") if pictures and pictures.steps else ""
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
        element("title", f"{title_of(story)}: {story.now.phase}"),
        element("style", Html(style)),
    )
    body = element(
        "body",
        element(
            "main",
            summary(story, facts),
            curves(story.curve),
            unseen(story.unseen),
            timeline(story),
            gallery(pictures) if pictures else None,
            tables.faults(story),
            tables.cordons(story.cordons, links),
            tables.attempts(story),
            tables.chain(story.chain, links),
            settings(story, facts),
            tables.unknown(story.unknown),
        ),
        element("footer", f"As known at {when(story.time)} UTC. All times are UTC.", class_="dim"),
        element("script", Html(script)) if script else None,
    )
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


def _file(name: str) -> str:
    return files("oarlock.report").joinpath(name).read_text(encoding="utf-8")


def _hash(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
