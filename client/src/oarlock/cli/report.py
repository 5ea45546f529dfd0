"""`oarlock report`: a job as one HTML file."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from oarlock.cli.output import UsageError, say
from oarlock.cli.verb import OptionalName, PipeClosedError, app
from oarlock.cli.why import CONTEXT, KUBECONFIG, NAMESPACE, PATH
from oarlock.errors import NotNowError

FILE = Annotated[
    str | None,
    typer.Option(
        "--file",
        metavar="FILE",
        help="Where to write it (default: JOB.html here; - is standard output). Below --path, it links to the pictures.",
    ),
]


@app.command()
def report(
    name: OptionalName = None,
    *,
    path: PATH = None,
    file: FILE = None,
    namespace: NAMESPACE = None,
    context: CONTEXT = None,
    kubeconfig: KUBECONFIG = None,
) -> None:
    """Write a job as one HTML file: curve, timeline of attempts and ranks, pictures, faults with their evidence, settings.

    With --path alone, of a job whose pods, object and operator are gone. Prints the file's name.
    """
    from oarlock.reporting import report_of_job, report_of_output  # noqa: PLC0415 - --help needs none of it

    if not name and not path:
        raise UsageError("name a job, or its output directory with --path")
    target = Path(file or f"{name or Path(str(path)).resolve().name or 'report'}.html")
    place = None if file == "-" else target
    if name:
        from oarlock.cluster import connect  # noqa: PLC0415

        cluster = connect(context=context, kubeconfig=kubeconfig, namespace=namespace)
        page = report_of_job(cluster, name, path=path, file=place)
    else:
        page = report_of_output(str(path), file=place)
    if place is None:
        try:
            sys.stdout.write(page)
            sys.stdout.flush()
        except BrokenPipeError as error:  # which typer would end with 1
            raise PipeClosedError from error
        return
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(page, encoding="utf-8")
    except OSError as error:
        raise NotNowError(f"{target} cannot be written ({error.strerror}): name another one with --file") from error
    say(str(target))
