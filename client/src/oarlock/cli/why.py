"""`oarlock why`: what keeps a job from training, or made it begin anew."""

from typing import Annotated

import typer

from oarlock.cli.output import UsageError, say, write
from oarlock.cli.verb import OptionalName, app

FORMATS = ("text", "json", "yaml")
PATH = Annotated[
    str | None,
    typer.Option(
        "--path", metavar="FOLDER", help="The job's output directory, where it is mounted here; alone, it is enough."
    ),
]
FORMAT = Annotated[str, typer.Option("--output", "-o", metavar="FORMAT", help="text, json or yaml.")]
NAMESPACE = Annotated[
    str | None, typer.Option("--namespace", "-n", metavar="NAME", help="Namespace (default: the context's).")
]
CONTEXT = Annotated[str | None, typer.Option("--context", metavar="NAME", help="Context of the kubeconfig.")]
KUBECONFIG = Annotated[
    str | None, typer.Option("--kubeconfig", metavar="FILE", help="Kubeconfig (default: as kubectl finds it).")
]


@app.command()
def why(
    name: OptionalName = None,
    *,
    path: PATH = None,
    output: FORMAT = "text",
    namespace: NAMESPACE = None,
    context: CONTEXT = None,
    kubeconfig: KUBECONFIG = None,
) -> None:
    """Tell why a job does not train, or trained anew: each step with its evidence, how it stands now, and what to do.

    With --path alone, of a job whose pods, object and operator are gone.
    """
    from oarlock.explain.prose import prose  # noqa: PLC0415 - --help needs none of it
    from oarlock.why import story_of_job, story_of_output  # noqa: PLC0415

    if output not in FORMATS:
        raise UsageError(f"-o {output} is no format: one of {', '.join(FORMATS)}")
    if name:
        from oarlock.cluster import connect  # noqa: PLC0415

        story = story_of_job(connect(context=context, kubeconfig=kubeconfig, namespace=namespace), name, path=path)
    elif path:
        story = story_of_output(path)
    else:
        raise UsageError("name a job, or its output directory with --path")
    if output == "text":
        say(prose(story))
    else:
        write(story.to_json(), output)
