"""`oarlock why`: what keeps a job from training, or made it begin anew."""

from typing import TYPE_CHECKING, Annotated

import typer

from oarlock.cli.output import UsageError, say, write
from oarlock.cli.verb import OptionalName, verb

if TYPE_CHECKING:
    from oarlock.client import Client

FORMATS = ("text", "json", "yaml")
PATH = Annotated[
    str | None,
    typer.Option(
        "--path", metavar="FOLDER", help="The job's output directory, where it is mounted here; alone, it is enough."
    ),
]
FORMAT = Annotated[str, typer.Option("--output", "-o", metavar="FORMAT", help="text, json or yaml.")]


@verb(without_cluster=lambda given: given["name"] is None)
def why(client: "Client | None", *, name: OptionalName = None, path: PATH = None, output: FORMAT = "text") -> None:
    """Tell why a job does not train, or trained anew: each step with its evidence, how it stands now, and what to do.

    With --path alone, of a job whose pods, object and operator are gone.
    """
    from oarlock.explain.prose import prose  # noqa: PLC0415 - --help needs none of it
    from oarlock.why import story_of_output  # noqa: PLC0415

    if output not in FORMATS:
        raise UsageError(f"-o {output} is no format: one of {', '.join(FORMATS)}")
    if client is not None and name is not None:
        story = client.job(name).why(path)
    elif path:
        story = story_of_output(path)
    else:
        raise UsageError("name a job, or its output directory with --path")
    if output == "text":
        say(prose(story))
    else:
        write(story.to_json(), output)
