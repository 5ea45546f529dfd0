"""A job's curve, step by step: `?axis=time` runs over time, `?last=100` shows the last steps alone."""

from __future__ import annotations

from oarlock.errors import NotNowError, OarlockError, UnknownCallerError
from oarlock.explain import explain
from oarlock.facts.model import Facts
from oarlock.leader import find_leader
from oarlock.report.curves import Axis
from oarlock.web.ask import Ask, Page, View
from oarlock.web.drawn.curve import LAST, Choice, curve, with_live
from oarlock.web.live_figures import LiveFigures
from oarlock.web.outputs import find_output
from oarlock.web.watch.jobs import known_job

_PHASES_WITH_PODS = frozenset({"Running", "Recovering", "Starting"})


def draw(ask: Ask) -> View:
    """What is known: from the status, from the agent while the job runs, from its output where that is mounted."""
    namespace, name = ask.name("namespace"), ask.name("name")
    cluster = ask.cluster  # what is drawn comes of this caller's own requests: nobody else is given it
    known = known_job(ask)
    job = known.object
    last = ask.query("last")
    choice = Choice(
        namespace=namespace,
        job=name,
        axis=Axis.TIME if ask.query("axis") == Axis.TIME else Axis.STEPS,
        last=int(last) if last in {str(one) for one in LAST} else 0,
    )
    output, words = None, ""
    try:
        if found := find_output(ask, job):
            output = found.read()
    except NotNowError as error:
        words = str(error)
    facts = Facts(namespace=namespace, name=name, time=f"{ask.now:%Y-%m-%dT%H:%M:%SZ}", job=job, output=output)
    points = explain(facts).curve
    if known.row.phase in _PHASES_WITH_PODS:
        key = (namespace, name, str(job["metadata"]["uid"]))
        try:
            live = ask.shelf.of(LiveFigures).of(
                ask.caller.identity,
                key,
                lambda: find_leader(cluster, namespace=namespace, job=name, uid=key[2]),
                attempt=known.row.attempt or 0,
            )
            points = with_live(points, live.attempt, live.steps)
        except UnknownCallerError:
            raise
        except OarlockError as error:
            words = f"{words} {error}".strip()
    return curve(choice, points, words)


PAGES = (Page(path="/jobs/{namespace}/{name}/curve", draw=draw, tab="Jobs", own=True, asks_pods=True),)
