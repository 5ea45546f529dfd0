"""The logs of a job: `?ranks=` as in 0, 3, 8-11, `?attempt=` one of them, `?find=` a text, `?still=1` as it is now.

`?kept=1`: those that its output has kept, where that is mounted; of an ended job it has them all.
`?raw=1`: the lines as they were printed, such as JSON, and not in words.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

from oarlock.cluster import Cluster
from oarlock.errors import OarlockError, UnknownCallerError
from oarlock.followed_logs import Follower
from oarlock.job import Job
from oarlock.logs import LogLine, Wanted
from oarlock.web.ask import Ask, Page, View
from oarlock.web.drawn.logs import Choice, logs, parse_ranks
from oarlock.web.outputs import JobOutput, find_output
from oarlock.web.rights import LOGS
from oarlock.web.tails import Tail, Tails
from oarlock.web.watch.jobs import known_job

TAIL, TAIL_TO_SEARCH = 500, 20_000
"""Lines of each pod that are read at first. Where a text is looked for, few of them are kept."""
LONGEST = 2000
"""Characters of a line."""
LOOK_SECONDS = 5.0
"""Between two looks for new pods: a few pods of one job, by their labels."""
WAITING_LINES = 1000
CONNECTION_SECONDS = 60.0
"""So long a log is read after the right to it has gone: the API server asks for it when a connection begins."""
_NOWHERE = (
    "None of these pods is there now. What they printed is kept in the job's output directory, in .oarlock/history/logs: "
    "where that is mounted, `oarlock logs --path` reads it."
)


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
    nodes = known.row.nodes or 0
    ranks, words = parse_ranks(ask.query("ranks"), nodes=nodes)
    attempt = ask.query("attempt")
    output: JobOutput | None = None
    try:
        output = find_output(ask, known.object, LOGS)
    except UnknownCallerError:
        raise
    except OarlockError as error:
        words = f"{words} {error}".strip()
    choice = Choice(
        namespace=namespace,
        job=name,
        ranks=ranks,
        attempt=int(attempt) if attempt.isascii() and attempt.isdecimal() and len(attempt) < 8 else None,
        find=ask.query("find"),
        kept=output is not None and (ask.query("kept") == "1" or known.row.finished is not None),
        still=ask.query("still") == "1",
        raw=ask.query("raw") == "1",
    )
    tail = ask.shelf.of(Tails).open(
        ask.caller.person,
        ask.caller.identity,
        (namespace, name, ranks, choice.attempt, choice.find, choice.kept),
        lambda: _tail(cluster, choice, output),
    )
    seen = tail.read(ask.bell)
    if seen.over and not seen.blocks and not seen.trouble:
        words = f"{words} {_NOWHERE}".strip()
    return logs(
        choice,
        seen,
        nodes=nodes,
        attempts=known.row.attempt or 0,
        words=words,
        other=output is not None and known.row.finished is None,
    )


def _tail(cluster: Cluster, choice: Choice, output: JobOutput | None) -> Tail:
    tail = TAIL_TO_SEARCH if choice.find else TAIL
    wanted = Wanted(ranks=choice.ranks, attempt=choice.attempt, tail=tail, longest=LONGEST)
    if choice.kept and output:
        return Tail(Kept(output, wanted), choice.find, grows=True)
    job = Job(cluster, choice.job, choice.namespace)
    follower = Follower(
        job,
        cluster,
        wanted,
        look_seconds=LOOK_SECONDS,
        waiting_lines=WAITING_LINES,
        connection_seconds=CONNECTION_SECONDS,
    )
    return Tail(follower, choice.find)


PAGES = (Page(path="/jobs/{namespace}/{name}/logs", draw=draw, tab="Jobs", own=True),)
