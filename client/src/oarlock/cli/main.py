"""The commands `oarlock` and `kubectl oarlock`.

Each verb imports what it needs when it runs, so that none pays for another.
"""

from typing import Annotated

import typer

app = typer.Typer(
    name="oarlock",
    help="TrainingJobs on a Kubernetes cluster: start, watch, understand and end them.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:  # noqa: FBT001 - typer's callback gets the flag's value
    if wanted:
        from importlib.metadata import version  # noqa: PLC0415 - 20 ms that no other verb pays

        typer.echo(f"oarlock {version('oarlock')}")
        raise typer.Exit


@app.callback()
def _options(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """TrainingJobs on a Kubernetes cluster: start, watch, understand and end them."""


def main() -> None:
    """Run the command line and end the process with its exit code."""
    app()
