"""Actions: a page that asks first, at the address where its form is sent. Each is the SDK's own method, as the caller."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from starlette.responses import RedirectResponse, Response

from oarlock.client import Client
from oarlock.errors import (
    ForbiddenError,
    JobNotRunningError,
    NotFoundError,
    NotNowError,
    OarlockError,
    WaitTimeoutError,
)
from oarlock.job import Job
from oarlock.parts import part
from oarlock.report.markup import element
from oarlock.rows import JobRow, NodeRow, job_row, node_rows
from oarlock.web.ask import Ask, Page, Post, View
from oarlock.web.drawn import actions as drawn
from oarlock.web.drawn.actions import ACTIONS, Action
from oarlock.web.drawn.plain import notice
from oarlock.web.signature import Signature, sign
from oarlock.web.views.nodes import avoiding

STOP_SECONDS = 1800.0
"""Within which a job that is stopped has to leave its nodes, to be deleted then."""
MOST_STOPPING = 64
_stopping: set[str] = set()
"""The uids of jobs whose pods' leaving is waited for."""
_stopping_lock = threading.Lock()
log = logging.getLogger("oarlock.web")


def _ask_job(action: Action) -> Callable[[Ask], View]:
    def draw(ask: Ask) -> View:
        _check_on(ask)
        found = _job(ask).manifest
        row = job_row(found)
        if _is_asked(action, row, found):
            raise NotNowError(f"{action.word} is asked for already: {row.name} is {row.phase}")
        _check_fits(action, row)
        return View(
            title=f"{action.word} {row.name}?", body=drawn.ask_job(action, row, uid=_uid(found), csrf=ask.csrf())
        )

    return draw


def _act_on_job(action: Action) -> Callable[[Ask, Mapping[str, str]], Response]:
    def act(ask: Ask, form: Mapping[str, str]) -> Response:
        _check_on(ask)
        found = _job(ask).manifest
        row = job_row(found)
        _check_same(found, form, row.name)
        if _is_asked(action, row, found):  # a second click
            return RedirectResponse(drawn.job_address(row), 303)
        _check_fits(action, row)
        signature = sign(ask.cluster, action.word)
        job = _job(ask, signature.metadata(_uid(found)))
        _DO[action.word](job, row, found, signature)
        if action.ends and row.finished:  # deleted: an Event says so
            return RedirectResponse(f"/jobs/{row.namespace}", 303)
        return _back(drawn.job_address(row), _told(signature, found))

    return act


def _suspend(job: Job, *_: Any) -> None:
    job.suspend()


def _resume(job: Job, *_: Any) -> None:
    job.resume()


def _save(job: Job, *_: Any) -> None:
    with suppress(WaitTimeoutError):  # the job's page shows the answer
        job.save(timeout=0)


def _stop(job: Job, row: JobRow, found: Mapping[str, Any], signature: Signature) -> None:
    if row.finished:
        _tell_end(job, found, signature)
        return
    uid = _uid(found)
    with _stopping_lock:
        if uid in _stopping:
            return
        if len(_stopping) >= MOST_STOPPING:
            raise NotNowError("many jobs are being stopped here already: try again in a minute, or `oarlock stop` it")
        _stopping.add(uid)
    try:
        job.suspend()  # refused at once, where that is not the caller's right
        threading.Thread(target=_end, args=(job, found, signature), name=f"stop {row.name}", daemon=True).start()
    except BaseException:
        _stopping.discard(uid)
        raise


def _end(job: Job, found: Mapping[str, Any], signature: Signature) -> None:
    try:
        _tell_end(job, found, signature)
    except (JobNotRunningError, NotFoundError):  # somebody else was quicker
        signature.event(found, "Done", f"{signature.person} had it stopped by the page, and it was deleted meanwhile")
    except OarlockError as error:
        log.warning("%s/%s was not stopped: %s", job.namespace, job.name, error)
        signature.event(
            found,
            "Failed",
            f"{signature.person} had it stopped by the page, and it is not deleted: {error}",
            warning=True,
        )
    finally:
        _stopping.discard(_uid(found))


def _tell_end(job: Job, found: Mapping[str, Any], signature: Signature) -> None:
    step = job.stop(timeout=STOP_SECONDS)
    saved = f"its newest checkpoint is of step {step}" if step is not None else "without a checkpoint"
    signature.event(found, "Done", f"deleted for {signature.person}, by the page; {saved}")


