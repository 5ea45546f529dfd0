"""The logs of a job: `?pods=` as in 0, 3, 8-11, `?attempt=` one of them, `?find=` a text, `?still=1` as it is now.

`?kept=1`: those that its output has kept, where that is mounted; of an ended job it has them all,
and of an attempt that is over. `?until=` a time: no later lines.
`?raw=1`: the lines as they were printed, such as JSON, and not in words.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

from oarlock.cluster import Cluster
from oarlock.errors import OarlockError, UnknownCallerError
from oarlock.followed_logs import Follower
from oarlock.job import Job
from oarlock.log_places import where_kept
from oarlock.logs import LogLine, Wanted
from oarlock.parts import objects, part
from oarlock.web.ask import Ask, Page, View
from oarlock.web.drawn.logs import MOST_SEARCHED, Choice, has_lines, logs, parse_pods, to_second
from oarlock.web.outputs import JobOutput, find_output
from oarlock.web.rights import LOGS
from oarlock.web.tails import Tail, Tails
from oarlock.web.watch.jobs import KnownJob, known_job
from oarlock_api.contract.wire import text

TAIL = 500
"""Lines of each pod that are read at first."""
LONGEST = 2000
"""Characters of a line."""
LOOK_SECONDS = 5.0
"""Between two looks for new pods: a few pods of one job, by their labels."""
WAITING_LINES = 1000
CONNECTION_SECONDS = 60.0
"""So long a log is read after the right to it has gone: the API server asks for it when a connection begins."""


class Kept:
    """Lines that an output has kept, as a Source."""

    def __init__(self, output: JobOutput, wanted: Wanted) -> None:
        self._output, self._wanted = output, wanted
        self._over = threading.Event()

    def lines(self) -> Iterator[LogLine]:
        """Of one attempt, the newest by default."""
        for line in self._output.logs(self._wanted):
            if self._over.is_set():
                return
            yield line

    def end(self) -> None:
        """From any thread."""
        self._over.set()


def draw(ask: Ask) -> View:
    """The newest lines."""
    namespace, name = ask.name("namespace"), ask.name("name")
    cluster = ask.cluster  # what is drawn comes of this caller's own requests: nobody else is given it
    known = known_job(ask)
    nodes = (known.row.nodes or 0) + (known.row.spares or 0)
    pods, words = parse_pods(ask.query("pods") or ask.query("ranks"), nodes=nodes)
    attempt, kept = _attempt(ask.query("attempt")), ask.query("kept")
    output: JobOutput | None = None
    try:
        output = find_output(ask, known.object, LOGS)
        kept = kept or ("1" if output and _has_all(output, known, attempt) else "")
    except UnknownCallerError:
        raise
    except OarlockError as error:
        words = f"{words} {error}".strip()
    choice = Choice(
        namespace=namespace,
        job=name,
        pods=pods,
        attempt=attempt,
        find=ask.query("find"),
        until=to_second(ask.query("until")),
        kept=output is not None and (kept == "1" or known.row.finished is not None),
        still=ask.query("still") == "1",
        raw=ask.query("raw") == "1",
    )
    tail = ask.shelf.of(Tails).open(
        ask.caller.person,
        ask.caller.identity,
        (namespace, name, pods, attempt, choice.find, choice.until, choice.kept),
        lambda: _tail(cluster, choice, output, grows=known.row.finished is None and not _is_past(known, attempt)),
    )
    seen = tail.read(ask.bell)
    if seen.empty and not seen.trouble and not choice.kept and (seen.over or _is_past(known, attempt)):
        words = f"{words} {_gone(known, choice)}".strip()
    if choice.until and not (has_lines(seen) or seen.empty or choice.kept or output):
        words = f"{words} {_kept(known, choice)}".strip()
    return logs(
        choice,
        seen,
        nodes=nodes,
        gpus=(known.row.gpus or 0) // nodes if nodes else 0,
        attempts=known.row.attempt or 0,
        words=words,
        other=output is not None and known.row.finished is None,
    )


def _attempt(given: str) -> int | None:
    return int(given) if given.isascii() and given.isdecimal() and len(given) < 8 else None


def _is_past(known: KnownJob, attempt: int | None) -> bool:
    """Whether that attempt is over."""
    if attempt is None or known.row.attempt is None:
        return False
    told = objects(part(known.object, "status"), "attempts")
    return attempt < known.row.attempt or any(one.get("number") == attempt and one.get("endTime") for one in told)


def _has_all(output: JobOutput, known: KnownJob, attempt: int | None) -> bool:
    """Whether the output has kept that attempt, and no more of it will come."""
    if attempt is None or not _is_past(known, attempt):
        return False
    return output.keeps_logs(attempt, text(part(known.object, "metadata").get("uid"), 64))


def _gone(known: KnownJob, choice: Choice) -> str:
    """That no pod is there to be asked, and where its log lies."""
    newest, attempt = known.row.attempt or 0, _chosen(known, choice)
    if not 0 < attempt <= newest:
        return f"The job has no attempt {choice.attempt}: it has made {newest}." if choice.attempt is not None else ""
    one = _only(choice)
    who = f"Pod {one}" if one is not None else "These pods"
    return f"{who} of attempt {attempt} {'is' if one is not None else 'are'} gone. {_kept(known, choice)}"


def _kept(known: KnownJob, choice: Choice) -> str:
    return where_kept(known.object, attempt=_chosen(known, choice), pod=_only(choice))


def _chosen(known: KnownJob, choice: Choice) -> int:
    return (known.row.attempt or 0) if choice.attempt is None else choice.attempt


def _only(choice: Choice) -> int | None:
    return next(iter(choice.pods)) if len(choice.pods) == 1 else None


def _tail(cluster: Cluster, choice: Choice, output: JobOutput | None, *, grows: bool) -> Tail:
    tail = MOST_SEARCHED if choice.find or choice.until else TAIL
    wanted = Wanted(ranks=choice.pods, attempt=choice.attempt, tail=tail, longest=LONGEST)
    if choice.kept and output:
        return Tail(Kept(output, wanted), choice.find, grows=grows, until=choice.until)
    job = Job(cluster, choice.job, choice.namespace)
    follower = Follower(
        job,
        cluster,
        wanted,
        look_seconds=LOOK_SECONDS,
        waiting_lines=WAITING_LINES,
        connection_seconds=CONNECTION_SECONDS,
    )
    return Tail(follower, choice.find, until=choice.until)


PAGES = (Page(path="/jobs/{namespace}/{name}/logs", draw=draw, tab="Jobs", own=True),)
