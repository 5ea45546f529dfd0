"""The verb logs."""

import json
import re
import sys
from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from oarlock.cli.output import UsageError, fields, note
from oarlock.cli.verb import OptionalName, verb
from oarlock.terminal import escaped_json

if TYPE_CHECKING:
    from oarlock.client import Client
    from oarlock.logs import LogLine

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_COLOURS = (36, 33, 32, 35, 34, 31)


@verb(without_cluster=lambda given: given["path"] or not given["name"])
def logs(
    client: "Client | None",
    *,
    name: OptionalName = None,
    path: Annotated[
        str | None,
        typer.Option(
            "--path", metavar="FOLDER", help="Instead of JOB: its output directory, mounted here; its pods may be gone."
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Wait for pods, and go on through all attempts until the job ends.")
    ] = False,
    rank: Annotated[
        int | None,
        typer.Option("--pod", "--rank", min=0, help="Only of this pod, by the number that ends its name."),
    ] = None,
    attempt: Annotated[
        int | None, typer.Option("--attempt", min=1, help="Of this attempt (default: the newest).")
    ] = None,
    incarnation: Annotated[
        int | None,
        typer.Option(
            "--incarnation", min=1, help="Of pods made anew within an attempt: 1 the first, 2 the next (default: all)."
        ),
    ] = None,
    previous: Annotated[bool, typer.Option("--previous", "-p", help="Of the attempt before the newest.")] = False,
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help="Only of the last 30s, 5m, 2h or 1d.")
    ] = None,
    tail: Annotated[
        int | None,
        typer.Option(
            "--tail", metavar="N", min=-1, help="Of each pod only its last N lines, and what follows; -1: all."
        ),
    ] = None,
    grep: Annotated[str | None, typer.Option("--grep", metavar="PATTERN", help="Only lines that match.")] = None,
    output: Annotated[
        str,
        typer.Option(
            "--output", "-o", metavar="FORMAT", help="text, or json: an object a line, with what was printed."
        ),
    ] = "text",
) -> None:
    """Print what the pods of a job print, in words: each line with its time (UTC), attempt and pod.

    With --path no cluster is asked: the lines are those that the job's output has kept.
    """
    if output not in {"text", "json", "jsonl"}:
        raise UsageError(f"-o {output} is no format of logs: text or json")
    if previous and (follow or attempt):
        raise UsageError("--previous goes with neither --follow nor --attempt")
    if bool(name) == bool(path):
        raise UsageError("name a job, or its output directory with --path: one of the two")
    if path and follow:
        raise UsageError("--path goes without --follow: it reads what is kept")
    tail = None if tail == -1 else tail
    if client is None or not name:
        from oarlock.kept_logs import read  # noqa: PLC0415 - --help needs none of it
        from oarlock.logs import Wanted  # noqa: PLC0415

        wanted = Wanted(
            rank=rank,
            attempt=attempt,
            incarnation=incarnation,
            previous=previous,
            since=_since(since),
            tail=tail,
            grep=grep,
        )
        lines = read(str(path), wanted)
    else:
        lines = client.job(name).logs(
            follow=follow,
            rank=rank,
            attempt=attempt,
            incarnation=incarnation,
            previous=previous,
            since=_since(since),
            tail=tail,
            grep=grep,
        )
    print_logs(lines, as_json=output != "text")


def print_logs(lines: Iterable["LogLine"], *, as_json: bool = False) -> None:
    """Print lines as they come; what the reader itself has to say goes to standard error, or is a line of its own kind.

    A terminal gets the day once, and of each line the time of the day; a file, or a program that reads on, both each time.
    """
    for_people = sys.stdout.isatty()
    day = ""
    for line in lines:
        if as_json:
            sys.stdout.write(escaped_json(json.dumps(fields(line), ensure_ascii=False)) + "\n")
        elif line.kind == "note":
            note(f"-- {line.text}")
            continue
        else:
            if for_people and line.time and line.time[:10] != day:
                day = line.time[:10]
                note(f"-- {day}, in UTC")
            sys.stdout.write(f"{_told(line, for_people=for_people)}\n")
        sys.stdout.flush()


def _told(line: "LogLine", *, for_people: bool) -> str:
    """As in `14:03:21 attempt 2, pod 3: WARNING loss is not finite`. The colour of a pod is the same in all attempts."""
    from oarlock.readable_log import readable  # noqa: PLC0415 - --help needs none of it

    found = readable(line)
    anew = f"-i{line.incarnation}" if line.incarnation > 1 else ""
    who = f"attempt {line.attempt}, pod {line.rank}{anew}:"
    time = f"{found.time[:19]}Z" if found.time else ""
    if for_people:
        time = found.clock
        who = f"\033[{_COLOURS[(line.rank or 0) % len(_COLOURS)]}m{who}\033[0m"
    return " ".join(part for part in (time, who, str(found)) if part)


def _since(given: str | None) -> timedelta | None:
    if given is None:
        return None
    found = re.fullmatch(r"([0-9]+)([smhd])", given)
    if not found:
        raise UsageError(f"--since {given} is no time: 30s, 5m, 2h or 1d")
    return timedelta(seconds=int(found[1]) * _UNITS[found[2]])
