"""One job: `?axis=time` has its curve run over time, `?attempt=3` shows that attempt alone."""

from __future__ import annotations

from oarlock.explain import explain
from oarlock.facts.cluster import from_cluster
from oarlock.rows import job_row
from oarlock.web.ask import Ask, Page, View
from oarlock.web.drawn.job import Choice, job
from oarlock.web.watch.reading import reader


def draw(ask: Ask) -> View:
    """All about it. Raises NotFoundError where nothing of it is there."""
    namespace, name = ask.name("namespace"), ask.name("name")
    facts = from_cluster(reader(ask), namespace=namespace, name=name, now=ask.now)
    choice = Choice.of(axis=ask.query("axis"), attempt=ask.query("attempt"))
    row = job_row(facts.job) if facts.job and ask.settings.actions else None
    return job(explain(facts), facts, choice, row=row)


PAGES = (Page(path="/jobs/{namespace}/{name}", draw=draw, tab="Jobs"),)
