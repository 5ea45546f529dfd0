"""Actions: a page that asks first, at the address where its form is sent. Each is the SDK's own method, as the caller."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

from starlette.responses import Response

from oarlock.client import Client
from oarlock.errors import ForbiddenError, NotFoundError, NotNowError, OarlockError, WaitTimeoutError
from oarlock.job import Job
from oarlock.report.markup import element
from oarlock.rows import JobRow, job_row, node_rows, part
from oarlock.web.ask import Ask, Page, Post, View
from oarlock.web.drawn import actions as drawn
from oarlock.web.drawn.actions import ACTIONS, Action
from oarlock.web.drawn.plain import notice
from oarlock.web.signature import Signature, sign

STOP_SECONDS = 1800.0
"""Within which a job that is stopped has to leave its nodes, to be deleted then."""
_STOPPING = threading.BoundedSemaphore(64)
log = logging.getLogger("oarlock.web")


def _ask_job(action: Action) -> Callable[[Ask], View]:
    def draw(ask: Ask) -> View:
        _check_on(ask)
        found = _job(ask).manifest
        row = job_row(found)
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
        _check_fits(action, row)
        signature = sign(ask.cluster, action.word)
        job = _job(ask, signature.metadata(_uid(found)))
        words = _DONE[action.word](job, row, found, signature)
        lacks = "" if action.word == "Stop" and row.finished else _told(signature, found)
        return _done(f"{row.name}: {words}", lacks, drawn.job_address(row), row.name)

    return act


def _suspend(job: Job, row: JobRow, *_: Any) -> str:
    job.suspend()
    return f"it saves if it trains, and leaves its {row.nodes or 0:,} nodes."


def _resume(job: Job, *_: Any) -> str:
    job.resume()
    return "it goes on."


def _save(job: Job, *_: Any) -> str:
    try:
        step = job.save(timeout=0).get("step")
    except WaitTimeoutError:
        return "it was asked, and saves at its next step; its page shows the answer."
    return f"step {step} is saved."


def _stop(job: Job, row: JobRow, found: Mapping[str, Any], signature: Signature) -> str:
    if row.finished:
        _tell_end(job, found, signature)
        return "it is deleted; its output stays."
    if not _STOPPING.acquire(blocking=False):
        raise NotNowError("many jobs are being stopped here already: try again in a minute, or `oarlock stop` it")
    try:
        job.suspend()  # refused at once, where that is not the caller's right
        threading.Thread(target=_end, args=(job, found, signature), name=f"stop {row.name}", daemon=True).start()
    except BaseException:
        _STOPPING.release()
        raise
    return "it saves if it trains, leaves its nodes, and is deleted then; its output stays."


def _end(job: Job, found: Mapping[str, Any], signature: Signature) -> None:
    try:
        _tell_end(job, found, signature)
    except OarlockError as error:
        log.warning("%s/%s was not stopped: %s", job.namespace, job.name, error)
        signature.event(
            found,
            "Failed",
            f"{signature.person} had it stopped by the page, and it is not deleted: {error}",
            warning=True,
        )
    finally:
        _STOPPING.release()


def _tell_end(job: Job, found: Mapping[str, Any], signature: Signature) -> None:
    step = job.stop(timeout=STOP_SECONDS)
    saved = f"its newest checkpoint is of step {step}" if step is not None else "without a checkpoint"
    signature.event(found, "Done", f"deleted for {signature.person}, by the page; {saved}")


_DONE: Mapping[str, Callable[[Job, JobRow, Mapping[str, Any], Signature], str]] = {
    "Suspend": _suspend,
    "Resume": _resume,
    "Save": _save,
    "Stop": _stop,
}


def _ask_uncordon(ask: Ask) -> View:
    _check_on(ask)
    node = _node(ask)
    (row,) = node_rows([node]) or (None,)
    if row is None or not row.cordoned:
        raise NotNowError(f"{ask.name('node')} is not cordoned: there is nothing to give back")
    return View(title=f"Uncordon {row.name}?", body=drawn.ask_uncordon(row, uid=_uid(node), csrf=ask.csrf()))


def _uncordon(ask: Ask, form: Mapping[str, str]) -> Response:
    _check_on(ask)
    node = _node(ask)
    name = ask.name("node")
    _check_same(node, form, name)
    signature = sign(ask.cluster, "Uncordon")
    Client(cluster=ask.cluster).uncordon(name, metadata=signature.metadata(_uid(node)))
    return _done(f"{name} takes pods again.", _told(signature, node), "/nodes", "the nodes")


def _job(ask: Ask, metadata: Mapping[str, Any] | None = None) -> Job:
    return Job(ask.cluster, ask.name("name"), ask.name("namespace"), metadata=metadata)


def _node(ask: Ask) -> dict[str, Any]:
    found: dict[str, Any] = ask.cluster.get(f"/api/v1/nodes/{ask.name('node')}")
    return {"apiVersion": "v1", "kind": "Node", **found}


def _told(signature: Signature, about: Mapping[str, Any]) -> str:
    return signature.event(about, "Requested", f"{signature.person} asked for it, by the page")


def _done(words: str, lacks: str, back: str, where: str) -> Response:
    more = [element("p", element("a", f"Back to {where}", href=back))]
    if lacks:
        more.insert(
            0, element("p", f"Your name stands in its annotation alone, and in no Event: {lacks}", class_="dim")
        )
    return notice("Done", words, 200, *more)


def _check_on(ask: Ask) -> None:
    if not ask.settings.actions:
        raise ForbiddenError(
            "nothing can be changed by this page: whoever runs it switches that on, by `dashboard.actions` of the chart"
        )


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
    *(Page(path=f"{_JOB}{action.path}", draw=_ask_job(action), tab="Jobs") for action in ACTIONS),
    Page(path=_NODE, draw=_ask_uncordon, tab="Nodes"),
)
POSTS = (
    *(Post(path=f"{_JOB}{action.path}", act=_act_on_job(action)) for action in ACTIONS),
    Post(path=_NODE, act=_uncordon),
)