_DO: Mapping[str, Callable[[Job, JobRow, Mapping[str, Any], Signature], None]] = {
    "Suspend": _suspend,
    "Resume": _resume,
    "Save": _save,
    "Stop": _stop,
}


def _ask_node(ask: Ask) -> View:
    _check_on(ask)
    node = _node(ask)
    held = _held_back(ask, node)
    if held is None:
        raise NotNowError(f"{ask.name('node')} is not cordoned, and no job avoids it: there is nothing to uncordon")
    row, jobs = held
    return View(
        title=drawn.uncordon_title(row), body=drawn.ask_node(row, avoided_by=jobs, uid=_uid(node), csrf=ask.csrf())
    )


def _held_back(ask: Ask, node: Mapping[str, Any]) -> tuple[NodeRow, list[str]] | None:
    """A node that is kept from jobs, and which of them avoid it; None where nothing keeps it from any.

    Where the caller may not read the jobs, nobody says that none avoids it.
    """
    row = next(iter(node_rows([node])), None)
    if row is None:
        return None
    jobs = avoiding(ask, row)
    return (row, jobs or []) if row.cordoned or jobs or jobs is None else None


def _uncordon(ask: Ask, form: Mapping[str, str]) -> Response:
    _check_on(ask)
    node = _node(ask)
    name = ask.name("node")
    _check_same(node, form, name)
    held = _held_back(ask, node)
    if held is None:  # a second click
        return RedirectResponse("/nodes", 303)
    signature = sign(ask.cluster, "Uncordon" if held[0].cordoned else drawn.USE_AGAIN)
    Client(cluster=ask.cluster).uncordon(name, metadata=signature.metadata(_uid(node)))
    return _back("/nodes", _told(signature, node))


def _job(ask: Ask, metadata: Mapping[str, Any] | None = None) -> Job:
    return Job(ask.cluster, ask.name("name"), ask.name("namespace"), metadata=metadata)


def _node(ask: Ask) -> dict[str, Any]:
    found: dict[str, Any] = ask.cluster.get(f"/api/v1/nodes/{ask.name('node')}")
    return {"apiVersion": "v1", "kind": "Node", **found}


def _told(signature: Signature, about: Mapping[str, Any]) -> str:
    return signature.event(about, "Requested", f"{signature.person} asked for it, by the page")


def _back(address: str, lacks: str) -> Response:
    """To where it is seen, but for one whose name is in no Event: who is told."""
    if not lacks:
        return RedirectResponse(address, 303)
    words = f"Your name stands in an annotation there, and in no Event: {lacks}"
    return notice("Done", words, 200, element("p", element("a", "Go on", href=address)))


def _check_on(ask: Ask) -> None:
    if not ask.settings.actions:
        raise ForbiddenError(
            "nothing can be changed by this page: whoever runs it switches that on, by `dashboard.actions` of the chart"
        )


def _is_asked(action: Action, row: JobRow, found: Mapping[str, Any]) -> bool:
    return action.already(row) or (action.ends and _uid(found) in _stopping)


def _check_fits(action: Action, row: JobRow) -> None:
    if not action.fits(row):
        state = "has ended" if row.finished else "is being deleted" if row.deleting else f"is {row.phase}"
        raise NotNowError(f"{row.name} {state}: {action.word} does nothing there now")


def _check_same(found: Mapping[str, Any], form: Mapping[str, str], name: str) -> None:
    if _uid(found) != form.get("uid"):
        raise NotFoundError(f"what was asked about is gone, and another one is called {name} now: nothing was done")


def _uid(found: Mapping[str, Any]) -> str:
    return str(part(found, "metadata").get("uid") or "")


_JOB, _NODE = "/jobs/{namespace}/{name}/", "/nodes/{node}/uncordon"
PAGES = (
    *(Page(path=f"{_JOB}{action.path}", draw=_ask_job(action), tab="Jobs", own=True) for action in ACTIONS),
    Page(path=_NODE, draw=_ask_node, tab="Nodes", own=True),
)
POSTS = (
    *(Post(path=f"{_JOB}{action.path}", act=_act_on_job(action)) for action in ACTIONS),
    Post(path=_NODE, act=_uncordon),
)
