"""The jobs of a namespace, or of all: `?text=` is looked for in name, message and last fault, `?phase=` is one phase."""

from __future__ import annotations

from oarlock.web.ask import Ask, Page, View
from oarlock.web.drawn.jobs import Filter, jobs
from oarlock.web.watch.jobs import jobs_of


def draw(ask: Ask) -> View:
    """The list."""
    namespace = ask.name("namespace") if "namespace" in ask.path else None
    known = ask.watched(jobs_of(namespace)).objects.values()
    chosen = Filter(namespace=namespace, text=ask.query("text"), phase=ask.query("phase"))
    return jobs(tuple(known), chosen)


PAGES = (Page(path="/jobs", draw=draw, tab="Jobs"), Page(path="/jobs/{namespace}", draw=draw, tab="Jobs"))
