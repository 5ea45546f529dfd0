"""One job: `?axis=time` has its curve run over time, `?attempt=3` shows that attempt alone.

It is drawn from watched lists alone, once for all who look at it. Each step of a job that runs is on the page of its curve,
which asks the job's own pod as the caller.
"""

from __future__ import annotations

from dataclasses import replace

from oarlock.errors import NotNowError
from oarlock.explain import explain
from oarlock.facts import Facts, Missing
from oarlock.facts.cluster import from_cluster
from oarlock.facts.model import Object
from oarlock.rows import job_row
from oarlock.web.ask import Ask, Page, View
from oarlock.web.drawn.job import Choice, job
from oarlock.web.outputs import find_output
from oarlock.web.watch.reading import reader


def draw(ask: Ask) -> View:
    """All about it. Raises NotFoundError where nothing of it is there."""
    namespace, name = ask.name("namespace"), ask.name("name")
    facts = from_cluster(reader(ask), namespace=namespace, name=name, now=ask.now)
    choice = Choice.of(axis=ask.query("axis"), attempt=ask.query("attempt"))
    row = job_row(facts.job) if facts.job else None
    if facts.job and row and (row.finished or row.phase == "Suspended"):
        facts = _with_output(ask, facts, facts.job)
    return job(explain(facts), facts, choice, row=row if ask.settings.actions else None)


def _with_output(ask: Ask, facts: Facts, job: Object) -> Facts:
    """It takes no right but that to the lists: what is drawn of it is what a status, pods and Events told while it ran."""
    try:
        found = find_output(ask, job)
        return replace(facts, output=found.read() if found else None)
    except NotNowError as error:
        return replace(facts, missing=(*facts.missing, Missing(what="the output", why=str(error))))


PAGES = (Page(path="/jobs/{namespace}/{name}", draw=draw, tab="Jobs"),)
