"""The pictures of a job: `?step=`, `?beside=` another step, `?show=` one of them; below it lie the files themselves."""

from __future__ import annotations

from starlette.responses import Response

from oarlock.errors import NotNowError, OarlockError, UnknownCallerError
from oarlock.leader import find_leader
from oarlock.web.albums import Album, Albums, Source
from oarlock.web.ask import Ask, Page, Read, View
from oarlock.web.budget import Budget
from oarlock.web.drawn.pictures import Choice, pictures
from oarlock.web.outputs import JobOutput, find_output
from oarlock.web.rights import PICTURES, Rights
from oarlock.web.sent import Sent
from oarlock.web.watch.jobs import known_job


def draw(ask: Ask) -> View:
    """Those of a step."""
    choice = Choice(
        namespace=ask.name("namespace"),
        job=ask.name("name"),
        step=_number(ask.query("step")),
        beside=_number(ask.query("beside")),
        show=ask.query("show"),
    )
    try:
        shown = _album(ask).last(lambda: _check(ask))
    except UnknownCallerError:
        raise
    except OarlockError as error:
        return pictures(choice, (), str(error))
    words = f"As of {shown.time:%H:%M:%S} UTC: {shown.trouble}" if shown.trouble else ""
    return pictures(choice, shown.steps, words)


def send(ask: Ask) -> Response:
    """A picture, a thumbnail or a grid."""
    media_type, content, share = _album(ask).picture(ask.path["file"], lambda: _check(ask))
    # Packed it is: to do it again would cost more time than it saves.
    headers = {"cache-control": "private, max-age=60", "content-encoding": "identity"}
    return Sent(content, share, media_type=media_type, headers=headers)


def _album(ask: Ask) -> Album:
    """The caller's own. Raises OarlockError where he may not see it."""
    namespace, name = ask.name("namespace"), ask.name("name")
    cluster = ask.cluster  # what is drawn comes of this caller's own requests: nobody else is given it
    known = known_job(ask)
    job = known.object
    uid = str(job["metadata"]["uid"])
    budget = ask.shelf.of(Budget)
    output: JobOutput | None = None
    try:
        output = find_output(ask, job, PICTURES)
    except NotNowError:
        if known.row.finished is not None:
            raise

    def make() -> Album:
        def find() -> Source:
            return output or find_leader(cluster, namespace=namespace, job=name, uid=uid)

        return Album(find, uid, budget, person=ask.caller.person)

    job_and_place = (namespace, name, uid, output is not None)
    return ask.shelf.of(Albums).of(ask.caller.person, ask.caller.identity, job_and_place, make)


def _check(ask: Ask) -> None:
    """Raise ForbiddenError where the caller may not look at pictures of this namespace's jobs any more."""
    ask.shelf.of(Rights).check(ask, PICTURES, ask.name("namespace"))


def _number(given: str) -> int | None:
    return int(given) if given.isascii() and given.isdecimal() and len(given) < 13 else None


PAGES = (Page(path="/jobs/{namespace}/{name}/pictures", draw=draw, tab="Jobs", own=True, asks_pods=True),)
READS = (Read(path="/jobs/{namespace}/{name}/pictures/{file:path}", answer=send, asks_pods=True),)
