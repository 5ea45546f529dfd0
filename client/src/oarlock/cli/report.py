"""`oarlock report`: a job as one HTML file."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oarlock.cli.output import UsageError, say
from oarlock.cli.verb import OptionalName, verb
from oarlock.cli.why import PATH
from oarlock.errors import NotNowError

if TYPE_CHECKING:
    from oarlock.client import Client

FILE = Annotated[
    str | None,
    typer.Option(
        "--file",
        metavar="FILE",
        help="Where to write it (default: JOB.html here; - is standard output). Below --path, it links to the pictures.",
    ),
]


@verb(without_cluster=lambda given: given["name"] is None)
def report(client: "Client | None", *, name: OptionalName = None, path: PATH = None, file: FILE = None) -> None:
    """Write a job as one HTML file: curve, timeline of attempts and pods, pictures, faults with their evidence, settings.

    With --path alone, of a job whose pods, object and operator are gone. Prints the file's name.
    """
    from oarlock.reporting import report_of_output  # noqa: PLC0415 - --help needs none of it

    if name is None and not path:
        raise UsageError("name a job, or its output directory with --path")
    target = Path(file or f"{name or Path(str(path)).resolve().name or 'report'}.html")
    place = None if file == "-" else target
    if client is not None and name is not None:
        page = client.job(name).report(path, file=place)
    else:
        page = report_of_output(str(path), file=place)
    if place is None:
        sys.stdout.write(page)
        sys.stdout.flush()
        return
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(page, encoding="utf-8")
    except OSError as error:
        raise NotNowError(f"{target} cannot be written ({error.strerror}): name another one with --file") from error
    say(str(target))
