"""One job: `?axis=time` has its curve run over time, `?attempt=3` shows that attempt alone.

It is drawn from watched lists alone, once for all who look at it. Each step of a job that runs is on the page of its curve,
which asks the job's own pod as the caller.
"""

from __future__ import annotations

from dataclasses import replace

from oarlock.explain import explain
from oarlock.facts.cluster import from_cluster
from oarlock.rows import job_row
from oarlock.web.ask import Ask, Page, View
from oarlock.web.drawn.job import Choice, job
from oarlock.web.outputs import output_of
from oarlock.web.watch.reading import reader


def draw(ask: Ask) -> View:
    """All about it. Raises NotFoundError where nothing of it is there."""
    namespace, name = ask.name("namespace"), ask.name("name")
    facts = from_cluster(reader(ask), namespace=namespace, name=name, now=ask.now)
    choice = Choice.of(axis=ask.query("axis"), attempt=ask.query("attempt"))
    row = job_row(facts.job) if facts.job else None
    if facts.job and row and (row.finished or row.phase == "Suspended"):
        facts = replace(facts, output=output_of(ask.settings.outputs, facts.job))
    return job(explain(facts), facts, choice, row=row if ask.settings.actions else None)


PAGES = (Page(path="/jobs/{namespace}/{name}", draw=draw, tab="Jobs"),)
