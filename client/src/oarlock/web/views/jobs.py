"""The jobs of a namespace, or of all: `?text=` is looked for in name, message and last fault, `?phase=` is one phase."""

from __future__ import annotations

from urllib.parse import quote

from starlette.responses import RedirectResponse, Response

from oarlock.checked_name import checked_name
from oarlock.errors import ForbiddenError, UnknownCallerError
from oarlock.web.ask import Ask, Page, Read, View
from oarlock.web.drawn.jobs import Filter, jobs, which_namespace
from oarlock.web.watch.jobs import jobs_of

NAMESPACE = "oarlock-namespace"
"""The cookie that has the namespace whose jobs `/` leads to."""
YEAR = 365 * 86400


def draw(ask: Ask) -> View:
    """The list; who may not see those of all namespaces is asked for one."""
    namespace = ask.name("namespace") if "namespace" in ask.path else None
    try:
        known = ask.watched(jobs_of(namespace)).objects.values()
    except UnknownCallerError:
        raise
    except ForbiddenError as error:
        return which_namespace(str(error), namespace)
    return jobs(tuple(known), Filter(namespace=namespace, text=ask.query("text"), phase=ask.query("phase")))


def choose(ask: Ask) -> Response:
    """`?name=` of a namespace, from the form that asks for it; kept, so that `/` leads there. Raises RefusedError."""
    name = checked_name(ask.query("name"), "namespace")
    response = RedirectResponse(f"/jobs/{quote(name)}", 303)
    response.set_cookie(NAMESPACE, name, max_age=YEAR, httponly=True, samesite="strict")
    return response


PAGES = (Page(path="/jobs", draw=draw, tab="Jobs"), Page(path="/jobs/{namespace}", draw=draw, tab="Jobs"))
READS = (Read(path="/namespace", answer=choose),)
