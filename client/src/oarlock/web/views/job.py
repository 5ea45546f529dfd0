"""One job: `?axis=time` has its curve run over time, `?attempt=3` shows that attempt alone."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from oarlock.explain import explain
from oarlock.facts.cluster import from_cluster
from oarlock.facts.folder import NoOutputError, read_output
from oarlock.facts.model import Facts, Output
from oarlock.rows import job_row
from oarlock.web.ask import Ask, Page, View
from oarlock.web.drawn.job import Choice, job
from oarlock.web.figures import LiveFigures, with_figures
from oarlock.web.outputs import find_output
from oarlock.web.watch.reading import reader
from oarlock_api.contract.history import METRICS


def draw(ask: Ask) -> View:
    """All about it. Raises NotFoundError where nothing of it is there."""
    namespace, name = ask.name("namespace"), ask.name("name")
    facts = _with_curve(ask, from_cluster(reader(ask), namespace=namespace, name=name, now=ask.now))
    choice = Choice.of(axis=ask.query("axis"), attempt=ask.query("attempt"))
    row = job_row(facts.job) if facts.job and ask.settings.actions else None
    return job(explain(facts), facts, choice, row=row)


def _with_curve(ask: Ask, facts: Facts) -> Facts:
    """With each step's figures: of a job that trains by its leader, of one that does not by its output, if it is mounted."""
    if facts.job is None:
        return facts
    if job_row(facts.job).phase == "Running":
        rows = ask.shelf.of(LiveFigures).of(ask.cluster, ask.caller.identity, facts.job)
        return replace(facts, job=with_figures(facts.job, rows))
    folder = find_output(ask.settings.outputs, facts.job)
    if folder is None:
        return facts
    with suppress(NoOutputError, OSError):
        return replace(facts, output=_output(folder, _changed(folder)))
    return facts


def _changed(folder: Path) -> float:
    try:
        return (folder / METRICS).stat().st_mtime
    except OSError:
        return 0.0


@lru_cache(maxsize=8)
def _output(folder: Path, _: float) -> Output:
    return read_output(folder)[0]


PAGES = (Page(path="/jobs/{namespace}/{name}", draw=draw, tab="Jobs"),)
